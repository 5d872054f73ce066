"""The compiled engine equals the reference engine, message by message, on random programs and networks."""

from random import Random

import networkx as nx
import numpy as np
import pytest
from compiled_cases import Case, Row, as_algorithm, random_case, reference

import simcomm
from collectives import CollectiveCall, ProgramError, Transport, library
from collectives.call import round_down
from collectives.schedule.build import build_schedule
from collectives.schedule.symbolic_build import build_compact, build_symmetric
from collectives.step import recv, send
from simcomm import Cluster
from simcomm.cluster.topologies import fat_tree
from simcomm.compiled.engine import Timing, by_shortcut, one_by_one
from simcomm.compiled.planning.engine_input import EngineInput

TRANSPORT = Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10)
TINY = 1e-150  # seconds: an unlimited link takes no time in one engine, and almost none in the other


def rows(timing: Timing) -> list[Row]:
    assert timing.times is not None
    return sorted(zip(*(column.tolist() for column in timing.times), strict=True))


def simulate(case: Case) -> Timing:
    return one_by_one(case.inputs(), messages=True)


def check(case: Case) -> None:
    """Check that every message begins and ends as in the reference engine."""
    elapsed, expected = reference(case)
    timing = simulate(case)
    messages = rows(timing)
    assert timing.elapsed == pytest.approx(elapsed, rel=1e-9, abs=TINY)
    assert [row[:6] for row in messages] == [row[:6] for row in expected]
    times = (np.array([row[6:] for row in table]).reshape(-1, 4) for table in (messages, expected))
    np.testing.assert_allclose(*times, rtol=1e-9, atol=TINY)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_engine_equals_reference_on_seeded_programs(seed: int):
    for number in range(100 if seed else 60):
        check(random_case(Random(1_000_000 * seed + number), 20))


def test_rates_are_refilled_when_corrections_do_not_converge():
    """The expected time is that of the reference engine, which takes a minute."""
    done = simcomm.run("all_reduce/direct", fat_tree(6, "10 Gbit/s", "5 us"), 1 << 20, record=False)
    assert done.elapsed == pytest.approx(1.666816e-3, rel=1e-9)


def test_link_unlimited_for_one_message_keeps_sums_of_others():
    """When the second message ends, the first continues at 0.4 GB/s, and the third slows down to 0.45 GB/s."""
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
    assert [row[7] for row in reference(case)[1]] == pytest.approx([14e-6, 4e-6, 17e-6 + 1000 / 0.85e9, 17e-6])
    check(case)


@pytest.mark.parametrize("name", library())
@pytest.mark.parametrize("op", ["sum", "mean"])
def test_library_algorithms_take_equal_time_by_every_method(name: str, op: str):
    algorithm = library()[name]
    for p in (1, 4, 7) if not name.endswith("hierarchical") else (4, 6):
        cluster = simcomm.star(p, "10 Gbit/s", "5 us", TRANSPORT)
        n = max(1, round_down(algorithm, 3000, p))
        call = CollectiveCall(algorithm, n, op=op if algorithm.spec.reduces else "sum")
        expected = simcomm.run(call, cluster).elapsed
        for schedule in (
            build_schedule(algorithm, p),
            build_compact(algorithm, p).table(),
            build_symmetric(algorithm, p),
        ):
            if schedule is not None:
                inputs = EngineInput(call, schedule, cluster, TRANSPORT)
                timing = by_shortcut(inputs) or one_by_one(inputs)
                assert timing.elapsed == pytest.approx(expected, rel=1e-9), type(schedule)


def test_deadlock_names_waiting_ranks():
    programs = [[[(send(1, 0),), (recv(1, 0),)]], [[(send(0, 0),), (recv(0, 0),)]]]
    case = Case(build_schedule(as_algorithm(programs, 1), 2), simcomm.star(2, "1 GB/s", "1 us", TRANSPORT), 8)
    with pytest.raises(ProgramError, match=r"deadlock: rank 0 in step 0 \(line .*\) waits for rank 1") as caught:
        one_by_one(case.inputs())
    assert caught.value.world_size == 2


@pytest.mark.parametrize("p", [1, 3])
def test_program_without_operations_takes_no_time(p: int):
    schedule = build_schedule(as_algorithm([[[]] for _ in range(p)], 1), p)
    timing = simulate(Case(schedule, simcomm.star(p, "1 GB/s", "1 us", TRANSPORT), 8))
    assert (timing.elapsed, timing.messages, rows(timing)) == (0.0, 0, [])
