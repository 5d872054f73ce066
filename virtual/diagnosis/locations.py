"""Describe the locations of ranks, grouped so that hundreds of ranks fit into a few lines."""

from collections.abc import Iterable, Sequence

from virtual.matching.posted import Posted
from virtual.ranks.finding import FindingPlace
from virtual.ranks.rank import Rank, RankJob, State
from virtual.ranks.sites import CallSite

CALLS_BEFORE = 2  # number of preceding calls to show
OTHER_STATES = {State.NEW: "not started"}  # ranks that have neither exited nor wait


def describe(posted: Posted) -> str:
    """Return an operation as text, with the phase that issued it, such as "in backward"."""
    inside = f" in {posted.caller_name}" if posted.caller_name and posted.caller_name not in posted.what else ""
    return posted.what + inside


def operation_name(text: str) -> str:
    """Return the name of an operation without its arguments.

    >>> operation_name("recv(from 3, [4] float32)")
    'recv'
    """
    return text.partition("(")[0]


def calls_before(rank: Rank, site: CallSite | None) -> tuple[str, ...]:
    """Return the rank's last calls before the one at ``site``, as text."""
    past = list(rank.history)
    while past and past[-1].site == site:
        past.pop()
    return tuple(f"{call.what} at {call.site}" for call in past[-CALLS_BEFORE:])


def awaited_ranks(rank: Rank) -> tuple[int, ...]:
    """Return the ranks that a rank waits for."""
    posted = awaited_post(rank)
    return posted.awaits if posted is not None else ()


def awaited_post(rank: Rank) -> Posted | None:
    """Return the operation that a rank waits for; None if it waits for a store key, a clock or an exit."""
    pending = rank.waiting.of if rank.waiting is not None else None
    return pending if isinstance(pending, Posted) else None


def waiting_locations(ranks: Iterable[Rank]) -> tuple[FindingPlace, ...]:
    """Return where ranks wait, grouped by line and operation."""
    together: dict[tuple[CallSite, str, str], list[Rank]] = {}
    for rank in ranks:
        waiting = rank.waiting
        if waiting is not None:
            posted = awaited_post(rank)
            inside = posted.caller_name if posted is not None else ""
            together.setdefault((waiting.site, operation_name(waiting.what), inside), []).append(rank)
    return tuple(_waiting_location(site, members) for (site, _, _), members in together.items())


def _waiting_location(site: CallSite, members: Sequence[Rank]) -> FindingPlace:
    operations = [rank.waiting.what if rank.waiting is not None else "" for rank in members]
    posted = awaited_post(members[0])
    operation = describe(posted) if posted is not None else operations[0]
    if len(set(operations)) > 1:
        operation = operation_name(operation)
    numbers = tuple(rank.number for rank in members)
    return FindingPlace(numbers, operation, site, tuple(awaited_ranks(rank) for rank in members))


def all_locations(ranks: Iterable[Rank]) -> tuple[FindingPlace, ...]:
    """Return the locations of ranks, and their states: waiting, exited, running or not started."""
    ranks = list(ranks)
    locations = waiting_locations(ranks)
    ended = [rank.number for rank in ranks if rank.state is State.DONE]
    others = [rank for rank in ranks if rank.state is not State.DONE and rank.waiting is None]
    if ended:
        locations += (FindingPlace(tuple(ended), "exited"),)
    for state in {rank.state for rank in others}:
        numbers = tuple(rank.number for rank in others if rank.state is state)
        locations += (FindingPlace(numbers, OTHER_STATES.get(state, "running")),)
    return locations


def ranks_except(job: RankJob, numbers: Iterable[int]) -> list[Rank]:
    """Return the job's ranks other than ``numbers``."""
    known = set(numbers)
    return [rank for rank in job.ranks if rank.number not in known]
