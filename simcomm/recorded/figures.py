"""What a replayed run comes to: where ranks wait, what each kind of call moves, how long the recording's spans take."""

from typing import NamedTuple

import numpy as np

from collectives.records.columns import Floats
from collectives.records.recording import CallKind, Did, Recording, SourceLine
from simcomm.recorded.replayed_run import ReplayedRun

MESSAGES = "messages"  # in place of a collective's name


class WaitingLine(NamedTuple):
    """A line of the program at which ranks wait for calls; seconds are of a rank."""

    what: str  # the collective, or messages
    site: SourceLine
    calls: int  # of all ranks
    mean_s: float  # over all ranks, of those that do not wait too
    most_s: float
    most_rank: int


class CallFigures(NamedTuple):
    """All calls of a kind."""

    what: str
    number: int  # of collectives, or messages
    nbytes: int  # of their buffers, each once
    wire_bytes: int  # of the messages that carry them, where they are simulated
    waited_s: float  # by a rank, on average


class MarkFigures(NamedTuple):
    """All spans of one name that the recording marks, over all ranks."""

    name: str
    number: int
    mean_s: float
    most_s: float


def segment_seconds(run: ReplayedRun) -> Floats:
    """Return how long each segment took, without what was computed before; nan where it did not end."""
    segments, stage = run.segments, run.layout.segment_stage
    begin = stage - (run.recording.entries.seconds[segments.first] > 0)
    last = run.layout.last_stage[segments.stream] - 1
    same = segments.stream[1:] == segments.stream[:-1]
    last[:-1][same] = begin[1:][same] - 1
    found: Floats = np.where(last >= stage, run.stage_end[last] - run.started[stage], 0.0)
    return found


def _names(recording: Recording, calls: np.ndarray) -> list[str]:
    """Return of calls the names of their collectives, or that they are messages."""
    made = recording.calls
    is_collective, verb = made.kind[calls] == CallKind.COLLECTIVE, made.verb[calls]
    return [
        recording.verbs[number] if own else MESSAGES
        for number, own in zip(verb.tolist(), is_collective.tolist(), strict=True)
    ]


def waiting_lines(run: ReplayedRun) -> list[WaitingLine]:
    """Return where ranks wait, the longest first: a segment's time belongs to the last call that it waits for."""
    segments, recording = run.segments, run.recording
    last = np.unique(segments.wait_segment[::-1], return_index=True)[1]
    at = len(segments.wait_segment) - 1 - last
    calls, seconds = segments.wait_call[at], segment_seconds(run)[segments.wait_segment[at]]
    rank = recording.calls.rank[calls]
    keys = list(zip(_names(recording, calls), recording.calls.site[calls].tolist(), strict=True))
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    which = np.array([numbers[key] for key in keys], np.int64)
    known = np.isfinite(seconds)
    table = np.bincount(
        which[known] * recording.world_size + rank[known], seconds[known], len(numbers) * recording.world_size
    ).reshape(len(numbers), recording.world_size)
    counts = np.bincount(which, minlength=len(numbers))
    found = [
        WaitingLine(
            what,
            recording.sites[site],
            int(counts[number]),
            float(table[number].mean()),
            float(table[number].max()),
            int(table[number].argmax()),
        )
        for (what, site), number in numbers.items()
    ]
    return sorted(found, key=lambda line: -line.mean_s)


def call_figures(run: ReplayedRun) -> list[CallFigures]:
    """Return what each kind of call moves, the most waited for first."""
    recording, waited = run.recording, dict[str, float]()
    for line in waiting_lines(run):
        waited[line.what] = waited.get(line.what, 0.0) + line.mean_s
    keys, first = np.unique(recording.calls.key, return_index=True)
    names = np.array(_names(recording, first))
    of_message = dict(zip(keys.tolist(), names.tolist(), strict=True))
    carried = dict.fromkeys(of_message.values(), 0.0)
    own, inverse = np.unique(run.messages.collective, return_inverse=True)
    for key, nbytes in zip(own.tolist(), np.bincount(inverse, run.messages.nbytes).tolist(), strict=True):
        carried[of_message[key]] += nbytes
    found = [
        CallFigures(
            name,
            int((names == name).sum()),
            int(recording.calls.nbytes[first[names == name]].sum()),
            int(carried[name]),
            waited.get(name, 0.0),
        )
        for name in carried
    ]
    return sorted(found, key=lambda one: -one.waited_s)


def mark_figures(run: ReplayedRun) -> list[MarkFigures]:
    """Return how long the spans took that the recording marks."""
    segments, recording = run.segments, run.recording
    times = run.started[run.layout.segment_stage]
    opened: dict[tuple[int, int], list[float]] = {}
    took: dict[str, list[float]] = {}
    for at in np.flatnonzero((segments.did == Did.BEGIN) | (segments.did == Did.END)).tolist():
        mark = int(recording.entries.number[segments.first[at]])
        key = int(segments.stream[at]), mark
        if segments.did[at] == Did.BEGIN:
            opened.setdefault(key, []).append(float(times[at]))
        elif opened.get(key):
            seconds = float(times[at]) - opened[key].pop()
            if np.isfinite(seconds):
                took.setdefault(recording.marks[mark].name, []).append(seconds)
    return [MarkFigures(name, len(each), sum(each) / len(each), max(each)) for name, each in took.items()]
