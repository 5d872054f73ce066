"""Adapt the model to a system of which a few rows were measured.

The residuals, log measured / predicted, are taken as a Gaussian process over the logarithm of the size, and predicted
between and beyond the rows by its mean given the rows (kriging; Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, equations 2.22 to 2.24). Two residuals go together as far as the same parameters move both times, and as
far as their sizes are close. So a row of 4 MiB says more about 64 MiB where one bandwidth rules both, and a collective
without rows learns from those that have some.

The constants below were chosen on halves of the published systems, drawn by author, and judged on the other halves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collectives.errors import InputError
from simcomm.nccl.descriptions import System
from simcomm.nccl.parameters import Parameters, RecordingParameters, read_definitions, read_parameters
from simcomm.nccl.predict import COLLECTIVES, DEFAULTS, interval_log_limits, predict_seconds
from simcomm.nccl.settings import NcclSettings
from simcomm.nccl.tables import Row, Table

Floats = NDArray[np.float64]
LOOSE = 3.0  # a system's own parameters scatter so many times as much as the priors of those of all systems
SMOOTH = 0.3  # in log time: scatter of what no parameter explains
OCTAVES = 15.0  # of size over which that stays alike
SHARED = 0.5  # of its variance that all collectives have in common
NOISE = 0.03  # in log time: scatter of a measured row
NEAR, PER_DEVIATION = (
    0.065,
    0.75,
)  # half-width of 80 %: at a measured row, and for each standard deviation of the process
STEP = 1e-3  # of the differences, in the logarithm of a parameter


@dataclass(frozen=True)
class Points:
    """Sizes of collectives on a system, with the logarithms of predicted seconds; one a row.

    ``slopes``: their derivatives by the logarithm of each parameter, times the spread of its prior.
    """

    collectives: NDArray[np.str_]
    nbytes: Floats
    log_seconds: Floats
    slopes: Floats

    def take(self, rows: Sequence[int] | NDArray[np.intp]) -> "Points":
        """Return some of the rows."""
        return Points(self.collectives[rows], self.nbytes[rows], self.log_seconds[rows], self.slopes[rows])


@cache
def _names_and_spreads() -> tuple[tuple[str, ...], Floats]:
    definitions = read_definitions()
    return tuple(definitions), np.array([definition.spread for definition in definitions.values()])


def find_points(
    system: System,
    collective: str,
    sizes: ArrayLike,
    *,
    settings: NcclSettings = DEFAULTS,
    parameters: Parameters | None = None,
) -> Points:
    """Return predicted times at sizes in bytes with their derivatives by differences. Raise InputError."""
    nbytes = np.atleast_1d(np.asarray(sizes, np.float64))
    values = parameters or read_parameters()
    names, spreads = _names_and_spreads()

    def log_seconds(used: Parameters) -> Floats:
        return np.log(predict_seconds(system, collective, nbytes, settings=settings, parameters=used))

    recording = RecordingParameters(values)
    plain = log_seconds(recording)
    slopes = np.zeros((len(nbytes), len(names)))
    for column, name in enumerate(names):
        if name in recording.read:
            moved = values.changed({name: values[name] * float(np.exp(STEP))})
            slopes[:, column] = (log_seconds(moved) - plain) / STEP * spreads[column]
    return Points(np.full(len(nbytes), collective), nbytes, plain, slopes)


def _covariance(one: Points, other: Points) -> Floats:
    """Return the covariance of the residuals of two lists of points (smooth part: Matern, 3/2)."""
    distance = np.sqrt(3) * np.abs(np.log2(one.nbytes)[:, None] - np.log2(other.nbytes)[None, :]) / OCTAVES
    common = np.where(one.collectives[:, None] == other.collectives[None, :], 1.0, SHARED)
    smooth = SMOOTH**2 * common * (1 + distance) * np.exp(-distance)
    total: Floats = LOOSE**2 * (one.slopes @ other.slopes.T) + smooth
    return total


@dataclass(frozen=True)
class Adapted:
    """A system's model, its measured points, and what they say of any other."""

    system: System
    parameters: Parameters | None  # None: those that are shipped
    known: Points
    weights: Floats  # the inverse covariance of the known points times their residuals
    precision: Floats  # that inverse

    @property
    def collectives(self) -> tuple[str, ...]:
        """The collectives that have rows."""
        return tuple(dict.fromkeys(self.known.collectives.tolist()))

    def points(
        self, collective: str, sizes: ArrayLike, system: System | None = None, settings: NcclSettings = DEFAULTS
    ) -> Points:
        """Return points to be predicted. Raise InputError.

        ``system`` and ``settings`` may have another version, process or variable than when the rows were measured.
        """
        return find_points(system or self.system, collective, sizes, settings=settings, parameters=self.parameters)

    def seconds_at(self, points: Points) -> Floats:
        """Return the adapted seconds at points."""
        seconds: Floats = np.exp(points.log_seconds + _covariance(points, self.known) @ self.weights)
        return seconds

    def seconds(
        self, collective: str, sizes: ArrayLike, system: System | None = None, settings: NcclSettings = DEFAULTS
    ) -> Floats:
        """Return the seconds of a collective at sizes in bytes. Raise InputError."""
        return self.seconds_at(self.points(collective, sizes, system, settings))

    def log_limits_at(self, points: Points) -> Floats:
        """Return how far the 80 % interval's ends are below and above in log time, [2, points].

        It is narrow near a row, and nowhere wider than that of the bare model.
        """
        shared = _covariance(points, self.known)
        alone = LOOSE**2 * np.sum(points.slopes**2, axis=1) + SMOOTH**2
        variance = alone - np.sum(shared @ self.precision * shared, axis=1)
        width = NEAR + PER_DEVIATION * np.sqrt(np.maximum(variance, 0.0))
        least: Floats = np.minimum(interval_log_limits(self.system, points.nbytes), width)
        return least


def adapt_to_points(system: System, known: Points, seconds: Floats, parameters: Parameters | None = None) -> Adapted:
    """Return the model adapted to the seconds that were measured at points of a system."""
    measured = _covariance(known, known) + NOISE**2 * np.eye(len(seconds))
    precision = np.asarray(np.linalg.inv(measured), np.float64)
    return Adapted(system, parameters, known, precision @ (np.log(seconds) - known.log_seconds), precision)


def adapt(system: System, rows: Sequence[Row], parameters: Parameters | None = None) -> Adapted:
    """Return the model adapted to measured rows of a system. Raise InputError where none of them says anything.

    >>> from simcomm.nccl.descriptions import describe_preset
    >>> eight = describe_preset("dgx-h100", 1, 8)
    >>> adapted = adapt(eight, [Row("all_reduce", 2**30, 0.01, None, None)])
    >>> adapted.seconds("all_reduce", [2**30]).round(3)
    array([0.01])
    """
    series = [
        one for one in Table(system.slug, tuple(rows)).series(system.ranks).values() if one.collective in COLLECTIVES
    ]
    if not series:
        raise InputError(f"no row of {', '.join(COLLECTIVES)} with a time to adapt to")
    points = [find_points(system, one.collective, one.nbytes, parameters=parameters) for one in series]
    known = Points(
        np.concatenate([one.collectives for one in points]),
        np.concatenate([one.nbytes for one in points]),
        np.concatenate([one.log_seconds for one in points]),
        np.concatenate([one.slopes for one in points]),
    )
    return adapt_to_points(system, known, np.concatenate([one.seconds for one in series]), parameters)
