"""Locate ranks and their calls, and explain collectives and messages whose arguments differ between ranks."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from virtual.matching.group import VirtualGroup
from virtual.matching.posted import Collective, Likeness, Posted
from virtual.ranks.finding import FindingPlace, ProgramFinding, format_ranks
from virtual.ranks.rank import Rank, State
from virtual.ranks.sites import CallSite

# -- locations, grouped so that hundreds of ranks fit into a few lines

CALLS_BEFORE = 2  # number of preceding calls to show


def describe(posted: Posted) -> str:
    """Return an operation as text, such as "all_reduce([4] float32, sum) in backward"."""
    inside = f" in {posted.caller_name}" if posted.caller_name and posted.caller_name not in posted.what else ""
    return posted.what + inside


def operation_name(text: str) -> str:
    return text.partition("(")[0]


def awaited_post(rank: Rank) -> Posted | None:
    """Return the operation that a rank waits for, or None if it waits for something else, such as a store key."""
    pending = rank.waiting.of if rank.waiting is not None else None
    return pending if isinstance(pending, Posted) else None


def awaited_ranks(rank: Rank) -> tuple[int, ...]:
    """Return the global ranks that a rank's operation waits for, or () if it waits for no particular rank."""
    posted = awaited_post(rank)
    return posted.awaits if posted is not None else ()


def waiting_locations(ranks: Iterable[Rank]) -> tuple[FindingPlace, ...]:
    together: dict[tuple[CallSite, str, str], list[tuple[Rank, str]]] = {}
    for rank in ranks:
        if rank.waiting is not None:
            posted = awaited_post(rank)
            operation, inside = (rank.waiting.what, "") if posted is None else (describe(posted), posted.caller_name)
            key = rank.waiting.site, operation_name(rank.waiting.what), inside
            together.setdefault(key, []).append((rank, operation))
    return tuple(
        FindingPlace(
            tuple(rank.number for rank, _ in members),
            members[0][1] if len({operation for _, operation in members}) == 1 else operation_name(members[0][1]),
            site,
            tuple(awaited_ranks(rank) for rank, _ in members),
        )
        for (site, _, _), members in together.items()
    )


def all_locations(ranks: Iterable[Rank]) -> tuple[FindingPlace, ...]:
    """Return the locations of ranks, and their states: waiting, exited, running or not started."""
    ranks = list(ranks)
    states: dict[str, list[int]] = {}
    for rank in ranks:
        if rank.state is State.DONE:
            states.setdefault("exited", []).append(rank.number)
        elif rank.waiting is None:
            states.setdefault("not started" if rank.state is State.NEW else "running", []).append(rank.number)
    others = (FindingPlace(tuple(numbers), state) for state, numbers in sorted(states.items()))
    return (*waiting_locations(ranks), *others)


# -- extra calls: collectives that only some ranks of a group call, so that all later calls are mismatched

Callers = tuple[CallSite, ...]
SAME_CALLS = (
    "let all ranks make this call, or none of them: move it out of `if rank == ...`, and out of conditions that differ "
    "between ranks"
)


class ExtraCall(NamedTuple):
    ranks: tuple[int, ...]
    site: CallSite
    number: int  # index of the collective in its group

    @property
    def text(self) -> str:
        makes = "makes" if len(self.ranks) == 1 else "make"
        return f"only {format_ranks(self.ranks)} {makes} the call at {self.site} ({self.site.text})"


def find_extra_call(group: VirtualGroup) -> ExtraCall | None:
    """Return the first collective that only some ranks call, at lines that no other rank reaches.

    Return None if the call histories of the ranks do not clearly show such a collective.
    """
    histories = {rank: group.callers[place] for rank, place in group.places.items() if group.callers[place]}
    if len(histories) < 2:
        return None
    shortest = min(map(len, histories.values()))
    for number in range(max(map(len, histories.values()))):
        at = {rank: history[number] for rank, history in histories.items() if number < len(history)}
        if len(set(at.values())) > 1 or number >= shortest:
            return _find_own(histories, at, number)
    return None


def _find_own(histories: dict[int, list[Callers]], at: dict[int, Callers], number: int) -> ExtraCall | None:
    for callers, count in Counter(at.values()).most_common()[::-1]:
        ranks = tuple(rank for rank, other in at.items() if other == callers)
        others = [history for rank, history in histories.items() if rank not in ranks]
        is_their_own = bool(others) and not any(callers in history for history in others)
        goes_on = [histories[rank][number + 1 :][:1] for rank in ranks]
        follows = any(history[number : number + 1] in goes_on for history in others if len(history) > number)
        is_certain = follows or len(at) < len(histories)  # the other ranks make the next call instead, or no call
        if is_their_own and (is_certain or 2 * count < len(histories)):
            calls_of_others = [history[number] for history in others if len(history) > number]
            return ExtraCall(ranks, _own_line(callers, calls_of_others), number)
    return None


def _own_line(callers: Callers, others: Sequence[Callers]) -> CallSite:
    """Return the innermost line of ``callers`` that no other rank has at the same stack depth."""
    for depth, site in enumerate(callers):
        if not any(site in other[depth : depth + 1] for other in others):
            return site
    return callers[0]


# -- calls whose arguments differ


class Trait(NamedTuple):
    kind: str
    title: str
    advice: str
    of: Callable[[Likeness], Any] = lambda like: like


ORDER = (
    "call the same collectives in the same order on all ranks; look for `if rank == ...`, for loops of different "
    "lengths, and for conditions that differ between ranks"
)
CONVERT = "convert to a common dtype first; was one of the tensors created under autocast?"
PAD = (
    "is the last batch smaller (drop_last=True), or does the size depend on the rank? Gather the sizes first and "
    "pad to the largest"
)
MATCH_SPLITS = "output_split_sizes must match the input_split_sizes of the other ranks; exchange the sizes first"
ONE_ROOT, ONE_OP = "pass the same global rank as src or dst on all ranks", "pass the same op on all ranks"
TRAITS = (
    Trait("collective mismatch", "ranks call different operations", ORDER, lambda like: like.verb),
    Trait("root", "ranks pass different roots", ONE_ROOT, lambda like: like.root),
    Trait("operator", "ranks use different reduction operators", ONE_OP, lambda like: like.op),
    Trait("dtype", "ranks pass tensors of different dtypes", CONVERT, lambda like: like.dtype),
    Trait("shape", "ranks pass tensors of different sizes", PAD, lambda like: like.lengths),
)
SPLITS = Trait("shape", "ranks send more or less than their peers expect to receive", MATCH_SPLITS)
DIFFERENT_ORDER = Trait("order", "ranks are at different lines", ORDER)


def report_collective_mismatch(collective: Collective) -> ProgramFinding:
    """Return a finding that says how the ranks' calls of a collective differ, with the line of each rank."""
    calls, group = list(collective.calls.values()), collective.group
    unlike = (trait for trait in TRAITS if len({trait.of(call.likeness) for call in calls}) > 1)
    trait = next(unlike, SPLITS)
    if trait.kind in ("dtype", "shape", "operator") and len({call.callers for call in calls}) > 1:
        trait = DIFFERENT_ORDER  # the likely cause
    name = "" if len(group.ranks) == len(group.job.ranks) else f" of the group of {format_ranks(group.ranks)}"
    title, advice = f"{trait.title} in collective {collective.number + 1}{name}", trait.advice
    extra = find_extra_call(group) if trait.kind in ("collective mismatch", "order") else None
    if extra is not None:
        title, advice = f"{title}: {extra.text}", SAME_CALLS
        if extra.number < collective.number:
            title += f", which is collective {extra.number + 1}"
    missing = all_locations(rank for rank in group.job.ranks if rank.number in collective.missing)
    locations = (*_call_locations(calls), *missing)
    return ProgramFinding(trait.kind, title, locations, advice, time=group.world.calendar.now)


def _call_locations(calls: list[Posted]) -> list[FindingPlace]:
    """Return the line of each call. If the line is the same on all ranks, return where their call stacks differ."""
    is_shared = len({call.site for call in calls}) == 1
    together: dict[tuple[str, CallSite], list[Posted]] = {}
    for call in calls:
        others = [other.callers for other in calls if other.callers != call.callers]
        site = _own_line(call.callers, others) if is_shared else call.site
        together.setdefault((call.what, site), []).append(call)
    locations = []
    for (_, site), members in together.items():
        first, numbers = members[0], tuple(sorted(call.rank.number for call in members))
        past = list(first.rank.history)
        while past and past[-1].site == first.site:
            past.pop()
        before = tuple(f"{call.what} at {call.site}" for call in past[-CALLS_BEFORE:])
        locations.append(FindingPlace(numbers, describe(first), site, before=before))
    return locations


def report_message_mismatch(sender: Posted, receiver: Posted) -> ProgramFinding:
    """Return a finding for a message whose sent and received tensors differ in size or dtype."""
    trait = "type" if sender.tensors[0].numel() == receiver.tensors[0].numel() else "size"
    title = f"rank {receiver.rank.number} receives a tensor of a different {trait} than rank {sender.rank.number} sends"
    locations = tuple(FindingPlace((half.rank.number,), describe(half), half.site) for half in (sender, receiver))
    advice = "use the same shape and dtype on both ranks; if the receiver cannot know the size, send the size first"
    return ProgramFinding("message size", title, locations, advice, time=sender.group.world.calendar.now)
