"""Where ranks are, grouped so that hundreds of them are a few lines."""

from collections.abc import Iterable, Sequence

from virtual.matching.posted import Posted
from virtual.ranks.finding import FindingPlace
from virtual.ranks.rank import Rank, RankJob, State
from virtual.ranks.sites import CallSite

BEFORE = 2  # calls that a rank made before, in words
OTHERWISE = {State.NEW: "not begun yet"}  # of ranks that neither wait nor have ended


def describe(posted: Posted) -> str:
    """Return what was posted in words, and in what the program was that posted it: "in backward"."""
    inside = f" in {posted.asked}" if posted.asked and posted.asked not in posted.what else ""
    return posted.what + inside


def verb_of(what: str) -> str:
    """Return the first word of what was posted.

    >>> verb_of("recv(from 3, [4] float32)")
    'recv'
    """
    return what.partition("(")[0]


def history_before(rank: Rank, site: CallSite | None) -> tuple[str, ...]:
    """Return the last calls that a rank made before that of a line, in words."""
    past = list(rank.history)
    while past and past[-1].site == site:
        past.pop()
    return tuple(f"{did.what} at {did.site}" for did in past[-BEFORE:])


def awaited(rank: Rank) -> tuple[int, ...]:
    """Return the ranks that a rank waits for."""
    posted = awaited_post(rank)
    return posted.awaits if posted is not None else ()


def awaited_post(rank: Rank) -> Posted | None:
    """Return what a rank has posted and waits for; None where it waits for a key, a clock or other ranks' ends."""
    found = rank.waiting.of if rank.waiting is not None else None
    return found if isinstance(found, Posted) else None


def waiting_places(ranks: Iterable[Rank]) -> tuple[FindingPlace, ...]:
    """Return where ranks wait, those of one line and verb together."""
    together: dict[tuple[CallSite, str, str], list[Rank]] = {}
    for rank in ranks:
        waiting = rank.waiting
        if waiting is not None:
            posted = awaited_post(rank)
            inside = posted.asked if posted is not None else ""
            together.setdefault((waiting.site, verb_of(waiting.what), inside), []).append(rank)
    return tuple(_waiting_place(site, members) for (site, _, _), members in together.items())


def _waiting_place(site: CallSite, members: Sequence[Rank]) -> FindingPlace:
    said = [rank.waiting.what if rank.waiting is not None else "" for rank in members]
    posted = awaited_post(members[0])
    what = describe(posted) if posted is not None else said[0]
    if len(set(said)) > 1:
        what = verb_of(what)
    numbers = tuple(rank.number for rank in members)
    return FindingPlace(numbers, what, site, tuple(awaited(rank) for rank in members))


def state_places(ranks: Iterable[Rank]) -> tuple[FindingPlace, ...]:
    """Return where ranks are that may wait, have ended, or have not begun."""
    ranks = list(ranks)
    places = waiting_places(ranks)
    ended = [rank.number for rank in ranks if rank.state is State.DONE]
    others = [rank for rank in ranks if rank.state is not State.DONE and rank.waiting is None]
    if ended:
        places += (FindingPlace(tuple(ended), "has ended" if len(ended) == 1 else "have ended"),)
    for state in {rank.state for rank in others}:
        numbers = tuple(rank.number for rank in others if rank.state is state)
        places += (FindingPlace(numbers, OTHERWISE.get(state, "can go on")),)
    return places


def others_of(job: RankJob, numbers: Iterable[int]) -> list[Rank]:
    """Return the ranks of a job that are not among some."""
    known = set(numbers)
    return [rank for rank in job.ranks if rank.number not in known]
