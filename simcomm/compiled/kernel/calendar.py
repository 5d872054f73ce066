"""A calendar of events: a heap of instants, and for each the nodes that wait for it.

Many events of one instant cost one place in the heap, which makes programs in lockstep cheap. A node is a flow or an
agent; it waits for at most one instant.
"""

from typing import Any, NamedTuple

import numpy as np

from simcomm.compiled.kernel.arrays import Records
from simcomm.compiled.kernel.heap import drop, key_of, new_heap, put
from simcomm.jit import inline

RECENT = 1024  # instants that are found again by a hash of their time; a power of two
NODE = np.dtype([("instant", "i4"), ("after", "i4"), ("before", "i4"), ("first", "i4"), ("free", "i4")], align=True)


class Calendar(NamedTuple):
    """Nodes and instants; there are as many records of instants as of nodes."""

    nodes: Records  # NODE: by node its instant and neighbours there, by instant its first node, and free instants
    instants: Records  # a heap, by seconds
    recent: Any  # int32 [RECENT]: instants by a hash of their time
    spare: Any  # int64 [1]: how many instants are free


def new_calendar(nodes: int) -> Calendar:
    """Return a calendar in which no node waits for anything."""
    records = np.zeros(nodes, NODE)
    records["free"] = np.arange(nodes)[::-1]
    return Calendar(records, new_heap(nodes), np.zeros(RECENT, np.int32), np.full(1, nodes))


@inline
def set_due(calendar: Calendar, node: int, time: float) -> None:
    """Let a node that waits for nothing wait for ``time`` seconds."""
    nodes, instants = calendar.nodes, calendar.instants
    slot = (np.float64(time).view(np.int64) * np.int64(-7046029254386353131) >> np.int64(40)) & (RECENT - 1)
    instant = np.int64(calendar.recent[slot])
    if key_of(instants, instant) != time:
        calendar.spare[0] -= 1
        instant = np.int64(nodes[calendar.spare[0]].free)
        calendar.recent[slot] = instant
        nodes[instant].first = -1
        put(instants, instant, time)
    follower = nodes[instant].first
    nodes[node].after = follower
    nodes[node].before = -1
    nodes[node].instant = instant
    nodes[instant].first = node
    if follower >= 0:
        nodes[follower].before = node


@inline
def cancel(calendar: Calendar, node: int) -> None:
    """Let a node that waits for an instant wait for nothing."""
    nodes = calendar.nodes
    instant, after, before = np.int64(nodes[node].instant), nodes[node].after, nodes[node].before
    if after >= 0:
        nodes[after].before = before
    if before >= 0:
        nodes[before].after = after
    else:
        nodes[instant].first = after
        if after < 0:
            release(calendar, instant)


@inline
def release(calendar: Calendar, instant: int) -> None:
    """Free an instant; the list of its nodes, taken before, stays as it is."""
    drop(calendar.instants, instant)
    calendar.nodes[calendar.spare[0]].free = instant
    calendar.spare[0] += 1
