"""Flows that come on their links: alone there, beside others in a group, or in queues."""

import numpy as np

from simcomm.compiled.kernel.calendar import schedule
from simcomm.compiled.kernel.fifo import go_if_first, queue_up
from simcomm.compiled.kernel.flow_groups import place, share_links, touch_route
from simcomm.compiled.kernel.jit import inner
from simcomm.compiled.kernel.world import FRESH, World
from simcomm.model.sharing import ONE_INSTANT


@inner
def let_in(w: World, now: float) -> None:
    """Flows that came have their rates: alone on their links at once, or beside others in a group."""
    if len(w.turn) > 0:
        _line_up(w, now)
        return
    together = 0
    for k in range(w.sizes[FRESH]):
        flow = w.flows[k].fresh
        if _is_alone(w, w.flows[flow].route):
            _go_alone(w, flow, now)
        else:
            w.flows[together].fresh = flow
            together += 1
    for k in range(together):
        _disturb(w, w.flows[k].fresh, now)
    for k in range(together):
        flow = np.int64(w.flows[k].fresh)
        place(w, flow, w.messages[w.flows[flow].message].nbytes, now)
    for k in range(together):
        touch_route(w, w.flows[w.flows[k].fresh].route)
    w.sizes[FRESH] = 0


@inner
def _line_up(w: World, now: float) -> None:
    """Flows that came stand in queues, or go if they are first in all of theirs."""
    if now > w.clock[1] * (1 + ONE_INSTANT):
        w.clock[1] = now
    for k in range(w.sizes[FRESH]):
        queue_up(w, np.int64(w.flows[k].fresh), now)
    for k in range(w.sizes[FRESH]):
        go_if_first(w, np.int64(w.flows[k].fresh), now)
    w.sizes[FRESH] = 0


@inner
def _is_alone(w: World, route: int) -> bool:
    first, most = w.routes[route].first_hop, 2 * (w.routes[route].alone_rate <= 0)  # down, it is as good as shared
    for at in range(first, first + w.routes[route].hops):
        most = max(most, w.links[w.hops[at].link].crossing)
    return most <= 1


@inner
def _go_alone(w: World, flow: int, now: float) -> None:
    route = w.flows[flow].route
    first = w.routes[route].first_hop
    for at in range(first, first + w.routes[route].hops):
        w.links[w.hops[at].link].solo = flow
    w.flows[flow].until = now + w.messages[w.flows[flow].message].nbytes / w.routes[route].alone_rate
    schedule(w.calendar, np.int64(flow), w.flows[flow].until)


@inner
def _disturb(w: World, flow: int, now: float) -> None:
    """Flows that had a link of this one's route for themselves are in groups from now on."""
    route = w.flows[flow].route
    first = w.routes[route].first_hop
    for at in range(first, first + w.routes[route].hops):
        other = np.int64(w.links[w.hops[at].link].solo)
        if other >= 0:
            share_links(w, other, now)
