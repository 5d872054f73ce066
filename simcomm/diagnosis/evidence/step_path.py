"""The critical path through the profiles of all ranks: from the end of the run back, always to what ended last before.

A piece of a rank begins when the piece before it on that rank has ended; a collective when the last of its ranks has
come. So the path stays on a rank until it meets a collective, and goes on at the rank that came last to it. What that
rank computes while the collective begins is what it came out of, unless a collective has just ended there: collectives
of a communicator queue.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

COMPUTING, COPYING, NOTHING = "computing", "copies", "nothing runs"
QUEUED = 20e-6  # seconds at most between collectives that queue


class Piece(NamedTuple):
    """What a rank does from ``begin`` to ``end``, in seconds."""

    begin: float
    end: float
    what: str  # computing, copies, or the collective
    number: int = -1  # of the collective, the same on every rank; -1: no other rank is in it


class StepPart(NamedTuple):
    """A part of the critical path: what a rank does, in seconds."""

    what: str
    rank: int
    begin: float
    end: float


def align_clocks(ranks: Sequence[Sequence[Piece]]) -> list[list[Piece]]:
    """Return the pieces with the clocks of hosts laid together: a collective ends at about one time on all its ranks.

    >>> align_clocks([[Piece(0, 5, "all_reduce", 0)], [Piece(102, 105, "all_reduce", 0)]])[1]
    [Piece(begin=2, end=5, what='all_reduce', number=0)]
    """
    ends = [{one.number: one.end for one in pieces if one.number >= 0} for pieces in ranks]
    ahead = [median([own[number] - ends[0][number] for number in own.keys() & ends[0].keys()] or [0]) for own in ends]
    return [
        [one._replace(begin=one.begin - late, end=one.end - late) for one in pieces]
        for pieces, late in zip(ranks, ahead, strict=True)
    ]


def find_critical_path(ranks: Sequence[Sequence[Piece]]) -> list[StepPart]:
    """Return the critical path of the pieces of each rank, from the start of the run to its end.

    >>> slow = [Piece(0, 4, "computing"), Piece(4, 5, "all_reduce", 0)]
    >>> fast = [Piece(0, 1, "computing"), Piece(1, 5, "all_reduce", 0), Piece(6, 7, "computing")]
    >>> [tuple(part) for part in find_critical_path([slow, fast])]
    ... # doctest: +NORMALIZE_WHITESPACE
    [('computing', 0, 0, 4), ('all_reduce', 0, 4, 5), ('nothing runs', 1, 5, 6), ('computing', 1, 6, 7)]
    >>> both = [Piece(0, 10, "computing"), Piece(4, 12, "all_reduce", 0)]
    >>> [tuple(part) for part in find_critical_path([both, both])]
    [('computing', 1, 0, 4), ('all_reduce', 1, 4, 12)]
    """
    ordered = [sorted((one for one in pieces if one.end > one.begin), key=lambda one: one.end) for pieces in ranks]
    ends = [[one.end for one in pieces] for pieces in ordered]
    came = defaultdict[int, list[tuple[float, int]]](list)
    for rank, pieces in enumerate(ordered):
        for one in pieces:
            if one.number >= 0:
                came[one.number].append((one.begin, rank))
    rank = max(range(len(ranks)), key=lambda one: ends[one][-1] if ends[one] else float("-inf"))
    path: list[StepPart] = []
    at, is_met = ends[rank][-1] if ends[rank] else 0.0, False
    while (piece := _piece_before(ordered[rank], ends[rank], at, is_met)) is not None:
        if piece.end < at:
            path.append(StepPart(NOTHING, rank, piece.end, at))
        at, begin = min(piece.end, at), piece.begin
        is_met = piece.number >= 0
        if is_met:
            last, last_rank = max(came[piece.number])
            if last < at:  # else the clocks disagree by more than it takes
                begin, rank = last, last_rank
        path.append(StepPart(piece.what, rank, begin, at))
        at = begin
    return path[::-1]


def _piece_before(pieces: Sequence[Piece], ends: Sequence[float], at: float, is_met: bool) -> Piece | None:
    """Return what ended last until a time or, where a collective begins then, what is computed at that time."""
    index = bisect_right(ends, at) - 1
    ended = pieces[index] if index >= 0 else None
    is_queued = ended is not None and ended.what not in (COMPUTING, COPYING) and ended.end >= at - QUEUED
    if is_met and not is_queued:
        later = (pieces[number] for number in range(index + 1, len(pieces)))
        under_way = next((one for one in later if one.what in (COMPUTING, COPYING)), None)
        if under_way is not None and under_way.begin < at:
            return under_way
    return ended


def sum_path(path: Sequence[StepPart]) -> dict[tuple[str, int], float]:
    """Return the seconds of a path by what is done and by which rank, the longest first."""
    found: dict[tuple[str, int], float] = defaultdict(float)
    for part in path:
        found[part.what, part.rank] += part.end - part.begin
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def sum_waits(ranks: Sequence[Sequence[Piece]]) -> dict[int, float]:
    """Return the seconds that the middle of the others waits for each rank in collectives to which it comes last.

    What a rank itself waits for others is taken off, as it may be late for that; computing meanwhile is no wait.

    >>> on_time = [Piece(0, 1, "computing"), Piece(1, 5, "all_reduce", 0), Piece(2, 3, "computing")]
    >>> sum_waits([on_time, [Piece(0, 4, "computing"), Piece(4, 5, "all_reduce", 0)]])
    {1: 2.0}
    """
    came = defaultdict[int, list[tuple[float, int]]](list)
    for rank, pieces in enumerate(ranks):
        for one in pieces:
            if one.number >= 0:
                came[one.number].append((one.begin, rank))
    computed = [_computed_until(pieces) for pieces in ranks]
    waits: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))  # for whom, who
    for arrivals in came.values():
        last, worst = max(arrivals)
        for begin, rank in arrivals:
            if rank != worst:
                waits[worst][rank] += last - begin - float(np.diff(np.interp((begin, last), *computed[rank]))[0])
    own: dict[int, float] = defaultdict(float)
    for by_rank in waits.values():
        for rank, seconds in by_rank.items():
            own[rank] += seconds
    return {rank: max(0.0, median(by_rank.values()) - own[rank]) for rank, by_rank in waits.items()}


def _computed_until(pieces: Sequence[Piece]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return times at which a rank begins or ends to compute, and for how long it has until then."""
    busy = sorted((one.begin, one.end) for one in pieces if one.what == COMPUTING)
    lengths = [length for begin, end in busy for length in (0.0, end - begin)]
    return np.array([edge for pair in busy or [(0.0, 0.0)] for edge in pair]), np.cumsum(lengths or [0.0, 0.0])
