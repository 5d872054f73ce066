"""Check the rows of nccl-tests for consistency, and find their collective and number of ranks.

The values of a row must agree within the printed digits. ``src/<program>.cu`` in https://github.com/NVIDIA/nccl-tests
defines the output of a program. "size" is the larger of a rank's two buffers in bytes, and "count" the number of
elements that NCCL is called with. If a program divides its buffer among the ranks, "count" is the share of one rank.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import NamedTuple

from collectives.costs.bounds import bus_factor
from collectives.errors import InputError
from simcomm.nccl.measured.tables import (
    COLLECTIVES,
    MeasuredRow,
    PrintedFigure,
    algbw_follows,
    busbw_follows,
    find_algbw,
    read_figure,
)
from simcomm.nccl.pasted import ELEMENT_BYTES, FilePlace

COUNTED_BY_RANK = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "hypercube")
REDUCING, ROOTED = ("all_reduce", "reduce_scatter", "reduce"), ("broadcast", "reduce", "gather", "scatter")
ROUNDING = {"half": 1e-2, "bfloat16": 1e-2, "float": 1e-5, "double": 1e-12}  # maximum "error" per peer, in old versions
MOST_RANKS = 1_000_000
SURE = 1e-9  # relative floating-point rounding
NOT_IT = "the collective returned wrong results"
CUT = "the row is cut off or mixed with other output; paste the complete row"


class Side(NamedTuple):
    """The out-of-place or in-place results of a row, in us and GB/s. A value that has no column is None."""

    name: str
    time: PrintedFigure | None
    algbw: PrintedFigure | None
    busbw: PrintedFigure | None
    wrong: str = "N/A"  # number of wrong values; N/A: not checked
    error: str = ""  # versions until 2022 instead: maximum error


@dataclass(frozen=True)
class PrintedRow:
    """A row as printed. ``sides`` are its out-of-place and in-place results, of which only the first are used."""

    place: FilePlace
    nbytes: int
    sides: tuple[Side, ...]
    count: int | None = None
    dtype: str | None = None
    redop: str = ""
    root: int = -1
    collective: str = ""  # as a column states it
    ranks: int = 0  # as a column states it
    nodes: int = 0
    is_cut: bool = False  # whether cells are missing at the end

    @property
    def called_bytes(self) -> int | None:
        """The bytes of ``count`` elements, or None if the count or the type is unknown."""
        return None if self.count is None or self.dtype is None else self.count * ELEMENT_BYTES[self.dtype]


@dataclass(frozen=True)
class NcclTestsRun:
    """A run of nccl-tests with its rows. ``ranks`` and ``hosts`` are 0 if unknown."""

    rows: tuple[MeasuredRow, ...]
    ranks: int
    hosts: int
    processes: int
    gpu_name: str  # "": unknown
    version: tuple[int, int] | None  # NCCL's
    line: int = 0  # first line of the run
    guesses: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """The number of ranks per host, or 0 if unknown."""
        return self.ranks // self.hosts if self.hosts else 0

    @property
    def procs(self) -> str:
        """The value of ``procs`` in a system description: "per_gpu" if each GPU has its own process, else "single"."""
        return "per_gpu" if self.processes > self.hosts or self.gpus == 1 else "single"


def collective_of(name: str) -> str:
    """Return the collective for the name of a benchmark program or table heading, or "" for any other name.

    >>> collective_of("./build/alltoall_perf_mpi"), collective_of("AllReduce"), collective_of("Mine")
    ('all_to_all', 'all_reduce', '')
    """
    name = re.sub(r"_perf(_\w+)?$", "", name.rpartition("/")[2])
    letters = re.sub(r"[^a-z]", "", name.lower())
    return next((known for key, known in COLLECTIVES.items() if key.replace("_", "") == letters), "")


def check_row(printed: PrintedRow, collective: str, ranks: int) -> MeasuredRow:
    """Check a printed row, and return its values. ``ranks`` is 0 if unknown. Raise InputError if values disagree."""
    where, shares, expected = f"{printed.place}: ", "", printed.called_bytes
    if collective in COUNTED_BY_RANK:
        shares, expected = f" for each of {ranks} ranks", expected and ranks * expected
    if expected not in (None, printed.nbytes) and (ranks or not shares):
        raise InputError(
            f"{where}size {printed.nbytes} is inconsistent with count {printed.count}: {collective} of "
            f"{printed.count} {printed.dtype}{shares} has {expected} bytes; {CUT}"
        )
    if not -1 <= printed.root < (ranks or MOST_RANKS):
        raise InputError(f"{where}root must be -1 or a rank below {ranks or MOST_RANKS:,}, not {printed.root}; {CUT}")
    first, *_ = [_check_side(where, printed, side, collective, ranks) for side in printed.sides]
    return first


def _check_side(where: str, printed: PrintedRow, side: Side, collective: str, ranks: int) -> MeasuredRow:
    where = f"{where}{side.name}: " if side.name else where
    _check_values(where, printed.dtype, side, ranks)
    if side.time is not None and side.time.value <= 0:
        raise InputError(f"{where}time must be positive, not {side.time.value:g}; {CUT}")
    seconds = None if side.time is None else side.time.value / 1e6
    busbw = None if side.busbw is None else side.busbw.value
    for counted, factor in _conventions(collective, ranks, is_old=bool(side.error))[::-1]:
        if _is_consistent(printed.nbytes * counted, factor, side):
            algbw = None if side.algbw is None else side.algbw.value / (counted or 1.0)
            return MeasuredRow(collective, printed.nbytes, seconds, algbw, busbw)
    if side.time is not None and side.algbw is not None and not algbw_follows(printed.nbytes, side.time, side.algbw):
        time_text = f"{printed.nbytes} bytes in {side.time.value:g} us"
        raise InputError(f"{where}algbw {side.algbw.value:g} is inconsistent with {time_text}; {CUT}")
    raise InputError(
        f"{where}busbw {busbw:g} must be {factor:.4g} times algbw for {collective} of {ranks} ranks; correct the "
        "collective or the number of ranks, or paste the complete row"
    )


def _conventions(collective: str, ranks: int, *, is_old: bool = False) -> list[tuple[float, float | None]]:
    """Return the possible ways in which nccl-tests computes the bandwidths of a collective.

    Each is a pair of ratios: bytes in algbw / all bytes, and busbw / algbw (None if unknown). hypercube_perf, and until
    2019 all_gather and reduce_scatter, count only the bytes from other ranks.
    """
    is_constant = bus_factor(collective, 2) == bus_factor(collective, 3)
    from_others = ((ranks - 1) / ranks if ranks else 1.0, 1.0)
    if collective == "hypercube":
        return [from_others]
    now = (1.0, bus_factor(collective, ranks or 2) if ranks or is_constant else None)
    return [now, from_others] if is_old and collective in ("all_gather", "reduce_scatter") else [now]


def _is_consistent(nbytes: float, factor: float | None, side: Side) -> bool:
    time, algbw, busbw = side.time, side.algbw, side.busbw
    return (
        (time is None or algbw is None or algbw_follows(nbytes, time, algbw))
        and (algbw is None or busbw is None or factor is None or busbw_follows(factor, algbw, busbw))
        and (time is None or busbw is None or factor is None or algbw_follows(nbytes * factor, time, busbw))
    )


def _check_values(where: str, dtype: str | None, side: Side, ranks: int) -> None:
    if side.error and side.error != "N/A":
        most = ROUNDING.get(dtype or "", 0.0) * (max(ranks, 2) - 1)
        if read_figure(where[:-2], "error", side.error).value > most:
            raise InputError(f"{where}error {side.error} is larger than a rounding error ({most:g}); {NOT_IT}")
    if side.wrong != "N/A" and read_figure(where[:-2], "#wrong", side.wrong, instead=" or N/A").value:
        raise InputError(f"{where}{side.wrong} wrong values; {NOT_IT}")


class Call(NamedTuple):
    """A collective and its number of ranks (0 if unknown), found for several rows, with a note on each guess."""

    collective: str
    ranks: int
    guesses: tuple[str, ...] = ()


def find_call(
    rows: Sequence[PrintedRow], named: str, hints: Iterable[str], ranks: int = 0, in_process: int = 1
) -> Call:
    """Return the collective that fits the largest number of rows. If ``ranks`` is 0, also find the number of ranks.

    ``named`` is the collective that the output states, or empty. If several collectives fit equally well, the first of
    ``hints`` among them is chosen. If there is no such hint, the rows' redop and root decide. ``in_process`` is the
    number of ranks per process.
    """
    collectives = [named] if named else dict.fromkeys(COLLECTIVES.values())
    fits = [_fit(rows, collective, ranks) for collective in collectives]
    most = max(fit.rows for fit in fits)
    fitting = {fit.collective: fit for fit in fits if fit.rows == most}
    hinted = [name for name in dict.fromkeys(hints) if name in fitting]
    usual = [name for name in fitting if name != "hypercube"] or list(fitting)
    printed_as = rows[0].redop not in ("", "none"), rows[0].root >= 0
    alike = [name for name in usual if (name in REDUCING, name in ROOTED) == printed_as] or usual
    chosen = fitting[(hinted or alike)[0]]
    guesses = []
    if not hinted and len(alike) > 1 and ranks != 1:
        guesses.append(f"collective: {chosen.collective}; the table could also be from {', '.join(alike[1:])}")
    if ranks:
        return Call(chosen.collective, ranks, tuple(guesses))
    number = _usual_number(chosen.least, chosen.most, in_process)
    if number and chosen.least < chosen.most:
        guesses.append(f"ranks: {number}; the ratio of busbw to algbw allows {chosen.least} to {chosen.most}")
    return Call(chosen.collective, number, tuple(guesses))


class _Fit(NamedTuple):
    collective: str
    rows: int
    least: int
    most: int


def _fit(rows: Sequence[PrintedRow], collective: str, ranks: int) -> _Fit:
    ranges = [rank_range for row in rows if (rank_range := _find_ranks(row, collective)) is not None]
    if ranks:
        return _Fit(collective, sum(least <= ranks <= most for least, most in ranges), ranks, ranks)
    if not ranges:
        return _Fit(collective, 0, 0, 0)
    starts = {least for least, _ in ranges}
    least = max(sorted(starts), key=lambda number: sum(low <= number <= high for low, high in ranges))
    around = [(low, high) for low, high in ranges if low <= least <= high]
    return _Fit(collective, len(around), least, min(high for _, high in around))


def _find_ranks(row: PrintedRow, collective: str) -> tuple[int, int] | None:
    low, high = 1, MOST_RANKS
    if row.called_bytes and row.nbytes:
        shares, rest = divmod(row.nbytes, row.called_bytes)
        if rest or (shares != 1 and collective not in COUNTED_BY_RANK):
            return None
        low, high = (shares, shares) if collective in COUNTED_BY_RANK else (low, high)
    side = row.sides[0]
    base = side.algbw if side.time is None or not side.time.value else find_algbw(row.nbytes, side.time)
    if base is None or side.busbw is None or base.range[0] <= 0:
        return low, high
    least, most = side.busbw.range[0] / base.range[1], side.busbw.range[1] / base.range[0]
    if collective != "hypercube" and bus_factor(collective, 2) == bus_factor(collective, 3):
        return (low, high) if least <= 1 + SURE and most >= 1 - SURE else None
    scale = 2.0 if collective == "all_reduce" else 1.0  # busbw / algbw = scale (ranks - 1) / ranks
    if least >= scale:
        return None
    low = max(low, ceil(1 / (1 - max(least, 0.0) / scale) - SURE))
    high = min(high, floor(1 / (1 - most / scale) + SURE)) if most < scale * (1 - 1 / MOST_RANKS) else high
    return (low, high) if low <= high else None


def _usual_number(least: int, most: int, in_process: int) -> int:
    """Return the most likely number of ranks in a range; 0 if the range is too wide.

    >>> _usual_number(14, 17, 1), _usual_number(4, 4, 1), _usual_number(30, 90, 8)
    (16, 4, 0)
    """
    numbers = [number for number in range(least, min(most, 2 * least) + 1) if number % in_process == 0]
    if not numbers or most >= 2 * max(least, 2):
        return least if least == most else 0
    powers = [number for number in numbers if number & (number - 1) == 0]
    return [*powers, *(number for number in numbers if number % 8 == 0), *numbers][0]
