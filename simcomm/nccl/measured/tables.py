"""Define rows of measured collectives, with the precision of their printed values, and times by size."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectives.costs.bounds import bus_factor
from collectives.errors import InputError


class PrintedFigure(NamedTuple):
    """A printed number, or one computed from printed numbers. It is exact to plus or minus ``rounding``."""

    value: float
    rounding: float

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest number that would be printed with these digits."""
        return self.value - self.rounding, self.value + self.rounding


def read_figure(where: str, name: str, text: str, *, instead: str = "") -> PrintedFigure:
    """Parse a printed number and its rounding. Raise InputError if it is negative, not finite, or too long.

    >>> read_figure("line 3", "time", "34.7")
    PrintedFigure(value=34.7, rounding=0.05)
    """
    try:
        number = Decimal(text if "_" not in text else "")
    except InvalidOperation:
        number = Decimal("NaN")
    if not (number.is_finite() and number >= 0 and len(text) <= 30 and abs(number.adjusted()) < 100):
        raise InputError(f"{where}: {name} must be a non-negative number{instead}, not {text!r}")
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    return PrintedFigure(float(number), 0.5 * 10.0**exponent)


def find_algbw(nbytes: float, time: PrintedFigure) -> PrintedFigure:
    """Return the algbw in GB/s that follows from bytes and a time in us, with the precision of the printed time."""
    low, high = nbytes / 1e3 / (time.value + time.rounding), nbytes / 1e3 / max(time.value - time.rounding, 1e-3)
    return PrintedFigure((low + high) / 2, (high - low) / 2)


def algbw_follows(nbytes: float, time: PrintedFigure, algbw: PrintedFigure) -> bool:
    """Return whether an algbw in GB/s is consistent with bytes and a time in us."""
    return _overlap(find_algbw(nbytes, time).range, algbw.range)


def busbw_follows(factor: float, algbw: PrintedFigure, busbw: PrintedFigure) -> bool:
    """Return whether busbw is consistent with ``factor`` times algbw."""
    low, high = algbw.range
    return _overlap((low * factor, high * factor), busbw.range)


def _overlap(interval: tuple[float, float], other: tuple[float, float]) -> bool:
    slack = 1e-9 * (1 + abs(interval[1]) + abs(other[1]))
    return interval[0] <= other[1] + slack and other[0] <= interval[1] + slack


COLLECTIVES = {  # nccl-tests' names: Ringlab's
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast", "reduce": "reduce", "alltoall": "all_to_all", "all_to_all": "all_to_all",
    "sendrecv": "send_recv", "send_recv": "send_recv", "gather": "gather", "scatter": "scatter",
    "hypercube": "hypercube",
}  # fmt: skip
LEAST_BANDWIDTH = 0.3  # GB/s; smaller values with two decimals do not determine a time


@dataclass(frozen=True)
class MeasuredRow:
    """A measured collective of one size. Bandwidths are in GB/s; None if unknown."""

    collective: str
    nbytes: int
    seconds: float | None
    algbw: float | None
    busbw: float | None

    def time(self, ranks: int) -> float | None:
        """Return the time in seconds, computed from algbw or busbw if it is unknown, or None if that is impossible.

        ``ranks`` is the number of ranks, or 0 if unknown. Only busbw needs it.
        """
        if self.seconds is not None:
            return self.seconds
        if self.algbw is not None and self.algbw >= LEAST_BANDWIDTH:
            return self.nbytes / self.algbw / 1e9
        if self.busbw is not None and self.busbw >= LEAST_BANDWIDTH and self.nbytes and ranks:
            return self.nbytes * bus_factor(self.collective, ranks) / self.busbw / 1e9
        return None


class SizeSeries(NamedTuple):
    """One collective's measured times on one system, in ascending order of bytes."""

    collective: str
    nbytes: NDArray[np.float64]
    seconds: NDArray[np.float64]


def times_by_size(rows: Sequence[MeasuredRow], ranks: int) -> dict[str, dict[int, list[float]]]:
    """Return the seconds of all usable rows by collective and bytes, in the order of the rows."""
    times: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        seconds = row.time(ranks)
        if seconds is not None and row.nbytes > 0:
            times.setdefault(row.collective, {}).setdefault(row.nbytes, []).append(seconds)
    return times


def find_series(rows: Sequence[MeasuredRow], ranks: int) -> dict[str, SizeSeries]:
    """Return the sizes and median times of each collective, sorted by size."""
    series = {}
    for collective, by_size in times_by_size(rows, ranks).items():
        medians = [np.median(by_size[nbytes]) for nbytes in sorted(by_size)]
        series[collective] = SizeSeries(collective, np.array(sorted(by_size), np.float64), np.array(medians))
    return series
