"""A heap of numbered items with four branches at each, any of which can change its key or leave.

It is one array of records, one more than there are items: ``key`` and ``order`` of the first entries are the heap,
``place`` is where an item stands in it (-1 outside), and ``place`` of the last record is how many items are in it. The
entries below one lie side by side, so that in a large heap a level costs one access to memory.
"""

import numpy as np

from simcomm.compiled.kernel.arrays import Records
from simcomm.jit import inline

ITEM = np.dtype([("key", "f8"), ("order", "i4"), ("place", "i4")], align=True)


def new_heap(items: int) -> Records:
    """Return an empty heap for items 0..items - 1."""
    heap = np.zeros(items + 1, ITEM)
    heap["place"][:items] = -1
    return heap


@inline
def least(heap: Records) -> float:
    """Return the least key; infinite when the heap is empty."""
    return heap[0].key if heap[len(heap) - 1].place > 0 else np.inf


@inline
def second_least(heap: Records) -> float:
    """Return the key that follows the least; infinite when there is none."""
    found = np.inf
    for at in range(1, min(5, heap[len(heap) - 1].place)):
        found = min(found, heap[at].key)
    return found


@inline
def key_of(heap: Records, item: int) -> float:
    """Return the key of an item; not a number where it is not in the heap."""
    at = heap[item].place
    return heap[at].key if at >= 0 else np.nan


@inline
def put(heap: Records, item: int, key: float) -> None:
    """Put an item in the heap with this key, or change its key if it is there."""
    at = heap[item].place
    if at < 0:
        at = heap[len(heap) - 1].place
        heap[len(heap) - 1].place = at + 1
    _settle_at(heap, at, item, key)


@inline
def drop(heap: Records, item: int) -> None:
    """Take an item out of the heap if it is there."""
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
    """Write an item, which no entry of the heap shows, at a place, or above or below it where its key belongs."""
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
    """Write the entry at one place to another."""
    heap[to].key = heap[at].key
    heap[to].order = heap[at].order
    heap[heap[at].order].place = to
