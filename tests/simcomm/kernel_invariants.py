"""What holds between any two instants of a run, checked as it is written down: for tests to call."""

import numpy as np

from simcomm.compiled.kernel.arrays import Floats, Ints, Records
from simcomm.compiled.kernel.world import DUE, FRESH, READY, STALE, THROUGH, World

CLOSE = 1e-9


def check(world: World, before: float = 0.0) -> None:
    """Raise AssertionError unless the world is in order between two instants, the last not before ``before``."""
    assert world.clock[0] >= before, f"the clock ran back from {before} to {world.clock[0]}"
    for stack in (DUE, FRESH, READY, STALE, THROUGH):
        assert world.sizes[stack] == 0, "something is left over from the last instant"
    assert world.dirty["place"][-1] == 0, "a link's level has not been put right"
    if len(world.arrival_order):
        _check_queues(world)
    else:
        flows, rates = _rates(world)
        flow, link = _crossings(world, flows)
        _check_counts(world, flows, link)
        _check_fair(world, rates, flow, link)


def _check_queues(world: World) -> None:
    """Check that queues are in order, and a flow goes exactly when it is first on all its links and none is down."""
    most_hops = len(world.chain) // len(world.flows)
    first, number = np.zeros((2, len(world.flows)), np.int64)
    for front in world.links["front"].tolist():
        node, before = front, (-1.0, -1)
        first[node // most_hops] += node >= 0
        while node >= 0:
            flow = world.flows[node // most_hops]
            came = (float(flow["came"]), int(world.arrival_order[flow["message"]]))
            assert before < came, "a flow stands before one that came before it"
            number[node // most_hops] += 1
            node, before = int(world.chain["after"][node]), came
    queued = np.flatnonzero(number)
    routes = world.routes[world.flows["route"][queued]]
    assert np.array_equal(number[queued], routes["hops"]), "a flow does not stand at all its links"
    goes = (first[queued] == routes["hops"]) & (routes["alone_rate"] > 0)
    assert np.array_equal(goes, world.flows["until"][queued] >= 0), "a flow that is first waits, or one behind it goes"


def _rates(world: World) -> tuple[Ints, Floats]:
    """Return the flows that are on links, and the bytes/s of each."""
    flows = np.flatnonzero((world.flows["hop"] >= 0) | (world.flows["until"] >= 0)).astype(np.int32)
    routes = world.routes[world.flows["route"][flows]]
    held = world.hop_link[routes["first_hop"] + np.maximum(world.flows["hop"][flows], 0)]
    alone = world.flows["hop"][flows] < 0
    return flows, np.where(alone, routes["alone_rate"], world.links["level"][held])


def _crossings(world: World, flows: Ints) -> tuple[Ints, Ints]:
    """Return each link that each of the flows crosses: index in ``flows``, and link."""
    routes = world.routes[world.flows["route"][flows]]
    flow = np.repeat(np.arange(len(flows), dtype=np.int32), routes["hops"])
    starts = np.cumsum(routes["hops"]) - routes["hops"]
    return flow, world.hop_link[routes["first_hop"][flow] + np.arange(len(flow)) - starts[flow]]


def _check_counts(world: World, flows: Ints, link: Ints) -> None:
    """Check that links count the flows on them, and that a flow in no group shares no link."""
    crossing = np.bincount(link, minlength=len(world.links))
    assert np.array_equal(crossing, world.links["crossing"]), "a link has lost count of its flows"
    for alone in flows[world.flows["hop"][flows] < 0]:
        route = world.routes[world.flows["route"][alone]]
        mine = world.hop_link[route["first_hop"] : route["first_hop"] + route["hops"]]
        assert (world.links["crossing"][mine] == 1).all(), "a flow that has its links for itself does not"


def _check_fair(world: World, rates: Floats, flow: Ints, link: Ints) -> None:
    """Check that no link is over its capacity, and every flow crosses a full link on which none is faster."""
    links: Records = world.links
    room = np.where(links["crossing"] > 1, links["shared"], links["alone"])
    load = np.bincount(link, weights=rates[flow], minlength=len(links))
    assert (load <= room * (1 + CLOSE)).all(), f"link {int(np.argmax(load / room))} carries more than it can"
    fastest = np.zeros(len(links))
    np.maximum.at(fastest, link, rates[flow])
    holds = (load[link] >= room[link] * (1 - CLOSE)) & (rates[flow] >= fastest[link] * (1 - CLOSE))
    held = np.bincount(flow, weights=holds, minlength=len(rates)) > 0
    assert held.all(), "a flow could be faster"


def check_ends(world: World) -> None:
    """Raise AssertionError if a recorded message ended before its bytes can have arrived; links must not change."""
    over = np.flatnonzero(np.isfinite(world.end)) if len(world.end) else np.zeros(0, np.int64)
    widest = np.maximum(world.links["alone"], world.links["shared"])[world.hop_link]
    fastest = np.full(len(world.routes), np.inf)
    np.minimum.at(fastest, np.repeat(np.arange(len(world.routes)), world.routes["hops"]), widest)
    route = world.messages["route"][over]
    least = world.begin[over] + world.routes["delay"][route] + world.messages["nbytes"][over] / fastest[route]
    assert (world.end[over] >= least * (1 - CLOSE)).all(), "a message was faster than its route allows"
