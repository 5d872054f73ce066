"""Noise that is the same in every run: each thing that varies has a random number of its own, made from its name."""

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.errors import InputError
from simcomm.hashing import UNIT, hash_name, share

DISTRIBUTIONS = ("uniform", "exponential", "lognormal")
MOST_SEED = 2**64 - 1
HALF = UNIT / 2  # keeps the logarithm of a number from 0 on finite


@dataclass(frozen=True)
class Jitter:
    """A distribution over numbers from 0 on, by its mean; a lognormal one also by its standard deviation."""

    distribution: str
    mean: float
    deviation: float = 0.0

    def __post_init__(self) -> None:
        if self.distribution not in DISTRIBUTIONS:
            raise InputError(f"distribution {self.distribution!r} is not known; there are {', '.join(DISTRIBUTIONS)}")
        if not 0 <= self.mean < inf:
            raise InputError(f"a mean of {self.mean}: a finite number from 0 on is needed")
        if not 0 <= self.deviation < inf or (self.deviation == 0) == (self.distribution == "lognormal"):
            needed = "is needed, above zero" if self.distribution == "lognormal" else "has no meaning"
            raise InputError(f"a deviation of {self.deviation} for {self.distribution}: it {needed}")

    def at(self, uniform: Any) -> npt.NDArray[np.float64]:
        """The values that a share ``uniform`` (0 to 1) of all draws stay below; of any shape."""
        return np.asarray(self._at(np.asarray(uniform, np.float64)), np.float64)

    def _at(self, uniform: npt.NDArray[np.float64]) -> Any:
        if self.distribution == "uniform":
            return 2 * self.mean * uniform
        if self.distribution == "exponential":
            return -self.mean * np.log1p(-uniform)
        # of a lognormal with mean m and deviation s the logarithm has variance log(1 + (s/m)^2)
        if self.mean == 0:
            return np.zeros_like(uniform)
        variance = np.log1p((self.deviation / self.mean) ** 2)
        from scipy.special import ndtri  # a fifth of a second that most predictions can do without

        return np.exp(np.log(self.mean) - variance / 2 + np.sqrt(variance) * ndtri(uniform + HALF))


def uniform(seed: int, *name: Any) -> npt.NDArray[np.float64]:
    """Return numbers from 0 to 1 that belong to things named by whole numbers; arrays of one shape name many."""
    return np.asarray(share(hash_name(seed, *name)), np.float64)
