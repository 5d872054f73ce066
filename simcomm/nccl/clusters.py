"""Build clusters from system descriptions, so that rank programs over NCCL's send and receive can be simulated.

``predict.py`` predicts NCCL's own collectives from the description. For rank programs, this module builds a network
from the same description. Its links have the bandwidths that software reaches, and the latencies of NCCL's hops with
the Simple protocol. Each message costs a kernel launch (``parameters.toml``). The predictions have no interval, because
no measured times of such programs are published.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from collectives.errors import InputError
from collectives.transport import Transport
from collectives.units import parse_bandwidth
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.graph import LinkSpec
from simcomm.cluster.hardware import parts
from simcomm.cluster.machines import AddNVLinks, Machine, add_cube_mesh, add_nvlink_pairs, add_nvswitch, on_one_switch
from simcomm.nccl.catalogue import match_gpu
from simcomm.nccl.channels import aged, between_hop, between_rate, hop_class, hop_rate
from simcomm.nccl.communicator import Communicator, make_communicator
from simcomm.nccl.descriptions import System
from simcomm.nccl.parameters import Parameters, read_parameters
from simcomm.nccl.settings import NcclSettings
from simcomm.nccl.topology import MESH_BRICKS, HopGroup, socket_count, switch_count

GB = 1e9
US = 1e-6
PROTOCOL = "simple"  # NCCL's protocol for sends and receives, except for the smallest messages
PASSES = 3  # memory accesses to reduce a byte: two reads and a write


@dataclass(frozen=True, repr=False)
class NcclCluster(Cluster):
    """A cluster with a system description for NCCL and with NCCL settings."""

    performance_model: ClassVar[str] = "nccl"

    described: System = field(kw_only=True)
    settings: NcclSettings = field(kw_only=True)
    assumed: tuple[str, ...] = ()  # assumptions, in sentences
    not_modeled: str = ""  # why NCCL's model cannot predict this cluster

    @property
    def system(self) -> System:
        """The system description. Raises InputError if NCCL's model cannot predict this cluster."""
        self.check_modeled()
        return self.described

    def check_modeled(self) -> None:
        """Raise InputError if NCCL's model cannot predict this cluster."""
        if self.not_modeled:
            raise InputError(f"{self.title}: {self.not_modeled}")

    def under_nccl(self, settings: NcclSettings) -> "NcclCluster":
        """Return the cluster with other NCCL settings.

        Raise InputError if these settings require a network and the system has none.
        """
        return self._rebuilt(self.described, settings, self.title)

    def _rebuilt(self, system: System, settings: NcclSettings, title: str | None = None) -> "NcclCluster":
        cluster = nccl_cluster(system, settings, title, self.assumed)
        return replace(cluster, not_modeled=self.not_modeled)

    def on_first(self, world_size: int) -> "NcclCluster":
        """Return a cluster of ``world_size`` GPUs. Raise InputError unless they can be divided equally among hosts."""
        super().on_first(world_size)
        if world_size == self.world_size:
            return self
        system = self.described
        counts = range(-(-world_size // system.gpus), system.nodes + 1)
        nodes = next((nodes for nodes in counts if world_size % nodes == 0), None)
        if nodes is None:
            raise InputError(
                f"{world_size} ranks of {self.title} do not fill all its hosts evenly; use a multiple of {system.gpus}"
            )
        return self._rebuilt(replace(system, nodes=nodes, gpus=world_size // nodes), self.settings)

    def check_joined_by_nccl(self) -> None:
        """Do nothing, because this cluster supports NCCL's own collectives. Other clusters raise InputError here."""

    def check_measurable(self, backend: str, gpus: Callable[[], Sequence[str]]) -> None:
        """Raise InputError unless ``backend`` is nccl and the cluster is one host with the GPUs of this machine."""
        if backend != "nccl":
            super().check_measurable(backend, gpus)
        here, wanted = gpus(), self.described
        are_alike = all((gpu := match_gpu(name)) is not None and gpu.name == wanted.gpu.name for name in here)
        if wanted.nodes > 1 or len(here) < wanted.gpus or not are_alike:
            raise InputError(
                f"{self.title} is not this machine, which has these GPUs: {', '.join(here) or 'none'}; describe one "
                "host with these GPUs, or use `ringlab predict`"
            )


def nccl_cluster(
    system: System, settings: NcclSettings | None = None, title: str | None = None, assumed: tuple[str, ...] = ()
) -> NcclCluster:
    """Return the cluster that a description defines, with a rank per GPU.

    Raise InputError for MPI on CPUs, for a single GPU, or for several nodes without a network.

    >>> from simcomm.nccl.descriptions import describe_system
    >>> nccl_cluster(describe_system("mine", {"nodes": 1, "gpus": 4, "gpu": "RTX 4090"}))
    <Cluster 4 x RTX 4090: 4 ranks, 6 nodes, 10 links>
    """
    if system.gpu.generation == "cpu":
        raise InputError(f"{system.slug} runs MPI on CPUs; NCCL requires GPUs")
    settings = settings or NcclSettings()
    comm, values = make_communicator(system, settings), read_parameters()
    overhead = values[f"base.{PROTOCOL}"] * aged(comm, values) * US
    source = "fitted to published tables of nccl-tests: simcomm/nccl/parameters.toml"
    transport = Transport("nccl", overhead, 1.0, _seconds_a_byte(system), source)
    network = on_one_switch(_machine(system, comm, values), comm.nodes, transport=transport)
    hosts = f"{system.nodes} hosts of " if system.nodes > 1 else ""
    return NcclCluster(
        title or f"{hosts}{system.gpus} x {system.gpu.name}",
        network.graph,
        network.hosts,
        transport,
        described=system,
        settings=settings,
        assumed=assumed,
    )


def notes_of_programs(cluster: NcclCluster) -> tuple[str, ...]:
    """Return a note for the user if rank programs use fewer NICs than NCCL's own rings, else an empty tuple."""
    comm = make_communicator(cluster.system, cluster.settings)
    if comm.network is None or min(comm.local, comm.network.ports) < 2:
        return ()
    return (
        f"a program's ring uses one of a node's {comm.network.ports} NICs, because a GPU sends over its nearest NIC; "
        "NCCL's own rings use all",
    )


def _seconds_a_byte(system: System) -> float:
    figures = parts("GPU").get(system.gpu.name, {})
    return PASSES / parse_bandwidth(figures["memory_bandwidth"].value) if "memory_bandwidth" in figures else 0.0


def _machine(system: System, comm: Communicator, values: Parameters) -> Machine:
    host = comm.host
    over_pcie = [HopGroup(hop.kind, 1, host.pcie_rate) for hop in comm.hops if hop.kind in ("p2p", "p2p_far", "shm")]
    rates = {hop: hop_rate(comm, hop, values) for hop in over_pcie or [HopGroup("p2p", 1, host.pcie_rate)]}
    slowest = min(rates, key=lambda hop: rates[hop])
    pcie, wait = rates[slowest] * GB, _hop_seconds(comm, slowest, values) if over_pcie else 0.0
    nics = min(comm.local, comm.network.ports) if comm.network else 0
    port = max(0.0, between_hop(comm, PROTOCOL, values) * US - wait) / 2
    nic = between_rate(comm, values) * GB / nics if nics else 0.0
    is_near = _has_near_nics(comm, nics)
    reach = {"LOC": "NVL", "PIX": "PXB"}.get(host.p2p, host.p2p)
    return Machine(
        f"{comm.local} x {system.gpu.name}",
        comm.local,
        LinkSpec(max(pcie, nic) if is_near else pcie, wait / 2, "PCIe"),  # GPUDirect has the NIC's rate
        sockets=socket_count(host),
        pcie_switches=nics if is_near else switch_count(host),
        uplink=LinkSpec(pcie, wait / 2, "PCIe"),
        socket=LinkSpec(),
        nics=nics,
        nic_pcie=LinkSpec(),
        nic=LinkSpec(nic, port, "NIC") if nics else None,
        nvlinks=_nvlinks(comm, values),
        p2p_level="PXB" if is_near else reach,  # GPUs always reach the NIC on the same switch
    )


def _has_near_nics(comm: Communicator, nics: int) -> bool:
    on_nvswitch = all(hop.kind in ("nvswitch", "xgmi") for hop in comm.hops)
    return comm.network is not None and comm.network.gdr and on_nvswitch and comm.local % nics == 0


def _hop_seconds(comm: Communicator, hop: HopGroup, values: Parameters) -> float:
    return values[f"hop.{hop_class(hop)}.{PROTOCOL}"] * aged(comm, values) * US


def _nvlinks(comm: Communicator, values: Parameters) -> AddNVLinks | None:
    hop = next((hop for hop in comm.hops if hop_class(hop) == "nvlink"), None)
    if hop is None:
        return None
    wait = _hop_seconds(comm, hop, values)
    line = hop_rate(comm, HopGroup(hop.kind, 1, comm.host.nvlink), values)
    if hop.kind == "bridge":
        return partial(add_nvlink_pairs, link=LinkSpec(line * GB, wait, "NVLink"))
    if hop.kind == "mesh" and comm.local in (4, 8):
        return partial(add_cube_mesh, brick=LinkSpec(line * GB / MESH_BRICKS, wait, "NVLink"), bricks=MESH_BRICKS)
    return partial(add_nvswitch, link=LinkSpec(hop_rate(comm, hop, values) * GB, wait / 2, "NVLink"))
