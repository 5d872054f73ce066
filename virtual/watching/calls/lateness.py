"""Ranks that come to a collective later than the group's timeout allows."""

from typing import Any

from virtual.ranks.finding import FindingPlace, ProgramFinding
from virtual.ranks.rank import Rank
from virtual.ranks.watching import Watcher

ADVICE = "do slow work on one rank before the group is made, or give init_process_group a longer timeout="


class LateComers(Watcher):
    """Keeps a clock of each rank that goes on with its computing and with whom it waits for.

    Without a calendar ranks' own clocks count their computing alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self._clocks: dict[Rank, tuple[float, float]] = {}  # its clock, and what it had computed then

    def now(self, rank: Rank) -> float:
        """Return a rank's clock, in seconds."""
        clock, computed = self._clocks.get(rank, (0.0, 0.0))
        clock += rank.computed - computed
        self._clocks[rank] = (clock, rank.computed)
        return clock

    def posted(self, posted: Any) -> None:
        posted.came = self.now(posted.rank)

    def complete(self, collective: Any) -> None:
        calls = collective.in_order()
        first, last = min(calls, key=lambda call: call.came), max(calls, key=lambda call: call.came)
        for call in calls:
            call.ready = last.came
        group, late = collective.group, last.came - first.came
        if late > group.timeout:
            title = (
                f"rank {last.rank.number} comes to {last.what.partition('(')[0]} {late:.0f} s after rank "
                f"{first.rank.number}; the group's timeout of {group.timeout:.0f} s ends the job before"
            )
            place = FindingPlace((last.rank.number,), last.what, last.site)
            self.tell(group.job, ProgramFinding("timeout", title, (place,), ADVICE))

    def met(self, sender: Any, receiver: Any) -> None:
        receiver.ready = max(sender.came, receiver.came)

    def waited(self, posted: Any) -> None:
        if posted.ready is not None:
            self._clocks[posted.rank] = (max(self.now(posted.rank), posted.ready), posted.rank.computed)
