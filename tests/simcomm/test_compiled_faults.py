"""Both engines and the max-plus shortcut agree on random programs, networks and faults, and on repeated runs."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import networkx as nx
import numpy as np
import pytest
from compiled_cases import Case, as_algorithm, random_case, random_faults, simulated_by_simpy
from hypothesis import given, settings
from hypothesis import strategies as st

import simcomm
from collectives import CollectiveCall, InputError, Trace, Transport, find_algorithm, library
from collectives.call import round_down
from collectives.schedule.build import build_schedule
from collectives.schedule.symbolic_build import build_compact, build_symmetric
from collectives.schedule.symmetric import SymmetricSchedule
from collectives.step import recv, send
from collectives.training.workload import ComputePhases, Training
from simcomm import Cluster, ring, star
from simcomm.cluster.topologies import fat_tree
from simcomm.compiled.engine import by_events, by_max_plus, by_shortcut, one_by_one
from simcomm.compiled.planning.engine_input import EngineInput, repetitions
from simcomm.compiled.traces import make_trace
from simcomm.model.faults import NO_FAULTS, Faults, Jitter, LinkFault, RankFault
from simcomm.reference.engine import make_trace as make_reference_trace
from simcomm.repetition import is_median_known, repeat

ENGINES = ("simpy", "compiled")
TRANSPORT = Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10)
CLOSE, TINY = 1e-9, 1e-150  # an unlimited link takes no time in one engine, and almost none in the other
TIMES = ("begin", "end", "src_posted", "dst_posted", "since")


def both(case: Case, faults: Faults) -> list[Trace]:
    simulation, elapsed = simulated_by_simpy(case, faults)
    inputs = case.inputs(faults)
    timing = one_by_one(inputs, messages=True)
    return [make_reference_trace(simulation, case.schedule, elapsed, {}), make_trace(inputs, timing, {})]


def assert_agree(expected: Trace, other: Trace) -> None:
    assert other.is_complete == expected.is_complete
    assert other.elapsed == pytest.approx(expected.elapsed, rel=CLOSE, abs=TINY)
    assert other.failed == expected.failed
    for name in ("messages", "spans", "unfinished"):
        assert_rows(getattr(other, name), getattr(expected, name), expected.elapsed)
    assert [(link[:4], link.rates) for link in other.links] == [(link[:4], link.rates) for link in expected.links]
    assert [link.nbytes for link in other.links] == pytest.approx([link.nbytes for link in expected.links])


def assert_rows(ours: Iterable[Any], theirs: Iterable[Any], elapsed: float) -> None:
    """Check that the rows are equal, and their times within 1e-9 or a small share of the run."""
    tables = [sorted(map(split, rows), key=rounded) for rows in (ours, theirs)]
    assert [values for values, _ in tables[0]] == [values for values, _ in tables[1]]
    times = (np.array([numbers for _, numbers in rows]) for rows in tables)
    np.testing.assert_allclose(*times, rtol=CLOSE, atol=TINY + 1e-12 * elapsed)


def split(row: Any) -> tuple[list[Any], list[float]]:
    fields = row._asdict()
    return [fields[key] for key in fields if key not in TIMES], [float(fields[key]) for key in fields if key in TIMES]


def rounded(row: tuple[list[Any], list[float]]) -> tuple[Any, ...]:
    return (*row[0], *(float(f"{number:.8e}") for number in row[1]))


def drawn(seed: int) -> tuple[Case, Faults]:
    random = Random(seed)
    case = random_case(random, random.choice([4, 9, 20]))
    _, longest = simulated_by_simpy(case)
    return case, random_faults(random, case, longest)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_engines_agree_on_random_runs_with_faults(seed: int):
    for number in range(150 if seed else 45):
        assert_agree(*both(*drawn(1_000_000 * seed + number)))


def test_compiled_engine_gives_the_time_of_the_reference_engine():
    """The expected time is that of the reference engine, which takes a minute."""
    done = simcomm.run("all_reduce/direct", fat_tree(6, "10 Gbit/s", "5 us"), 1 << 20, record=False)
    assert done.elapsed == pytest.approx(1.666816e-3, rel=1e-9)


def test_flow_rates_are_correct_with_an_unlimited_link():
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
    simulated, other = both(case, NO_FAULTS)
    assert sorted(simulated.messages.end) == pytest.approx([4e-6, 14e-6, 17e-6, 17e-6 + 1000 / 0.85e9])
    assert_agree(simulated, other)


@pytest.mark.parametrize("name", library())
@pytest.mark.parametrize("op", ["sum", "mean"])
def test_all_schedule_representations_give_equal_times(name: str, op: str):
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


LARGE = star(256, "10 Gbit/s", "5 us")


@pytest.mark.parametrize(
    "faults",
    [
        Faults((RankFault(3, fails_at=1e-3),)),
        Faults(links=(LinkFault(("h3", "s0"), 0.0),)),
        Faults(links=(LinkFault(("h3", "s0"), 0.5, 1e-3),)),
    ],
)
def test_too_many_messages_are_rejected_before_they_are_listed(faults: Faults, monkeypatch: pytest.MonkeyPatch):
    for limit in ("MESSAGES", "WRITTEN"):
        monkeypatch.setattr(f"collectives.budget.Gigabyte.{limit}", 1000)
    monkeypatch.setattr(SymmetricSchedule, "table", None)
    with pytest.raises(InputError, match=r"its 261,120 messages take too much memory .* the limit is 1,000"):
        simcomm.run("all_reduce/bidirectional_ring", LARGE, 1 << 20, faults=faults, record=False)


def test_too_many_messages_to_record_are_rejected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("collectives.budget.Gigabyte.RECORDED", 1000)
    with pytest.raises(InputError, match="the limit is 1,000"):
        simcomm.run("all_reduce/ring", LARGE, 1 << 20)
    assert simcomm.run("all_reduce/ring", LARGE, 1 << 20, record=False).method == "max-plus"


CASES = [
    ("all_reduce/ring", star),
    ("all_gather/ring", star),
    ("all_reduce/unchunked_ring", star),
    ("barrier/dissemination", star),
    *((f"{name}/bidirectional_ring", ring) for name in ("all_reduce", "all_gather", "reduce_scatter")),
]


def with_random_links(cluster: Cluster, random: Random) -> Cluster:
    graph = cluster.graph.copy()
    for _, _, link in graph.edges(data=True):
        link["bandwidth"] *= random.choice([1.0, 1.0, 0.3, random.uniform(0.5, 2), np.inf])
    return replace(cluster, graph=graph)


def assert_same_end(expected: Trace, other: Trace) -> None:
    """Check that the same ranks failed, and that the others wait for the same peers since the same time."""
    assert other.elapsed == pytest.approx(expected.elapsed, rel=CLOSE)
    assert other.failed == expected.failed
    waiting = [sorted((*op[:5], *op[6:]) for op in trace.unfinished) for trace in (expected, other)]
    assert waiting[0] == waiting[1]
    since = [sorted(op.since for op in trace.unfinished) for trace in (other, expected)]
    assert since[0] == pytest.approx(since[1], rel=CLOSE, abs=1e-12 * expected.elapsed)


@pytest.mark.parametrize(("name", "topology"), CASES)
@given(
    p=st.integers(2, 9), n=st.sampled_from([1, 7, 3000, 100_000]), random=st.randoms(use_true_random=False),
    gamma=st.sampled_from([0.0, 1e-10, 1e-9]), late=st.booleans(),
)  # fmt: skip
@settings(max_examples=8, deadline=None)
def test_max_plus_matches_events_when_ranks_fail(
    name: str, topology: Any, p: int, n: int, random: Random, gamma: float, late: bool
):
    transport = replace(TRANSPORT, gamma=gamma)
    cluster = with_random_links(topology(p, "1 GB/s", "1 us", transport), random)
    schedule = build_symmetric(library()[name], p)
    assert schedule is not None
    inputs = EngineInput(CollectiveCall(schedule.algorithm, n), schedule, cluster, transport)
    longest = by_events(inputs).elapsed
    starts = np.array([random.choice([0.0, longest * random.random()]) for _ in range(p)]) if late else None
    drawn = type("Drawn", (), {"schedule": schedule, "cluster": cluster})
    faults = random_faults(random, drawn, longest)  # type: ignore[arg-type]
    inputs = replace(inputs, faults=faults, starts=starts)
    short, full = by_max_plus(inputs), by_events(inputs.with_table())
    if short is None:  # both directions of a ring of two share a link
        assert (topology, p) == (ring, 2)
        return
    assert short.elapsed == pytest.approx(full.elapsed, rel=CLOSE)
    np.testing.assert_allclose(short.finished, full.finished, rtol=CLOSE)
    assert_same_end(*(make_trace(inputs.with_table(), timing, {}, record=False) for timing in (full, short)))


DOWN = LinkFault(("h2", "s0"), 0.0, 0.31, 0.02)
FAULT_CASES = [
    Faults((RankFault(1, fails_at=0.5),)),  # before its second sync
    Faults((RankFault(1, fails_at=0.0), RankFault(3, 2.0))),
    Faults(
        (RankFault(1, 1.5),),
        (LinkFault(("h2", "s0"), 0.2),),
        Jitter("exponential", 1e-5),
        Jitter("exponential", 0.1),
        seed=5,
    ),
    Faults(links=(LinkFault(("h2", "s0"), 0.2, 0.3, 0.01), LinkFault(("h2", "s0"), 0.2, 0.317, 0.01), DOWN)),
    Faults(links=(replace(DOWN, lasting=np.inf),)),
    Faults((RankFault(4, 1.5, fails_at=0.7),), (DOWN,), Jitter("exponential", 1e-4), Jitter("uniform", 0.1), 3),
]


@pytest.mark.parametrize("faults", FAULT_CASES)
@pytest.mark.parametrize("name", ["ring", "double_tree"])
def test_engines_agree_on_failing_training(name: str, faults: Faults):
    cluster = star(6, "10 Gbit/s", "5 us", TRANSPORT)
    training = Training(find_algorithm(f"all_reduce/{name}"), compute=ComputePhases(0.1, 0.2, 0.05))
    simulated, other = (
        simcomm.train(training, cluster, engine=engine, faults=faults) for engine in ("simpy", "compiled")
    )
    short = simcomm.train(training, cluster, engine="compiled", faults=faults, record=False)
    assert short.engine == other.engine == "compiled"
    assert_agree(simulated, other)
    assert_same_end(simulated, short)
    spans = [[span[:3] for span in trace.spans if span.name != "reduce"] for trace in (simulated, short)]
    assert spans[0] == spans[1]


@pytest.mark.parametrize(
    ("sync", "phases", "engine"),
    [
        ("double_tree", ComputePhases(0.1, 0.2, 0.05), "compiled"),
        ("naive", ComputePhases(1e-6, 2e-6, 5e-7), "compiled"),  # ranks drift apart, but only talk to the root
        ("binomial", ComputePhases(1e-6, 1e-6, 1e-6), "simpy"),  # two syncs overlap
    ],
)
def test_engines_agree_on_training(sync: str, phases: ComputePhases, engine: str):
    training = Training(find_algorithm(f"all_reduce/{sync}"), compute=phases)
    simulated, other = (simcomm.train(training, star(6, "10 Gbit/s", "5 us", TRANSPORT), engine=e) for e in ENGINES)
    assert other.engine == engine
    assert_agree(simulated, other)


def test_failure_in_large_ring_is_simulated_without_messages(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SymmetricSchedule, "table", None)
    faults = Faults((RankFault(3, fails_at=1e-3),))
    trace = simcomm.run("all_reduce/ring", star(2048, "100 Gbit/s", "1 us"), 1 << 26, faults=faults, record=False)
    assert (trace.method, trace.failed) == ("max-plus", {3: 1e-3})
    assert len(trace.unfinished) == 2048  # 4's receive, 2's send, and so on outwards until both meet
    assert 3 in {op.peer for op in trace.unfinished}


NARROW = Faults(messages=Jitter("uniform", 1e-9), repetitions=1000)
WIDE = Faults(messages=Jitter("exponential", 1e-2), repetitions=31)


@pytest.mark.parametrize(("faults", "runs"), [(NARROW, 20), (WIDE, 31), (replace(NARROW, repetitions=7), 7)])
def test_repetitions_stop_once_the_median_is_known(faults: Faults, runs: int) -> None:
    star, seeds = simcomm.star(4, "1 GB/s", "1 us"), list[int]()

    def simulate(faults: Faults, record: bool) -> Trace:
        seeds.append(faults.seed)
        return simcomm.run("all_reduce/ring", star, 1 << 16, faults=faults, record=record)

    trace, figures = repeat(faults, star, simulate, lambda each: each.elapsed, record=False)
    assert seeds == list(range(runs))
    assert (figures.repetitions, figures.asked) == (runs, faults.repetitions if runs < faults.repetitions else None)
    assert figures.distribution is not None
    assert figures.distribution.median_s == pytest.approx(trace.elapsed, rel=1e-3 if runs == 20 else 1)


@pytest.mark.parametrize(
    ("times", "is_known"),
    [([inf] * 20, True), ([1.0] * 20 + [inf] * 4, True), ([1.0] * 12 + [inf] * 8, False), ([1.0] * 5, False)],
)
def test_median_may_be_known_although_runs_hang(times: list[float], is_known: bool) -> None:
    assert is_median_known(times) is is_known


@pytest.mark.parametrize(
    "faults",
    [
        Faults(messages=Jitter("exponential", 1e-5)),
        Faults(compute=Jitter("uniform", 0.1), links=(LinkFault(("h1", "s0"), 0.25),)),
        Faults(messages=Jitter("uniform", 1e-6), links=(LinkFault(("h1", "s0"), 0.5, at=1e-5, lasting=1e-5),)),
        Faults(messages=Jitter("uniform", 1e-6), ranks=(RankFault(1, slowdown=2, fails_at=2e-4),)),
    ],
)
@pytest.mark.parametrize("record", [True, False])
def test_repetitions_with_shared_routes_equal_separate_runs(faults: Faults, record: bool) -> None:
    star = simcomm.star(6, "1 GB/s", "1 us", Transport("test", gamma=1e-10))
    training = Training(find_algorithm("all_reduce/double_tree"), compute=ComputePhases(1e-4, 2e-4, 1e-5))

    def simulate(number: int) -> list[dict[str, Any]]:
        options: dict[str, Any] = {"faults": faults.repetition(number), "record": record, "engine": "compiled"}
        runs = [simcomm.run(f"all_reduce/{name}", star, 99_992, **options) for name in ("ring", "double_tree")]
        return [trace.to_dict() for trace in (*runs, simcomm.train(training, star, **options))]

    alone = [simulate(number) for number in range(3)]
    with repetitions():
        assert [simulate(number) for number in range(3)] == alone
