"""The closed forms, against a replay of the programs in the alpha-beta-gamma model they are stated in."""

import pytest

from collectives import Kind, find_algorithm, library, verify
from collectives.cost import CLOSED_FORMS, bus_factor, least_sent_share, least_steps
from collectives.schedule import Schedule, trace
from collectives.spec import SPECS
from collectives.step import Operation, extent
from collectives.verify import completion_order

SIZES = range(1, 10)


def seconds(schedule: Schedule, op: Operation, nbytes: int, alpha: float, beta: float, gamma: float) -> float:
    """Of one operation: alpha + beta a byte for a message, gamma a byte for what is reduced or copied."""
    n = extent(op.target.start if op.kind.receives else op.chunk, op.count, nbytes, schedule.chunks)
    return (0 if op.kind.is_local else alpha + beta * n) + (gamma * n if op.kind.combines or op.kind.is_local else 0)


def replay(schedule: Schedule, nbytes: int, alpha: float, beta: float, gamma: float) -> float:
    """When the last rank is done: a step starts when all whom it meets have arrived, and lasts as long as its longest
    operation. An oracle for steps that meet steps one to one, which the library's are."""
    clock = [0.0] * schedule.world_size
    arrived: dict[tuple[int, int], float] = {}  # (rank, step) -> when it was posted
    for rank, number in completion_order(schedule):
        arrived[rank, number] = clock[rank]
        step = schedule.programs[rank][number]
        met = {(int(schedule.rank[m]), int(schedule.step[m])) for m in _matches(schedule, rank, number)}
        start = max([clock[rank], *(arrived.get(other, clock[other[0]]) for other in met)])
        clock[rank] = start + max(seconds(schedule, op, nbytes, alpha, beta, gamma) for op in step)
    return max(clock)


def _matches(schedule: Schedule, rank: int, number: int) -> list[int]:
    here = (schedule.rank == rank) & (schedule.step == number) & (schedule.match >= 0)
    return [int(match) for match in schedule.match[here]]


@pytest.mark.parametrize("name", sorted(CLOSED_FORMS))
@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize(
    ("alpha", "beta", "gamma"), [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (5.0, 0.25, 0.125)]
)
def test_closed_forms_equal_a_replay(name: str, p: int, alpha: float, beta: float, gamma: float) -> None:
    nbytes = 64 * p
    expected = replay(trace(find_algorithm(name), p), nbytes, alpha, beta, gamma)
    assert CLOSED_FORMS[name](p, nbytes, alpha, beta, gamma) == pytest.approx(expected, rel=1e-12)


def test_every_closed_form_is_of_an_algorithm_that_is_there() -> None:
    assert CLOSED_FORMS.keys() <= library().keys()


@pytest.mark.parametrize("name", sorted(library()))
@pytest.mark.parametrize("p", SIZES)
def test_nothing_beats_the_lower_bounds(name: str, p: int) -> None:
    found = find_algorithm(name)
    report = verify(found, p)
    assert report.steps >= least_steps(found.spec.name, p)
    assert report.sent_share >= least_sent_share(found.spec.name, p)


@pytest.mark.parametrize("p", range(2, 18))
def test_the_ring_meets_the_bandwidth_bound(p: int) -> None:
    assert verify(find_algorithm("all_reduce/ring"), p).sent_share == least_sent_share("all_reduce", p)


@pytest.mark.parametrize(("p", "steps"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (1024, 10)])
def test_least_steps_double_the_reach(p: int, steps: int) -> None:
    assert least_steps("all_reduce", p) == steps


def test_bounds_and_factors_are_there_for_every_collective() -> None:
    for collective in SPECS:
        assert least_sent_share(collective, 1) == 0
        assert least_sent_share(collective, 4) > 0
        assert bus_factor(collective, 4) > 0


@pytest.mark.parametrize(("p", "factor"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_bus_factor_of_all_reduce_is_that_of_nccl_tests(p: int, factor: float) -> None:
    assert bus_factor("all_reduce", p) == factor
    assert bus_factor("broadcast", p) == bus_factor("reduce", p) == 1.0


def test_the_replay_counts_a_step_s_operations_at_once() -> None:
    schedule = trace(find_algorithm("all_reduce/ring"), 2)
    assert all(len(step) == 2 and step[0].kind is Kind.SEND for step in schedule.programs[0])
    assert replay(schedule, 2, alpha=1.0, beta=0.0, gamma=0.0) == 2.0
