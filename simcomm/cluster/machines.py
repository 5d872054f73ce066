"""Build the inside of a machine: GPUs, PCIe switches, CPU sockets with memory, NICs, and NVLinks.

Nodes of machine 0 are n0.gpu0, n0.nic0, n0.pcie0, n0.cpu0, n0.memory0 and n0.nvswitch. GPUs and NICs are spread evenly:
GPU i of n is attached to socket i * sockets // n, or to a PCIe switch by the same rule. A CPU node is a socket with its
root complex; sockets on one board are linked. All NVSwitch chips in a machine are one node without contention.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import networkx as nx

from collectives.checks import check_number, check_whole_number
from collectives.errors import InputError
from collectives.transport import Transport
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.graph import P2P_LEVELS, LinkSpec, add_link, empty_graph

AddNVLinks = Callable[["nx.DiGraph[str]", str, Sequence[str]], None]  # adds NVLinks among a machine's GPUs
# NVLinks between GPUs 0 to 7 of the hybrid cube mesh: two squares with both diagonals, corners joined across.
# Numbers of links with V100 (``nvidia-smi topo -m`` of a DGX-1V in microsoft/msccl-tools, tests/test_topologies.py);
# with P100, which has four NVLinks instead of six, all are 1.
CUBE_MESH = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2}
CUBE_MESH_ACROSS = {0: 2, 1: 2, 2: 1, 3: 1}


@dataclass(frozen=True)
class Machine:
    """The parts of a machine. Its GPUs and NICs are spread evenly over its PCIe switches and sockets."""

    title: str
    gpus: int
    pcie: LinkSpec | None = None  # None: no CPUs, GPUs have NVLinks only
    sockets: int = 1
    boards: int = 1
    pcie_switches: int = 0  # 0: GPUs connect to the CPU
    uplink: LinkSpec | None = None  # of a switch to its CPU; None: like the GPUs
    socket: LinkSpec | None = None  # between the sockets of a board; None: not linked
    memory: LinkSpec = LinkSpec(medium="memory")  # noqa: RUF009 - of each socket; unlimited unless known
    nics: int = 0
    nic_pcie: LinkSpec | None = None  # None: like the GPUs
    nics_on_cpu: bool = False  # NICs connect to the CPU
    nic: LinkSpec | None = None  # each NIC's port to the network
    nvlinks: AddNVLinks | None = None
    p2p_level: str = "SYS"

    def __post_init__(self) -> None:
        """Raise InputError if a value is out of range or contradicts another value."""
        for key in ("gpus", "sockets", "boards"):
            check_whole_number(f"{self.title}: {key}", getattr(self, key), at_least=1)
        for key in ("pcie_switches", "nics"):
            check_whole_number(f"{self.title}: {key}", getattr(self, key), at_least=0)
        if self.p2p_level not in P2P_LEVELS:
            raise InputError(f"{self.title}: p2p_level must be one of {', '.join(P2P_LEVELS)}, not {self.p2p_level!r}")
        if self.pcie is None and self.nvlinks is None and self.gpus > 1:
            raise InputError(f"{self.title}: no link connects the {self.gpus} GPUs; set pcie or nvlinks")
        if self.sockets % self.boards:
            raise InputError(f"{self.title}: sockets must be a multiple of boards ({self.boards}), not {self.sockets}")


def add_machine(graph: "nx.DiGraph[str]", number: int, machine: Machine) -> list[str]:
    """Add the nodes and links of machine ``number`` to a graph. Return the names of its GPUs in order."""
    name = f"n{number}"
    gpus = [f"{name}.gpu{gpu}" for gpu in range(machine.gpus)]
    for local, gpu in enumerate(gpus):
        rail = _part_of(local, machine.gpus, _rail_count(machine))
        graph.add_node(gpu, kind="gpu", machine=number, local=local, rail=rail)
    if machine.pcie is not None:
        _add_host(graph, name, number, machine)
        _add_devices(graph, name, machine, gpus, machine.pcie)
        _add_nics(graph, name, number, machine, machine.nic_pcie or machine.pcie)
    if machine.nvlinks is not None:
        machine.nvlinks(graph, name, gpus)
    return gpus


def _rail_count(machine: Machine) -> int:
    return max(1, min(machine.nics, machine.gpus))


def _part_of(index: int, count: int, parts: int) -> int:
    """Return which of ``parts`` switches, sockets or rails belongs to device ``index`` of ``count`` devices."""
    return index * parts // count


def _add_host(graph: "nx.DiGraph[str]", name: str, number: int, machine: Machine) -> None:
    assert machine.pcie is not None
    for socket in range(machine.sockets):
        graph.add_node(f"{name}.cpu{socket}", kind="cpu", machine=number)
        graph.add_node(f"{name}.memory{socket}", kind="memory", machine=number)
        add_link(graph, f"{name}.cpu{socket}", f"{name}.memory{socket}", machine.memory)
    for a, b in combinations(range(machine.sockets), 2):
        boards = [_part_of(socket, machine.sockets, machine.boards) for socket in (a, b)]
        if machine.socket and boards[0] == boards[1]:
            add_link(graph, f"{name}.cpu{a}", f"{name}.cpu{b}", machine.socket)
    for switch in range(machine.pcie_switches):
        graph.add_node(f"{name}.pcie{switch}", kind="pcie", machine=number)
        socket = _part_of(switch, machine.pcie_switches, machine.sockets)
        add_link(graph, f"{name}.pcie{switch}", f"{name}.cpu{socket}", machine.uplink or machine.pcie)


def _add_devices(graph: "nx.DiGraph[str]", name: str, machine: Machine, gpus: Sequence[str], pcie: LinkSpec) -> None:
    for local, gpu in enumerate(gpus):
        add_link(graph, gpu, _parent(name, machine.sockets, machine.pcie_switches, local, machine.gpus), pcie)
        if machine.p2p_level != "SYS":
            memory = f"{name}.memory{_part_of(local, machine.gpus, machine.sockets)}"
            graph.nodes[gpu].update(p2p_level=machine.p2p_level, memory=memory)


def _add_nics(graph: "nx.DiGraph[str]", name: str, number: int, machine: Machine, pcie: LinkSpec) -> None:
    for nic in range(machine.nics):
        rail = _part_of(nic, machine.nics, _rail_count(machine))
        graph.add_node(f"{name}.nic{nic}", kind="nic", machine=number, rail=rail)
        switches = 0 if machine.nics_on_cpu else machine.pcie_switches
        add_link(graph, f"{name}.nic{nic}", _parent(name, machine.sockets, switches, nic, machine.nics), pcie)


def _parent(name: str, sockets: int, switches: int, index: int, count: int) -> str:
    if switches:
        return f"{name}.pcie{_part_of(index, count, switches)}"
    return f"{name}.cpu{_part_of(index, count, sockets)}"


def add_nvswitch(graph: "nx.DiGraph[str]", name: str, gpus: Sequence[str], link: LinkSpec) -> None:
    """Connect every GPU to one NVSwitch node. ``link`` combines all NVLinks of a GPU."""
    graph.add_node(f"{name}.nvswitch", kind="nvswitch", machine=graph.nodes[gpus[0]]["machine"])
    for gpu in gpus:
        add_link(graph, gpu, f"{name}.nvswitch", link)


def add_nvlink_pairs(graph: "nx.DiGraph[str]", name: str, gpus: Sequence[str], link: LinkSpec) -> None:
    """Add NVLink bridges between GPUs 0 and 1, 2 and 3, and so on."""
    for a, b in zip(gpus[::2], gpus[1::2], strict=False):
        add_link(graph, a, b, link)


def add_cube_mesh(graph: "nx.DiGraph[str]", name: str, gpus: Sequence[str], brick: LinkSpec, bricks: int = 6) -> None:
    """Link eight GPUs as a hybrid cube mesh, or four GPUs as one half of it.

    ``bricks`` is the number of NVLinks per GPU: 4 for P100, 6 for V100. Raise InputError for another number of GPUs or
    links.
    """
    if len(gpus) not in (4, 8) or bricks not in (4, 6):
        raise InputError(
            f"a hybrid cube mesh must have 4 or 8 GPUs with 4 or 6 NVLinks each, not {len(gpus)} GPUs with {bricks}"
        )
    for half in range(0, len(gpus), 4):
        for (a, b), count in CUBE_MESH.items():
            add_link(graph, gpus[half + a], gpus[half + b], _bundle(brick, count if bricks == 6 else 1))
    for corner, count in CUBE_MESH_ACROSS.items() if len(gpus) == 8 else ():
        add_link(graph, gpus[corner], gpus[corner + 4], _bundle(brick, count if bricks == 6 else 1))


def _bundle(brick: LinkSpec, count: int) -> LinkSpec:
    return brick.times(count)._replace(medium=f"{brick.medium} x{count}" if brick.medium else "")


def on_one_switch(
    machine: Machine, nodes: int, gpus_per_node: int | None = None, transport: Transport | None = IDEAL
) -> Cluster:
    """Build ``nodes`` machines whose NICs all connect to one non-blocking switch (s0), with a rank on each GPU.

    Set ``gpus_per_node`` to use only the first GPUs of each machine. Raise InputError if a machine has fewer GPUs, or
    if there are several machines without a NIC.

    >>> from simcomm.cluster.hardware import find_machine
    >>> on_one_switch(find_machine("dgx-h100"), nodes=2)
    <Cluster 2 x NVIDIA DGX H100: 16 ranks, 59 nodes, 172 links>
    """
    graph, hosts = _separate_machines(machine, nodes, gpus_per_node)
    if nodes > 1:
        graph.add_node("s0", kind="switch", tier=1)
        for nic in _nics(graph):
            add_link(graph, nic, "s0", _port(machine))
    return Cluster(_title(machine, nodes), graph, hosts, transport)


def on_rails(
    machine: Machine,
    nodes: int,
    gpus_per_node: int | None = None,
    *,
    nodes_per_leaf: int | None = None,
    oversubscription: float = 1.0,
    transport: Transport | None = IDEAL,
) -> Cluster:
    """Build a rail-optimized pod: the NICs on one rail of ``nodes_per_leaf`` machines share a leaf switch.

    Default: one leaf per rail for all machines. With R rails, machine m connects to leaves s(u R) to s(u R + R - 1),
    where u = m // nodes_per_leaf. Every leaf has one link, about as fast as a NIC, to each spine switch. The total
    bandwidth of these links is that of the leaf's NICs, divided by ``oversubscription``. With one rail and one leaf,
    there is no spine. Raise InputError if an argument is out of range, or if there are several machines without a NIC.

    >>> from simcomm.cluster.hardware import find_machine
    >>> on_rails(find_machine("dgx-h100"), nodes=4, nodes_per_leaf=2)
    <Cluster 4 x NVIDIA DGX H100: 32 ranks, 134 nodes, 408 links>
    """
    graph, hosts = _separate_machines(machine, nodes, gpus_per_node)
    if nodes > 1:
        wanted = nodes if nodes_per_leaf is None else check_whole_number("nodes_per_leaf", nodes_per_leaf, at_least=1)
        per_leaf = min(wanted, nodes)
        leaves = _add_leaves(graph, machine, per_leaf)
        uplinks = per_leaf / check_number("oversubscription", oversubscription, above=0)  # of each leaf to the spines
        spines = max(1, round(uplinks))
        if len(leaves) > 1:
            _add_spines(graph, leaves, spines, _port(machine).times(uplinks / spines))
    return Cluster(_title(machine, nodes), graph, hosts, transport)


def _separate_machines(
    machine: Machine, nodes: int, gpus_per_node: int | None
) -> tuple["nx.DiGraph[str]", tuple[str, ...]]:
    check_whole_number("nodes", nodes, at_least=1)
    used = machine.gpus if gpus_per_node is None else check_whole_number("gpus_per_node", gpus_per_node, at_least=1)
    if used > machine.gpus:
        raise InputError(f"gpus_per_node must be at most {machine.gpus} for {machine.title}, not {used}")
    if nodes > 1 and not machine.nics:
        raise InputError(f"nodes = {nodes}: {machine.title} has no known NIC; set its bandwidth and latency")
    graph = empty_graph()
    hosts = [gpu for number in range(nodes) for gpu in add_machine(graph, number, machine)[:used]]
    return graph, tuple(hosts)


def _nics(graph: "nx.DiGraph[str]") -> list[str]:
    return [node for node, data in graph.nodes(data=True) if data.get("kind") == "nic"]


def _port(machine: Machine) -> LinkSpec:
    if machine.nic is None:
        raise InputError(f"{machine.title}: the bandwidth and latency of a NIC are missing; set nic")
    return machine.nic


def _add_leaves(graph: "nx.DiGraph[str]", machine: Machine, per_leaf: int) -> list[str]:
    rails = 1 + max(graph.nodes[nic]["rail"] for nic in _nics(graph))
    leaves: dict[str, None] = {}
    for nic in _nics(graph):
        data = graph.nodes[nic]
        leaf = f"s{data['machine'] // per_leaf * rails + data['rail']}"
        leaves[leaf] = None
        graph.add_node(leaf, kind="switch", tier=1)
        add_link(graph, nic, leaf, _port(machine))
    return list(leaves)


def _add_spines(graph: "nx.DiGraph[str]", leaves: Sequence[str], spines: int, link: LinkSpec) -> None:
    for spine in range(len(leaves), len(leaves) + spines):
        graph.add_node(f"s{spine}", kind="switch", tier=2)
        for leaf in leaves:
            add_link(graph, leaf, f"s{spine}", link)


def _title(machine: Machine, nodes: int) -> str:
    return machine.title if nodes == 1 else f"{nodes} x {machine.title}"
