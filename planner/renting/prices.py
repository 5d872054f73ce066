"""Read instance types and their prices, in dollars an hour, from a price list.

The built-in list, ``prices.csv``, is a dated snapshot. It has the columns of SkyPilot's catalog and eight more. Each
row names its source. A row's date is the one that the source states, or else the earliest possible one.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from collectives.checks import MOST_RANKS
from collectives.errors import InputError
from collectives.input_files import FileBytes, read_text
from collectives.quoting import quote, suggest
from collectives.units import count
from simcomm.cluster.hardware import find_entry, find_link, find_part, machine_entries, parts
from simcomm.nccl.descriptions import GB, System, describe_preset

SKYPILOT = (
    "InstanceType", "vCPUs", "MemoryGiB", "AcceleratorName", "AcceleratorCount", "GpuInfo", "Price", "SpotPrice",
    "Region",
)  # fmt: skip
OURS = ("Provider", "Gpu", "Machine", "Interconnect", "P2P", "NicGbps", "Date", "Source")
COLUMNS = (*SKYPILOT, *OURS)
BUILT_IN = Path(__file__).parent / "prices.csv"
INTERCONNECTS = ("NVSwitch", "NVLink mesh", "NVLink pairs", "PCIe")
OF_MACHINES = {"switch": "NVSwitch", "cube-mesh": "NVLink mesh", "pairs": "NVLink pairs"}
LIKE_LINKS = {"nvswitch": "NVSwitch", "mesh": "NVLink mesh", "bridge": "NVLink pairs", "pcie": "PCIe"}
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
        """Provider and instance type.

        >>> read_prices()[0].name
        'AWS p3.2xlarge'
        """
        return f"{self.provider} {self.instance}"


def read_prices(path: Path | str | None = None) -> tuple[InstanceType, ...]:
    """Return the instance types of a price list. Default: the built-in list.

    Raise InputError with the file, the line, the column and the value.

    >>> len(read_prices()) > 90
    True
    """
    return _shipped() if path is None else tuple(_read(read_text(Path(path), FileBytes.PRICES), str(path)))


@cache
def _shipped() -> tuple[InstanceType, ...]:
    return tuple(_read(BUILT_IN.read_text(encoding="utf-8"), BUILT_IN.name))


def is_old(instance: InstanceType, today: date) -> bool:
    """Return whether a price is more than OLD_AFTER_DAYS old.

    >>> is_old(read_prices()[0], date(2026, 9, 1)), is_old(read_prices()[0], date(2027, 1, 1))
    (False, True)
    """
    return (today - instance.dated).days > OLD_AFTER_DAYS


def _read(text: str, where: str) -> Iterator[InstanceType]:
    rows = csv.reader(io.StringIO(text))
    try:
        heading = next(rows, [])
        missing = [name for name in COLUMNS if name not in heading]
        if missing:
            raise InputError(
                f"{where}, line 1: missing {count(len(missing), 'column')} {', '.join(missing)}; copy the heading of "
                f"{BUILT_IN}"
            )
        row_count = 0
        for row in rows:
            if not any(map(str.strip, row)):
                continue
            if len(row) != len(heading):
                raise InputError(f"{where}, line {rows.line_num}: {len(row)} values for {len(heading)} columns")
            row_count += 1
            values = dict(zip(heading, map(str.strip, row), strict=True))
            yield _Row(values, f"{where}, line {rows.line_num}").instance_type()
    except csv.Error as error:
        raise InputError(f"{where}, line {rows.line_num}: not CSV: {error}") from error
    if not row_count:
        raise InputError(f"{where}: the price list is empty; add a row for each instance type")


@dataclass(frozen=True)
class _Row:
    values: Mapping[str, str]
    where: str

    def instance_type(self) -> InstanceType:
        """Return the instance type of the line, completed from the hardware catalog.

        Raise InputError if a value is missing, invalid, or contradicts the catalog.
        """
        gpu = self._gpu()
        gpus = self._whole("AcceleratorCount")
        entry = self._machine(gpu, gpus)
        price, spot = self._price("Price"), self._price("SpotPrice")
        if price is None and spot is None:
            raise InputError(f"{self.where}: neither Price nor SpotPrice; set one of them, in dollars an hour")
        interconnect = self._interconnect(entry, gpus)
        return InstanceType(
            instance=self._text("InstanceType"),
            provider=self._text("Provider"),
            region=self._text("Region"),
            gpu=gpu,
            gpus=gpus,
            cores=self._number("vCPUs"),
            price=price,
            spot_price=spot,
            interconnect=interconnect,
            peer_to_peer=self._peer_to_peer(gpu, gpus, interconnect),
            nic_bandwidth=self._nic(entry),
            dated=self._date(),
            source=self._text("Source"),
            machine=self.values["Machine"] or None,
        )

    def _text(self, column: str) -> str:
        if not self.values[column]:
            raise InputError(f"{self.where}: {column} must not be empty")
        return self.values[column]

    def _number(self, column: str) -> float | None:
        text = self.values[column]
        if not text:
            return None
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not (isfinite(number) and number > 0):
            raise InputError(f"{self.where}: {column} must be a positive number or empty, not {quote(text)}")
        return number

    def _price(self, column: str) -> float | None:
        is_none = self.values[column] in ("0", "0.0", "0.00")  # SkyPilot's fetchers write 0 for "not sold"
        return None if is_none else self._number(column)

    def _whole(self, column: str) -> int:
        number = self._number(column)
        if number is None or number != int(number) or number > MOST_RANKS:
            text = quote(self.values[column])
            raise InputError(f"{self.where}: {column} must be an integer from 1 to {MOST_RANKS}, not {text}")
        return int(number)

    def _gpu(self) -> str:
        name = self.values["Gpu"]
        if name not in parts("GPU"):
            known = suggest(name, parts("GPU"))
            raise InputError(f"{self.where}: Gpu {quote(name)} is not in the hardware catalog; {known}")
        return name

    def _machine(self, gpu: str, gpus: int) -> Mapping[str, object] | None:
        """Return the catalog entry of the line's Machine, if any. Raise InputError if it has other GPUs."""
        name = self.values["Machine"]
        if not name:
            return None
        try:
            entry: Mapping[str, object] = find_entry(machine_entries(), "Machine", name)
        except InputError as error:
            raise InputError(f"{self.where}: {error}") from error
        if (entry["gpu"], entry["gpus"]) != (gpu, gpus):
            has = f"{entry['gpus']} x {entry['gpu']}"
            raise InputError(f"{self.where}: Machine {name} has {has}, but the line has {gpus} x {gpu}")
        return entry

    def _redundant(self, column: str) -> InputError:
        return InputError(
            f"{self.where}: {column} is {quote(self.values[column])}, but Machine {self.values['Machine']} defines it "
            f"already; leave {column} or Machine empty"
        )

    def _interconnect(self, entry: Mapping[str, object] | None, gpus: int) -> str:
        text = self.values["Interconnect"]
        if text and text not in INTERCONNECTS:
            raise InputError(f"{self.where}: unknown Interconnect {quote(text)}; {suggest(text, INTERCONNECTS)}")
        if entry is not None and text:
            raise self._redundant("Interconnect")
        interconnect = OF_MACHINES.get(str(entry.get("nvlink")), "PCIe") if entry is not None else text
        if gpus > 1 and not interconnect:
            accepted = ", ".join(INTERCONNECTS)
            raise InputError(f"{self.where}: Interconnect must be one of {accepted} for {gpus} GPUs")
        return interconnect if gpus > 1 else ""

    def _peer_to_peer(self, gpu: str, gpus: int, interconnect: str) -> bool:
        text = self.values["P2P"]
        if text not in ("", "yes", "no"):
            raise InputError(f"{self.where}: P2P must be yes, no or empty (the GPU's default), not {quote(text)}")
        if text:
            return text == "yes"
        if self.values["Machine"] and interconnect == "PCIe":
            return describe_preset(self.values["Machine"], 1, gpus).p2p
        level = find_part("GPU", gpu).get("p2p_level")
        return interconnect not in ("PCIe", "") or level is None or level.value != "NVL"

    def _nic(self, entry: Mapping[str, object] | None) -> float | None:
        rate = self._number("NicGbps")
        if entry is None:
            return None if rate is None else rate * 1e9 / 8
        if rate is not None:
            raise self._redundant("NicGbps")
        if "nic" not in entry:
            return None
        card = find_part("NIC", str(entry["nic"]))
        return find_link(card["port"].value).bandwidth * int(card["ports"].value) * int(str(entry["nics"]))

    def _date(self) -> date:
        text = self.values["Date"]
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise InputError(f"{self.where}: Date must be a day such as 2026-08-26, not {quote(text)}") from None


class GpuPrice(NamedTuple):
    """The price of one GPU in dollars an hour, and the instance type that is sold at this price."""

    dollars: float
    instance: InstanceType


def find_gpu_price(
    instances: Iterable[InstanceType], gpu: str, counts: Sequence[int], system: System
) -> GpuPrice | None:
    """Return the lowest on-demand price of one GPU of a system, or None if no instance type matches the system.

    The instance type must offer all ``counts`` of GPUs, so that results for several counts have the same price.

    If the system's machine is sold, only that instance type counts. Otherwise, the instance type must have the same
    GPU. For several GPUs, it must also have the same interconnect, and for several hosts, as many GPUs and at least as
    fast NICs.

    >>> found = find_gpu_price(read_prices(), "H100 SXM", [8, 16], describe_preset("dgx-h100", 2, 8))
    >>> found.instance.instance
    'p5.48xlarge'
    """
    priced = [instance for instance in instances if instance.gpu == gpu and instance.price is not None]
    sold = [instance for instance in priced if instance.machine is not None and instance.machine == system.preset]
    matches = sold or [instance for instance in priced if all(_is_like(instance, count, system) for count in counts)]
    return min(
        (GpuPrice((instance.price or 0.0) / instance.gpus, instance) for instance in matches),
        default=None,
        key=lambda price: price[0],
    )


def _is_like(instance: InstanceType, devices: int, system: System) -> bool:
    if devices > 1 and instance.gpus > 1 and instance.interconnect != LIKE_LINKS.get(system.link):
        return False
    if devices <= system.gpus:
        return instance.gpus >= devices
    nic = instance.nic_bandwidth or 0.0
    return instance.gpus == max(system.gpus, system.domain) and nic >= SAME_RATE * system.nic * GB
