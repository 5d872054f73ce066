"""The event engine: stages post their messages, messages fly and share links, and stages complete.

A *stage* is one step of one agent; an *agent* is whoever goes through its stages one after the other: a rank. What
happens at one instant is taken together: what ends, what thereby begins, and then how the links are shared.
"""

from collections.abc import Callable

import numpy as np

from simcomm.compiled.kernel.arrivals import let_in
from simcomm.compiled.kernel.calendar import release, schedule
from simcomm.compiled.kernel.fair_levels import settle
from simcomm.compiled.kernel.fifo import make_way
from simcomm.compiled.kernel.flow_groups import bring_up, retell, touch_route, withdraw
from simcomm.compiled.kernel.heap import drop, least
from simcomm.compiled.kernel.jit import entry, inner, sources
from simcomm.compiled.kernel.pairing_heap import take_due
from simcomm.compiled.kernel.world import DUE, FREE, FRESH, READY, THROUGH, World

SAME_INSTANT = 1e-13  # events within this share of the time happen together
CLOSE = 4  # numbers for each message that is due
SAME_BYTES = 1e-15  # targets within this share of a group's clock are equal but for rounding


@inner
def _start(w: World, stage: int, now: float) -> None:
    """The stage has posted its halves, if its agent has not failed; messages whose other half was there are due."""
    if _fails(w, stage, now):
        return
    if len(w.started) > 0:
        w.started[stage] = now
    if w.stages[stage].waiting == 0:
        _complete(w, stage, now)
    for at in range(w.stages[stage].first_op, w.stages[stage + 1].first_op):
        message = w.ops[at]
        if w.messages[message].posted == 0:
            w.messages[message].posted = 1
        else:
            w.messages[message].posted = 2
            w.flows[w.sizes[DUE]].due = message
            w.sizes[DUE] += 1


@inner
def _fails(w: World, stage: int, now: float) -> bool:
    """Whether the stage's agent has failed by now."""
    agent = w.stages[stage].agent
    if len(w.fails_at) == 0 or now < w.fails_at[agent]:
        return False
    w.agents[agent].failed = 1
    return True


@inner
def _begin_due(w: World, now: float) -> None:
    """All messages that are due have begun, in the order of their numbers where they stand close: memory likes that."""
    number = w.sizes[DUE]
    w.sizes[DUE] = 0
    first, last = w.flows[0].due, w.flows[0].due
    for k in range(1, number):
        first = min(first, w.flows[k].due)
        last = max(last, w.flows[k].due)
    if last - first > CLOSE * number:
        for k in range(number):
            w.messages[w.flows[k].due].posted = 1
            _begin(w, w.flows[k].due, now)
        return
    for message in range(first, last + 1):
        if w.messages[message].posted == 2:
            w.messages[message].posted = 1
            _begin(w, message, now)


@inner
def _begin(w: World, message: int, now: float) -> None:
    """Both halves are posted: the message spends its delay, and then goes on its links."""
    w.sizes[FREE] -= 1
    flow, route = w.flows[w.sizes[FREE]].free, w.messages[message].route
    w.flows[flow].message = message
    w.flows[flow].route = route
    if len(w.begin) > 0:
        w.begin[message] = now
    delay = w.routes[route].delay
    if len(w.extra) > 0:
        delay += w.extra[message]
    if delay > 0:
        schedule(w.calendar, np.int64(flow), now + delay)
    else:
        _arrive(w, flow)


@inner
def _arrive(w: World, flow: int) -> None:
    """The flow is on its links, or through where nothing limits it."""
    first, hops = w.routes[w.flows[flow].route].first_hop, w.routes[w.flows[flow].route].hops
    if hops == 0:
        w.flows[w.sizes[THROUGH]].through = flow
        w.sizes[THROUGH] += 1
        return
    for at in range(first, first + hops):
        w.links[w.hops[at].link].crossing += w.hops[at].weight
    w.flows[w.sizes[FRESH]].fresh = flow
    w.sizes[FRESH] += 1


@inner
def _complete(w: World, stage: int, now: float) -> None:
    """All messages of the stage are through: it computes, or the next one is ready."""
    if len(w.cost) > 0 and w.cost[stage] > 0:
        if _fails(w, stage, now):
            return
        w.agents[w.stages[stage].agent].computing = stage
        schedule(w.calendar, len(w.flows) + w.stages[stage].agent, now + w.cost[stage])
    else:
        _go_on(w, stage, now)


@inner
def _go_on(w: World, stage: int, now: float) -> None:
    """The stage is over."""
    following = w.stages[stage].following
    if following >= 0:
        w.agents[w.sizes[READY]].ready = following
        w.sizes[READY] += 1
    else:
        w.agents[w.stages[stage].agent].finished = now


@inner
def _end(w: World, flow: int, now: float) -> None:
    """The message is through for both its stages, and its place is free."""
    message = w.flows[flow].message
    if len(w.end) > 0:
        w.end[message] = now
    w.flows[w.sizes[FREE]].free = flow
    w.sizes[FREE] += 1
    for stage in (w.messages[message].source, w.messages[message].sink):
        w.stages[stage].waiting -= 1
        if w.stages[stage].waiting == 0:
            _complete(w, stage, now)


@inner
def _depart(w: World, flow: int, now: float) -> None:
    """The flow, alone on its links until now, is off them."""
    w.flows[w.sizes[THROUGH]].through = flow
    w.sizes[THROUGH] += 1
    if len(w.turn) > 0:
        make_way(w, flow, now)
        return
    first = w.routes[w.flows[flow].route].first_hop
    for at in range(first, first + w.routes[w.flows[flow].route].hops):
        link = w.hops[at].link
        w.links[link].crossing -= w.hops[at].weight
        w.links[link].solo = -1
    w.flows[flow].until = -1.0


@inner
def _depart_from(w: World, link: int, now: float, limit: float) -> None:
    """Members of a link's group that are through at this instant, one at least, are off their links."""
    drop(w.finish, link)
    bring_up(w, link, now)
    due = w.links[link].clock * (1 + SAME_BYTES) + w.links[link].level * (limit - now)
    due = max(due, w.flows[w.links[link].root].target)
    flow, w.links[link].root = take_due(w.flows, np.int64(w.links[link].root), due)
    while flow >= 0:
        following, route = w.flows[flow].sibling, w.flows[flow].route
        withdraw(w, flow)
        first = w.routes[route].first_hop
        for at in range(first, first + w.routes[route].hops):
            w.links[w.hops[at].link].crossing -= w.hops[at].weight
            w.links[w.hops[at].link].placed -= w.hops[at].weight
        touch_route(w, route)
        w.flows[w.sizes[THROUGH]].through = flow
        w.sizes[THROUGH] += 1
        flow = following


@inner
def _reach(w: World, now: float) -> None:
    """What the calendar and the groups have for this instant has happened."""
    limit = now + now * SAME_INSTANT
    while least(w.finish) <= limit:
        _depart_from(w, np.int64(w.finish[0].order), now, limit)
    while least(w.calendar.instants) <= limit:
        instant = np.int64(w.calendar.instants[0].order)
        node = w.calendar.nodes[instant].first
        release(w.calendar, instant)
        while node >= 0:
            following = w.calendar.nodes[node].after
            if node >= len(w.flows):
                _go_on(w, w.agents[node - len(w.flows)].computing, now)
            elif w.flows[node].until >= 0:
                _depart(w, node, now)
            else:
                _arrive(w, node)
            node = following


def _entry(version: int) -> Callable[[World, int, int, float], bool]:
    @entry
    def advance(w: World, instants: int, patience: int, until: float) -> bool:
        """Go on for so many instants at most, and not beyond ``until``; whether nothing more will happen.

        ``patience`` is how many looks at links an instant may take before all is shared out afresh.
        """
        for _ in range(instants):
            if w.sizes[READY] == 0:
                now = min(least(w.calendar.instants), least(w.finish))
                if now == np.inf:
                    return version >= 0
                if now > until:
                    return False
                w.clock[0] = max(now, w.clock[0])
                _reach(w, w.clock[0])
            now = w.clock[0]
            while w.sizes[THROUGH] + w.sizes[READY] + w.sizes[DUE] > 0:
                if w.sizes[THROUGH] > 0:
                    w.sizes[THROUGH] -= 1
                    _end(w, w.flows[w.sizes[THROUGH]].through, now)
                elif w.sizes[READY] > 0:
                    w.sizes[READY] -= 1
                    _start(w, w.agents[w.sizes[READY]].ready, now)
                else:
                    _begin_due(w, now)
            let_in(w, now)
            settle(w, now, patience)
            retell(w)
        return False

    return advance


advance = _entry(sources())
