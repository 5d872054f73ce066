"""Model a communicator as NCCL sees it: ranks, nodes, links inside and between them, version and settings.

A *node* in NCCL's sense is a host, or an NVLink domain of several hosts (GB200 NVL72).

The driver, the settings and NCCL's own default decide how far P2P over PCIe reaches between the GPUs of a host:
``ncclTopoCheckP2p`` in ``src/graph/paths.cc`` of NVIDIA/nccl (before 2.6 ``p2pCanConnect`` in
``src/transport/p2p.cc``). NCCL's default depends on the version and on the CPU vendor:

* Before 2.6: within a CPU ("do not use P2P across root complexes by default").
* From 2.6 to 2.22: everywhere (``SYS``), except through CPUs of Intel and ARM. With Intel CPUs, the limit is one CPU in
  2.8 (a maintainer in issue 428, December 2020), and PCIe switches (``PXB``) in 2.12. The model assumes that this
  changed in 2.9. With ARM CPUs, the limit is always PCIe switches.
* From 2.23 on: behind PCIe switches, and on AMD CPUs everywhere for at most two GPUs. Pull request 1331 requested
  this; pytorch's pull request 142179 cites the reason: "significant performance degradation" with more GPUs.

RCCL reverted the last change (ROCm/rccl pull request 1670), so AMD GPUs keep the previous rule.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf

from collectives.errors import InputError
from simcomm.nccl.catalogue import NVLINKS, usual_nic
from simcomm.nccl.descriptions import System
from simcomm.nccl.settings import LEVELS, NcclSettings, level_rank
from simcomm.nccl.topology import GpuHost, HopGroup, ring_hops

WITHIN_CPU_UNTIL = (2, 6)
WITHIN_INTEL_UNTIL = (2, 9)
PXB_FROM = (2, 23)
PAIR = 2  # maximum number of GPUs that use P2P through AMD CPUs from 2.23 on


def default_reach(cpu: str, version: tuple[int, int], gpus: int, *, is_rccl: bool = False) -> str:
    """Return NCCL's default of NCCL_P2P_LEVEL: the largest PCIe distance, such as PXB, at which two GPUs use P2P.

    >>> default_reach("amd", (2, 21), 8), default_reach("amd", (2, 23), 8), default_reach("amd", (2, 23), 2)
    ('SYS', 'PXB', 'SYS')
    """
    if version < WITHIN_CPU_UNTIL:
        return "PHB"
    if cpu == "intel":
        return "PHB" if version < WITHIN_INTEL_UNTIL else "PXB"
    if cpu == "arm" or (version >= PXB_FROM and not is_rccl and (cpu != "amd" or gpus > PAIR)):
        return "PXB"
    return "SYS"


def _default_reach_of(system: System, settings: NcclSettings, cpu: str) -> str:
    version = settings.parsed_version() or system.version
    return default_reach(cpu, version, system.gpus, is_rccl=system.gpu.generation == "cdna")


def pcie_reach(system: System, settings: NcclSettings) -> str:
    """Return the largest distance at which two GPUs of a host use P2P over PCIe, as a value of NCCL_P2P_LEVEL.

    It is at most NVL if the driver rejects P2P, as on GeForce boards, and LOC if P2P is disabled.
    """
    if settings.p2p_disable:
        return "LOC"
    level = settings.p2p_level or system.p2p_level
    if level is not None:
        reach = LEVELS[level_rank(level)]
        is_refused = system.p2p_refused or (settings.p2p_level is None and is_seen_without(system))
        return LEVELS[min(level_rank(reach), level_rank("NVL"))] if is_refused else reach
    if system.p2p_refused:
        return "NVL"
    if "p2p" not in system.defaulted:
        return "SYS" if system.p2p else "NVL"
    return _default_reach_of(system, settings, cpu_of(system))


def is_seen_without(system: System) -> bool:
    """Return whether the description states that GPUs communicate through host memory instead of P2P."""
    return "p2p" not in system.defaulted and not system.p2p


def cpu_of(system: System) -> str:
    """Return the CPU vendor of a description. The default is Intel, with which NCCL's P2P has the shortest reach."""
    return system.cpu or "intel"


def depends_on_cpu(system: System, settings: NcclSettings) -> bool:
    """Return whether the CPU vendor is unknown but matters, because with AMD, P2P over PCIe would reach farther."""
    is_default = settings.p2p_level is None and system.p2p_level is None and "p2p" in system.defaulted
    if system.cpu is not None or not is_default or system.p2p_refused or settings.p2p_disable:
        return False
    return _default_reach_of(system, settings, "amd") != _default_reach_of(system, settings, cpu_of(system))


DESKTOP_LANES = 16  # lanes of consumer CPUs for graphics cards (Intel ARK, AMD product pages)
PLUGINS = ("efa1", "efa2", "efa3", "fastrak", "tcpx", "slingshot")  # networks that NCCL reaches through a plug-in


@dataclass(frozen=True)
class NodeNetwork:
    """The network between nodes. ``nic`` is the total line rate of a node's NICs, in GB/s."""

    kind: str
    nic: float
    gdr: bool
    ports: int = 1  # NICs of a node
    staging: float = inf  # GB/s of the PCIe links to host memory, without GPUDirect


@dataclass(frozen=True)
class Communicator:
    """The ranks of a run and the links between them."""

    system: System
    ranks: int
    nodes: int
    local: int  # ranks per node
    host: GpuHost
    hops: tuple[HopGroup, ...]  # hops of a ring inside a node
    chain: tuple[HopGroup, ...]  # hops of a chain inside a node, for broadcast and reduce
    network: NodeNetwork | None
    generation: str
    version: tuple[int, int]
    settings: NcclSettings
    sharp: bool = False
    one_process: int = 1  # GPUs per process
    nic_is_guessed: bool = False

    @property
    def is_rccl(self) -> bool:
        """Whether the library is AMD's RCCL, which serializes the launches of a process."""
        return self.generation == "cdna"

    @property
    def is_nvlink(self) -> bool:
        """Whether NCCL's tuner classifies a node as NVLink, not PCI: all hops inside the node use NVLink or xGMI."""
        return self.local > 1 and all(hop.kind in NVLINKS for hop in self.hops)


def make_host(system: System, settings: NcclSettings) -> GpuHost:
    """Return the host that a description and the settings define."""
    reach = pcie_reach(system, settings)
    uses_nvlink = reach != "LOC" and system.nvlink > 0 and system.link in NVLINKS
    return GpuHost(
        gpus=system.gpus,
        link=system.link if uses_nvlink else "pcie",
        nvlink=system.nvlink,
        pcie=system.pcie,
        lanes=_lanes(system),
        layout=system.layout,
        p2p=reach,
    )


def _lanes(system: System) -> int:
    if system.host == "desktop" and "lanes" in system.defaulted and system.gpus > 1:
        return max(4, DESKTOP_LANES // system.gpus)
    return system.lanes


def _make_network(system: System, settings: NcclSettings, host: GpuHost, hosts_a_node: int) -> NodeNetwork:
    if system.net is None or not system.nic:
        raise InputError(f"the network between the {system.nodes} hosts is missing; set net and nic")
    gdr = system.gdr
    if settings.net_gdr_level is not None:
        gdr = gdr and level_rank(settings.net_gdr_level) >= level_rank("PIX")
    port = usual_nic(system.net, system.gpu.generation)
    ports = max(1, round(system.nic / port))
    ways = min(host.gpus, ports)
    return NodeNetwork(
        kind=system.net,
        nic=system.nic * hosts_a_node,
        gdr=gdr,
        ports=ports * hosts_a_node,
        staging=inf if gdr else host.pcie_rate * ways * hosts_a_node,
    )


@lru_cache(maxsize=1024)
def make_communicator(system: System, settings: NcclSettings) -> Communicator:
    """Return the communicator of all ranks of a system. Raise InputError for a single rank or a missing network."""
    ranks = system.nodes * system.gpus
    if ranks < 2:
        raise InputError(f"{system.slug} has a single GPU, so NCCL does not communicate; use at least two GPUs")
    host = make_host(system, settings)
    nodes = ceil(ranks / max(system.gpus, system.domain if host.link == "nvswitch" else 1))
    local = system.gpus * ceil(system.nodes / nodes)  # hosts spread evenly over domains
    joined = replace(host, gpus=local) if local > host.gpus else host
    network = _make_network(system, settings, host, max(1, local // system.gpus)) if nodes > 1 else None
    return Communicator(
        system=system,
        ranks=ranks,
        nodes=nodes,
        local=local,
        host=host,
        hops=_hops(system, settings, joined, is_closed=True),
        chain=_hops(system, settings, joined, is_closed=False),
        network=network,
        generation=system.gpu.generation,
        version=settings.parsed_version() or system.version,
        settings=replace(settings, algo=settings.algo or system.algo, proto=settings.proto or system.proto),
        sharp=system.sharp if settings.collnet is None else settings.collnet,
        one_process=system.gpus if system.procs == "single" else 1,
        nic_is_guessed=system.nic_guess and network is not None,
    )


def among_others(
    comm: Communicator, system: System, settings: NcclSettings, groups: tuple[tuple[int, ...], ...]
) -> Communicator:
    """Return the communicator of a group of GPUs while all ``groups`` of its hosts run at the same time.

    ``comm`` is the communicator of the group alone, and ``system`` describes all GPUs of its hosts. Each group is a
    tuple of GPU numbers. Raise InputError if GPUs need a network and the system has none.
    """
    host = replace(make_host(system, settings), p2p=comm.host.p2p)
    closed, chain = (_hops(system, settings, host, groups, is_closed=is_closed) for is_closed in (True, False))
    return replace(comm, hops=closed, chain=chain)


def _hops(
    system: System,
    settings: NcclSettings,
    host: GpuHost,
    groups: tuple[tuple[int, ...], ...] = (),
    *,
    is_closed: bool,
) -> tuple[HopGroup, ...]:
    hops = ring_hops(host, groups, is_closed=is_closed)
    if not settings.shm_disable or all(hop.kind != "shm" for hop in hops):
        return hops
    if not system.nic:
        raise InputError("NCCL_SHM_DISABLE=1 makes GPUs without P2P use the network; set nic")
    return tuple(replace(hop, rate=min(hop.rate, system.nic)) if hop.kind == "shm" else hop for hop in hops)
