"""Runs with changing links and failing ranks: max-plus, events and the reference engine agree."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from compiled_cases import random_faults
from hypothesis import given, settings
from hypothesis import strategies as st

import simcomm
from collectives import CollectiveCall, Trace, Transport, find_algorithm, library
from collectives.schedule.symbolic_build import build_symmetric
from collectives.schedule.symmetric import SymmetricSchedule
from collectives.training.workload import ComputePhases, Training
from simcomm import Cluster, ring, star
from simcomm.compiled.engine import by_events, by_max_plus
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.traces import make_trace
from simcomm.model.faults import Faults, LinkFault, RankFault
from simcomm.model.jitter import Jitter

CLOSE = 1e-9
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
    if short is None:  # too many changes, or both directions of a ring of two share a link
        assert any(link.every < np.inf for link in faults.links) or (topology, p) == (ring, 2)
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
    Faults((RankFault(1, fails_at=100.0),)),
    Faults(links=(LinkFault(("h2", "s0"), 0.2, 0.3, 0.1),)),
    Faults(links=(LinkFault(("h2", "s0"), 0.2, 0.3, 0.01, 0.017), DOWN)),
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


def test_shifted_link_fault_is_over_or_active():
    degraded = Faults(links=(LinkFault(("h0", "s0"), 0.5, 1.0),))
    down = Faults(links=(LinkFault(("h0", "s0"), 0.0, 1.0),))
    assert Faults(links=(LinkFault(("h0", "s0"), 0.5, 1.0, 1.0),)).shifted(2.0).links == ()
    assert degraded.shifted(2.0).split_at_first_change()[1] == np.inf
    assert down.shifted(2.0).split_at_first_change()[1] == 0
