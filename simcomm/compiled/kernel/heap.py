"""A binary heap of numbered items, any of which can change its key or leave.

It is one array of records, one more than there are items: ``order`` of the first entries is the heap, ``place`` is
where an item stands in it (-1 outside), and ``place`` of the last record is how many items are in it.
"""

import numpy as np

from simcomm.compiled.kernel.arrays import Records
from simcomm.compiled.kernel.jit import inline

ITEM = np.dtype([("key", "f8"), ("order", "i4"), ("place", "i4")], align=True)


def new_heap(items: int) -> Records:
    """Return an empty heap for items 0..items - 1."""
    heap = np.zeros(items + 1, ITEM)
    heap["place"][:items] = -1
    return heap


@inline
def least(heap: Records) -> float:
    """Return the least key; infinite when the heap is empty."""
    return heap[heap[0].order].key if heap[-1].place > 0 else np.inf


@inline
def put(heap: Records, item: int, key: float) -> None:
    """Put an item in the heap with this key, or change its key if it is there."""
    at = heap[item].place
    if at < 0:
        at = heap[-1].place
        heap[-1].place = at + 1
    heap[item].key = key
    _settle_at(heap, at, item, key)


@inline
def drop(heap: Records, item: int) -> None:
    """Take an item out of the heap if it is there."""
    at = heap[item].place
    if at < 0:
        return
    heap[item].place = -1
    size = heap[-1].place - 1
    heap[-1].place = size
    if at < size:
        last = np.int64(heap[size].order)
        _settle_at(heap, at, last, heap[last].key)


@inline
def _settle_at(heap: Records, at: int, item: int, key: float) -> None:
    """Write an item, which no entry of the heap shows, at a place, or above or below it where its key belongs."""
    size = heap[-1].place
    start = at
    while at > 0:
        above = (at - 1) >> 1
        other = heap[above].order
        if heap[other].key <= key:
            break
        heap[at].order = other
        heap[other].place = at
        at = above
    while at >= start:
        below = 2 * at + 1
        if below >= size:
            break
        other = heap[below].order
        if below + 1 < size and heap[heap[below + 1].order].key < heap[other].key:
            below += 1
            other = heap[below].order
        if heap[other].key >= key:
            break
        heap[at].order = other
        heap[other].place = at
        at = below
    heap[at].order = item
    heap[item].place = at
