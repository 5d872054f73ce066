"""Jitter: what varies by chance. Each thing that varies has a random number of its own, made from its name.

So the numbers are the same in every run and in both engines, whatever the order of events.
"""

from dataclasses import dataclass
from math import inf
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.checks import check_number
from collectives.errors import InputError
from collectives.quoting import quote
from simcomm.hashing import UNIT, hash_name, to_fraction

DISTRIBUTIONS = ("uniform", "exponential", "lognormal")
HALF = UNIT / 2  # added to a number from 0 on, so that its quantile is finite
LAST = 1 - UNIT  # the largest number below 1, to which HALF cannot be added
SCIPY_FROM = 1_000  # quantiles; it finds more of them sooner than Python, even where its import is done often


@dataclass(frozen=True)
class Jitter:
    """A distribution over numbers from 0 on, by its mean; a lognormal one also by its standard deviation.

    Of messages the numbers are seconds, of computing shares of the time it takes. Raises InputError for another
    distribution, for a mean below 0, and where a deviation is missing or has no meaning.

    >>> Jitter("exponential", mean=1e-5).quantile(0.5).item()  # the median
    6.931471805599453e-06
    """

    distribution: str
    mean: float
    deviation: float = 0.0

    def __post_init__(self) -> None:
        if self.distribution not in DISTRIBUTIONS:
            raise InputError(
                f"distribution {quote(self.distribution)} is not known; there are {', '.join(DISTRIBUTIONS)}"
            )
        for key in ("mean", "deviation"):
            check_number(key, getattr(self, key))
        if not 0 <= self.mean < inf:
            raise InputError(f"a mean of {self.mean}: a finite number from 0 on is needed")
        if not 0 <= self.deviation < inf or (self.deviation == 0) == (self.distribution == "lognormal"):
            needed = "is needed, above zero" if self.distribution == "lognormal" else "has no meaning"
            raise InputError(f"a deviation of {self.deviation} for {self.distribution}: it {needed}")

    def quantile(self, uniform: Any) -> npt.NDArray[np.float64]:
        """Return the quantiles of ``uniform``, numbers from 0 to 1 in an array of any shape."""
        return np.asarray(self._quantile(np.asarray(uniform, np.float64)), np.float64)

    def _quantile(self, uniform: npt.NDArray[np.float64]) -> Any:
        if self.distribution == "uniform":
            return 2 * self.mean * uniform
        if self.distribution == "exponential":
            return -self.mean * np.log1p(-uniform)
        # the logarithm of a lognormal number of mean m and deviation s has variance log(1 + (s/m)^2)
        if self.mean == 0:
            return np.zeros_like(uniform)
        ratio = np.log(self.deviation) - np.log(self.mean)  # as a logarithm, which no deviation makes too large
        variance = np.logaddexp(0.0, 2 * ratio)
        return np.exp(np.log(self.mean) - variance / 2 + np.sqrt(variance) * _normal_quantile(uniform))


def _normal_quantile(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the standard normal quantiles, all finite, of numbers from 0 to 1 in an array of any shape."""
    inside = np.minimum(shares + HALF, LAST)
    if inside.size > SCIPY_FROM:
        from scipy.special import ndtri  # takes a tenth of a second to import; the same numbers to 16 digits

        return np.asarray(ndtri(inside))
    quantile = NormalDist().inv_cdf
    return np.array([quantile(share) for share in inside.ravel().tolist()]).reshape(inside.shape)


def uniform(seed: int, *name: Any) -> npt.NDArray[np.float64]:
    """Return numbers from 0 to 1 that belong to things named by whole numbers; arrays of one shape name many.

    >>> uniform(7, 1, 2) == uniform(7, 1, np.array([2]))
    array([ True])
    """
    return np.asarray(to_fraction(hash_name(seed, *name)), np.float64)
