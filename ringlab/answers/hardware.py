"""The hardware catalogue as the command line shows it: all of it in tables, or one part with its sources."""

from collections import Counter
from collections.abc import Callable
from difflib import get_close_matches
from math import inf, isfinite
from pathlib import Path
from typing import Any

from rich.console import Console

import viz
from collectives.errors import InputError
from collectives.units import format_time
from ringlab.terminal.tables import NOTHING, table
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.parts import Figure, find_link, parts
from simcomm.cluster.presets import machine_entries, preset

GPU_COLUMNS = ("fp32", "tf32", "fp16", "memory", "memory_bandwidth", "pcie", "nvlink")
SPEED_COLUMNS = ("wire", "usable", "latency")

Shown = Callable[[dict[str, Any], Console], None]


def look_up(name: str | None, output: Path | None, nodes: int) -> tuple[dict[str, Any], Shown]:
    """The answer to one question about hardware, and what shows it; draws a machine into ``output``.

    Raises InputError.
    """
    if name is None:
        if output is not None:
            raise InputError(f"-o {output}: name the machine to draw; `ringlab hardware` lists them")
        return overview(), show_overview
    found = details(name)
    if output is not None:
        draw(name, output, nodes)
        found["file"] = str(output)
    return found, show_details


def overview() -> dict[str, Any]:
    """Everything that there is, by kind, without sources."""
    return {
        "schema_version": 1,
        "kind": "hardware",
        "machines": [
            {"name": name, "title": entry["title"], **_size(entry)} for name, entry in machine_entries().items()
        ],
        "gpus": [{"name": name, **_values(figures)} for name, figures in parts("GPU").items()],
        "links": [{"name": name, **_rates(name)} for name in parts("link")],
        "nics": [{"name": name, **_values(figures)} for name, figures in parts("NIC").items()],
        "switches": [{"name": name, **_values(figures)} for name, figures in parts("switch").items()],
    }


def _size(entry: dict[str, Any]) -> dict[str, Any]:
    return {"gpus": entry["gpus"], "gpu": entry["gpu"], "nics": entry.get("nics", 0), "nic": entry.get("nic", "")}


def _values(figures: dict[str, Figure]) -> dict[str, str]:
    return {quantity: figure.value for quantity, figure in figures.items()}


def _rates(link: str) -> dict[str, float | None]:
    """Bytes/s each way of one lane or link; on the wire only where a source says."""
    wire, known = find_link(link), parts("link")[link].keys() & {"lane_rate", "bandwidth"}
    return {"bandwidth": wire.bandwidth if known else None, "usable_bandwidth": wire.usable, "latency": wire.latency}


def details(name: str) -> dict[str, Any]:
    """One machine or part with the source of every figure; of a machine also its links, counted.

    Raises InputError that suggests a name.
    """
    start = {"schema_version": 1, "kind": "hardware", "name": name}
    if name in machine_entries():
        entry = machine_entries()[name]
        figures = [
            {"quantity": key, "value": str(entry[key]), "source": source} for key, source in entry["sources"].items()
        ]
        return start | {"title": entry["title"], "figures": figures, "links": _links(preset(name))}
    for kind in ("GPU", "link", "NIC", "switch"):
        if name in parts(kind):
            figures = [{"quantity": key, **figure._asdict()} for key, figure in parts(kind)[name].items()]
            return start | {"title": f"{kind} {name}", "figures": figures, "links": []}
    raise InputError(_unknown(name))


def _unknown(name: str) -> str:
    names = [*machine_entries(), *(part for kind in ("GPU", "link", "NIC", "switch") for part in parts(kind))]
    close = get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    machines = ", ".join(machine_entries())
    return f"{name!r} is not in the catalogue; {hint}`ringlab hardware` lists all; machines: {machines}"


def _links(cluster: Cluster) -> list[dict[str, Any]]:
    """Cables of each sort: how many, bytes/s each way on the wire and for software."""
    edges = cluster.graph.edges(data=True)
    sorts = Counter((d.get("medium", ""), d["bandwidth"], d.get("usable_bandwidth"), d["latency"]) for _, _, d in edges)
    return [
        {
            "medium": medium,
            "count": count // 2,
            "bandwidth": bandwidth if isfinite(bandwidth) else None,
            "usable_bandwidth": usable,
            "latency": latency,
        }
        for (medium, bandwidth, usable, latency), count in sorted(sorts.items(), key=lambda item: -item[0][1])
    ]


def draw(name: str, path: Path, nodes: int = 1) -> None:
    """Write a picture of ``nodes`` machines of this name. Raises InputError, also for what is no machine."""
    if name not in machine_entries():
        raise InputError(f"{name!r} is no machine, so it has no topology; there are {', '.join(machine_entries())}")
    cluster = preset(name, nodes)
    viz.draw_topology(cluster.graph, cluster.hosts, cluster.title, path)


def show_overview(found: dict[str, Any], console: Console) -> None:
    """All of it in tables."""
    rows = [[m["name"], m["title"], f"{m['gpus']} x {m['gpu']}", _nics(m)] for m in found["machines"]]
    console.print(table("Machines", ["name", "", "GPUs", "NICs"], rows, words=4))
    gpus = [[gpu["name"], *(gpu.get(column, NOTHING) for column in GPU_COLUMNS)] for gpu in found["gpus"]]
    headings = ["name", "FP32", "TF32", "FP16/BF16", "memory", "bandwidth", "PCIe", "NVLink"]
    console.print(table("GPUs: dense peak rates", headings, gpus, words=1))
    links = [[link["name"], *_speed(link)] for link in found["links"]]
    console.print(table("Links: GB/s each way, of one lane or link", ["name", *SPEED_COLUMNS], links, words=1))
    nics = [[nic["name"], nic["ports"], nic["port"], nic.get("pcie", NOTHING)] for nic in found["nics"]]
    console.print(table("NICs", ["name", "ports", "port", "PCIe"], nics, words=1))
    console.print("Each with its sources: `ringlab hardware NAME`; a machine's picture: add -o FILE.png.", markup=False)


def _nics(machine: dict[str, Any]) -> str:
    return f"{machine['nics']} x {machine['nic']}" if machine["nics"] else NOTHING


def _speed(link: dict[str, Any]) -> list[str]:
    latency = format_time(link["latency"]) if link["latency"] else NOTHING
    return [_rate(link["bandwidth"]), _rate(link["usable_bandwidth"]), latency]


def _rate(bytes_per_second: float | None) -> str:
    return f"{bytes_per_second / 1e9:.4g}" if bytes_per_second and bytes_per_second < inf else NOTHING


def show_details(found: dict[str, Any], console: Console) -> None:
    """One part: its figures with their sources, and its links."""
    rows = [[figure["quantity"], figure["value"], figure["source"]] for figure in found["figures"]]
    console.print(table(found["title"], ["", "", "source"], rows, words=3))
    links = [[link["medium"], str(link["count"]), *_speed(link)] for link in found["links"]]
    if links:
        console.print(table("Links: GB/s each way", ["", "number", *SPEED_COLUMNS], links, words=1))
        console.print(f'In a scenario: preset = "{found["name"]}"', markup=False)
    if "file" in found:
        console.print(f"{found['title']}: {found['file']}", markup=False, soft_wrap=True)
