"""Predictions beside published tables, series by series."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcomm.nccl.accuracy.baselines import Baseline
from simcomm.nccl.accuracy.families import family_of
from simcomm.nccl.accuracy.scoring import Comparison
from simcomm.nccl.descriptions import System
from simcomm.nccl.measured.tables import Series, Table
from simcomm.nccl.predict import COLLECTIVES

Floats = NDArray[np.float64]


class Times(NamedTuple):
    """Predicted seconds with their 80 % interval; arrays of one length."""

    seconds: Floats
    low: Floats
    high: Floats


Predictor = Callable[[System, str, Floats], Times]


def judged_series(systems: Mapping[str, System], tables: Mapping[str, Table]) -> Iterator[tuple[System, Series]]:
    """Yield the series that count, with 12 sizes at most: not those of skipped systems and unpredicted collectives."""
    for slug, table in tables.items():
        if not systems[slug].skip:
            for series in table.series(systems[slug].ranks).values():
                if series.collective in COLLECTIVES:
                    yield systems[slug], series.evenly()


def compare_series(
    judged: Iterable[tuple[System, Series]], predictor: Predictor, baselines: Mapping[str, Baseline]
) -> list[Comparison]:
    """Return each series beside its prediction and the baselines that say something of it."""
    return [_compare(system, series, predictor, baselines) for system, series in judged]


def _compare(system: System, series: Series, predictor: Predictor, baselines: Mapping[str, Baseline]) -> Comparison:
    times = predictor(system, series.collective, series.nbytes)
    said = {name: baseline(system, series.collective, series.nbytes) for name, baseline in baselines.items()}
    return Comparison(
        slug=system.slug,
        family=family_of(system),
        collective=series.collective,
        nbytes=series.nbytes,
        measured=series.seconds,
        predicted=times.seconds,
        low=times.low,
        high=times.high,
        baselines={name: seconds for name, seconds in said.items() if seconds is not None},
    )
