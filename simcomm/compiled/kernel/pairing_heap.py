"""Pairing heaps of flows, of which each group has one: the flow that is through first is at the root.

Fredman, Sedgewick, Sleator, Tarjan, "The pairing heap: a new form of self-adjusting heap", Algorithmica 1 (1986).
``target`` orders the flows; ``child``, ``sibling`` and ``before`` (left sibling, or parent of a first child) link
them; -1 is nobody.
"""

import numpy as np

from simcomm.compiled.kernel.arrays import NOBODY, Records
from simcomm.jit import inline


@inline
def meld(flows: Records, one: int, other: int) -> int:
    """Return the root of two heaps made one; -1 is an empty heap."""
    if one < 0:
        return other
    if other < 0:
        return one
    if flows[other].target < flows[one].target:
        one, other = other, one
    child = flows[one].child
    flows[other].sibling = child
    flows[other].before = one
    if child >= 0:
        flows[child].before = other
    flows[one].child = other
    return one


@inline
def _meld_all(flows: Records, first: int) -> int:
    """Return the root of all heaps in a list of siblings: meld two by two, and then from the last pair to the first."""
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
    """Return the flows of a heap with targets up to ``due``, as a list by ``sibling``, and the root of the others."""
    todo, taken, kept = root, NOBODY, NOBODY
    while todo >= 0:
        flow = todo
        todo = np.int64(flows[flow].sibling)
        if flows[flow].target > due:
            flows[flow].sibling = kept
            kept = flow
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
    return taken, _meld_all(flows, kept)


@inline
def remove(flows: Records, root: int, flow: int) -> int:
    """Take a flow out of a heap; return the root of what is left."""
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
