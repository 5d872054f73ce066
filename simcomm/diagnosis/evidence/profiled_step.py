"""A training step by the profiles of its ranks: what its streams do, its critical path, and what it should take."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import NamedTuple

from collectives.errors import InputError
from collectives.other_formats.profiled import name_collective, record_profiles, verb_of
from collectives.records.kineto import STEP, Profile, Slice, merge_intervals
from simcomm.diagnosis.evidence.facts import Facts, ProfiledRanks, RunTrace
from simcomm.diagnosis.evidence.machine import DescribedMachine
from simcomm.diagnosis.evidence.step_path import (
    COMPUTING,
    COPYING,
    NOTHING,
    Piece,
    align_clocks,
    find_critical_path,
    sum_path,
    sum_waits,
)
from simcomm.nccl.clusters import nccl_cluster
from simcomm.nccl.predict import interval_log_limits
from simcomm.recorded.replay import replay

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
