"""Two binary trees at once, each for half of the buffer: a rank that has children in one is a leaf of the other.

Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 35
(2009); as NCCL builds them (its trees.cc). In a single tree half of the ranks never pass anything on and the others
pass everything on twice; in two trees a rank passes on one of the halves only, n bytes at most. With ``s`` slices it is
O(log p + s) messages deep.
"""

from typing import NamedTuple

from collectives.declaration import algorithm
from collectives.step import Program, recv, recv_reduce, send


class Node(NamedTuple):
    """The parent and the children of a rank in a tree."""

    parent: int | None
    children: tuple[int, ...]


def in_order_tree(position: int, size: int) -> Node:
    """Return the node at ``position`` of 0 .. size - 1: 0 is the root with one child, odd positions are leaves.

    The others are numbered from left to right: 8 has 4 and 12 below it, 4 has 2 and 6, and 2 has 1 and 3.
    """
    reach = position & -position or 1 << size.bit_length()  # the lowest bit: how far its children are away, doubled
    steps = [reach >> shift for shift in range(1, reach.bit_length())]
    right = next((position + step for step in steps if position + step < size), None)
    left = position - reach // 2 if position and reach > 1 else None
    above = position ^ reach | reach << 1
    parent = None if position == 0 else above if above < size else position ^ reach
    return Node(parent, tuple(child for child in (left, right) if child is not None))


def node_of(rank: int, world_size: int, root: int, tree: int) -> Node:
    """Return a rank's node in tree 0 or 1. In tree 1 all ranks but the root move by one: leaves become inner."""
    others = world_size - 1
    position = (rank - root) % world_size
    if tree == 1 and position > 0:
        position = position % others + 1
    node = in_order_tree(position, world_size)

    def rank_at(position: int) -> int:
        moved = (position - 2) % others + 1 if tree == 1 and position > 0 else position
        return (moved + root) % world_size

    parent = None if node.parent is None else rank_at(node.parent)
    return Node(parent, tuple(rank_at(child) for child in node.children))


def tree_broadcast(node: Node, first: int, slices: int) -> Program:
    """Send ``slices`` chunks from ``first`` on down the tree; a rank sends one on while it receives the next."""
    for number in range(slices + 1):
        incoming = [recv(node.parent, first + number)] if node.parent is not None and number < slices else []
        outgoing = [send(child, first + number - 1) for child in node.children] if number > 0 else []
        if incoming or outgoing:
            yield (*incoming, *outgoing)


def tree_reduce(node: Node, first: int, slices: int) -> Program:
    """Leave the sums of ``slices`` chunks from ``first`` on, on the root; a rank receives from its left child first."""
    for number in range(slices + 1):
        incoming = [recv_reduce(child, first + number) for child in node.children if number < slices]
        outgoing = [send(node.parent, first + number - 1)] if node.parent is not None and number > 0 else []
        if incoming or outgoing:
            yield (*incoming[:1], *outgoing)
        yield from incoming[1:]


def chunks_of_two_trees(world_size: int, slices: int) -> int:
    """Return the number of chunks: ``slices`` for each of the trees."""
    return 2 * slices


@algorithm("broadcast", name="double_tree", chunks=chunks_of_two_trees)
def double_tree_broadcast(rank: int, world_size: int, root: int, slices: int = 8) -> tuple[Program, ...]:
    """Every rank holds root's buffer. At most ceil(log2 p) + s - 1 messages deep; no rank sends more than n bytes."""
    nodes = [node_of(rank, world_size, root, tree) for tree in range(2)]
    return tuple(tree_broadcast(node, tree * slices, slices) for tree, node in enumerate(nodes))


@algorithm("reduce", name="double_tree", chunks=chunks_of_two_trees)
def double_tree_reduce(rank: int, world_size: int, root: int, slices: int = 8) -> tuple[Program, ...]:
    """Root holds the sum. At most 2 (ceil(log2 p) + s - 1) messages deep; every other rank sends n bytes, the least."""
    nodes = [node_of(rank, world_size, root, tree) for tree in range(2)]
    return tuple(tree_reduce(node, tree * slices, slices) for tree, node in enumerate(nodes))


def tree_all_reduce(node: Node, first: int, slices: int) -> Program:
    """Leave the sums of ``slices`` chunks from ``first`` on, on every rank: up the tree, then down."""
    yield from tree_reduce(node, first, slices)
    yield from tree_broadcast(node, first, slices)


@algorithm("all_reduce", name="double_tree", chunks=chunks_of_two_trees)
def double_tree_all_reduce(rank: int, world_size: int, slices: int = 8) -> tuple[Program, ...]:
    """Every rank holds the sum. At most 3 (ceil(log2 p) + s - 1) messages deep; no rank sends more than 2 n bytes."""
    nodes = [node_of(rank, world_size, 0, tree) for tree in range(2)]
    return tuple(tree_all_reduce(node, tree * slices, slices) for tree, node in enumerate(nodes))
