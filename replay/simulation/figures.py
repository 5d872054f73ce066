"""Summarize a replayed run: waits, ranks that never finish, bytes of calls, and times of named spans."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from collectives.quoting import name_ranks
from collectives.records.columns import Floats
from collectives.records.trace import Unfinished
from replay.recording import CallKind, Did, Recording, SourceLine
from replay.simulation.calls import NEVER
from replay.simulation.replay import ReplayedRun

MESSAGES = "messages"  # in place of a collective's name


class WaitingLine(NamedTuple):
    """A line of the program at which ranks wait for calls. Times are in seconds per rank."""

    what: str  # the collective, or messages
    location: SourceLine
    calls: int  # calls of all ranks
    mean_s: float  # mean over all ranks, including those that do not wait
    most_s: float
    most_rank: int


class CallFigures(NamedTuple):
    what: str
    number: int  # number of collectives or messages
    bytes: int  # bytes of the buffers, counted once per collective
    wire_bytes: int  # bytes of simulated messages
    waited_s: float  # mean wait per rank, in seconds


class MarkFigures(NamedTuple):
    """The number, mean and maximum seconds of the finished spans with one name, such as training steps."""

    name: str
    number: int
    mean_s: float
    most_s: float


def segment_seconds(run: ReplayedRun) -> Floats:
    """Return the seconds of each segment after its computing, or nan if the segment does not end."""
    segments, stage = run.segments, run.layout.segment_stage
    begin = stage - (run.recording.entries.seconds[segments.first] > 0)
    last = run.layout.last_stage[segments.stream] - 1
    same = segments.stream[1:] == segments.stream[:-1]
    last[:-1][same] = begin[1:][same] - 1
    return np.asarray(np.where(last >= stage, run.stage_end[last] - run.started[stage], 0.0), np.float64)


def _names(recording: Recording, calls: np.ndarray) -> list[str]:
    made = recording.calls
    is_collective, verb = made.kind[calls] == CallKind.COLLECTIVE, made.verb[calls]
    return [
        recording.verbs[number] if has_verb else MESSAGES
        for number, has_verb in zip(verb.tolist(), is_collective.tolist(), strict=True)
    ]


def waiting_lines(run: ReplayedRun) -> list[WaitingLine]:
    """Return the lines at which ranks wait, longest wait first. A wait for several calls is attributed to the last."""
    segments, recording = run.segments, run.recording
    last = np.unique(segments.wait_segment[::-1], return_index=True)[1]
    at = len(segments.wait_segment) - 1 - last
    calls, seconds = segments.wait_call[at], segment_seconds(run)[segments.wait_segment[at]]
    rank = recording.calls.rank[calls]
    keys = list(zip(_names(recording, calls), recording.calls.location[calls].tolist(), strict=True))
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    which = np.array([numbers[key] for key in keys], np.int64)
    known = np.isfinite(seconds)
    table = np.bincount(
        which[known] * recording.world_size + rank[known], seconds[known], len(numbers) * recording.world_size
    ).reshape(len(numbers), recording.world_size)
    counts = np.bincount(which, minlength=len(numbers))
    lines = [
        WaitingLine(
            name,
            recording.locations[location],
            int(counts[number]),
            float(table[number].mean()),
            float(table[number].max()),
            int(table[number].argmax()),
        )
        for (name, location), number in numbers.items()
    ]
    return sorted(lines, key=lambda line: -line.mean_s)


def call_figures(run: ReplayedRun) -> list[CallFigures]:
    recording, waited = run.recording, dict[str, float]()
    for line in waiting_lines(run):
        waited[line.what] = waited.get(line.what, 0.0) + line.mean_s
    keys, first = np.unique(recording.calls.key, return_index=True)
    names = np.array(_names(recording, first))
    of_message = dict(zip(keys.tolist(), names.tolist(), strict=True))
    carried = dict.fromkeys(of_message.values(), 0.0)
    numbers, inverse = np.unique(run.messages.collective, return_inverse=True)
    for key, nbytes in zip(numbers.tolist(), np.bincount(inverse, run.messages.nbytes).tolist(), strict=True):
        carried[of_message[key]] += nbytes
    figures = [
        CallFigures(
            name,
            int((names == name).sum()),
            int(recording.calls.nbytes[first[names == name]].sum()),
            int(carried[name]),
            waited.get(name, 0.0),
        )
        for name in carried
    ]
    return sorted(figures, key=lambda figures: -figures.waited_s)


def mark_figures(run: ReplayedRun) -> list[MarkFigures]:
    """Return the number, mean and maximum seconds of the finished spans with each name."""
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


def find_unfinished(run: ReplayedRun) -> list[Unfinished]:
    """Return the sends, receives and collectives at which a hanging run stops, ordered by time."""
    if run.is_complete:
        return []
    made, unfinished = run.messages, list[Unfinished]()
    stuck = np.flatnonzero(np.isnan(run.message_end))
    for sends, stage, rank, peer in ((True, made.source, made.src, made.dst), (False, made.sink, made.dst, made.src)):
        for at in stuck[np.isfinite(run.started[stage[stuck]])].tolist():
            unfinished.append(
                Unfinished(
                    rank=int(rank[at]),
                    peer=int(peer[at]),
                    sends=sends,
                    step=int((made.step if sends else made.dst_step)[at]),
                    channel=int(made.channel[at]),
                    since=float(run.started[stage[at]]),
                    is_under_way=bool(np.isfinite(run.message_begin[at])),
                    chunk=int((made.chunk if sends else made.into)[at]),
                    count=int(made.count[at]),
                    collective=int(made.collective[at]),
                )
            )
    unfinished += _waiting_inside(run)
    return sorted(unfinished, key=lambda entry: (entry.since, entry))


def _waiting_inside(run: ReplayedRun) -> Iterator[Unfinished]:
    """Yield the ranks that wait in collectives without simulated messages, each with a rank that has not arrived."""
    for call_class, bases in zip(run.classes, run.layout.bases, strict=True):
        if call_class.template is not None:
            continue
        arrival = run.started[bases[:, 0]].reshape(call_class.parts.shape)
        ranks = run.calls.rank[call_class.parts]
        for at in np.flatnonzero(np.isnan(arrival).any(axis=1)).tolist():
            late = int(ranks[at][np.isnan(arrival[at])][0])
            key = int(run.calls.key[call_class.collectives[at]])
            for rank, since in zip(ranks[at].tolist(), arrival[at].tolist(), strict=True):
                if np.isfinite(since):
                    yield Unfinished(rank, late, False, 0, 0, since, False, collective=key)


def describe_stuck(run: ReplayedRun) -> list[str]:
    """Return sentences that say in which calls ranks hang and why, and which ranks failed."""
    blocked: dict[tuple[str, str], list[int]] = {}
    for stream in np.flatnonzero(~np.isfinite(run.finished_streams)).tolist():
        rank = run.recording.streams[stream].rank
        if run.faults.fails_at(rank) <= run.elapsed:
            blocked.setdefault(("", "failed"), []).append(rank)
            continue
        for call in _waited_calls(run, stream):
            blocked.setdefault((run.recording.describe(call), _reason(run, call)), []).append(rank)
    sentences = []
    for (call_text, why), ranks in blocked.items():
        problem = f"{'hang' if len(ranks) > 1 else 'hangs'} in {call_text}: {why}" if call_text else why
        sentences.append(f"{name_ranks(sorted(set(ranks)))} {problem}")
    return sentences


def _waited_calls(run: ReplayedRun, stream: int) -> list[int]:
    """Return the unfinished calls that a stream waits for in the last segment that it began."""
    segments = np.flatnonzero(run.segments.stream == stream)
    began = segments[np.isfinite(run.started[run.layout.segment_stage[segments]])]
    if not len(began):
        return []
    waits = run.segments.wait_call[run.segments.wait_segment == began[-1]]
    return [int(call) for call in waits.tolist() if not _is_done(run, int(call))]


def _is_done(run: ReplayedRun, call: int) -> bool:
    key = run.recording.calls.key[call]
    messages = np.flatnonzero(run.messages.collective == key)
    return bool(len(messages)) and bool(np.isfinite(run.message_end[messages]).all())


def _reason(run: ReplayedRun, call: int) -> str:
    made, recording = run.recording.calls, run.recording
    if run.calls.is_collective[call]:
        number = int(run.calls.collective[call])
        parts = run.calls.parts[run.calls.first_part[number] : run.calls.first_part[number + 1]]
        missing = run.calls.rank[parts[run.calls.posted[parts] == NEVER]].tolist()
        if missing:
            return f"never reached by {name_ranks(sorted(missing))}{_where(recording, missing)}"
        late = [int(part) for part in parts.tolist() if not _has_begun(run, int(part))]
        ranks = sorted(run.calls.rank[late].tolist())
        return f"not yet reached by {name_ranks(ranks)}" if late else "its messages do not arrive"
    is_send = made.kind[call] == CallKind.SEND
    half = run.calls.recv if is_send else run.calls.send
    other = half[np.flatnonzero((run.calls.send == call) | (run.calls.recv == call))[0]]
    peer = int(made.peer[call])
    if other == NEVER or run.calls.posted[other] == NEVER:
        return f"rank {peer} never {'receives' if is_send else 'sends'} it{_where(recording, [peer])}"
    if not np.isfinite(run.started[run.layout.half[other]]):
        return f"rank {peer} has not reached {recording.describe(int(other))}"
    return "the message does not arrive"


def _has_begun(run: ReplayedRun, call: int) -> bool:
    posted = int(run.calls.posted[call])
    return posted != NEVER and bool(np.isfinite(run.started[run.layout.segment_stage[posted]]))


def _where(recording: Recording, ranks: list[int]) -> str:
    calls = np.flatnonzero(recording.calls.rank == ranks[0])
    return f" (its last call: {recording.describe(int(calls[-1]))})" if len(calls) else " (it makes no call)"
