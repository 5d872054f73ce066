"""Rentals: what machines cost an hour, from a dated snapshot in the columns of SkyPilot's catalogue and some more.

``prices.csv`` is the snapshot that comes with the package; every row says where its price comes from. A date is the
source's own or, of a source without one, the earliest that it can have.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from collectives.checks import MOST_RANKS
from collectives.errors import InputError
from collectives.input_files import FileBytes, read_text
from collectives.quoting import quote, suggest
from simcomm.cluster.hardware import find_entry, find_link, find_part, machine_entries, parts
from simcomm.nccl.descriptions import describe_preset

SKYPILOT = (
    "InstanceType", "vCPUs", "MemoryGiB", "AcceleratorName", "AcceleratorCount", "GpuInfo", "Price", "SpotPrice",
    "Region",
)  # fmt: skip
OURS = ("Provider", "Gpu", "Machine", "Interconnect", "P2P", "NicGbps", "Date", "Source")
COLUMNS = (*SKYPILOT, *OURS)
INTERCONNECTS = ("NVSwitch", "NVLink mesh", "NVLink pairs", "PCIe")
OF_MACHINES = {"switch": "NVSwitch", "cube-mesh": "NVLink mesh", "pairs": "NVLink pairs"}
OLD_AFTER_DAYS = 90  # GPU prices have halved within a year


@dataclass(frozen=True)
class Rental:
    """A machine that is rented by the hour. Prices are in dollars an hour for the whole machine."""

    instance: str
    provider: str
    region: str
    gpu: str  # as the hardware catalogue has it
    gpus: int
    cores: float | None  # virtual ones, as sold
    price: float | None  # None: not for sale so
    spot_price: float | None
    interconnect: str  # one of INTERCONNECTS; "" where one GPU is alone
    peer_to_peer: bool  # whether GPUs reach each other's memory
    nic_bandwidth: float | None  # bytes/s, all NICs together; None: nothing known, so no second node
    dated: date
    source: str
    machine: str | None = None  # of the hardware catalogue

    @property
    def name(self) -> str:
        """Provider and instance.

        >>> read_rentals()[0].name
        'AWS p3.2xlarge'
        """
        return f"{self.provider} {self.instance}"

    @property
    def key(self) -> str:
        """What tells the machine from others when it is rented: the region too."""
        return f"{self.name} in {self.region}"


def read_rentals(path: Path | str | None = None) -> tuple[Rental, ...]:
    """Return the rentals of a price file, or of the snapshot that comes with the package.

    Raises InputError that names the file, the line, the column and the value.

    >>> len(read_rentals()) > 90
    True
    """
    return _shipped() if path is None else tuple(_read(read_text(Path(path), FileBytes.RENTALS), str(path)))


@cache
def _shipped() -> tuple[Rental, ...]:
    return tuple(_read((files("simcomm.renting") / "prices.csv").read_text(encoding="utf-8"), "prices.csv"))


def newest_date(rentals: Iterable[Rental]) -> date:
    """Return the date of the newest price."""
    return max(rental.dated for rental in rentals)


def is_old(rental: Rental, today: date) -> bool:
    """Return whether a price is older than OLD_AFTER_DAYS.

    >>> is_old(read_rentals()[0], date(2026, 9, 1)), is_old(read_rentals()[0], date(2027, 1, 1))
    (False, True)
    """
    return (today - rental.dated).days > OLD_AFTER_DAYS


def _read(text: str, where: str) -> Iterator[Rental]:
    rows = csv.reader(io.StringIO(text))
    try:
        heading = next(rows, [])
        missing = [name for name in COLUMNS if name not in heading]
        if missing:
            raise InputError(
                f"{where}, line 1: the column{'s' * (len(missing) > 1)} {', '.join(missing)} "
                f"{'are' if len(missing) > 1 else 'is'} missing; a price file has {', '.join(COLUMNS)}"
            )
        found = 0
        for row in rows:
            if not any(map(str.strip, row)):
                continue
            if len(row) != len(heading):
                raise InputError(f"{where}, line {rows.line_num}: {len(row)} values for {len(heading)} columns")
            found += 1
            yield _Row(dict(zip(heading, map(str.strip, row), strict=True)), f"{where}, line {rows.line_num}").rental()
    except csv.Error as error:
        raise InputError(f"{where}, line {rows.line_num}: not CSV: {error}") from error
    if not found:
        raise InputError(f"{where}: no price in it; give a row a machine")


@dataclass(frozen=True)
class _Row:
    """A line of a price file by its columns."""

    values: Mapping[str, str]
    where: str

    def rental(self) -> Rental:
        """Return what the line says, with what the hardware catalogue knows of its machine. Raise InputError."""
        gpu = self._gpu()
        gpus = self._whole("AcceleratorCount")
        entry = self._machine(gpu, gpus)
        price, spot = self._price("Price"), self._price("SpotPrice")
        if price is None and spot is None:
            raise InputError(f"{self.where}: neither Price nor SpotPrice; give one, in dollars an hour")
        interconnect = self._interconnect(entry, gpus)
        return Rental(
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
            raise InputError(f"{self.where}: {column} is empty")
        return self.values[column]

    def _number(self, column: str, above: float = 0.0) -> float | None:
        text = self.values[column]
        if not text:
            return None
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not (isfinite(number) and number > above):
            raise InputError(f"{self.where}: {column} = {quote(text)}; give a number above {above:g}, or nothing")
        return number

    def _price(self, column: str) -> float | None:
        is_none = self.values[column] in ("0", "0.0", "0.00")  # as SkyPilot's fetchers write what is not sold
        return None if is_none else self._number(column)

    def _whole(self, column: str) -> int:
        number = self._number(column)
        if number is None or number != int(number) or number > MOST_RANKS:
            accepted = f"give a whole number from 1 to {MOST_RANKS}"
            raise InputError(f"{self.where}: {column} = {quote(self.values[column])}; {accepted}")
        return int(number)

    def _gpu(self) -> str:
        name = self.values["Gpu"]
        if name not in parts("GPU"):
            known = suggest(name, parts("GPU"))
            raise InputError(f"{self.where}: Gpu = {quote(name)} is not in the hardware catalogue; {known}")
        return name

    def _machine(self, gpu: str, gpus: int) -> Mapping[str, object] | None:
        """Return the catalogue's machine that the line names, if any. Raise InputError unless it has these GPUs."""
        name = self.values["Machine"]
        if not name:
            return None
        try:
            entry: Mapping[str, object] = find_entry(machine_entries(), "Machine", name)
        except InputError as error:
            raise InputError(f"{self.where}: {error}") from error
        if (entry["gpu"], entry["gpus"]) != (gpu, gpus):
            has = f"{entry['gpus']} x {entry['gpu']}"
            raise InputError(f"{self.where}: Machine {name} has {has}, and the line {gpus} x {gpu}")
        return entry

    def _said_twice(self, column: str) -> InputError:
        """Return the refusal of what the line and its machine both say: one place a figure."""
        return InputError(
            f"{self.where}: {column} = {quote(self.values[column])}, and the hardware catalogue says it of "
            f"{self.values['Machine']} too; leave one of the two out"
        )

    def _interconnect(self, entry: Mapping[str, object] | None, gpus: int) -> str:
        given = self.values["Interconnect"]
        if given and given not in INTERCONNECTS:
            raise InputError(f"{self.where}: Interconnect = {quote(given)}; {suggest(given, INTERCONNECTS)}")
        if entry is not None and given:
            raise self._said_twice("Interconnect")
        found = OF_MACHINES.get(str(entry.get("nvlink")), "PCIe") if entry is not None else given
        if gpus > 1 and not found:
            accepted = ", ".join(INTERCONNECTS)
            raise InputError(f"{self.where}: Interconnect is empty for {gpus} GPUs; give one of {accepted}")
        return found if gpus > 1 else ""

    def _peer_to_peer(self, gpu: str, gpus: int, interconnect: str) -> bool:
        given = self.values["P2P"]
        if given not in ("", "yes", "no"):
            raise InputError(f"{self.where}: P2P = {quote(given)}; give yes or no, or nothing for the GPU's usual")
        if given:
            return given == "yes"
        if self.values["Machine"] and interconnect == "PCIe":
            return describe_preset(self.values["Machine"], 1, gpus).p2p
        level = find_part("GPU", gpu).get("p2p_level")
        return interconnect not in ("PCIe", "") or level is None or level.value != "NVL"

    def _nic(self, entry: Mapping[str, object] | None) -> float | None:
        given = self._number("NicGbps")
        if entry is None:
            return None if given is None else given * 1e9 / 8
        if given is not None:
            raise self._said_twice("NicGbps")
        if "nic" not in entry:
            return None
        card = find_part("NIC", str(entry["nic"]))
        return find_link(card["port"].value).bandwidth * int(card["ports"].value) * int(str(entry["nics"]))

    def _date(self) -> date:
        text = self.values["Date"]
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise InputError(f"{self.where}: Date = {quote(text)}; give a day as 2026-08-26") from None


class GpuPrice(NamedTuple):
    """Dollars of one GPU and hour, and the machine that is rented."""

    dollars: float
    rental: Rental


def cheapest_gpu(rentals: tuple[Rental, ...], gpu: str, devices: int, node_gpus: int = 1) -> GpuPrice | None:
    """Return the cheapest on demand, of machines with so many of a GPU or with a network to others; None for none.

    Machines that have the GPUs of a node go before smaller ones.

    >>> from simcomm.renting.rentals import read_rentals
    >>> found = cheapest_gpu(read_rentals(), "H100 SXM", 8)
    >>> found.rental.gpus >= 8 or found.rental.nic_bandwidth is not None
    True
    """
    usable = (
        one
        for one in rentals
        if one.gpu == gpu and one.price is not None and (one.gpus >= devices or one.nic_bandwidth is not None)
    )
    found = [GpuPrice((one.price or 0.0) / one.gpus, one) for one in usable]
    whole = min(devices, node_gpus)
    return min(found, key=lambda one: (one.rental.gpus < whole, one.dollars), default=None)
