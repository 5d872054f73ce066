"""Read a profile of torch's profiler (Kineto) as a Trace, to compare its phases with predicted phases.

``torch.profiler.profile(...).export_chrome_trace(FILE)`` writes one file per rank, in the Trace Event Format. Phases
are recognized by torch's event names. *Optimizer* is ``Optimizer.step#...``. *Backward* extends from the first to the
last ``autograd::engine::evaluate_function``. *Forward* extends from the first to the last operator that the profile
links to backward. *Sync* is each collective, such as ``nccl:...`` or ``gloo:...``, with its GPU times if the profile
has them. The names of ``record_function`` become spans. A user's span with the name ``forward`` or ``backward``
replaces this phase.

A step is ``ProfilerStep#N``. If there is none, a step ends with the optimizer. The clocks of all hosts must agree.
"""

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from collectives.checks import MOST_RANKS, check_path
from collectives.errors import InputError
from collectives.input_files import FileBytes, read_bytes
from collectives.quoting import quote
from collectives.records.columns import Ints
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace, read_trace

GZIP, PACKED = 16 + zlib.MAX_WBITS, b"\x1f\x8b"
SYNC = re.compile(r"(gloo|nccl|mpi|ucc|xccl):")
BACKWARD = "autograd::engine::evaluate_function"
STEP, OPTIMIZER = "ProfilerStep#", "Optimizer.step#"
NOT_THE_USERS = (STEP, "Optimizer.", "DistributedDataParallel.", "ProfilerStep")
NAMED = ("user_annotation", "gpu_user_annotation")
COLLECTIVE_KERNELS = ("nccl", "rccl")
LONGEST_NAME = 60
MOST_BASE = 1 << 62  # nanoseconds; with the limits below, every sum fits into 64 bits
MOST_MICROS = {"ts": 3.4e15, "dur": 1e15}  # before torch 2.4, `ts` counts from 1970
LOOKED_AT = 1 << 20  # bytes at the start of a file that identify a profile


class Slice(NamedTuple):
    """An event of a profile. Times are integer nanoseconds since 1970, because float seconds would lose digits."""

    name: str
    category: str
    thread: int | str | None
    begin: int
    end: int
    sent: "SentBytes | None" = None

    @property
    def is_kernel(self) -> bool:
        return self.category == "kernel" and not self.name.startswith(COLLECTIVE_KERNELS)


class SentBytes(NamedTuple):
    """The size of a collective as recorded by the profiler. ``nbytes`` is the larger of its input and output sizes."""

    collective: str
    nbytes: int
    ranks: int


class Profile(NamedTuple):
    """The events of one rank's profile."""

    rank: int
    world_size: int
    host: str
    slices: list[Slice]
    forward: list[tuple[int | str | None, int]]  # thread and begin of each operator with an arrow to backward


def read_slices(path: Path | str | Sequence[Path | str]) -> list[Profile]:
    """Return the profiles of all ranks, sorted by rank. Raise InputError for an invalid file or a duplicate rank."""
    by_rank: dict[int, Profile] = {}
    for file in _files(path):
        profile = _read(file)
        if profile.rank in by_rank:
            raise InputError(f"{file}: duplicate profile of rank {profile.rank}; pass one file per rank")
        by_rank[profile.rank] = profile
    return [by_rank[rank] for rank in sorted(by_rank)]


def read_profile(path: Path | str | Sequence[Path | str]) -> Trace:
    """Return the phases of a run as a Trace, from a torch.profiler file, a list of files, or a directory of files.

    Times are seconds after the first phase begins. Raise InputError if a file is invalid, or if there are no phases.
    """
    profiles = read_slices(path)
    by_rank = {profile.rank: profile for profile in profiles}
    first = min((event.begin for profile in profiles for event in profile.slices), default=0)
    rows = [span for profile in profiles for span in _spans(profile, first)]
    if not rows:
        raise InputError(
            f"{_files(path)[0]}: contains no collective, backward, optimizer or record_function; profile a step"
        )
    begin = min(span.begin for span in rows)
    rows = [span._replace(begin=span.begin - begin, end=span.end - begin) for span in rows]
    world_size = max(max(profile.world_size, profile.rank + 1) for profile in profiles)
    hosts = [by_rank[rank].host if rank in by_rank else "" for rank in range(world_size)]
    return Trace(
        "training/profiled",
        "measured",
        world_size,
        max(span.end for span in rows),
        spans=Spans.of(rows).sorted(),
        nodes=list(dict.fromkeys(hosts)),
        hosts=hosts,
    )


def read_run(path: Path | str) -> Trace:
    """Return a run from a trace file, from a torch.profiler file, or from a directory of torch.profiler files.

    Raise InputError if a file is invalid, or if a profile has no phases.
    """
    file = check_path("path", path)
    return read_profile(file) if is_profile(file) else read_trace(file)


def is_profile(path: Path) -> bool:
    """Return whether a path contains a torch profile. All directories and ``.gz`` files count as profiles."""
    if path.is_dir() or path.name.endswith(".gz"):
        return True
    if not path.is_file():  # reading a pipe without a writer would block
        return False
    try:
        with path.open("rb") as file:
            head = file.read(LOOKED_AT)
    except OSError:
        return False
    return b'"traceEvents"' in head and b'"schema_version"' not in head[:100]


def _files(path: Path | str | Sequence[Path | str]) -> list[Path]:
    if not isinstance(path, str | Path):
        paths = [check_path("path", file) for file in path]
    else:
        folder = check_path("path", path)
        paths = sorted(each for each in folder.iterdir() if is_profile_name(each)) if folder.is_dir() else [folder]
    if not paths:
        raise InputError(f"{path}: contains no profiles; torch's profiler writes .json or .json.gz")
    return paths


def is_profile_name(path: Path) -> bool:
    """Return whether a file name ends in ``.json`` or ``.json.gz``, like the files of torch's profiler."""
    return path.name.endswith((".json", ".json.gz"))


def _read(path: Path) -> Profile:
    content = _parse(path)
    events = content.get("traceEvents") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(events, list):
        raise InputError(f"{path}: not a torch profile: it has no list of traceEvents")
    about = content.get("distributedInfo", {})
    if not isinstance(about, dict):
        raise InputError(f"{path}: distributedInfo must be an object, not {quote(about)}")
    rank, world_size = (about.get(key, least) for key, least in (("rank", 0), ("world_size", 1)))
    if type(rank) is not int or type(world_size) is not int or not 0 <= rank < world_size <= MOST_RANKS:
        raise InputError(
            f"{path}: 0 <= rank < world_size <= {MOST_RANKS} must hold, not rank {quote(rank)} of {quote(world_size)}"
        )
    base = content.get("baseTimeNanoseconds", 0)
    if type(base) is not int or not 0 <= base < MOST_BASE:
        raise InputError(f"{path}: baseTimeNanoseconds must be a non-negative integer, not {quote(base)}")
    slices, forward = list[Slice](), list[tuple[int | str | None, int]]()
    for number, event in enumerate(events):
        if not isinstance(event, dict):
            raise InputError(f"{path}: traceEvents.{number} must be an object, not {quote(event)}")
        if event.get("ph") == "X":
            slices.append(_slice(path, number, event, base))
        elif event.get("ph") == "s" and event.get("cat") == "fwdbwd":
            forward.append((_thread(path, number, event), base + _time(path, number, event, "ts")))
    host = str(content.get("host_name", "host"))[:LONGEST_NAME]
    return Profile(rank, world_size, host, slices, forward)


def unpack(path: Path, content: bytes, most_bytes: int) -> bytes:
    """Return ``content``, decompressed if it is gzipped.

    Raise InputError if gzipped content is invalid, incomplete, or exceeds ``most_bytes`` when decompressed.
    """
    if content[:2] != PACKED:
        return content
    inflater = zlib.decompressobj(GZIP)
    try:
        content = inflater.decompress(content, most_bytes)
    except zlib.error as error:
        raise InputError(f"{path}: not a gzip file: {error}") from error
    if not inflater.eof:
        raise InputError(f"{path}: incomplete, or contains more than {most_bytes:,} bytes; profile fewer steps")
    return content


def _parse(path: Path) -> Any:
    content = unpack(path, read_bytes(path, FileBytes.PROFILER), FileBytes.PROFILER)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a torch profile: it is not JSON ({error})") from error


def _thread(path: Path, number: int, event: dict[str, Any]) -> int | str | None:
    thread = event.get("tid")
    if thread is not None and not isinstance(thread, int | str):
        raise InputError(f"{path}: traceEvents.{number}.tid must be an integer or a string, not {quote(thread)}")
    return thread


def _slice(path: Path, number: int, event: dict[str, Any], base: int) -> Slice:
    name, category = event.get("name"), event.get("cat", "")
    if not isinstance(name, str) or not isinstance(category, str):
        raise InputError(f"{path}: traceEvents.{number}: name and cat must be strings, not {quote([name, category])}")
    begin, lasting = base + _time(path, number, event, "ts"), _time(path, number, event, "dur")
    if lasting < 0:
        raise InputError(f"{path}: traceEvents.{number}.dur must not be negative, not {quote(event['dur'])}")
    arguments = event.get("args")
    sent = _sent(arguments) if isinstance(arguments, dict) and "Collective name" in arguments else None
    return Slice(name, category, _thread(path, number, event), begin, begin + lasting, sent)


ELEMENT_BYTES = {
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Int": 4, "Long": 8, "Byte": 1, "Char": 1, "Bool": 1,
    "Float8_e4m3fn": 1, "Float8_e5m2": 1,
}  # fmt: skip


def _sent(arguments: dict[str, Any]) -> SentBytes | None:
    elements = [arguments.get(key) for key in ("In msg nelems", "Out msg nelems")]
    known = [element for element in elements if type(element) is int and 0 <= element < 1 << 50]
    ranks, width = arguments.get("Group size"), ELEMENT_BYTES.get(str(arguments.get("dtype")))
    if not known or type(ranks) is not int or width is None or not 1 <= ranks <= MOST_RANKS:
        return None
    return SentBytes(str(arguments["Collective name"])[:LONGEST_NAME], max(known) * width, ranks)


def _time(path: Path, number: int, event: dict[str, Any], key: str) -> int:
    value: Any = event.get(key)
    if type(value) not in (int, float) or not abs(value) < MOST_MICROS[key]:
        raise InputError(
            f"{path}: traceEvents.{number}.{key} must be a number below {MOST_MICROS[key]:g}, not {quote(value)}"
        )
    nanoseconds: int = round(value * 1000)
    return nanoseconds


def _spans(profile: Profile, first: int) -> Iterator[Span]:
    """Yield the phases of one rank. Their times are in seconds after ``first``."""
    ends, slices = _step_ends(profile.slices), profile.slices

    def span(name: str, begin: int, end: int) -> Span:
        step = int(np.searchsorted(ends, begin, side="right"))
        times = (begin - first) / 1e9, (end - first) / 1e9
        return Span(profile.rank, name[:LONGEST_NAME], step, *times, collective=step)

    on_gpu = any(event.category == "gpu_user_annotation" and SYNC.match(event.name) for event in slices)
    for event in slices:
        if event.name.startswith(OPTIMIZER):
            yield span("optimizer", event.begin, event.end)
        elif event.category in NAMED and SYNC.match(event.name):
            if event.category == "gpu_user_annotation" or not on_gpu:
                yield span("sync", event.begin, event.end)
        elif event.category == "user_annotation" and not event.name.startswith(NOT_THE_USERS):
            yield span(event.name.strip("# ") or "unnamed", event.begin, event.end)
    named = {event.name for event in slices if event.category == "user_annotation"}
    if "backward" not in named:
        backward = [(event.begin, event.end) for event in slices if event.name.startswith(BACKWARD)]
        yield from (span("backward", *interval) for interval in _merge_by_step(backward, ends))
    if not {"forward", "## forward ##"} & named:
        yield from (span("forward", *interval) for interval in _merge_by_step(_forward(profile), ends))


def _forward(profile: Profile) -> list[tuple[int, int]]:
    """Return (start, end) for each operator of forward that the profile links to backward."""
    at = {(event.thread, event.begin): event.end for event in profile.slices if event.category == "cpu_op"}
    return [(begin, at[thread, begin]) for thread, begin in profile.forward if (thread, begin) in at]


def _step_ends(slices: Sequence[Slice]) -> Ints:
    """Return the end times of all steps except the last one."""
    marked = sorted(
        event.begin for event in slices if event.name.startswith(STEP) and event.category == "user_annotation"
    )
    ends = marked[1:] or sorted(event.end for event in slices if event.name.startswith(OPTIMIZER))[:-1]
    return np.array(ends, np.int64)


def _merge_by_step(intervals: Sequence[tuple[int, int]], ends: Ints) -> Iterator[tuple[int, int]]:
    merged: dict[int, tuple[int, int]] = {}
    for begin, end in intervals:
        step = int(np.searchsorted(ends, begin, side="right"))
        before = merged.get(step, (begin, end))
        merged[step] = min(before[0], begin), max(before[1], end)
    yield from merged.values()
