"""``Uncertain``: a predicted time, rate or cost, with the causes that it may be wrong by; what two share cancels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, isfinite, log, sqrt
from statistics import NormalDist

from collectives.checks import check_number

NORMAL = NormalDist()


@dataclass(frozen=True)
class Uncertain:
    """A positive number whose logarithm is normal around that of ``median``: a sum of independent causes.

    ``causes`` has of each cause by how much the logarithm moves with one standard deviation of it. Numbers that have a
    cause of the same name move together with it.

    >>> rate = Uncertain(400.0, {"one V100": 0.2})
    >>> [round(end) for end in rate.interval(0.8)]
    [310, 517]
    """

    median: float
    causes: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_number("median", self.median, above=0)

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm."""
        return sqrt(sum(moved**2 for moved in self.causes.values()))

    @property
    def mean(self) -> float:
        """The expected value, which is above the median."""
        return self.median * exp(self.spread**2 / 2)

    def interval(self, share: float) -> tuple[float, float]:
        """Return the ends between which it lies with probability ``share``, as much below as above."""
        factor = exp(NORMAL.inv_cdf((1 + share) / 2) * self.spread)
        return self.median / factor, self.median * factor

    def times(self, factor: float) -> "Uncertain":
        """Return it times a number above zero that is known."""
        return Uncertain(self.median * factor, self.causes)

    def over(self, other: "Uncertain") -> "Uncertain":
        """Return the ratio of two: causes of one name cancel as far as they move both alike.

        >>> shared = {"one V100": 0.2}
        >>> Uncertain(6.0, shared).over(Uncertain(3.0, shared)).spread
        0.0
        """
        names = {**self.causes, **other.causes}
        moved = {name: self.causes.get(name, 0.0) - other.causes.get(name, 0.0) for name in names}
        return Uncertain(self.median / other.median, {name: by for name, by in moved.items() if by})

    def inverse(self) -> "Uncertain":
        """Return one over it."""
        return Uncertain(1 / self.median, {name: -by for name, by in self.causes.items()})

    def chance_below(self, limit: float) -> float:
        """Return the probability that it is at most ``limit``.

        >>> Uncertain(10.0, {"a": 0.1}).chance_below(10.0)
        0.5
        """
        if not isfinite(limit):
            return 1.0
        if limit <= 0:
            return 0.0
        if not self.spread:
            return float(self.median <= limit)
        return NORMAL.cdf(log(limit / self.median) / self.spread)


def chance_less(first: Uncertain, second: Uncertain) -> float:
    """Return the probability that the first is less than the second; a half where they are the same.

    Of two lognormals with correlation: Phi(ln(m2 / m1) / s), s the standard deviation of the difference of logarithms.

    >>> chance_less(Uncertain(2.0, {"a": 0.1}), Uncertain(3.0, {"a": 0.1}))
    1.0
    """
    ratio = first.over(second)
    return 0.5 if ratio.median == 1.0 else ratio.chance_below(1.0)
