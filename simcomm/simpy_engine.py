"""The reference engine: each channel of a rank and each message is a simpy process to be read from top to bottom.

It knows three verbs. *Post* an operation, *wait* for some, *compute* for a while. A step is post-all, wait-all.
"""

from collections import deque
from collections.abc import Generator, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy

from collectives.catalogue import Algorithm
from collectives.step import Kind, Operation, Step, extent, offset
from collectives.trace import Message, Span
from collectives.transport import Transport
from simcomm.network import Network
from simcomm.topology import Cluster

Array = npt.NDArray[Any]
Process = Generator[simpy.Event, Any, None]

COMBINE: dict[str, Any] = {
    "sum": np.add,
    "mean": np.add,  # divided once at the end
    "min": np.minimum,
    "max": np.maximum,
    "product": np.multiply,
}


class Half:
    """A posted send or receive: the other half will find it, and ``done`` fires when the message is through."""

    def __init__(self, op: Operation, step: int, data: Array | None, done: simpy.Event) -> None:
        self.op, self.step, self.data, self.done = op, step, data, done


class Buffer:
    """What one rank holds: its sizes always, its data when the run carries data. Scratch follows the buffer."""

    def __init__(self, algorithm: Algorithm, world_size: int, n: int, itemsize: int, data: Array | None) -> None:
        self.n, self.itemsize, self.chunks = n, itemsize, algorithm.chunks(world_size)
        total = offset(self.chunks + algorithm.scratch(world_size), n, self.chunks)
        self.data = None if data is None else np.concatenate([data, np.zeros(total - n, data.dtype)])

    def nbytes(self, chunk: int, count: int) -> int:
        return extent(chunk, count, self.n, self.chunks) * self.itemsize

    def read(self, chunk: int, count: int) -> Array | None:
        """A copy of some chunks, or None in a run without data."""
        return None if self.data is None else self.data[self._slice(chunk, count)].copy()

    def write(self, op: Operation, incoming: Array | None, operator: str) -> None:
        if self.data is None or incoming is None:
            return
        target = self.data[self._slice(op.into, op.count)]
        target[:] = COMBINE[operator](target, incoming) if op.kind.combines else incoming

    def _slice(self, chunk: int, count: int) -> slice:
        return slice(offset(chunk, self.n, self.chunks), offset(chunk + count, self.n, self.chunks))


class Simulation:
    """Virtual ranks in virtual time on one cluster; ``messages`` and ``spans`` fill up as it runs."""

    def __init__(self, cluster: Cluster, transport: Transport) -> None:
        self.cluster, self.transport = cluster, transport
        self.env = simpy.Environment()
        self.network = Network(self.env, cluster.graph, transport.goodput, cluster.routing)
        self.messages: list[Message] = []
        self.spans: list[Span] = []
        self._waiting: dict[tuple[int, int, int], deque[Half]] = {}  # by src, dst and channel

    def run(self, ranks: Iterable[Process]) -> float:
        """Run one process per rank to its end; returns the seconds that it took."""
        processes = [self.env.process(rank) for rank in ranks]
        self.env.run(self.env.all_of(processes))
        return float(self.env.now)

    def compute(self, rank: int, name: str, step: int, seconds: float) -> Process:
        """The rank is busy by itself for a while."""
        if seconds > 0:
            begin = self.env.now
            yield self.env.timeout(seconds)
            self.spans.append(Span(rank, name, step, begin, self.env.now))

    def collective(self, rank: int, programs: Iterable[Iterable[Step]], buffer: Buffer, operator: str) -> Process:
        """One rank's part in a collective: its channels run at the same time, and it waits for all of them."""
        channels = [
            self.env.process(self._channel(rank, channel, program, buffer, operator))
            for channel, program in enumerate(programs)
        ]
        yield self.env.all_of(channels)

    def _channel(self, rank: int, channel: int, program: Iterable[Step], buffer: Buffer, operator: str) -> Process:
        """One program of a rank. It reduces one chunk after the other; other channels may do so meanwhile."""
        for number, step in enumerate(program):
            halves = [self._post(rank, channel, number, op, buffer) for op in step if self._travels(op, buffer)]
            local = [(op, buffer.read(op.chunk, op.count)) for op in step if op.kind.is_local]
            yield self.env.all_of([half.done for half in halves])
            landed = [(half.op, half.data) for half in halves if half.op.kind.receives]
            yield from self._land(rank, number, [*landed, *local], buffer, operator)

    @staticmethod
    def _travels(op: Operation, buffer: Buffer) -> bool:
        """Empty messages are neither sent nor costed."""
        return not op.kind.is_local and buffer.nbytes(op.chunk, op.count) > 0

    def _land(
        self, rank: int, step: int, writes: list[tuple[Operation, Array | None]], buffer: Buffer, operator: str
    ) -> Process:
        for op, incoming in writes:
            if op.kind is not Kind.RECV:
                yield from self.compute(rank, "reduce", step, self.transport.gamma * buffer.nbytes(op.into, op.count))
            buffer.write(op, incoming, operator)

    def _post(self, rank: int, channel: int, step: int, op: Operation, buffer: Buffer) -> Half:
        """Put one half of a message where the other finds it; the message starts when both are there."""
        data = buffer.read(op.chunk, op.count) if op.kind is Kind.SEND else None
        half = Half(op, step, data, self.env.event())
        pair = (rank, op.peer) if op.kind is Kind.SEND else (op.peer, rank)
        queue = self._waiting.setdefault((*pair, channel), deque())
        if queue and queue[0].op.kind.receives != op.kind.receives:
            other = queue.popleft()
            sender, receiver = (half, other) if op.kind is Kind.SEND else (other, half)
            self.env.process(self._message(*pair, channel, sender, receiver, buffer.nbytes(op.chunk, op.count)))
        else:
            queue.append(half)
        return half

    def _message(self, src: int, dst: int, channel: int, sender: Half, receiver: Half, nbytes: int) -> Process:
        hosts, begin = self.cluster.hosts, self.env.now
        yield self.env.timeout(self.transport.overhead)
        yield from self.network.transfer(hosts[src], hosts[dst], nbytes)
        receiver.data = sender.data
        route = self.network.route(hosts[src], hosts[dst])
        self.messages.append(
            Message(src, dst, sender.step, sender.op.chunk, nbytes, begin, self.env.now, route, channel)
        )
        sender.done.succeed()
        receiver.done.succeed()
