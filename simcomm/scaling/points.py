"""``Points``: every point of some series as columns, and its prediction from the first point of its series."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simcomm.scaling.cases import LOADERS, Cases, Floats, cases_of_series, make_cases
from simcomm.scaling.descriptions import Series
from simcomm.scaling.step import StepTimes, solve_alone, step_times

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
DECODING = [LOADERS.index(name) for name in ("dali", "decode")]


@dataclass(frozen=True)
class Points:
    """A row for each point, series after series. ``first`` is the row that a row is predicted from."""

    series: tuple[Series, ...]
    cases: Cases
    of: Rows  # which of the series
    first: Rows
    rate: Floats  # measured, of all GPUs
    linear: Floats  # the first point's rate times how many times more GPUs there are

    @property
    def predicted(self) -> Mask:
        """The rows that are predicted, which are not the first of their series."""
        found: Mask = self.first != np.arange(len(self.first))
        return found

    @property
    def hard(self) -> Mask:
        """The predicted rows that were measured below 0.9 of linear."""
        return self.predicted & (self.rate < 0.9 * self.linear)

    def take(self, chosen: Iterable[bool]) -> "Points":
        """Return the points of some of the series."""
        return make_points([one for one, wanted in zip(self.series, chosen, strict=True) if wanted])


def make_points(series: Sequence[Series]) -> Points:
    """Return the points of series as columns."""
    counts = [len(one.points) for one in series]
    starts = np.cumsum([0, *counts[:-1]])
    first = np.repeat(starts, counts)
    points = [point for one in series for point in one.points]
    rate = np.array([point.rate for point in points])
    gpus = np.array([point.gpus for point in points], dtype=np.float64)
    cases = make_cases(cases_of_series(series))
    return Points(tuple(series), cases, np.repeat(np.arange(len(series)), counts), first, rate,
                  rate[first] * gpus / gpus[first])  # fmt: skip


def predict_points(points: Points, values: Mapping[str, float]) -> Floats:
    """Return the rates that the model gives all rows, from the first point of each series."""
    return predict_steps(points, values)[0]


def predict_steps(points: Points, values: Mapping[str, float]) -> tuple[Floats, StepTimes]:
    """Return the rates that the model gives all rows, and where the seconds of their steps go."""
    cases = points.cases
    starts = np.flatnonzero(~points.predicted)
    known = cases.take(starts)
    seconds = known.gpus * known.batch / points.rate[starts] * known.more_steps
    alone = seconds.copy()
    rows = np.flatnonzero((known.gpus > 1) | np.isin(known.loader, DECODING))
    if len(rows):
        alone[rows] = solve_alone(known.take(rows), values, seconds[rows])
    each = (alone / known.batch)[points.of] * cases.batch
    times = step_times(cases, values, each)
    found: Floats = cases.gpus * cases.batch / times.total * cases.more_steps
    return found, times
