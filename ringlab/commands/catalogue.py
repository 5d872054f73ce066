"""``ringlab list``: list algorithms, presets, models and scenarios, or the hardware catalog with its sources."""

import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from math import isfinite
from typing import Annotated, Any

import typer

from collectives.catalogue import library
from collectives.checks import check_text
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.quoting import close_names, quote, suggest
from collectives.records.model_profile import find_model_profile, shipped_model_profiles
from collectives.units import format_time
from collectives.verdict import differs_from
from ringlab.shared.answer import Answer, AnswerRecord
from ringlab.shared.options import JsonOpt
from ringlab.shared.output import check_outputs, deliver
from ringlab.table import NOTHING, Part, Table
from scenarios import shipped
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.hardware import TABLES, find_link, machine_entries, parts, preset

PRESETS = {"this-machine": "processes on this machine that communicate through memory; requires a calibration"}
Entry = dict[str, Any]
KINDS = {"gpus": "GPU", "nics": "NIC", "switches": "switch", "generations": "generation", "networks": "network"}
TITLES = {"gpus": "GPUs: dense peak rates", "links": "Links: GB/s per direction of one lane or link", "nics": "NICs"}


def list_command(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[algorithms|presets|models|scenarios|hardware]",
            help="Category to list. Default: all except hardware.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="With `hardware`: machine, GPU, link or NIC to show.")
    ] = None,
    json_to: JsonOpt = None,
) -> None:
    """List algorithms, machine presets, models and scenarios, or the hardware catalog with its sources."""
    check_outputs(json_to)
    if kind != "hardware" and name is not None:
        raise InputError(f"list {kind} {quote(name)}: only hardware can be listed by name; omit the name")
    deliver(hardware(name) if kind == "hardware" else list_names(kind), json_to)


@dataclass(frozen=True)
class Name(AnswerRecord):
    """An entry of ``ringlab list``: an algorithm, preset, model or scenario, with a one-line description."""

    name: str
    about: str


@dataclass(frozen=True, repr=False)
class Names(Answer):
    """The result of ``ringlab list``."""

    kind = "names"

    algorithms: tuple[Name, ...]
    presets: tuple[Name, ...]
    models: tuple[Name, ...]
    scenarios: tuple[Name, ...]

    def show(self) -> Iterator[Part]:
        for collective, names in groupby(self.algorithms, lambda each: each.name.partition("/")[0]):
            rows = [[name.name, name.about.partition(". ")[2] or name.about] for name in names]
            yield Table(f"Algorithms of {collective}", ["name", "about"], rows, words=2)
        for part in fields(self)[1:]:
            if names := getattr(self, part.name):
                rows = [[name.name, name.about] for name in names]
                yield Table(part.name.capitalize(), ["name", "about"], rows, words=2)
        yield "Use: `ringlab check NAME`, `ringlab profile NAME`, `ringlab predict NAME`."
        yield "`ringlab list hardware` shows machines, GPUs, links and NICs."


def list_names(kind: str | None = None) -> Names:
    """Return all built-in algorithms, presets, models and scenarios with one-line descriptions.

    ``kind``, such as "models", selects one category. Algorithms are described by their docstrings, models by their
    parameter counts, presets and scenarios by their titles. Raises InputError for an unknown category.

    >>> names = list_names()
    >>> [each.name for each in names.scenarios][:3], names.models[0].about
    (['dgx-h100', 'faults', 'quickstart'], '61.1 million parameters')
    """
    machines = {name: entry["title"] for name, entry in machine_entries().items()}
    sizes = {name: find_model_profile(name).parameters for name in shipped_model_profiles()}
    names = Names(
        algorithms=tuple(Name(name, _about(names)) for name, names in sorted(library().items())),
        presets=tuple(Name(name, about) for name, about in (PRESETS | machines).items()),
        models=tuple(Name(name, f"{_in_words(size)} parameters") for name, size in sizes.items()),
        scenarios=tuple(Name(name, tomllib.loads(path.read_text())["title"]) for name, path in shipped().items()),
    )
    kinds = [part.name for part in fields(names)]
    if kind is None:
        return names
    if check_text("kind", kind, "models") not in kinds:
        raise InputError(f"unknown category {quote(kind)}; {suggest(kind, [*kinds, 'hardware'])}")
    return replace(names, **{other: () for other in kinds if other != kind})


@dataclass(frozen=True, repr=False)
class HardwareCatalog(Answer):
    """The result of ``ringlab list hardware``: the whole catalog by category, without the sources of its values."""

    kind = "hardware"

    machines: tuple[Entry, ...]
    gpus: tuple[Entry, ...]
    links: tuple[Entry, ...]  # bytes/s per direction of one lane or link, latency in seconds
    nics: tuple[Entry, ...]
    switches: tuple[Entry, ...]
    generations: tuple[Entry, ...]  # GPU generations
    networks: tuple[Entry, ...]  # by their names in system descriptions

    def show(self) -> Iterator[Part]:
        for part in fields(self):
            yield _table(TITLES.get(part.name, part.name.capitalize()), getattr(self, part.name))
        yield "`ringlab list hardware NAME` shows the sources."


@dataclass(frozen=True, repr=False)
class HardwarePart(Answer):
    """The result of ``ringlab list hardware NAME``: the values of one machine or part with their sources."""

    kind = "hardware"

    name: str
    title: str
    figures: tuple[Entry, ...]
    links: tuple[Entry, ...]

    def show(self) -> Iterator[Part]:
        rows = [[figure["quantity"], figure["value"], figure["source"]] for figure in self.figures]
        yield Table(self.title, ["", "", "source"], rows, words=3)
        if self.links:
            yield _table("Links: GB/s per direction", self.links)
            yield f'In a scenario: preset = "{self.name}"'


def hardware(name: str | None = None) -> HardwareCatalog | HardwarePart:
    """Return the hardware catalog. If ``name`` is set, return only this entry. Raise InputError for an unknown name.

    >>> hardware("dgx-h100").title
    'NVIDIA DGX H100'
    """
    if name is not None:
        return hardware_part(name)
    usual, keys = {"nics": 0, "nic": ""}, ("title", "gpus", "gpu", "nics", "nic")
    return HardwareCatalog(
        machines=tuple(
            {"name": name} | {key: (usual | entry)[key] for key in keys} for name, entry in machine_entries().items()
        ),
        links=tuple(map(_link, parts("link"))),
        **{field: _entries(kind) for field, kind in KINDS.items()},
    )


def _entries(kind: str) -> tuple[Entry, ...]:
    entries = parts(kind).items()
    return tuple({"name": name} | {key: figure.value for key, figure in figures.items()} for name, figures in entries)


def hardware_part(name: str) -> HardwarePart:
    """Return one machine or part with the source of each value. Raise InputError for an unknown name."""
    check_text("name", name, "dgx-h100")
    if name in machine_entries():
        entry = machine_entries()[name]
        figures = tuple(
            {"quantity": key, "value": str(entry[key]), "source": source} for key, source in entry["sources"].items()
        )
        return HardwarePart(name, entry["title"], figures, _cables(preset(name)))
    for kind in TABLES:
        if name in parts(kind):
            figures = tuple({"quantity": key, **figure._asdict()} for key, figure in parts(kind)[name].items())
            return HardwarePart(name, f"{kind} {name}", figures, ())
    names = [*machine_entries(), *(part for kind in ("GPU", "link", "NIC", "switch") for part in parts(kind))]
    if close := close_names(name, names):
        hint = f"did you mean {' or '.join(close)}? (`ringlab list hardware` lists all)"
    else:
        hint = f"`ringlab list hardware` lists all; machines: {', '.join(machine_entries())}"
    raise InputError(f"{quote(name)} is not in the hardware catalog; {hint}")


def _about(algorithm: Algorithm) -> str:
    about, fewest = (algorithm.function.__doc__ or "").partition("\n")[0], differs_from(algorithm)
    return about if fewest is None else f"{about} From {fewest} ranks on, floats differ between ranks."


def _link(name: str) -> Entry:
    link, is_known = find_link(name), bool(parts("link")[name].keys() & {"lane_rate", "bandwidth"})
    return {
        "name": name,
        "bandwidth": link.bandwidth if is_known else None,
        "usable_bandwidth": link.usable,
        "latency": link.latency,
    }


def _cables(cluster: Cluster) -> tuple[Entry, ...]:
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


def _in_words(number: float) -> str:
    """Return a large number in millions or billions, such as "1.5 billion"."""
    return f"{number / 1e9:.4g} billion" if number >= 1e9 else f"{number / 1e6:.4g} million"


def _table(title: str, entries: Sequence[Entry]) -> Table:
    """Return a table with a row per entry. A key becomes a column if at least half of the entries have it."""
    numbers = Counter(key for entry in entries for key in entry)
    keys = [key for key, number in numbers.items() if 2 * number >= len(entries)]
    rows = [[_show(key, entry.get(key)) for key in keys] for entry in entries]
    return Table(title, [key.replace("_", " ") for key in keys], rows, words=1 + ("title" in keys))


def _show(key: str, value: Any) -> str:
    if isinstance(value, float) and value:
        return format_time(value) if key == "latency" else f"{value / 1e9:.4g}"
    return str(value or NOTHING)
