"""Adapt the model to a system of which a few rows were measured.

First the parameters that the system's time depends on are moved to meet the rows, held to their fitted values by
springs. What is left of the residuals, in log time, is interpolated over log size, and beyond the outermost rows stays
as it is there. A collective without rows takes the mean correction of those that have some.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collectives.errors import InputError
from simcomm.nccl.descriptions import System
from simcomm.nccl.fit import fit_to_rows, observe
from simcomm.nccl.parameters import Parameters, read_parameters
from simcomm.nccl.predict import COLLECTIVES, DEFAULTS, interval_log_halfwidth, predict_seconds
from simcomm.nccl.settings import NcclSettings
from simcomm.nccl.tables import Row, Series, Table

Floats = NDArray[np.float64]
NEAR, PER_OCTAVE = 0.08, 0.05  # half-width of 80 % within a factor of two of a measured row, and for each one more
SCALE = 0.12  # of a residual, in log time, that counts as much as a parameter moved by its spread


@dataclass(frozen=True)
class Correction:
    """What is left of the residuals of a collective: log measured / predicted at each log size, ascending."""

    log_sizes: Floats
    log_ratios: Floats

    def at(self, nbytes: Floats) -> Floats:
        """Return the logarithm of the factor at each size."""
        return np.interp(np.log(nbytes), self.log_sizes, self.log_ratios)


@dataclass(frozen=True)
class Adapted:
    """A system's model with its parameters moved and its corrections by collective."""

    system: System
    parameters: Parameters
    corrections: dict[str, Correction]

    def seconds(
        self, collective: str, sizes: ArrayLike, system: System | None = None, settings: NcclSettings = DEFAULTS
    ) -> Floats:
        """Return the seconds of a collective at sizes in bytes. Raise InputError.

        ``system`` and ``settings`` may have another version, process or variable than when the rows were measured.
        """
        nbytes = np.atleast_1d(np.asarray(sizes, np.float64))
        plain = predict_seconds(
            system or self.system, collective, nbytes, settings=settings, parameters=self.parameters
        )
        return plain * self.factors(collective, nbytes)

    def factors(self, collective: str, nbytes: Floats) -> Floats:
        """Return by what the times of the moved parameters are multiplied."""
        own = self.corrections.get(collective)
        used = [own] if own else list(self.corrections.values())
        factors: Floats = np.exp(np.mean([correction.at(nbytes) for correction in used], axis=0))
        return factors

    def log_halfwidth(self, collective: str, nbytes: Floats) -> Floats:
        """Return half the width of the 80 % interval in log time: the wider, the farther the nearest measured size."""
        own = self.corrections.get(collective)
        plain = interval_log_halfwidth(self.system, nbytes)
        if own is None:
            return plain
        octaves = np.abs(np.log(nbytes)[:, None] - own.log_sizes[None, :]).min(axis=1) / log(2)
        width: Floats = np.minimum(plain, NEAR + PER_OCTAVE * np.maximum(0, octaves - 1))
        return width


def adapt(system: System, rows: Sequence[Row], parameters: Parameters | None = None) -> Adapted:
    """Return the model adapted to measured rows of a system. Raise InputError where none of them says anything.

    >>> from simcomm.nccl.descriptions import describe_preset
    >>> eight = describe_preset("dgx-h100", 1, 8)
    >>> adapted = adapt(eight, [Row("all_reduce", 2**30, 0.01, None, None)])
    >>> adapted.seconds("all_reduce", [2**30]).round(9)
    array([0.01])
    """
    series = list(Table(system.slug, tuple(rows)).series(system.ranks).values())
    observed = observe(system, series)
    if observed is None:
        raise InputError(f"no row of {', '.join(COLLECTIVES)} with a time to adapt to")
    moved = fit_to_rows(observed, parameters or read_parameters(), SCALE)
    corrections = {one.collective: _correction(system, one, moved) for one in observed.series}
    return Adapted(system, moved, corrections)


def _correction(system: System, series: Series, moved: Parameters) -> Correction:
    predicted = predict_seconds(system, series.collective, series.nbytes, parameters=moved)
    return Correction(np.log(series.nbytes), np.log(series.seconds / predicted))
