"""What a collective among some of the devices takes: by NCCL's model, by published bus bandwidths, or as simulated."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, log2
from typing import NamedTuple, Protocol

from collectives.call import make_call
from collectives.catalogue import find_algorithm
from collectives.declaration import Algorithm
from collectives.errors import InputError
from planner.hosts import SHARED_LINKS, Group
from planner.mesh.calls import sent_bytes
from planner.mesh.terms import ParameterServers, read_parameters
from simcomm.cluster.cluster import Cluster
from simcomm.nccl.descriptions import System
from simcomm.nccl.predict import predict_among_others, predict_seconds
from simcomm.nccl.settings import NcclSettings
from simcomm.nccl.topology import host_paths
from simcomm.simulate import run

LARGE = 256e6  # bytes of a collective of which links decide
ALGORITHMS = {
    "all_reduce": "ring", "all_gather": "ring", "reduce_scatter": "ring", "all_to_all": "direct",
    "broadcast": "binomial", "reduce": "binomial", "send_recv": "naive",
}  # fmt: skip


class Served(NamedTuple):
    """What fetching all weights and sending all gradients takes, and whether every device serves a part of them."""

    seconds: float
    is_spread: bool


class Interconnect(Protocol):
    """What joins the devices."""

    kind: str  # of link that hidden communication takes from: nvlink, pcie, host, network; "" where it takes nothing
    node: int  # devices on a host, of those that are used
    nic: float  # bytes/s of a host's NICs

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        """Return what a collective of a buffer of ``nbytes`` takes; of send_recv, a message."""
        ...

    def serve(self, nbytes: float, largest: float, group: Group) -> Served:
        """Return what a parameter server takes for ``nbytes`` of weights, ``largest`` of them of one layer."""
        ...


@dataclass
class NcclInterconnect:
    """GPUs that NCCL joins. Groups that share a host's NICs have their share of them each.

    Within a training NCCL gets the share of its own rate that is fitted to published trainings.
    """

    system: System
    settings: NcclSettings = field(default_factory=NcclSettings)
    _known: dict[tuple[str, float, Group], float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.node: int = self.system.gpus
        self.nic: float = self.system.nic * 1e9
        self.kind = link_kind(self.system)

    def _bus_bandwidth(self, gpus: int) -> float:
        """Return the bytes/s at which each of some GPUs of a host sends in a large all_reduce."""
        seconds = self.seconds("all_reduce", LARGE, Group(gpus))
        return sent_bytes("all_reduce", LARGE, Group(gpus)) / seconds if seconds else inf

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        """Return what NCCL takes."""
        if group.size == 1 or nbytes <= 0:
            return 0.0
        key = (collective, nbytes, group)
        if key not in self._known:
            self._known[key] = self._predict(collective, nbytes, group)
        return self._known[key]

    def _predict(self, collective: str, nbytes: float, group: Group) -> float:
        if collective == "send_recv":
            group = Group(2, group.stride)
        local = max(1, self.node // group.stride)
        nodes = -(-group.size // local)
        gpus = group.size if nodes == 1 else local
        if nodes > 1 and group.size % local:
            raise InputError(f"a group of {group.size} devices, {local} of each host, does not fill its hosts")
        part = self.system.part(nodes, gpus)
        if part.ranks == 1:
            return 0.0
        sizes = [max(1.0, nbytes)]
        if self.system.link in SHARED_LINKS and 1 < gpus < self.node:  # all groups of a host at once, at their places
            groups = group.on_host(self.node)
            found = predict_among_others(part, self.system, groups, collective, sizes, settings=self.settings)
        else:
            found = predict_seconds(part, collective, sizes, settings=self.settings)
        return float(found[0]) / float(read_parameters()[f"eff_{link_kind(part)}"])

    def serve(self, nbytes: float, largest: float, group: Group) -> Served:
        """Return what servers on the GPUs take, by the parameters that are fitted to published trainings.

        GPUs that reach each other serve an equal part each, else one process on the host has all.
        """
        values, local = read_parameters(), min(self.node, group.size)
        kind = link_kind(replace(self.system, nodes=1))
        servers = ParameterServers(
            gpus=group.size,
            nodes=-(-group.size // self.node),
            staged=kind == "host",
            busbw=self._bus_bandwidth(local) / float(values[f"eff_{kind}"]),
            paths=host_paths(self.system.layout, local),
            nic=self.nic or inf,
        )
        return Served(float(servers.seconds(values, nbytes, largest)), is_spread=kind != "host")


def link_kind(system: System) -> str:
    """Return what joins most devices: a network where there are several hosts, else what is inside of one."""
    if system.nodes > 1:
        return "network"
    if system.link != "pcie":
        return "nvlink"
    return "pcie" if system.p2p else "host"


class ScalingNode(NamedTuple):
    """A machine: GPUs, the bus bandwidth of what joins them by how many take part, cores, GB/s of all its NICs."""

    name: str
    gpus: int
    link: str
    busbw: Mapping[int, float]  # GB/s by GPU count, as published nccl-tests show it
    cores: int
    nic_GBps: float  # noqa: N815 - the unit as it is written
    machine: str | None = None  # of the hardware catalogue, whose PCIe links it has

    @property
    def kind(self) -> str:
        """What hidden communication competes with: NVLink, PCIe between GPUs, or host memory."""
        word = self.link.partition("_")[0]
        return "nvlink" if word in ("nvswitch", "cube", "bridge") else "host" if word == "host" else "pcie"

    def bandwidth(self, gpus: int) -> float:
        """Return the bus bandwidth in GB/s of an all-reduce among so many of the GPUs, by the next smaller count."""
        known = [count for count in sorted(self.busbw) if count <= gpus]
        return self.busbw[known[-1]] if known else self.busbw[min(self.busbw)]


@dataclass
class NodeInterconnect:
    """``gpus`` GPUs on each of ``nodes`` machines of known bus bandwidth.

    A collective sends its bytes at the bus bandwidth, of which a training reaches the share that is fitted to published
    ones, and takes the fitted latency for each doubling of its ranks. Groups share a machine's NICs.
    """

    machine: ScalingNode
    gpus: int
    nodes: int = 1
    paths: int = 1  # x16 paths to the host, over which parameter servers send

    def __post_init__(self) -> None:
        self.node = self.gpus
        self.nic = self.machine.nic_GBps * 1e9
        self.kind: str = "network" if self.nodes > 1 else self.machine.kind

    def _rate(self, group: Group) -> float:
        """Return the bus bandwidth of a group in bytes/s, as a training reaches it."""
        local = max(1, self.gpus // group.stride)
        inside, values = min(local, group.size), read_parameters()
        bandwidth = self.machine.bandwidth(inside) * 1e9
        if group.size <= local:
            return bandwidth * float(values[f"eff_{self.machine.kind}"])
        nic = self.nic * inside / self.gpus
        return (nic if inside == 1 else min(nic, bandwidth)) * float(values["eff_network"])

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        """Return what a collective of a buffer of ``nbytes`` takes; of send_recv, a message."""
        if group.size == 1 or nbytes <= 0:
            return 0.0
        if collective == "send_recv":
            group = Group(2, group.stride)
        latency = float(read_parameters()["latency_us"]) / 1e6 * log2(group.size)
        return sent_bytes(collective, nbytes, group) / self._rate(group) + latency

    def serve(self, nbytes: float, largest: float, group: Group) -> Served:
        """Return what servers on the GPUs take, as in ``NcclInterconnect``."""
        local, staged = min(self.gpus, group.size), self.machine.kind == "host"
        servers = ParameterServers(
            gpus=group.size,
            nodes=-(-group.size // self.gpus),
            staged=staged,
            busbw=self.machine.bandwidth(local) * 1e9,
            paths=self.paths,
            nic=self.nic or inf,
        )
        return Served(float(servers.seconds(read_parameters(), nbytes, largest)), is_spread=not staged)


@dataclass
class SimulatedInterconnect:
    """Ranks of a simulated cluster; each group is simulated alone, on its own hosts."""

    cluster: Cluster
    algorithm: Algorithm | None = None  # of all_reduce; ring unless given
    kind: str = field(default="", init=False)  # what is hidden takes nothing from computing
    nic: float = field(default=0.0, init=False)
    _known: dict[tuple[str, int, Group], float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.node = max(1, self.cluster.local_ranks)

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        """Return what the library's algorithm takes among the first such group of the cluster."""
        if group.size == 1 or nbytes < 1:
            return 0.0
        if collective == "send_recv":
            group = Group(2, group.stride)
        key = (collective, max(4, round(nbytes / 4) * 4), group)
        if key not in self._known:
            hosts = self.cluster.hosts[: group.size * group.stride : group.stride]
            name = "broadcast" if collective == "send_recv" else collective
            found = find_algorithm(f"{name}/{ALGORITHMS[collective]}")
            if collective == "all_reduce" and self.algorithm is not None:
                found = self.algorithm
            call = make_call(found, group.size, key[1])
            self._known[key] = run(call, replace(self.cluster, hosts=hosts), record=False).elapsed
        return self._known[key]

    def serve(self, nbytes: float, largest: float, group: Group) -> Served:
        """Return what one server, on the host of the first rank, takes: ``naive``, by whose link all goes."""
        del largest  # one server has all layers
        found = SimulatedInterconnect(self.cluster, find_algorithm("all_reduce/naive"))
        return Served(found.seconds("all_reduce", nbytes, group), is_spread=False)
