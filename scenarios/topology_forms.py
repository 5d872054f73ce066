"""``topology = "..."`` in ``[cluster]``: one form for each topology, with just the keys that its builder takes."""

from collections.abc import Callable
from inspect import Parameter, signature
from math import prod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, create_model, model_validator

from collectives.errors import InputError
from collectives.transport import Transport
from scenarios.fields import Bandwidth, Count, Latency, Ratio
from scenarios.network_form import NetworkForm
from simcomm.cluster import topologies
from simcomm.cluster.cluster import MOST_RANKS, Cluster
from simcomm.cluster.files import read_cluster

KINDS: dict[str, Any] = {  # of the keys that are other than a count
    "bandwidth": Bandwidth,
    "latency": Latency,
    "oversubscription": Ratio,
    "dimensions": list[Count],
    "ports": Annotated[int, Field(ge=2, le=MOST_RANKS)],
    "global_links": Annotated[int, Field(ge=0, le=MOST_RANKS)],
    "groups": Count | None,
}


class TopologyForm(NetworkForm):
    """A topology whose links are alike."""

    builder: ClassVar[Callable[..., Cluster]]
    count_places: ClassVar[Callable[..., int]]

    @property
    def _given(self) -> dict[str, Any]:
        """What the builder takes, besides the transport."""
        return {name: getattr(self, name) for name in _parameters(type(self).builder)}

    @property
    def places(self) -> int:
        """About how many ranks it has room for, to refuse what is too large before it is built."""
        return type(self).count_places(**self._given)

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if self.places > MOST_RANKS:
            kept = self.model_fields_set - {*NetworkForm.model_fields, "topology", "bandwidth", "latency"}
            shown = ", ".join(f"{key} = {value}" for key, value in self._given.items() if key in kept)
            raise InputError(
                f"{self.label} with {shown} is too large: {self.places} places for ranks or more, {MOST_RANKS} at most"
            )
        return self

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        return type(self).builder(**self._given, transport=transport)


def _parameters(builder: Callable[..., Cluster]) -> dict[str, Parameter]:
    """Return the parameters of a builder, but for the transport."""
    return {name: one for name, one in signature(builder).parameters.items() if name != "transport"}


def _make_form(name: str, builder: Callable[..., Cluster], count_places: Callable[..., int]) -> type[TopologyForm]:
    """Return the form of a topology whose keys are the parameters of its builder."""
    fields: dict[str, Any] = {"topology": (Literal[name], ...)}
    for key, one in _parameters(builder).items():
        fields[key] = KINDS.get(key, Count), ... if one.default is Parameter.empty else one.default
    form = create_model(f"{name.title().replace('-', '')}Form", __base__=TopologyForm, **fields)
    form.label, form.builder, form.count_places = f'topology = "{name}"', builder, count_places
    return form


def _places_of_dragonfly(
    hosts_per_router: int, routers_per_group: int, global_links: int, groups: int | None, **_: Any
) -> int:
    return hosts_per_router * routers_per_group * (groups or routers_per_group * global_links + 1)


TOPOLOGY_FORMS: dict[str, type[TopologyForm]] = {
    name: _make_form(name, builder, count_places)
    for name, builder, count_places in (
        ("star", topologies.star, lambda hosts, **_: hosts),
        ("ring", topologies.ring, lambda hosts, **_: hosts),
        # the links count: half as many as hosts by hosts, 32 of which weigh as much as a rank
        ("fully-connected", topologies.fully_connected, lambda hosts, **_: hosts**2 // 64),
        ("torus", topologies.torus, lambda dimensions, **_: prod(dimensions)),
        ("two-level-tree", topologies.two_level_tree, lambda racks, hosts_per_rack, **_: racks * hosts_per_rack),
        ("fat-tree", topologies.fat_tree, lambda ports, **_: ports**3 // 4),
        ("dragonfly", topologies.dragonfly, _places_of_dragonfly),
    )
}


class FileForm(NetworkForm):
    """A network in a file."""

    label: ClassVar[str] = "topology from a file"

    topology: str

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        return read_cluster(folder / Path(self.topology).expanduser(), transport)
