"""NCCL's own cost model, by which it chooses algorithm and protocol, as its source states it, version by version.

    time = latency + bytes / (1000 bandwidth)        microseconds, GB/s; the smallest wins

``ncclTopoTuneModel`` in ``src/graph/tuning.cc`` of NVIDIA/nccl, with the tables of ``tuner_tables.py``. This is NCCL's
belief, not the truth: what a choice costs is in ``timing.py``.
"""

from collections.abc import Mapping
from math import ceil, log2

import numpy as np

from simcomm.nccl.channels import Floats
from simcomm.nccl.communicator import Communicator
from simcomm.nccl.generations import plugin_latency as told_latency
from simcomm.nccl.generations import usable_nvlink, usable_share
from simcomm.nccl.tuner_tables import (
    CHANNELS,
    COUNTS_PLUGIN,
    LL_CAP,
    NVLS_EFFICIENCY,
    NVLS_TREE_CAP,
    RING_LL128_CAP,
    TREE_CAP,
    TREE_CORRECTION,
    TREE_LL128_CAP,
    latencies,
)

PCIE = "PCIe 4.0"  # any: NCCL reckons with the same share of each
Choice = tuple[str, str]  # algorithm, protocol
PROTOCOL = {"ll": 0, "ll128": 1, "simple": 2}


def ring_steps(collective: str, ranks: int) -> int:
    """Return the steps of a ring: 2(n-1) for all_reduce, n-1 for its halves, and for a chain."""
    return 2 * (ranks - 1) if collective == "all_reduce" else ranks - 1


def available(comm: Communicator, collective: str) -> dict[Choice, str]:
    """Return every algorithm and protocol with what speaks against it, an empty text where nothing does.

    What settings forbid is not looked at here; a protocol that they name is had also where it is off by default.
    """
    reasons: dict[Choice, str] = {}
    for algorithm in algorithms_of(comm, collective):
        for protocol in PROTOCOL if algorithm in ("ring", "tree") else ("simple",):
            reasons[algorithm, protocol] = _algorithm_reason(comm, collective, algorithm) or _protocol_reason(
                comm, collective, protocol
            )
    return reasons


def algorithms_of(comm: Communicator, collective: str) -> tuple[str, ...]:
    """Return the algorithms that NCCL has for a collective."""
    if collective == "all_reduce":
        return ("ring", "tree", "nvls", "nvls_tree", "collnet_chain")
    return ("ring", "pat", "nvls") if collective in ("all_gather", "reduce_scatter") else ("ring",)


def _algorithm_reason(comm: Communicator, collective: str, algorithm: str) -> str:
    """Return why an algorithm is not to be had, or an empty text."""
    if algorithm == "tree" and comm.version < (2, 5) and comm.nodes == 1:
        return "no trees inside a node before 2.5"
    if algorithm == "tree" and comm.version < (2, 4):
        return "no trees before 2.4"
    if algorithm in ("nvls", "nvls_tree"):
        return _nvls_reason(comm, collective, algorithm)
    if algorithm == "collnet_chain" and not (comm.sharp and comm.nodes > 1):
        return "no reduction in the network (SHARP)"
    if algorithm == "pat" and comm.version < (2, 23):
        return "PAT came with 2.23"
    if algorithm == "pat" and (comm.local > 1 or comm.nodes < 2):
        return "PAT is for one rank a node"
    return ""


def _nvls_reason(comm: Communicator, collective: str, algorithm: str) -> str:
    if comm.generation not in NVLS_EFFICIENCY or not any(hop.kind == "nvswitch" for hop in comm.hops):
        return "NVLS needs an NVSwitch, and Hopper or later"
    if comm.local <= 2:  # ncclNvlsInit in src/transport/nvls.cc of NVIDIA/nccl
        return "NVLS needs more than two GPUs in a node"
    if comm.settings.nvls is False:
        return "NCCL_NVLS_ENABLE=0"
    if comm.version < (2, 17):
        return "NVLS came with 2.17"
    if algorithm == "nvls_tree":
        return "" if comm.nodes > 1 and comm.version >= (2, 18) else "NVLSTree is for several nodes, from 2.18"
    return "" if comm.nodes == 1 or comm.sharp else "NVLS across nodes needs CollNet"


def _protocol_reason(comm: Communicator, collective: str, protocol: str) -> str:
    settings = comm.settings
    if settings.proto and not settings.proto.startswith("^") and protocol in settings.allowed_protocols(collective):
        return "LL128 came with 2.5" if protocol == "ll128" and comm.version < (2, 5) else ""
    if protocol != "simple" and comm.network is not None and comm.network.kind == "efa1":
        return "the plug-in for EFA allows Simple only before p5 (aws-ofi-nccl sets NCCL_PROTO=simple)"
    return _ll128_reason(comm) if protocol == "ll128" else ""


def _ll128_reason(comm: Communicator) -> str:
    """Return why LL128 is off by default: it relies on 128-byte stores that stay whole on their way."""
    if not comm.has_ll128:
        return "LL128 is on by default for Volta, A100, A30, Hopper and Blackwell only"
    if comm.version < (2, 5):
        return "LL128 came with 2.5"
    if comm.local > 1 and not comm.is_nvlink:
        return "LL128 needs NVLink inside a node"
    if comm.network is not None and (comm.network.kind == "tcp" or not comm.network.gdr):
        return "LL128 needs GPUDirect between nodes"
    return ""


def _column(table: Mapping[str, tuple[float, float, float]], comm: Communicator) -> float:
    generation = comm.generation if comm.generation in table else "volta"
    return table[generation][min(comm.nodes, 3) - 1]


def inside_rate(comm: Communicator) -> float:
    """Return the GB/s that NCCL's search finds for rings inside a node."""
    rates = []
    for hop in comm.hops:
        is_nvlink = hop.kind in ("nvswitch", "mesh", "bridge", "xgmi")
        share = usable_nvlink(comm.generation) if is_nvlink else usable_share(PCIE)
        rates.append(share * hop.rate)
    return min(rates)


def channels_found(comm: Communicator) -> int:
    """Return the channels of a ring or tree as the tuner sees them: as the search found them.

    NCCL doubles them and applies NCCL_MAX_NCHANNELS later (``ncclTopoPostset``), and its tuner does not know of it.
    """
    found = CHANNELS.get(comm.generation, 6) if comm.is_nvlink else 2
    if comm.network is not None:
        found = min(found, max(2 * comm.network.ports, 2))
    return found


def bandwidth(comm: Communicator, collective: str, choice: Choice) -> float:
    """Return the tuner's GB/s of algorithm bandwidth for a choice, before the correction of trees by size."""
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
        whole = comm.nodes > 1 or collective in ("all_reduce", "reduce")
        share = 0.5 if comm.version >= (2, 22) else 1 / 4 if whole else 1 / 3
        return min(_ll_cap(comm), bus * share)
    if protocol == "ll128":
        share = 0.7 if comm.local == 1 and comm.version < (2, 22) else 0.92
        return min(bus * share, channels * _column(RING_LL128_CAP, comm))
    return bus


def _ll_cap(comm: Communicator) -> float:
    """Return the most that LL may reach: by the GPUs on one node, by the CPUs' maker (taken as AMD) on several."""
    if comm.version < (2, 10):
        return float("inf")
    if comm.version < (2, 22):
        return LL_CAP["ampere" if comm.generation in ("ampere", "hopper") else "volta"][min(comm.nodes, 3) - 1]
    return _column(LL_CAP, comm)


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
    """Return the tuner's latency in us, without the plateau of rings."""
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
        net = table["net"][p] + plugin_latency(comm, protocol)
        return figures.base_ring[p] + (steps - between) * hop + between * net
    if algorithm == "tree":
        depth = 0.0 if comm.nodes == 1 else float(int(log2(comm.nodes)))
        return figures.base_tree[p] + 2 * (
            (comm.local - 1) * figures.tree[inside][p]
            + depth * (figures.tree["net"][p] + plugin_latency(comm, protocol))
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
        return inside + 18.0 + plugin_latency(comm, "simple")
    hop = 20.9 if comm.version >= (2, 26) else 14.0
    return inside + 2 * int(log2(comm.nodes)) * (hop + plugin_latency(comm, "simple"))


def plugin_latency(comm: Communicator, protocol: str) -> float:
    """Return the us that a network's plug-in reports for a message, twice where Simple flushes."""
    if comm.network is None or comm.version < COUNTS_PLUGIN:
        return 0.0
    told = told_latency(comm.network.kind, is_staged=not comm.network.gdr)
    return told * (2 if protocol == "simple" else 1)


def tuner_times(comm: Communicator, collective: str, choice: Choice, sizes: Floats) -> Floats:
    """Return the microseconds that NCCL's tuner reckons with for a choice at sizes in bytes."""
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
