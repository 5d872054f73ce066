"""The tables of ``hardware``: all of the catalogue, or one part with its sources."""

from math import inf

from rich.console import Console

from collectives.units import format_time
from ringlab.answers.hardware_parts import Entry, HardwareCatalogue, HardwarePart
from ringlab.table import NOTHING, make_table

GPU_COLUMNS = ("fp32", "tf32", "fp16", "memory", "memory_bandwidth", "pcie", "nvlink")
SPEED_COLUMNS = ("line rate", "usable", "latency")


def show_hardware(answer: HardwareCatalogue | HardwarePart, console: Console) -> None:
    """Print the catalogue, or one part of it."""
    if isinstance(answer, HardwarePart):
        _show_part(answer, console)
    else:
        _show_catalogue(answer, console)


def _show_catalogue(answer: HardwareCatalogue, console: Console) -> None:
    rows = [[m["name"], m["title"], f"{m['gpus']} x {m['gpu']}", _nics(m)] for m in answer.machines]
    console.print(make_table("Machines", ["name", "", "GPUs", "NICs"], rows, words=4))
    gpus = [[gpu["name"], *(gpu.get(column, NOTHING) for column in GPU_COLUMNS)] for gpu in answer.gpus]
    headings = ["name", "FP32", "TF32", "FP16/BF16", "memory", "bandwidth", "PCIe", "NVLink"]
    console.print(make_table("GPUs: dense peak rates", headings, gpus, words=1))
    links = [[link["name"], *_speed(link)] for link in answer.links]
    console.print(make_table("Links: GB/s each way, of one lane or link", ["name", *SPEED_COLUMNS], links, words=1))
    nics = [[nic["name"], nic["ports"], nic["port"], nic.get("pcie", NOTHING)] for nic in answer.nics]
    console.print(make_table("NICs", ["name", "ports", "port", "PCIe"], nics, words=1))
    ages = [[one["name"], one["year"], one.get("port", NOTHING)] for one in answer.generations]
    console.print(make_table("GPU generations", ["name", "year", "usual NIC"], ages, words=1))
    nets = [[net["name"], net["title"], net["gbit_per_nic"]] for net in answer.networks]
    console.print(make_table("Networks of one kind of NIC", ["name", "", "Gbit/s a NIC"], nets, words=2))
    console.print("Each with its sources: `ringlab hardware NAME`; a machine's picture: add -o FILE.png.")


def _show_part(answer: HardwarePart, console: Console) -> None:
    rows = [[figure["quantity"], figure["value"], figure["source"]] for figure in answer.figures]
    console.print(make_table(answer.title, ["", "", "source"], rows, words=3))
    links = [[link["medium"], str(link["count"]), *_speed(link)] for link in answer.links]
    if links:
        console.print(make_table("Links: GB/s each way", ["", "number", *SPEED_COLUMNS], links, words=1))
        console.print(f'In a scenario: preset = "{answer.name}"')
    if answer.file:
        console.print(f"{answer.title}: {answer.file}", soft_wrap=True)


def _nics(machine: Entry) -> str:
    return f"{machine['nics']} x {machine['nic']}" if machine["nics"] else NOTHING


def _speed(link: Entry) -> list[str]:
    latency = format_time(link["latency"]) if link["latency"] else NOTHING
    return [_rate(link["bandwidth"]), _rate(link["usable_bandwidth"]), latency]


def _rate(bytes_per_second: float | None) -> str:
    return f"{bytes_per_second / 1e9:.4g}" if bytes_per_second and bytes_per_second < inf else NOTHING
