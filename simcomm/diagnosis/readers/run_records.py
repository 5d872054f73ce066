"""Records of runs: torch's profiles (Kineto) and table of kernels, Ringlab's Traces, metrics and rows of ``bench``."""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from collectives.errors import InputError
from collectives.input_files import parse_json
from collectives.other_formats.profiled import name_collective
from collectives.quoting import quote
from collectives.records import kineto
from collectives.records.spans import Span
from collectives.records.summary import PHASES
from collectives.records.trace import Trace, read_trace
from simcomm.diagnosis.evidence.facts import (
    BenchedRow,
    Fact,
    FilePlace,
    KernelShare,
    ProfiledCall,
    ProfiledRanks,
    RunTrace,
)
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


LONGEST = 1e6  # seconds of a phase


def is_metrics(text: str) -> bool:
    """Return whether a text is the rows of a training's metrics.

    >>> is_metrics('{"kind": "step", "step": 0}')
    True
    """
    return text.lstrip().startswith(('{"kind": "step"', '{"kind": "epoch"'))


def read_metrics(path: Path, text: str) -> Iterator[Fact]:
    """Yield the steps as a run of one rank, phase after phase. Raise InputError that names the line."""
    spans: list[Span] = []
    at = 0.0
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{path}: line {number}"
        try:
            row: Any = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not a row of metrics: {error}") from error
        if not isinstance(row, dict) or row.get("kind") not in ("step", "epoch"):
            raise InputError(f"{where}: not a row of metrics: its kind is neither step nor epoch")
        if row["kind"] == "step":
            seconds = [_seconds(where, f"{name}_s", row.get(f"{name}_s", 0.0)) for name in PHASES]
            ends = [at, *accumulate(seconds, initial=at)][1:]
            step = sum(span.name == PHASES[0] for span in spans)
            spans += [
                Span(0, name, step, begin, end, collective=step)
                for name, begin, end in zip(PHASES, ends[:-1], ends[1:], strict=True)
            ]
            at = ends[-1]
    if spans:
        yield RunTrace(FilePlace(str(path), 0, ""), Trace("training/metrics", "measured", 1, at, spans=spans))  # type: ignore[arg-type]  # rows become columns


def _seconds(where: str, key: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= LONGEST:
        raise InputError(f"{where}: {key} = {quote(value)}; give seconds from 0 on")
    return float(value)


def read_bench(path: Path, content: dict[str, Any]) -> Iterator[Fact]:
    """Yield each row that ``bench --json`` wrote with a prediction beside it. Raise InputError that names the row."""
    rows = content.get("collectives")
    for number, row in enumerate(rows if isinstance(rows, list) else []):
        where = f"{path}: collectives.{number}"
        if not isinstance(row, dict) or not isinstance(row.get("algorithm"), str):
            raise InputError(f"{where} is {quote(row)}; bench writes objects with an algorithm there")
        measured, predicted = row.get("time_s"), row.get("predicted_s")
        if measured is not None and predicted is not None:
            place = FilePlace.of(str(path), 0, f"row {number}: {row['algorithm']}, {row.get('bytes')} bytes")
            seconds = _seconds(where, "time_s", measured), _seconds(where, "predicted_s", predicted)
            if min(seconds) > 0:
                yield BenchedRow(place, row["algorithm"], *seconds)
