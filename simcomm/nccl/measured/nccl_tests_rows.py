"""A row of nccl-tests, from a table or from JSON: its figures must follow from each other, within the digits printed.

What each program prints is that of https://github.com/NVIDIA/nccl-tests, ``src/<program>.cu``: "size" is the larger of
a rank's two buffers and "count" the elements that NCCL is called with, so a program that cuts its buffer among the
ranks counts a rank's share.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from collectives.costs.bounds import bus_factor
from collectives.errors import InputError
from simcomm.nccl.measured.tables import (
    COLLECTIVES,
    MeasuredRow,
    PrintedFigure,
    algbw_follows,
    busbw_follows,
    read_figure,
)

ELEMENT_BYTES = {
    "int8": 1, "uint8": 1, "char": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "half": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "int": 4, "float": 4, "int64": 8, "uint64": 8, "double": 8,
}  # fmt: skip
COUNTED_BY_RANK = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "hypercube")
ROUNDING = {"half": 1e-2, "bfloat16": 1e-2, "float": 1e-5, "double": 1e-12}  # of the "error" of old versions, a peer
OTHER = "for another collective give --collective"


class Device(NamedTuple):
    """A rank's process, host and GPU, as the list of devices gives them."""

    rank: int
    group: int
    pid: int
    host: str
    name: str


class Side(NamedTuple):
    """The figures of a row, out of place or in place, as they are printed."""

    name: str
    time: str
    algbw: str
    busbw: str
    wrong: str  # values that are wrong; N/A where they were not looked at
    error: str = ""  # of versions until 2022 instead: the largest difference from what should come out


@dataclass(frozen=True)
class PrintedRow:
    """A row as it is printed; of its sides the first is taken, and all are checked."""

    size: str
    count: str
    dtype: str
    root: str
    sides: tuple[Side, ...]


@dataclass(frozen=True)
class NcclTestsRun:
    """What a run measured, and on what: ranks over hosts, and the GPU as the driver names it."""

    rows: tuple[MeasuredRow, ...]
    ranks: int
    hosts: int
    processes: int
    gpu_name: str  # "" where the output does not say
    version: tuple[int, int] | None  # of the NCCL that ran

    @property
    def gpus(self) -> int:
        """Ranks of each host."""
        return self.ranks // self.hosts


def make_run(
    rows: list[MeasuredRow], devices: list[Device], ranks: int, version: tuple[int, int] | None
) -> NcclTestsRun:
    """Return the run of these rows on these devices."""
    hosts = len({device.host for device in devices})
    processes = len({(device.host, device.pid) for device in devices})
    return NcclTestsRun(tuple(rows), ranks, max(1, hosts), processes, devices[0].name if devices else "", version)


def check_groups(where: object, devices: list[Device]) -> None:
    """Raise InputError where ranks are of several groups, each of which ran a collective of its own."""
    groups = sorted({device.group for device in devices})
    if len(groups) > 1:
        listed = ", ".join(map(str, groups))
        raise InputError(f"{where}: ranks of the groups {listed}; give a run of one group (NCCL_TESTS_SPLIT not set)")


def collective_of(where: str, program: str) -> str:
    """Return the collective of a program's name.

    >>> collective_of("line 2", "./build/alltoall_perf_mpi")
    'all_to_all'
    """
    name = re.sub(r"_perf(_\w+)?$", "", program.rpartition("/")[2])
    if name not in COLLECTIVES:
        raise InputError(f"{where}: {program!r} measures none of {', '.join(COLLECTIVES)}")
    return COLLECTIVES[name]


def version_of(code: int) -> tuple[int, int]:
    """Return the version of NCCL's code, which has had five digits since 2.9.

    >>> version_of(2804), version_of(22809)
    ((2, 8), (2, 28))
    """
    return (code // 1000, code // 100 % 10) if code < 10_000 else (code // 10_000, code // 100 % 100)


def check_row(where: str, collective: str, printed: PrintedRow, ranks: int) -> MeasuredRow:
    """Return a row whose figures follow from each other. Raise InputError where they do not."""
    nbytes = _check_size(where, collective, printed, ranks)
    if not re.fullmatch(r"-1|\d{1,9}", printed.root) or int(printed.root) >= ranks:
        raise InputError(f"{where}: root {printed.root!r}; give a rank from 0 to {ranks - 1}, or -1 for none")
    rows = [_check_side(where, collective, nbytes, printed.dtype, side, ranks) for side in printed.sides]
    return rows[0]


def _check_size(where: str, collective: str, printed: PrintedRow, ranks: int) -> int:
    for name, text in (("size", printed.size), ("count", printed.count)):
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise InputError(f"{where}: {name} {text!r}; give a whole number")
    if printed.dtype not in ELEMENT_BYTES:
        raise InputError(f"{where}: type {printed.dtype!r} is none of {', '.join(ELEMENT_BYTES)}")
    width, shares = ELEMENT_BYTES[printed.dtype], ranks if collective in COUNTED_BY_RANK else 1
    expected = int(printed.count) * width * shares
    if expected != int(printed.size):
        each = f" for each of {ranks} ranks" if shares > 1 else ""
        raise InputError(
            f"{where}: size {printed.size} does not follow from count {printed.count}: as {printed.dtype}{each} these "
            f"are {expected} bytes; {OTHER}"
        )
    return expected


def _check_side(where: str, collective: str, nbytes: int, dtype: str, side: Side, ranks: int) -> MeasuredRow:
    where = f"{where}: {side.name}" if side.name else where
    _check_values(where, dtype, side, ranks)
    time, algbw, busbw = (
        read_figure(where, name, text)
        for name, text in (("time", side.time), ("algbw", side.algbw), ("busbw", side.busbw))
    )
    if time.value <= 0:
        raise InputError(f"{where}: time {side.time}; a collective takes time")
    for counted, factor in _conventions(collective, ranks, is_old=bool(side.error))[::-1]:
        if _hang_together(nbytes * counted, factor, time, algbw, busbw):
            return MeasuredRow(collective, nbytes, time.value / 1e6, algbw.value / counted, busbw.value)
    if not algbw_follows(nbytes * counted, time, algbw):
        raise InputError(f"{where}: algbw {side.algbw} does not follow from {nbytes} bytes in {side.time} us")
    raise InputError(
        f"{where}: busbw {side.busbw} does not follow from algbw {side.algbw}: for {collective} of {ranks} ranks it is "
        f"{factor:.4g} times as much; {OTHER}"
    )


def _conventions(collective: str, ranks: int, *, is_old: bool = False) -> list[tuple[float, float]]:
    """Return what part of the bytes algbw counts, and busbw over algbw.

    hypercube_perf, and until 2019 those of all_gather and reduce_scatter, count only what a rank has from the others.
    """
    from_others = ((ranks - 1) / ranks, 1.0)
    if collective == "hypercube":
        return [from_others]
    now = (1.0, bus_factor(collective, ranks))
    return [now, from_others] if is_old and collective in ("all_gather", "reduce_scatter") else [now]


def _hang_together(
    nbytes: float, factor: float, time: PrintedFigure, algbw: PrintedFigure, busbw: PrintedFigure
) -> bool:
    """Return whether one time may have been printed so, as itself and in both bandwidths."""
    return (
        algbw_follows(nbytes, time, algbw)
        and busbw_follows(factor, algbw, busbw)
        and algbw_follows(nbytes * factor, time, busbw)
    )


def _check_values(where: str, dtype: str, side: Side, ranks: int) -> None:
    """Raise InputError where the run found wrong values."""
    if side.error and side.error != "N/A":
        most = ROUNDING.get(dtype, 0.0) * (ranks - 1)
        if read_figure(where, "error", side.error).value > most:
            raise InputError(f"{where}: error {side.error}, where at most {most:g} is rounding; {_NOT_IT}")
    if side.wrong != "N/A" and read_figure(where, "#wrong", side.wrong, instead=" or N/A").value:
        raise InputError(f"{where}: {side.wrong} wrong values; {_NOT_IT}")


_NOT_IT = "what was measured is not the collective"


def check_outcome(where: str, wrong: str) -> None:
    """Raise InputError unless nccl-tests' last word on a run is that no values were wrong."""
    if not re.fullmatch(r"0+", wrong):
        raise InputError(f"{where}: {wrong} values out of bounds, by nccl-tests' own check; 0 is accepted: {_NOT_IT}")


def side_of(name: str, figures: Mapping[str, str]) -> Side:
    """Return a side by the names of the table's columns; #wrong is N/A where there is no such column."""
    wrong, error = figures.get("#wrong", "N/A"), figures.get("error", "")
    return Side(name, figures["time"], figures["algbw"], figures["busbw"], wrong, error)
