"""The compiled engine and the simpy engine mean the same: message by message, on random programs and networks."""

from random import Random

import networkx as nx
import numpy as np
import pytest
from compiled_cases import Case, Row, as_algorithm, random_case, reference
from hypothesis import given, settings
from hypothesis import strategies as st

import simcomm
from collectives import CollectiveCall, InputError, ProgramError, Transport, library
from collectives.call import round_down
from collectives.schedule.build import build_schedule
from collectives.schedule.symbolic_build import build_symmetric, build_table
from collectives.step import recv, send
from simcomm import Cluster
from simcomm.compiled import engine
from simcomm.compiled.engine import Timing, by_shortcut, one_by_one
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.model.faults import NO_FAULTS, Faults

TRANSPORT = Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10)
TINY = 1e-150  # seconds: an infinitely wide link takes no time in one engine, and next to none in the other
quickly = settings(max_examples=60, deadline=None)


def rows(timing: Timing) -> list[Row]:
    assert timing.times is not None
    return sorted(zip(*(column.tolist() for column in timing.times), strict=True))


def simulated(case: Case, faults: Faults = NO_FAULTS) -> Timing:
    return one_by_one(case.inputs(faults), messages=True)


def assert_same(case: Case, timing: Timing, faults: Faults = NO_FAULTS) -> None:
    """Every message begins and ends when the reference says."""
    elapsed, wanted = reference(case, faults)
    found = rows(timing)
    assert timing.elapsed == pytest.approx(elapsed, rel=1e-9, abs=TINY)
    assert [row[:6] for row in found] == [row[:6] for row in wanted]
    times, right = (np.array([row[6:] for row in each]).reshape(-1, 4) for each in (found, wanted))
    np.testing.assert_allclose(times, right, rtol=1e-9, atol=TINY)


@given(random=st.randoms(use_true_random=False), most_ranks=st.sampled_from([7, 20]))
@quickly
def test_every_message_begins_and_ends_as_in_the_reference(random: Random, most_ranks: int):
    case = random_case(random, most_ranks)
    assert_same(case, simulated(case))


def test_a_link_that_limits_several_messages_but_not_one_leaves_other_links_their_sums():
    """When the second message is through, the first goes at 0.4 GB/s, and the third has to come down to 0.45 GB/s."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    rates = {("s1", "h3"): 0.85e9, ("h0", "s0"): 0.4e9, ("h1", "s0"): 1e9, ("h2", "s1"): 1e9}
    for (a, b), rate in (rates | {("s1", "h4"): 1e9, ("s1", "h5"): 1e9}).items():
        graph.add_edge(a, b, bandwidth=rate, latency=0.0)
    graph.add_edge("s0", "s1", bandwidth=float("inf"), shared_bandwidth=5e8, latency=0.0)
    sent = [(0, 3, 0, 5), (1, 4, 0, 1), (2, 3, 5, 9), (2, 5, 5, 9)]  # from, to, first chunk, chunks
    programs = [
        [[(*(send(b, k, n) for a, b, k, n in sent if a == rank), *(recv(a, k, n) for a, b, k, n in sent if b == rank))]]
        for rank in range(6)
    ]
    cluster = Cluster("odd", graph, tuple(f"h{rank}" for rank in range(6)), Transport())
    case = Case(build_schedule(as_algorithm(programs, 14), 6), cluster, 14 * 250)
    _, wanted = reference(case)
    assert [row[7] for row in wanted] == pytest.approx([14e-6, 4e-6, 17e-6 + 1000 / 0.85e9, 17e-6])
    assert_same(case, simulated(case))


@pytest.mark.parametrize("most", [0, 3])
def test_filling_all_links_anew_gives_the_same(most: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine, "MOST_CORRECTIONS", most)
    for seed in range(15):
        case = random_case(Random(seed), 20)
        assert_same(case, simulated(case))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_many_more_random_programs(seed: int):
    for number in range(100):
        case = random_case(Random(1_000_000 * seed + number), 20)
        assert_same(case, simulated(case))


@pytest.mark.parametrize("name", library())
@pytest.mark.parametrize("op", ["sum", "mean"])
def test_the_library_takes_the_same_time_by_every_method(name: str, op: str):
    algorithm = library()[name]
    for p in (1, 4, 7) if not name.endswith("hierarchical") else (4, 6):
        cluster = simcomm.star(p, "10 Gbit/s", "5 us", TRANSPORT)
        n = max(1, round_down(algorithm, 3000, p))
        call = CollectiveCall(algorithm, n, op=op if algorithm.spec.reduces else "sum")
        wanted = simcomm.run(call, cluster).elapsed
        for schedule in (build_schedule(algorithm, p), build_table(algorithm, p), build_symmetric(algorithm, p)):
            if schedule is not None:
                asked = EngineInput(call, schedule, cluster, TRANSPORT)
                timing = by_shortcut(asked) or one_by_one(asked)
                assert timing.elapsed == pytest.approx(wanted, rel=1e-9), type(schedule)


def test_the_same_run_twice_gives_the_same_numbers_to_the_last_bit():
    case = random_case(Random(3), 20)
    one, other = simulated(case), simulated(case)
    assert rows(one) == rows(other)
    assert one.elapsed == other.elapsed


def test_ranks_that_wait_for_each_other_are_named():
    circle = [[[(send(1, 0),), (recv(1, 0),)]], [[(send(0, 0),), (recv(0, 0),)]]]
    case = Case(build_schedule(as_algorithm(circle, 1), 2), simcomm.star(2, "1 GB/s", "1 us", TRANSPORT), 8)
    with pytest.raises(ProgramError, match=r"deadlock: rank 0 in step 0 \(line .*\) waits for rank 1") as caught:
        one_by_one(case.inputs())
    assert caught.value.world_size == 2


def test_nothing_to_do_takes_no_time():
    for p in (1, 3):
        schedule = build_schedule(as_algorithm([[[]] for _ in range(p)], 1), p)
        timing = simulated(Case(schedule, simcomm.star(p, "1 GB/s", "1 us", TRANSPORT), 8))
        assert (timing.elapsed, timing.messages, rows(timing)) == (0.0, 0, [])


def test_too_many_messages_to_write_down_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("collectives.budget.Gigabyte.MESSAGES", 10)
    ring = library()["all_reduce/ring"]
    asked = EngineInput(CollectiveCall(ring, 8), build_table(ring, 4), simcomm.star(4, "1 GB/s", "1 us"), TRANSPORT)
    with pytest.raises(InputError, match="all_reduce/ring, world size 4: its 24 messages"):
        one_by_one(asked)


@pytest.mark.parametrize(("an_instant_s", "at_most"), [(0.01, 20), (1.0, 2), (1e-7, engine.INSTANTS_A_LOOK)])
def test_machine_code_that_is_slow_is_left_more_often(
    an_instant_s: float, at_most: int, monkeypatch: pytest.MonkeyPatch
):
    """An interrupt is heard between two looks only, and a second of machine code would be too long for that."""
    now, looks = 0.0, list[int]()

    def advance(world: object, instants: int, *_: float) -> bool:
        nonlocal now
        now += instants * an_instant_s
        looks.append(instants)
        return len(looks) == 20

    monkeypatch.setattr("simcomm.compiled.kernel.event_loop.advance", advance)
    monkeypatch.setattr(engine, "monotonic", lambda: now)
    ring = build_symmetric(library()["all_reduce/ring"], 4)
    asked = EngineInput(
        CollectiveCall(ring.algorithm, 16), ring, simcomm.star(4, "1 GB/s", "1 us", TRANSPORT), TRANSPORT
    )
    engine.run_kernel(asked.schedule_plan.plan, asked.link_records)
    assert looks[0] <= engine.FIRST_LOOK
    assert at_most / 2 <= max(looks[-5:]) <= at_most
