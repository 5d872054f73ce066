"""Who finds the words for a mistake of the program."""

from collections.abc import Sequence
from typing import Any, Protocol

from virtual.ranks.finding import Finding
from virtual.ranks.rank import Job, Rank, State
from virtual.ranks.sites import Site


class Judge(Protocol):
    """Who tells what is wrong. All of it is asked while no rank runs."""

    def standstill(self, job: Job) -> Finding:
        """Return what to say of a job whose ranks wait, and nothing can happen any more."""
        ...

    def unlike_calls(self, collective: Any) -> Finding:
        """Return what to say of a ``Collective`` whose calls are not alike on all ranks that have come."""
        ...

    def unlike_halves(self, sender: Any, receiver: Any) -> Finding:
        """Return what to say of a message's two ``Half``s of different sizes or types."""
        ...

    def raised(self, rank: Rank, error: BaseException) -> Finding:
        """Return what to say of an exception that ended a rank."""
        ...


def format_ranks(numbers: Sequence[int]) -> str:
    """Return ranks in words.

    >>> format_ranks([0, 1, 2, 5]), format_ranks([3])
    ('ranks 0-2, 5', 'rank 3')
    """
    found = sorted(set(numbers))
    runs: list[list[int]] = []
    for number in found:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    said = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"rank{'s' if len(found) > 1 else ''} {said}"


class PlainJudge:
    """Tells where each rank is, without looking for reasons."""

    def standstill(self, job: Job) -> Finding:
        for group in job.groups.values():
            for collective in group.collectives.values():
                if collective.is_unlike:
                    return self.unlike_calls(collective)
        waiting = [rank for rank in job.ranks if rank.state is not State.DONE]
        numbers = [rank.number for rank in waiting]
        first = f"deadlock: {format_ranks(numbers)} of {len(job.ranks)} wait, and nothing can happen any more"
        return Finding("deadlock", "\n".join([first, *describe_places(job)]), _places(waiting))

    def unlike_calls(self, collective: Any) -> Finding:
        group = collective.group
        lines = [f"mismatch: call {collective.number + 1} of group {group.name} is not the same on all ranks"]
        said: dict[tuple[str, Site], list[int]] = {}
        for call in collective.calls.values():
            said.setdefault((call.what, call.site), []).append(call.rank.number)
        lines += [_line(ranks, what, site) for (what, site), ranks in said.items()]
        where = tuple((call.rank.number, call.site) for call in collective.calls.values())
        return Finding("mismatch", "\n".join(lines), where)

    def unlike_halves(self, sender: Any, receiver: Any) -> Finding:
        first = "mismatch: a message is received into a tensor of another size or type"
        halves = (sender, receiver)
        lines = [_line([half.rank.number], half.what, half.site) for half in halves]
        where = tuple((half.rank.number, half.site) for half in halves)
        return Finding("size", "\n".join([first, *lines]), where)

    def raised(self, rank: Rank, error: BaseException) -> Finding:
        first = f"rank {rank.number} raised {type(error).__name__} at {rank.ended_at}: {error}"
        others = describe_places(rank.job, leaving_out=rank)
        return Finding("raised", "\n".join([first, *others]), ((rank.number, rank.ended_at),))


def describe_places(job: Job, leaving_out: Rank | None = None) -> list[str]:
    """Return lines that say where the ranks of a job are, equal ones together."""
    said: dict[tuple[str, Site | None], list[int]] = {}
    for rank in job.ranks:
        if rank is not leaving_out:
            waiting = rank.waiting
            key = (f"waits in {waiting.what}", waiting.site) if waiting is not None else (rank.state.value, None)
            said.setdefault(key, []).append(rank.number)
    return [_line(ranks, what, site) for (what, site), ranks in said.items()]


def _line(ranks: Sequence[int], what: str, site: Site | None) -> str:
    at = f" at {site}  {site.text}" if site is not None else ""
    return f"  {format_ranks(ranks)}: {what}{at}"


def _places(ranks: Sequence[Rank]) -> tuple[tuple[int, Site], ...]:
    return tuple((rank.number, rank.waiting.site) for rank in ranks if rank.waiting is not None)
