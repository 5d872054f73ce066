"""Noise that is the same in every run: each message is a little late, by a number that belongs to it."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.errors import InputError

SRC, DST, NUMBER = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9  # odd, without pattern
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # of splitmix64
UNIT = 2.0**-53


class Jitter(NamedTuple):
    """Every message spends from 0 up to ``seconds`` longer before its first byte is under way."""

    seconds: float
    seed: int = 0

    def of(self, src: Any, dst: Any, number: Any) -> npt.NDArray[np.float64]:
        """Seconds of the messages with these numbers (from 0 on, for each pair) from src to dst.

        A hash by splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
        """
        with np.errstate(over="ignore"):
            key = np.uint64(self.seed) + np.asarray(src, np.uint64) * np.uint64(SRC)
            key = key + np.asarray(dst, np.uint64) * np.uint64(DST) + np.asarray(number, np.uint64) * np.uint64(NUMBER)
            key = (key ^ (key >> np.uint64(30))) * np.uint64(FIRST)
            key = (key ^ (key >> np.uint64(27))) * np.uint64(SECOND)
        return ((key ^ (key >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * (UNIT * self.seconds)


def check_jitter(jitter: Jitter) -> None:
    """Raise InputError unless it is one."""
    if not 0 <= jitter.seconds < np.inf:
        raise InputError(f"jitter of {jitter.seconds} seconds: a finite number from 0 on is needed")
    if not 0 <= jitter.seed < 2**64:
        raise InputError(f"jitter with seed {jitter.seed}: a whole number from 0 to 2**64 - 1 is needed")
