"""Why a rank ends without data that it should have: who had it last, and what the rank received instead."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from collectives.schedule.schedule import Schedule
from collectives.step import Kind


class Landing(NamedTuple):
    """An operation that wrote a chunk. Sets of ranks whose data is in it are the bits of an integer."""

    operation: int  # its index in the schedule
    chunk: int
    before: int  # what the chunk held
    brought: int  # what came
    after: int  # what it held then


def explain_missing(schedule: Schedule, landings: Sequence[Landing], rank: int, chunk: int, missing: int) -> str:
    """Return what became of the contribution of the first rank in ``missing``, which chunk ``chunk`` of ``rank`` lacks.

    ``landings`` are those of all ranks in the order in which they happened.
    """
    contributor = missing & -missing
    which = "it" if missing == contributor else f"that of {name_ranks(contributor)}"
    own = [one for one in landings if schedule.rank[one.operation] == rank and one.chunk == chunk]
    lost = [one for one in own if one.before & contributor and not one.after & contributor]
    if lost:
        over = f"{_describe(schedule, lost[-1])} put the data of {name_ranks(lost[-1].brought)} in its place"
        return f"rank {rank} had {which} until {over}"
    return f"{_where_it_stayed(schedule, landings, contributor, chunk, which)}; {_received(schedule, own, rank, chunk)}"


def explain_other(schedule: Schedule, landings: Sequence[Landing], rank: int, chunk: int) -> str:
    """Return which operation wrote last what a chunk holds at the end; empty if none did."""
    own = [one for one in landings if schedule.rank[one.operation] == rank and one.chunk == chunk]
    return (
        f"; it came in {_step(schedule, own[-1].operation)}, by {schedule.operation(own[-1].operation)}"
        if own
        else "; nothing is written there"
    )


def _where_it_stayed(schedule: Schedule, landings: Sequence[Landing], contributor: int, chunk: int, which: str) -> str:
    """Return who got a contribution last, and whether that rank ever sends it on."""
    came = [one for one in landings if one.brought & contributor and not one.before & contributor]
    came = [one for one in came if one.chunk % schedule.chunks == chunk % schedule.chunks] or came
    owner = contributor.bit_length() - 1
    if not came:
        return f"rank {owner} never sends {which if which == 'it' else 'its own data'}"
    last = came[-1]
    holder = int(schedule.rank[last.operation])
    told = f"{which} came last to rank {holder}, in {_step(schedule, last.operation)}"
    return told if any(_later_sends(schedule, last)) else f"{told}, which never sends it on"


def _later_sends(schedule: Schedule, landing: Landing) -> Iterator[int]:
    """Yield the sends of a landing's chunk by the rank that it happened on, in later steps."""
    at = landing.operation
    for index, kind in enumerate(schedule.kind.tolist()):
        if kind == Kind.SEND and schedule.rank[index] == schedule.rank[at] and schedule.step[index] > schedule.step[at]:
            first = int(schedule.chunk[index])
            if first <= landing.chunk < first + int(schedule.count[index]):
                yield index


def _received(schedule: Schedule, own: Sequence[Landing], rank: int, chunk: int) -> str:
    """Return what a rank received last for a chunk, where it should have been."""
    received = [one for one in own if schedule.match[one.operation] >= 0]
    if not received:
        return f"rank {rank} never receives chunk {chunk}"
    last = received[-1]
    what = f"{_describe(schedule, last)} brings the data of {name_ranks(last.brought)}"
    return f"rank {rank} receives chunk {chunk} last in {what}"


def _describe(schedule: Schedule, landing: Landing) -> str:
    return f"{_step(schedule, landing.operation)}, where {schedule.operation(landing.operation)}"


def _step(schedule: Schedule, index: int) -> str:
    return f"step {schedule.step[index]}{schedule.line(index)}"


def name_ranks(bits: int) -> str:
    """Return ``rank 3``, or ``ranks 0, 2``; of many the first few.

    >>> name_ranks(0b101)
    'ranks 0, 2'
    """
    ranks = [rank for rank in range(bits.bit_length()) if bits >> rank & 1]
    first = ", ".join(map(str, ranks[:8]))
    if len(ranks) == 1:
        return f"rank {first}"
    return f"ranks {first}" + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
