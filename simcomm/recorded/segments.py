"""The logs of a recording, cut into segments: what a stream posts and then waits for at one instant.

All entries of a segment but the first follow without computing, posts before waits; a call that its segment posts and
waits for, and that nothing else waits for, is *blocking*.
"""

from dataclasses import dataclass

import numpy as np

from collectives.records.columns import Bools, Ints
from collectives.records.recording import Did, Recording

NEVER = -1  # in place of the segment of a call that is not posted, or not waited for


@dataclass(frozen=True)
class Segments:
    """Segments by number, stream by stream, and where in them calls are posted and waited for."""

    first: Ints  # [segments]: the entry that it begins with
    stream: Ints  # [segments]
    did: Ints  # [segments]: what its first entry did
    posted: Ints  # [calls]: the segment that posts each, or NEVER
    post_entry: Ints  # [calls]: the entry that posts each, or NEVER
    wait_call: Ints  # [waits]: calls that are waited for, by each stream once ...
    wait_segment: Ints  # [waits]: ... and where
    blocking: Bools  # [calls]
    alone: Bools  # [calls]: blocking, and its segment does nothing else

    def __len__(self) -> int:
        return len(self.first)


def find_segments(recording: Recording) -> Segments:
    """Return the segments of all logs.

    >>> from collectives.records.recording_builder import RecordingBuilder
    >>> builder = RecordingBuilder("ring.py", 2)
    >>> both = [builder.send(0, 1, 8, key="a"), builder.recv(0, 1, 8, key="b")]
    >>> for did in (builder.post, builder.wait):
    ...     for call in both:
    ...         did(0, call)
    >>> found = find_segments(builder.recording())
    >>> len(found), found.blocking.tolist(), found.alone.tolist()
    (1, [True, True], [False, False])
    """
    entries, calls = recording.entries, len(recording.calls)
    did, number, stream = entries.did, entries.number, entries.stream
    of_call = did <= Did.WAIT
    begins = np.ones(len(did), np.bool_)
    begins[1:] = (stream[1:] != stream[:-1]) | (entries.seconds[1:] > 0) | ~of_call[1:] | ~of_call[:-1]
    begins[1:] |= (did[1:] == Did.POST) & (did[:-1] == Did.WAIT)
    segment = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    posts, waits = np.flatnonzero(did == Did.POST), np.flatnonzero(did == Did.WAIT)
    posted, post_entry = np.full(calls, NEVER), np.full(calls, NEVER)
    posted[number[posts]], post_entry[number[posts]] = segment[posts], posts
    _, once = np.unique(number[waits] * max(1, len(recording.streams)) + stream[waits], return_index=True)
    waits = waits[np.sort(once)]
    wait_call, wait_segment = number[waits], segment[waits]
    times = np.bincount(wait_call, minlength=calls)
    blocking = np.zeros(calls, np.bool_)
    blocking[wait_call] = (posted[wait_call] == wait_segment) & (times[wait_call] == 1)
    posts_in = np.bincount(segment[posts], minlength=len(first))
    waits_in = np.bincount(wait_segment, minlength=len(first))
    alone = blocking & (posted >= 0)
    alone[alone] = (posts_in[posted[alone]] == 1) & (waits_in[posted[alone]] == 1)
    return Segments(
        first=first,
        stream=stream[first],
        did=did[first],
        posted=posted,
        post_entry=post_entry,
        wait_call=wait_call,
        wait_segment=wait_segment,
        blocking=blocking,
        alone=alone,
    )
