"""A host as NCCL sees it: GPUs, NVLinks, PCIe switches and CPU sockets, and how each pair of GPUs talks.

NCCL joins two GPUs of a host by the first of these that is there (``src/graph/paths.cc``, ``src/transport/``):

* NVLink: through an NVSwitch, a mesh, a bridge; AMD's xGMI likewise;
* P2P over PCIe: one GPU writes into the other's memory. By default only up to ``PXB``: both behind PCIe switches of
  one root port, never through a CPU's host bridge; ``NCCL_P2P_LEVEL`` moves that; GeForce cards since Turing refuse;
* SHM: the sender writes into host memory and the receiver reads it there, so the bytes go up to the CPU and come down.

Bandwidths here are payload rates of links: how they are shared (max-min) is decided here, on the graph; what share of
them software reaches is in ``parameters.toml``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import networkx as nx

from simcomm.cluster.graph import Link, LinkSpec, empty_graph
from simcomm.cluster.hardware import find_part
from simcomm.cluster.machines import CUBE_MESH, CUBE_MESH_ACROSS, Machine, add_machine
from simcomm.model.sharing import fair
from simcomm.nccl.catalogue import pcie_lane

XGMI_PEERS = 7  # a GPU's links in a fully joined board of eight (MI300X platform data sheet)
MESH_BRICKS = int(find_part("GPU", "V100 SXM2")["nvlink"].value.rpartition(" x")[2])  # NVLinks of a V100
MESH_GPUS = 8


@dataclass(frozen=True)
class HopGroup:
    """How many of a ring's hops are of one kind, and the rate in GB/s that the slowest of them gets by sharing."""

    kind: str  # nvswitch, mesh, bridge, xgmi, p2p (same PCIe switch), p2p_far (through host bridges), shm, one_gpu
    count: int
    rate: float


@dataclass(frozen=True)
class GpuHost:
    """A host's parts, as far as they decide how its GPUs talk. ``p2p``: how far P2P over PCIe reaches, a level."""

    gpus: int
    link: str
    nvlink: float = 0.0  # GB/s of a GPU, line rate, one direction
    pcie: int = 4
    lanes: int = 16
    layout: str = "socket"
    p2p: str = "NVL"

    @property
    def pcie_rate(self) -> float:
        """GB/s of a GPU's slot, one direction, after line coding."""
        return pcie_lane(self.pcie) * self.lanes


def find_path(host: GpuHost, a: int, b: int) -> str:
    """Return the class of the path between two GPUs, as ``nvidia-smi topo -m`` shows it: NV, PIX, PHB or SYS.

    >>> find_path(GpuHost(4, "pcie", layout="switches"), 0, 1), find_path(GpuHost(4, "pcie", layout="switches"), 1, 2)
    ('PIX', 'SYS')
    """
    if _has_nvlink(host, a, b):
        return "NV"
    if _switch_of(host, a) is not None and _switch_of(host, a) == _switch_of(host, b):
        return "PIX"
    return "PHB" if _socket_of(host, a) == _socket_of(host, b) else "SYS"


def hop_kind(host: GpuHost, a: int, b: int) -> str:
    """Return the kind of hop that NCCL makes of a pair: NVLink if there is one, P2P if it may, else SHM."""
    path = find_path(host, a, b)
    if path == "NV":
        return host.link
    if host.p2p == "SYS" or (host.p2p == "PHB" and path in ("PIX", "PHB")):
        return "p2p" if path == "PIX" else "p2p_far"
    return "p2p" if path == "PIX" and host.p2p in ("PIX", "PXB") else "shm"


def _has_nvlink(host: GpuHost, a: int, b: int) -> bool:
    if host.link in ("nvswitch", "xgmi"):
        return True
    if host.link == "bridge":
        return a // 2 == b // 2
    return host.link == "mesh" and _mesh_links(a, b) > 0


def _mesh_links(a: int, b: int) -> int:
    """Return how many NVLinks join two GPUs of the hybrid cube mesh."""
    low, high = sorted((a % 8, b % 8))
    if low // 4 == high // 4:
        return CUBE_MESH.get((low % 4, high % 4), 0)
    return CUBE_MESH_ACROSS[low] if high - low == 4 else 0


def host_paths(layout: str, gpus: int) -> int:
    """Return over how many x16 paths so many GPUs reach their host's memory: a switch has one, for all behind it.

    >>> host_paths("switch", 4), host_paths("switches", 8), host_paths("socket", 4)
    (1, 2, 4)
    """
    return _switches(GpuHost(gpus, "pcie", layout=layout)) or gpus


def _switches(host: GpuHost) -> int:
    """Return the number of PCIe switches: two, or one for every four GPUs, where there are several."""
    if host.layout == "switch":
        return 1
    return max(2, host.gpus // 4) if host.layout == "switches" else 0


def _sockets(host: GpuHost) -> int:
    return 2 if host.gpus > 1 and host.layout in ("two", "switches") else 1


def _switch_of(host: GpuHost, gpu: int) -> int | None:
    switches = _switches(host)
    return gpu * switches // host.gpus if switches else None


def _socket_of(host: GpuHost, gpu: int) -> int:
    return gpu * _sockets(host) // host.gpus


@cache
def pcie_graph(host: GpuHost) -> "nx.DiGraph[str]":
    """Return the host's GPUs, PCIe switches, sockets and memories; bandwidths in GB/s of payload.

    >>> sorted(pcie_graph(GpuHost(2, "pcie", pcie=3, layout="switch")))
    ['n0.cpu0', 'n0.gpu0', 'n0.gpu1', 'n0.memory0', 'n0.pcie0']
    """
    graph = empty_graph()
    machine = Machine(
        "host",
        host.gpus,
        LinkSpec(host.pcie_rate),
        sockets=_sockets(host),
        pcie_switches=_switches(host),
        socket=LinkSpec(),
        p2p_level="PXB",
    )
    add_machine(graph, 0, machine)
    return graph


class _Stream:
    """Bytes from one GPU to another, for the sharing of links."""

    def __init__(self, number: int, links: tuple[Link, ...]) -> None:
        self.links = links
        self.arrival: tuple[float, tuple[int, ...]] = (0.0, (number,))
        self.rate = 0.0


def share_links(host: GpuHost, pairs: Sequence[tuple[int, int]]) -> list[float]:
    """Return the GB/s of each pair when all send at once: max-min fair over the host's PCIe links.

    Streams through host memory cross the uplink of their switch; P2P behind one switch turns round in it.

    >>> rates = share_links(GpuHost(2, "pcie", pcie=3, layout="switch", p2p="NVL"), [(0, 1), (1, 0)])
    >>> [round(rate, 2) for rate in rates]
    [7.88, 7.88]
    """
    graph = pcie_graph(host)
    streams = [_Stream(number, _links_of(host, graph, a, b)) for number, (a, b) in enumerate(pairs)]
    widths = {(a, b): data["bandwidth"] for a, b, data in graph.edges(data=True)}
    capacities = {edge: (width, width) for edge, width in widths.items()}
    fair(streams, capacities)
    return [stream.rate for stream in streams]


def _links_of(host: GpuHost, graph: "nx.DiGraph[str]", a: int, b: int) -> tuple[Link, ...]:
    through = [f"n0.memory{_socket_of(host, b)}"] if hop_kind(host, a, b) == "shm" else []
    stops = [f"n0.gpu{a}", *through, f"n0.gpu{b}"]
    nodes = [nx.shortest_path(graph, *leg) for leg in pairwise(stops)]
    return tuple(dict.fromkeys(edge for path in nodes for edge in pairwise(path)))


@cache
def mesh_rings(gpus: int) -> tuple[tuple[int, ...], ...]:
    """Return rings over the first GPUs of a hybrid cube mesh, as many as its NVLinks hold, none sharing a link.

    >>> len(mesh_rings(8)), len(mesh_rings(4))
    (3, 2)
    """
    free = {(a, b): _mesh_links(a, b) for a in range(gpus) for b in range(a + 1, gpus)}
    rings = [ring for ring in _all_rings(gpus) if all(free[edge] for edge in _edges(ring))]
    best: list[tuple[int, ...]] = []

    def pack(chosen: list[tuple[int, ...]], first: int) -> bool:
        """Add rings from number ``first`` on while links are left. True: no more can fit, stop."""
        if len(chosen) > len(best):
            best[:] = chosen
        if len(best) == MESH_BRICKS // 2:
            return True
        for number in range(first, len(rings)):
            edges = _edges(rings[number])
            if all(free[edge] for edge in edges):
                for edge in edges:
                    free[edge] -= 1
                done = pack([*chosen, rings[number]], number)
                for edge in edges:
                    free[edge] += 1
                if done:
                    return True
        return False

    pack([], 0)
    return tuple(best)


def _edges(ring: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(min(a, b), max(a, b)) for a, b in pairwise((*ring, ring[0]))]


@cache
def _all_rings(gpus: int) -> tuple[tuple[int, ...], ...]:
    """Return every ring that visits all GPUs and follows NVLinks, each in one direction only."""
    found: list[tuple[int, ...]] = []

    def extend(path: tuple[int, ...]) -> None:
        if len(path) == gpus:
            if path[1] < path[-1] and _mesh_links(path[-1], 0):
                found.append(path)
            return
        for gpu in set(range(gpus)) - set(path):
            if _mesh_links(path[-1], gpu):
                extend((*path, gpu))

    extend((0,))
    return tuple(found)


@cache
def ring_hops(
    host: GpuHost, groups: tuple[tuple[int, ...], ...] = (), *, is_closed: bool = True
) -> tuple[HopGroup, ...]:
    """Return the hops of a ring over the host's GPUs, or of a chain, by kind, and the rate of each kind.

    ``groups`` of its GPUs, by their numbers, have a ring each, all at once: the hops are those of the slowest. The rate
    of NVLink is what all rings over the links together get: of an NVSwitch the GPU's line rate, of a mesh a brick for
    every ring in each direction, of xGMI the links to the GPUs in use.

    >>> ring_hops(GpuHost(8, "nvswitch", nvlink=300))
    (HopGroup(kind='nvswitch', count=8, rate=300),)
    >>> pairs = ((0, 1), (2, 3), (4, 5), (6, 7))
    >>> [hop.kind for hop in ring_hops(GpuHost(8, "pcie", layout="switches", p2p="PXB"), pairs)]
    ['p2p']
    """
    rings = groups or (tuple(range(host.gpus)),)
    if len(rings[0]) == 1:
        return (HopGroup("one_gpu", 0, float("inf")),)
    if host.link in ("nvswitch", "xgmi", "mesh"):
        return (HopGroup(host.link, len(rings[0]), _nvlink_rate(replace(host, gpus=len(rings[0])))),)
    pairs = [[*pairwise((*ring, *(ring[:1] if is_closed else ())))] for ring in rings]
    kinds = {pair: hop_kind(host, *pair) for ring in pairs for pair in ring}
    over_pcie = [pair for ring in pairs for pair in ring if kinds[pair] != "bridge"]
    rates = dict(zip(over_pcie, share_links(host, over_pcie), strict=True)) if over_pcie else {}
    slowest = min(pairs, key=lambda ring: min(rates.get(pair, host.nvlink) for pair in ring))
    found = [kinds[pair] for pair in slowest]
    return tuple(
        HopGroup(kind, found.count(kind), min(rates.get(pair, host.nvlink) for pair in slowest if kinds[pair] == kind))
        for kind in dict.fromkeys(found)
    )


def _nvlink_rate(host: GpuHost) -> float:
    if host.link == "xgmi":
        return host.nvlink * min(1.0, (host.gpus - 1) / XGMI_PEERS)
    if host.link == "nvswitch" or host.gpus > MESH_GPUS:
        return host.nvlink
    brick = host.nvlink / MESH_BRICKS
    if host.gpus == 2:
        return brick * _mesh_links(0, 1)
    if host.gpus in (4, 8):
        return brick * 2 * len(mesh_rings(host.gpus))
    return brick * 2 if _all_rings(host.gpus) else brick


@cache
def exchange_rate(host: GpuHost) -> tuple[str, float]:
    """Return the slowest kind of hop, and the GB/s that a GPU sends in all when each sends to each (all_to_all).

    >>> exchange_rate(GpuHost(8, "nvswitch", nvlink=300))
    ('nvswitch', 300)
    """
    if host.gpus == 1 or host.link in ("nvswitch", "xgmi"):
        return ring_hops(host)[0].kind, ring_hops(host)[0].rate
    pairs = [(a, b) for a in range(host.gpus) for b in range(host.gpus) if a != b]
    kinds = [hop_kind(host, *pair) for pair in pairs]
    over_pcie = [pair for pair, kind in zip(pairs, kinds, strict=True) if kind not in ("bridge", "mesh")]
    if not over_pcie:
        return host.link, _nvlink_rate(host)
    slowest = min(share_links(host, over_pcie))
    kind = max((kind for kind in kinds if kind not in ("bridge", "mesh")), key=kinds.count)
    return kind, slowest * (host.gpus - 1)
