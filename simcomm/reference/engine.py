"""Simulate with simpy: each channel of a rank is a process, and so is each message.

A rank *posts* operations, *waits* for them, and *computes*. In a step of its program, it posts all operations and then
waits for all of them. A message starts when its send and its receive are both posted. Sends and receives match within
one collective, so any number of collectives, in any groups of ranks, can run concurrently.
"""

from collections import defaultdict, deque
from collections.abc import Generator, Iterable
from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import simpy

from collectives.declaration import Algorithm
from collectives.records.messages import Message, Messages
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace, Unfinished
from collectives.schedule.schedule import ProgramCall
from collectives.step import SEND, Kind, Operation, Step, offset
from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.model.faults import NO_FAULTS, Faults
from simcomm.model.traced_links import trace_links
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


class Location(NamedTuple):
    """A location in a run: collective, rank, channel and step."""

    collective: int
    rank: int
    channel: int
    step: int


class Half:
    """A posted send or receive. ``done`` is an event that fires when its message has arrived."""

    __slots__ = ("data", "done", "location", "op", "posted")

    def __init__(self, op: Operation, location: Location, data: Array | None, done: simpy.Event) -> None:
        self.op, self.location, self.data, self.done = op, location, data, done
        self.posted = done.env.now

    def unfinished(self, is_under_way: bool) -> Unfinished:
        """Return the trace record of this operation, given whether its message is under way."""
        location, op, sends = self.location, self.op, self.op.kind is SEND
        chunks = op.chunk if sends else op.into, op.count
        where = location.rank, op.peer, sends, location.step, location.channel
        return Unfinished(*where, self.posted, is_under_way, *chunks, location.collective)


class Buffer:
    """The buffer of one rank, divided into chunks. Scratch chunks, for temporary data, follow the buffer.

    It has ``n`` elements of ``itemsize`` bytes each. ``data`` has shape [n], or is None if only times are simulated.
    """

    def __init__(self, algorithm: Algorithm, world_size: int, n: int, itemsize: int, data: Array | None) -> None:
        self.n, self.itemsize, self.chunks = n, itemsize, algorithm.chunks(world_size)
        self._first = _offsets(self.chunks + algorithm.scratch(world_size), n, self.chunks)
        self.data = None if data is None else np.concatenate([data, np.zeros(self._first[-1] - n, data.dtype)])

    def nbytes(self, chunk: int, count: int) -> int:
        """Return the bytes of ``count`` consecutive chunks."""
        return (self._first[chunk + count] - self._first[chunk]) * self.itemsize

    def read(self, chunk: int, count: int) -> Array | None:
        """Return a copy of consecutive chunks, or None in a run without data."""
        return None if self.data is None else self.data[self._slice(chunk, count)].copy()

    def write(self, op: Operation, incoming: Array | None, operator: str) -> None:
        """Write an operation's incoming data, or reduce it into the existing data."""
        if self.data is None or incoming is None:
            return
        target = self.data[self._slice(op.into, op.count)]
        target[:] = COMBINE[operator](target, incoming) if op.kind.combines else incoming

    def _slice(self, chunk: int, count: int) -> slice:
        return slice(self._first[chunk], self._first[chunk + count])


@lru_cache(maxsize=4)
def _offsets(total: int, n: int, chunks: int) -> tuple[int, ...]:
    return tuple(offset(index, n, chunks) for index in range(total + 1))


class Simulation:
    """A simulation of ranks on a cluster, in virtual time. ``messages`` and ``spans`` grow during the run.

    Callbacks on events of ``env`` can extend a running simulation: ``env.process(simulation.collective(...))`` starts
    one rank's part of a collective at the current time, and ``post`` posts a send or a receive.

    >>> import simcomm
    >>> simulation = Simulation(simcomm.star(2, "8 Gbit/s", "1 us"), Transport())
    >>> simulation.run(simulation.compute("forward", Location(0, rank, 0, 0), seconds=2.5) for rank in range(2))
    2.5
    """

    def __init__(self, cluster: Cluster, transport: Transport, faults: Faults = NO_FAULTS) -> None:
        self.cluster, self.transport, self.faults = cluster, transport, faults
        self.env = simpy.Environment()
        self.network = Network(self.env, cluster.graph, transport.goodput, cluster.routing)
        self.messages: list[Message] = []
        self.spans: list[Span] = []
        self.failed: dict[int, float] = {}  # failed ranks, and when they failed
        self._waiting: defaultdict[tuple[int, ...], deque[Half]] = defaultdict(deque)  # by collective, ends, channel
        self._under_way: dict[Half, Half] = {}  # receivers by sender

    def run(self, ranks: Iterable[Process]) -> float:
        """Run one process per rank until all end or no event remains. Return the elapsed seconds."""
        done = self.env.all_of([self.env.process(rank) for rank in ranks])
        if self.faults.links:
            self.env.process(self.network.change(self.faults.changes()))
        while not done.processed and self.env.peek() < inf:
            self.env.step()
        if done.processed:
            return float(self.env.now)
        return max([span.end for span in self.spans] + [message.end for message in self.messages], default=0.0)

    def unfinished(self) -> list[Unfinished]:
        """Return the operations that ranks still wait for, in the order in which they were posted."""
        posted = [half.unfinished(False) for queue in self._waiting.values() for half in queue]
        under_way = [half.unfinished(True) for pair in self._under_way.items() for half in pair]
        return sorted(posted + under_way, key=lambda operation: (operation.since, operation))

    def trace(self, title: str, elapsed: float) -> Trace:
        """Return a trace of everything recorded so far, sorted by time, including unfinished operations."""
        cluster, carried = self.cluster, [self.network.carried[edge] for edge in self.cluster.graph.edges]
        return Trace(
            title=title,
            kind="predicted",
            world_size=cluster.world_size,
            elapsed=elapsed,
            messages=Messages.of(self.messages).sorted(),
            spans=Spans.of(self.spans).sorted(),
            links=trace_links(cluster, self.transport, carried, elapsed, self.faults),
            nodes=list(cluster.graph),
            hosts=list(cluster.hosts),
            engine="simpy",
            method="events",
            failed=self.failed,
            unfinished=self.unfinished(),
        )

    def compute(self, name: str, location: Location, seconds: float) -> Process:
        """Keep a rank busy for ``seconds``, or longer if it is slow. Record a span with this name."""
        if self.faults.ranks:
            yield from self._stop_if_failed(location.rank)
        if seconds > 0:
            begin, slowdown = self.env.now, 1.0
            if self.faults.ranks or self.faults.compute:
                slowdown = float(
                    self.faults.slowdown(location.collective, location.rank, location.channel, location.step)
                )
            yield self.env.timeout(seconds * slowdown)
            where = max(0, location.channel), location.collective
            self.spans.append(Span(location.rank, name, location.step, begin, self.env.now, *where))

    def _stop_if_failed(self, rank: int) -> Process:
        """Suspend the process forever if the rank has failed, and record the failure. Otherwise, return at once."""
        if self.env.now >= self.faults.fails_at(rank):
            self.failed.setdefault(rank, self.faults.fails_at(rank))
            yield self.env.event()

    def collective(
        self, rank: int, programs: Iterable[Iterable[Step]], buffer: Buffer, operator: str, index: int = 0
    ) -> Process:
        """Execute one rank's part of a collective, with all channels in parallel.

        A rank that starts late delays only the ranks that need its messages. All ranks of the collective pass the same
        ``index``, its number within the run. Peers in the programs are ranks of the cluster;
        ``collectives.step.on_group`` converts the programs of a group.
        """
        channels = [
            self.env.process(self._channel(index, rank, channel, program, buffer, operator))
            for channel, program in enumerate(programs)
        ]
        yield self.env.all_of(channels)

    def _channel(
        self, index: int, rank: int, channel: int, program: Iterable[Step], buffer: Buffer, operator: str
    ) -> Process:
        for number, step in enumerate(program):
            if not step:
                continue
            if self.faults.ranks:
                yield from self._stop_if_failed(rank)
            location = Location(index, rank, channel, number)
            halves = []
            for op in step:
                nbytes = 0 if op.kind.is_local else buffer.nbytes(op.chunk, op.count)
                if nbytes:  # empty messages are not sent
                    halves.append(
                        self.post(location, op, nbytes, buffer.read(op.chunk, op.count) if op.kind is SEND else None)
                    )
            local = [(op, buffer.read(op.chunk, op.count)) for op in step if op.kind.is_local]
            yield self.env.all_of([half.done for half in halves])
            received = [(half.op, half.data) for half in halves if half.op.kind.receives]
            yield from self._land(location, [*received, *local], buffer, operator)

    def post(self, location: Location, op: Operation, nbytes: int, data: Array | None = None) -> Half:
        """Post a send or a receive of ``nbytes`` bytes. Start the message if the matching operation is already posted.

        The k-th send from one rank to another matches the k-th receive on that rank with the same
        ``location.collective`` and ``location.channel``. Each point-to-point message of a program has its own
        ``collective`` number. ``done`` of the returned ``Half`` fires when the message has arrived.
        """
        sends = op.kind is SEND
        half = Half(op, location, data, self.env.event())
        ends = (location.rank, op.peer) if sends else (op.peer, location.rank)
        key = (location.collective, *ends, location.channel)
        queue = self._waiting[key]
        if not queue or (queue[0].op.kind is SEND) == sends:
            queue.append(half)
            return half
        other = queue.popleft()
        if not queue:
            del self._waiting[key]  # saves memory
        sender, receiver = (half, other) if sends else (other, half)
        self.env.process(self._message(sender, receiver, nbytes))
        return half

    def _message(self, sender: Half, receiver: Half, nbytes: int) -> Process:
        src, dst, location = sender.location.rank, receiver.location.rank, sender.location
        hosts, begin = self.cluster.hosts, self.env.now
        name = (location.collective, src, dst, location.channel, location.step, sender.op.chunk)
        self._under_way[sender] = receiver
        late = float(self.faults.delay(*name)) if self.faults.messages else 0.0
        yield self.env.timeout(self.transport.overhead + late)
        route = yield from self.network.transfer(hosts[src], hosts[dst], nbytes)
        del self._under_way[sender]
        receiver.data = sender.data
        transfer = location.step, sender.op.chunk, nbytes, begin, self.env.now, route, location.channel
        where = receiver.location.step, receiver.op.count, receiver.op.into, receiver.op.kind.combines
        self.messages.append(Message(src, dst, *transfer, *where, sender.posted, receiver.posted, location.collective))
        sender.done.succeed()
        receiver.done.succeed()

    def _land(
        self, location: Location, writes: list[tuple[Operation, Array | None]], buffer: Buffer, operator: str
    ) -> Process:
        """Write the received chunks of a step, and then perform its local copies and reductions, one by one."""
        for op, incoming in writes:
            if op.kind is not Kind.RECV:
                yield from self.compute("reduce", location, self.transport.gamma * buffer.nbytes(op.into, op.count))
            buffer.write(op, incoming, operator)


def make_trace(simulation: Simulation, call: ProgramCall, elapsed: float, facts: dict[str, float]) -> Trace:
    """Return the trace of a finished or hung simulation of one program."""
    trace = simulation.trace(call.algorithm.full_name, elapsed)
    return replace(trace, facts=facts, root=call.root, chunks=call.chunks).of_program(call.algorithm)
