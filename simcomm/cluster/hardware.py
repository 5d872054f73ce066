"""Read the hardware catalog: GPUs, links, NICs, switches, GPU generations and networks, and machines built from them.

The files in ``simcomm/cluster/catalogue`` contain the values, each with its source.
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
from collectives.quoting import quote, suggest
from collectives.transport import Transport
from collectives.units import Bandwidth, Latency, format_bandwidth, parse_bandwidth, parse_latency
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.graph import LinkSpec
from simcomm.cluster.machines import Machine, add_cube_mesh, add_nvlink_pairs, add_nvswitch, on_one_switch, on_rails

TABLES = {
    "GPU": "gpus.csv", "link": "links.csv", "NIC": "nics.csv", "switch": "switches.csv",
    "generation": "generations.csv", "network": "networks.csv",
}  # fmt: skip


class Figure(NamedTuple):
    """A value with its unit, and the source that states it."""

    value: str
    source: str


Part = Mapping[str, Figure]  # figures of one part by quantity
Entry = TypeVar("Entry")


@cache
def parts(kind: str) -> dict[str, dict[str, Figure]]:
    """Return all entries of one table of the catalog, by name. ``kind`` is a key of ``TABLES``.

    A GPU also has the properties of its board.

    >>> parts("GPU")["V100 SXM2 16GB"]["nvlink"].value
    'NVLink 2 x6'
    """
    with (catalogue_folder() / TABLES[kind]).open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    table: dict[str, dict[str, Figure]] = {}
    for name, quantity, value, source in rows:
        table.setdefault(name, {})[quantity] = Figure(value, source)
    boards = {name: table[figures["board"].value] if "board" in figures else {} for name, figures in table.items()}
    return {name: {**boards[name], **figures} for name, figures in table.items()}


def memory_bytes(gpu: str) -> float | None:
    """Return the memory of a GPU in bytes, or None if unknown. Raise InputError for an unknown GPU.

    Data sheets write GB of memory where they mean GiB: ``nvidia-smi`` shows 81,920 MiB for an A100 of 80 GB, 81,559 for
    an H100 of 80 GB and 24,564 for an RTX 4090 of 24 GB. (A GB of bandwidth is 10^9 bytes.)

    >>> memory_bytes("A100 80GB SXM") / 2**20
    81920.0
    """
    figures = find_part("GPU", gpu)
    return float(figures["memory"].value.split()[0]) * 2**30 if "memory" in figures else None


def catalogue_folder() -> Any:
    return files("simcomm.cluster") / "catalogue"


def find_part(kind: str, name: str) -> dict[str, Figure]:
    """Return the properties of one part. For an unknown name, raise an InputError that suggests a similar name."""
    return find_entry(parts(kind), kind, name)


def find_entry(known: Mapping[str, Entry], kind: str, name: str) -> Entry:
    """Return the entry with this name. For an unknown name, raise an InputError that suggests one from ``known``."""
    if isinstance(name, str) and name in known:
        return known[name]
    raise InputError(f"{kind} {quote(name)} is not in the catalog; {suggest(str(name), known)}")


def find_link(name: str) -> LinkSpec:
    """Return a link from the catalog. "PCIe 4.0 x16" has 16 lanes, and "NVLink 4 x18" is 18 links.

    The bandwidth is the line rate: lane rate times lanes times encoding efficiency, or the rate that the catalog
    states. If the line rate is unknown, the usable bandwidth is used. An unknown latency counts as zero. Raise
    InputError if the catalog does not contain the link.

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
    if "lane_rate" in figures:
        encoding = Fraction(figures["encoding"].value) if "encoding" in figures else 1
        return float(parse_bandwidth(figures["lane_rate"].value) * int(figures["lanes"].value) * encoding)
    return parse_bandwidth(figures["bandwidth"].value) if "bandwidth" in figures else None


def _usable_rate(figures: Part) -> float | None:
    if "usable_bandwidth" in figures:
        return parse_bandwidth(figures["usable_bandwidth"].value)
    rate = _line_rate(figures)
    return rate * float(Fraction(figures["usable_share"].value)) if rate and "usable_share" in figures else None


@cache
def machine_entries() -> dict[str, dict[str, Any]]:
    """Return the catalog's machines, by name."""
    return tomllib.loads((catalogue_folder() / "machines.toml").read_text(encoding="utf-8"))


def find_machine(name: str) -> Machine:
    """Return a machine from the catalog. For an unknown name, raise an InputError that suggests a similar name."""
    entry = find_entry(machine_entries(), "machine", name)
    gpu = find_part("GPU", entry["gpu"])
    half = _half_switch_latency(entry)
    network_card = find_part("NIC", entry["nic"]) if "nic" in entry else {}
    nic_pcie = network_card.get("pcie") or gpu["pcie"]
    return Machine(
        entry["title"],
        entry["gpus"],
        _with_delay(find_link(entry.get("gpu_pcie", gpu["pcie"].value)), half),
        sockets=entry["sockets"],
        boards=entry.get("boards", 1),
        pcie_switches=entry.get("pcie_switches", 0),
        uplink=_with_delay(find_link(entry["uplink"]), half) if "uplink" in entry else None,
        socket=find_link(entry["socket_link"]) if "socket_link" in entry else None,
        nics=entry.get("nics", 0),
        nic_pcie=_with_delay(find_link(nic_pcie.value), 0.0 if entry.get("nics_on_cpu") else half),
        nics_on_cpu=entry.get("nics_on_cpu", False),
        nic=_network_port(network_card) if network_card else None,
        nvlinks=NVLINKS[entry["nvlink"]](gpu["nvlink"].value) if "nvlink" in entry else None,
        p2p_level=gpu["p2p_level"].value if "p2p_level" in gpu else "SYS",
    )


def _half_switch_latency(entry: Mapping[str, Any]) -> float:
    """Return half the latency of a machine's PCIe switch in seconds, or 0 if the latency is unknown."""
    model = find_part("switch", entry["pcie_switch"]) if "pcie_switch" in entry else {}
    return parse_latency(model["latency"].value) / 2 if "latency" in model else 0.0


def _with_delay(link: LinkSpec, seconds: float) -> LinkSpec:
    return link._replace(latency=link.latency + seconds)


def _network_port(network_card: Part) -> LinkSpec:
    """Return one link that combines all ports of a NIC, because messages spread over them."""
    ports, name = int(network_card["ports"].value), network_card["port"].value
    return find_link(name if ports == 1 else f"{name} x{ports}")


def _nvswitch_by(links: str) -> Callable[..., None]:
    link = find_link(links)  # the catalog's latency is from GPU to GPU, which crosses two of these links
    return partial(add_nvswitch, link=link._replace(latency=link.latency / 2))


def _pairs_by(links: str) -> Callable[..., None]:
    return partial(add_nvlink_pairs, link=find_link(links))


def _mesh_by(links: str) -> Callable[..., None]:
    generation, _, bricks = links.rpartition(" x")
    return partial(add_cube_mesh, brick=find_link(generation), bricks=int(bricks))


NVLINKS = {"switch": _nvswitch_by, "pairs": _pairs_by, "cube-mesh": _mesh_by}


def preset(
    name: str,
    nodes: int = 1,
    gpus_per_node: int | None = None,
    *,
    bandwidth: str | Bandwidth | None = None,
    latency: str | Latency | None = None,
    nodes_per_leaf: int | None = None,
    oversubscription: float | None = None,
    transport: Transport | None = IDEAL,
) -> Cluster:
    """Build a cluster of ``nodes`` catalog machines, with a rank on each of their first ``gpus_per_node`` GPUs.

    ``gpus_per_node`` defaults to all GPUs. The catalog defines the network. ``bandwidth`` and ``latency`` replace those
    of each NIC port. If both are set, a machine without a NIC gets one. ``nodes_per_leaf`` and ``oversubscription``
    require a rail-optimized machine; see ``on_rails``. Raise InputError if an argument does not apply to the machine.

    >>> preset("dgx-h100", nodes=2)
    <Cluster 2 x NVIDIA DGX H100: 16 ranks, 68 nodes, 204 links>
    """
    machine = _with_port(
        find_machine(name),
        None if bandwidth is None else parse_bandwidth(bandwidth),
        None if latency is None else parse_latency(latency),
    )
    if machine_entries()[name].get("network") == "rails":
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
        raise InputError(f"{name} has no rail-optimized network; remove nodes_per_leaf and oversubscription")
    return on_one_switch(machine, nodes, gpus_per_node, transport)


def _with_port(machine: Machine, bandwidth: float | None, latency: float | None) -> Machine:
    if bandwidth is None and latency is None:
        return machine
    if machine.nic is None and (bandwidth is None or latency is None):
        raise InputError(f"the NIC of {machine.title} is unknown; set both bandwidth and latency")
    port = machine.nic or LinkSpec()
    if bandwidth is not None:
        port = LinkSpec(bandwidth, port.latency, f"NIC of {format_bandwidth(bandwidth)}")
    if latency is not None:
        port = port._replace(latency=latency)
    return replace(machine, nic=port, nics=machine.nics or 1, nics_on_cpu=machine.nics_on_cpu or not machine.nics)
