"""Draw random delays (jitter). Each delay is a hash of a seed and of the name of a message or computation.

The delays therefore do not depend on the engine or on the order of events.
"""

from dataclasses import dataclass
from importlib.util import find_spec
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
HALF_UNIT = UNIT / 2  # keeps the quantile of 0 finite
BELOW_ONE = 1 - UNIT  # keeps the quantile of 1 finite
SCIPY_MIN_SIZE = 1_000  # from this many quantiles on, SciPy is faster than Python, if it is installed


@dataclass(frozen=True)
class Jitter:
    """A distribution of non-negative delays: uniform, exponential or lognormal.

    The unit of message jitter is seconds; compute jitter is a fraction of the compute time. ``deviation`` is the
    standard deviation of a lognormal distribution.

    Raise InputError if the distribution is unknown, the mean is negative, or ``deviation`` is missing or not
    applicable.

    >>> Jitter("exponential", mean=1e-5).quantile(0.5).item()  # the median
    6.931471805599453e-06
    """

    distribution: str
    mean: float
    deviation: float = 0.0

    def __post_init__(self) -> None:
        if self.distribution not in DISTRIBUTIONS:
            raise InputError(f"unknown distribution {quote(self.distribution)}; use one of {', '.join(DISTRIBUTIONS)}")
        for key in ("mean", "deviation"):
            check_number(key, getattr(self, key))
        if not 0 <= self.mean < inf:
            raise InputError(f"mean must be finite and non-negative, not {self.mean}")
        if self.distribution == "lognormal" and not 0 < self.deviation < inf:
            raise InputError(f"deviation must be positive and finite for lognormal, not {self.deviation}")
        if self.distribution != "lognormal" and self.deviation != 0:
            raise InputError(f"{self.distribution} has no deviation; remove deviation = {self.deviation}")

    def quantile(self, uniform: Any) -> npt.NDArray[np.float64]:
        """Return the distribution's quantile for each number in ``uniform``, an array of numbers in [0, 1]."""
        return np.asarray(self._quantile(np.asarray(uniform, np.float64)), np.float64)

    def _quantile(self, uniform: npt.NDArray[np.float64]) -> Any:
        if self.distribution == "uniform":
            return 2 * self.mean * uniform
        if self.distribution == "exponential":
            return -self.mean * np.log1p(-uniform)
        # for mean m and standard deviation s, the logarithm has variance log(1 + (s/m)^2)
        if self.mean == 0:
            return np.zeros_like(uniform)
        ratio = np.log(self.deviation) - np.log(self.mean)  # in log space, to avoid overflow
        variance = np.logaddexp(0.0, 2 * ratio)
        return np.exp(np.log(self.mean) - variance / 2 + np.sqrt(variance) * _normal_quantile(uniform))


def _normal_quantile(uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return quantiles of the standard normal distribution, which are finite for all numbers in [0, 1]."""
    inside = np.minimum(uniform + HALF_UNIT, BELOW_ONE)
    if inside.size > SCIPY_MIN_SIZE and find_spec("scipy"):
        from scipy.special import ndtri  # imports in 0.1 s; agrees with NormalDist to 16 digits

        return np.asarray(ndtri(inside))
    quantile = NormalDist().inv_cdf
    return np.array([quantile(number) for number in inside.ravel().tolist()]).reshape(inside.shape)


def uniform(seed: int, *name: Any) -> npt.NDArray[np.float64]:
    """Return a random number in [0, 1) for a name, which is a sequence of integers. Arrays represent many names.

    >>> uniform(7, 1, 2) == uniform(7, 1, np.array([2]))
    array([ True])
    """
    return np.asarray(to_fraction(hash_name(seed, *name)), np.float64)
