"""``topology = "..."`` in ``[cluster]``: one form for each topology, with just its keys, that builds it."""

from math import prod
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from collectives.errors import InputError
from collectives.transport import Transport
from scenarios.fields import Bandwidth, Count, Latency, Ratio
from scenarios.network_form import NetworkForm
from simcomm.cluster import topologies
from simcomm.cluster.cluster import MOST_RANKS, Cluster
from simcomm.cluster.files import read_cluster

EACH_LINK = ("bandwidth", "latency")


class TopologyForm(NetworkForm):
    """A topology whose links are alike."""

    @property
    def places(self) -> int:
        """About how many ranks it has room for, to refuse what is too large before it is built."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if self.places > MOST_RANKS:
            given = self.model_dump(exclude_unset=True, exclude={*NetworkForm.model_fields, "topology", *EACH_LINK})
            shown = ", ".join(f"{key} = {value}" for key, value in given.items())
            raise InputError(
                f"{self.label} with {shown} is too large: {self.places} places for ranks or more, {MOST_RANKS} at most"
            )
        return self


class StarForm(TopologyForm):
    """Hosts on one switch."""

    label: ClassVar[str] = 'topology = "star"'

    topology: Literal["star"]
    hosts: Count
    bandwidth: Bandwidth
    latency: Latency

    @property
    def places(self) -> int:
        return self.hosts

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        return topologies.star(self.hosts, self.bandwidth, self.latency, transport)


class RingForm(TopologyForm):
    """Hosts in a circle."""

    label: ClassVar[str] = 'topology = "ring"'

    topology: Literal["ring"]
    hosts: Count
    bandwidth: Bandwidth
    latency: Latency

    @property
    def places(self) -> int:
        return self.hosts

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        return topologies.ring(self.hosts, self.bandwidth, self.latency, transport)


class FullyConnectedForm(TopologyForm):
    """A link between every two hosts."""

    label: ClassVar[str] = 'topology = "fully-connected"'

    topology: Literal["fully-connected"]
    hosts: Count
    bandwidth: Bandwidth
    latency: Latency

    @property
    def places(self) -> int:
        """The links count: half as many as hosts by hosts, 32 of which weigh as much as a rank."""
        return self.hosts**2 // 64

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        return topologies.fully_connected(self.hosts, self.bandwidth, self.latency, transport)


class TorusForm(TopologyForm):
    """Hosts in a grid that closes in every dimension."""

    label: ClassVar[str] = 'topology = "torus"'

    topology: Literal["torus"]
    dimensions: list[Count]
    bandwidth: Bandwidth
    latency: Latency

    @property
    def places(self) -> int:
        return prod(self.dimensions)

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        return topologies.torus(self.dimensions, self.bandwidth, self.latency, transport)


class TwoLevelTreeForm(TopologyForm):
    """Racks with a switch each, joined by one core switch."""

    label: ClassVar[str] = 'topology = "two-level-tree"'

    topology: Literal["two-level-tree"]
    racks: Count
    hosts_per_rack: Count
    bandwidth: Bandwidth
    latency: Latency
    oversubscription: Ratio = 1.0

    @property
    def places(self) -> int:
        return self.racks * self.hosts_per_rack

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        return topologies.two_level_tree(
            self.racks, self.hosts_per_rack, self.bandwidth, self.latency, self.oversubscription, transport
        )


class FatTreeForm(TopologyForm):
    """Three tiers of switches with so many ports each."""

    label: ClassVar[str] = 'topology = "fat-tree"'

    topology: Literal["fat-tree"]
    ports: Annotated[int, Field(ge=2, le=MOST_RANKS)]
    bandwidth: Bandwidth
    latency: Latency

    @property
    def places(self) -> int:
        return self.ports**3 // 4

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        return topologies.fat_tree(self.ports, self.bandwidth, self.latency, transport)


class DragonflyForm(TopologyForm):
    """Groups of fully connected routers, with one link between every two groups."""

    label: ClassVar[str] = 'topology = "dragonfly"'

    topology: Literal["dragonfly"]
    hosts_per_router: Count
    routers_per_group: Count
    global_links: Annotated[int, Field(ge=0, le=MOST_RANKS)]
    bandwidth: Bandwidth
    latency: Latency
    groups: Count | None = None

    @property
    def places(self) -> int:
        groups = self.groups or self.routers_per_group * self.global_links + 1
        return self.hosts_per_router * self.routers_per_group * groups

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        return topologies.dragonfly(
            self.hosts_per_router,
            self.routers_per_group,
            self.global_links,
            self.bandwidth,
            self.latency,
            self.groups,
            transport,
        )


class FileForm(NetworkForm):
    """A network in a file."""

    label: ClassVar[str] = "topology from a file"

    topology: str

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        return read_cluster(folder / Path(self.topology).expanduser(), transport)


TOPOLOGY_FORMS: dict[str, type[TopologyForm]] = {
    "star": StarForm,
    "ring": RingForm,
    "fully-connected": FullyConnectedForm,
    "torus": TorusForm,
    "two-level-tree": TwoLevelTreeForm,
    "fat-tree": FatTreeForm,
    "dragonfly": DragonflyForm,
}
