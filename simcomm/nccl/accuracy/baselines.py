"""Simpler predictions, to see what a model of NCCL gains: a line of alpha and beta, and NCCL's own tuner formula."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from collectives.costs.bounds import bus_factor
from collectives.units import parse_latency
from simcomm.cluster.hardware_parts import find_link, parts
from simcomm.nccl.descriptions import System

Floats = NDArray[np.float64]
Baseline = Callable[[System, str, Floats], Floats | None]  # seconds by system, collective and bytes; None: says nothing

NETWORK_HOP = 2.7e-6  # s; NCCL's src/graph/tuning.cc, hwLat of a ring with protocol LL over a network


def alpha_beta(system: System, collective: str, nbytes: Floats) -> Floats:
    """Return what a ring takes by the textbook: a latency for each step, and the bytes at line rate.

    Latencies are those of the hardware catalogue for NVLink and PCIe and 2.7 us between hosts; the bandwidth is the
    line rate of the slowest part: NVLink or PCIe of a GPU, or all NICs of a host.

    >>> from simcomm.nccl.descriptions import describe_preset
    >>> alpha_beta(describe_preset("dgx-h100", 1, 8), "all_reduce", np.array([1e9])).round(6)
    array([0.003897])
    """
    inside = system.nvlink if system.link in ("nvswitch", "mesh", "bridge", "xgmi") else _pcie_rate(system)
    link = "NVLink 4" if system.link in ("nvswitch", "mesh", "bridge", "xgmi") else "PCIe 4.0"
    inner_hop = parse_latency(parts("link")[link]["latency"].value) * (1 if link == "NVLink 4" else 2)
    rounds = 2 if collective == "all_reduce" else 1
    outer = rounds * (system.nodes - 1)
    steps = 1 if collective == "send_recv" else rounds * (system.ranks - 1)
    alpha = (steps - min(outer, steps)) * inner_hop + min(outer, steps) * NETWORK_HOP
    rate = inside if system.nodes == 1 else min(inside, system.nic) if system.gpus > 1 else system.nic
    return alpha + bus_factor(collective, system.ranks) * nbytes / (rate * 1e9)


def _pcie_rate(system: System) -> float:
    """Return the GB/s of a GPU's slot before packets take their share."""
    return find_link(f"PCIe {system.pcie}.0 x{system.lanes}").bandwidth / 1e9
