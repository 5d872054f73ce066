"""torch's profiles (Kineto) and Ringlab's own Traces: phases of each rank, and what each collective of a GPU took."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from collectives.errors import InputError
from collectives.records import kineto
from collectives.records.trace import read_trace
from simcomm.diagnosis.evidence.facts import Fact, FilePlace, ProfiledCall, RunTrace

NCCL_KERNELS = ("ncclDevKernel", "ncclKernel", "rcclGenericKernel", "ncclDevFunc")
HEAD = 100  # letters, in which a Trace of Ringlab's says so


def is_trace(text: str) -> bool:
    """Return whether a text of JSON is a Trace of Ringlab's.

    >>> is_trace('{"schema_version": 3, "title": "all_reduce/ring"}')
    True
    """
    return '"schema_version"' in text[:HEAD] and '"title"' in text[: 3 * HEAD]


def read(path: Path) -> Iterator[Fact]:
    """Yield the Trace in a file or folder and, of torch's profiles, each collective on a GPU. Raise InputError."""
    place = FilePlace(str(path), 0, "")
    if not kineto.is_profile(path):
        yield RunTrace(place, read_trace(path))
        return
    profiles = kineto.read_slices(path)
    try:
        yield RunTrace(place, kineto.read_profile(path), next((one.gpu for one in profiles if one.gpu), ""))
    except InputError:
        if not any(one.name.startswith(NCCL_KERNELS) for profile in profiles for one in profile.slices):
            raise
    for profile in profiles:
        yield from _calls(place, profile)


def _calls(place: FilePlace, profile: kineto.Profile) -> Iterator[ProfiledCall]:
    """Yield the collectives of a rank's GPU, with the part of each during which nothing else ran there."""
    kernels = [one for one in profile.slices if one.category == "kernel"]
    ours = [one for one in kernels if one.name.startswith(NCCL_KERNELS)]
    busy = _merge([(one.begin, one.end) for one in kernels if not one.name.startswith(NCCL_KERNELS)])
    for one in ours:
        name, nbytes, ranks = one.sent or (one.name.split("(")[0], 0, profile.world_size)
        hidden = _overlap(busy, one.begin, one.end)
        seconds = (one.end - one.begin) / 1e9
        times = {"begin": one.begin / 1e9, "end": one.end / 1e9, "exposed": max(0.0, seconds - hidden / 1e9)}
        yield ProfiledCall(place, profile.rank, name, nbytes, ranks, **times)


def _merge(intervals: list[tuple[int, int]]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return intervals that do not overlap, in order; [n, 2]."""
    merged: list[list[int]] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return np.array(merged, np.int64).reshape(-1, 2)


def _overlap(busy: np.ndarray[tuple[int, int], np.dtype[np.int64]], begin: int, end: int) -> int:
    """Return how much of an interval lies in the busy ones."""
    first = int(np.searchsorted(busy[:, 1], begin, side="right"))
    last = int(np.searchsorted(busy[:, 0], end, side="left"))
    found = busy[first:last]
    return int(np.maximum(0, np.minimum(found[:, 1], end) - np.maximum(found[:, 0], begin)).sum())
