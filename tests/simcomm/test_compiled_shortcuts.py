"""The max-plus shortcut equals the simulation of every message, and rejects cases that it does not support."""

from random import Random

import networkx as nx
import numpy as np
import pytest

from collectives import CollectiveCall, Transport, library
from collectives.declaration import Algorithm
from collectives.schedule.symbolic_build import AnySchedule, build_compact, build_symmetric
from collectives.spec import find_spec
from collectives.step import Program, recv, send
from simcomm import Cluster, ring
from simcomm.compiled.engine import by_events, by_max_plus, by_shortcut
from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.shortcuts.max_plus import ChannelRun
from simcomm.model.faults import NO_FAULTS, Faults, Jitter, RankFault

TRANSPORT = Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10)
NOISES = [
    NO_FAULTS,
    Faults(messages=Jitter("uniform", 5e-6), seed=7),
    Faults((RankFault(1, 3.0),), compute=Jitter("exponential", 0.5)),
    Faults((RankFault(0, 2.0),)),
    Faults(messages=Jitter("exponential", 1e-5), compute=Jitter("uniform", 2.0), seed=3),
]


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
    short, full = by_max_plus(call), by_events(call)
    assert short is not None and short.messages == full.messages
    np.testing.assert_allclose(short.finished, full.finished, rtol=1e-12)


def everyone(rank: int, world_size: int) -> Program:
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
    assert_exact(inputs(schedule, ring(5, "1 GB/s", "1 us", TRANSPORT), 500, faults))
