"""The max-plus shortcut equals the simulation of every message, and rejects cases that it does not support."""

from pathlib import Path
from random import Random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import CollectiveCall, Transport, library
from collectives.declaration import Algorithm
from collectives.records.trace import read_trace
from collectives.records.waits import BriefTrace, Record, critical_path, waiting_seconds
from collectives.schedule.symbolic_build import AnySchedule, build_compact, build_symmetric
from collectives.spec import find_spec
from collectives.step import Program, recv, send
from collectives.training.workload import ComputePhases, Training
from simcomm import Cluster, fully_connected, ring, run, star, train
from simcomm.compiled.engine import Timing, by_events, by_max_plus, by_shortcut
from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.shortcuts.max_plus import ChannelRun
from simcomm.compiled.traces import make_trace
from simcomm.model.faults import NO_FAULTS, Faults, Jitter, RankFault

ROUNDING_S = 1e-18  # shorter waits are rounding errors
TRANSPORT = Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10)
NOISES = [
    NO_FAULTS,
    Faults(messages=Jitter("uniform", 5e-6), seed=7),
    Faults((RankFault(1, 3.0),), compute=Jitter("exponential", 0.5)),
    Faults((RankFault(0, 2.0),)),
    Faults(messages=Jitter("exponential", 1e-5), compute=Jitter("uniform", 2.0), seed=3),
]
CYCLIC = ["all_reduce/ring", "all_gather/ring", "all_reduce/unchunked_ring", "barrier/dissemination"]
TWO_CHANNELS = ["all_reduce/bidirectional_ring", "all_gather/bidirectional_ring", "reduce_scatter/bidirectional_ring"]


def as_all_to_all(program: object) -> Algorithm:
    return Algorithm(find_spec("all_to_all"), "here", program, None, lambda world_size: world_size)  # type: ignore[arg-type]


def racks(hosts: int, each: int, trunk: float, random: Random | None = None) -> Cluster:
    """Return racks with ``each`` hosts under one switch. All links have the same speed, or random speeds."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    links = [(f"h{i}", f"s{1 + i // each}", 1e9) for i in range(hosts)]
    links += [(f"s{1 + rack}", "s0", trunk) for rack in range((hosts - 1) // each + 1)]
    for a, b, rate in links:
        for src, dst in ((a, b), (b, a)):
            factor = 1.0 if random is None else random.uniform(0.5, 2.0)
            graph.add_edge(src, dst, bandwidth=rate * factor, latency=1e-6 * factor)
    return Cluster("racks", graph, tuple(f"h{i}" for i in range(hosts)), TRANSPORT)


def inputs(schedule: AnySchedule | None, cluster: Cluster, n: int, faults: Faults = NO_FAULTS) -> EngineInput:
    assert schedule is not None
    return EngineInput(CollectiveCall(schedule.algorithm, n), schedule, cluster, TRANSPORT, faults)


def assert_exact(call: EngineInput) -> None:
    """Check that max-plus returns the same times as events."""
    short, full = by_max_plus(call), by_events(call)
    assert short is not None and short.messages == full.messages
    np.testing.assert_allclose(short.finished, full.finished, rtol=1e-12)


def assert_waits(call: EngineInput) -> None:
    """Check the waits and the critical path that max-plus finds without messages."""
    timing: Timing | None = by_max_plus(call, waits=True)
    assert timing is not None
    expanded = call.with_table()
    full, brief = make_trace(expanded, by_events(expanded, messages=True), {}), make_trace(call, timing, {})
    waits = [{pair: s for pair, s in waiting_seconds(trace).items() if s > ROUNDING_S} for trace in (brief, full)]
    assert waits[0] == pytest.approx(waits[1], rel=1e-9)
    legs, expected = critical_path(brief), critical_path(full)
    assert legs[-1:] == [] or legs[-1].end == pytest.approx(full.elapsed, rel=1e-12)
    assert [leg.begin for leg in legs[1:]] == pytest.approx([leg.end for leg in legs[:-1]], rel=1e-12)
    assert sum(leg.seconds for leg in legs) == pytest.approx(sum(leg.seconds for leg in expected), rel=1e-9)
    assert not len(brief.messages)


@pytest.mark.parametrize("name", [*CYCLIC, *TWO_CHANNELS])
@given(
    p=st.integers(2, 12),
    n=st.integers(1, 3000),
    random=st.none() | st.randoms(use_true_random=False),
    faults=st.sampled_from(NOISES),
)
@settings(max_examples=15, deadline=None)
def test_max_plus_equals_events(name: str, p: int, n: int, random: Random | None, faults: Faults):
    cluster = racks(p, p, 1e12, random) if name in CYCLIC else ring(p + 1, "1 GB/s", "1 us", TRANSPORT)
    call = inputs(build_symmetric(library()[name], cluster.world_size), cluster, n, faults)
    assert_exact(call)
    table = inputs(build_compact(library()[name], cluster.world_size).table(), cluster, n, faults)
    np.testing.assert_allclose(by_events(call).finished, by_events(table).finished, rtol=1e-12)
    assert_waits(call)


def everyone(rank: int, world_size: int) -> Program:
    """Send to every rank at once."""
    yield (
        *(send((rank + k) % world_size, (rank + k) % world_size) for k in range(1, world_size)),
        *(recv((rank - k) % world_size, world_size + (rank - k) % world_size) for k in range(1, world_size)),
    )


def test_max_plus_requires_symmetric_schedule_and_private_links():
    around, cluster = build_symmetric(library()["all_reduce/ring"], 8), racks(8, 4, 1e9)
    scattered = Cluster("racks", cluster.graph, tuple(f"h{i * 3 % 8}" for i in range(8)), TRANSPORT)
    both_ways = build_symmetric(library()["all_reduce/bidirectional_ring"], 8)
    assert by_shortcut(inputs(around, cluster, 800)) is not None  # each trunk carries the messages of one pair
    assert by_shortcut(inputs(around, scattered, 800)) is None
    assert by_shortcut(inputs(build_symmetric(as_all_to_all(everyone), 8), cluster, 800)) is None
    assert by_shortcut(inputs(both_ways, racks(8, 8, 1e12), 160)) is None
    assert by_shortcut(inputs(build_compact(library()["all_reduce/ring"], 8).table(), racks(8, 8, 1e12), 80)) is None


@pytest.mark.parametrize(
    ("n", "has_slow_link", "faults", "is_skipped"),
    [
        (6400, True, NO_FAULTS, True),
        (6401, True, NO_FAULTS, False),  # unequal chunks on unequal links: no step is like the next
        (6400 + 63, False, NO_FAULTS, True),
        (6400, True, Faults(messages=Jitter("uniform", 1e-6)), False),
    ],
)
def test_max_plus_skips_repeated_steps(
    n: int, has_slow_link: bool, faults: Faults, is_skipped: bool, monkeypatch: pytest.MonkeyPatch
):
    steps, take = list[int](), ChannelRun._take_step

    def take_step(run: ChannelRun, step: int, before: Floats) -> Floats:
        steps.append(step)
        return take(run, step, before)

    monkeypatch.setattr(ChannelRun, "_take_step", take_step)
    cluster = racks(64, 64, 1e12)
    if has_slow_link:
        cluster.graph.edges["h3", "s1"]["bandwidth"] /= 3
    assert_exact(inputs(build_symmetric(library()["all_reduce/ring"], 64), cluster, n, faults))
    assert (len(steps) < 100) == is_skipped  # of 126


def two_lengths(rank: int, world_size: int) -> tuple[Program, Program]:
    """Return a channel around the ring, and one in the other direction whose only step is the second of all."""

    def around() -> Program:
        for _ in range(3):
            yield send((rank + 1) % world_size, 0), recv((rank - 1) % world_size, world_size)

    def back() -> Program:
        yield ()
        yield send((rank - 1) % world_size, 1), recv((rank + 1) % world_size, world_size + 1)

    return around(), back()


@pytest.mark.parametrize("faults", NOISES)
def test_max_plus_supports_channels_that_idle_in_a_step(faults: Faults):
    schedule = build_symmetric(as_all_to_all(two_lengths), 5)
    call = inputs(schedule, ring(5, "1 GB/s", "1 us", TRANSPORT), 500, faults)
    assert_exact(call)
    assert_waits(call)


def assert_same_path(brief: BriefTrace, full: BriefTrace) -> None:
    legs, expected = critical_path(brief), critical_path(full)
    assert [leg[:3] for leg in legs] == [leg[:3] for leg in expected]
    np.testing.assert_allclose([leg[3:5] for leg in legs], [leg[3:5] for leg in expected], rtol=1e-12)


@pytest.mark.parametrize("name", ["all_reduce/ring", "all_reduce/unchunked_ring", "reduce_scatter/ring"])
def test_waits_of_a_mean_are_computed_without_messages(name: str, tmp_path: Path):
    call = {"faults": NOISES[-1], "engine": "compiled", "op": "mean", "nbytes": 40_000}
    cluster = star(9, "1 GB/s", "1 us", TRANSPORT)
    full, brief = (run(name, cluster, record=record, **call) for record in (True, Record.WAITS))
    assert (full.method, brief.method, len(brief.messages)) == ("events", "max-plus", 0)
    assert waiting_seconds(brief) == pytest.approx(waiting_seconds(full), rel=1e-9)
    assert_same_path(brief, full)
    brief.write(tmp_path / "brief.trace.json")
    assert read_trace(tmp_path / "brief.trace.json").elapsed == brief.elapsed


def test_brief_waits_are_omitted_unless_steps_suffice():
    late, cluster = NOISES[1], racks(8, 2, 2e9)
    call = {"faults": late, "engine": "compiled", "record": Record.BRIEF_WAITS}
    by_steps = run("all_reduce/ring", cluster, 4096, **call)
    assert isinstance(by_steps, BriefTrace) and waiting_seconds(by_steps)
    shared = run("all_to_all/direct", cluster, 4096, **call)
    assert shared.method == "events" and not isinstance(shared, BriefTrace) and not len(shared.messages)
    training = Training(library()["all_reduce/direct"], compute=ComputePhases(1e-4, 2e-4, 1e-5))
    trained = train(training, cluster, **call)
    assert not isinstance(trained, BriefTrace) and not len(trained.messages) and len(trained.spans.named("sync"))


@pytest.mark.parametrize("late", [RankFault(1, 1.5), RankFault(3, 0.5)])
def test_waits_of_training_are_computed_without_messages(late: RankFault):
    training = Training(library()["all_reduce/ring"], compute=ComputePhases(1e-4, 2e-4, 1e-5))
    call = {"faults": Faults((late,), messages=Jitter("exponential", 1e-5)), "engine": "compiled"}
    cluster = star(9, "1 GB/s", "1 us", TRANSPORT)
    full, *briefs = (
        train(training, cluster, record=record, **call) for record in (True, Record.WAITS, Record.BRIEF_WAITS)
    )
    for brief in briefs:
        assert (full.method, brief.method, len(brief.messages)) == ("events", "max-plus", 0)
        assert waiting_seconds(brief) == pytest.approx(waiting_seconds(full), rel=1e-9)
        assert [leg[:3] for leg in critical_path(brief)] == [leg[:3] for leg in critical_path(full)]
        assert sum(leg.seconds for leg in critical_path(brief)) == pytest.approx(full.elapsed, rel=1e-9)


@pytest.mark.parametrize("name", ["all_reduce/direct", "reduce_scatter/direct", "all_to_all/direct"])
@pytest.mark.parametrize("faults", [*NOISES, Faults((RankFault(3, 1.5),))])
def test_critical_path_is_exact_with_many_messages_per_step(name: str, faults: Faults):
    cluster = fully_connected(19, "1 GB/s", "1 us", TRANSPORT)
    for nbytes in (19 * 16, 19 * 2056):
        call = {"faults": faults, "engine": "compiled", "nbytes": nbytes}
        full, brief = (run(name, cluster, record=record, **call) for record in (True, Record.WAITS))
        assert (full.method, brief.method) == ("events", "max-plus")
        assert_same_path(brief, full)
