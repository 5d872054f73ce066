"""Compare the NCCL model and baselines with published tables, series by series.

A series is one collective on one system. At most twelve of its sizes count, evenly spread over the logarithm of the
size, so that long tables have no more weight than short ones. If a run forced the algorithm or the protocol, the model
uses it too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.judging import ClassScore, Floats, Judged, class_of, concatenate, score_classes
from benchmarks.accuracy.tables import MeasuredTable, PublishedRow, space_evenly
from collectives.costs.bounds import bus_factor
from collectives.errors import InputError
from collectives.units import count, parse_latency
from simcomm.cluster.hardware import find_link, parts
from simcomm.nccl.catalogue import NVLINKS
from simcomm.nccl.choice import available
from simcomm.nccl.communicator import make_communicator
from simcomm.nccl.descriptions import System
from simcomm.nccl.measured.calibration import PredictedPoints, adapt_to_points, find_points
from simcomm.nccl.measured.tables import SizeSeries
from simcomm.nccl.parameters import Parameters
from simcomm.nccl.predict import COLLECTIVES, interval_log_limits, predict_collective, predict_seconds
from simcomm.nccl.settings import NcclSettings
from simcomm.nccl.tuner import tuner_times

Baseline = Callable[[System, str, Floats], Floats | None]  # seconds by system, collective and bytes; None: says nothing


class Times(NamedTuple):
    """Predicted seconds with their 80 % intervals, as arrays of equal length."""

    seconds: Floats
    low: Floats
    high: Floats


Predictor = Callable[[System, str, Floats], Times]


def judged_series(
    systems: Mapping[str, System], tables: Mapping[str, MeasuredTable]
) -> Iterator[tuple[System, SizeSeries]]:
    """Yield the evaluated series with at most 12 sizes.

    Skipped systems and collectives without predictions are omitted.
    """
    for slug, table in tables.items():
        if not systems[slug].skip:
            for series in table.series(systems[slug].ranks).values():
                if series.collective in COLLECTIVES:
                    yield systems[slug], space_evenly(series)


def compare_series(
    judged: Iterable[tuple[System, SizeSeries]], predictor: Predictor, baselines: Mapping[str, Baseline]
) -> Judged:
    """Return the rows of all series with their predictions and baselines."""
    return concatenate([_compare(system, series, predictor, baselines) for system, series in judged])


def _compare(system: System, series: SizeSeries, predictor: Predictor, baselines: Mapping[str, Baseline]) -> Judged:
    seconds_by_name = {name: baseline(system, series.collective, series.nbytes) for name, baseline in baselines.items()}
    nothing = np.full(len(series.nbytes), np.nan)
    return judge_series(
        system,
        series,
        predictor(system, series.collective, series.nbytes),
        {name: nothing if seconds is None else seconds for name, seconds in seconds_by_name.items()},
    )


def judge_series(
    system: System, series: SizeSeries, times: Times, baselines: Mapping[str, Floats] | None = None
) -> Judged:
    """Return the rows of a series with predicted times. Keys are system, family, collective, bytes and class."""
    constants = {"system": system.slug, "family": family_of(system), "collective": series.collective}
    return Judged(
        keys={
            **{name: np.full(len(series.nbytes), value) for name, value in constants.items()},
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
    """Return the model with the parameters of each system by slug. Default for a system: the shipped parameters."""

    def predict(system: System, collective: str, nbytes: Floats) -> Times:
        seconds = predict_seconds(system, collective, nbytes, parameters=parameters.get(system.slug))
        below, above = np.exp(interval_log_limits(system, nbytes))
        return Times(seconds, seconds / below, seconds * above)

    return predict


def tuner_formula(system: System, collective: str, nbytes: Floats) -> Floats | None:
    """Return the least time over all choices in the formula of NCCL's tuner; None if the tuner has no formula.

    The tuner uses the formula to choose, not to predict. It contains neither launch times nor the rise to full
    bandwidth, and does not cover all_to_all, send and receive, and MPI on CPUs.
    """
    if system.gpu.generation == "cpu" or collective in ("all_to_all", "send_recv"):
        return None
    comm = make_communicator(system, NcclSettings())
    choices = [choice for choice, reason in available(comm, collective).items() if not reason]
    least: Floats = np.min([tuner_times(comm, collective, choice, nbytes) for choice in choices], axis=0)
    return least / 1e6


NETWORK_HOP = 2.7e-6  # s; NCCL's src/graph/tuning.cc, hwLat of a ring with protocol LL over a network


def alpha_beta(system: System, collective: str, nbytes: Floats) -> Floats:
    """Return the textbook time of a ring: a latency per step, and the bytes at line rate.

    Latencies for NVLink and PCIe come from the hardware catalog, and 2.7 us between hosts. The bandwidth is the
    lowest line rate: NVLink or PCIe of a GPU, or all NICs of a host.

    >>> from simcomm.nccl.descriptions import describe_preset
    >>> alpha_beta(describe_preset("dgx-h100", 1, 8), "all_reduce", np.array([1e9])).round(6)
    array([0.003897])
    """
    inside = system.nvlink if system.link in NVLINKS else _pcie_rate(system)
    link = "NVLink 4" if system.link in NVLINKS else "PCIe 4.0"
    inner_hop = parse_latency(parts("link")[link]["latency"].value) * (1 if link == "NVLink 4" else 2)
    rounds = 2 if collective == "all_reduce" else 1
    outer = rounds * (system.nodes - 1)
    steps = 1 if collective == "send_recv" else rounds * (system.ranks - 1)
    alpha = (steps - min(outer, steps)) * inner_hop + min(outer, steps) * NETWORK_HOP
    rate = inside if system.nodes == 1 else min(inside, system.nic) if system.gpus > 1 else system.nic
    return alpha + bus_factor(collective, system.ranks) * nbytes / (rate * 1e9)


def _pcie_rate(system: System) -> float:
    """The rate is in GB/s, without the overhead of packets."""
    return find_link(f"PCIe {system.pcie}.0 x{system.lanes}").bandwidth / 1e9


BETWEEN = {"ib": "InfiniBand, RoCE", "efa1": "EFA", "efa2": "EFA", "efa3": "EFA"}
INSIDE = {"nvswitch": "NVSwitch", "mesh": "NVLink mesh, bridge", "bridge": "NVLink mesh, bridge", "xgmi": "xGMI"}


def family_of(system: System) -> str:
    """Return the family of a system: the network between its hosts, or the links between the GPUs of a single host.

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


ALGORITHMS = {  # as NCCL's logs write them
    "Ring": "ring", "Tree": "tree", "NVLS": "nvls", "NVLSTree": "nvls_tree", "CollNetChain": "collnet_chain",
    "PAT": "pat",
}  # fmt: skip


@dataclass(frozen=True)
class StatedChoice:
    """A row whose table states NCCL's choice. ``protocols`` is empty if none is stated."""

    slug: str
    nbytes: int
    stated: tuple[str, str]  # algorithm, protocol
    taken: tuple[str, str]
    is_forced: bool

    @property
    def is_right(self) -> bool:
        """Whether the model makes the stated choice."""
        return all(not word or word == taken for word, taken in zip(self.stated, self.taken, strict=True))


def find_stated_choices(systems: Mapping[str, System], tables: Mapping[str, MeasuredTable]) -> list[StatedChoice]:
    """Return the rows of tables that state NCCL's algorithm.

    >>> from simcomm.nccl.descriptions import read_systems
    >>> from benchmarks.accuracy.tables import read_tables
    >>> systems = read_systems()
    >>> found = find_stated_choices(systems, read_tables(["h100_2x4_ring_kolyoz"]))
    >>> len(found), all(one.is_forced and one.is_right for one in found)
    (5, True)
    """
    pairs = [(systems[slug], row) for slug, table in tables.items() for row in table.rows if not systems[slug].skip]
    return list(_find_choices(pairs))


def _find_choices(pairs: list[tuple[System, PublishedRow]]) -> Iterator[StatedChoice]:
    for system, row in pairs:
        algorithm = ALGORITHMS.get(row.algorithm)
        if algorithm is not None and row.nbytes:
            prediction = predict_collective(system, row.collective, row.nbytes)
            is_forced = system.algo is not None or system.proto is not None
            stated, taken = (algorithm, row.protocol.lower()), (prediction.algorithm, prediction.protocol)
            yield StatedChoice(system.slug, row.nbytes, stated, taken, is_forced)


def describe_choices(systems: Mapping[str, System], tables: Mapping[str, MeasuredTable]) -> list[str]:
    """Return sentences on how often the model picks the choices that these tables state; empty if they state none.

    Only choices that the run did not force can evaluate the tuner, and only if the description is not guessed.

    >>> from simcomm.nccl.descriptions import read_systems
    >>> from benchmarks.accuracy.tables import read_tables
    >>> print(*describe_choices(read_systems(), read_tables(["h100_2x4_ring_kolyoz"])))
    The sources state NCCL's choice in 5 rows. The run's settings force it in 5 rows. The model agrees with 5 of these.
    """
    choices = find_stated_choices(systems, tables)
    if not choices:
        return []
    forced, unforced = ([choice for choice in choices if choice.is_forced is is_forced] for is_forced in (True, False))
    text = (
        f"The sources state NCCL's choice in {count(len(choices), 'row')}. The run's settings force it in "
        f"{len(forced)} rows. The model agrees with {sum(choice.is_right for choice in forced)} of these"
    )
    if unforced:
        where = "; ".join(
            slug + (f", whose {', '.join(systems[slug].guessed)} is a guess" if systems[slug].guessed else "")
            for slug in dict.fromkeys(choice.slug for choice in unforced)
        )
        right = sum(choice.is_right for choice in unforced)
        text += f". In {len(unforced)} rows, NCCL chooses by itself. The model agrees with {right} of these ({where})"
    return [f"{text}."]


MEASURABLE = (
    1024.0,
    4096.0,
    32768.0,
    524288.0,
    4194304.0,
    33554432.0,
    inf,
)  # bytes to choose from; inf: the largest there is


@dataclass(frozen=True)
class Gain:
    """The scores before and after a calibration with rows of some sizes, evaluated on all other rows; inf is the
    largest size.
    """

    sizes: tuple[float, ...]
    before: dict[str, ClassScore]
    after: dict[str, ClassScore]

    @property
    def worst(self) -> float:
        """The largest median of a class, by which choices of sizes are ranked."""
        return max((score.median for score in self.after.values() if score.median is not None), default=inf)

    def to_dict(self) -> dict[str, Any]:
        """Return the sizes (None for the largest) and both scores as plain JSON."""
        scores = {"before": self.before, "after": self.after}
        return {
            "sizes": [None if size == inf else int(size) for size in self.sizes],
            **{
                key: {name: asdict(score) for name, score in scores_by_name.items()}
                for key, scores_by_name in scores.items()
            },
        }


@dataclass(frozen=True)
class _MeasuredSeries:
    system: System
    series: SizeSeries
    points: PredictedPoints
    judged: NDArray[np.intp]
    parameters: Parameters | None


def measure_gains(
    systems: Mapping[str, System],
    tables: Mapping[str, MeasuredTable],
    rows: int,
    parameters: Mapping[str, Parameters] | None = None,
) -> list[Gain]:
    """Return the gain of every choice of ``rows`` sizes, the largest gain first.

    ``parameters`` are those of each system, as ``refit_without_each`` returns them. Default: the shipped parameters.
    Raises InputError if ``rows`` is out of range.
    """
    if not 1 <= rows <= len(MEASURABLE):
        raise InputError(f"--calibrate {rows}; give 1 to {len(MEASURABLE)} rows")
    measured = list(_measured(systems, tables, parameters or {}))
    gains = [_gain(measured, sizes) for sizes in combinations(MEASURABLE, rows)]
    return sorted((gain for gain in gains if gain is not None), key=lambda gain: gain.worst)


def _measured(
    systems: Mapping[str, System], tables: Mapping[str, MeasuredTable], fitted: Mapping[str, Parameters]
) -> Iterator[_MeasuredSeries]:
    for slug, table in tables.items():
        system, values = systems[slug], fitted.get(slug)
        for series in () if system.skip else table.series(system.ranks).values():
            if series.collective in COLLECTIVES:
                points = find_points(system, series.collective, series.nbytes, parameters=values)
                judged = np.flatnonzero(np.isin(series.nbytes, space_evenly(series).nbytes))
                yield _MeasuredSeries(system, series, points, judged, values)


def _gain(measured: Sequence[_MeasuredSeries], sizes: Sequence[float]) -> Gain | None:
    pairs = [pair for series in measured if (pair := _adapted(series, sizes))]
    if not pairs:
        return None
    before, after = (score_classes(concatenate([pair[side] for pair in pairs])) for side in (0, 1))
    return Gain(tuple(sizes), before, after)


def _adapted(measured: _MeasuredSeries, sizes: Sequence[float]) -> tuple[Judged, Judged] | None:
    known = measured_rows(measured.series, sizes)
    others = np.setdiff1d(measured.judged, known)
    if not known or not len(others):
        return None
    points, seconds = measured.points.take(others), measured.series.seconds
    adapted = adapt_to_points(measured.system, measured.points.take(known), seconds[known], measured.parameters)
    plain, better = np.exp(points.log_seconds), adapted.seconds_at(points)
    below, above = np.exp(interval_log_limits(measured.system, points.nbytes))
    nearer_below, nearer_above = np.exp(adapted.log_limits_at(points))
    series = SizeSeries(measured.series.collective, points.nbytes, seconds[others])
    return (
        judge_series(measured.system, series, Times(plain, plain / below, plain * above)),
        judge_series(measured.system, series, Times(better, better / nearer_below, better * nearer_above)),
    )


def measured_rows(series: SizeSeries, sizes: Sequence[float]) -> list[int]:
    """Return the rows with the nearest sizes; none if a row would be the nearest to two sizes."""
    wanted = [series.nbytes[-1] if size == inf else size for size in sizes]
    places = {int(np.abs(np.log(series.nbytes / size)).argmin()) for size in wanted}
    return sorted(places) if len(places) == len(sizes) else []
