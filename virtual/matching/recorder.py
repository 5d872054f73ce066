"""What ranks post and wait for goes into the recording of their job."""

from collections.abc import Callable
from functools import lru_cache

from collectives.quoting import make_printable
from collectives.records.recording import Recording, SourceLine
from collectives.records.recording_builder import STEP, CollectiveCall, RecordingBuilder
from virtual.matching.posted import Posted, PostedCall, PostedHalf
from virtual.ranks.rank import Rank
from virtual.ranks.sites import CallSite


class JobRecorder:
    """Writes the calls of one job's ranks into a recording, with the seconds that each has computed between."""

    def __init__(self, title: str, world_size: int) -> None:
        self.world_size = world_size
        self._builder = RecordingBuilder(title, world_size)
        self._recorded = [0.0] * world_size  # seconds computed that are in the log, by rank
        self._halves = 0

    def collective(self, call: PostedCall) -> None:
        """Record that a rank posts its part of a collective; one of a single rank or without data is none."""
        exchange, group = call.exchange, call.group
        elements = call.buffer_elements
        if len(group.ranks) < 2 or not elements:
            return
        what = CollectiveCall(
            exchange.collective,
            group.ranks,
            elements,
            exchange.dtype.itemsize,
            str(exchange.dtype).removeprefix("torch."),
            exchange.op,
            exchange.root,
            group.name,
        )
        key, line = (id(group), call.number), group.name if group.is_ordered else ""
        self._post(call, self._builder.collective(call.rank.number, key, what, line=line, site=_line(call.site)))

    def message(self, half: PostedHalf) -> None:
        """Record that a rank posts its half of a message; which other half it meets is known later."""
        rank, group = half.rank.number, half.group
        self._halves += 1
        peer = half.peer_in_world
        add = self._builder.send if half.sends else self._builder.recv
        line = f"{group.name} {min(rank, peer or 0)}-{max(rank, peer or 0)}" if group.is_ordered else ""
        key = ("half", self._halves)
        other = rank if peer is None else peer
        found = add(rank, other, half.nbytes, key=key, tag=half.tag, line=line, site=_line(half.site))
        self._post(half, found)

    def meet(self, sender: PostedHalf, receiver: PostedHalf) -> None:
        """Record that two halves are one message."""
        if sender.call is not None and receiver.call is not None:
            self._builder.meet(sender.call, receiver.call)

    def wait(self, posted: Posted) -> None:
        """Record that a rank waits for what it has posted, the first time that it does."""
        if posted.recorded is not None:
            rank = posted.rank
            self._builder.wait(rank.number, posted.recorded, self._seconds(rank))
            posted.recorded = None

    def wait_if_followed(self, posted: Posted, act: Callable[[], object]) -> bool:
        """Do what follows on a call; record that the rank has waited for that only if it posts more by it.

        Return whether it is recorded. What nothing follows on is waited for later.
        """
        number, rank = posted.recorded, posted.rank
        if number is None:
            act()
            return True
        before = self._recorded[rank.number]
        self.wait(posted)
        entries = self._builder.entries(rank.number)
        act()
        if self._builder.entries(rank.number) > entries:
            return True
        self._builder.take_back(rank.number)
        self._recorded[rank.number], posted.recorded = before, number
        return False

    def step(self, rank: Rank, number: int) -> None:
        """Record that an optimizer of a rank has ended its step of a number from 0 on, and the next begins."""
        if number:
            self._builder.end(rank.number, STEP, number, self._seconds(rank))
        self._builder.begin(rank.number, STEP, number + 1, self._seconds(rank))

    def recording(self, ranks: list[Rank]) -> Recording:
        """Return what was recorded, ranks computing after their last calls too."""
        for rank in ranks:
            self._builder.compute(rank.number, self._seconds(rank))
        return self._builder.recording()

    def _post(self, posted: Posted, number: int) -> None:
        posted.recorded = posted.call = number
        rank = posted.rank
        self._builder.post(rank.number, number, self._seconds(rank))

    def _seconds(self, rank: Rank) -> float:
        """Return the seconds that a rank has computed since its last entry."""
        before, self._recorded[rank.number] = self._recorded[rank.number], rank.computed
        return rank.computed - before


@lru_cache(maxsize=4096)
def _line(site: CallSite) -> SourceLine:
    return SourceLine(make_printable(site.file), site.line, make_printable(site.text))
