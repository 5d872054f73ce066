"""The hardware catalogue's tables of parts: GPUs, links, NICs, switches, GPU generations and networks, with sources.

The figures are data, in ``simcomm/cluster/catalogue``; this module reads them.
"""

import csv
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar

from collectives.errors import InputError
from collectives.quoting import quote, suggest
from collectives.units import parse_bandwidth, parse_latency
from simcomm.cluster.graph import LinkSpec

TABLES = {
    "GPU": "gpus.csv", "link": "links.csv", "NIC": "nics.csv", "switch": "switches.csv",
    "generation": "generations.csv", "network": "networks.csv",
}  # fmt: skip


class Figure(NamedTuple):
    """A number with its unit, and the source that states it."""

    value: str
    source: str


Part = Mapping[str, Figure]  # figures of one part by quantity
Entry = TypeVar("Entry")


@cache
def parts(kind: str) -> dict[str, dict[str, Figure]]:
    """Return all parts of a kind in ``TABLES``, in the order of the table. A GPU also has the figures of its board.

    >>> parts("GPU")["V100 SXM2 16GB"]["nvlink"].value
    'NVLink 2 x6'
    """
    with (catalogue_folder() / TABLES[kind]).open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    found: dict[str, dict[str, Figure]] = {}
    for name, quantity, value, source in rows:
        found.setdefault(name, {})[quantity] = Figure(value, source)
    return {name: {**_of_board(found, figures), **figures} for name, figures in found.items()}


def memory_bytes(gpu: str) -> float | None:
    """Return the bytes of a GPU's memory, None where the catalogue does not say them. Raise InputError for no GPU.

    What data sheets call a GB of memory is a GiB: ``nvidia-smi`` shows 81,920 MiB of an A100 of 80 GB, 81,559 of an
    H100 of 80 GB and 24,564 of an RTX 4090 of 24 GB. (A GB of a bandwidth is 10^9 bytes.)

    >>> memory_bytes("A100 80GB SXM") / 2**20
    81920.0
    """
    figures = find_part("GPU", gpu)
    return float(figures["memory"].value.split()[0]) * 2**30 if "memory" in figures else None


def _of_board(found: Mapping[str, Part], figures: Part) -> Part:
    """Return the figures that GPUs with the same board share, for example those of an A100 with 40 and with 80 GB."""
    return found[figures["board"].value] if "board" in figures else {}


def catalogue_folder() -> Any:
    """Return the folder of the catalogue's files."""
    return files("simcomm.cluster") / "catalogue"


def find_part(kind: str, name: str) -> dict[str, Figure]:
    """Return the figures of one part. Raise InputError that suggests a name."""
    return find_entry(parts(kind), kind, name)


def find_entry(known: Mapping[str, Entry], what: str, name: str) -> Entry:
    """Return the entry of this name. Raise InputError that suggests one of those ``known``."""
    if isinstance(name, str) and name in known:
        return known[name]
    raise InputError(f"{what} {quote(name)} is not in the catalogue; {suggest(str(name), known)}")


def find_link(name: str) -> LinkSpec:
    """Return a link of the catalogue; ``"PCIe 4.0 x16"`` and ``"NVLink 4 x18"`` are that many lanes or links.

    The bandwidth is lane rate times lanes times the encoding's share, or as stated; where only what software gets is
    known, that. A latency that no source states counts as none. Raises InputError.

    >>> find_link("PCIe 4.0 x16").bandwidth
    31507692307.69231
    """
    base, _, count = name.rpartition(" x")
    single, times = (name, 1) if name in parts("link") else (base, int(count) if count.isdecimal() else 0)
    if single not in parts("link") or times < 1:
        find_entry(parts("link"), "link", name)
    figures = parts("link")[single]
    line_rate, usable = _line_rate(figures), _usable_rate(figures)
    latency = parse_latency(figures["latency"].value) if "latency" in figures else 0.0
    bandwidth = line_rate if line_rate is not None else usable
    assert bandwidth is not None, f"{single} has no rate"
    return LinkSpec(bandwidth, latency, name, usable).times(times)


def _line_rate(figures: Part) -> float | None:
    """Return the bytes/s in each direction on the line, or None where no source says."""
    if "lane_rate" in figures:
        encoding = Fraction(figures["encoding"].value) if "encoding" in figures else 1
        return float(parse_bandwidth(figures["lane_rate"].value) * int(figures["lanes"].value) * encoding)
    return parse_bandwidth(figures["bandwidth"].value) if "bandwidth" in figures else None


def _usable_rate(figures: Part) -> float | None:
    """Return the bytes/s that software gets, or None where no source says."""
    if "usable_bandwidth" in figures:
        return parse_bandwidth(figures["usable_bandwidth"].value)
    rate = _line_rate(figures)
    return rate * float(Fraction(figures["usable_share"].value)) if rate and "usable_share" in figures else None
