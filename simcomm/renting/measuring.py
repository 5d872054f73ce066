"""What to measure before renting: which short run takes most of the uncertainty that stands between choices.

A run measures a rate, a sum of causes in logarithms, up to a spread. Given its outcome, the logarithm of every other
cost is normal with mean and variance by their covariance, so its worth is an integral over one normal number, done by
the trapezoidal rule.
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from simcomm.renting.quotes import Quote
from simcomm.renting.uncertain import Uncertain

MEASURED_SPREAD = 0.03  # of a short run: the same script on boxes of one kind differs by 3.2 % (published H100 series)
NODES = np.linspace(-8.0, 8.0, 801)
WEIGHTS = np.exp(-(NODES**2) / 2)
MINUTES = 10.0


class Measurement(NamedTuple):
    """A short run: its name, what it costs, and by which causes its rate may differ from the prediction."""

    what: str
    price: float  # dollars
    causes: Mapping[str, float]


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


def spread_after(number: Uncertain, measured: Mapping[str, float]) -> float:
    """Return the spread of a number's logarithm once a sum of causes is measured.

    >>> round(spread_after(Uncertain(1.0, {"a": 0.3, "b": 0.4}), {"a": 0.3}), 3)
    0.401
    """
    moved = _moved(number, measured)
    return sqrt(max(0.0, number.spread**2 - moved**2))


def worth(quotes: Sequence[Quote], measurement: Measurement, first: Quote, rival: Quote) -> Worth:
    """Return what a measurement brings to one who otherwise takes the quote with the least expected cost.

    Its spreads are those of the ratio of the costs of two of the quotes.
    """
    before = min(quote.cost.mean for quote in quotes)
    costs = np.array([_means_after(quote.cost, measurement.causes) for quote in quotes])
    saves = max(0.0, before - float(costs.min(axis=0) @ (WEIGHTS / WEIGHTS.sum())))
    ratio = first.cost.over(rival.cost)
    return Worth(measurement, saves, ratio.spread, spread_after(ratio, measurement.causes))


def half_width(spread: float) -> float:
    """Return the plus or minus of an interval of 80 % as a share, from the spread of a logarithm.

    >>> round(half_width(0.1), 3)
    0.137
    """
    return Uncertain(1.0, {"": spread}).interval(0.8)[1] - 1


def _moved(number: Uncertain, measured: Mapping[str, float]) -> float:
    """Return by how much the logarithm moves with one standard deviation of what is measured."""
    seen = sqrt(sum(by**2 for by in measured.values()) + MEASURED_SPREAD**2)
    return sum(by * measured.get(name, 0.0) for name, by in number.causes.items()) / seen


def _means_after(cost: Uncertain, measured: Mapping[str, float]) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return the expected cost for each outcome in NODES."""
    moved = _moved(cost, measured)
    left = max(0.0, cost.spread**2 - moved**2)
    return cost.median * np.exp(moved * NODES + left / 2)
