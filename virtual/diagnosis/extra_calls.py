"""Find an extra call: a collective that only some ranks of a group call, so that all later calls are mismatched."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from virtual.matching.group import VirtualGroup
from virtual.matching.posted import Posted
from virtual.ranks.finding import format_ranks
from virtual.ranks.sites import CallSite

Callers = tuple[CallSite, ...]
SAME_CALLS = (
    "let all ranks make this call, or none of them: move it out of `if rank == ...`, and out of conditions that differ "
    "between ranks"
)


class ExtraCall(NamedTuple):
    """A collective that only ``ranks`` call, at the line ``site``."""

    ranks: tuple[int, ...]
    site: CallSite
    number: int  # index of the collective in its group

    @property
    def text(self) -> str:
        """The call as text."""
        makes = "makes" if len(self.ranks) == 1 else "make"
        return f"only {format_ranks(self.ranks)} {makes} the call at {self.site} ({self.site.text})"


def find_extra_call(group: VirtualGroup) -> ExtraCall | None:
    """Return the first collective that only some ranks call, from lines that no other rank reaches; None if unclear."""
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
    """Return the innermost line of the call that differs from the other ranks' line at the same stack depth."""
    for depth, site in enumerate(callers):
        if not any(site in other[depth : depth + 1] for other in others):
            return site
    return callers[0]


def own_lines(calls: Sequence[Posted]) -> dict[Posted, CallSite]:
    """Return the line to show for each call: its own line, or the line that calls a helper shared by all ranks."""
    if len({call.site for call in calls}) > 1:
        return {call: call.site for call in calls}
    return {
        call: _own_line(call.callers, [other.callers for other in calls if other.callers != call.callers])
        for call in calls
    }
