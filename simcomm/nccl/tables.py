"""Tables of measured collectives: ``<slug>.csv``, a row per collective and size, as published.

Columns: collective, algorithm and protocol where known, bytes (nccl-tests' "size": for all_gather and reduce_scatter
the total buffer), time_us, algbw_GBps, busbw_GBps; a blank cell is not in the source. Out-of-place values.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from collectives.errors import InputError
from collectives.input_files import read_text
from simcomm.nccl.descriptions import OWN_DATA

COLUMNS = (
    "collective", "algorithm_if_known", "protocol_if_known", "bytes", "time_us", "algbw_GBps", "busbw_GBps",
)  # fmt: skip
COLLECTIVES = {  # as nccl-tests calls them: as they are called here
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast", "reduce": "reduce", "alltoall": "all_to_all", "all_to_all": "all_to_all",
    "sendrecv": "send_recv", "send_recv": "send_recv", "gather": "gather", "scatter": "scatter",
    "hypercube": "hypercube",
}  # fmt: skip
LEAST_BANDWIDTH = 0.3  # GB/s: two decimals of less say too little about a time


@dataclass(frozen=True)
class Row:
    """A measured collective of one size. Bandwidths in GB/s; None where the source is silent."""

    collective: str
    nbytes: int
    seconds: float | None
    algbw: float | None
    busbw: float | None
    algorithm: str = ""
    protocol: str = ""

    def time(self, ranks: int) -> float | None:
        """Return the seconds, from a bandwidth where no time is stated; None where both say too little."""
        if self.seconds is not None:
            return self.seconds
        if self.algbw is not None and self.algbw >= LEAST_BANDWIDTH:
            return self.nbytes / self.algbw / 1e9
        if self.busbw is not None and self.busbw >= LEAST_BANDWIDTH and self.nbytes:
            return self.nbytes * bus_factor(self.collective, ranks) / self.busbw / 1e9
        return None


@dataclass(frozen=True)
class Table:
    """The rows of a system, in the order of its file."""

    slug: str
    rows: tuple[Row, ...]

    def series(self, ranks: int) -> "dict[str, Series]":
        """Return sizes and times of each collective, sorted by size; of one size measured twice the median time."""
        times: dict[str, dict[int, list[float]]] = {}
        for row in self.rows:
            seconds = row.time(ranks)
            if seconds is not None and row.nbytes > 0:
                times.setdefault(row.collective, {}).setdefault(row.nbytes, []).append(seconds)
        return {
            collective: Series(
                collective,
                np.array(sorted(by_size), dtype=np.float64),
                np.array([np.median(by_size[nbytes]) for nbytes in sorted(by_size)]),
            )
            for collective, by_size in times.items()
        }


@dataclass(frozen=True)
class Series:
    """Measured times of one collective on one system, by size; ascending bytes, and seconds of the same length."""

    collective: str
    nbytes: NDArray[np.float64]
    seconds: NDArray[np.float64]

    def evenly(self, most: int = 12) -> "Series":
        """Return at most so many rows, spread evenly over the logarithm of the size."""
        if len(self.nbytes) <= most:
            return self
        logs = np.log(self.nbytes)
        wanted = np.linspace(logs[0], logs[-1], most)
        rows = np.unique([np.abs(logs - log).argmin() for log in wanted])
        return Series(self.collective, self.nbytes[rows], self.seconds[rows])


def bus_factor(collective: str, ranks: int) -> float:
    """Return busbw / algbw, as nccl-tests defines it.

    >>> bus_factor("all_reduce", 8)
    1.75
    """
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if collective in SHARED_OUT else 1.0


SHARED_OUT = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")


def read_table(path: Path | str) -> Table:
    """Return the rows of a table. Raise InputError that names file, line, column and what would be accepted."""
    path = Path(path)
    try:
        lines = list(csv.reader(read_text(path).splitlines(), strict=True))
    except csv.Error as error:
        raise InputError(f"{path}: not a CSV file: {error}") from error
    if not lines or tuple(lines[0]) != COLUMNS:
        raise InputError(f"{path}: line 1: the columns must be {', '.join(COLUMNS)}")
    rows = tuple(_read_row(f"{path}: line {number}", cells) for number, cells in enumerate(lines[1:], start=2) if cells)
    if not rows:
        raise InputError(f"{path}: has no rows")
    return Table(path.stem, rows)


def _read_row(where: str, cells: list[str]) -> Row:
    if len(cells) != len(COLUMNS):
        raise InputError(f"{where}: {len(cells)} cells; there are {len(COLUMNS)} columns")
    name, algorithm, protocol, nbytes, *figures = cells
    if name not in COLLECTIVES:
        raise InputError(f"{where}: collective {name!r} is not one of {', '.join(COLLECTIVES)}")
    if not (nbytes.isascii() and nbytes.isdigit() and len(nbytes) <= 18):
        raise InputError(f"{where}: bytes = {nbytes!r}; give a whole number")
    time, algbw, busbw = (_figure(where, key, text) for key, text in zip(COLUMNS[4:], figures, strict=True))
    if time == 0:
        raise InputError(f"{where}: time_us = 0; a collective takes time")
    seconds = None if time is None else time / 1e6
    return Row(COLLECTIVES[name], int(nbytes), seconds, algbw, busbw, algorithm, protocol)


def _figure(where: str, key: str, text: str) -> float | None:
    try:
        number = float(text) if text else None
    except ValueError:
        number = -1.0
    if number is not None and not (number >= 0 and isfinite(number)):
        raise InputError(f"{where}: {key} = {text!r}; give a number from 0 on, or leave it blank")
    return number


def put_aside(directory: Path | str = OWN_DATA) -> frozenset[str]:
    """Return the slugs in a directory's ``put_aside.txt``: systems that no fit and no choice of structure may see.

    >>> len(put_aside())
    15
    """
    path = Path(directory) / "put_aside.txt"
    return frozenset(read_text(path).split()) if path.is_file() else frozenset()


def read_tables(slugs: Iterable[str], directory: Path | str = OWN_DATA) -> dict[str, Table]:
    """Return the tables of these systems, but of none that is put aside. Raise InputError.

    >>> "k80_4x_azure" in read_tables(["k80_4x_azure"])
    False
    """
    hidden = put_aside(directory)
    return dict(_read_each((slug for slug in slugs if slug not in hidden), Path(directory)))


def read_put_aside_tables(directory: Path | str = OWN_DATA) -> dict[str, Table]:
    """Return the tables that were put aside: for the one judgement at the end, and for nothing before it."""
    return dict(_read_each(sorted(put_aside(directory)), Path(directory)))


def _read_each(slugs: Iterable[str], directory: Path) -> Iterator[tuple[str, Table]]:
    for slug in slugs:
        yield slug, read_table(directory / f"{slug}.csv")
