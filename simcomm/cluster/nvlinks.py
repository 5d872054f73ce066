"""NVLinks among the GPUs of a machine: an NVSwitch, bridged pairs, or the hybrid cube mesh."""

from collections.abc import Sequence
from functools import partial

import networkx as nx

from collectives.errors import InputError
from collectives.transport import Transport
from collectives.units import Bandwidth, Latency
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.graph import LinkSpec, add_link, link_spec
from simcomm.cluster.machines import Machine, single_machine

# NVLinks between GPUs 0 to 7 of the hybrid cube mesh: two squares with both diagonals, corners joined across.
# How many each has with V100 (``nvidia-smi topo -m`` of a DGX-1V in microsoft/msccl-tools, tests/test_topologies.py);
# with P100, which has four NVLinks and not six, each has one.
CUBE_MESH = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2}
CUBE_MESH_ACROSS = {0: 2, 1: 2, 2: 1, 3: 1}


def add_nvswitch(graph: "nx.DiGraph[str]", name: str, gpus: Sequence[str], link: LinkSpec) -> None:
    """Link every GPU to one NVSwitch with all its NVLinks."""
    graph.add_node(f"{name}.nvswitch", kind="nvswitch", machine=graph.nodes[gpus[0]]["machine"])
    for gpu in gpus:
        add_link(graph, gpu, f"{name}.nvswitch", link)


def add_nvlink_pairs(graph: "nx.DiGraph[str]", name: str, gpus: Sequence[str], link: LinkSpec) -> None:
    """Add NVLink bridges between GPUs 0 and 1, 2 and 3, and so on."""
    for a, b in zip(gpus[::2], gpus[1::2], strict=False):
        add_link(graph, a, b, link)


def add_cube_mesh(graph: "nx.DiGraph[str]", name: str, gpus: Sequence[str], brick: LinkSpec, bricks: int = 6) -> None:
    """Link eight GPUs, each with 4 (P100) or 6 (V100) NVLinks, in a hybrid cube mesh; or four, in one half of it.

    Raise InputError for another number of either.
    """
    if len(gpus) not in (4, 8) or bricks not in (4, 6):
        raise InputError(f"a hybrid cube mesh has 4 or 8 GPUs with 4 or 6 NVLinks each, not {len(gpus)} with {bricks}")
    for half in range(0, len(gpus), 4):
        for (a, b), count in CUBE_MESH.items():
            add_link(graph, gpus[half + a], gpus[half + b], _bundle(brick, count if bricks == 6 else 1))
    for corner, count in CUBE_MESH_ACROSS.items() if len(gpus) == 8 else ():
        add_link(graph, gpus[corner], gpus[corner + 4], _bundle(brick, count if bricks == 6 else 1))


def _bundle(brick: LinkSpec, count: int) -> LinkSpec:
    return brick.times(count)._replace(medium=f"{brick.medium} x{count}" if brick.medium else "")


def nvlink_pairs(
    gpus: int,
    nvlink_bandwidth: str | Bandwidth,
    pcie_bandwidth: str | Bandwidth,
    latency: str | Latency,
    transport: Transport | None = IDEAL,
) -> Cluster:
    """Build GPUs joined two by two by NVLink bridges, and all by PCIe through one CPU without peer-to-peer access.

    >>> nvlink_pairs(4, "56 GB/s", "24 GB/s", "1 us")
    <Cluster 4 GPUs in NVLink pairs: 4 ranks, 6 nodes, 14 links>
    """
    bridge = partial(add_nvlink_pairs, link=link_spec(nvlink_bandwidth, latency, "NVLink"))
    pcie = link_spec(pcie_bandwidth, latency, "PCIe")
    machine = Machine(f"{gpus} GPUs in NVLink pairs", gpus, pcie, nvlinks=bridge, p2p_level="NVL")
    return single_machine(machine, transport)


def cube_mesh(
    bandwidth: str | Bandwidth, latency: str | Latency, bricks: int = 6, transport: Transport | None = IDEAL
) -> Cluster:
    """Build eight GPUs in a hybrid cube mesh of ``bricks`` NVLinks each, of ``bandwidth`` a link, without their PCIe.

    >>> cube_mesh("25 GB/s", "1 us")
    <Cluster hybrid cube mesh, 6 NVLinks a GPU: 8 ranks, 8 nodes, 32 links>
    """
    mesh = partial(add_cube_mesh, brick=link_spec(bandwidth, latency, "NVLink"), bricks=bricks)
    return single_machine(Machine(f"hybrid cube mesh, {bricks} NVLinks a GPU", 8, nvlinks=mesh), transport)


def nvswitch(
    gpus: int, bandwidth: str | Bandwidth, latency: str | Latency, transport: Transport | None = IDEAL
) -> Cluster:
    """Build GPUs on an NVSwitch, each by NVLinks of ``bandwidth`` together; 72 of them make an NVL72.

    >>> nvswitch(8, "450 GB/s", "1 us")
    <Cluster 8 GPUs on an NVSwitch: 8 ranks, 9 nodes, 16 links>
    """
    switch = partial(add_nvswitch, link=link_spec(bandwidth, latency, "NVLink"))
    return single_machine(Machine(f"{gpus} GPUs on an NVSwitch", gpus, nvlinks=switch), transport)
