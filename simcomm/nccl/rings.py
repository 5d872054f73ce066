"""Compute the orders in which NCCL's rings and double binary trees visit ranks.

The parent of node r in a tree over N nodes follows from r's lowest set bit: clear it and set the next higher one. If no
such node exists, only clear it. So node 0 is the root, and the odd nodes are leaves. The second tree is the first one
mirrored (N even) or shifted by one (N odd), so that the leaves of one tree are inner nodes of the other. Together, the
trees use every NIC in both directions. Inside each node, the GPUs form a chain. Source: ``src/graph/trees.cc`` of
NVIDIA/nccl.
"""

from dataclasses import dataclass

from simcomm.nccl.channels import open_channels
from simcomm.nccl.communicator import Communicator
from simcomm.nccl.topology import GpuHost, mesh_rings


def ring_orders(host: GpuHost) -> tuple[tuple[int, ...], ...]:
    """Return the orders in which rings visit the host's GPUs."""
    if host.link == "mesh" and host.gpus in (4, 8):
        return tuple(order for ring in mesh_rings(host.gpus) for order in (ring, (ring[0], *ring[:0:-1])))
    return (tuple(range(host.gpus)),)


def rank_rings(comm: Communicator) -> tuple[tuple[int, ...], ...]:
    """Return the orders in which rings visit all ranks, one host after the other, with at most one ring per channel.

    On hosts with an NVSwitch and several NICs, each NIC has its own ring. The ring enters and leaves every host through
    this NIC, at a GPU near it. If two GPUs are equally near, the ring enters at one and leaves from the other, as in
    the log of p4d in NVIDIA/nccl issue 514 (0 7 6 5 4 3 2 1 8 15 ...). If each GPU has its own NIC, the last GPU sends
    through the first one (PXN), as in a log of two hosts with eight H100 (0 1 2 3 4 5 6 7 8 9 ..., "NET/IBext/0(8)").
    """
    orders = ring_orders(comm.host)
    if comm.network is not None and comm.host.link == "nvswitch":
        gpus = comm.host.gpus
        nics = min(gpus, max(1, comm.network.ports * comm.nodes // comm.system.nodes))
        way = -1 if nics < gpus else 1
        starts = [nic * gpus // nics for nic in range(nics)]
        orders = tuple(tuple((start + way * step) % gpus for step in range(gpus)) for start in starts)
    return tuple(
        tuple(host * comm.host.gpus + gpu for host in range(comm.system.nodes) for gpu in order)
        for order in orders[: open_channels(comm)]
    )


@dataclass(frozen=True)
class TreeNode:
    """A rank in a tree with its parent (None at the root) and its children."""

    rank: int
    parent: int | None
    children: tuple[int, ...]


def parents(nodes: int) -> tuple[int | None, ...]:
    """Return the parent of each node in the first tree.

    >>> parents(5)
    (None, 2, 4, 2, 0)
    """
    parent_nodes: list[int | None] = [None]
    for node in range(1, nodes):
        bit = node & -node
        up = (node ^ bit) | (bit << 1)
        parent_nodes.append(up if up < nodes else node ^ bit)
    return tuple(parent_nodes)


def second_parents(nodes: int) -> tuple[int | None, ...]:
    """Return the parent of each node in the second tree.

    >>> second_parents(4)
    (1, 3, 1, None)
    """
    first = parents(nodes)
    if nodes % 2:
        shifted = (first[node - 1] for node in range(nodes))
        return tuple(None if up is None else (up + 1) % nodes for up in shifted)
    return tuple(None if up is None else nodes - 1 - up for up in reversed(first))


def rank_tree(node_parents: tuple[int | None, ...], order: tuple[int, ...], local: int) -> tuple[TreeNode, ...]:
    """Return a tree over all ranks. A node's ranks form a chain in ``order``, and its first rank joins other nodes."""
    up: dict[int, int | None] = {}
    for node, parent in enumerate(node_parents):
        chain = [node * local + gpu for gpu in order]
        up[chain[0]] = None if parent is None else parent * local + order[0]
        up |= dict(zip(chain[1:], chain, strict=False))
    children: dict[int, list[int]] = {rank: [] for rank in up}
    for rank, parent in sorted(up.items()):
        if parent is not None:
            children[parent].append(rank)
    return tuple(TreeNode(rank, up[rank], tuple(children[rank])) for rank in sorted(up))


def double_tree(nodes: int, order: tuple[int, ...]) -> tuple[tuple[TreeNode, ...], ...]:
    """Return the two trees over all ranks. On a single node, return only one tree, which is a chain."""
    both = (parents(nodes), second_parents(nodes)) if nodes > 1 else (parents(nodes),)
    return tuple(rank_tree(tree, order, len(order)) for tree in both)
