"""Fit the parameters of NCCL's model to published tables. ``make fit-nccl`` rewrites its ``parameters.toml``.

The logarithms of predicted times are fitted to those of measured times. All systems have the same weight in each size
class. Derivatives are computed by finite differences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.accuracy.judging import class_of
from benchmarks.accuracy.tables import MeasuredTable, read_tables, space_evenly
from benchmarks.studies.fitting import Floats, Springs, cauchy, fit_least_squares, write_parameters
from simcomm.nccl.descriptions import System, read_systems
from simcomm.nccl.measured.tables import SizeSeries
from simcomm.nccl.parameters import FILE, EachMoved, Parameters, read_definitions, read_parameters
from simcomm.nccl.predict import COLLECTIVES, predict_seconds

SCALE = 0.24  # of Cauchy's loss, in log time
STEP = 1e-4  # of the differences, a share of each parameter


@dataclass(frozen=True)
class Observations:
    """The measured series of one system, concatenated, and the weight of each squared residual."""

    system: System
    series: tuple[SizeSeries, ...]
    log_seconds: Floats
    weights: Floats

    def log_predicted(self, values: Parameters) -> Floats:
        """Return the logarithms of the predicted seconds of all rows."""
        times = [
            predict_seconds(self.system, series.collective, series.nbytes, parameters=values) for series in self.series
        ]
        return np.log(np.concatenate(times, axis=-1))


class Fit(NamedTuple):
    """Fitted parameters, the final cost, and whether no step from the start reduced the cost."""

    parameters: Parameters
    cost: float
    is_stalled: bool


def observe(system: System, series: Sequence[SizeSeries]) -> Observations | None:
    """Return the series that can be predicted, with equal weight for each size class; None if there are none."""
    known = tuple(table for table in series if table.collective in COLLECTIVES)
    if not known:
        return None
    nbytes = np.concatenate([table.nbytes for table in known])
    classes, counts = np.unique(class_of(nbytes), return_inverse=True, return_counts=True)[1:]
    weights = 1 / counts[classes]
    return Observations(system, known, np.log(np.concatenate([table.seconds for table in known])), weights)


def observe_tables(systems: Mapping[str, System], tables: Mapping[str, MeasuredTable]) -> list[Observations]:
    """Return the data of a fit: at most twelve rows of each series, without skipped systems."""
    observations = []
    for slug, table in tables.items():
        if not systems[slug].skip:
            series = [space_evenly(series) for series in table.series(systems[slug].ranks).values()]
            if (observed := observe(systems[slug], series)) is not None:
                observations.append(observed)
    return observations


def fit_parameters(
    observations: Sequence[Observations], start: Parameters | None = None, *, tolerance: float = 1e-4
) -> Fit:
    """Return the parameters with the smallest cost, starting at ``start`` or at the priors."""
    springs = Springs.of(read_definitions())
    begin = springs.start(start)

    read = [_read_by(table, springs.values(begin)) for table in observations]

    def residuals(logs: Floats) -> Floats:
        values = springs.values(logs)
        return np.concatenate([table.log_predicted(values) - table.log_seconds for table in observations]) / SCALE

    def slopes(logs: Floats) -> Floats:
        values = springs.values(logs)
        return np.vstack(
            [_slopes(table, springs, values, names) for table, names in zip(observations, read, strict=True)]
        )

    weights = np.concatenate([table.weights for table in observations])
    logs, cost = fit_least_squares(
        springs, residuals, begin, cauchy, weights=weights, slopes=slopes, ftol=tolerance, xtol=tolerance
    )
    return Fit(springs.values(logs), cost, bool(np.array_equal(logs, begin)))


def _read_by(table: Observations, values: Parameters) -> list[str]:
    recording = EachMoved(values, [], STEP)
    table.log_predicted(recording)
    return sorted(recording.read)


def _slopes(table: Observations, springs: Springs, values: Parameters, names: Sequence[str]) -> Floats:
    """Return the derivatives of a system's residuals by the logarithms of all parameters; zero except for ``names``."""
    plain, *moved = table.log_predicted(EachMoved(values, names, STEP))
    slopes = np.zeros((len(plain), len(springs.names)))
    slopes[:, [springs.names.index(name) for name in names]] = (np.array(moved) - plain).T / STEP / SCALE
    return slopes


def main() -> None:
    """Fit to the project's own tables without the held-out ones, and write the values."""
    systems = read_systems()
    fitted = fit_parameters(observe_tables(systems, read_tables(systems)))
    write_parameters(fitted.parameters, FILE)
    read_parameters.cache_clear()


if __name__ == "__main__":
    main()
