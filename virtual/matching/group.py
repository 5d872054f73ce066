"""The shared state of a process group: its collectives and messages, and each rank's queue of calls under NCCL."""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from virtual.matching.exchanges import fits, move, put
from virtual.matching.posted import Collective, Posted
from virtual.matching.recorder import JobRecorder
from virtual.matching.samples import has_data
from virtual.ranks.neutral import Neutral
from virtual.ranks.rank import RankJob
from virtual.ranks.sites import CallSite
from virtual.ranks.timing import Act
from virtual.ranks.world import VirtualWorld


@dataclass(eq=False)
class Batch:
    """A rank's operations that NCCL starts together: a collective, or the messages of one ``batch_isend_irecv``."""

    mark: object  # identifies the messages of one ``batch_isend_irecv``
    first: Posted
    waiting: list[tuple[Posted, Act]] = field(default_factory=list)
    left: int = 0  # number of unfinished operations


class VirtualGroup:
    """The members of a process group and their posted operations.

    ``ranks`` are the global ranks of the members. A group rank is an index into ``ranks``. If ``is_ordered`` is True,
    each member's calls run one after the other, as on the stream of an NCCL communicator.
    """

    def __init__(
        self, world: VirtualWorld, recorder: JobRecorder, job: RankJob, name: str, ranks: tuple[int, ...]
    ) -> None:
        self.world, self.timing, self.recorder, self.job = world, world.calendar, recorder, job
        self.name, self.ranks = name, ranks
        self.places = {rank: place for place, rank in enumerate(ranks)}
        self.present = _find_present(ranks, job.only or ranks)
        self.expected = len(set(self.present))
        self.is_ordered = False
        self.gpus: dict[tuple[int, str], int] = {}  # the rank that uses each GPU: a machine, and the number on it
        self.counts = [0] * len(ranks)  # collectives that each rank has called
        self.callers: list[list[tuple[CallSite, ...]]] = [[] for _ in ranks]
        self._callers: dict[tuple[CallSite, ...], tuple[CallSite, ...]] = {}  # deduplicated
        self.collectives: dict[int, Collective] = {}  # incomplete, by number
        self.sends: defaultdict[tuple[int, int, int], deque[Posted]] = defaultdict(deque)  # by src, dst and tag
        self.receives: defaultdict[tuple[int | None, int, int], deque[Posted]] = defaultdict(deque)
        self.met: defaultdict[tuple[int, int], int] = defaultdict(int)  # matched messages, by src and dst
        self._lines: defaultdict[tuple[int, int | None], deque[Batch]] = defaultdict(deque)

    # -- collectives

    def call(self, call: Posted) -> None:
        place = self.places[call.rank.number]
        call.number = self.counts[place]
        self.counts[place] += 1
        self.callers[place].append(self._callers.setdefault(call.callers, call.callers))
        self.recorder.collective(call)
        self.world.watch.posted(call)
        self._post(call, None, lambda: self._join(place, call))

    def _join(self, place: int, call: Posted) -> None:
        call.time = self.timing.now
        collective = self.collectives.get(call.number)
        if collective is None:
            collective = Collective(self, call.number, self.timing.new_key())
            self.collectives[call.number] = collective
        collective.calls[place], call.error = call, collective.error
        if call.likeness != next(iter(collective.calls.values())).likeness:
            collective.is_mismatched = True
        elif collective.is_complete and not collective.is_mismatched:
            parts = [member.exchange for member in collective.in_order()]
            collective.is_mismatched = not fits(parts)
        if collective.is_mismatched:
            if collective.is_complete:  # otherwise the mismatch is reported when no rank can continue
                self.world.stop(self.job, self.world.diagnoser.mismatched_calls(collective))
            return
        if collective.is_complete:
            with Neutral():
                self.world.watch.complete(collective)
                self._move(collective, call)
                self.world.watch.moved(collective)
        else:
            self._move(collective, call)
        self.timing.begin(collective, call)
        if collective.is_complete:
            del self.collectives[call.number]

    def _move(self, collective: Collective, call: Posted) -> None:
        if not has_data(call.tensors) or collective.error is not None:
            return
        try:
            with Neutral():
                self._move_data(collective, call)
        except Exception as error:  # torch rejects the data of a rank
            collective.fail(error)

    def _move_data(self, collective: Collective, call: Posted) -> None:
        exchange, calls = call.exchange, collective.calls
        if exchange.from_root:
            root = calls.get(self.present[exchange.root])
            arrived = list(calls.values()) if call is root else [call] if root is not None else []
            for other in arrived:
                if root is not None and (other is not root or exchange.collective == "scatter"):
                    other.exchange.take(root.exchange)
            if call is root and not collective.is_complete:
                exchange.keep()
        elif collective.is_complete:
            move([member.exchange for member in collective.in_order()])
        elif exchange.to_root:
            exchange.keep()

    # -- messages

    def message(self, half: Posted) -> None:
        self.recorder.message(half)
        self.world.watch.posted(half)
        is_alone = half.peer is not None and self.present[half.peer] != half.peer
        self._post(half, half.peer, half.finish if is_alone else lambda: self._meet(half))

    def _meet(self, half: Posted) -> None:
        half.time = self.timing.now
        me, sends = self.places[half.rank.number], half.way == "sends"
        other = self._find_receive(half, me) if sends else self._find_send(half, me)
        if other is None:
            key: Any = (me, half.peer, half.tag) if sends else (half.peer, me, half.tag)
            (self.sends if sends else self.receives)[key].append(half)
            return
        sender, receiver = (half, other) if sends else (other, half)
        src, dst = self.places[sender.rank.number], self.places[receiver.rank.number]
        self.met[src, dst] += 1
        sent, received = sender.tensors[0], receiver.tensors[0]
        if sent.numel() != received.numel() or sent.dtype != received.dtype:
            self.world.stop(self.job, self.world.diagnoser.mismatched_message(sender, receiver))
            return
        self.recorder.meet(sender, receiver)
        self.world.watch.met(sender, receiver)
        receiver.source = src
        self.timing.send(sender, receiver, lambda: self._arrive(sender, receiver))

    def _find_receive(self, half: Posted, me: int) -> Posted | None:
        for source in (me, None):
            queue = self.receives.get((source, half.peer or 0, half.tag))
            if queue:
                return queue.popleft()
        return None

    def _find_send(self, half: Posted, me: int) -> Posted | None:
        if half.peer is not None:
            queue = self.sends.get((half.peer, me, half.tag))
            return queue.popleft() if queue else None
        queues = [queue for (_, dst, tag), queue in self.sends.items() if queue and (dst, tag) == (me, half.tag)]
        return min(queues, key=lambda queue: queue[0].time).popleft() if queues else None

    def _arrive(self, sender: Posted, receiver: Posted) -> None:
        if has_data(receiver.tensors):
            with Neutral():
                put(receiver.tensors[0], sender.tensors[0].detach())
        self.world.watch.arrived(sender, receiver)
        receiver.finish()
        sender.finish()

    # -- the order of calls

    def _post(self, posted: Posted, peer: int | None, act: Act) -> None:
        rank = posted.rank
        if not self.is_ordered:
            self.world.calendar.at(rank.clock, act)
            return
        line = self._lines[rank.number, None if rank.batch is not None else peer]
        if line and rank.batch is not None and line[-1].mark is rank.batch:
            batch = line[-1]
        else:
            batch = Batch(rank.batch, posted)
            line.append(batch)
        batch.left += 1
        posted.when_done = lambda: self._pass_line(line, batch)
        if batch is line[0]:
            self.world.calendar.at(rank.clock, act)
        else:
            posted.behind = line[0].first
            batch.waiting.append((posted, act))

    def _pass_line(self, line: deque[Batch], batch: Batch) -> None:
        batch.left -= 1
        if batch.left or line[0] is not batch:
            return
        line.popleft()
        if line:
            for posted, act in line[0].waiting:
                posted.behind = None
                self.world.calendar.at(self.timing.now, act)


def _find_present(ranks: tuple[int, ...], running: tuple[int, ...]) -> tuple[int, ...]:
    """Return the group rank that runs in place of each group rank.

    This is the rank itself if it runs, else the nearest lower rank that runs, else the first rank that runs.

    >>> _find_present((0, 1, 2, 3), (0, 2))
    (0, 0, 2, 2)
    """
    places = [place for place, rank in enumerate(ranks) if rank in set(running)] or [0]
    return tuple(
        max((candidate for candidate in places if candidate <= place), default=places[0]) for place in range(len(ranks))
    )
