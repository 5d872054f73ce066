"""Why a rank ends without data that it should have: who had it last, and what the rank received instead."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from collectives.schedule.schedule import Schedule
from collectives.step import Kind


class Landing(NamedTuple):
    """An operation that wrote a chunk. Sets of ranks whose data is in it are the bits of an integer."""

    operation: int  # its index in the schedule
    chunk: int
    origin: int  # the chunk of their buffers that the data which came is of
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
        else f"; rank {rank} writes nothing there{last_step(schedule, rank)}"
    )


def _where_it_stayed(schedule: Schedule, landings: Sequence[Landing], contributor: int, chunk: int, which: str) -> str:
    """Return who got a contribution last, and whether that rank ever sends it on."""
    came = [
        one for one in landings
        if one.origin == chunk and one.brought & contributor and not one.before & contributor
    ]  # fmt: skip
    if not came:
        return _never_sent(schedule, landings, contributor, chunk)
    last = came[-1]
    holder = int(schedule.rank[last.operation])
    told = f"{which} came last to rank {holder}, in {_step(schedule, last.operation)}"
    return told if any(_later_sends(schedule, last)) else f"{told}, which never sends it on"


def _never_sent(schedule: Schedule, landings: Sequence[Landing], contributor: int, chunk: int) -> str:
    """Return that a rank has sent its contribution to nobody, and what it held of that chunk in the end."""
    owner = contributor.bit_length() - 1
    own = [one for one in landings if schedule.rank[one.operation] == owner and one.chunk == chunk]
    lost = [one for one in own if one.before & contributor and not one.after & contributor]
    first, end, is_own = schedule.chunk, schedule.chunk + schedule.count, schedule.rank == owner
    sends = bool((is_own & (schedule.kind == Kind.SEND) & (first <= chunk) & (chunk < end)).any())
    if lost and sends:
        over = f"{_describe(schedule, lost[0])} puts the data of {name_ranks(lost[0].brought)} in its place"
        return f"rank {owner} does not send its own data before {over}"
    if own and not lost:
        step = f"step {schedule.step[own[-1].operation]}{_line_after_comma(schedule, own[-1].operation)}"
        return f"rank {owner} never sends chunk {chunk} (it has held {name_ranks(own[-1].after)} of it since {step})"
    return f"rank {owner} never sends chunk {chunk}{last_step(schedule, owner)}"


def last_step(schedule: Schedule, rank: int) -> str:
    """Return in which line a rank's program ends, for what it never does; nothing where that is not known."""
    programs = schedule.programs[rank]
    channel = max(range(len(programs)), key=lambda one: len(programs[one]), default=0)
    steps = len(programs[channel]) if programs else 0
    if steps:
        line = schedule.at_line(rank, channel, steps - 1)
        return f", up to its last step, {steps - 1}{line}" if line else ""
    line = schedule.algorithm.find_line(None, schedule.world_size, schedule.root)
    return f", as it yields no step (it begins in {line})" if line else ""


def _line_after_comma(schedule: Schedule, index: int) -> str:
    """Return ``, line 9`` for an operation of a user's file, inside brackets that name the step."""
    return schedule.line(index).replace(" (", ", ").partition(" of ")[0]


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
        return f"rank {rank} never receives chunk {chunk}{last_step(schedule, rank)}"
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
