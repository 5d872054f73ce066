"""Figures as they are printed: a number and how far rounding may have moved it, and whether two follow from each other.

algbw is bytes over time, and busbw is algbw times the factor of the collective; both hold within the digits printed.
"""

from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from collectives.errors import InputError


class Figure(NamedTuple):
    """A printed number, and half of the last digit's place."""

    value: float
    rounding: float

    @property
    def range(self) -> tuple[float, float]:
        """The least and the greatest number that is printed so."""
        return self.value - self.rounding, self.value + self.rounding


def read_figure(where: str, name: str, text: str, *, instead: str = "") -> Figure:
    """Return the number that a text prints. Raise InputError unless it is finite and not negative.

    >>> read_figure("line 3", "time", "34.7")
    Figure(value=34.7, rounding=0.05)
    """
    try:
        number = Decimal(text if "_" not in text else "")
    except InvalidOperation:
        number = Decimal("NaN")
    if not (number.is_finite() and number >= 0 and len(text) <= 30 and abs(number.adjusted()) < 100):
        raise InputError(f"{where}: {name} = {text!r}; give a number from 0 on{instead}")
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    return Figure(float(number), 0.5 * 10.0**exponent)


def find_algbw(nbytes: float, time: Figure) -> Figure:
    """Return the GB/s of so many bytes in a time in microseconds, as exact as the time is printed.

    >>> find_algbw(1000, Figure(2.0, 0.0))
    Figure(value=0.5, rounding=0.0)
    """
    low, high = nbytes / 1e3 / (time.value + time.rounding), nbytes / 1e3 / max(time.value - time.rounding, 1e-3)
    return Figure((low + high) / 2, (high - low) / 2)


def algbw_follows(nbytes: float, time: Figure, algbw: Figure) -> bool:
    """Return whether a bandwidth in GB/s may be that of so many bytes in a time in microseconds.

    >>> algbw_follows(1000, Figure(2.0, 0.05), Figure(0.5, 0.005))
    True
    """
    return _overlap(find_algbw(nbytes, time).range, algbw.range)


def busbw_follows(factor: float, algbw: Figure, busbw: Figure) -> bool:
    """Return whether busbw may be ``factor`` times algbw.

    >>> busbw_follows(1.75, Figure(100.0, 0.5), Figure(170.0, 0.5))
    False
    """
    low, high = algbw.range
    return _overlap((low * factor, high * factor), busbw.range)


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return whether two ranges meet, but for rounding of floating-point numbers."""
    slack = 1e-9 * (1 + abs(one[1]) + abs(other[1]))
    return one[0] <= other[1] + slack and other[0] <= one[1] + slack
