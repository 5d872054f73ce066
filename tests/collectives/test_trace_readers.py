"""Compare link loads, critical paths and depths that are computed with arrays with plain loops over messages."""

from itertools import pairwise, permutations, product

import numpy as np
import pytest
from numpy.random import Generator

from collectives.records import link_loads as loads_module
from collectives.records.limits import find_limits
from collectives.records.link_loads import TOGETHER, link_loads, link_routes
from collectives.records.messages import Message, Messages
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace, TracedLink
from collectives.records.waits import Leg, critical_path
from viz.player.runs import find_depths

RANKS, NODES = 5, ("h0", "h1", "h2", "h3", "h4", "s0", "s1")
SEEDS = range(12)


def random_trace(random: Generator, count: int = 60) -> Trace:
    """Return a trace with random messages, many at equal times. Some have no route, or a route over an unlisted link.

    As in any run, the steps of each rank never go back.
    """
    links = [(a, b) for a in NODES for b in NODES if a != b]
    listed = [TracedLink(a, b, float(random.integers(1, 4)), 0.125 * (random.random() < 0.3), 0.0) for a, b in links]
    step, messages = [0] * RANKS, []
    for _ in range(count):
        src, dst = random.choice(RANKS, 2, replace=False).tolist()
        via = random.permutation(NODES[RANKS:])[: random.integers(3)].tolist()
        route = (f"h{src}", *via, f"h{dst}") if random.random() < 0.9 else ()
        posted = random.integers(0, 16, 2) / 4
        end = float(posted.max()) + float(random.integers(0, 5)) / 4
        message = Message(src, dst, step[src], 0, int(random.integers(1, 9)), 0.0, end, route, dst_step=step[dst])
        messages.append(message._replace(src_posted=float(posted[0]), dst_posted=float(posted[1])))
        for rank in (src, dst):
            step[rank] += int(random.integers(2))
    spans = [
        Span(rank, "reduce", 0, begin, begin + 0.5) for rank, begin in enumerate(random.integers(0, 16, RANKS) / 4)
    ]
    trace = Trace("any/one", "predicted", RANKS, 8.0, messages, spans, links=listed[3:], hosts=list(NODES[:RANKS]))
    trace.messages, trace.spans = trace.messages.sorted(), trace.spans.sorted()
    return trace


@pytest.mark.parametrize("seed", SEEDS)
def test_link_loads_equal_sums_over_messages(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = random_trace(np.random.default_rng(seed))
    monkeypatch.setattr(loads_module, "AT_ONCE", [1, 7, 1 << 15][seed % 3])
    loads = link_loads(trace)
    numbers = {(link.src, link.dst): number for number, link in enumerate(trace.links)}
    for number, link in enumerate(trace.links):
        crossing = []
        for message in trace.messages:
            edges = list(pairwise(message.route))
            if (link.src, link.dst) in edges and all(edge in numbers for edge in edges):
                delay = sum(trace.links[numbers[edge]].latency for edge in edges)
                narrowest = min(trace.links[numbers[edge]].bandwidth for edge in edges)
                crossing.append((min(message.begin + delay, message.end), message, narrowest))
        busy, peak, most = plain_loads(link, crossing)
        assert loads.busy[number] * trace.elapsed == pytest.approx(busy)
        assert loads.peak[number] == pytest.approx(peak)
        assert loads.most[number] == most
        for begin, end in ((0.0, 1.5), (1.3, 2.9), (2.5, 8.0)):
            carried = sum(flow_between(*item[:2], begin, end) for item in crossing if item[1].end > item[0])
            assert loads.mean_share(number, begin, end) * link.bandwidth * (end - begin) == pytest.approx(
                carried, abs=1e-9
            )


def plain_loads(link: TracedLink, crossing: list[tuple[float, Message, float]]) -> tuple[float, float, int]:
    """Return the seconds with a message on a link, its peak, and the maximum number of messages at once."""
    times = sorted({time for start, message, _ in crossing for time in (start, message.end)})
    busy, most, peak = 0.0, 0, 0.0
    for begin, end in pairwise(times):
        buffers = sum(start <= begin and message.end >= end for start, message, _ in crossing)
        busy, most = busy + (end - begin) * (buffers > 0), max(most, buffers)
    ordered = sorted(crossing, key=lambda item: item[0])
    for first, (start, message, narrowest) in enumerate(ordered):
        peak = max(peak, message.nbytes / max(message.end - start, 1e-15) / narrowest)
        for number in range(1, TOGETHER + 1):
            group = [item[1] for item in ordered[first : first + number]]
            seconds = max(max(message.end for message in group) - start, 1e-15)
            peak = max(peak, sum(message.nbytes for message in group) / seconds / link.bandwidth)
    return busy, peak, most


def flow_between(start: float, message: Message, begin: float, end: float) -> float:
    share = max(0.0, min(end, message.end) - max(begin, start)) / (message.end - start)
    return message.nbytes * share


def test_route_is_empty_if_the_trace_lacks_one_of_its_links() -> None:
    messages = [Message(0, 1, 0, 0, 8, 0.0, 1.0, ("a", "b", "c")), Message(0, 1, 1, 0, 8, 0.0, 1.0, ("a", "b"))]
    trace = Trace("two", "predicted", 2, 1.0, messages, links=[TracedLink("a", "b", 1e3, 0.0, 16.0)])
    routes = link_routes(trace)
    assert [routes[number] for number in trace.messages.route.tolist()] == [[], [0]]


@pytest.mark.parametrize("seed", SEEDS)
def test_critical_path_equals_a_brute_force_search(seed: int) -> None:
    trace = random_trace(np.random.default_rng(seed))
    assert critical_path(trace) == plain_path(trace)


def test_critical_path_ignores_message_order() -> None:
    first = [Message(2, dst, 0, 0, 8, 0.0, 1.0) for dst in (0, 1)]
    last = [Message(0, 1, step, 0, 8, 1.0, 2.0, channel=channel) for step, channel in ((1, 0), (1, 1), (2, 0))]
    for early, late in product(permutations(first), permutations(last)):
        trace = Trace("any/one", "predicted", 3, 2.0, [*early, *late])
        path = [trace.messages[leg.number] for leg in critical_path(trace)]
        assert [(message.src, message.dst, message.step, message.channel) for message in path] == [
            (2, 0, 0, 0),
            (0, 1, 1, 0),
        ]


def plain_path(trace: Trace) -> list[Leg]:
    def began(leg: tuple[Leg, int]) -> tuple[float, ...]:
        name, src, dst, begin, _, number = leg[0]
        return begin, -src, -dst, -trace.messages[number].step if name == "message" else 0

    legs = []
    for number, message in enumerate(trace.messages):
        late = message.src if message.begin - message.src_posted <= message.begin - message.dst_posted else message.dst
        legs.append((Leg("message", message.src, message.dst, message.begin, message.end, number), late))
    legs += [
        (Leg(span.name, span.rank, span.rank, span.begin, span.end, number), span.rank)
        for number, span in enumerate(trace.spans)
    ]
    at = max(legs, key=lambda leg: (leg[0].end, *began(leg)))
    path = [at[0]]
    while True:
        (now, rank) = at
        ended = [
            leg
            for leg in legs
            if rank in leg[0][1:3] and leg[0].begin < min(leg[0].end, now.begin) and leg[0].end == now.begin
        ]
        if not ended:
            return path[::-1]
        at = max(ended, key=began)
        path.append(at[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_message_depths_equal_those_of_a_simple_algorithm(seed: int) -> None:
    messages = random_trace(np.random.default_rng(seed)).messages
    assert find_depths(messages).tolist() == plain_depths(messages)
    turned = messages.select(np.random.default_rng(seed).permutation(len(messages)))
    assert find_depths(turned).tolist() == plain_depths(turned)


def plain_depths(messages: Messages) -> list[int]:
    ends = [{(message.src, message.step), (message.dst, message.dst_step)} for message in messages]
    depths, before = [0] * len(ends), None
    while depths != before:
        before = list(depths)
        for number, mine in enumerate(ends):
            earlier = [
                before[other]
                for other, its in enumerate(ends)
                if any(rank == same and step < later for rank, step in its for same, later in mine)
            ]
            depths[number] = 1 + max(earlier, default=-1)
    return depths


def test_critical_path_can_cross_gaps_between_measured_messages():
    first, then = Message(0, 1, 0, 0, 64, 0.0, 1.0), Message(1, 2, 1, 0, 64, 1.25, 2.0, dst_posted=0.0)
    unrelated = Message(3, 4, 0, 0, 64, 0.0, 1.2)
    trace = Trace("one", "measured", 5, 2.0, [first, then, unrelated])
    assert [leg.number for leg in critical_path(trace)] == [1]
    assert [leg.number for leg in critical_path(trace, over_gaps=True)] == [0, 1]


def test_sync_share_of_a_training_without_sync_is_zero() -> None:
    trace = Trace("training/ring", "predicted", 1, 4.0, spans=Spans.of([Span(0, "backward", 0, 1.0, 2.0)]))
    assert find_limits(trace).sentence.startswith("Gradient sync takes 0 % of the time. ")
