"""Traces for the tests of the pictures, with times that follow from a line of arithmetic."""

from math import inf

import simcomm
from collectives import Message, Span, Trace
from collectives.records.trace import TracedLink

BANDWIDTH, LATENCY = 1.25e9, 5e-6


def ring(ranks: int, nbytes: int = 8 << 20) -> Trace:
    """A ring all-reduce on a star: in step s every rank sends one chunk; all steps take as long."""
    return simcomm.run("all_reduce/ring", simcomm.star(ranks, "10 Gbit/s", "5 us"), nbytes)


def naive(ranks: int, nbytes: int = 1 << 20) -> Trace:
    return simcomm.run("all_reduce/naive", simcomm.star(ranks, "10 Gbit/s", "5 us"), nbytes)


def two_racks() -> Trace:
    """Four hosts on each of two switches, joined by a trunk of a tenth of the bandwidth; one message across it."""
    rack = {f"h{rank}": f"s{rank // 4}" for rank in range(8)}
    ends = [edge for host, switch in rack.items() for edge in ((host, switch), (switch, host))]
    links = [TracedLink(a, b, BANDWIDTH, LATENCY, 0) for a, b in ends]
    links += [TracedLink(a, b, BANDWIDTH / 10, LATENCY, 1e6) for a, b in (("s0", "s1"), ("s1", "s0"))]
    message = Message(3, 4, 0, 0, 1_000_000, 0.0, 0.01, ("h3", "s0", "s1", "h4"))
    return Trace("all_reduce/ring", "predicted", 8, 0.01, [message], [], links, [*rack, "s0", "s1"], list(rack))


def this_machine(ranks: int) -> Trace:
    """Two messages that cross the memory of one machine at once."""
    hosts = [f"h{rank}" for rank in range(ranks)]
    links = [TracedLink("s0", "s1", 2e9, 0.0, 2e6)]
    links += [link for h in hosts for link in (TracedLink(h, "s0", inf, 0.0, 1e6), TracedLink("s1", h, inf, 0.0, 1e6))]
    messages = [Message(a, b, 0, a, 1_000_000, 0.0, 1e-3, (f"h{a}", "s0", "s1", f"h{b}")) for a, b in ((0, 1), (1, 0))]
    return Trace("all_reduce/ring", "predicted", ranks, 1e-3, messages, [], links, [*hosts, "s0", "s1"], hosts)


def training(ranks: int = 3, steps: int = 10) -> Trace:
    """Steps of one second: forward 0.2, backward 0.5, sync 0.2, optimizer 0.1."""
    phases = (("forward", 0.0, 0.2), ("backward", 0.2, 0.7), ("sync", 0.7, 0.9), ("optimizer", 0.9, 1.0))
    spans = [
        Span(rank, name, step, step + begin, step + end)
        for step in range(steps)
        for rank in range(ranks)
        for name, begin, end in phases
    ]
    return Trace("training/ring", "measured", ranks, float(steps), [], spans, hosts=[f"h{r}" for r in range(ranks)])
