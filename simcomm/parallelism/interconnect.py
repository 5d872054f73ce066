"""What a collective among some of the devices takes: by NCCL's model, or as simulated on a cluster's network."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from collectives.calibration.calibration import Calibration
from collectives.catalogue import find_algorithm
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.request import make_request
from simcomm.cluster.cluster import Cluster
from simcomm.parallelism.groups import Group
from simcomm.scaling.parameters import read_parameters
from simcomm.scaling.step import server_seconds
from simcomm.simulate import run

if TYPE_CHECKING:
    from simcomm.nccl.settings import NcclSettings
    from simcomm.parallelism.shared_links import StepLinks

SHARES: dict[str, Callable[[int], float]] = {  # of the buffer that a rank sends
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "send_recv": lambda n: 1.0,
}
LARGE = 256e6  # bytes of a collective of which links decide
ALGORITHMS = {
    "all_reduce": "ring", "all_gather": "ring", "reduce_scatter": "ring", "all_to_all": "direct",
    "broadcast": "binomial", "reduce": "binomial", "send_recv": "naive",
}  # fmt: skip


class Call(NamedTuple):
    """A collective that a device takes part in, so many ``times`` a step: bytes of the whole buffer, and its group.

    Of local SGD, whose steps differ, ``times`` are those of the mean step.
    """

    collective: str
    nbytes: float
    group: Group
    times: float = 1

    @property
    def sent(self) -> float:
        """Bytes that the device sends."""
        return self.times * sent_bytes(self.collective, self.nbytes, self.group)


def join_calls(calls: Iterable[Call]) -> tuple[Call, ...]:
    """Return the calls with those that are alike in one.

    >>> join_calls([Call("all_reduce", 8.0, Group(2)), Call("all_reduce", 8.0, Group(2), 3)])
    (Call(collective='all_reduce', nbytes=8.0, group=Group(size=2, stride=1), times=4),)
    """
    found: dict[tuple[str, float, Group], float] = {}
    for one in calls:
        found[one[:3]] = found.get(one[:3], 0) + one.times
    return tuple(Call(*key, times) for key, times in found.items() if key[2].size > 1 and times)


class Served(NamedTuple):
    """What fetching all weights and sending all gradients takes, and whether every device serves a part of them."""

    seconds: float
    is_spread: bool


class Interconnect(Protocol):
    """What joins the devices."""

    kind: str  # of link that hidden communication takes from: nvlink, pcie, host, network; "" where it takes nothing
    node: int  # devices on a host, of those that are used
    nic: float  # bytes/s of a host's NICs

    @property
    def links(self) -> "StepLinks | None":
        """Those of a host, where it is known what shares them."""
        ...

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        """Return what a collective of a buffer of ``nbytes`` takes; of send_recv, a message."""
        ...

    def serve(self, nbytes: float, largest: float, group: Group) -> Served:
        """Return what a parameter server takes for ``nbytes`` of weights, ``largest`` of them of one layer."""
        ...


def sent_bytes(collective: str, nbytes: float, group: Group) -> float:
    """Return the bytes that each device sends, by the best algorithms for large buffers.

    >>> sent_bytes("all_reduce", 100.0, Group(4))
    150.0
    """
    return nbytes * SHARES[collective](group.size)


@dataclass
class NcclInterconnect:
    """GPUs that NCCL joins. Groups that share a host's NICs have their share of them each.

    Within a training NCCL gets the share of its own rate that is fitted to published trainings (``simcomm.scaling``).
    ``contention`` says what shares a host's links (``simcomm.parallelism.shared_links``); empty: nothing.
    """

    system: "object"  # simcomm.nccl.descriptions.System, which other fabrics do without
    settings: "object | None" = None
    contention: frozenset[str] = frozenset()
    links: "StepLinks | None" = field(default=None, init=False)
    _known: dict[tuple[str, float, Group], float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        from simcomm.nccl.descriptions import System
        from simcomm.parallelism.shared_links import StepLinks

        assert isinstance(self.system, System)
        self.node: int = self.system.gpus
        self.nic: float = self.system.nic * 1e9
        self.kind = link_kind(self.system)
        if self.contention:
            self.links = StepLinks(self.system, self._settings, self.contention, self._reached)

    @property
    def _settings(self) -> "NcclSettings":
        from simcomm.nccl.settings import NcclSettings

        return self.settings if isinstance(self.settings, NcclSettings) else NcclSettings()

    def _reached(self, collective: str, group: Group) -> float:
        """Return the GB/s at which each GPU sends in a large collective that has all links to itself."""
        seconds = self.seconds(collective, LARGE, group)
        return sent_bytes(collective, LARGE, group) / seconds / 1e9 if seconds else inf

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        """Return what NCCL takes."""
        if group.size == 1 or nbytes <= 0:
            return 0.0
        key = (collective, nbytes, group)
        if key not in self._known:
            self._known[key] = self._predict(collective, nbytes, group)
        return self._known[key]

    def _predict(self, collective: str, nbytes: float, group: Group) -> float:
        from simcomm.nccl.descriptions import System
        from simcomm.nccl.predict import predict_among_others, predict_seconds

        assert isinstance(self.system, System)
        if collective == "send_recv":
            group = Group(2, group.stride)
        local = max(1, self.node // group.stride)
        nodes = -(-group.size // local)
        gpus = group.size if nodes == 1 else local
        if nodes > 1 and group.size % local:
            raise InputError(f"a group of {group.size} devices, {local} of each host, does not fill its hosts")
        nic = self.system.nic * gpus / self.node if nodes > 1 else self.system.nic
        part = replace(self.system, nodes=nodes, gpus=gpus, nic=nic)
        settings = self._settings
        if part.ranks == 1:
            return 0.0
        sizes = [max(1.0, nbytes)]
        if self.links is not None and self.links.places_groups and 1 < gpus < self.node:
            groups = group.on_host(self.node)
            alone = predict_among_others(part, self.system, groups, collective, sizes, settings=settings)
        else:
            alone = predict_seconds(part, collective, sizes, settings=settings)
        return float(alone[0]) / float(read_parameters()[f"eff_{link_kind(part)}"])

    def serve(self, nbytes: float, largest: float, group: Group) -> Served:
        """Return what servers on the GPUs take, by the parameters that are fitted to published trainings.

        GPUs that reach each other serve an equal part each, else one process on the host has all
        (``simcomm/scaling/step.py``).
        """
        from simcomm.nccl.descriptions import System
        from simcomm.nccl.topology import host_paths

        assert isinstance(self.system, System)
        values, local, nodes = read_parameters(), min(self.node, group.size), -(-group.size // self.node)
        kind = link_kind(replace(self.system, nodes=1))
        seconds = server_seconds(
            values, nbytes, largest, group.size, nodes, staged=kind == "host",
            busbw=self._reached("all_reduce", Group(local)) * 1e9 / float(values[f"eff_{kind}"]),
            paths=host_paths(self.system.layout, local), nic=self.nic or inf,
        )  # fmt: skip
        return Served(float(seconds), is_spread=kind != "host")


def link_kind(system: "object") -> str:
    """Return what joins most devices: a network where there are several hosts, else what is inside of one."""
    from simcomm.nccl.descriptions import System

    assert isinstance(system, System)
    if system.nodes > 1:
        return "network"
    if system.link != "pcie":
        return "nvlink"
    return "pcie" if system.p2p else "host"


@dataclass
class SimulatedInterconnect:
    """Ranks of a simulated cluster; each group is simulated alone, on its own hosts."""

    cluster: Cluster
    algorithm: Algorithm | None = None  # of all_reduce; ring unless given
    calibration: Calibration | None = None
    links: "StepLinks | None" = None
    _known: dict[tuple[str, int, Group], float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.kind = ""
        self.node = max(1, self.cluster.local_ranks)
        self.nic = 0.0

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
            request = make_request(found, group.size, key[1])
            part = replace(self.cluster, hosts=hosts)
            self._known[key] = run(request, part, calibration=self.calibration, record=False).elapsed
        return self._known[key]

    def serve(self, nbytes: float, largest: float, group: Group) -> Served:
        """Return what one server, on the host of the first rank, takes: ``naive``, by whose link all goes."""
        del largest  # one server has all layers
        found = replace(self, algorithm=find_algorithm("all_reduce/naive"))
        return Served(found.seconds("all_reduce", nbytes, group), is_spread=False)
