"""What a few measured rows gain: the errors on the other rows, for each choice of sizes to measure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectives.errors import InputError
from simcomm.accuracy.judging import ClassScore, Judged, concatenate, score_classes
from simcomm.accuracy.nccl import Times, judge_series
from simcomm.nccl.descriptions import System
from simcomm.nccl.measured.calibration import PredictedPoints, adapt_to_points, find_points
from simcomm.nccl.measured.tables import MeasuredTable, SizeSeries
from simcomm.nccl.parameters import Parameters
from simcomm.nccl.predict import COLLECTIVES, interval_log_limits

Floats = NDArray[np.float64]
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
    """The scores after calibration by rows of these sizes, inf for the largest, and before it on the same rows."""

    sizes: tuple[float, ...]
    before: dict[str, ClassScore]
    after: dict[str, ClassScore]

    @property
    def worst(self) -> float:
        """The greatest median of a class, by which choices are ranked."""
        return max((score.median for score in self.after.values() if score.median is not None), default=inf)

    def to_dict(self) -> dict[str, Any]:
        """Return the sizes, None for the largest, and both scores as plain JSON."""
        scores = {"before": self.before, "after": self.after}
        return {
            "sizes": [None if size == inf else int(size) for size in self.sizes],
            **{key: {name: asdict(score) for name, score in found.items()} for key, found in scores.items()},
        }


@dataclass(frozen=True)
class _MeasuredSeries:
    """A series with the model's points at all of its sizes, and the rows that are judged."""

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
    """Return the gain of every choice of so many sizes, the best first.

    ``parameters`` of each system, as of ``refit_without_each``; else those that are shipped. Raises InputError.
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
                judged = np.flatnonzero(np.isin(series.nbytes, series.evenly().nbytes))
                yield _MeasuredSeries(system, series, points, judged, values)


def _gain(measured: Sequence[_MeasuredSeries], sizes: Sequence[float]) -> Gain | None:
    """Return the gain by rows of these sizes; None where no table has them."""
    pairs = [found for one in measured if (found := _adapted(one, sizes))]
    if not pairs:
        return None
    before, after = (score_classes(concatenate([pair[side] for pair in pairs])) for side in (0, 1))
    return Gain(tuple(sizes), before, after)


def _adapted(one: _MeasuredSeries, sizes: Sequence[float]) -> tuple[Judged, Judged] | None:
    """Return a series without the rows measured, predicted before and after; None where rows or sizes are missing."""
    known = measured_rows(one.series, sizes)
    others = np.setdiff1d(one.judged, known)
    if not known or not len(others):
        return None
    points, seconds = one.points.take(others), one.series.seconds
    adapted = adapt_to_points(one.system, one.points.take(known), seconds[known], one.parameters)
    plain, better = np.exp(points.log_seconds), adapted.seconds_at(points)
    below, above = np.exp(interval_log_limits(one.system, points.nbytes))
    nearer_below, nearer_above = np.exp(adapted.log_limits_at(points))
    series = SizeSeries(one.series.collective, points.nbytes, seconds[others])
    return (
        judge_series(one.system, series, Times(plain, plain / below, plain * above)),
        judge_series(one.system, series, Times(better, better / nearer_below, better * nearer_above)),
    )


def measured_rows(series: SizeSeries, sizes: Sequence[float]) -> list[int]:
    """Return the rows nearest to these sizes; none where one row would have to stand for two of them."""
    wanted = [series.nbytes[-1] if size == inf else size for size in sizes]
    found = {int(np.abs(np.log(series.nbytes / size)).argmin()) for size in wanted}
    return sorted(found) if len(found) == len(sizes) else []
