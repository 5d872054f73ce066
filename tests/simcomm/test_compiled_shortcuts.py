"""The shortcuts are exact: they agree with every message on its own, and say no where they do not hold."""

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
from collectives.schedule.build import build_schedule
from collectives.schedule.symbolic_build import AnySchedule, build_symmetric, build_table
from collectives.spec import find_spec
from collectives.step import Program, recv, send
from collectives.training.workload import ComputePhases, Training
from simcomm import Cluster, fully_connected, ring, run, star, train
from simcomm.compiled.engine import Timing, by_events, by_max_plus, by_shortcut
from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.shortcuts.max_plus import ChannelRun, MaxPlusRun
from simcomm.compiled.traces import make_trace
from simcomm.model.faults import NO_FAULTS, Faults, RankFault
from simcomm.model.jitter import Jitter

ROUNDING_S = 1e-18  # a wait that is shorter is none
TRANSPORT = Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10)
NOISES = [
    NO_FAULTS,
    Faults(messages=Jitter("uniform", 5e-6), seed=7),
    Faults((RankFault(1, 3.0),), compute=Jitter("exponential", 0.5)),
    Faults((RankFault(0, 2.0),)),
    Faults(messages=Jitter("lognormal", 1e-5, 1e-5), compute=Jitter("uniform", 2.0), seed=3),
]
CYCLIC = ["all_reduce/ring", "all_gather/ring", "all_reduce/unchunked_ring", "barrier/dissemination"]
TWO_CHANNELS = ["all_reduce/bidirectional_ring", "all_gather/bidirectional_ring", "reduce_scatter/bidirectional_ring"]


def direct(rank: int, world_size: int) -> Program:
    """Everything to everyone at once."""
    away = range(1, world_size)
    yield (
        *(send((rank + k) % world_size, (rank + k) % world_size) for k in away),
        *(recv((rank - k) % world_size, world_size + (rank - k) % world_size) for k in away),
    )


def all_to_all(program: object) -> Algorithm:
    return Algorithm(find_spec("all_to_all"), "here", program, None, lambda world_size: world_size)  # type: ignore[arg-type]


def racks(hosts: int, each: int, trunk: float, random: Random | None = None) -> Cluster:
    """Racks of so many hosts under one switch, links of one speed or of any."""
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


def assert_equal(short: Timing | None, asked: EngineInput) -> None:
    full = by_events(asked)
    assert short is not None
    np.testing.assert_allclose(short.finished, full.finished, rtol=1e-12)
    assert short.messages == full.messages


def assert_recorded(asked: EngineInput) -> None:
    """By steps it is known who waited for whom, and a chain of work that took all of the time, without messages."""
    found = by_max_plus(asked, waits=True)
    assert found is not None
    assert_equal(found, asked)
    written = asked.with_table()
    full, brief = make_trace(written, by_events(written, messages=True), {}), make_trace(asked, found, {})
    waits = [{pair: s for pair, s in waiting_seconds(one).items() if s > ROUNDING_S} for one in (brief, full)]
    assert waits[0] == pytest.approx(waits[1], rel=1e-9)
    legs, listed = critical_path(brief), critical_path(full)
    assert legs[-1:] == [] or legs[-1].end == pytest.approx(full.elapsed, rel=1e-12)
    assert [leg.begin for leg in legs[1:]] == pytest.approx([leg.end for leg in legs[:-1]], rel=1e-12)
    assert sum(leg.seconds for leg in legs) == pytest.approx(sum(leg.seconds for leg in listed), rel=1e-9)
    assert not len(brief.messages)


@pytest.mark.parametrize("name", CYCLIC)
@given(
    p=st.integers(2, 12),
    n=st.integers(1, 3000),
    random=st.none() | st.randoms(use_true_random=False),
    faults=st.sampled_from(NOISES),
)
@settings(max_examples=15, deadline=None)
def test_the_recursion_by_step_is_exact(name: str, p: int, n: int, random: Random | None, faults: Faults):
    program = build_symmetric(library()[name], p)
    asked = inputs(program, racks(p, p, 1e12, random), n, faults)
    assert_equal(by_max_plus(asked), asked)
    assert_equal(by_max_plus(asked), inputs(build_table(library()[name], p), asked.cluster, n, faults))
    assert_recorded(asked)


def test_the_recursion_wants_links_that_are_never_shared():
    cluster = racks(8, 4, 1e9)
    around, everyone = build_symmetric(library()["all_reduce/ring"], 8), build_symmetric(all_to_all(direct), 8)
    assert by_max_plus(inputs(around, cluster, 800)) is not None  # in the order of the racks, each trunk has one pair
    scattered = Cluster("racks", cluster.graph, tuple(f"h{i * 3 % 8}" for i in range(8)), TRANSPORT)
    assert by_max_plus(inputs(around, scattered, 800)) is None
    assert by_max_plus(inputs(everyone, cluster, 800)) is None


def test_steps_that_take_all_ranks_the_same_are_skipped(monkeypatch: pytest.MonkeyPatch):
    done, take = list[int](), ChannelRun._take_step

    def take_step(run: ChannelRun, step: int, before: Floats) -> Floats:
        done.append(len(before))
        return take(run, step, before)

    monkeypatch.setattr(ChannelRun, "_take_step", take_step)
    around = build_symmetric(library()["all_reduce/ring"], 64)
    cluster = racks(64, 64, 1e12)
    cluster.graph.edges["h3", "s1"]["bandwidth"] /= 3
    for n, skips in ((6400, True), (6401, False)):  # unequal chunks go around, so that no step is like the next
        asked = inputs(around, cluster, n)
        done.clear()
        assert_equal(by_max_plus(asked), asked)
        assert (len(done) < 100) == skips  # of 126
    for n in (6400 + 63, 6400 + 40):  # on links that are alike a chunk meets the same wherever it is
        asked = inputs(around, racks(64, 64, 1e12), n)
        done.clear()
        assert_equal(by_max_plus(asked), asked)
        assert len(done) < 100
    asked = inputs(around, cluster, 6400, Faults(messages=Jitter("uniform", 1e-6)))
    done.clear()
    assert_equal(by_max_plus(asked), asked)
    assert done == [64] * 126


def test_ranks_that_are_alike_are_one(monkeypatch: pytest.MonkeyPatch):
    asked = inputs(build_symmetric(library()["all_reduce/ring"], 64), racks(64, 64, 1e12), 6400)
    found, longer = MaxPlusRun(asked), MaxPlusRun(inputs(asked.schedule, asked.cluster, 6401))
    assert (found.channels[0].ranks, longer.channels[0].ranks) == (1, 64)
    assert_equal(by_max_plus(asked), asked)


@pytest.mark.parametrize("name", TWO_CHANNELS)
@pytest.mark.parametrize("faults", NOISES)
def test_channels_on_links_of_their_own_go_by_step(name: str, faults: Faults):
    cluster = ring(7, "1 GB/s", "1 us", TRANSPORT)
    for n in (7, 7 * 13, 7 * 2 * 48):
        asked = inputs(build_symmetric(library()[name], 7), cluster, n, faults)
        assert_equal(by_max_plus(asked), asked)
        assert_equal(by_max_plus(asked), inputs(build_schedule(library()[name], 7), cluster, n, faults))
        assert_recorded(asked)


def two_lengths(rank: int, world_size: int) -> tuple[Program, Program]:
    """A channel around the ring, and one the other way of a single step, which is the second of all."""

    def around() -> Program:
        for _ in range(3):
            yield send((rank + 1) % world_size, 0), recv((rank - 1) % world_size, world_size)

    def back() -> Program:
        yield ()
        yield send((rank - 1) % world_size, 1), recv((rank + 1) % world_size, world_size + 1)

    return around(), back()


@pytest.mark.parametrize("faults", NOISES)
def test_a_channel_may_have_nothing_to_do_in_a_step(faults: Faults):
    asked = inputs(build_symmetric(all_to_all(two_lengths), 5), ring(5, "1 GB/s", "1 us", TRANSPORT), 500, faults)
    assert_equal(by_max_plus(asked), asked)
    assert_recorded(asked)


@pytest.mark.parametrize("name", ["all_reduce/ring", "all_reduce/unchunked_ring", "reduce_scatter/ring"])
def test_who_waited_for_whom_is_told_without_messages(name: str, tmp_path: Path):
    asked = {"faults": NOISES[-1], "engine": "compiled", "op": "mean", "nbytes": 40_000}
    full, brief = (
        run(name, star(9, "1 GB/s", "1 us", TRANSPORT), record=each, **asked) for each in (True, Record.WAITS)
    )
    assert (full.method, brief.method) == ("events", "max-plus")
    assert waiting_seconds(brief) == pytest.approx(waiting_seconds(full), rel=1e-9)
    legs, wanted = critical_path(brief), critical_path(full)
    assert [leg[:3] for leg in legs] == [leg[:3] for leg in wanted]
    np.testing.assert_allclose([leg[3:5] for leg in legs], [leg[3:5] for leg in wanted], rtol=1e-12)
    assert legs[-1].end == pytest.approx(full.elapsed, rel=1e-12)
    brief.write(tmp_path / "brief.trace.json")
    assert read_trace(tmp_path / "brief.trace.json").elapsed == brief.elapsed
    assert not len(brief.messages)


def test_who_waited_for_whom_is_kept_without_messages_only_where_steps_tell_it():
    late, racked = NOISES[1], racks(8, 2, 2e9)
    told = run("all_reduce/ring", racked, 4096, faults=late, engine="compiled", record=Record.BRIEF_WAITS)
    assert isinstance(told, BriefTrace)
    assert waiting_seconds(told)
    shared = run("all_to_all/direct", racked, 4096, faults=late, engine="compiled", record=Record.BRIEF_WAITS)
    assert shared.method == "events"
    assert not isinstance(shared, BriefTrace)
    assert not len(shared.messages)
    job = Training(library()["all_reduce/direct"], compute=ComputePhases(1e-4, 2e-4, 1e-5))
    trained = train(job, racked, faults=late, engine="compiled", record=Record.BRIEF_WAITS)
    assert not isinstance(trained, BriefTrace) and not len(trained.messages) and len(trained.spans.named("sync"))


@pytest.mark.parametrize("late", [RankFault(1, 1.5), RankFault(3, 0.5)])
def test_who_waited_for_whom_in_a_training_is_read_from_steps_too(late: RankFault):
    job = Training(library()["all_reduce/ring"], compute=ComputePhases(1e-4, 2e-4, 1e-5))
    asked = {"faults": Faults((late,), messages=Jitter("exponential", 1e-5)), "engine": "compiled"}
    full, *brief = (
        train(job, star(9, "1 GB/s", "1 us", TRANSPORT), record=each, **asked)
        for each in (True, Record.WAITS, Record.BRIEF_WAITS)
    )
    for each in brief:
        assert (full.method, each.method, len(each.messages)) == ("events", "max-plus", 0)
        assert waiting_seconds(each) == pytest.approx(waiting_seconds(full), rel=1e-9)
        paths = [[leg[:3] for leg in critical_path(trace)] for trace in (full, each)]
        assert paths[0] == paths[1]
        assert sum(leg.seconds for leg in critical_path(each)) == pytest.approx(full.elapsed, rel=1e-9)


@pytest.mark.parametrize("name", ["all_reduce/direct", "reduce_scatter/direct", "all_to_all/direct"])
@pytest.mark.parametrize("faults", [*NOISES, Faults((RankFault(3, 1.5),))])
@pytest.mark.parametrize("nbytes", [19 * 16, 19 * 2056])
def test_paths_through_steps_of_many_messages_are_those_of_all_messages(name: str, faults: Faults, nbytes: int):
    asked = {"faults": faults, "engine": "compiled", "nbytes": nbytes}
    cluster = fully_connected(19, "1 GB/s", "1 us", TRANSPORT)
    full, brief = (run(name, cluster, record=each, **asked) for each in (True, Record.WAITS))
    assert (full.method, brief.method) == ("events", "max-plus")
    legs, wanted = critical_path(brief), critical_path(full)
    assert [leg[:3] for leg in legs] == [leg[:3] for leg in wanted]
    np.testing.assert_allclose([leg[3:5] for leg in legs], [leg[3:5] for leg in wanted], rtol=1e-12)


def test_max_plus_applies_to_cyclic_schedules_on_private_links():
    around, both_ways = (build_symmetric(library()[f"all_reduce/{name}"], 8) for name in ("ring", "bidirectional_ring"))
    assert by_shortcut(inputs(around, racks(8, 8, 1e12), 80)) is not None
    assert by_shortcut(inputs(build_table(library()["all_reduce/ring"], 8), racks(8, 8, 1e12), 80)) is None
    assert by_shortcut(inputs(both_ways, racks(8, 8, 1e12), 160)) is None
