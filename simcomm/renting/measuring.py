"""What to measure before renting: which short runs take most of the uncertainty that stands between choices.

A run measures a rate, a sum of causes in logarithms, up to a spread. Given the outcomes of one run or two, the
logarithm of every cost is normal with mean and variance by their covariance, so what they save is an integral over one
normal number or two, done by the trapezoidal rule.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simcomm.mesh.compute import MEASURED_SPREAD
from simcomm.mesh.uncertain import Uncertain
from simcomm.renting.quotes import Quote

STEPS = {1: 801, 2: 81}  # of the rule from -8 to 8, by the number of runs
MINUTES = 10.0
Floats = npt.NDArray[np.float64]


class Measurement(NamedTuple):
    """One short run or two: in words, what they cost, and by which causes each rate may differ from the prediction."""

    what: str
    price: float  # dollars
    runs: tuple[Mapping[str, float], ...]


class Worth(NamedTuple):
    """What a measurement brings."""

    measurement: Measurement
    saves: float  # dollars that are expected to be saved by choosing after it, its own price not counted
    before: float  # spread of the ratio of the costs of the first and its rival
    after: float

    @property
    def gain(self) -> float:
        """Dollars that it is expected to bring in all."""
        return self.saves - self.measurement.price


def spread_after(number: Uncertain, runs: Sequence[Mapping[str, float]]) -> float:
    """Return the spread of a number's logarithm once sums of causes are measured.

    >>> round(spread_after(Uncertain(1.0, {"a": 0.3, "b": 0.4}), [{"a": 0.3}]), 3)
    0.401
    """
    moved = _moved([number], runs)[0]
    return sqrt(max(0.0, number.spread**2 - float(moved @ moved)))


def worth(quotes: Sequence[Quote], measurement: Measurement, first: Quote, rival: Quote) -> Worth:
    """Return what a measurement brings to one who otherwise takes the quote with the least expected cost.

    Its spreads are those of the ratio of the costs of two of the quotes.
    """
    before = min(quote.cost.mean for quote in quotes)
    saves = max(0.0, before - _least_after([quote.cost for quote in quotes], measurement.runs))
    ratio = first.cost.over(rival.cost)
    return Worth(measurement, saves, ratio.spread, spread_after(ratio, measurement.runs))


def half_width(spread: float) -> float:
    """Return the plus or minus of an interval of 80 % as a share, from the spread of a logarithm.

    >>> round(half_width(0.1), 3)
    0.137
    """
    return Uncertain(1.0, {"": spread}).interval(0.8)[1] - 1


def _moved(numbers: Sequence[Uncertain], runs: Sequence[Mapping[str, float]]) -> Floats:
    """Return by how much each logarithm moves with independent normal numbers that say the same as the runs."""
    names = sorted({name for run in runs for name in run} | {name for one in numbers for name in one.causes})
    seen = np.array([[run.get(name, 0.0) for name in names] for run in runs])
    each = np.array([[one.causes.get(name, 0.0) for name in names] for one in numbers])
    root = np.linalg.cholesky(seen @ seen.T + MEASURED_SPREAD**2 * np.eye(len(runs)))
    found: Floats = np.linalg.solve(root, seen @ each.T).T
    return found


def _least_after(costs: Sequence[Uncertain], runs: Sequence[Mapping[str, float]]) -> float:
    """Return the expected cost of what is the cheapest by the outcomes."""
    moved = _moved(costs, runs)
    left = np.array([one.spread**2 for one in costs]) - (moved**2).sum(axis=1)
    line = np.linspace(-8.0, 8.0, STEPS[len(runs)])
    outcomes = np.array([*product(line, repeat=len(runs))])
    weights = np.exp(-(outcomes**2).sum(axis=1) / 2)
    means = np.log([one.median for one in costs]) + left / 2
    after = np.exp(means[:, None] + moved @ outcomes.T).min(axis=0)
    return float(after @ weights / weights.sum())
