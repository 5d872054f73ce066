"""NCCL's model beside published tables, series by series, and simpler predictions of the same.

Of each series, one collective on one system, at most twelve sizes count, evenly spread over log size; so a long table
weighs no more than a short one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from collectives.costs.bounds import bus_factor
from collectives.units import parse_latency
from simcomm.accuracy.judging import Floats, Judged, class_of, concatenate
from simcomm.cluster.hardware_parts import find_link, parts
from simcomm.nccl.choice import available
from simcomm.nccl.communicator import make_communicator
from simcomm.nccl.descriptions import System
from simcomm.nccl.measured.tables import MeasuredTable, SizeSeries
from simcomm.nccl.parameters import Parameters
from simcomm.nccl.predict import COLLECTIVES, interval_log_limits, predict_seconds
from simcomm.nccl.settings import NcclSettings
from simcomm.nccl.tuner import tuner_times

Baseline = Callable[[System, str, Floats], Floats | None]  # seconds by system, collective and bytes; None: says nothing


class Times(NamedTuple):
    """Predicted seconds with their 80 % interval; arrays of one length."""

    seconds: Floats
    low: Floats
    high: Floats


Predictor = Callable[[System, str, Floats], Times]


def judged_series(
    systems: Mapping[str, System], tables: Mapping[str, MeasuredTable]
) -> Iterator[tuple[System, SizeSeries]]:
    """Yield the series that count, with 12 sizes at most: not those of skipped systems and unpredicted collectives."""
    for slug, table in tables.items():
        if not systems[slug].skip:
            for series in table.series(systems[slug].ranks).values():
                if series.collective in COLLECTIVES:
                    yield systems[slug], series.evenly()


def compare_series(
    judged: Iterable[tuple[System, SizeSeries]], predictor: Predictor, baselines: Mapping[str, Baseline]
) -> Judged:
    """Return the rows of all series beside their predictions and baselines."""
    return concatenate([_compare(system, series, predictor, baselines) for system, series in judged])


def _compare(system: System, series: SizeSeries, predictor: Predictor, baselines: Mapping[str, Baseline]) -> Judged:
    said = {name: baseline(system, series.collective, series.nbytes) for name, baseline in baselines.items()}
    nothing = np.full(len(series.nbytes), np.nan)
    return judge_series(
        system,
        series,
        predictor(system, series.collective, series.nbytes),
        {name: nothing if seconds is None else seconds for name, seconds in said.items()},
    )


def judge_series(
    system: System, series: SizeSeries, times: Times, baselines: Mapping[str, Floats] | None = None
) -> Judged:
    """Return the rows of a series beside predicted times; keys are system, family, collective, bytes and class."""
    whole = {"system": system.slug, "family": family_of(system), "collective": series.collective}
    return Judged(
        keys={
            **{name: np.full(len(series.nbytes), value) for name, value in whole.items()},
            "bytes": series.nbytes,
            "class": class_of(series.nbytes),
        },
        measured=series.seconds,
        predicted=times.seconds,
        low={0.8: times.low},
        high={0.8: times.high},
        baselines=baselines or {},
    )


def model_predictor(parameters: Mapping[str, Parameters]) -> Predictor:
    """Return the model with the parameters of each system by slug; where a system has none, those that are shipped."""

    def predict(system: System, collective: str, nbytes: Floats) -> Times:
        seconds = predict_seconds(system, collective, nbytes, parameters=parameters.get(system.slug))
        below, above = np.exp(interval_log_limits(system, nbytes))
        return Times(seconds, seconds / below, seconds * above)

    return predict


def tuner_formula(system: System, collective: str, nbytes: Floats) -> Floats | None:
    """Return the least time that NCCL's tuner reckons with for any choice that it has; None where it has no formula.

    The formula is for choosing, not for predicting: it counts neither launches nor the rise to full bandwidth. It knows
    no all_to_all and no send and receive, and no MPI on processors.
    """
    if system.gpu.generation == "cpu" or collective in ("all_to_all", "send_recv"):
        return None
    comm = make_communicator(system, NcclSettings())
    choices = [choice for choice, reason in available(comm, collective).items() if not reason]
    least: Floats = np.min([tuner_times(comm, collective, choice, nbytes) for choice in choices], axis=0)
    return least / 1e6


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


BETWEEN = {"ib": "InfiniBand, RoCE", "efa1": "EFA", "efa2": "EFA", "efa3": "EFA"}
INSIDE = {"nvswitch": "NVSwitch", "mesh": "NVLink mesh, bridge", "bridge": "NVLink mesh, bridge", "xgmi": "xGMI"}


def family_of(system: System) -> str:
    """Return the family of a system: what joins its hosts, or what joins the GPUs of its only one.

    >>> from simcomm.nccl.descriptions import describe_system
    >>> family_of(describe_system("mine", {"nodes": 1, "gpus": 4, "gpu": "RTX 4090"}))
    'PCIe, host memory'
    """
    if system.gpu.generation == "cpu":
        return "MPI on CPUs"
    if system.nodes > 1:
        return BETWEEN.get(system.net or "", "other networks")
    if system.link == "pcie":
        is_p2p = any(hop.kind.startswith("p2p") for hop in make_communicator(system, NcclSettings()).hops)
        return "PCIe, peer to peer" if is_p2p else "PCIe, host memory"
    return INSIDE[system.link]
