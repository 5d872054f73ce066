"""Run the event loop: stages post messages, messages wait for their delay and cross links, and stages end.

An *agent* is one channel of a rank, and a *stage* is one of its steps. Events at the same instant are processed
together: first everything that ends, then everything that begins as a result, and then the sharing of links.
"""

from collections.abc import Callable

import numpy as np

from simcomm.compiled.kernel.arrays import LinkChange
from simcomm.compiled.kernel.arrivals import admit_arrivals
from simcomm.compiled.kernel.fair_levels import restore_fairness
from simcomm.compiled.kernel.flow_groups import (
    advance_clock,
    mark_dirty,
    mark_route_dirty,
    move_to_group,
    remove_member,
    update_finishes,
)
from simcomm.compiled.kernel.heap import drop, least, release, set_due, take_due
from simcomm.compiled.kernel.world import DUE, FREE, FRESH, READY, THROUGH, World
from simcomm.jit import entry, inline, source_hash
from simcomm.model.sharing import SAME_EVENT

DENSE = 4  # due messages are dense if at least one in this many numbers is due
SAME_BYTES = 1e-15  # relative to a group's clock; closer targets are equal within rounding


@inline
def _start_stage(w: World, stage: int, now: float) -> None:
    """Post the messages of a stage unless its agent has failed. A message is due once send and receive are posted."""
    if _has_failed(w, stage, now):
        return
    if len(w.started) > 0:
        w.started[stage] = now
    if w.stages[stage].waiting == 0:
        _complete_messages(w, stage, now)
    for at in range(w.stages[stage].first_op, w.stages[stage + 1].first_op):
        message = w.ops[at]
        if w.messages[message].posted == 0:
            w.messages[message].posted = 1
        else:
            w.messages[message].posted = 2
            w.flows[w.sizes[DUE]].due = message
            w.sizes[DUE] += 1


@inline
def _has_failed(w: World, stage: int, now: float) -> bool:
    agent = w.stages[stage].agent
    if len(w.fails_at) == 0 or now < w.fails_at[agent]:
        return False
    w.agents[agent].failed = 1
    return True


@inline
def _begin_messages(w: World, now: float) -> None:
    """Begin all due messages. If their numbers are dense, use ascending order, which suits CPU caches."""
    number = w.sizes[DUE]
    w.sizes[DUE] = 0
    first, last = w.flows[0].due, w.flows[0].due
    for k in range(1, number):
        first = min(first, w.flows[k].due)
        last = max(last, w.flows[k].due)
    if last - first > DENSE * number:
        for k in range(number):
            w.messages[w.flows[k].due].posted = 1
            _begin_message(w, np.int64(w.flows[k].due), now)
        return
    for message in range(first, last + 1):
        if w.messages[message].posted == 2:
            w.messages[message].posted = 1
            _begin_message(w, message, now)


@inline
def _begin_message(w: World, message: int, now: float) -> None:
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
        set_due(w.calendar, np.int64(flow), now + delay)
    else:
        _arrive(w, flow)


@inline
def _arrive(w: World, flow: int) -> None:
    """Let a flow begin to cross the links of its route. If the route has no link that limits the flow, finish it."""
    first, hops = w.routes[w.flows[flow].route].first_hop, w.routes[w.flows[flow].route].hops
    if hops == 0:
        w.flows[w.sizes[THROUGH]].through = flow
        w.sizes[THROUGH] += 1
        return
    for at in range(first, first + hops):
        w.links[w.hop_link[at]].crossing += 1
    w.flows[w.sizes[FRESH]].fresh = flow
    w.sizes[FRESH] += 1


@inline
def _complete_messages(w: World, stage: int, now: float) -> None:
    if len(w.cost) > 0 and w.cost[stage] > 0:
        if _has_failed(w, stage, now):
            return
        w.agents[w.stages[stage].agent].computing = stage
        set_due(w.calendar, len(w.flows) + w.stages[stage].agent, now + w.cost[stage])
    else:
        _end_stage(w, stage, now)


@inline
def _end_stage(w: World, stage: int, now: float) -> None:
    following = w.stages[stage].following
    if following >= 0:
        w.agents[w.sizes[READY]].ready = following
        w.sizes[READY] += 1
    else:
        w.agents[w.stages[stage].agent].finished = now


@inline
def _end_message(w: World, flow: int, now: float) -> None:
    message = w.flows[flow].message
    if len(w.end) > 0:
        w.end[message] = now
    w.flows[w.sizes[FREE]].free = flow
    w.sizes[FREE] += 1
    for stage in (w.messages[message].source, w.messages[message].sink):
        w.stages[stage].waiting -= 1
        if w.stages[stage].waiting == 0:
            _complete_messages(w, stage, now)


@inline
def _finish_solo_flow(w: World, flow: int) -> None:
    w.flows[w.sizes[THROUGH]].through = flow
    w.sizes[THROUGH] += 1
    first = w.routes[w.flows[flow].route].first_hop
    for at in range(first, first + w.routes[w.flows[flow].route].hops):
        link = w.hop_link[at]
        w.links[link].crossing -= 1
        w.links[link].solo = -1
    w.flows[flow].until = -1.0


@inline
def _finish_group_flows(w: World, link: int, now: float, limit: float) -> None:
    """Finish all flows in a link's group that end by ``limit``. Always finish at least one, despite rounding errors."""
    drop(w.finish, link)
    advance_clock(w, link, now)
    due = w.links[link].clock * (1 + SAME_BYTES) + w.links[link].level * (limit - now)
    due = max(due, w.flows[w.links[link].root].target)
    flow, w.links[link].root = take_due(w.flows, np.int64(w.links[link].root), due)
    while flow >= 0:
        following, route = w.flows[flow].sibling, w.flows[flow].route
        remove_member(w, flow)
        first = w.routes[route].first_hop
        for at in range(first, first + w.routes[route].hops):
            w.links[w.hop_link[at]].crossing -= 1
            w.links[w.hop_link[at]].placed -= 1
        mark_route_dirty(w, route)
        w.flows[w.sizes[THROUGH]].through = flow
        w.sizes[THROUGH] += 1
        flow = following


@inline
def _process_instant(w: World) -> None:
    first = min(least(w.calendar.instants), least(w.finish))
    limit, now = first + first * SAME_EVENT, max(first, w.clock[0])
    w.clock[0] = now
    while least(w.finish) <= limit:
        _finish_group_flows(w, np.int64(w.finish[0].order), now, limit)
    while least(w.calendar.instants) <= limit:
        instant = np.int64(w.calendar.instants[0].order)
        node = w.calendar.nodes[instant].first
        release(w.calendar, instant)
        while node >= 0:
            following = w.calendar.nodes[node].after
            if node >= len(w.flows):
                _end_stage(w, w.agents[node - len(w.flows)].computing, now)
            elif w.flows[node].until >= 0:
                _finish_solo_flow(w, node)
            else:
                _arrive(w, node)
            node = following


@inline
def _set_bandwidth(w: World, change: LinkChange, now: float) -> None:
    link, crossing = change.link, change.routes
    if w.links[link].solo >= 0:
        move_to_group(w, np.int64(w.links[link].solo), now)
    w.links[link].alone = change.alone
    w.links[link].shared = change.shared
    for k in range(len(crossing)):
        least_of_route = change.alone
        begin = w.routes[crossing[k]].first_hop
        for at in range(begin, begin + w.routes[crossing[k]].hops):
            least_of_route = min(least_of_route, w.links[w.hop_link[at]].alone)
        w.routes[crossing[k]].alone_rate = least_of_route
    mark_dirty(w, link)


@inline
def _end_and_begin(w: World, now: float) -> None:
    while w.sizes[THROUGH] + w.sizes[READY] + w.sizes[DUE] > 0:
        if w.sizes[THROUGH] > 0:
            w.sizes[THROUGH] -= 1
            _end_message(w, w.flows[w.sizes[THROUGH]].through, now)
        elif w.sizes[READY] > 0:
            w.sizes[READY] -= 1
            _start_stage(w, w.agents[w.sizes[READY]].ready, now)
        else:
            _begin_messages(w, now)


MORE, LATER, OVER = np.int64(0), np.int64(1), np.int64(2)
NO_CHANGE = LinkChange(0.0, -1, 0.0, 0.0, np.zeros(0, np.int32))


def _entry(version: int) -> Callable[[World, int, float, LinkChange], int]:
    @entry
    def simulate(w: World, instants: int, until: float, change: LinkChange) -> int:
        """Apply ``change`` to a link or, if it is ``NO_CHANGE``, simulate up to ``instants`` instants.

        One function does both, because the code that shares links takes long to compile.
        """
        for _ in range(instants):
            if change.link >= 0:
                _set_bandwidth(w, change, w.clock[0])
            else:
                if w.sizes[READY] == 0:
                    now = min(least(w.calendar.instants), least(w.finish))
                    if now == np.inf:
                        return OVER if version >= 0 else MORE
                    if now > until:
                        return LATER
                    _process_instant(w)
                _end_and_begin(w, w.clock[0])
                admit_arrivals(w, w.clock[0])
            restore_fairness(w, w.clock[0])
            update_finishes(w)
        return MORE

    return simulate


_simulate = _entry(source_hash(__file__))


def advance(w: World, instants: int, until: float) -> int:
    """Simulate up to ``instants`` instants, none later than ``until`` seconds.

    Return OVER if no event remains, LATER if the next event is after ``until``, and MORE if more instants are needed.
    """
    return _simulate(w, instants, until, NO_CHANGE)


def change_bandwidth(w: World, change: LinkChange) -> None:
    """Change a link's bandwidth at the present time of the simulation."""
    _simulate(w, 1, float(w.clock[0]), change)
