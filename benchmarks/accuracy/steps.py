"""Compare the steps of published runs and series with the measured seconds, and fit the parameters to both.

Every fit starts from the priors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares
from threadpoolctl import threadpool_limits

from benchmarks.accuracy.series import OWN_DATA, Series, columns_of_series, read_series
from collectives.input_files import read_text
from planner.beliefs import NAMES, PRIORS, read_shipped
from planner.columns import Columns
from planner.compute import Parameters
from planner.hosts import Array
from planner.step import step_seconds

WEIGHT = 60.0  # largest weight of a source, in points
SOME = 8  # only one of so many series is checked for parameters without effect
TRIES = 40  # iterations to find the step of one GPU from that of several
MOVED = 0.02  # step of finite differences, in prior deviations


class Residuals(NamedTuple):
    """The standard deviation of residuals of logarithms, and the size beyond which they count linearly."""

    deviation: float
    linear_from: float


# Points of one source share errors, so a point of a series counts less than a run. Among deviations from 0.03 to 0.18,
# 0.18 predicts left-out sources best.
RUN_RESIDUALS, SERIES_RESIDUALS = Residuals(0.06, 0.12), Residuals(0.18, 0.06)


def weigh(sources: Array) -> Array:
    """Return the weight of each residual. The total weight of a source is at most that of ``WEIGHT`` points."""
    _, places, counts = np.unique(sources, return_inverse=True, return_counts=True)
    return np.asarray(np.sqrt(np.minimum(1.0, WEIGHT / counts))[places])


def soften(residuals: Array, linear_from: float) -> Array:
    """Return residuals whose squares grow linearly beyond ``linear_from`` (pseudo-Huber).

    >>> soften(np.array([0.01, -10.0]), 1.0).round(2).tolist()
    [0.01, -4.25]
    """
    size = linear_from * np.sqrt(2 * (np.sqrt(1 + (residuals / linear_from) ** 2) - 1))
    return np.asarray(np.sign(residuals) * size)


@dataclass(frozen=True)
class RunSteps:
    """The steps of runs with the measured seconds."""

    columns: Columns
    measured: Array
    sources: Array

    def take(self, rows: Array) -> "RunSteps":
        """Return some of the runs."""
        return RunSteps(self.columns.take(rows), self.measured[rows], self.sources[rows])

    def logs(self, p: Parameters) -> Array:
        """Return the logarithms of predicted divided by measured seconds."""
        return np.asarray(np.log(step_seconds(self.columns, p) / self.measured))


@dataclass(frozen=True)
class SeriesSteps:
    """The steps of the points of series. Each point is predicted from the first point of its series."""

    columns: Columns
    measured: Array  # seconds
    of: Array  # index of the series
    sources: Array

    @property
    def first(self) -> Array:
        """The row of the first point of each point's series."""
        return np.searchsorted(self.of, self.of)

    @property
    def predicted(self) -> Array:
        """A mask of the points that are not the first of their series."""
        return np.asarray(self.first != np.arange(len(self.of)))

    def take(self, chosen: Array) -> "SeriesSteps":
        """Return the points of some series, by a mask of all series."""
        rows = chosen[self.of]
        of = np.unique(self.of[rows], return_inverse=True)[1]
        return SeriesSteps(self.columns.take(rows), self.measured[rows], of, self.sources[rows])

    def seconds(self, p: Parameters) -> Array:
        """Return the seconds of all points."""
        return step_seconds(with_alone(self.columns, self._alone(p)), p)

    def deviations(self, p: Mapping[str, float]) -> Array:
        """Return the standard deviations of the logarithms of the predicted points."""
        known, (moved, lost) = read_shipped().deviations, self.moves(p)
        return np.sqrt(known["shared"] ** 2 * moved + known["floor"] ** 2 + (known["lost"] * lost) ** 2)

    def moves(self, p: Mapping[str, float]) -> tuple[Array, Array]:
        """Return the sums of squared slopes of the predicted points, and the share of the step that several GPUs add.

        The seconds of one device are fixed, so only the difference to the first point of the series counts.
        """
        columns, rows = with_alone(self.columns, self._alone(p)), np.flatnonzero(self.predicted)
        some = columns.take(self.of % SOME == 0)
        seconds, few, moved = step_seconds(columns, p), step_seconds(some, p), np.zeros(len(rows))
        for name in NAMES:
            other = {**p, name: p[name] * np.exp(MOVED * PRIORS[name].spread)}
            if np.any(step_seconds(some, other) != few):  # most parameters only affect transformers
                logs = np.log(step_seconds(columns, other) / seconds) / MOVED
                moved += (logs - logs[self.first])[rows] ** 2
        return moved, 1 - (columns.alone * columns.micro_batch / seconds)[rows]

    def _alone(self, p: Parameters) -> Array:
        """Return the seconds of a sample on one device of each point's series."""
        starts = np.flatnonzero(~self.predicted)
        return solve_alone(self.columns.take(starts), self.measured[starts], p)[self.of]

    def logs(self, p: Parameters) -> Array:
        """Return the logarithms of predicted by measured seconds of the predicted points."""
        return np.asarray(np.log(self.seconds(p) / self.measured)[self.predicted])


def with_alone(columns: Columns, alone: Array) -> Columns:
    """Return the columns with other seconds per sample on one device."""
    return Columns({**columns.arrays, "alone": alone}, columns.curves, columns.network)


def solve_alone(columns: Columns, measured: Array, p: Parameters) -> Array:
    """Return the seconds per sample on one GPU for which the steps take the ``measured`` seconds."""
    alone = measured / columns.micro_batch
    rows = np.flatnonzero((columns.gpus > 1) | (columns.loader > 0))
    known, wanted = columns.take(rows), measured[rows]
    for _ in range(TRIES if len(rows) else 0):
        total = step_seconds(with_alone(known, alone[rows]), p)
        if np.allclose(total, wanted, rtol=1e-7):
            break
        corrected = alone[rows] + (wanted - total) / known.micro_batch
        alone[rows] = np.maximum(corrected, alone[rows] * np.minimum(1.0, wanted / total) * 0.5)
    return np.asarray(alone)


def steps_of_series(series: Sequence[Series]) -> SeriesSteps:
    """Return the steps of series."""
    of = np.repeat(np.arange(len(series)), [len(curve.points) for curve in series])
    columns = columns_of_series(series)
    rates = np.array([point.rate for curve in series for point in curve.points])
    more = np.array([curve.more_steps(point.gpus) for curve in series for point in curve.points])
    sources = np.array([curve.source for curve in series])[of]
    return SeriesSteps(columns, columns.gpus * columns.micro_batch / rates * more, of, sources)


@dataclass(frozen=True)
class Fitted:
    """Steps that are fitted. ``moving`` has the indices of the parameters that change any of them."""

    steps: RunSteps | SeriesSteps
    weights: Array
    residual: Residuals
    moving: tuple[int, ...]

    @classmethod
    def of(cls, steps: RunSteps | SeriesSteps) -> "Fitted":
        """Return the steps with the weights of their sources."""
        sources, residual = (
            (steps.sources, RUN_RESIDUALS)
            if isinstance(steps, RunSteps)
            else (steps.sources[steps.predicted], SERIES_RESIDUALS)
        )
        base = {name: prior.value for name, prior in PRIORS.items()}
        before = steps.logs(base)
        moved = (np.any(steps.logs({**base, name: 1.01 * base[name]}) != before) for name in NAMES)
        return cls(steps, weigh(sources), residual, tuple(np.flatnonzero([*moved]).tolist()))

    def residuals(self, p: Parameters) -> Array:
        """Return the weighted residuals in deviations."""
        logs = self.steps.logs(p)
        return np.asarray(self.weights * soften(logs, self.residual.linear_from) / self.residual.deviation)


def fit(kinds: Sequence[Fitted]) -> dict[str, float]:
    """Return the parameters that explain the steps best. The priors hold them."""
    medians = np.log([PRIORS[name].value for name in NAMES])
    spreads = np.array([PRIORS[name].spread for name in NAMES])

    def values(x: Array) -> dict[str, float]:
        return dict(zip(NAMES, np.exp(medians + x * spreads).tolist(), strict=True))

    def residuals(x: Array) -> Array:
        return np.concatenate([*(kind.residuals(values(x)) for kind in kinds), x])

    def slopes(x: Array) -> Array:
        columns = list[Array]()
        for kind in kinds:
            now = kind.residuals(values(x))
            columns.append(np.zeros((len(now), len(NAMES))))
            for number in kind.moving:
                moved = x.copy()
                moved[number] += MOVED
                columns[-1][:, number] = (kind.residuals(values(moved)) - now) / MOVED
        return np.vstack([*columns, np.eye(len(NAMES))])

    with threadpool_limits(1):
        best: Any = least_squares(residuals, np.zeros(len(NAMES)), jac=slopes, max_nfev=30, xtol=1e-4, ftol=1e-4)
    return values(best.x)


@cache
def fitted_series() -> Fitted:
    """Return the published series that are not held out, ready to be fitted."""
    hidden = put_aside()
    return fit_of_series([curve for curve in read_series() if curve.system not in hidden])


def fit_of_series(series: Sequence[Series]) -> Fitted:
    """Return series ready to be fitted."""
    return Fitted.of(steps_of_series(series))


def put_aside() -> frozenset[str]:
    """Return the held-out systems. No fit and no choice of the model's structure used them.

    >>> len(put_aside())
    6
    """
    return frozenset(read_text(OWN_DATA / "put_aside.txt").splitlines())
