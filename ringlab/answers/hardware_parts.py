"""``HardwareCatalogue`` and ``HardwarePart``: the hardware catalogue, or one part of it with its sources."""

from collections import Counter
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import viz
from collectives.checks import check_text, check_whole_number
from collectives.errors import InputError
from collectives.quoting import close_names, quote
from ringlab.shared.answer import SCHEMA_VERSION, Record
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.hardware_parts import TABLES, Figure, find_link, parts
from simcomm.cluster.presets import machine_entries, preset

Entry = dict[str, Any]


@dataclass(frozen=True, repr=False)
class HardwareCatalogue(Record):
    """Everything that there is, by kind, without sources; each entry has a ``name``."""

    machines: tuple[Entry, ...]
    gpus: tuple[Entry, ...]
    links: tuple[Entry, ...]  # rates in bytes/s each way of one lane or link, latency in seconds
    nics: tuple[Entry, ...]
    switches: tuple[Entry, ...]
    generations: tuple[Entry, ...]  # of GPUs
    networks: tuple[Entry, ...]  # as descriptions of systems name them

    def __repr__(self) -> str:
        return f"<HardwareCatalogue: {len(self.machines)} machines, {len(self.gpus)} GPUs, {len(self.links)} links>"

    def to_dict(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, "kind": "hardware", **super().to_dict()}


@dataclass(frozen=True, repr=False)
class HardwarePart(Record):
    """A machine or another part: every figure with its source, and the cables of a machine, counted."""

    name: str
    title: str
    figures: tuple[Entry, ...]
    links: tuple[Entry, ...]
    file: str | None = None  # of its picture

    def __repr__(self) -> str:
        return f"<HardwarePart {self.name}: {len(self.figures)} figures, {len(self.links)} sorts of links>"

    def draw(self, path: Path | str, nodes: int = 1) -> "HardwarePart":
        """Draw ``nodes`` of this machine with their network as ``.png``, ``.svg`` or ``.pdf``; return it with ``file``.

        Raises InputError for another suffix, and for a part that is no machine.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     drawn = hardware_part("dgx-h100").draw(Path(folder, "node.svg"))
        ...     Path(drawn.file).is_file()
        True
        """
        from viz.topology import MOST_NODES  # loads what draws

        if self.name not in machine_entries():
            machines = ", ".join(machine_entries())
            raise InputError(f"{quote(self.name)} is no machine, so it has no topology; there are {machines}")
        if check_whole_number("nodes", nodes, at_least=1) * len(preset(self.name).graph) > MOST_NODES:
            raise InputError(f"{nodes} of {self.name} are too many to draw: a picture shows {MOST_NODES} nodes at most")
        cluster = preset(self.name, nodes)
        viz.draw_topology(cluster.graph, cluster.hosts, cluster.title, path)
        return replace(self, file=str(path))

    def to_dict(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, "kind": "hardware", **super().to_dict()}


def hardware_catalogue() -> HardwareCatalogue:
    """Return the whole catalogue."""
    return HardwareCatalogue(
        machines=tuple(
            {"name": name, "title": entry["title"], **_size(entry)} for name, entry in machine_entries().items()
        ),
        gpus=tuple({"name": name, **_values(figures)} for name, figures in parts("GPU").items()),
        links=tuple({"name": name, **_rates(name)} for name in parts("link")),
        nics=tuple({"name": name, **_values(figures)} for name, figures in parts("NIC").items()),
        switches=tuple({"name": name, **_values(figures)} for name, figures in parts("switch").items()),
        generations=tuple({"name": name, **_values(figures)} for name, figures in parts("generation").items()),
        networks=tuple({"name": name, **_values(figures)} for name, figures in parts("network").items()),
    )


def hardware(name: str | None = None) -> HardwareCatalogue | HardwarePart:
    """Return one part of the hardware catalogue, or all of it. Raises InputError that suggests a name.

    >>> hardware("dgx-h100").title
    'NVIDIA DGX H100'
    """
    return hardware_catalogue() if name is None else hardware_part(name)


def hardware_part(name: str) -> HardwarePart:
    """Return one machine or part with the source of every figure. Raises InputError that suggests a name."""
    check_text("name", name, "dgx-h100")
    if name in machine_entries():
        entry = machine_entries()[name]
        figures = tuple(
            {"quantity": key, "value": str(entry[key]), "source": source} for key, source in entry["sources"].items()
        )
        return HardwarePart(name, entry["title"], figures, _links(preset(name)))
    for kind in TABLES:
        if name in parts(kind):
            figures = tuple({"quantity": key, **figure._asdict()} for key, figure in parts(kind)[name].items())
            return HardwarePart(name, f"{kind} {name}", figures, ())
    raise InputError(_unknown(name))


def _size(entry: Entry) -> Entry:
    return {"gpus": entry["gpus"], "gpu": entry["gpu"], "nics": entry.get("nics", 0), "nic": entry.get("nic", "")}


def _values(figures: dict[str, Figure]) -> dict[str, str]:
    return {quantity: figure.value for quantity, figure in figures.items()}


def _rates(link: str) -> dict[str, float | None]:
    """Return the line rate where a source says it and the usable bandwidth, bytes/s each way, and the latency."""
    found, known = find_link(link), parts("link")[link].keys() & {"lane_rate", "bandwidth"}
    return {"bandwidth": found.bandwidth if known else None, "usable_bandwidth": found.usable, "latency": found.latency}


def _unknown(name: str) -> str:
    names = [*machine_entries(), *(part for kind in ("GPU", "link", "NIC", "switch") for part in parts(kind))]
    close = close_names(name, names)
    listed = "`ringlab hardware` lists all"
    if close:
        return f"{quote(name)} is not in the catalogue; did you mean {' or '.join(close)}? ({listed})"
    return f"{quote(name)} is not in the catalogue; {listed}; machines: {', '.join(machine_entries())}"


def _links(cluster: Cluster) -> tuple[Entry, ...]:
    """Return the cables of each sort: how many, line rate and usable bandwidth in bytes/s each way, latency."""
    edges = cluster.graph.edges(data=True)
    sorts = Counter((d.get("medium", ""), d["bandwidth"], d.get("usable_bandwidth"), d["latency"]) for _, _, d in edges)
    return tuple(
        {
            "medium": medium,
            "count": count // 2,
            "bandwidth": bandwidth if isfinite(bandwidth) else None,
            "usable_bandwidth": usable,
            "latency": latency,
        }
        for (medium, bandwidth, usable, latency), count in sorted(sorts.items(), key=lambda item: -item[0][1])
    )
