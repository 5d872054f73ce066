"""Describe hosts by their GPUs and links, and find the time of a collective in any group.

The time comes from the NCCL model, from published bus bandwidths, or from the rate of a link.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from math import log2
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.gpus import ANY_GPU, Gpu, find_gpu
from simcomm.cluster.hardware import machine_entries
from simcomm.nccl.descriptions import System, describe_preset
from simcomm.nccl.predict import predict_among_others, predict_seconds
from simcomm.nccl.settings import NcclSettings

Array = NDArray[Any]
LINKS = ("nvlink", "pcie", "host", "network", "")  # "": communication does not slow compute down
SHARED_LINKS = ("pcie", "bridge")  # links that all groups of a host share
GRID = np.arange(8.0, 37.0)  # log2 of bytes
# Bytes that a rank sends over the slowest link per byte of the buffer.
SHARES: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), lambda n: (n - 1) / n),
    **dict.fromkeys(("broadcast", "reduce", "send_recv"), lambda n: 1.0),
}
LARGE = 2.0**28  # bytes of a bandwidth-bound collective
LATENCY_S = 20e-6  # per doubling of ranks, if only bandwidths are published
NODES = Path(__file__).parent / "data" / "nodes.toml"
CORES = 12  # assumed number per GPU


class Group(NamedTuple):
    """A group of ``size`` devices, ``stride`` apart. All groups of an axis have the same size and stride."""

    size: int
    stride: int = 1

    def local(self, node: int) -> int:
        """Return how many devices of the group are on one host with ``node`` devices."""
        return min(self.size, max(1, node // self.stride))

    def on_host(self, node: int) -> tuple[tuple[int, ...], ...]:
        """Return the groups on a host with ``node`` devices, each as a tuple of device numbers.

        >>> Group(2, 2).on_host(8)
        ((0, 2), (1, 3), (4, 6), (5, 7))
        """
        local = self.local(node)
        apart = min(self.stride, max(1, node // local))
        devices = np.arange(node - node % (apart * local)).reshape(-1, local, apart)
        return tuple(map(tuple, devices.swapaxes(1, 2).reshape(-1, local).tolist()))


# Returns the seconds of a collective of so many bytes in a group, one at a time; for send_recv, of a single message. In
# the collective "serve", a server sends weights to all other devices and sums their gradients.
Network = Callable[[str, float, Group], float]


@dataclass(frozen=True)
class Host:
    """A host with ``gpus`` GPUs, or an NVLink domain of several hosts. Rates are in bytes/s, in one direction."""

    name: str
    gpu: str | Gpu | None  # a name in the catalog, or a data sheet; None: unknown
    gpus: int
    link: str  # one of LINKS
    cores: int
    nic: float  # sum of all NICs
    busbw: tuple[tuple[int, float], ...] = ()  # published bus bandwidths by GPU count, ascending
    system: System | None = None  # description for the NCCL model
    settings: NcclSettings = field(default_factory=NcclSettings)
    peer: float = 0.0  # bytes/s of a link, used without busbw and system
    paths: int = 1  # x16 paths to host memory
    network: Network | None = None  # replaces all other sources of times
    is_published: bool = False  # whether published training runs used it

    @property
    def device(self) -> Gpu:
        """The data sheet of the GPUs. Raises InputError if they are not in the catalog."""
        return ANY_GPU if self.gpu is None else find_gpu(self.gpu) if isinstance(self.gpu, str) else self.gpu

    @property
    def is_unseen(self) -> bool:
        """Whether GPUs communicate over PCIe or TCP on a machine without published training runs."""
        is_tcp = self.system is not None and self.system.net == "tcp"
        return not self.is_published and (is_tcp or self.link in ("pcie", "host"))

    def seconds(self, collective: str, group: Group) -> Array:
        """Return the time in seconds of a collective in a group, for each size in ``GRID``."""
        sizes, local = 2.0**GRID, group.local(self.gpus)
        if self.system is not None:
            system, settings = self.system, self.settings
            local, domain = group.local(system.gpus), max(1, min(system.domain // group.stride, group.size))
            part = replace(system.part(-(-group.size // local), local), domain=domain)
            if system.link in SHARED_LINKS and 1 < part.gpus < system.gpus:  # all groups of a host at once
                groups = group.on_host(system.gpus)
                seconds = predict_among_others(part, system, groups, collective, sizes, settings=settings)
            else:
                seconds = predict_seconds(part, collective, sizes, settings=settings)
            return np.asarray(seconds, dtype=float)
        rate = self.bus_bandwidth(local)
        if group.size > local:
            nic = self.nic * local / self.gpus
            rate = nic if local == 1 else min(nic, rate)
        return np.asarray(SHARES[collective](group.size) * sizes / rate + LATENCY_S * log2(group.size))

    def bus_bandwidth(self, gpus: int) -> float:
        """Return the all_reduce bus bandwidth of ``gpus`` GPUs in bytes/s.

        With a system description, NCCL's model predicts the bandwidth of two or more GPUs. Otherwise, return the
        published value for the largest number of GPUs up to ``gpus``. If all published numbers are larger, return the
        value for the smallest one. Without published values, return ``peer``.
        """
        if self.system is not None and gpus > 1:
            seconds = np.interp(log2(LARGE), GRID, self.seconds("all_reduce", Group(gpus)))
            return SHARES["all_reduce"](gpus) * LARGE / float(seconds)
        if not self.busbw:
            return self.peer
        return max([rate for count, rate in self.busbw if count <= gpus][-1:] or [self.busbw[0][1]])

    def using(self, gpus: int) -> "Host":
        """Return the host with only ``gpus`` of its GPUs, but all of its NICs."""
        system = self.system
        if system is not None and gpus < system.gpus:
            system = replace(system, gpus=gpus)
        return replace(self, gpus=gpus, system=system)


def host_of_preset(preset: str, gpu: str | Gpu | None = None, nic: float | None = None, **changes: Any) -> Host:
    """Return a machine from the hardware catalog as a host.

    ``gpu`` replaces the machine's GPUs. ``nic`` replaces the total bandwidth of a host's NICs, in bytes/s. ``changes``
    are keys of a system description. Raise InputError if a key of ``changes`` is unknown or invalid.
    """
    entry = machine_entries()[preset]
    changes |= {} if nic is None else {"nic": nic / 1e9}
    system = describe_preset(preset, 1, int(entry["gpus"]), **changes)
    return host_of_system(system, gpu or str(entry["gpu"]))


def host_of_system(system: System, gpu: str | Gpu | None, settings: NcclSettings | None = None) -> Host:
    """Convert a system description to a host. An NVLink domain of several hosts becomes one host.

    Each GPU has its own process unless the description states ``procs``.
    """
    if "procs" not in system.stated:
        system = replace(system, procs="per_gpu")
    link = "nvlink" if system.link != "pcie" else "pcie" if system.p2p else "host"
    gpus = max(system.gpus, system.domain)
    return Host(
        system.slug, gpu, gpus, link, CORES * gpus, system.nic * 1e9 * gpus / system.gpus, system=system,
        settings=settings or NcclSettings(),
    )  # fmt: skip


@cache
def published_nodes() -> dict[str, Host]:
    """Return the hosts on which published training runs took place, by name."""
    tables = tomllib.loads(NODES.read_text(encoding="utf-8"))
    links, nodes = tables["links"], tables["nodes"].items()
    return {
        name: make_node(name, node["gpus"], node["link"], links[node["link"]], node["cores"], node["nic_GBps"])
        for name, node in nodes
    }


def make_node(name: str, gpus: int, link: str, busbw: Mapping[str, float], cores: int, nic: float) -> Host:
    """Return a host. ``busbw`` maps GPU counts to bus bandwidths, and ``nic`` is the sum of all NICs, both in GB/s."""
    kind = link.partition("_")[0]
    kind = "nvlink" if kind in ("nvswitch", "cube", "bridge") else "host" if kind == "host" else "pcie"
    rates = sorted((int(count), rate * 1e9) for count, rate in busbw.items())
    return Host(name, None, gpus, kind, cores, nic * 1e9, tuple(rates), is_published=True)


NO_CURVE = np.full(len(GRID), np.log(1e-12))  # the first curve of a table, of groups with one device


@lru_cache(maxsize=4096)
def curve_of(host: Host, collective: str, group: Group) -> Array:
    """Return the logarithm of a collective's seconds for each size in ``GRID``."""
    return np.log(np.maximum(host.seconds(collective, group), 1e-9))


def read_curves(table: Array, numbers: Array, nbytes: Array) -> Array:
    """Return the seconds of collectives of ``nbytes`` bytes, interpolated from curves.

    ``numbers`` has each run's row of ``table``. Row 0 is for groups of one device, whose collectives take no time.
    """
    place = np.clip(np.log2(np.maximum(nbytes, 1.0)), GRID[0], GRID[-1] - 1e-9) - GRID[0]
    index = place.astype(np.intp)
    numbers = np.broadcast_to(numbers if place.ndim == numbers.ndim else numbers[:, None], place.shape)
    low = table[numbers, index]
    logs = low + (place - index) * (table[numbers, index + 1] - low)
    seconds = np.exp(logs) * np.maximum(1.0, nbytes / 2.0 ** GRID[-1])
    return np.where((numbers > 0) & (nbytes > 0), seconds, 0.0)
