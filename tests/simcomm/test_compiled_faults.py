"""Faults on both engines, and on max-plus: slow and failing ranks, changing links, hangs, and repeated runs."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import numpy as np
import pytest
from compiled_cases import Case, as_algorithm, random_case, random_faults, simulated_by_simpy
from hypothesis import given, settings
from hypothesis import strategies as st

import simcomm
from collectives import CollectiveCall, InputError, Trace, Transport, find_algorithm, library
from collectives.schedule.build import build_schedule
from collectives.schedule.symbolic_build import build_symmetric
from collectives.schedule.symmetric import SymmetricSchedule
from collectives.step import copy, recv, send
from collectives.training.workload import ComputePhases, Training
from simcomm import Cluster, ring, star
from simcomm.compiled.engine import by_events, by_max_plus, one_by_one
from simcomm.compiled.planning.engine_input import EngineInput, repetitions
from simcomm.compiled.traces import make_trace
from simcomm.model.faults import Faults, Jitter, LinkFault, RankFault
from simcomm.reference.engine import make_trace as make_reference_trace
from simcomm.repetition import is_median_known, repeat

ENGINES = ("simpy", "compiled")
CLOSE, TINY = 1e-9, 1e-150  # an unlimited link takes no time in one engine, and almost none in the other
TIMES = ("begin", "end", "src_posted", "dst_posted", "since")


def both(case: Case, faults: Faults) -> list[Trace]:
    """Return the traces of both engines."""
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
    """Separate the values of a row from its times."""
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
def test_engines_agree_on_seeded_cases(seed: int):
    for number in range(150 if seed else 45):
        assert_agree(*both(*drawn(1_000_000 * seed + number)))


@pytest.mark.parametrize(("fails_at", "ends"), [(3.5e-3, True), (2.5e-3, False), (1.5e-3, False)])
def test_rank_that_fails_while_reducing_does_not_finish(fails_at: float, ends: bool):
    """Two chunks arrive within 2 ms, and the last step copies them in 1 ms each."""
    programs = [[[(recv(1, 2, 2),), (copy(2, 0), copy(3, 1))]], [[(send(0, 0, 2),)]]]
    cluster = star(2, "1 GB/s", "0 us", Transport("test", overhead=0.0, goodput=1.0, gamma=1e-9))
    case = Case(build_schedule(as_algorithm(programs, 2), 2), cluster, 500_000)
    simulated, other = both(case, Faults((RankFault(0, fails_at=fails_at),)))
    assert simulated.is_complete == ends
    assert_agree(simulated, other)


LARGE = star(256, "10 Gbit/s", "5 us")


@pytest.mark.parametrize(
    "faults",
    [
        Faults((RankFault(3, fails_at=1e-3),)),
        Faults(links=(LinkFault(("h3", "s0"), 0.0),)),
        Faults(links=(LinkFault(("h3", "s0"), 0.5, 1e-3),)),
    ],
)
def test_too_many_messages_are_rejected_before_expansion(faults: Faults, monkeypatch: pytest.MonkeyPatch):
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


def test_max_plus_applies_with_a_degraded_link():
    thin = Faults(links=(LinkFault(("h3", "s0"), 0.5), LinkFault(("s0", "h3"), 0.25)))
    quick, full = (
        simcomm.run("all_reduce/ring", LARGE, 1 << 20, faults=thin, record=record, engine="compiled")
        for record in (False, True)
    )
    assert (quick.method, full.method) == ("max-plus", "events")
    assert quick.elapsed == pytest.approx(full.elapsed, rel=CLOSE)
    assert quick.elapsed > 1.5 * simcomm.run("all_reduce/ring", LARGE, 1 << 20, record=False).elapsed


TRANSPORT = Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10)
CASES = [
    ("all_reduce/ring", star),
    ("all_gather/ring", star),
    ("all_reduce/unchunked_ring", star),
    ("barrier/dissemination", star),
    ("all_reduce/bidirectional_ring", ring),
]


def with_random_links(cluster: Cluster, random: Random) -> Cluster:
    """Return the cluster with links of several speeds, possibly unlimited."""
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
def test_max_plus_halts_match_events(
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


def ends_by_name(trace: Trace) -> Any:
    """Return the end times of messages, in an order that does not depend on rounding."""
    messages = trace.messages
    names = messages.chunk, messages.step, messages.channel, messages.dst, messages.src, messages.collective
    return messages.end[np.lexsort(names)]


DOWN = LinkFault(("h2", "s0"), 0.0, 0.31, 0.02)
FAULT_CASES = [
    Faults((RankFault(1, fails_at=0.5),)),  # before its second sync
    Faults((RankFault(1, fails_at=0.303),)),  # within its first one
    Faults((RankFault(1, fails_at=0.0), RankFault(3, 2.0))),
    Faults(
        (RankFault(1, 1.5),),
        (LinkFault(("h2", "s0"), 0.2),),
        Jitter("exponential", 1e-5),
        Jitter("exponential", 0.1),
        seed=5,
    ),
    Faults(links=(LinkFault(("h2", "s0"), 0.2, 0.3, 0.1),)),
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
    assert len(other.messages) == len(simulated.messages)
    np.testing.assert_allclose(*(ends_by_name(trace) for trace in (other, simulated)), rtol=CLOSE)
    for trace in (other, short):
        assert_same_end(simulated, trace)
    spans = [[span[:3] for span in trace.spans if span.name != "reduce"] for trace in (simulated, short)]
    assert spans[0] == spans[1]


def test_faults_after_the_end_are_ignored(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("simcomm.compiled.shortcuts.max_plus.LinkRates", None)
    cluster = star(128, "10 Gbit/s", "5 us", TRANSPORT)
    healthy = simcomm.run("all_reduce/ring", cluster, 1 << 20, record=False)
    later = Faults((RankFault(3, fails_at=1.0),), (LinkFault(("h3", "s0"), 0.0, at=1.0),))
    faulty = simcomm.run("all_reduce/ring", cluster, 1 << 20, faults=later, record=False)
    assert (faulty.method, faulty.elapsed, faulty.is_complete) == ("max-plus", healthy.elapsed, True)


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
def test_runs_stop_once_their_median_is_known(faults: Faults, runs: int) -> None:
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
def test_repetitions_give_the_same_results_with_shared_data(faults: Faults, record: bool) -> None:
    star = simcomm.star(6, "1 GB/s", "1 us", Transport("test", gamma=1e-10))
    training = Training(find_algorithm("all_reduce/double_tree"), compute=ComputePhases(1e-4, 2e-4, 1e-5))

    def simulate(number: int) -> list[dict[str, Any]]:
        options: dict[str, Any] = {"faults": faults.repetition(number), "record": record, "engine": "compiled"}
        runs = [simcomm.run(f"all_reduce/{name}", star, 99_992, **options) for name in ("ring", "double_tree")]
        return [trace.to_dict() for trace in (*runs, simcomm.train(training, star, **options))]

    alone = [simulate(number) for number in range(3)]
    with repetitions():
        assert [simulate(number) for number in range(3)] == alone
