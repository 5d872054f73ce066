"""What several GPUs add to a step beside collectives: terms whose parameters are fitted to published trainings.

Every term takes numbers, or columns of them: a step (``planner/mesh/step.py``) and the columns of published series
(``benchmarks/studies/scaling_columns.py``) are made of the same.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcomm.nccl.parameters import Parameters, read_definitions

Floats = NDArray[np.float64]
Number = Floats | float
FILE = Path(__file__).parent / "parameters.toml"
LINK_KINDS = ("nvlink", "pcie", "host", "network")  # of link that communication occupies
CORES = 12  # of a host for each GPU, where nothing says it
USUAL_STEP = 0.2  # s
FULL_NIC = 12.5e9  # bytes/s of a NIC from which on communication takes as much from backward as it can


@cache
def read_parameters() -> Parameters:
    """Return the values that are shipped.

    >>> 0 < read_parameters()["eff_nvlink"] < 2
    True
    """
    return Parameters({name: found.value for name, found in read_definitions(FILE).items()})


def network_slowdown(slowdown: Number, is_network: "NDArray[np.bool_] | bool", nic: Number) -> Number:
    """Return what a second of communication takes from computing beside it; over a slow network in proportion.

    What competes for memory are the bytes that pass, so a NIC of 3 GB/s disturbs a quarter as much as one of 12.5 GB/s,
    which fills a PCIe 3.0 slot.
    """
    found: Number = np.where(is_network, slowdown * np.minimum(1.0, nic / FULL_NIC), slowdown)
    return found


def copy_seconds(values: Mapping[str, float], nbytes: Number, memory_bandwidth: Number) -> Number:
    """Return the seconds of passes over gradients in a GPU's memory that several GPUs need."""
    return values["copy_passes"] * nbytes / memory_bandwidth


def process_seconds(values: Mapping[str, float], gpus: Number, cores: Number) -> Number:
    """Return how long a step waits for the processes of a host's other GPUs, which share its cores."""
    return values["process_ms"] / 1e3 * (gpus - 1) / cores


def straggler_seconds(
    values: Mapping[str, float],
    computing: Number,
    slowest: Number,
    slowest_host: Number,
    is_unequal: "NDArray[np.bool_] | bool",
) -> Number:
    """Return what the slowest device and the slowest host add, by the means of the greatest of so many draws.

    What differs from step to step averages out in a long one, among hosts; ``is_unequal`` is of batches of unequal
    work.
    """
    jitter = np.where(is_unequal, values["jitter_variable"], values["jitter"])
    steps = (USUAL_STEP / np.maximum(USUAL_STEP, computing)) ** 0.5
    found: Number = computing * (jitter * slowest + values["jitter_nodes"] * steps * slowest_host)
    return found


def loading_added(values: Mapping[str, float], on_devices: Number, loading: Number) -> Number:
    """Return what loaders add to a step: the slower of devices and loaders decides, softly."""
    power = values["input_power"]
    found: Number = np.maximum((on_devices**power + loading**power) ** (1 / power) - on_devices, 0.0)
    return found


def loading_felt(values: Mapping[str, float], share: Number) -> Number:
    """Return the share of a change of the loaders' rate that is felt in a step of which they add ``share``."""
    return 1 - (1 - share) ** values["input_power"]


class ParameterServers(NamedTuple):
    """GPUs that a parameter server serves, and what joins them: columns or one of them. Bandwidths are bytes/s.

    GPUs that reach each other hold an equal share of the variables each, so that all links work at once. Where all is
    ``staged`` it goes through the host's memory, over so many ``paths``.
    """

    gpus: Number
    nodes: Number
    staged: "NDArray[np.bool_] | bool"
    busbw: Number
    paths: Number
    nic: Number

    def seconds(self, values: Mapping[str, float], nbytes: Number, largest: Number) -> Number:
        """Return what fetching ``nbytes`` of weights and sending as many of gradients takes.

        What belongs to the ``largest`` layer, so many bytes, comes from one GPU where all is staged.
        """
        there = 2 * nbytes * (self.gpus - 1)
        spread = there / self.gpus / (values["ps_eff"] * self.busbw)
        of_one = 2 * largest * (self.gpus - 1) / (values["ps_one_GBps"] * 1e9)
        through_host = np.maximum(there / (values["ps_GBps"] * 1e9 * self.paths), of_one)
        inside = np.where(self.staged, through_host, spread)
        between = np.where(self.nodes > 1, 2 * nbytes * (self.nodes - 1) / self.nodes / self.nic, 0.0)
        found: Number = np.where(self.gpus == self.nodes, 0.0, inside) + between
        return found


@cache
def expected_maximum(count: int) -> float:
    """Return the mean of the greatest of so many draws of a standard normal distribution.

    >>> round(expected_maximum(2), 4), round(expected_maximum(8), 3)
    (0.5642, 1.424)
    """
    if count < 2:
        return 0.0
    draws, step = np.linspace(-9.0, 9.0, 3601, retstep=True)
    density = np.exp(-(draws**2) / 2) / np.sqrt(2 * np.pi)
    below = np.cumsum(density) * step - density * step / 2
    return float(np.sum(draws * count * density * np.clip(below, 0, 1) ** (count - 1)) * step)
