"""Who waits for ever in a replayed run: for which call, at which line of the program, and for whom."""

from collections.abc import Iterator

import numpy as np

from collectives.records.recording import Recording
from collectives.records.trace import Unfinished
from simcomm.recorded.calls import NEVER
from simcomm.recorded.replayed_run import ReplayedRun

MOST_NAMED = 8  # ranks in one sentence


def find_unfinished(run: ReplayedRun) -> list[Unfinished]:
    """Return the halves of messages that ranks wait for in a run that never ends, in order of time."""
    if run.is_complete:
        return []
    made, found = run.messages, list[Unfinished]()
    stuck = np.flatnonzero(np.isnan(run.message_end))
    for sends, stage, rank, peer in ((True, made.source, made.src, made.dst), (False, made.sink, made.dst, made.src)):
        for at in stuck[np.isfinite(run.started[stage[stuck]])].tolist():
            found.append(
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
    found += _waiting_inside(run)
    return sorted(found, key=lambda one: (one.since, one))


def _waiting_inside(run: ReplayedRun) -> Iterator[Unfinished]:
    """Yield ranks that have come to a collective that goes on inside of a backend, and wait for one that has not."""
    for way, bases in zip(run.ways, run.layout.bases, strict=True):
        if way.template is not None:
            continue
        came = run.started[bases[:, 0]].reshape(way.parts.shape)
        ranks = run.calls.rank[way.parts]
        for at in np.flatnonzero(np.isnan(came).any(axis=1)).tolist():
            late = int(ranks[at][np.isnan(came[at])][0])
            key = int(run.calls.key[way.collectives[at]])
            for rank, since in zip(ranks[at].tolist(), came[at].tolist(), strict=True):
                if np.isfinite(since):
                    yield Unfinished(rank, late, False, 0, 0, since, False, collective=key)


def describe_stuck(run: ReplayedRun) -> list[str]:
    """Return for each rank that never ends what it waits for, and why that does not come.

    Ranks that wait for calls of one line, for the same reason, are told together.
    """
    told: dict[tuple[str, str], list[int]] = {}
    for stream in np.flatnonzero(~np.isfinite(run.finished_streams)).tolist():
        rank = run.recording.streams[stream].rank
        if run.trouble.fails_at(rank) <= run.elapsed:
            told.setdefault(("", "has failed"), []).append(rank)
            continue
        for call in _waited_calls(run, stream):
            told.setdefault((run.recording.describe(call), _reason(run, call)), []).append(rank)
    sentences = []
    for (what, why), ranks in told.items():
        waits = f" {'wait' if len(ranks) > 1 else 'waits'} for ever for {what}:" if what else ""
        sentences.append(f"{_ranks(ranks)}{waits} {why}")
    return sentences


def _waited_calls(run: ReplayedRun, stream: int) -> list[int]:
    """Return the calls that a stream waits for in the segment that it does not leave."""
    own = np.flatnonzero(run.segments.stream == stream)
    began = own[np.isfinite(run.started[run.layout.segment_stage[own]])]
    if not len(began):
        return []
    waits = run.segments.wait_call[run.segments.wait_segment == began[-1]]
    return [int(call) for call in waits.tolist() if not _is_done(run, int(call))]


def _is_done(run: ReplayedRun, call: int) -> bool:
    """Return whether a call's messages have all arrived."""
    key = run.recording.calls.key[call]
    own = np.flatnonzero(run.messages.collective == key)
    return bool(len(own)) and bool(np.isfinite(run.message_end[own]).all())


def _reason(run: ReplayedRun, call: int) -> str:
    """Return why a call is never done."""
    made, recording = run.recording.calls, run.recording
    if run.calls.is_collective[call]:
        number = int(run.calls.collective[call])
        parts = run.calls.parts[run.calls.first_part[number] : run.calls.first_part[number + 1]]
        missing = run.calls.rank[parts[run.calls.posted[parts] == NEVER]].tolist()
        if missing:
            return f"{_ranks(missing)} never comes to it{_where(recording, missing)}"
        late = [int(part) for part in parts.tolist() if not _has_begun(run, int(part))]
        ranks = run.calls.rank[late].tolist()
        return f"{_ranks(ranks)} is still on its way to it" if late else "its messages do not arrive"
    half = run.calls.recv if made.kind[call] == 1 else run.calls.send
    other = half[np.flatnonzero((run.calls.send == call) | (run.calls.recv == call))[0]]
    peer = int(made.peer[call])
    if other == NEVER or run.calls.posted[other] == NEVER:
        return f"rank {peer} never {'receives' if made.kind[call] == 1 else 'sends'} it{_where(recording, [peer])}"
    if not np.isfinite(run.started[run.layout.half[other]]):
        return f"rank {peer} has not come to {recording.describe(int(other))}"
    return "the message does not arrive"


def _has_begun(run: ReplayedRun, call: int) -> bool:
    """Return whether the segment that posts a call has begun."""
    posted = int(run.calls.posted[call])
    return posted != NEVER and bool(np.isfinite(run.started[run.layout.segment_stage[posted]]))


def _where(recording: Recording, ranks: list[int]) -> str:
    """Return where the first of some ranks called last, in brackets; nothing where that is not known."""
    own = np.flatnonzero(recording.calls.rank == ranks[0])
    return f" (its last call: {recording.describe(int(own[-1]))})" if len(own) else " (it calls nothing)"


def _ranks(ranks: list[int]) -> str:
    """Return some ranks as a sentence has them."""
    ordered = sorted(set(ranks))
    named = ", ".join(map(str, ordered[:MOST_NAMED]))
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return f"rank{'s' if len(ordered) > 1 else ''} {named}{more}"
