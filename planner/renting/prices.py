"""Read instance types and their prices, in dollars an hour, from a price list.

The built-in list, ``prices.csv``, has the columns of SkyPilot's catalog and eight more columns. A row has the date that
its source states, or the earliest possible date if the source states none.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import cache
from math import ceil, inf
from pathlib import Path

from collectives.checks import MOST_RANKS
from collectives.errors import InputError
from collectives.input_files import FileBytes, read_text
from collectives.quoting import quote, suggest
from collectives.units import count
from simcomm.cluster.hardware import find_entry, find_link, find_part, machine_entries, parts
from simcomm.nccl.descriptions import GB, System, describe_preset

COLUMNS = (  # SkyPilot's, then ours
    "InstanceType", "vCPUs", "MemoryGiB", "AcceleratorName", "AcceleratorCount", "GpuInfo", "Price", "SpotPrice",
    "Region", "Provider", "Gpu", "Machine", "Interconnect", "P2P", "NicGbps", "Date", "Source",
)  # fmt: skip
BUILT_IN = Path(__file__).parent / "prices.csv"
INTERCONNECTS = ("NVSwitch", "NVLink mesh", "NVLink pairs", "PCIe")
OF_MACHINES = {"switch": "NVSwitch", "cube-mesh": "NVLink mesh", "pairs": "NVLink pairs"}
LIKE_LINKS = {"nvswitch": "NVSwitch", "mesh": "NVLink mesh", "bridge": "NVLink pairs", "pcie": "PCIe"}
NOT_SOLD = ("0", "0.0", "0.00")  # as SkyPilot's fetchers write it
SAME_RATE = 0.99  # share of a NIC rate that counts as equal
OLD_AFTER_DAYS = 90  # GPU prices have halved within a year


@dataclass(frozen=True)
class InstanceType:
    """A type of machine that a provider sells by the hour. Prices are in dollars an hour for the whole machine."""

    instance: str
    provider: str
    region: str
    gpu: str  # its name in the hardware catalog
    gpus: int
    cores: float | None  # virtual cores
    price: float | None  # on-demand price; None: not sold on demand
    spot_price: float | None  # None: unknown
    interconnect: str  # one of INTERCONNECTS; "" for a single GPU
    peer_to_peer: bool  # whether GPUs can access each other's memory
    nic_bandwidth: float | None  # bytes/s of all NICs; None: unknown, so only one node is offered
    dated: date
    source: str
    machine: str | None = None  # its name in the hardware catalog

    @property
    def name(self) -> str:
        """The provider and the instance type, such as "AWS p3.2xlarge"."""
        return f"{self.provider} {self.instance}"

    @property
    def gpu_price(self) -> float:
        """The on-demand price of one GPU in dollars an hour, or 0 if the instance type is not sold on demand."""
        return (self.price or 0.0) / self.gpus


def read_prices(path: Path | str | None = None) -> tuple[InstanceType, ...]:
    """Return the instance types of a price list. Default: the built-in list.

    Raise InputError if a value is missing or invalid. The message names the file and the line.
    """
    if path is None:
        return _read(BUILT_IN.read_text(encoding="utf-8"), BUILT_IN.name)
    return _read(read_text(Path(path), FileBytes.PRICES), str(path))


def is_old(instance: InstanceType, today: date) -> bool:
    """Return whether a price is more than ``OLD_AFTER_DAYS`` days old."""
    return (today - instance.dated).days > OLD_AFTER_DAYS


@cache
def _read(text: str, where: str) -> tuple[InstanceType, ...]:
    rows, instances = csv.reader(io.StringIO(text)), list[InstanceType]()
    try:
        heading = next(rows, [])
        if missing := [name for name in COLUMNS if name not in heading]:
            columns = f"{count(len(missing), 'column')}: {', '.join(missing)}"
            raise InputError(f"the price list lacks {columns}; copy the heading of {BUILT_IN}")
        for row in (row for row in rows if any(map(str.strip, row))):
            if len(row) != len(heading):
                raise InputError(f"the row must have {len(heading)} values, one for each column, not {len(row)}")
            instances.append(_instance_type(dict(zip(heading, map(str.strip, row), strict=True))))
    except (csv.Error, InputError) as error:
        problem = f"not CSV: {error}" if isinstance(error, csv.Error) else error
        raise InputError(f"{where}, line {max(1, rows.line_num)}: {problem}") from error
    if not instances:
        raise InputError(f"{where}: the price list is empty; add a row for each instance type")
    return tuple(instances)


def _instance_type(row: Mapping[str, str]) -> InstanceType:
    """Return the instance type of a row. Raise InputError if a value is missing, invalid or inconsistent."""
    gpu, count, interconnect = row["Gpu"], _number(row, "AcceleratorCount"), row["Interconnect"]
    if gpu not in parts("GPU"):
        raise InputError(f"Gpu {quote(gpu)} is not in the hardware catalog; {suggest(gpu, parts('GPU'))}")
    if count is None or count != int(count) or count > MOST_RANKS:
        text = quote(row["AcceleratorCount"])
        raise InputError(f"AcceleratorCount must be an integer from 1 to {MOST_RANKS}, not {text}")
    gpus, rate = int(count), _number(row, "NicGbps")
    nic = None if rate is None else rate * 1e9 / 8
    price, spot = (None if row[name] in NOT_SOLD else _number(row, name) for name in ("Price", "SpotPrice"))
    if price is None and spot is None:
        raise InputError("Price and SpotPrice are both empty or 0; set one of them, in dollars an hour")
    if interconnect and interconnect not in INTERCONNECTS:
        raise InputError(f"unknown Interconnect {quote(interconnect)}; {suggest(interconnect, INTERCONNECTS)}")
    if row["Machine"]:
        interconnect, nic = _of_machine(row, gpus)
    if gpus > 1 and not interconnect:
        raise InputError(f"Interconnect of {gpus} GPUs must be one of {', '.join(INTERCONNECTS)}, not empty")
    for name in ("InstanceType", "Provider", "Region", "Source"):
        if not row[name]:
            raise InputError(f"{name} must not be empty")
    try:
        dated = date.fromisoformat(row["Date"])
    except ValueError:
        raise InputError(f"Date must be a day such as 2026-08-26, not {quote(row['Date'])}") from None
    interconnect = interconnect if gpus > 1 else ""
    return InstanceType(
        instance=row["InstanceType"], provider=row["Provider"], region=row["Region"], gpu=gpu, gpus=gpus,
        cores=_number(row, "vCPUs"), price=price, spot_price=spot, interconnect=interconnect,
        peer_to_peer=_peer_to_peer(row, gpus, interconnect), nic_bandwidth=nic, dated=dated, source=row["Source"],
        machine=row["Machine"] or None,
    )  # fmt: skip


def _number(row: Mapping[str, str], column: str) -> float | None:
    if not row[column]:
        return None
    with suppress(ValueError):
        if 0 < (number := float(row[column])) < inf:
            return number
    raise InputError(f"{column} must be a positive number or empty, not {quote(row[column])}")


def _of_machine(row: Mapping[str, str], gpus: int) -> tuple[str, float | None]:
    """Return the interconnect of a row's Machine and the total bandwidth of its NICs in bytes/s.

    The bandwidth is None if the machine has no NICs. Raise InputError if the row states other GPUs than the machine's,
    or repeats a value that the catalog defines.
    """
    name, machine = row["Machine"], find_entry(machine_entries(), "Machine", row["Machine"])
    if (machine["gpu"], machine["gpus"]) != (row["Gpu"], gpus):
        raise InputError(
            f"Machine {name} has {machine['gpus']} x {machine['gpu']}, not {gpus} x {row['Gpu']}; correct the row"
        )
    for column in ("Interconnect", "NicGbps"):
        if row[column]:
            raise InputError(
                f"{column} must be empty, not {quote(row[column])}, because Machine {name} defines it; or leave "
                "Machine empty"
            )
    interconnect = OF_MACHINES.get(str(machine.get("nvlink")), "PCIe")
    if "nic" not in machine:
        return interconnect, None
    card = find_part("NIC", str(machine["nic"]))
    return interconnect, find_link(card["port"].value).bandwidth * int(card["ports"].value) * int(machine["nics"])


def _peer_to_peer(row: Mapping[str, str], gpus: int, interconnect: str) -> bool:
    if row["P2P"] not in ("", "yes", "no"):
        raise InputError(f"P2P must be yes, no or empty (the GPU's default), not {quote(row['P2P'])}")
    if row["P2P"]:
        return row["P2P"] == "yes"
    if row["Machine"] and interconnect == "PCIe":
        return describe_preset(row["Machine"], 1, gpus).p2p
    level = find_part("GPU", row["Gpu"]).get("p2p_level")
    return interconnect not in ("PCIe", "") or level is None or level.value != "NVL"


def find_cheapest(
    instances: Iterable[InstanceType], gpu: str, counts: Sequence[int], system: System
) -> InstanceType | None:
    """Return the instance type that costs least on demand for ``counts`` of a system's GPUs, or None if none matches.

    A provider's machine, which has the provider's name in parentheses in the hardware catalog, only matches its own
    instance type. For other machines, an instance type must suit each number of GPUs in ``counts``. For several GPUs,
    it must have the same interconnect. For several hosts, it must also have as many GPUs and at least as fast NICs.
    """
    priced = [instance for instance in instances if instance.gpu == gpu and instance.price is not None]
    matches = [instance for instance in priced if all(_is_like(instance, count, system) for count in counts)]
    return min(matches, key=lambda each: (each.price or inf) * sum(ceil(n / each.gpus) for n in counts), default=None)


def _is_like(instance: InstanceType, devices: int, system: System) -> bool:
    if "(" in machine_entries().get(str(system.preset), {}).get("title", ""):
        return instance.machine == system.preset
    if devices > 1 and instance.gpus > 1 and instance.interconnect != LIKE_LINKS.get(system.link):
        return False
    if devices <= system.gpus:
        return instance.gpus >= devices
    nic = instance.nic_bandwidth or 0.0
    return instance.gpus == max(system.gpus, system.domain) and nic >= SAME_RATE * system.nic * GB
