"""Pipelined chain: slices of the buffer travel from rank to rank, several slices at the same time.

**Steps.** The ranks form a line that starts at the root, and the buffer has s slices. In step k of a broadcast, a rank
receives slice k from the rank before it and sends slice k - 1 to the rank after it. In a reduce the slices travel
toward the root, and each rank adds its own data to a slice before it passes the slice on.

**Why it is correct.** Each slice visits all ranks of the line in order. A rank sends a slice one step after it has
received the slice, so the slice is complete.

**Source.** Patarasuk, Faraj, Yuan (2006); Chan et al. (2007). The best s is ``sqrt((p - 2) n beta / alpha)``.

**When to choose it.** For large broadcasts: every rank sends the buffer only once. The latency grows with p, so use a
tree for short messages and for many ranks.
"""

from collectives.algorithms.double_tree import Node, tree_broadcast, tree_reduce
from collectives.declaration import algorithm
from collectives.step import Program


def node_of_line(rank: int, world_size: int, root: int) -> Node:
    """Return the parent and the child of a rank in the line. The root has no parent. The last rank has no child."""
    position = (rank - root) % world_size
    before, after = (rank - 1) % world_size, (rank + 1) % world_size
    return Node(before if position > 0 else None, (after,) if position < world_size - 1 else ())


def chunks_of_chain(world_size: int, slices: int) -> int:
    return slices


@algorithm("broadcast", name="chain", chunks=chunks_of_chain)
def chain_broadcast(rank: int, world_size: int, root: int, slices: int = 8) -> Program:
    """Copy the root's buffer to all ranks in p + s - 2 steps. Every rank except the last one sends n bytes."""
    yield from tree_broadcast(node_of_line(rank, world_size, root), 0, slices)


@algorithm("reduce", name="chain", chunks=chunks_of_chain)
def chain_reduce(rank: int, world_size: int, root: int, slices: int = 8) -> Program:
    """Sum all buffers on the root in p + s - 2 steps. Every rank except the root sends n bytes."""
    yield from tree_reduce(node_of_line(rank, world_size, root), 0, slices)


@algorithm("all_reduce", name="chain", chunks=chunks_of_chain)
def chain_all_reduce(rank: int, world_size: int, slices: int = 8) -> Program:
    """Sum all buffers on rank 0, then broadcast the sum, in 2 (p + s - 2) steps. A rank sends at most 2 n bytes."""
    yield from chain_reduce(rank, world_size, root=0, slices=slices)
    yield from chain_broadcast(rank, world_size, root=0, slices=slices)
