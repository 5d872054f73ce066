"""Read the published tables ``<slug>.csv``, which have a row per collective and size.

Columns: collective, algorithm and protocol if known, bytes (the "size" of nccl-tests: for all_gather and reduce_scatter
the total buffer), time_us, algbw_GBps, busbw_GBps. Values are out-of-place. A blank cell is not in the source. Required
are collective, bytes and one of the last three columns.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collectives.budget import Gigabyte, check_read
from collectives.costs.bounds import bus_factor
from collectives.errors import InputError
from collectives.input_files import read_text
from simcomm.nccl.descriptions import OWN_DATA, put_aside
from simcomm.nccl.measured.tables import (
    COLLECTIVES,
    MeasuredRow,
    PrintedFigure,
    SizeSeries,
    algbw_follows,
    busbw_follows,
    find_algbw,
    find_series,
    read_figure,
    times_by_size,
)

COLUMNS = (
    "collective", "algorithm_if_known", "protocol_if_known", "bytes", "time_us", "algbw_GBps", "busbw_GBps",
)  # fmt: skip
FIGURES = COLUMNS[4:]


@dataclass(frozen=True)
class PublishedRow(MeasuredRow):
    """A row of a published table, with NCCL's choice if stated."""

    algorithm: str = ""
    protocol: str = ""
    printed: tuple[PrintedFigure, PrintedFigure] | None = None  # algbw, stated or from the time, and busbw, if known

    def fits(self, ranks: int) -> bool:
        """Return whether busbw is consistent with algbw for this number of ranks. It is if either is unknown."""
        return self.printed is None or busbw_follows(bus_factor(self.collective, ranks), *self.printed)


@dataclass(frozen=True)
class MeasuredTable:
    """The measured rows of a system, in the order of its file."""

    slug: str
    rows: tuple[PublishedRow, ...]

    def dropped(self, ranks: int) -> int:
        """Return the number of unusable rows: without bytes, or with neither a time nor a sufficient bandwidth."""
        return sum(row.nbytes == 0 or row.time(ranks) is None for row in self.rows)

    def series(self, ranks: int) -> dict[str, SizeSeries]:
        """Return the sizes and median times of each collective, sorted by size."""
        return find_series(self.rows, ranks)

    def spread(self, ranks: int) -> float:
        """Return the maximum ratio between two times of the same size; 1 if no size is repeated."""
        by_collective = times_by_size(self.rows, ranks).values()
        all_times = [times for by_size in by_collective for times in by_size.values()]
        return max((max(times) / min(times) for times in all_times), default=1.0)


def space_evenly(series: SizeSeries, most: int = 12) -> SizeSeries:
    """Return at most ``most`` of the points, evenly spaced in the logarithm of the size."""
    if len(series.nbytes) <= most:
        return series
    logs = np.log(series.nbytes)
    wanted = np.linspace(logs[0], logs[-1], most)
    rows = np.unique([np.abs(logs - log).argmin() for log in wanted])
    return series._replace(nbytes=series.nbytes[rows], seconds=series.seconds[rows])


def read_table(path: Path | str) -> MeasuredTable:
    """Return the rows of a table. Raise InputError with the file, the line, the column and the accepted values."""
    path = Path(path)
    reader = csv.reader(read_text(path).splitlines(), strict=True)
    rows: list[PublishedRow] = []
    try:
        columns = _read_columns(f"{path}: line 1", next(reader, []))
        for cells in reader:
            check_read(f"{path}: line {reader.line_num}", len(rows) + 1, Gigabyte.ENTRIES, "rows")
            if cells:
                rows.append(_read_row(f"{path}: line {reader.line_num}", columns, cells))
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: not a CSV file: {error}") from error
    if not rows:
        raise InputError(f"{path}: has no rows")
    return MeasuredTable(path.stem, tuple(rows))


def _read_columns(where: str, columns: list[str]) -> list[str]:
    known = len({*columns} & {*COLUMNS}) == len(columns)
    if not known or not {"collective", "bytes"} <= {*columns} or not {*FIGURES} & {*columns}:
        needed = f"collective, bytes and one of {', '.join(FIGURES)} are needed"
        raise InputError(f"{where}: the columns must be {', '.join(COLUMNS)}, each once; {needed}")
    return columns


def _read_row(where: str, columns: list[str], cells: list[str]) -> PublishedRow:
    """Raise InputError also if algbw contradicts the time."""
    if len(cells) != len(columns):
        raise InputError(f"{where}: {len(cells)} cells; there are {len(columns)} columns")
    named = {**dict.fromkeys(COLUMNS, ""), **dict(zip(columns, cells, strict=True))}
    name, nbytes = named["collective"], named["bytes"]
    if name not in COLLECTIVES:
        raise InputError(f"{where}: collective {name!r} is not one of {', '.join(COLLECTIVES)}")
    if not (nbytes.isascii() and nbytes.isdigit() and len(nbytes) <= 18):
        raise InputError(f"{where}: bytes = {nbytes!r}; give a whole number")
    time, algbw, busbw = (
        read_figure(where, key, named[key], instead=" or blank") if named[key] else None for key in FIGURES
    )
    if time is not None and time.value == 0:
        raise InputError(f"{where}: time_us = 0; a collective takes time")
    if time is not None and algbw is not None and not algbw_follows(int(nbytes), time, algbw):
        figures = f"{nbytes} bytes in {named['time_us']} us"
        raise InputError(f"{where}: algbw_GBps = {named['algbw_GBps']} does not follow from {figures}")
    seconds, bandwidths = None if time is None else time.value / 1e6, (_value(algbw), _value(busbw))
    printed = algbw or (find_algbw(int(nbytes), time) if time else None)
    return PublishedRow(
        COLLECTIVES[name], int(nbytes), seconds, *bandwidths, named["algorithm_if_known"], named["protocol_if_known"],
        (printed, busbw) if printed and busbw else None,
    )  # fmt: skip


def _value(figure: PrintedFigure | None) -> float | None:
    return None if figure is None else figure.value


def read_tables(slugs: Iterable[str], directory: Path | str = OWN_DATA) -> dict[str, MeasuredTable]:
    """Return the tables of systems except the held-out ones. Raise InputError if a table is missing or invalid.

    >>> "k80_4x_azure" in read_tables(["k80_4x_azure"])
    False
    """
    hidden = put_aside(directory)
    return dict(_read_each((slug for slug in slugs if slug not in hidden), Path(directory)))


def read_put_aside_tables(directory: Path | str = OWN_DATA) -> dict[str, MeasuredTable]:
    """Return the held-out tables, which are only for a final evaluation."""
    return dict(_read_each(sorted(put_aside(directory)), Path(directory)))


def _read_each(slugs: Iterable[str], directory: Path) -> Iterator[tuple[str, MeasuredTable]]:
    for slug in slugs:
        yield slug, read_table(directory / f"{slug}.csv")
