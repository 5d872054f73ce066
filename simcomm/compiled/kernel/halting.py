"""The recursion of max-plus where links change and ranks fail; see ``simcomm/compiled/shortcuts/standstill.py``."""

from collections.abc import Callable
from typing import Any

import numpy as np

from simcomm.jit import entry, inline, source_hash


@inline
def arrival(start: float, nbytes: float, which: int, rate: float, changing: Any, last: Any) -> float:
    """Return when a message that came to its links at ``start`` seconds is through; infinite if never.

    ``which`` of the routes that change is its own; -1 has ``rate`` all the time. ``last[1]`` is set where changes would
    have to be known that are not.
    """
    if which < 0:
        return start + nbytes / rate
    at, end = changing.first[which], changing.first[which + 1]
    while at + 1 < end and changing.since[at + 1] <= start:
        at += 1
    left, now = nbytes, start
    while at + 1 < end:
        room = (changing.since[at + 1] - now) * changing.rate[at]
        if left <= room:
            return now + left / changing.rate[at]
        left -= room
        now = changing.since[at + 1]
        at += 1
    through = now + left / changing.rate[at] if changing.rate[at] > 0 else np.inf
    if through > changing.until:
        last[1] = 1.0
    return through


@inline
def _compute(times: Any, row: int, rows: Any, costs: Any, slower: Any, halt: Any) -> None:
    """Let all ranks do the computing of a row; one that has failed never ends it."""
    for rank in range(len(times)):
        nbytes = costs.nbytes[rows.at[row] + (rank if rows.is_shifted[row] else 0)]
        if times[rank] == np.inf or (nbytes == 0 and not rows.is_local[row]):
            continue
        if times[rank] >= halt.fails_at[rank]:
            times[rank] = np.inf
            halt.failed[rank] = True
        elif costs.gamma * nbytes > 0:
            times[rank] += costs.gamma * nbytes * slower[rank]
            halt.last[0] = max(halt.last[0], times[rank])


@inline
def _send(times: Any, before: Any, row: int, rows: Any, costs: Any, late: Any, halt: Any, changing: Any) -> None:
    """Let all ranks send the message of a row, which is ``late`` [ranks] seconds late, or not if that is empty."""
    p, away, route = len(times), rows.away[row], rows.route[row]
    for rank in range(p):
        nbytes = costs.nbytes[rows.at[row] + (rank if rows.is_shifted[row] else 0)]
        if nbytes == 0:
            continue
        through = max(before[rank], before[rank + away])
        if through < np.inf:
            through += costs.delay[route, rank]
            if len(late) > 0:
                through += late[rank]
            which = changing.of_route[rank * len(costs.delay) + route]
            through = arrival(through, nbytes, which, costs.rate[route, rank], changing, halt.last)
            if through < np.inf:
                halt.last[0] = max(halt.last[0], through)
        other = rank + away if rank + away < p else rank + away - p
        times[rank] = max(times[rank], through)
        times[other] = max(times[other], through)


def _entry(version: int) -> Callable[..., bool]:
    @entry
    def advance_to_halt(
        times: Any, before: Any, rows: Any, costs: Any, begin: int, end: int, late: Any, slower: Any, halt: Any,
        changing: Any,
    ) -> bool:  # fmt: skip
        """Go from step ``begin`` to ``end``; ``times``, ``late`` and ``slower`` are those of max-plus.

        ``before`` [2 * ranks] is for its own use.
        """
        p = len(times)
        for step in range(begin, end):
            if rows.first[step] == rows.first[step + 1]:
                continue
            for rank in range(p):
                if times[rank] >= halt.fails_at[rank] and times[rank] < np.inf:
                    times[rank] = np.inf
                    halt.failed[rank] = True
                    halt.step[rank] = step
                before[rank] = before[rank + p] = times[rank]
            message = 0
            for row in range(rows.first[step], rows.first[step + 1]):
                if rows.sends[row]:
                    _send(times, before, row, rows, costs, late[min(message, len(late) - 1)], halt, changing)
                    message += 1
                else:
                    _compute(times, row, rows, costs, slower, halt)
            for rank in range(p):
                if times[rank] == np.inf and before[rank] < np.inf:
                    halt.step[rank] = step
                    halt.since[rank] = before[rank]
        return version >= 0

    return advance_to_halt


advance_to_halt = _entry(source_hash(__file__))
