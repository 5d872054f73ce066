"""Model a host as NCCL sees it: GPUs, NVLinks, PCIe switches and CPU sockets, and the path between each pair of GPUs.

NCCL connects two GPUs of a host by the first of these that exists (``src/graph/paths.cc``, ``src/transport/``):

* NVLink: through an NVSwitch, a mesh or a bridge; AMD's xGMI likewise.
* P2P over PCIe: one GPU writes into the other's memory. By default only up to ``PXB``: both behind PCIe switches of one
  root port, never through a CPU's host bridge. ``NCCL_P2P_LEVEL`` changes this. GeForce cards since Turing reject P2P.
* SHM: the sender writes into host memory and the receiver reads it there, so the bytes go up to the CPU and down again.

Bandwidths are payload rates of links. This module shares links max-min fairly; ``parameters.toml`` defines which share
of them software reaches.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations_with_replacement, pairwise, permutations

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
    """The hops of one kind in a ring: their number, and the rate in GB/s of the slowest one when links are shared."""

    kind: str  # nvswitch, mesh, bridge, xgmi, p2p (same PCIe switch), p2p_far (through host bridges), shm, one_gpu
    count: int
    rate: float


@dataclass(frozen=True)
class GpuHost:
    """The parts of a host that determine the paths between GPUs. ``p2p`` is the maximum distance of P2P over PCIe."""

    gpus: int
    link: str
    nvlink: float = 0.0  # line rate of a GPU in one direction, GB/s
    pcie: int = 4
    lanes: int = 16
    layout: str = "socket"
    p2p: str = "NVL"

    @property
    def pcie_rate(self) -> float:
        """The bandwidth of a GPU's slot in one direction after line coding, in GB/s."""
        return pcie_lane(self.pcie) * self.lanes


def find_path(host: GpuHost, a: int, b: int) -> str:
    """Return the class of the path between two GPUs: NV, PIX, PHB or SYS, as in ``nvidia-smi topo -m``."""
    if _has_nvlink(host, a, b):
        return "NV"
    if _switch_of(host, a) is not None and _switch_of(host, a) == _switch_of(host, b):
        return "PIX"
    return "PHB" if _socket_of(host, a) == _socket_of(host, b) else "SYS"


def hop_kind(host: GpuHost, a: int, b: int) -> str:
    """Return the kind of hop between two GPUs: NVLink if it exists, P2P if it is allowed, else SHM."""
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
    low, high = sorted((a % 8, b % 8))
    if low // 4 == high // 4:
        return CUBE_MESH.get((low % 4, high % 4), 0)
    return CUBE_MESH_ACROSS[low] if high - low == 4 else 0


def switch_count(host: GpuHost) -> int:
    """Return the number of PCIe switches between a host's GPUs and its CPUs."""
    if host.layout == "switch":
        return 1
    return max(2, host.gpus // 4) if host.layout == "switches" else 0


def socket_count(host: GpuHost) -> int:
    """Return the number of CPU sockets to which GPUs are attached."""
    return 2 if host.gpus > 1 and host.layout in ("two", "switches") else 1


def _switch_of(host: GpuHost, gpu: int) -> int | None:
    switches = switch_count(host)
    return gpu * switches // host.gpus if switches else None


def _socket_of(host: GpuHost, gpu: int) -> int:
    return gpu * socket_count(host) // host.gpus


@cache
def pcie_graph(host: GpuHost) -> "nx.DiGraph[str]":
    """Return the graph of a host's GPUs, PCIe switches, sockets and memories. Bandwidths are payload rates in GB/s.

    >>> sorted(pcie_graph(GpuHost(2, "pcie", pcie=3, layout="switch")))
    ['n0.cpu0', 'n0.gpu0', 'n0.gpu1', 'n0.memory0', 'n0.pcie0']
    """
    graph = empty_graph()
    machine = Machine(
        "host",
        host.gpus,
        LinkSpec(host.pcie_rate),
        sockets=socket_count(host),
        pcie_switches=switch_count(host),
        socket=LinkSpec(),
        p2p_level="PXB",
    )
    add_machine(graph, 0, machine)
    return graph


class _Stream:
    def __init__(self, links: tuple[Link, ...]) -> None:
        self.links, self.rate = links, 0.0


def share_links(host: GpuHost, pairs: Sequence[tuple[int, int]]) -> list[float]:
    """Return each pair's bandwidth in GB/s if all pairs send at once: max-min fair over the host's PCIe links.

    Streams through host memory cross the uplink of their switch; P2P between GPUs behind one switch does not.
    """
    graph = pcie_graph(host)
    streams = [_Stream(_links_of(host, graph, a, b)) for a, b in pairs]
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
    """Return the largest set of rings over the first GPUs of a hybrid cube mesh such that no two share an NVLink.

    >>> len(mesh_rings(8)), len(mesh_rings(4))
    (3, 2)
    """
    for number in range(MESH_BRICKS // 2, 0, -1):
        for rings in combinations_with_replacement(_all_rings(gpus), number):
            used = Counter((min(hop), max(hop)) for ring in rings for hop in pairwise((*ring, ring[0])))
            if all(count <= _mesh_links(*edge) for edge, count in used.items()):
                return rings
    return ()


@cache
def _all_rings(gpus: int) -> tuple[tuple[int, ...], ...]:
    """Return the rings over the mesh's NVLinks that visit these GPUs, each in one direction only."""
    orders = ((0, *others) for others in permutations(range(1, gpus)) if others[0] < others[-1])
    return tuple(ring for ring in orders if all(_mesh_links(*hop) for hop in pairwise((*ring, 0))))


@cache
def ring_hops(
    host: GpuHost, groups: tuple[tuple[int, ...], ...] = (), *, is_closed: bool = True
) -> tuple[HopGroup, ...]:
    """Return the hops of a ring over the host's GPUs, grouped by kind. With ``is_closed=False``, use a chain instead.

    ``groups`` of GPU numbers run their rings at the same time, and the hops of the slowest ring are returned. The rate
    of NVLink is the sum over all rings. For an NVSwitch, it is the GPU's line rate; for a mesh, one brick per ring in
    each direction; for xGMI, the links to the GPUs in use.

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
    counts = Counter(kinds[pair] for pair in slowest)
    return tuple(
        HopGroup(kind, count, min(rates.get(pair, host.nvlink) for pair in slowest if kinds[pair] == kind))
        for kind, count in counts.items()
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
    """Return the slowest kind of hop in an all_to_all, and the bandwidth in GB/s at which each GPU sends."""
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
