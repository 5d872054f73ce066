"""Reproduce NCCL's own cost model, with which it chooses algorithm and protocol, version by version.

    time = latency + bytes / (1000 bandwidth)        microseconds, GB/s; the smallest wins

Source: ``ncclTopoTuneModel`` in ``src/graph/tuning.cc`` of NVIDIA/nccl, by tag v2.7.8-1, v2.9.6-1, v2.12.12-1,
v2.18.5-1, v2.21.5-1, v2.26.2-1, v2.30. Comments name its tables. These are NCCL's assumptions about GPU generations;
``timing.py`` predicts the actual times, and the hardware catalog has the link rates.

One value differs from the source. For trees with Simple, v2.18.5-1 has 4, 6 and 14 us (NVLink, PCI, network), while
v2.12.12-1 before it and v2.21.5-1 after it have 28 (as in issue 1334). This model uses 28, which fits the sizes at
which systems of 2023 change algorithms.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from simcomm.nccl.catalogue import NVLINKS, plugin_latency, usable_nvlink, usable_share
from simcomm.nccl.choice import PROTOCOL, Choice
from simcomm.nccl.communicator import Communicator
from simcomm.nccl.parameters import Floats

CHANNELS = {"volta": 6, "turing": 6, "ampere": 12, "hopper": 16, "blackwell": 16}  # on NVLink, before doubling

TREE_CORRECTION = {  # treeCorrectionFactor of a tree's bandwidth for all_reduce, by log2(bytes / 64)
    "ll": [1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1],
    "ll128": [1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1],
    "simple": [.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9],
}  # fmt: skip
# Caps in GB/s. llMaxBws: on one node by GPU generation, on two nodes and on more by the CPUs' vendor. Per channel:
# perChMaxRingLL128Bws, perChMaxTreeLL128Bws, perChMaxTreeBws and perChMaxNVLSTreeBws, by GPU generation, on one node,
# on two and on more.
LL_CAP = {"volta": 39.0, "ampere": 87.7, "hopper": 141.0, "blackwell": 282.0}
LL_CAP_BETWEEN = {"others": (39.0, 20.4), "amd": (22.5, 19.0)}
RING_LL128_CAP = {"volta": (20,) * 3, "ampere": (20,) * 3, "hopper": (36.7,) * 3, "blackwell": (40,) * 3}
TREE_LL128_CAP = {"volta": (20,) * 3, "ampere": (20,) * 3, "hopper": (36.7, 36.7, 29), "blackwell": (55.6, 31.67, 20)}
TREE_CAP = {
    "volta": (26.5, 18.5, 10), "ampere": (24, 23.6, 17.8), "hopper": (38.7, 41.4, 36), "blackwell": (70, 42.8, 24),
}  # fmt: skip
NVLS_TREE_CAP = {
    "volta": (26.5, 18.5, 10), "ampere": (24, 23.6, 17.8), "hopper": (0, 57.7, 45.5), "blackwell": (0, 96, 80),
}  # fmt: skip
NVLS_EFFICIENCY = {"hopper": 0.85, "blackwell": 0.74}  # nvlsEfficiency

Figures = tuple[float, float, float]  # of LL, LL128, Simple


@dataclass(frozen=True)
class Latencies:
    """Latencies in us from NCCL's tables baseLat and hwLat, which several consecutive versions share."""

    base_tree: Figures
    base_ring: Figures
    ring: Mapping[str, Figures]  # by NCCL's hardware class
    tree: Mapping[str, Figures]


_OLD_BASE = ((4.4, 4.4, 0), (3.6, 10, 8.4))
_BASE = ((6.8, 14, 0), (6.6, 14, 8.4))
_OLD_RING: dict[str, Figures] = {"nvlink": (0.47, 1.9, 3.4), "pci": (1.0, 2.5, 5.7), "net": (2.7, 4.0, 9.6)}
_RING: dict[str, Figures] = {"nvlink": (0.6, 1.9, 3.4), "pci": (1.0, 2.5, 5.7), "net": (2.7, 4.0, 14)}
_TREE: dict[str, Figures] = {"nvlink": (0.6, 1.25, 28), "pci": (1.0, 1.9, 28), "net": (5.0, 8.5, 28)}
_FAST_TREE: dict[str, Figures] = {"nvlink": (0.6, 1.25, 4), "pci": (1.0, 1.9, 4), "net": (5.0, 8.5, 14)}
_ERAS = (  # the first version after each range
    ((2, 10), Latencies(*_OLD_BASE, _OLD_RING, {**_TREE, "nvlink": (0.52, 1.2, 28), "net": (5.0, 8.5, 50)})),
    ((2, 13), Latencies(*_OLD_BASE, _OLD_RING, _TREE)),
    ((2, 18), Latencies(*_BASE, {**_OLD_RING, "nvlink": (0.6, 1.9, 3.4)}, _TREE)),
    ((2, 22), Latencies(*_BASE, _RING, _TREE)),
    ((2, 26), Latencies(*_BASE, _RING, _FAST_TREE)),
    ((99, 0), Latencies((6.8, 14, 8.4), _BASE[1], _RING, _FAST_TREE)),
)
COUNTS_PLUGIN = (2, 14)  # the first version that adds the plug-in's latency


def latencies(version: tuple[int, int]) -> Latencies:
    return next(figures for until, figures in _ERAS if version < until)


PCIE = "PCIe 4.0"  # NCCL assumes the same share of all generations


def ring_steps(collective: str, ranks: int) -> int:
    """Return the number of steps of a ring: 2(n-1) for all_reduce, else n-1."""
    return 2 * (ranks - 1) if collective == "all_reduce" else ranks - 1


def _column(table: Mapping[str, tuple[float, float, float]], comm: Communicator) -> float:
    generation = comm.generation if comm.generation in table else "volta"
    return table[generation][min(comm.nodes, 3) - 1]


def inside_rate(comm: Communicator) -> float:
    """Return the bandwidth in GB/s that NCCL's search finds for rings inside a node."""
    share = {True: usable_nvlink(comm.generation), False: usable_share(PCIE)}
    return min(share[hop.kind in NVLINKS] * hop.rate for hop in comm.hops)


def channels_found(comm: Communicator) -> int:
    """Return the number of channels of a ring or tree that NCCL's search finds and the tuner uses.

    Later, NCCL doubles them and applies NCCL_MAX_NCHANNELS (``ncclTopoPostset``).
    """
    channels = CHANNELS.get(comm.generation, 6) if comm.is_nvlink else 2
    if comm.network is not None:
        channels = min(channels, max(2 * comm.network.ports, 2))
    return channels


def bandwidth(comm: Communicator, collective: str, choice: Choice) -> float:
    """Return the algorithm bandwidth in GB/s that the tuner assumes. For trees, ``tuner_times`` corrects it by size."""
    algorithm, protocol = choice
    steps, n = ring_steps(collective, comm.ranks), comm.ranks
    nic = comm.network.nic if comm.network else float("inf")
    ring = min(inside_rate(comm), nic)
    channels = channels_found(comm)
    if algorithm == "ring":
        bus = _ring_bus(comm, collective, protocol, ring, channels)
        return bus * (n / steps if collective not in ("broadcast", "reduce") else 1.0)
    if algorithm == "tree":
        wide = comm.nodes == 2 and comm.version >= (2, 12)
        return 0.5 * _tree_bus(comm, protocol, min(inside_rate(comm), 2 * nic if wide else nic), channels)
    if algorithm in ("nvls", "nvls_tree"):
        return _nvls_bandwidth(comm, collective, algorithm, nic, channels)
    return 0.75 * ring * n / steps if algorithm == "pat" else 0.85 * ring * 0.5


def _ring_bus(comm: Communicator, collective: str, protocol: str, bus: float, channels: int) -> float:
    if protocol == "ll":
        is_full = comm.nodes > 1 or collective in ("all_reduce", "reduce")
        share = 0.5 if comm.version >= (2, 22) else 1 / 4 if is_full else 1 / 3
        return min(_ll_cap(comm), bus * share)
    if protocol == "ll128":
        share = 0.7 if comm.local == 1 and comm.version < (2, 22) else 0.92
        return min(bus * share, channels * _column(RING_LL128_CAP, comm))
    return bus


def _ll_cap(comm: Communicator) -> float:
    if comm.version < (2, 10):
        return float("inf")
    if comm.nodes > 1:
        return LL_CAP_BETWEEN["amd" if comm.system.cpu == "amd" else "others"][min(comm.nodes, 3) - 2]
    if comm.version < (2, 22):
        return LL_CAP["ampere" if comm.generation in ("ampere", "hopper") else "volta"]
    return LL_CAP.get(comm.generation, LL_CAP["volta"])


def _tree_bus(comm: Communicator, protocol: str, bus: float, channels: int) -> float:
    bus = min(bus * 0.92, channels * _column(TREE_CAP, comm))
    if protocol == "ll":
        return min(bus / 3.8, _ll_cap(comm))
    if protocol == "ll128":
        return min(bus * (7 / 9 if comm.nodes == 1 else 120 / 128), channels * _column(TREE_LL128_CAP, comm))
    return bus


def _nvls_bandwidth(comm: Communicator, collective: str, algorithm: str, nic: float, channels: int) -> float:
    inside, p = inside_rate(comm), comm.local
    if comm.version < (2, 26):
        if algorithm == "nvls_tree":
            inside = min(inside, nic if comm.nodes == 2 else nic / 2)
        elif collective != "all_reduce":
            return min(inside * (p - 1) / p, 0.9 * nic) * (1 if comm.version >= (2, 22) else 5 / 6)
        return min(inside, nic) * 5 / 6
    inside *= NVLS_EFFICIENCY[comm.generation] * (channels - 1) / channels
    if collective != "all_reduce":
        return min(inside * (p - 1) / p, 0.9 * nic)
    bus = min(2 * inside, nic * 2)
    if algorithm == "nvls_tree":
        bus = min(bus, nic * (2 if comm.nodes == 2 else 1), channels * _column(NVLS_TREE_CAP, comm))
    return 0.5 * bus


def latency(comm: Communicator, collective: str, choice: Choice) -> float:
    """Return the latency in us that the tuner assumes. ``tuner_times`` increases it for large ring all_reduces."""
    algorithm, protocol = choice
    figures, p = latencies(comm.version), PROTOCOL[protocol]
    inside = "nvlink" if comm.is_nvlink else "pci"
    steps, n = ring_steps(collective, comm.ranks), comm.ranks
    if algorithm == "ring":
        if collective in ("broadcast", "reduce"):
            return figures.base_ring[p] + figures.ring["net" if comm.nodes > 1 else inside][p]
        between = 0 if comm.nodes == 1 else (comm.nodes - 1) * (2 if collective == "all_reduce" else 1)
        hop = figures.ring[inside][p] * (1.8 if comm.version < (2, 14) and comm.nodes > 1 and p == 0 else 1)
        if comm.nodes > 1 and comm.version >= (2, 18):
            hop = max(hop, 3.0 if protocol == "simple" else 1.0)
        table = figures.tree if comm.local == 1 and comm.version >= (2, 22) else figures.ring
        net = table["net"][p] + _plugin(comm, protocol)
        return figures.base_ring[p] + (steps - between) * hop + between * net
    if algorithm == "tree":
        depth = 0.0 if comm.nodes == 1 else float(int(log2(comm.nodes)))
        return figures.base_tree[p] + 2 * (
            (comm.local - 1) * figures.tree[inside][p] + depth * (figures.tree["net"][p] + _plugin(comm, protocol))
        )
    if algorithm in ("nvls", "nvls_tree"):
        return _nvls_latency(comm, algorithm)
    if algorithm == "pat":
        return 8.0 + ceil(log2(comm.nodes)) * 14 / 3.5 + 2.8 * n
    return 2 * (comm.local - 1) * 2.8 + 30


def _nvls_latency(comm: Communicator, algorithm: str) -> float:
    inside = 25.0 if comm.version >= (2, 22) else 23.0
    if comm.nodes == 1:
        return inside
    if algorithm == "nvls":
        return inside + 18.0 + _plugin(comm, "simple")
    hop = 20.9 if comm.version >= (2, 26) else 14.0
    return inside + 2 * int(log2(comm.nodes)) * (hop + _plugin(comm, "simple"))


def _plugin(comm: Communicator, protocol: str) -> float:
    """Return the latency in us that the tuner adds for the network's plug-in. Simple counts it twice, as it flushes."""
    if comm.network is None or comm.version < COUNTS_PLUGIN:
        return 0.0
    return plugin_latency(comm.network.kind, is_staged=not comm.network.gdr) * (2 if protocol == "simple" else 1)


def tuner_times(comm: Communicator, collective: str, choice: Choice, sizes: Floats) -> Floats:
    """Return the times in us that the tuner assumes for an algorithm and protocol, at sizes in bytes."""
    algorithm, protocol = choice
    speed = np.full(len(sizes), bandwidth(comm, collective, choice))
    if algorithm == "tree":
        index = np.floor(np.log2(np.maximum(sizes, 64) / 64)).astype(int)
        table = TREE_CORRECTION[protocol]
        speed = speed * np.where(index < len(table), np.take(table, np.minimum(index, len(table) - 1)), 1.0)
    delay = np.full(len(sizes), latency(comm, collective, choice))
    if choice == ("ring", "simple") and comm.nodes > 1 and collective == "all_reduce":
        channels = channels_found(comm)
        plateau = 1.9 if comm.generation in ("volta", "pascal", "turing") or comm.version < (2, 12) else 1.4
        delay = np.where(sizes / (channels * comm.ranks) >= 64, delay * plateau, delay)
    times: Floats = delay + sizes / (1000 * speed)
    return times
