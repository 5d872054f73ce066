"""Define a cluster: a network of hosts, switches and links as a networkx graph, and the host of each rank."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import networkx as nx

from collectives.checks import check_cluster, check_text, check_whole_number
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.calibration import Calibration
from collectives.transport import Transport
from simcomm.cluster.pair_fit import borrow_transport
from simcomm.cluster.routing import Router, Routing, shortest

IDEAL = Transport()
BORROWED_RANKS = 2  # ranks in the calibration of this machine's software for other machines


@dataclass(frozen=True)
class Cluster:
    """A network of hosts, switches and links, with the host of each rank and a routing policy.

    Every edge of ``graph`` is one direction of a link, with its bandwidth in bytes/s and its latency in seconds.
    ``simcomm.cluster.graph`` lists all attributes. Messages share the bandwidth of links max-min fairly.

    Raise InputError if ``title`` or ``transport`` is invalid.

    >>> import simcomm
    >>> simcomm.star(4, "10 Gbit/s", "5 us")
    <Cluster star of 4 hosts, 10 Gbit/s: 4 ranks, 5 nodes, 8 links>
    """

    performance_model: ClassVar[str] = "network"  # in ``simcomm.performance_models``
    is_here: ClassVar[bool] = False  # the ranks are processes on this machine
    is_built: ClassVar[bool | None] = False  # whether its network is built for a run; None: it is this machine

    title: str
    graph: "nx.DiGraph[str]"
    hosts: tuple[str, ...]  # node of each rank
    transport: Transport | None  # None: needs a calibration
    routing: Routing = shortest

    def __post_init__(self) -> None:
        check_text("title", self.title, "two racks")
        if self.transport is not None and not isinstance(self.transport, Transport):
            raise InputError(
                f"transport must be a Transport, or None for a calibrated one, not {quote(self.transport)}"
            )

    def __repr__(self) -> str:
        counts = f"{self.graph.number_of_nodes()} nodes, {self.graph.number_of_edges()} links"
        return f"<Cluster {self.title}: {self.world_size} ranks, {counts}>"

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return len(self.hosts)

    @property
    def local_ranks(self) -> int:
        """The number of ranks that share the CPU cores of one machine."""
        return 1

    @property
    def place_of_run(self) -> str:
        """The name of the machine on which real runs are measured, as printed with results."""
        return "this machine"

    def machines(self) -> list[object]:
        """Return the machine of each rank. A host that is not part of a machine counts as a machine of its own."""
        return [self.graph.nodes[host].get("machine", host) for host in self.hosts]

    @property
    def calibration_ranks(self) -> int:
        """The number of ranks with which this machine must be calibrated to predict the cluster."""
        return BORROWED_RANKS

    def calibrated_by(self, calibration: Calibration) -> "Cluster":
        """Return the cluster with calibrated software costs. If the cluster has a transport, return it unchanged."""
        if self.transport is not None:
            return self
        return replace(self, transport=borrow_transport(calibration, self.world_size))

    def under_nccl(self, settings: Any) -> "Cluster":
        """Return the cluster with these NCCL settings. If the cluster does not use NCCL, return it unchanged."""
        return self

    def check_joined_by_nccl(self) -> None:
        """Raise InputError unless the cluster uses NCCL, which the algorithm "nccl" requires."""
        raise InputError(f'algorithm "nccl" requires transport = "nccl", which {self.title} does not use')

    def check_measurable(self, backend: str, gpus: Callable[[], Sequence[str]]) -> None:
        """Raise InputError unless the cluster is this machine. ``gpus`` returns the GPU names from the driver."""
        raise InputError(
            f"{self.title} is not this machine, so it cannot be measured here; use `ringlab predict`, --emulate, "
            'or cluster.preset = "this-machine"'
        )

    def warn_of_run(self, backend: str) -> str:
        """Return a warning that ranks run on this machine instead of the cluster. It is empty for this machine."""
        over = "over this machine's memory, by gloo on its CPUs" if backend == "gloo" else "by NCCL on its GPUs"
        return f"warning: {self.title} is not this machine; its {self.world_size} ranks run here, {over}"

    def router(self) -> Router:
        """Return the router of this network. Raise InputError if the routing policy does not support the network."""
        return self.routing(self.graph)

    def on_first(self, world_size: int) -> "Cluster":
        """Return the cluster with ranks on its first ``world_size`` hosts. Raise InputError for 0 or too many ranks."""
        if not 1 <= check_whole_number("world_size", world_size, at_least=0) <= len(self.hosts):
            raise InputError(
                f"{world_size} ranks do not fit: the cluster has {len(self.hosts)} hosts, with one rank each"
            )
        return replace(self, hosts=self.hosts[:world_size])


def with_usable_bandwidths(cluster: Cluster) -> Cluster:
    """Return the cluster with each link's line rate replaced by the usable bandwidth, if that is known.

    >>> import simcomm
    >>> pair = with_usable_bandwidths(simcomm.preset("dgx-h100"))
    >>> pair.graph.edges["n0.gpu0", "n0.nvswitch"]["bandwidth"] < 450e9
    True
    """
    check_cluster(cluster, Cluster)
    graph = cluster.graph.copy()
    for _, _, data in graph.edges(data=True):
        data["bandwidth"] = data.get("usable_bandwidth", data["bandwidth"])
    return replace(cluster, graph=graph)
