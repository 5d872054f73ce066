"""Runs whose pages the tests of the player open."""

from dataclasses import replace

import simcomm
from collectives.records.messages import Message
from collectives.records.spans import Span
from collectives.records.trace import Trace, TracedLink
from simcomm.cluster.topologies import two_level_tree
from simcomm.model.faults import Faults, LinkFault, RankFault
from viz.player.runs import PlayedRun

ALGORITHMS = ("naive", "ring", "double_tree", "halving_doubling", "torus", "hierarchical")

LARGE = [("all_reduce/double_tree", 2048), ("all_reduce/halving_doubling", 300), ("all_to_all/direct", 16)]

EVIL = "</script><img src=x onerror=alert(1)><!--"


def star(algorithms: tuple[str, ...] = ALGORITHMS, nbytes: int = 8 << 20) -> list[PlayedRun]:
    cluster = simcomm.star(8, "10 Gbit/s", "5 us")
    return [PlayedRun(simcomm.run(f"all_reduce/{name}", cluster, nbytes), name) for name in algorithms]


def large(name: str, ranks: int) -> PlayedRun:
    return PlayedRun(simcomm.run(name, simcomm.star(ranks, "100 Gbit/s", "5 us"), 16 << 20), name)


def racks(hosts: int = 8) -> list[PlayedRun]:
    cluster = two_level_tree(4, hosts, "10 Gbit/s", "5 us", 1.0)
    faults = Faults(links=(LinkFault(("h13", "s1"), 0.2),))
    return [PlayedRun(simcomm.run("all_reduce/ring", cluster, 32 << 20, faults=faults), "ring")]


def failing() -> list[PlayedRun]:
    faults = Faults(ranks=(RankFault(3, fails_at=4e-3),))
    cluster = simcomm.star(8, "10 Gbit/s", "5 us")
    return [PlayedRun(simcomm.run("all_reduce/ring", cluster, 8 << 20, faults=faults), "ring")]


def training() -> list[PlayedRun]:
    ring = simcomm.run("all_reduce/ring", simcomm.star(4, "10 Gbit/s", "5 us"), 8 << 20)
    spans = [
        Span(rank, name, 0, share * ring.elapsed, end * ring.elapsed)
        for rank in range(4)
        for name, share, end in (
            ("forward", 0.0, 0.15), ("backward", 0.15, 0.7), ("optimizer", 0.9, 1.0),
            ("bucket 0", 0.3, 0.5), ("bucket 1", 0.5, 0.7), ("bucket 2", 0.7, 0.9),
        )
    ]  # fmt: skip
    return [PlayedRun(replace(ring, title="training/ring", spans=spans), "ring")]


def hostile() -> list[PlayedRun]:
    hosts = [f"{name}{EVIL}" for name in "ab"]
    links = [TracedLink(a, b, 1e9, 1e-6, 1e6) for a, b in (hosts, hosts[::-1])]
    messages = [
        Message(0, 1, 0, 0, 10**6, 0.0, 1e-3, tuple(hosts)),
        Message(1, 0, 0, 0, 10**6, 0.0, 2e-3, tuple(hosts[::-1])),
    ]
    spans = [Span(0, EVIL, 0, 0.0, 1e-3)]
    trace = Trace(EVIL, "predicted", 2, 2e-3, messages, spans, links, hosts, hosts)
    return [PlayedRun(trace, f"{EVIL}\u2028 & \"'")]
