"""torch's profiles (Kineto), its table of kernels, and Ringlab's Traces: phases of ranks, collectives of a GPU."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from collectives.errors import InputError
from collectives.other_formats.profiled import name_collective
from collectives.records import kineto
from collectives.records.trace import read_trace
from simcomm.diagnosis.evidence.facts import Fact, FilePlace, KernelShare, ProfiledCall, ProfiledRanks, RunTrace
from simcomm.diagnosis.readers.lines import LogLine

HEAD = 100  # letters, in which a Trace of Ringlab's says so
CELLS = re.compile(r"\s{2,}")
SHARE = re.compile(r"^Self (?:CUDA|XPU|HIP|Device) %$")
PERCENT = re.compile(r"^(\d{1,3}(?:\.\d+)?)%$")


def is_trace(text: str) -> bool:
    """Return whether a text of JSON is a Trace of Ringlab's.

    >>> is_trace('{"schema_version": 3, "title": "all_reduce/ring"}')
    True
    """
    return '"schema_version"' in text[:HEAD] and '"title"' in text[: 3 * HEAD]


def read(paths: Sequence[Path]) -> Iterator[Fact]:
    """Yield the Trace in a file or, of torch's profiles in files or a folder, also each collective on a GPU.

    Raises InputError.
    """
    place = FilePlace(str(paths[0]), 0, "")
    if not kineto.is_profile(paths[0]):
        yield RunTrace(place, read_trace(paths[0]))
        return
    profiles = kineto.read_slices(paths if len(paths) > 1 else paths[0])
    yield ProfiledRanks(place, tuple(profiles))
    try:
        yield RunTrace(place, kineto.trace_profiles(profiles, paths[0]))
    except InputError:
        if not any(one.is_collective for profile in profiles for one in profile.slices):
            raise
    for profile in profiles:
        yield from _calls(place, profile)


def _calls(place: FilePlace, profile: kineto.Profile) -> Iterator[ProfiledCall]:
    """Yield the collectives of a rank's GPU, with the part of each during which nothing else ran there."""
    ours = [one for one in profile.slices if one.is_collective]
    busy = kineto.merge_intervals([(one.begin, one.end) for one in profile.slices if one.is_kernel])
    for one in ours:
        sent = one.sent or kineto.SentBytes("", 0, profile.world_size)
        hidden = _overlap(busy, one.begin, one.end)
        seconds = (one.end - one.begin) / 1e9
        yield ProfiledCall(
            place,
            profile.rank,
            name_collective(one),
            nbytes=sent.nbytes,
            ranks=sent.ranks,
            begin=one.begin / 1e9,
            end=one.end / 1e9,
            exposed=max(0.0, seconds - hidden / 1e9),
            group=sent.group,
            members=sent.members,
        )


def _overlap(busy: np.ndarray[tuple[int, int], np.dtype[np.int64]], begin: int, end: int) -> int:
    """Return how much of an interval lies in the busy ones."""
    first = int(np.searchsorted(busy[:, 1], begin, side="right"))
    last = int(np.searchsorted(busy[:, 0], end, side="left"))
    found = busy[first:last]
    return int(np.maximum(0, np.minimum(found[:, 1], end) - np.maximum(found[:, 0], begin)).sum())


def read_kernel_table(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield the share of each kernel in the time of all of them."""
    column, count = -1, 0
    for line in lines:
        cells = CELLS.split(line.text.strip())
        if cells[0] == "Name" and any(map(SHARE.match, cells)):
            column, count = next(at for at, cell in enumerate(cells) if SHARE.match(cell)), len(cells)
        elif column >= 0 and len(cells) == count and (found := PERCENT.match(cells[column])):
            yield KernelShare(line.place(file), cells[0], float(found[1]) / 100)
