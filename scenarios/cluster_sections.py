"""Define the kinds of ``[cluster]``: topologies, hardware presets, graph files, lists of links, and this machine."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PlainValidator, create_model, model_validator

from collectives.checks import MOST_RANKS, check_known
from collectives.errors import InputError
from collectives.quoting import quote, suggest
from collectives.transport import Transport
from scenarios.fields import Bandwidth, Count, Latency, Ratio, Section
from scenarios.nccl_sections import SystemSection
from scenarios.network_section import KINDS, ClusterSection, NetworkSection
from simcomm.cluster import topologies
from simcomm.cluster.calibrated import this_machine
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.custom import SUFFIX, from_links, read_cluster
from simcomm.cluster.hardware import machine_entries, preset

TOPOLOGIES: dict[str, dict[str, Any]] = {  # by name, the type of each key and, unless it is required, its default
    "star": {"hosts": Count},
    "ring": {"hosts": Count},
    "fully-connected": {"hosts": Count},
    "torus": {"dimensions": list[Count]},
    "two-level-tree": {"racks": Count, "hosts_per_rack": Count, "oversubscription": (Ratio, 1.0)},
    "fat-tree": {"ports": Annotated[int, Field(ge=2, le=MOST_RANKS)]},
}


class TopologySection(NetworkSection):
    """A network with a regular topology, such as ``topology = "star"``. All of its links are identical."""

    builder: ClassVar[Callable[..., Cluster]]

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        keys = type(self).model_fields.keys() - {*NetworkSection.model_fields, "topology"}
        return type(self).builder(**{key: getattr(self, key) for key in keys}, transport=transport)


def _make_section(name: str, keys: dict[str, Any]) -> type[TopologySection]:
    types = {"topology": Literal[name], **keys, "bandwidth": Bandwidth, "latency": Latency}
    fields: dict[str, Any] = {key: kind if isinstance(kind, tuple) else (kind, ...) for key, kind in types.items()}
    section = create_model(f"{name.title().replace('-', '')}Section", __base__=TopologySection, **fields)
    section.label, section.builder = f'topology = "{name}"', getattr(topologies, name.replace("-", "_"))
    return section


TOPOLOGY_SECTIONS = {name: _make_section(name, keys) for name, keys in TOPOLOGIES.items()}


class FileSection(NetworkSection):
    """A network that is read from a graph file."""

    label: ClassVar[str] = "topology from a file"

    topology: str

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        return read_cluster(folder / Path(self.topology).expanduser(), transport)


HERE = "this-machine"
DEFAULT_RANKS = 2  # default world size on this machine


class HereSection(ClusterSection):
    """``preset = "this-machine"``: every rank is a process on this machine."""

    label: ClassVar[str] = f'preset = "{HERE}"'

    preset: Literal["this-machine"]
    world_size: Count = DEFAULT_RANKS
    transport: Literal["ideal", "gloo-tcp"] = "gloo-tcp"

    @model_validator(mode="after")
    def _check_transport(self) -> Self:
        if self.transport != "gloo-tcp":
            raise InputError(f'transport must be "gloo-tcp" for this machine, not "{self.transport}"')
        return self

    def build(self, folder: Path) -> Cluster:
        return this_machine(self.world_size)


class MachineSection(NetworkSection):
    """One or more machines of the same type from the hardware catalog, and their network."""

    label: ClassVar[str] = "a hardware catalog preset"
    knows_gpus: ClassVar[bool] = True

    preset: str
    nodes: Count = 1
    gpus_per_node: Count | None = None
    bandwidth: Bandwidth | None = None
    latency: Latency | None = None
    nodes_per_leaf: Count | None = None
    oversubscription: Ratio | None = None
    description: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _check_description(self) -> Self:
        if self.transport != "nccl" and self.description is not None:
            raise InputError('description requires transport = "nccl"')
        if self.transport == "nccl" and self.latency is not None:
            raise InputError('latency is not supported with transport = "nccl", which has its own; remove latency')
        return self

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if self.nodes * machine_entries()[self.preset]["gpus"] > MOST_RANKS:
            raise InputError(f"nodes = {self.nodes} of {self.preset} is too large; the maximum is {MOST_RANKS} GPUs")
        return self

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        counts = (self.preset, self.nodes, self.gpus_per_node)
        leaves: dict[str, Any] = {"nodes_per_leaf": self.nodes_per_leaf, "oversubscription": self.oversubscription}
        if self.transport == "nccl":
            return self._over_nccl(preset(*counts, **leaves))
        return preset(*counts, bandwidth=self.bandwidth, latency=self.latency, transport=transport, **leaves)

    def _over_nccl(self, machine: Cluster) -> Cluster:
        from simcomm.nccl.clusters import nccl_cluster
        from simcomm.nccl.descriptions import check_own_line, describe_preset

        description = dict(self.description or {})
        check_own_line("cluster.description", description)
        if self.bandwidth is not None:
            entry = machine_entries()[self.preset]
            nics = max(1, entry.get("nics", 0) // entry.get("boards", 1))
            description = {"nic": self.bandwidth * nics / 1e9} | description
        try:
            system = describe_preset(self.preset, self.nodes, machine.world_size // self.nodes, **description)
        except (InputError, TypeError) as error:
            raise InputError(f"{error}; [cluster.description] accepts the keys of a system description") from error
        keys = [key for key in ("nodes_per_leaf", "oversubscription") if getattr(self, key) is not None]
        not_modeled = (
            f'transport = "nccl" does not model {" and ".join(keys)}; remove {"them" if keys[1:] else "it"}, or '
            'remove transport and predict "ring" or "double_tree" over the switches'
        )
        return replace(nccl_cluster(system, title=machine.title), not_modeled=not_modeled if keys else "")


class Link(Section):
    """``[[cluster.link]]``: one full-duplex link."""

    between: list[str] = Field(min_length=2, max_length=2, description='two nodes, for example ["h0", "s0"]')
    bandwidth: Bandwidth
    latency: Latency


class LinksSection(NetworkSection):
    """A network that is defined by ``[[cluster.link]]`` tables."""

    label: ClassVar[str] = "link"

    link: list[Link] = Field(min_length=1)

    def build_network(self, folder: Path, transport: Transport | None) -> Cluster:
        links = [(link.between[0], link.between[1], link.bandwidth, link.latency) for link in self.link]
        return from_links(links, transport)


CLUSTER_SECTIONS: dict[str, type[ClusterSection]] = {
    **TOPOLOGY_SECTIONS,
    "file": FileSection,
    "machine": MachineSection,
    "system": SystemSection,
    "link": LinksSection,
    HERE: HereSection,
}


def _check_kind(value: object) -> object:
    if not isinstance(value, dict):
        return value
    kinds = [kind for kind in KINDS if kind in value]
    if len(kinds) != 1:
        sections = CLUSTER_SECTIONS.values()
        known = [*dict.fromkeys([*KINDS, *(key for section in sections for key in section.key_names())])]
        for key in value if not kinds else ():
            if key not in known:
                raise InputError(f"unknown key {key}; {suggest(key, known)}")
        problem = f"{' and '.join(kinds)} are mutually exclusive" if kinds else "the kind of cluster is missing"
        raise InputError(
            f'{problem}; set exactly one of preset = "this-machine", topology = "star" with hosts, bandwidth '
            "and latency, system with a system description, or [[cluster.link]] tables"
        )
    (kind,) = kinds
    if kind == "system" and isinstance(value[kind], dict):
        return value
    if kind != "link" and not isinstance(value[kind], str):
        raise InputError(f"{kind} must be a string, not {quote(value[kind])}")
    if kind == "preset":
        check_known(kind, value[kind], (HERE, *machine_entries()))
    if kind == "topology" and not value[kind].endswith(SUFFIX):
        files = f", or a {SUFFIX} file in networkx's node-link form"
        check_known(kind, value[kind], TOPOLOGY_SECTIONS, files)
    return value


def section_of(value: object) -> type[HereSection | NetworkSection]:
    """Return the class for a ``[cluster]`` table. The table must contain exactly one of the keys in ``KINDS``."""
    if not isinstance(value, dict):
        return TOPOLOGY_SECTIONS["star"]  # every section rejects the value
    if "link" in value:
        return LinksSection
    if "system" in value:
        return SystemSection
    if "preset" in value:
        return HereSection if value["preset"] == HERE else MachineSection
    return TOPOLOGY_SECTIONS.get(value["topology"], FileSection)


AnyClusterSection = Annotated[
    HereSection | NetworkSection, PlainValidator(lambda value: section_of(_check_kind(value)).model_validate(value))
]


def describe_foreign_key(section: type[ClusterSection], key: str) -> str | None:
    """Return a message if ``key`` belongs to other kinds of clusters. Return None if no kind of cluster has the key."""
    sections: list[type[ClusterSection]] = [*TOPOLOGY_SECTIONS.values(), MachineSection, SystemSection]
    owners = [other.label for other in sections if key in other.key_names()]
    if not owners:
        return None
    if key in NetworkSection.model_fields:
        return f"{key} is not supported with {section.label}, whose ranks share memory; remove it"
    return f"{key} is not a key of {section.label}, but of {' or '.join(owners)}; remove it"


def describe_missing_key(section: type[ClusterSection], key: str) -> str:
    """Return the message for a missing key. It lists all required keys of ``section``."""
    fields = section.model_fields
    *needed, last = (name for name in section.key_names() if fields[name].is_required() and name not in KINDS)
    return f"{key} is missing; {section.label} requires {', '.join(needed)} and {last}"
