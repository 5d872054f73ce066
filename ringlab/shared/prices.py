"""The price of a device of a scenario: the scenario's own, or that of an instance type that is such a machine."""

from collections.abc import Sequence
from typing import NamedTuple

from planner.renting.prices import find_gpu_price, read_prices
from scenarios.loader import SpreadTraining
from simcomm.cluster.hardware import machine_entries
from simcomm.nccl.clusters import NcclCluster
from simcomm.nccl.descriptions import System

KEY = "training.price_per_hour"


class DevicePrice(NamedTuple):
    """Dollars an hour of one device, None if no price is known, and whose price it is."""

    dollars: float | None
    note: str | None


def find_price(spread: SpreadTraining, base: SpreadTraining, counts: Sequence[int]) -> DevicePrice:
    """Return the price of a device, the same for all ``counts``: the scenario's, or the cheapest in the built-in list.

    The scenario's price belongs to the machine of ``base``, before a what-if. A price of the list belongs to an
    instance type: the cluster's own if it is sold, else one with the same GPUs, links and at least as fast NICs.
    """
    stated, system, own = spread.training.price_per_hour, _find_system(spread), _find_system(base)
    gpu = None if system is None else _name_gpu(system)
    is_own = system is None or own is None or (system.preset, system.gpu) == (own.preset, own.gpu)
    if stated is not None and (is_own or stated != base.training.price_per_hour):
        of = f"{gpu} at " if gpu is not None else ""
        return DevicePrice(stated, f"{of}${stated:.2f} an hour: {KEY}.")
    if system is None or gpu is None:
        return DevicePrice(None, None)
    found = find_gpu_price(read_prices(), gpu, counts, system)
    if found is None:
        return DevicePrice(None, f"The price list has no instance type like {spread.cluster.title}; set {KEY}.")
    name = f"{found.instance.name}, {found.instance.dated.isoformat()}"
    return DevicePrice(found.dollars, f"{gpu} at ${found.dollars:.2f} an hour: {name}.")


def _find_system(spread: SpreadTraining) -> System | None:
    return spread.cluster.system if isinstance(spread.cluster, NcclCluster) else None


def _name_gpu(system: System) -> str:
    """Return the GPU by its name in the hardware catalogue, which says its memory."""
    return str(machine_entries()[system.preset]["gpu"]) if system.preset in machine_entries() else system.gpu.name
