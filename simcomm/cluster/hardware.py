"""The hardware catalogue: GPUs, links, NICs, switches and ready-made machines, every figure with its source.

The figures are data, in ``simcomm/catalogue``; this module reads them and builds machines of them.
"""

import csv
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar

from collectives.errors import InputError
from collectives.suggestions import suggest
from collectives.transport import Transport
from collectives.units import parse_bandwidth, parse_latency
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.graph import Wire
from simcomm.cluster.machines import Machine, all_to_switch, in_cube_mesh, in_pairs
from simcomm.cluster.racks import on_one_switch, on_rails

TABLES = {"GPU": "gpus.csv", "link": "links.csv", "NIC": "nics.csv", "switch": "switches.csv"}


class Figure(NamedTuple):
    """What a source says, with its unit."""

    value: str
    source: str


Part = Mapping[str, Figure]  # figures of one part by quantity
Entry = TypeVar("Entry")


@cache
def parts(kind: str) -> dict[str, dict[str, Figure]]:
    """All parts of a kind in ``TABLES``, in the order of the table."""
    with (_folder() / TABLES[kind]).open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    found: dict[str, dict[str, Figure]] = {}
    for name, quantity, value, source in rows:
        found.setdefault(name, {})[quantity] = Figure(value, source)
    return found


@cache
def machines() -> dict[str, dict[str, Any]]:
    """The entries of the ready-made machines by name, as their file says."""
    return tomllib.loads((_folder() / "machines.toml").read_text(encoding="utf-8"))


def _folder() -> Any:
    return files("simcomm.cluster") / "catalogue"


def find_part(kind: str, name: str) -> dict[str, Figure]:
    """One part. Raises InputError that suggests a name."""
    return _entry(parts(kind), kind, name)


def _entry(known: Mapping[str, Entry], what: str, name: str) -> Entry:
    if name in known:
        return known[name]
    raise InputError(f"{what} {name!r} is not in the catalogue; {suggest(name, known)}")


def find_wire(name: str) -> Wire:
    """A link as the catalogue knows it; ``"PCIe 4.0 x16"`` and ``"NVLink 4 x18"`` are that many lanes or links.

    The bandwidth is lane rate times lanes times the encoding's share, or as stated; where only what software gets is
    known, that. A latency that no source states counts as none. Raises InputError.
    """
    base, _, count = name.rpartition(" x")
    single, times = (name, 1) if name in parts("link") else (base, int(count) if count.isdecimal() else 0)
    if single not in parts("link") or times < 1:
        _entry(parts("link"), "link", name)
    figures = parts("link")[single]
    bandwidth, usable = _rate(figures), _usable(figures)
    latency = parse_latency(figures["latency"].value) if "latency" in figures else 0.0
    width = bandwidth if bandwidth is not None else usable
    assert width is not None, f"{single} has no rate"
    return Wire(width, latency, name, usable).times(times)


def _rate(figures: Part) -> float | None:
    """Bytes/s in each direction on the wire, or None where no source says."""
    if "lane_rate" in figures:
        encoding = Fraction(figures["encoding"].value) if "encoding" in figures else 1
        return float(parse_bandwidth(figures["lane_rate"].value) * int(figures["lanes"].value) * encoding)
    return parse_bandwidth(figures["bandwidth"].value) if "bandwidth" in figures else None


def _usable(figures: Part) -> float | None:
    if "usable_bandwidth" in figures:
        return parse_bandwidth(figures["usable_bandwidth"].value)
    rate = _rate(figures)
    return rate * float(Fraction(figures["usable_share"].value)) if rate and "usable_share" in figures else None


def find_machine(name: str) -> Machine:
    """A ready-made machine with the figures of its parts. Raises InputError that suggests a name."""
    entry = _entry(machines(), "machine", name)
    gpu = find_part("GPU", entry["gpu"])
    half = _half_of_a_switch(entry)
    network_card = find_part("NIC", entry["nic"]) if "nic" in entry else {}
    nic_pcie = network_card.get("pcie") or gpu["pcie"]
    return Machine(
        entry["title"],
        entry["gpus"],
        _later(find_wire(entry.get("gpu_pcie", gpu["pcie"].value)), half),
        sockets=entry["sockets"],
        boards=entry.get("boards", 1),
        pcie_switches=entry.get("pcie_switches", 0),
        uplink=_later(find_wire(entry["uplink"]), half) if "uplink" in entry else None,
        socket=find_wire(entry["socket_link"]) if "socket_link" in entry else None,
        nics=entry.get("nics", 0),
        nic_pcie=_later(find_wire(nic_pcie.value), 0.0 if entry.get("nics_on_cpu") else half),
        nics_on_cpu=entry.get("nics_on_cpu", False),
        nic=_port(network_card) if network_card else None,
        nvlinks=NVLINKS[entry["nvlink"]](gpu["nvlink"].value) if "nvlink" in entry else None,
        p2p_level=gpu["p2p_level"].value if "p2p_level" in gpu else "SYS",
    )


def _half_of_a_switch(entry: Mapping[str, Any]) -> float:
    """Seconds of a PCIe switch's latency that each of the two links of a way through it bears."""
    model = find_part("switch", entry["pcie_switch"]) if "pcie_switch" in entry else {}
    return parse_latency(model["latency"].value) / 2 if "latency" in model else 0.0


def _later(wire: Wire, seconds: float) -> Wire:
    return wire._replace(latency=wire.latency + seconds)


def _port(network_card: Part) -> Wire:
    """All ports of a NIC together, as messages are spread over them."""
    ports = int(network_card["ports"].value)
    name = network_card["port"].value
    return find_wire(name if ports == 1 else f"{name} x{ports}")


def _switch(links: str) -> Callable[..., None]:
    along = find_wire(links)  # the catalogue's latency is from GPU to GPU, which here is by two links
    return partial(all_to_switch, along=along._replace(latency=along.latency / 2))


def _pairs(links: str) -> Callable[..., None]:
    return partial(in_pairs, along=find_wire(links))


def _mesh(links: str) -> Callable[..., None]:
    generation, _, bricks = links.rpartition(" x")
    return partial(in_cube_mesh, brick=find_wire(generation), bricks=int(bricks))


NVLINKS = {"switch": _switch, "pairs": _pairs, "cube-mesh": _mesh}


def preset(
    name: str,
    nodes: int = 1,
    gpus_per_node: int | None = None,
    *,
    bandwidth: str | None = None,
    latency: str | None = None,
    nodes_per_leaf: int | None = None,
    oversubscription: float | None = None,
    transport: Transport | None = IDEAL,
) -> Cluster:
    """``nodes`` ready-made machines, a rank on each of their first ``gpus_per_node`` GPUs (all, unless said).

    They are joined as the catalogue says. ``bandwidth`` and ``latency`` replace what it says of each NIC's port; a
    machine without NICs gets one by them. ``nodes_per_leaf`` and ``oversubscription`` are of rails; see
    ``simcomm.cluster.racks.on_rails``. Raises InputError.
    """
    machine = _with_port(find_machine(name), bandwidth, latency)
    if machines()[name].get("network") == "rails":
        ratio = 1.0 if oversubscription is None else oversubscription
        return on_rails(
            machine,
            nodes,
            gpus_per_node,
            nodes_per_leaf=nodes_per_leaf,
            oversubscription=ratio,
            transport=transport,
        )
    if nodes_per_leaf is not None or oversubscription is not None:
        raise InputError(f"several {name} are joined by one switch; nodes_per_leaf and oversubscription are of rails")
    return on_one_switch(machine, nodes, gpus_per_node, transport)


def _with_port(machine: Machine, bandwidth: str | None, latency: str | None) -> Machine:
    if bandwidth is None and latency is None:
        return machine
    if machine.nic is None and (bandwidth is None or latency is None):
        raise InputError(f"nothing is known of a NIC of {machine.title}; give both its bandwidth and its latency")
    port = machine.nic or Wire()
    if bandwidth is not None:
        port = Wire(parse_bandwidth(bandwidth), port.latency, f"NIC of {bandwidth}")
    if latency is not None:
        port = port._replace(latency=parse_latency(latency))
    return replace(machine, nic=port, nics=machine.nics or 1, nics_on_cpu=machine.nics_on_cpu or not machine.nics)
