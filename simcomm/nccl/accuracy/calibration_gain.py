"""What a few measured rows gain: the errors on the other rows, for each choice of sizes to measure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf

import numpy as np
from numpy.typing import NDArray

from collectives.errors import InputError
from simcomm.nccl.accuracy.families import family_of
from simcomm.nccl.accuracy.scoring import ClassScore, Comparison, score_classes
from simcomm.nccl.adapt import adapt
from simcomm.nccl.descriptions import System
from simcomm.nccl.parameters import Parameters
from simcomm.nccl.predict import COLLECTIVES, predict_seconds
from simcomm.nccl.tables import Row, Series, Table

Floats = NDArray[np.float64]
MEASURABLE = (4096.0, 32768.0, 524288.0, 4194304.0, 33554432.0, inf)  # bytes to choose from; inf: the largest there is


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


def measure_gains(
    systems: Mapping[str, System],
    tables: Mapping[str, Table],
    rows: int,
    parameters: Mapping[str, Parameters] | None = None,
) -> list[Gain]:
    """Return the gain of every choice of so many sizes, the best first.

    ``parameters`` of each system, as of ``refit_without_each``; else those that are shipped. Raises InputError.
    """
    if not 1 <= rows <= len(MEASURABLE):
        raise InputError(f"--calibrate {rows}; give 1 to {len(MEASURABLE)} rows")
    gains = [_gain(systems, tables, sizes, parameters or {}) for sizes in combinations(MEASURABLE, rows)]
    return sorted((gain for gain in gains if gain.worst < inf), key=lambda gain: gain.worst)


def _gain(
    systems: Mapping[str, System], tables: Mapping[str, Table], sizes: Sequence[float], fitted: Mapping[str, Parameters]
) -> Gain:
    before, after = [], []
    for slug, table in tables.items():
        if systems[slug].skip:
            continue
        for series in table.series(systems[slug].ranks).values():
            if series.collective in COLLECTIVES and (found := _adapted(systems[slug], series, sizes, fitted.get(slug))):
                before.append(found[0])
                after.append(found[1])
    return Gain(tuple(sizes), score_classes(before), score_classes(after))


def _adapted(
    system: System, series: Series, sizes: Sequence[float], values: Parameters | None
) -> tuple[Comparison, Comparison] | None:
    """Return a series without the rows measured, predicted before and after; None where rows or sizes are missing."""
    known = measured_rows(series, sizes)
    judged = series.evenly()
    others = ~np.isin(judged.nbytes, series.nbytes[known])
    if not known or not others.any():
        return None
    nbytes, measured = judged.nbytes[others], judged.seconds[others]
    rows = [
        Row(series.collective, int(series.nbytes[index]), float(series.seconds[index]), None, None) for index in known
    ]
    plain = predict_seconds(system, series.collective, nbytes, parameters=values)
    better = adapt(system, rows, values).seconds(series.collective, nbytes)
    head = (system.slug, family_of(system), series.collective, nbytes, measured)
    return Comparison(*head, plain, plain, plain), Comparison(*head, better, better, better)


def measured_rows(series: Series, sizes: Sequence[float]) -> list[int]:
    """Return the rows nearest to these sizes; none where one row would have to stand for two of them."""
    wanted = [series.nbytes[-1] if size == inf else size for size in sizes]
    found = {int(np.abs(np.log(series.nbytes / size)).argmin()) for size in wanted}
    return sorted(found) if len(found) == len(sizes) else []
