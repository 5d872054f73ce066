"""Runs in which links change and ranks fail: by max-plus, by events and by the reference engine they are the same."""

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
    """The same with links of several speeds, one of them without limit."""
    graph = cluster.graph.copy()
    for _, _, link in graph.edges(data=True):
        link["bandwidth"] *= random.choice([1.0, 1.0, 0.3, random.uniform(0.5, 2), np.inf])
    return replace(cluster, graph=graph)


def said(trace: Trace) -> list[tuple[Any, ...]]:
    """What the ranks wait for, without the times."""
    return sorted((*one[:5], *one[6:]) for one in trace.unfinished)


def assert_same_end(one: Trace, other: Trace) -> None:
    """The same ranks have failed, wait for the same since the same time, and the last thing happened then."""
    assert other.elapsed == pytest.approx(one.elapsed, rel=CLOSE)
    assert other.failed == one.failed
    assert said(other) == said(one)
    since = [sorted(waiting.since for waiting in trace.unfinished) for trace in (other, one)]
    assert since[0] == pytest.approx(since[1], rel=CLOSE, abs=1e-12 * one.elapsed)


@pytest.mark.parametrize(("name", "topology"), CASES)
@given(
    p=st.integers(2, 9), n=st.sampled_from([1, 7, 3000, 100_000]), random=st.randoms(use_true_random=False),
    gamma=st.sampled_from([0.0, 1e-10, 1e-9]), late=st.booleans(),
)  # fmt: skip
@settings(max_examples=12, deadline=None)
def test_max_plus_comes_to_the_same_halt_as_events(
    name: str, topology: Any, p: int, n: int, random: Random, gamma: float, late: bool
):
    transport = replace(TRANSPORT, gamma=gamma)
    cluster = with_random_links(topology(p, "1 GB/s", "1 us", transport), random)
    cluster = replace(cluster, sharing=random.choice(["fair", "fifo"]))
    schedule = build_symmetric(library()[name], p)
    assert schedule is not None
    asked = EngineInput(CollectiveCall(schedule.algorithm, n), schedule, cluster, transport)
    longest = by_events(asked).elapsed
    starts = np.array([random.choice([0.0, longest * random.random()]) for _ in range(p)]) if late else None
    calm = type("Drawn", (), {"schedule": schedule, "cluster": cluster})
    faults = random_faults(random, calm, longest)  # type: ignore[arg-type]
    asked = replace(asked, faults=faults, starts=starts)
    short, full = by_max_plus(asked), by_events(asked.with_table())
    if short is None:  # more changes than are looked at, or both ways of a ring of two on one link
        assert any(link.every < np.inf for link in faults.links) or (topology, p) == (ring, 2)
        return
    assert short.elapsed == pytest.approx(full.elapsed, rel=CLOSE)
    np.testing.assert_allclose(short.finished, full.finished, rtol=CLOSE)
    one, other = (make_trace(asked.with_table(), timing, {}, record=False) for timing in (full, short))
    assert_same_end(one, other)


def ends_by_name(trace: Trace) -> Any:
    """When the messages arrived, in an order that no rounding changes."""
    messages = trace.messages
    names = messages.chunk, messages.step, messages.channel, messages.dst, messages.src, messages.collective
    return messages.end[np.lexsort(names)]


PHASES = ComputePhases(0.1, 0.2, 0.05)
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
def test_training_in_which_something_fails_is_the_same_on_both_engines(name: str, faults: Faults):
    cluster = star(6, "10 Gbit/s", "5 us", TRANSPORT)
    asked = Training(find_algorithm(f"all_reduce/{name}"), compute=PHASES)
    one, other = (simcomm.train(asked, cluster, engine=engine, faults=faults) for engine in ("simpy", "compiled"))
    short = simcomm.train(asked, cluster, engine="compiled", faults=faults, record=False)
    assert short.engine == other.engine == "compiled"
    assert len(other.messages) == len(one.messages)
    np.testing.assert_allclose(*(ends_by_name(trace) for trace in (other, one)), rtol=CLOSE)
    for found in (other, short):
        assert_same_end(one, found)
    kept = [[span for span in trace.spans if span.name != "reduce"] for trace in (one, short)]
    assert [span[:3] for span in kept[0]] == [span[:3] for span in kept[1]]


def test_faults_after_a_run_leave_its_shortcut(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("simcomm.compiled.shortcuts.max_plus.LinkRates", None)
    cluster = star(128, "10 Gbit/s", "5 us", TRANSPORT)
    calm = simcomm.run("all_reduce/ring", cluster, 1 << 20, record=False)
    later = Faults((RankFault(3, fails_at=1.0),), (LinkFault(("h3", "s0"), 0.0, at=1.0),))
    found = simcomm.run("all_reduce/ring", cluster, 1 << 20, faults=later, record=False)
    assert (found.method, found.elapsed, found.is_complete) == ("max-plus", calm.elapsed, True)


def test_a_failing_rank_of_very_many_is_not_written_down_message_by_message(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SymmetricSchedule, "table", None)
    cluster = star(2048, "100 Gbit/s", "1 us")
    faults = Faults((RankFault(3, fails_at=1e-3),))
    trace = simcomm.run("all_reduce/ring", cluster, 1 << 26, faults=faults, record=False)
    assert (trace.method, trace.failed) == ("max-plus", {3: 1e-3})
    assert {one.peer for one in trace.unfinished if one.peer == 3} == {3}
    assert len(trace.unfinished) == 2048  # 4's receive, 2's send, and so on outwards until both meet


def test_times_that_count_from_later_on():
    flapping = LinkFault(("h0", "s0"), 0.5, at=1.0, lasting=0.5, every=2.0)
    whole = [change for change in islice_changes(Faults(links=(flapping,)), 12) if change[0] > 4.2]
    shifted = [(time + 4.2, share) for time, share in islice_changes(Faults(links=(flapping,)).shifted(4.2), 8)]
    wanted = [one for one in shifted if one[0] > 4.2]
    assert [one[0] for one in wanted[:4]] == pytest.approx([one[0] for one in whole[:4]])
    assert [one[1] for one in wanted[:4]] == [one[1] for one in whole[:4]]
    assert Faults(links=(LinkFault(("h0", "s0"), 0.5, 1.0, 1.0),)).shifted(2.0).links == ()
    assert Faults(links=(LinkFault(("h0", "s0"), 0.5, 1.0),)).shifted(2.0).split_at_first_change()[1] == np.inf
    assert Faults(links=(LinkFault(("h0", "s0"), 0.0, 1.0),)).shifted(2.0).split_at_first_change()[1] == 0


def islice_changes(faults: Faults, number: int) -> list[tuple[float, float]]:
    """The first changes of one direction: when, and what is left."""
    changes = faults.changes()
    return [(one.time, one.share) for one in (next(changes) for _ in range(2 * number)) if one.link == ("h0", "s0")]
