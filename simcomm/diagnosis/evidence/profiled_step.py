"""A training step by the profiles of its ranks: what its streams do, its critical path, and what it should take.

A piece of a rank begins when the piece before it on that rank has ended; a collective when the last of its ranks has
come. So the critical path stays on a rank until it meets a collective, and goes on at the rank that came last to it.
What that rank computes while the collective begins is what it came out of, unless a collective has just ended there:
collectives of a communicator queue.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectives.errors import InputError
from collectives.other_formats.profiled import name_collective, record_profiles, verb_of
from collectives.records.kineto import STEP, Profile, Slice, merge_intervals
from simcomm.diagnosis.evidence.facts import Facts, ProfiledRanks, RunTrace
from simcomm.diagnosis.evidence.machine import DescribedMachine
from simcomm.nccl.clusters import nccl_cluster
from simcomm.nccl.predict import interval_log_limits
from simcomm.recorded.replay import replay

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


NANO = 1e9
COPIES = ("gpu_memcpy", "gpu_memset")


class ExpectedStep(NamedTuple):
    """What a step should take on the machine: its kernels as they were, without a pause, and NCCL as modelled."""

    seconds: float
    low: float
    high: float


@dataclass(frozen=True)
class ProfiledStep:
    """A step as the GPUs of all profiled ranks did it, in seconds.

    ``streams`` has how long each of them does what, by rank; ``path`` the critical path by what and by which rank;
    ``waited`` how long the others compute nothing because a rank is not yet in a collective that they are in.
    """

    seconds: float
    streams: Mapping[str, Mapping[int, float]]
    path: Mapping[tuple[str, int], float]
    expected: ExpectedStep | None
    waited: Mapping[int, float]

    def share_of_path(self, what: str) -> float:
        """Return which share of the critical path something is."""
        whole = sum(self.path.values())
        return sum(seconds for (name, _), seconds in self.path.items() if name == what) / whole if whole else 0.0


def find_profiled_step(facts: Facts, machine: DescribedMachine) -> ProfiledStep | None:
    """Return the step in the first profiles that show a GPU; None where none does."""
    for found in facts.of(ProfiledRanks):
        profiles = [one for one in found.profiles if any(each.is_kernel for each in one.slices)]
        if profiles:
            traces = [one.trace for one in facts.of(RunTrace) if one.place == found.place]
            steps = [len({span.collective for span in trace.spans}) for trace in traces]
            steps += [len({one.name for one in profiles[0].slices if one.name.startswith(STEP)})]
            return _step(machine, found, profiles, max(1, *steps))
    return None


def _step(
    machine: DescribedMachine, found: ProfiledRanks, profiles: Sequence[Profile], steps: int
) -> ProfiledStep | None:
    first = min(one.begin for profile in profiles for one in _on_gpu(profile))
    numbers: dict[tuple[object, ...], int] = {}
    ranks = align_clocks([list(_pieces(profile, first, numbers)) for profile in profiles])
    path = find_critical_path(ranks)
    if not path:
        return None
    streams: dict[str, dict[int, float]] = defaultdict(dict)
    for profile, pieces in zip(profiles, ranks, strict=True):
        spent: dict[str, float] = defaultdict(float)
        for one in pieces:
            spent[one.what] += one.end - one.begin
        busy = merge_intervals((one.begin, one.end) for one in _on_gpu(profile))
        spent[NOTHING] = path[-1].end - path[0].begin - float((busy[:, 1] - busy[:, 0]).sum()) / NANO
        for what, seconds in spent.items():
            streams[what][profile.rank] = max(0.0, seconds) / steps
    summed = {(what, profiles[at].rank): seconds / steps for (what, at), seconds in sum_path(path).items()}
    waited = {profiles[at].rank: seconds / steps for at, seconds in sum_waits(ranks).items()}
    return ProfiledStep(
        (path[-1].end - path[0].begin) / steps, streams, summed, _expected(machine, found, profiles, steps), waited
    )


def _on_gpu(profile: Profile) -> Iterator[Slice]:
    return (one for one in profile.slices if one.is_kernel or one.is_collective or one.category in COPIES)


def _pieces(profile: Profile, first: int, numbers: dict[tuple[object, ...], int]) -> Iterator[Piece]:
    """Yield what a rank's GPU does. Kernels side by side count once; ``numbers`` tell collectives of all ranks."""
    for what, own in (
        (COMPUTING, [one for one in profile.slices if one.is_kernel]),
        (COPYING, [one for one in profile.slices if one.category in COPIES]),
    ):
        for from_, until in merge_intervals((one.begin - first, one.end - first) for one in own).tolist():
            yield Piece(from_ / NANO, until / NANO, what)
    order: Counter[tuple[object, ...]] = Counter()
    for one in sorted((one for one in profile.slices if one.is_collective), key=lambda one: one.begin):
        begin, end = (one.begin - first) / NANO, (one.end - first) / NANO
        is_known = one.sent is not None and (one.sent.ranks == profile.world_size or "[" in one.sent.group)
        if one.sent is None or not is_known or verb_of(one.sent.collective) is None:
            yield Piece(begin, end, name_collective(one))
            continue
        key = one.sent
        order[key] += 1
        yield Piece(begin, end, name_collective(one), numbers.setdefault((*key, order[key]), len(numbers)))


def _expected(
    machine: DescribedMachine, found: ProfiledRanks, profiles: Sequence[Profile], steps: int
) -> ExpectedStep | None:
    """Return what the step should take; None where the machine or a rank's profile is missing.

    Its interval is that of NCCL's model at the largest collective, for what the busiest rank does not compute.
    """
    world_size = max(one.world_size for one in profiles)
    sizes = [one.sent.nbytes for profile in profiles for one in profile.slices if one.sent is not None]
    if machine.missing or machine.system().ranks != world_size or len(profiles) != world_size or not sizes:
        return None
    system = machine.system()
    try:
        run = replay(record_profiles(profiles, Path(found.place.file)), nccl_cluster(system))
    except InputError:
        return None
    seconds, waited = run.elapsed / steps, (run.elapsed - float(run.busy.max())) / steps
    below, above = interval_log_limits(system, [max(sizes)])[:, 0].tolist()
    return ExpectedStep(seconds, seconds - waited * (1 - exp(-below)), seconds + waited * (exp(above) - 1))
