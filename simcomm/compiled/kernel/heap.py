"""Implement heaps for the kernel: a 4-ary heap of numbered items, a calendar of events, and pairing heaps of flows.

The 4-ary heap is an array of records, one more than there are items. Its first records contain the heap, each entry in
the fields ``key`` and ``order`` (the item). Record i also stores item i's position in the heap as ``place`` (-1 if it
is not in the heap); the last record's ``place`` is the heap's size. Any item can change its key or leave. The four
children of an entry are adjacent, so each level of a large heap costs one memory access.

A calendar is a heap of instants, with a list of nodes for each. Many events at one instant take one place in the heap,
which makes programs in lockstep cheap. A node is a flow or an agent, and waits for at most one instant.

Each group of flows is a pairing heap whose root is the flow that finishes first (Fredman, Sedgewick, Sleator, Tarjan,
"The pairing heap: a new form of self-adjusting heap", Algorithmica 1, 1986). ``target`` orders the flows. ``child``,
``sibling`` and ``before`` (left sibling, or parent of a first child) link them; -1 means none.
"""

from typing import Any, NamedTuple

import numpy as np

from simcomm.compiled.kernel.arrays import NOBODY, Records
from simcomm.jit import inline

ITEM = np.dtype([("key", "f8"), ("order", "i4"), ("place", "i4")], align=True)


def new_heap(items: int) -> Records:
    """Return an empty heap for items 0 to ``items`` - 1."""
    heap = np.zeros(items + 1, ITEM)
    heap["place"][:items] = -1
    return heap


@inline
def least(heap: Records) -> float:
    """Return the least key, or infinity if the heap is empty."""
    return heap[0].key if heap[len(heap) - 1].place > 0 else np.inf


@inline
def key_of(heap: Records, item: int) -> float:
    """Return the key of an item, or NaN if it is not in the heap."""
    at = heap[item].place
    return heap[at].key if at >= 0 else np.nan


@inline
def put(heap: Records, item: int, key: float) -> None:
    """Insert an item with this key, or change its key."""
    at = heap[item].place
    if at < 0:
        at = heap[len(heap) - 1].place
        heap[len(heap) - 1].place = at + 1
    _settle_at(heap, at, item, key)


@inline
def drop(heap: Records, item: int) -> None:
    """Remove an item if it is in the heap."""
    at = heap[item].place
    if at < 0:
        return
    heap[item].place = -1
    size = heap[len(heap) - 1].place - 1
    heap[len(heap) - 1].place = size
    if at < size:
        _settle_at(heap, at, np.int64(heap[size].order), heap[size].key)


@inline
def _settle_at(heap: Records, at: int, item: int, key: float) -> None:
    """Store an item at position ``at``, and move it up or down until the heap is ordered."""
    size = heap[len(heap) - 1].place
    start = at
    while at > 0:
        above = (at - 1) >> 2
        if heap[above].key <= key:
            break
        _move(heap, above, at)
        at = above
    while at >= start:
        first = 4 * at + 1
        if first >= size:
            break
        below = first
        for other in range(first + 1, min(first + 4, size)):
            if heap[other].key < heap[below].key:
                below = other
        if heap[below].key >= key:
            break
        _move(heap, below, at)
        at = below
    heap[at].key = key
    heap[at].order = item
    heap[item].place = at


@inline
def _move(heap: Records, at: int, to: int) -> None:
    heap[to].key = heap[at].key
    heap[to].order = heap[at].order
    heap[heap[at].order].place = to


@inline
def meld(flows: Records, a: int, b: int) -> int:
    """Merge two heaps and return the root; -1 represents an empty heap."""
    if a < 0:
        return b
    if b < 0:
        return a
    if flows[b].target < flows[a].target:
        a, b = b, a
    child = flows[a].child
    flows[b].sibling = child
    flows[b].before = a
    if child >= 0:
        flows[child].before = b
    flows[a].child = b
    return a


@inline
def _meld_all(flows: Records, first: int) -> int:
    """Merge the heaps in a list of siblings, in pairs and then from the last pair to the first. Return the root."""
    pairs = NOBODY
    while first >= 0:
        second = np.int64(flows[first].sibling)
        if second < 0:
            flows[first].sibling = pairs
            pairs = first
            break
        following = np.int64(flows[second].sibling)
        root = meld(flows, first, second)
        flows[root].sibling = pairs
        pairs = root
        first = following
    root = NOBODY
    while pairs >= 0:
        following = np.int64(flows[pairs].sibling)
        root = meld(flows, root, pairs)
        pairs = following
    if root >= 0:
        flows[root].sibling = -1
        flows[root].before = -1
    return root


@inline
def take_due(flows: Records, root: int, due: float) -> tuple[int, int]:
    """Remove all flows with targets up to ``due``. Return the first flow of their list, and the heap's new root."""
    todo, taken, others = root, NOBODY, NOBODY
    while todo >= 0:
        flow = todo
        todo = np.int64(flows[flow].sibling)
        if flows[flow].target > due:
            flows[flow].sibling = others
            others = flow
            continue
        child = np.int64(flows[flow].child)
        flows[flow].child = -1
        flows[flow].sibling = taken
        taken = flow
        while child >= 0:
            following = np.int64(flows[child].sibling)
            flows[child].sibling = todo
            todo = child
            child = following
    return taken, _meld_all(flows, others)


@inline
def remove(flows: Records, root: int, flow: int) -> int:
    """Remove a flow from a heap. Return the new root."""
    orphans = _meld_all(flows, np.int64(flows[flow].child))
    flows[flow].child = -1
    if flow == root:
        return orphans
    before, sibling = flows[flow].before, flows[flow].sibling
    if flows[before].child == flow:
        flows[before].child = sibling
    else:
        flows[before].sibling = sibling
    if sibling >= 0:
        flows[sibling].before = before
    return meld(flows, root, orphans)


RECENT = 1024  # size of the hash table of instants by time; a power of two
NODE = np.dtype([("instant", "i4"), ("after", "i4"), ("before", "i4"), ("first", "i4"), ("free", "i4")], align=True)


class Calendar(NamedTuple):
    """A calendar of events: a heap of instants, and a list of the nodes that wait for each instant."""

    nodes: Records  # NODE: each node's instant and neighbors there, each instant's first node, and free instants
    instants: Records  # a heap, by seconds
    recent: Any  # int32 [RECENT]: instants by a hash of their time
    spare: Any  # int64 [1]: number of free instants


def new_calendar(nodes: int) -> Calendar:
    records = np.zeros(nodes, NODE)
    records["free"] = np.arange(nodes)[::-1]
    return Calendar(records, new_heap(nodes), np.zeros(RECENT, np.int32), np.full(1, nodes))


@inline
def set_due(calendar: Calendar, node: int, time: float) -> None:
    """Let an idle node wait until ``time``, in seconds."""
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
    """Cancel the event of a waiting node."""
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
    """Free an instant for reuse. Its nodes stay linked, so a caller can still iterate over them."""
    drop(calendar.instants, instant)
    calendar.nodes[calendar.spare[0]].free = instant
    calendar.spare[0] += 1
