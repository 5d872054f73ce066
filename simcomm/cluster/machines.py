"""Inside a machine: GPUs, PCIe switches, CPU sockets with their memory, NICs, and the NVLinks between GPUs.

Nodes of machine 0 are n0.gpu0, n0.nic0, n0.pcie0, n0.cpu0, n0.memory0 and n0.nvswitch. GPU i of n hangs on socket
i * sockets // n, and likewise on a PCIe switch; so do NICs. A CPU node is a socket with its root complex; the sockets
of one board are linked with each other. What several NVSwitch chips do together stands as one node that never blocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import networkx as nx

from collectives.errors import InputError
from collectives.transport import Transport
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.graph import P2P_LEVELS, Wire, empty, join, wire

Links = Callable[["nx.DiGraph[str]", str, Sequence[str]], None]  # adds NVLinks among a machine's GPUs

# NVLinks between GPUs 0 to 7 of the hybrid cube mesh: two squares with both diagonals, corners joined across.
# How many each has with V100 (``nvidia-smi topo -m`` of a DGX-1V in microsoft/msccl-tools, tests/test_topologies.py);
# with P100, which has four NVLinks and not six, each has one.
CUBE_MESH = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2}
CUBE_MESH_ACROSS = {0: 2, 1: 2, 2: 1, 3: 1}


@dataclass(frozen=True)
class Machine:
    """What a machine is made of; GPUs and NICs are spread evenly over switches and sockets."""

    title: str
    gpus: int
    pcie: Wire | None = None  # None: no CPUs are modelled, GPUs have NVLinks only
    sockets: int = 1
    boards: int = 1
    pcie_switches: int = 0  # none: straight to the CPU
    uplink: Wire | None = None  # of a switch to its CPU; None: like the GPUs
    socket: Wire | None = None  # between the sockets of a board; None: not linked
    memory: Wire = Wire(medium="memory")  # noqa: RUF009 - of each socket; unlimited unless known
    nics: int = 0
    nic_pcie: Wire | None = None  # None: like the GPUs
    nics_on_cpu: bool = False  # past the switches
    nic: Wire | None = None  # each NIC's port to the network
    nvlinks: Links | None = None
    p2p_level: str = "SYS"

    def __post_init__(self) -> None:
        """Raises InputError for parts that do not go together."""
        for key in ("gpus", "sockets", "boards"):
            if getattr(self, key) < 1:
                raise InputError(f"{self.title}: {key} = {getattr(self, key)}; at least 1 is needed")
        if self.p2p_level not in P2P_LEVELS:
            raise InputError(f"{self.title}: p2p_level = {self.p2p_level!r}; there are {', '.join(P2P_LEVELS)}")
        if self.pcie is None and self.nvlinks is None and self.gpus > 1:
            raise InputError(f"{self.title}: nothing joins its {self.gpus} GPUs; give pcie or nvlinks")
        if self.sockets % self.boards:
            raise InputError(f"{self.title}: {self.sockets} sockets do not divide among {self.boards} boards")


def add_machine(graph: "nx.DiGraph[str]", number: int, machine: Machine) -> list[str]:
    """Add a machine's nodes and links; returns its GPUs in order."""
    name = f"n{number}"
    gpus = [f"{name}.gpu{gpu}" for gpu in range(machine.gpus)]
    for local, gpu in enumerate(gpus):
        graph.add_node(gpu, kind="gpu", machine=number, local=local, rail=_share(local, machine.gpus, _rails(machine)))
    if machine.pcie is not None:
        _add_host(graph, name, number, machine)
        _add_devices(graph, name, machine, gpus, machine.pcie)
        _add_nics(graph, name, number, machine, machine.nic_pcie or machine.pcie)
    if machine.nvlinks is not None:
        machine.nvlinks(graph, name, gpus)
    return gpus


def _rails(machine: Machine) -> int:
    return max(1, min(machine.nics, machine.gpus))


def _share(index: int, count: int, parts: int) -> int:
    """Which of ``parts`` equal runs the index falls into."""
    return index * parts // count


def _add_host(graph: "nx.DiGraph[str]", name: str, number: int, machine: Machine) -> None:
    """Sockets, their memories and PCIe switches."""
    assert machine.pcie is not None
    for socket in range(machine.sockets):
        graph.add_node(f"{name}.cpu{socket}", kind="cpu", machine=number)
        graph.add_node(f"{name}.memory{socket}", kind="memory", machine=number)
        join(graph, f"{name}.cpu{socket}", f"{name}.memory{socket}", machine.memory)
    for a, b in combinations(range(machine.sockets), 2):
        if machine.socket and _share(a, machine.sockets, machine.boards) == _share(b, machine.sockets, machine.boards):
            join(graph, f"{name}.cpu{a}", f"{name}.cpu{b}", machine.socket)
    for switch in range(machine.pcie_switches):
        graph.add_node(f"{name}.pcie{switch}", kind="pcie", machine=number)
        socket = _share(switch, machine.pcie_switches, machine.sockets)
        join(graph, f"{name}.pcie{switch}", f"{name}.cpu{socket}", machine.uplink or machine.pcie)


def _add_devices(graph: "nx.DiGraph[str]", name: str, machine: Machine, gpus: Sequence[str], pcie: Wire) -> None:
    for local, gpu in enumerate(gpus):
        join(graph, gpu, _parent(name, machine.sockets, machine.pcie_switches, local, machine.gpus), pcie)
        if machine.p2p_level != "SYS":
            memory = f"{name}.memory{_share(local, machine.gpus, machine.sockets)}"
            graph.nodes[gpu].update(p2p_level=machine.p2p_level, memory=memory)


def _add_nics(graph: "nx.DiGraph[str]", name: str, number: int, machine: Machine, pcie: Wire) -> None:
    for nic in range(machine.nics):
        rail = _share(nic, machine.nics, _rails(machine))
        graph.add_node(f"{name}.nic{nic}", kind="nic", machine=number, rail=rail)
        switches = 0 if machine.nics_on_cpu else machine.pcie_switches
        join(graph, f"{name}.nic{nic}", _parent(name, machine.sockets, switches, nic, machine.nics), pcie)


def _parent(name: str, sockets: int, switches: int, index: int, count: int) -> str:
    """The switch, or the CPU where there are none, on which the index-th of ``count`` devices hangs."""
    if switches:
        return f"{name}.pcie{_share(index, count, switches)}"
    return f"{name}.cpu{_share(index, count, sockets)}"


def all_to_switch(graph: "nx.DiGraph[str]", name: str, gpus: Sequence[str], along: Wire) -> None:
    """Every GPU on the NVSwitch with all its NVLinks."""
    graph.add_node(f"{name}.nvswitch", kind="nvswitch", machine=graph.nodes[gpus[0]]["machine"])
    for gpu in gpus:
        join(graph, gpu, f"{name}.nvswitch", along)


def in_pairs(graph: "nx.DiGraph[str]", name: str, gpus: Sequence[str], along: Wire) -> None:
    """NVLink bridges between GPUs 0 and 1, 2 and 3, and so on."""
    for a, b in zip(gpus[::2], gpus[1::2], strict=False):
        join(graph, a, b, along)


def in_cube_mesh(graph: "nx.DiGraph[str]", name: str, gpus: Sequence[str], brick: Wire, bricks: int = 6) -> None:
    """The hybrid cube mesh of eight GPUs with 4 (P100) or 6 (V100) NVLinks each; of the first four, one half of it.

    Raises InputError for another number of either.
    """
    if len(gpus) not in (4, 8) or bricks not in (4, 6):
        raise InputError(f"a hybrid cube mesh has 4 or 8 GPUs with 4 or 6 NVLinks each, not {len(gpus)} with {bricks}")
    for half in range(0, len(gpus), 4):
        for (a, b), count in CUBE_MESH.items():
            join(graph, gpus[half + a], gpus[half + b], _bricks(brick, count if bricks == 6 else 1))
    for corner, count in CUBE_MESH_ACROSS.items() if len(gpus) == 8 else ():
        join(graph, gpus[corner], gpus[corner + 4], _bricks(brick, count if bricks == 6 else 1))


def _bricks(brick: Wire, count: int) -> Wire:
    return brick.times(count)._replace(medium=f"{brick.medium} x{count}" if brick.medium else "")


def one(machine: Machine, transport: Transport | None = IDEAL) -> Cluster:
    """A cluster of one machine, a rank on each of its GPUs."""
    graph = empty()
    gpus = add_machine(graph, 0, machine)
    return Cluster(machine.title, graph, tuple(gpus), transport)


def pcie_tree(
    gpus: int,
    bandwidth: str,
    latency: str,
    *,
    sockets: int = 1,
    switches: int = 0,
    socket_bandwidth: str | None = None,
    peer_to_peer: bool = True,
    memory_bandwidth: str | None = None,
    transport: Transport | None = IDEAL,
) -> Cluster:
    """GPUs on PCIe links of ``bandwidth`` and ``latency``, straight to their CPU socket or by switches.

    Without peer-to-peer access every message goes through the receiver's host memory. Sockets are joined by a link of
    ``socket_bandwidth``, which two or more need. Raises InputError.
    """
    if sockets > 1 and socket_bandwidth is None:
        raise InputError(f"{sockets} sockets without socket_bandwidth, the rate of the link between them")
    machine = Machine(
        f"{gpus} GPUs on PCIe" + ("" if peer_to_peer else " without peer-to-peer access"),
        gpus,
        wire(bandwidth, latency, "PCIe"),
        sockets=sockets,
        pcie_switches=switches,
        socket=wire(socket_bandwidth, "0 us", "socket link") if socket_bandwidth else None,
        memory=wire(memory_bandwidth, "0 us", "memory") if memory_bandwidth else Wire(medium="memory"),
        p2p_level="SYS" if peer_to_peer else "NVL",
    )
    return one(machine, transport)


def nvlink_pairs(
    gpus: int, nvlink_bandwidth: str, pcie_bandwidth: str, latency: str, transport: Transport | None = IDEAL
) -> Cluster:
    """GPUs joined two by two by NVLink bridges, and all by PCIe through one CPU without peer-to-peer access."""
    bridge = partial(in_pairs, along=wire(nvlink_bandwidth, latency, "NVLink"))
    pcie = wire(pcie_bandwidth, latency, "PCIe")
    return one(Machine(f"{gpus} GPUs in NVLink pairs", gpus, pcie, nvlinks=bridge, p2p_level="NVL"), transport)


def cube_mesh(bandwidth: str, latency: str, bricks: int = 6, transport: Transport | None = IDEAL) -> Cluster:
    """Eight GPUs in a hybrid cube mesh of NVLinks, each of ``bandwidth``, without their PCIe."""
    mesh = partial(in_cube_mesh, brick=wire(bandwidth, latency, "NVLink"), bricks=bricks)
    return one(Machine(f"hybrid cube mesh, {bricks} NVLinks a GPU", 8, nvlinks=mesh), transport)


def nvswitch(gpus: int, bandwidth: str, latency: str, transport: Transport | None = IDEAL) -> Cluster:
    """GPUs on an NVSwitch, each by NVLinks of ``bandwidth`` together; 72 of them make an NVL72."""
    switch = partial(all_to_switch, along=wire(bandwidth, latency, "NVLink"))
    return one(Machine(f"{gpus} GPUs on an NVSwitch", gpus, nvlinks=switch), transport)
