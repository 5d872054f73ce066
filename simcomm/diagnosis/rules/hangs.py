"""What stands still or breaks: which rank did not come to which collective, and where it is."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from collectives.quoting import name_ranks
from simcomm.diagnosis.evidence.causes import Cause, stands_still
from simcomm.diagnosis.evidence.expectation import DiagnosedCase
from simcomm.diagnosis.evidence.facts import (
    CollectiveMismatch,
    FilePlace,
    Fingerprint,
    FlightCall,
    FlightGroup,
    LoggedHop,
    Milestone,
    PathMatrix,
    Progressing,
    RankTimeout,
    StackTop,
    StartedTest,
)

NEAR = ("PIX", "PXB")  # over PCIe switches alone
PREPARING = (
    "token",
    "map",
    "group",
    "preprocess",
    "process",
    "filter",
    "generat",
    "download",
    "load",
    "extract",
    "split",
)
WAITING = (  # parts of functions' names
    "synchronize",
    "all_reduce",
    "allreduce",
    "barrier",
    "broadcast",
    "all_gather",
    "all_to_all",
    "reduce_scatter",
    "nccl",
    "backward",
)
WAITING_OF_TORCH = ("wait", "recv", "send", "item")  # names that other libraries' functions have too
LOADER = "utils/data/dataloader.py"


def find_rank_behind(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield the ranks that did not come to a collective that others wait in, by torch's watchdog, group by group."""
    every = case.facts.of(RankTimeout)
    world = max((one.rank for one in every), default=-1) + 1
    for group, same in _by_group(every).items():
        first = _first_waits(same)
        if not first:
            continue
        positions = {one.rank: one for one in same if one.completed is not None}
        yield from _behind_by_position(positions, first)
        absent = [rank for rank in range(world) if rank not in first and rank not in positions]
        some = next(iter(first.values()))
        if (
            _is_of_all(group)
            and absent
            and len(absent) <= world / 2
            and len({one.sequence for one in first.values()}) == 1
        ):
            yield stands_still(
                "rank-absent",
                f"{name_ranks(absent)} did not come to {some.operation} {some.sequence}, or said nothing: the others "
                "wait in it",
                some.place,
                "look at that rank's own log and stack (py-spy dump)",
                0.7,
            )


def _first_waits(timeouts: Sequence[RankTimeout]) -> dict[int, RankTimeout]:
    """Return the earliest collective in which each rank was given up."""
    first: dict[int, RankTimeout] = {}
    for one in timeouts:
        if one.operation and (one.rank not in first or one.sequence < first[one.rank].sequence):
            first[one.rank] = one
    return first


def _is_of_all(group: str) -> bool:
    return group in ("", "0") or "default" in group


def _by_group(timeouts: Sequence[RankTimeout]) -> dict[str, list[RankTimeout]]:
    """Return timeouts by process group; what does not say its group is of the one in which its rank had come so far."""
    came_to = {(one.rank, one.sequence): one.group for one in timeouts if one.group}
    named = {*came_to.values()}
    usual = next(iter(named)) if len(named) == 1 else ""
    found: dict[str, list[RankTimeout]] = defaultdict(list)
    for one in timeouts:
        found[one.group or came_to.get((one.rank, one.sequence), usual)].append(one)
    return found


def _behind_by_position(positions: dict[int, RankTimeout], first: dict[int, RankTimeout]) -> Iterator[Cause]:
    """Yield the ranks that completed or enqueued less than the others."""
    enqueued = {rank: one.enqueued for rank, one in positions.items() if one.enqueued is not None}
    if len(set(enqueued.values())) > 1:
        least = min(enqueued.values())
        behind = sorted(rank for rank, one in enqueued.items() if one == least)
        if len(behind) <= len(enqueued) / 2:
            one = positions[behind[0]]
            waiting = next((t for rank, t in first.items() if rank not in behind), one)
            of_group = "" if _is_of_all(one.group) else f" of group {one.group}"
            yield stands_still(
                "rank-behind",
                f"{name_ranks(behind)} came as far as collective {least}, others to {max(enqueued.values())}: they "
                f"wait in {waiting.operation} {waiting.sequence}{of_group}",
                one.place,
                "see what that rank does (py-spy dump --pid): fewer batches, another branch, an exception that was "
                "caught, a checkpoint or evaluation of its own",
                0.9,
            )
    sequences = Counter(one.sequence for one in first.values())
    if not positions and len(sequences) > 1:
        least = min(sequences)
        behind = sorted(rank for rank, one in first.items() if one.sequence == least)
        if len(behind) <= len(first) / 2:
            yield stands_still(
                "rank-behind",
                f"{name_ranks(behind)} stand{'s' if len(behind) == 1 else ''} in collective {least}, others in "
                f"{max(sequences)}",
                first[behind[0]].place,
                "ranks took different numbers of collectives: look for branches and loops that depend on the rank or "
                "its data",
                0.8,
            )


def find_preparing(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that a rank was still preparing data when the others' patience ended."""
    waits = [one.place for one in case.facts.of(RankTimeout)]
    complaint = case.facts.complaint("store-timeout")
    waits += [complaint.place] if complaint else []
    busy = [
        one
        for one in case.facts.of(Progressing)
        if one.share < 1.0 and any(word in one.what.lower() for word in PREPARING)
    ]
    if waits and busy:
        one = busy[-1]
        yield stands_still(
            "rank-preparing",
            f"a rank was at {one.share:.0%} of {one.what!r} while the others waited for it until the timeout",
            one.place,
            "prepare the data before the processes start, or give init_process_group a longer timeout (ddp_timeout)",
            0.92,
        )
        return
    early = [one for one in case.facts.of(RankTimeout) if one.operation and one.elements == 1 and one.sequence <= 10]
    if early:
        yield stands_still(
            "rank-preparing",
            f"{early[0].operation} {early[0].sequence} with one element is a barrier near the start: another rank was "
            f"probably still preparing data or a model",
            early[0].place,
            "prepare the data before the processes start, or give init_process_group a longer timeout",
            0.6,
        )


def find_mismatch(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield ranks that are in different collectives, or in one with different shapes."""
    for one, other, place, strength in _unlike_calls(case):
        is_other = one.operation != other.operation or one.sequence != other.sequence
        yield stands_still(
            "collective-mismatch" if is_other else "shape-mismatch",
            f"rank {one.rank} is in {_describe(one)}, rank {other.rank} in {_describe(other)}",
            place,
            "ranks must call the same collectives with the same shapes: look at what depends on the rank or its data",
            strength,
        )


def _unlike_calls(case: DiagnosedCase) -> Iterator[tuple[Fingerprint, Fingerprint, FilePlace, float]]:
    """Yield calls of two ranks that should be one collective, by torch's wrapper, flight recorders and watchdog.

    With each come its place and how surely it shows that they differ.
    """
    for found in case.facts.of(CollectiveMismatch)[:1]:
        yield found.one, found.other, found.place, 0.95
    recorded: dict[tuple[str, int], dict[str, FlightCall]] = defaultdict(dict)
    for call in case.facts.of(FlightCall):
        if not call.is_p2p:
            recorded[call.group, call.sequence][call.operation] = call
    unlike = next((list(kinds.values())[:2] for kinds in recorded.values() if len(kinds) > 1), None)
    if unlike is not None:
        first, second = (
            Fingerprint(one.rank, one.sequence, one.operation, f"{one.frame}, group {one.group}") for one in unlike
        )
        yield first, second, unlike[1].place, 0.95
    for same in _by_group(case.facts.of(RankTimeout)).values():
        waits = sorted(_first_waits(same).values(), key=lambda one: one.rank)
        for one, other in combinations(waits, 2):
            known = None not in (one.elements, other.elements)
            is_unlike = one.operation != other.operation or (known and one.elements != other.elements)
            if one.sequence == other.sequence and is_unlike:
                yield _fingerprint(one), _fingerprint(other), other.place, 0.9
                break


def _fingerprint(one: RankTimeout) -> Fingerprint:
    shape = "" if one.elements is None else f"{one.elements} elements"
    return Fingerprint(one.rank, one.sequence, one.operation, shape)


def _describe(one: Fingerprint) -> str:
    return f"{one.operation} {one.sequence}" + f" [{one.shape}]" * bool(one.shape)


class _Position(NamedTuple):
    """How far a rank came in a group: its last collective there; None: it has called none that is recorded."""

    last: FlightCall | None

    @property
    def sequence(self) -> int:
        """The number of that collective."""
        return self.last.sequence if self.last else -1


def find_recorded(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield which rank did not come to which collective, by flight recorders, and where it called the last one."""
    groups: dict[str, dict[int, _Position]] = defaultdict(dict)
    pending = dict[int, FlightCall]()
    for one in case.facts.of(FlightCall):
        if one.state != "completed":
            pending.setdefault(one.rank, one)
    recorded = {one.rank for one in case.facts.of(FlightCall)} | {one.rank for one in case.facts.of(FlightGroup)}
    for one in case.facts.of(FlightCall):
        if not one.is_p2p:
            before = groups[one.group].get(one.rank)
            if before is None or one.sequence >= before.sequence:
                groups[one.group][one.rank] = _Position(one)
    members = {one.group: one.members for one in case.facts.of(FlightGroup)}
    for group, ranks in groups.items():
        silent = [rank for rank in members.get(group, ()) if rank not in ranks]
        ranks.update({rank: _Position(None) for rank in silent if rank in recorded})
        yield from _behind_in_group(group, ranks, pending, [rank for rank in silent if rank not in recorded])


def _behind_in_group(
    group: str, ranks: dict[int, _Position], pending: dict[int, FlightCall], unknown: Sequence[int]
) -> Iterator[Cause]:
    """Yield who is behind in a group: likeliest who waits for nothing; ``pending`` are calls that do not end.

    ``unknown`` are members without a dump.
    """
    ahead = max(ranks.values(), key=lambda one: one.sequence).last
    waiting = [one.last for one in ranks.values() if one.last is not None and one.last.state != "completed"]
    if ahead is None or not waiting:
        return
    what = f"{ahead.operation} {ahead.sequence} of group {group}"
    absent = sorted(rank for rank, one in ranks.items() if one.sequence < ahead.sequence)
    late = sorted(rank for rank, one in ranks.items() if one.last is not None and one.last.state == "scheduled")
    if absent:
        last = ranks[absent[0]].last
        said = f"; its last call there was {last.operation} {last.sequence} from {last.frame}" if last else ""
        stuck = next((pending[rank] for rank in absent if rank in pending), None)
        said += f"; it waits in {stuck.operation} of group {stuck.group} from {stuck.frame}" if stuck else ""
        yield stands_still(
            "rank-behind",
            f"{name_ranks(absent)} did not come to {what}, which {ahead.frame or 'others'} called{said}",
            (stuck or last or ahead).place,
            "look at what that rank does instead (py-spy dump)",
            0.85 if stuck else 0.95,
        )
    elif late and len(late) < len(ranks):
        yield stands_still(
            "rank-behind",
            f"{name_ranks(late)} called {what} but its GPU never began it: earlier work on its stream does not end",
            waiting[0].place,
            "look at kernels before it on that GPU",
            0.8,
        )
    elif unknown:
        yield stands_still(
            "rank-absent",
            f"{what} does not end for {name_ranks(sorted(ranks))}, and of {name_ranks(unknown)} there is no dump",
            waiting[0].place,
            "give the dumps of those ranks too, or look at their logs and stacks (py-spy dump)",
            0.6,
        )
    elif len(waiting) == len(ranks) > 1:
        yield stands_still(
            "collective-stuck",
            f"all of {name_ranks(sorted(ranks))} came to {what}, and it does not end: no rank is missing",
            waiting[0].place,
            "look at NICs, links and GPUs (dmesg, NCCL_DEBUG=INFO), and at collectives of other groups that these "
            "ranks began in another order",
            0.6,
        )


def find_stack_apart(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield the process that stands elsewhere than the others."""
    stacks = case.facts.of(StackTop)
    if len(stacks) < 2:
        return
    apart = [one for one in stacks if not _waits_for_others(one)]
    if apart and len(apart) < len(stacks):
        one = apart[0]
        own, innermost = _call_site(one), one.frames[0]
        where = own if own == innermost else f"{innermost}, called from {own}"
        others = f"and not in a collective, in which {len(stacks) - len(apart)} others wait"
        if any(_is_of_loader(frame) for frame in one.frames):
            yield stands_still(
                "data-loading",
                f"{one.process} waits for its loader in {where}, {others}",
                one.place,
                "num_workers=0 shows the exception or the wait itself; look at the stacks of the loader's processes, "
                "at the storage, and whether workers were forked while threads ran",
                0.86,
            )
        yield stands_still(
            "rank-behind",
            f"{one.process} is in {where}, {others}",
            one.place,
            "what it does there the others wait for: is it meant for one rank alone?",
            0.85,
        )
        return
    tops = Counter(_call_site(one) for one in stacks)
    if len(tops) > 1:
        rare, count = tops.most_common()[-1]
        one = next(each for each in stacks if _call_site(each) == rare)
        if count < len(stacks) / 2 or len(stacks) == 2:
            yield stands_still(
                "collective-mismatch",
                f"{one.process} waits in {rare}, others in {tops.most_common(1)[0][0]}",
                one.place,
                "ranks are in different collectives: look for branches that depend on the rank or its data",
                0.85,
            )


def _is_of_loader(frame: str) -> bool:
    """Return whether a frame takes the next batch of a loader: torch's, or one that a library or program has itself."""
    function, _, place = frame.partition(" (")
    return LOADER in place or (function == "__next__" and any(word in place for word in ("data", "loader", "iterator")))


def _waits_for_others(one: StackTop) -> bool:
    """Return whether a process stands in a collective, or waits for a GPU, in which one may not end."""
    if any(map(_is_of_loader, one.frames)):
        return False
    named = [(frame.partition(" (")[0].lower(), frame) for frame in one.frames[:6]]
    return any(
        any(word in name for word in WAITING) or (name in WAITING_OF_TORCH and "torch/" in frame)
        for name, frame in named
    )


def _call_site(one: StackTop) -> str:
    """Return the innermost frame of the program's own file, else the innermost that is not torch's."""
    program = one.frames[-1].partition(" (")[2].rpartition(":")[0]
    own = [frame for frame in one.frames if frame.partition(" (")[2].rpartition(":")[0] == program]
    if one.frames[-1].startswith("<module>") and own:
        return own[0]
    return next(
        (frame for frame in one.frames if "torch/" not in frame and "site-packages" not in frame), one.frames[0]
    )


def find_stuck_start(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield why a first collective does not end: where GPUs reach each other by P2P over PCIe, that."""
    facts = case.facts
    ready = [one for one in facts.of(Milestone) if one.name in ("Connected all rings", "Init COMPLETE")]
    started = facts.of(StartedTest)
    if not (started or ready or case.hangs) or case.comparisons or facts.of(RankTimeout):
        return
    nvlinked = not case.machine.missing and case.machine.system().link in ("nvswitch", "mesh")
    hops = [] if nvlinked else [one.place for one in facts.of(LoggedHop) if one.transport == "P2P"]
    complaint = facts.complaint("acs", "iommu")
    if hops and (started or case.hangs):
        place, strength = (complaint.place, 0.9) if complaint else (hops[0], 0.75)
        yield stands_still("acs-iommu", f"all ranks are connected by P2P over PCIe, {HELD_BACK}", place, TRY, strength)
    elif case.hangs and not complaint:
        for matrix in facts.of(PathMatrix):
            if any(path in NEAR for path in matrix.among_gpus()):
                text = f"GPUs on PCIe switches talk by P2P unless told otherwise, {HELD_BACK}, is the usual reason"
                yield stands_still("acs-iommu", text, matrix.place, TRY, 0.5)


HELD_BACK = (
    "and the first collective does not end: PCIe access control (ACS) or an IOMMU, which holds their writes back"
)
TRY = (
    "NCCL_P2P_DISABLE=1 to see that it is that; then switch off IOMMU (VT-d, AMD-Vi) or ACS in the BIOS, or boot with "
    "iommu=pt"
)


RULES = (
    find_rank_behind,
    find_preparing,
    find_mismatch,
    find_recorded,
    find_stack_apart,
    find_stuck_start,
)
