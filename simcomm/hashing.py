"""Hash names to random bits with splitmix64. A name is a sequence of integers.

Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

GAMMA, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
UNIT = 2.0**-53


def hash_name(seed: int, *parts: Any) -> Any:
    """Return 64 random bits that depend on a seed and on all integers of a name.

    If any of the integers is an array, return an array with the bits of each name.

    >>> hex(hash_name(0))
    '0x9e3779b97f4a7c15'
    >>> [hex(bits) for bits in hash_name(0, 1, np.array([2, 3]))]
    ['0x848a139037105040', '0xbd16310f54fdadaf']
    """
    with np.errstate(over="ignore"):
        bits = np.uint64(seed) + np.uint64(GAMMA)
        for part in parts:
            bits = hash_next(bits, np.asarray(part).astype(np.uint64))
    return bits


def hash_next(bits: Any, part: Any) -> Any:
    """Return the hash of a name extended by ``part``, given the hash ``bits`` of the name. Both are uint64."""
    mixed = (bits ^ part) + np.uint64(GAMMA)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(FIRST)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(SECOND)
    return mixed ^ (mixed >> np.uint64(31))


def hash_numbers(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a hash of each number (splitmix64's finalizer), in which every output bit depends on every input bit."""
    return np.asarray(hash_next(numbers - np.uint64(GAMMA), np.uint64(0)))


def to_fraction(bits: Any) -> Any:
    """Return a number in [0, 1) made from the upper 53 of 64 random bits."""
    return (bits >> np.uint64(11)) * UNIT
