"""The reference engine: each channel of a rank and each message is a simpy process to be read from top to bottom.

It knows three verbs. *Post* an operation, *wait* for some, *compute* for a while. A step is post-all, wait-all.
"""

from collections import defaultdict, deque
from collections.abc import Generator, Iterable
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import simpy

from collectives.declaration import Algorithm
from collectives.records.trace import Message, Span, Unfinished
from collectives.step import SEND, Kind, Operation, Step, offset
from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.model.sharing import SHARING_RULES
from simcomm.model.trouble import NONE, Trouble
from simcomm.reference.network import Network

Array = npt.NDArray[Any]
Process = Generator[simpy.Event, Any, None]

COMBINE: dict[str, Any] = {
    "sum": np.add,
    "mean": np.add,  # divided once at the end
    "min": np.minimum,
    "max": np.maximum,
    "product": np.multiply,
}


class Place(NamedTuple):
    """Where a rank is: in which collective of the run, on which channel, in which step."""

    turn: int
    rank: int
    channel: int
    step: int


class Half:
    """A posted send or receive: the other half will find it, and ``done`` fires when the message is through."""

    __slots__ = ("data", "done", "op", "place", "posted")

    def __init__(self, op: Operation, place: Place, data: Array | None, done: simpy.Event) -> None:
        self.op, self.place, self.data, self.done = op, place, data, done
        self.posted = done.env.now

    def unfinished(self, is_under_way: bool) -> Unfinished:
        """What it has waited for since it was posted."""
        at, sends = self.place, self.op.kind is SEND
        return Unfinished(at.rank, self.op.peer, sends, at.step, at.channel, self.posted, is_under_way)


class Buffer:
    """What one rank holds: its sizes always, its data when the run carries data. Scratch follows the buffer."""

    def __init__(self, algorithm: Algorithm, world_size: int, n: int, itemsize: int, data: Array | None) -> None:
        self.n, self.itemsize, self.chunks = n, itemsize, algorithm.chunks(world_size)
        self._first = _offsets(self.chunks + algorithm.scratch(world_size), n, self.chunks)
        self.data = None if data is None else np.concatenate([data, np.zeros(self._first[-1] - n, data.dtype)])

    def nbytes(self, chunk: int, count: int) -> int:
        return (self._first[chunk + count] - self._first[chunk]) * self.itemsize

    def read(self, chunk: int, count: int) -> Array | None:
        """A copy of some chunks, or None in a run without data."""
        return None if self.data is None else self.data[self._slice(chunk, count)].copy()

    def write(self, op: Operation, incoming: Array | None, operator: str) -> None:
        if self.data is None or incoming is None:
            return
        target = self.data[self._slice(op.into, op.count)]
        target[:] = COMBINE[operator](target, incoming) if op.kind.combines else incoming

    def _slice(self, chunk: int, count: int) -> slice:
        return slice(self._first[chunk], self._first[chunk + count])


@lru_cache(maxsize=4)
def _offsets(total: int, n: int, chunks: int) -> tuple[int, ...]:
    """The first element of each of so many chunks, scratch included, and where the last one ends; ranks share them."""
    return tuple(offset(index, n, chunks) for index in range(total + 1))


class Simulation:
    """Virtual ranks in virtual time on one cluster; ``messages`` and ``spans`` fill up as it runs."""

    def __init__(self, cluster: Cluster, transport: Transport, trouble: Trouble = NONE) -> None:
        self.cluster, self.transport, self.trouble = cluster, transport, trouble
        self.env = simpy.Environment()
        self.network = Network(
            self.env, cluster.graph, transport.goodput, cluster.routing, SHARING_RULES[cluster.sharing]
        )
        self.messages: list[Message] = []
        self.spans: list[Span] = []
        self.failed: dict[int, float] = {}  # ranks that have stopped, and when
        self._waiting: defaultdict[tuple[int, int, int], deque[Half]] = defaultdict(deque)  # by src, dst and channel
        self._under_way: dict[Half, Half] = {}  # receivers by sender

    def run(self, ranks: Iterable[Process]) -> float:
        """Run one process per rank to its end, or until nothing more can happen; returns the seconds that it took."""
        done = self.env.all_of([self.env.process(rank) for rank in ranks])
        if self.trouble.links:
            self.env.process(self.network.change(self.trouble.changes()))
        while not done.processed and self.env.peek() < inf:
            self.env.step()
        if done.processed:
            return float(self.env.now)
        return max([span.end for span in self.spans] + [message.end for message in self.messages], default=0.0)

    def unfinished(self) -> list[Unfinished]:
        """What the ranks wait for that never came to their end."""
        posted = [half.unfinished(False) for queue in self._waiting.values() for half in queue]
        flying = [half.unfinished(True) for pair in self._under_way.items() for half in pair]
        return sorted(posted + flying, key=lambda one: (one.since, one))

    def compute(self, name: str, place: Place, seconds: float) -> Process:
        """The rank is busy by itself for a while, longer where it is slow."""
        if self.trouble.ranks:
            yield from self._alive(place.rank)
        if seconds > 0:
            begin, longer = self.env.now, 1.0
            if self.trouble.ranks or self.trouble.compute:
                longer = float(self.trouble.slowdown(place.turn, place.rank, place.channel, place.step))
            yield self.env.timeout(seconds * longer)
            self.spans.append(Span(place.rank, name, place.step, begin, self.env.now))

    def _alive(self, rank: int) -> Process:
        """Goes on at once, or never where the rank has failed."""
        if self.env.now >= self.trouble.fails_at(rank):
            self.failed.setdefault(rank, self.trouble.fails_at(rank))
            yield self.env.event()

    def collective(
        self, rank: int, programs: Iterable[Iterable[Step]], buffer: Buffer, operator: str, turn: int = 0
    ) -> Process:
        """One rank's part in a collective: its channels run at the same time, and it waits for all of them."""
        channels = [
            self.env.process(self._channel(turn, rank, channel, program, buffer, operator))
            for channel, program in enumerate(programs)
        ]
        yield self.env.all_of(channels)

    def _channel(
        self, turn: int, rank: int, channel: int, program: Iterable[Step], buffer: Buffer, operator: str
    ) -> Process:
        """One program of a rank. It reduces one chunk after the other; other channels may do so meanwhile."""
        for number, step in enumerate(program):
            if not step:
                continue
            if self.trouble.ranks:
                yield from self._alive(rank)
            place = Place(turn, rank, channel, number)
            halves = [self._post(place, op, buffer, nbytes) for op in step if (nbytes := self._travelling(op, buffer))]
            local = [(op, buffer.read(op.chunk, op.count)) for op in step if op.kind.is_local]
            yield self.env.all_of([half.done for half in halves])
            landed = [(half.op, half.data) for half in halves if half.op.kind.receives]
            yield from self._land(place, [*landed, *local], buffer, operator)

    @staticmethod
    def _travelling(op: Operation, buffer: Buffer) -> int:
        """Bytes on their way to another rank or from it; empty messages are neither sent nor costed."""
        return 0 if op.kind.is_local else buffer.nbytes(op.chunk, op.count)

    def _land(
        self, place: Place, writes: list[tuple[Operation, Array | None]], buffer: Buffer, operator: str
    ) -> Process:
        for op, incoming in writes:
            if op.kind is not Kind.RECV:
                yield from self.compute("reduce", place, self.transport.gamma * buffer.nbytes(op.into, op.count))
            buffer.write(op, incoming, operator)

    def _post(self, place: Place, op: Operation, buffer: Buffer, nbytes: int) -> Half:
        """Put one half of a message where the other finds it; the message starts when both are there."""
        sends = op.kind is SEND
        half = Half(op, place, buffer.read(op.chunk, op.count) if sends else None, self.env.event())
        queue = self._waiting[(place.rank, op.peer, place.channel) if sends else (op.peer, place.rank, place.channel)]
        if queue and (queue[0].op.kind is SEND) != sends:
            other = queue.popleft()
            sender, receiver = (half, other) if sends else (other, half)
            self.env.process(self._message(sender, receiver, nbytes))
        else:
            queue.append(half)
        return half

    def _message(self, sender: Half, receiver: Half, nbytes: int) -> Process:
        src, dst = sender.place.rank, receiver.place.rank
        hosts, begin = self.cluster.hosts, self.env.now
        name = (sender.place.turn, src, dst, sender.place.channel, sender.place.step, sender.op.chunk)
        self._under_way[sender] = receiver
        late = float(self.trouble.delay(*name)) if self.trouble.messages else 0.0
        yield self.env.timeout(self.transport.overhead + late)
        route = yield from self.network.transfer(hosts[src], hosts[dst], nbytes, name)
        del self._under_way[sender]
        receiver.data = sender.data
        said = sender.place.step, sender.op.chunk, nbytes, begin, self.env.now, route, sender.place.channel
        self.messages.append(Message(src, dst, *said, begin - sender.posted, begin - receiver.posted))
        sender.done.succeed()
        receiver.done.succeed()
