"""Read torch.profiler traces (Kineto) of a real NCCL run as a recording.

The kernel of a collective states its name, bytes and group size. A rank computes while any other kernel runs on its
GPU. It starts a collective when the collective's kernel begins. The trace does not show which later kernel needs the
result, so the rank waits before the first compute kernel that begins after the collective has ended. A replay therefore
overlaps only what overlapped in the run.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from collectives.errors import InputError
from collectives.quoting import name_ranks
from collectives.records.kineto import Profile, Slice, read_slices
from collectives.spec import SPECS
from replay.recording import Recording
from replay.recording_builder import RecordedCollective, RecordingBuilder

NANO = 1e9
SUB_GROUPS = "collectives of smaller groups are ignored: a profile does not list their ranks"
VERBS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all", "reducescatter": "reduce_scatter",
}  # fmt: skip


def verb_of(name: str) -> str | None:
    """Return the collective of an NCCL kernel or operator, such as "all_reduce", or None if its name is unknown."""
    plain = name.lower().removeprefix("nccl:").strip("_")
    known = {**VERBS, **{verb: verb for verb in SPECS}}
    for text, verb in sorted(known.items(), reverse=True):  # reduce_scatter before reduce
        if plain.startswith(text):
            return verb
    return None


def read_profiled(path: Path | str) -> Recording:
    """Read profiler traces as a recording. Raise InputError if a rank is missing, or no trace has a collective."""
    profiles, path = read_slices(path), Path(path)
    world_size = max(profile.world_size for profile in profiles)
    if sorted(profile.rank for profile in profiles) != list(range(world_size)):
        ranks = name_ranks([profile.rank for profile in profiles])
        raise InputError(
            f"{path}: contains profiles of only {ranks}, but the world size is {world_size}; pass a directory with one "
            "profile per rank"
        )
    builder = RecordingBuilder(path.name or "profile", world_size, "kineto")
    number = sum(_add(builder, profile) for profile in profiles)
    if not number:
        raise InputError(f"{path}: contains no NCCL collective with a size in bytes; profile a run on GPUs")
    return builder.recording()


class _Event(NamedTuple):
    """The start of a collective, or an interval of computing, in nanoseconds. At equal times, computing sorts last."""

    begin: int
    is_computing: bool
    end: int
    starts: bool  # a kernel starts there, not a slice of a running one
    number: int  # index of the collective's slice in the profile


def _add(builder: RecordingBuilder, profile: Profile) -> int:
    calls = sorted((event for event in profile.slices if event.sent is not None), key=lambda event: event.begin)
    kernels = [event for event in profile.slices if event.is_kernel]
    events = [_Event(call.begin, False, call.end, False, number) for number, call in enumerate(calls)]
    events += _stretches(kernels, [call.begin for call in calls])
    seconds, under_way, posted = 0.0, list[tuple[int, int]](), 0
    for event in sorted(events):
        if event.is_computing:
            for end, call in under_way if event.starts else ():
                if end <= event.begin:
                    builder.wait(profile.rank, call, seconds)
                    seconds = 0.0
            under_way = [pair for pair in under_way if not event.starts or pair[0] > event.begin]
            seconds += (event.end - event.begin) / NANO
            continue
        made = _call(builder, profile.rank, calls[event.number], posted)
        if made is not None:
            builder.post(profile.rank, made, seconds)
            seconds, posted = 0.0, posted + 1
            under_way.append((event.end, made))
    for _, call in under_way:
        builder.wait(profile.rank, call, seconds)
        seconds = 0.0
    builder.compute(profile.rank, seconds)
    return posted


def _stretches(kernels: Sequence[Slice], cuts: Sequence[int]) -> Iterator[_Event]:
    """Yield the intervals in which at least one kernel runs. They are split at the times ``cuts``."""
    until, at = 0, 0
    for kernel in sorted(kernels, key=lambda kernel: kernel.begin):
        begin, starts = max(kernel.begin, until), kernel.begin >= until
        while begin < kernel.end:
            while at < len(cuts) and cuts[at] <= begin:
                at += 1
            end = min(kernel.end, cuts[at]) if at < len(cuts) else kernel.end
            yield _Event(begin, True, end, starts, -1)
            begin, starts = end, False
        until = max(until, kernel.end)


def _call(builder: RecordingBuilder, rank: int, event: Slice, number: int) -> int | None:
    """Add a collective and return its call number. Return None if its name is unknown or it excludes some ranks."""
    assert event.sent is not None
    verb = verb_of(event.sent.collective)
    if verb is None or event.sent.ranks != builder.world_size:
        if SUB_GROUPS not in builder.notes:
            builder.notes.append(SUB_GROUPS)
        return None
    collective = RecordedCollective(verb, tuple(range(builder.world_size)), event.sent.nbytes, 1, "uint8")
    return builder.collective(rank, number, collective, line="world")
