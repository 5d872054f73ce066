"""Double binary tree: two trees, each for half of the buffer, so that every rank forwards only one half.

**Steps.** In a single binary tree, half of the ranks are leaves and forward nothing, while inner nodes send everything
twice. With two trees, a rank that is a leaf of one tree is an inner node of the other, so that all links are busy. The
root is an exception. Each tree has its own channel and ``s`` slices. A rank receives a slice from its parent and at the
same time sends the previous slice to its children. A reduce sends slices from the children to the parent, with one step
per child.

**Why it is correct.** Each tree spans all ranks and has its own half of the buffer. A rank sends a slice after it has
received it from its parent, or in a reduce from all its children.

**Source.** Sanders, Speck, Träff (2009), and NCCL's trees.cc for the numbering of the ranks.

**When to choose it.** For broadcasts, reduces and all_reduces of medium and large buffers on many ranks: logarithmic
latency at nearly full bandwidth. NCCL chooses it for all_reduce across many nodes.
"""

from typing import NamedTuple

from collectives.declaration import algorithm
from collectives.step import Program, recv, recv_reduce, send


class Node(NamedTuple):
    """The neighbors of a rank in a tree. ``parent`` is None for the root."""

    parent: int | None
    children: tuple[int, ...]


def in_order_tree(position: int, size: int) -> Node:
    """Return the parent and the children of ``position`` in a binary tree of ``size`` nodes. Position 0 is the root.

    The root has one child. Positions are numbered from left to right: 8 has the children 4 and 12, 4 has 2 and 6, and 2
    has 1 and 3. Odd positions are leaves.
    """
    reach = position & -position or 1 << size.bit_length()  # lowest set bit: twice the distance to its children
    steps = [reach >> shift for shift in range(1, reach.bit_length())]
    right = next((position + step for step in steps if position + step < size), None)
    left = position - reach // 2 if position and reach > 1 else None
    above = position ^ reach | reach << 1
    parent = None if position == 0 else above if above < size else position ^ reach
    return Node(parent, tuple(child for child in (left, right) if child is not None))


def node_of(rank: int, world_size: int, root: int, tree: int) -> Node:
    """Return the parent and the children of a rank in the first tree (0) or the second tree (1).

    In the second tree, all ranks except the root are shifted by one position, so that leaves become inner nodes.
    """
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
    """Send chunks ``first`` to ``first + slices - 1`` down the tree. Each step sends a chunk and receives the next."""
    for number in range(slices + 1):
        incoming = [recv(node.parent, first + number)] if node.parent is not None and number < slices else []
        outgoing = [send(child, first + number - 1) for child in node.children] if number > 0 else []
        if incoming or outgoing:
            yield (*incoming, *outgoing)


def tree_reduce(node: Node, first: int, slices: int) -> Program:
    """Sum chunks ``first`` to ``first + slices - 1`` onto the root. Each rank receives from its left child first."""
    for number in range(slices + 1):
        incoming = [recv_reduce(child, first + number) for child in node.children if number < slices]
        outgoing = [send(node.parent, first + number - 1)] if node.parent is not None and number > 0 else []
        if incoming or outgoing:
            yield (*incoming[:1], *outgoing)
        yield from incoming[1:]


def chunks_of_two_trees(world_size: int, slices: int) -> int:
    return 2 * slices


@algorithm("broadcast", name="double_tree", chunks=chunks_of_two_trees)
def double_tree_broadcast(rank: int, world_size: int, root: int, slices: int = 8) -> tuple[Program, ...]:
    """Copy the root's buffer to all ranks in at most ceil(log2 p) + s - 1 steps. No rank sends more than n bytes."""
    nodes = [node_of(rank, world_size, root, tree) for tree in range(2)]
    return tuple(tree_broadcast(node, tree * slices, slices) for tree, node in enumerate(nodes))


@algorithm("reduce", name="double_tree", chunks=chunks_of_two_trees)
def double_tree_reduce(rank: int, world_size: int, root: int, slices: int = 8) -> tuple[Program, ...]:
    """Sum all buffers on the root in at most 2 (ceil(log2 p) + s - 1) steps. Ranks other than the root send n bytes."""
    nodes = [node_of(rank, world_size, root, tree) for tree in range(2)]
    return tuple(tree_reduce(node, tree * slices, slices) for tree, node in enumerate(nodes))


def tree_all_reduce(node: Node, first: int, slices: int) -> Program:
    """Sum chunks ``first`` to ``first + slices - 1`` on the root of the tree, then broadcast the sums to all ranks."""
    yield from tree_reduce(node, first, slices)
    yield from tree_broadcast(node, first, slices)


@algorithm("all_reduce", name="double_tree", chunks=chunks_of_two_trees)
def double_tree_all_reduce(rank: int, world_size: int, slices: int = 8) -> tuple[Program, ...]:
    """Sum all buffers on all ranks in at most 3 (ceil(log2 p) + s - 1) steps. No rank sends more than 2 n bytes."""
    nodes = [node_of(rank, world_size, 0, tree) for tree in range(2)]
    return tuple(tree_all_reduce(node, tree * slices, slices) for tree, node in enumerate(nodes))
