"""Looks up the machines that options and scenarios name, and the price of a device."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from collectives.errors import InputError
from collectives.quoting import MOST_NAMED, close_names
from collectives.units import TomlFloat
from planner.renting.prices import OLD_AFTER_DAYS, find_cheapest, is_old, read_prices
from ringlab.table import Line, Part
from scenarios import LoadedScenario, shipped
from scenarios.loader import SpreadTraining
from simcomm.cluster.hardware import machine_entries
from simcomm.nccl.catalogue import match_gpu
from simcomm.nccl.clusters import NcclCluster
from simcomm.nccl.descriptions import System, check_own_line, own_machines
from simcomm.nccl.measured.nccl_tests_rows import NcclTestsRun

PRICE_KEY = "training.price_per_hour"


def machine_line(name: str) -> dict[str, Any]:
    """Return the keys of a system description for the machine ``name``, which is a value of ``--system``.

    Raise InputError if the machine is unknown.
    """
    machines = own_machines()
    if name in machines:
        return {"machine": name}
    described = [machine for machine, line in machines.items() if line.get("preset") == name]
    if described:
        return {"machine": described[0]}
    if name in shipped():
        raise InputError(f"--system {name} is a scenario; pass it as the first argument instead")
    close = close_names(name, [*machines, *machine_entries()])
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    raise InputError(f"--system {name}: unknown machine; {meant}`ringlab list hardware` lists all machines")


def parse_keys(keys: Sequence[str]) -> Mapping[str, Any]:
    """Parse ``key=value`` strings of ``--set`` into keys of a system description.

    Raise InputError if a string is not ``key=value``, or a key is unknown or invalid.
    """
    parsed: dict[str, Any] = {}
    for text in keys:
        key, equals, value = text.partition("=")
        if not equals or not key.strip().isidentifier():
            raise InputError(f"--set {text}: expected KEY=VALUE, for example 'nic=25 Gbit/s'")
        try:
            parsed[key.strip()] = tomllib.loads(f"value = {value}", parse_float=TomlFloat)["value"]
        except tomllib.TOMLDecodeError:
            parsed[key.strip()] = value.strip()
    check_own_line("--set", parsed)
    return parsed


def system_of_scenario(scenario: LoadedScenario, option: str) -> System:
    """Return the system description of a scenario. Raise InputError unless its cluster has ``transport = "nccl"``."""
    system = getattr(scenario.cluster, "system", None)
    if not isinstance(system, System):
        raise InputError(f'{scenario.path}: {option} requires a scenario with transport = "nccl"')
    return replace(system, slug=scenario.path.name) if isinstance(scenario.path, Path) else system


def check_gpu(where: Path | str, run: NcclTestsRun, system: System) -> None:
    """Raise InputError if a run's GPU model differs from the system's. The memory size may differ."""
    gpu = match_gpu(run.gpu_name) if run.gpu_name else None
    if gpu is not None and (gpu.generation, gpu.model) != (system.gpu.generation, system.gpu.model):
        raise InputError(
            f"{where}: measured on {run.gpu_name!r}, but {system.slug} has {system.gpu.name}; pass the machine that "
            "was measured"
        )


def show_skipped(reasons: Sequence[str]) -> Iterator[Part]:
    """Yield the reasons why the first rows of a table were skipped, and the number of other skipped rows."""
    yield from (Line(f"skipped: {reason}", wrap=True) for reason in reasons[:MOST_NAMED])
    if len(reasons) > MOST_NAMED:
        yield f"skipped: {len(reasons) - MOST_NAMED} more rows"


class DevicePrice(NamedTuple):
    """The price of a device in dollars per hour, and a note on its source. The price is None if it is unknown."""

    dollars: float | None
    note: str | None
    billed_together: int = 1  # devices of an instance, which is billed whole

    def bill(self, devices: int) -> float | None:
        """Return the price of ``devices`` devices in dollars per hour. Return None if it is unknown."""
        return self.dollars and self.dollars * ceil(devices / self.billed_together) * self.billed_together


def find_price(spread: SpreadTraining, base: SpreadTraining, counts: Sequence[int]) -> DevicePrice:
    """Return the scenario's hourly price of a device. Without one, return the lowest on-demand price in the price list.

    The scenario's price is not used if a what-if replaces the machine of ``base`` without setting a price. A listed
    price is for the instance type that ``find_cheapest`` returns for ``counts`` of devices.
    """
    stated = spread.training.price_per_hour
    system, base_system = (
        each.cluster.system if isinstance(each.cluster, NcclCluster) else None for each in (spread, base)
    )
    gpu = "" if system is None else str(machine_entries().get(str(system.preset), {}).get("gpu", system.gpu.name))
    is_own = (
        system is None or base_system is None or (system.preset, system.gpu) == (base_system.preset, base_system.gpu)
    )
    if stated is not None and (is_own or stated != base.training.price_per_hour):
        of = f"{gpu} at " * bool(gpu)
        return DevicePrice(stated, f"{of}${stated:.2f} an hour: {PRICE_KEY}.")
    if system is None:
        return DevicePrice(None, None)
    offer = find_cheapest(read_prices(), gpu, counts, system)
    if offer is None:
        return DevicePrice(None, f"{spread.cluster.title} is not in the price list; set {PRICE_KEY} to see costs.")
    similar = "" if offer.machine == system.preset else ", a similar machine"
    name = f"{offer.name}{similar}, {offer.dated.isoformat()}"
    old = f", older than {OLD_AFTER_DAYS} days: check it first" * is_old(offer, date.today())
    whole = f"; instances of {offer.gpus} GPUs are billed whole" * any(number % offer.gpus for number in counts)
    return DevicePrice(offer.gpu_price, f"{gpu} at ${offer.gpu_price:.2f} an hour: {name}{old}{whole}.", offer.gpus)
