"""Simulate a cluster to which virtual ranks add messages and collectives during the simulation.

Any number of collectives, in any groups of ranks, can run at once. A rank's part of a collective begins when that rank
reaches it.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

import simpy

from collectives.call import reduced_slice
from collectives.declaration import Algorithm
from collectives.records.spans import Span
from collectives.step import Operation, on_group, recv, send
from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.model.faults import DIVISION, NO_FAULTS, Faults
from simcomm.reference.engine import Buffer, Location, Process, Simulation
from simcomm.schedules import verified_schedule

Act = Callable[[], object]


class Part(NamedTuple):
    """One rank's part of a collective in a group."""

    number: int  # of the collective within the run
    ranks: tuple[int, ...]  # of the group, as ranks of the world
    me: int  # the rank's index in ``ranks``
    algorithm: Algorithm
    root: int  # index in ``ranks``
    elements: int
    itemsize: int
    op: str


class PointToPoint(NamedTuple):
    """A point-to-point message whose send and receive are both posted."""

    src: int
    dst: int
    nbytes: int
    number: int  # unique among the messages and collectives of the run
    src_posted: float
    dst_posted: float


class LiveSimulation(Simulation):
    """A simulation of a cluster, to which messages and collectives can be added while it runs.

    It stores no data, because times never depend on data.

    >>> import simcomm
    >>> from collectives import find_algorithm
    >>> live, ends = LiveSimulation(simcomm.star(4, "10 Gbit/s", "5 us"), Transport()), []
    >>> for me in range(4):
    ...     part = Part(0, (0, 1, 2, 3), me, find_algorithm("all_reduce/ring"), 0, 1 << 18, 4, "sum")
    ...     live.begin(part, lambda: ends.append(live.now))
    >>> while live.step():
    ...     pass
    >>> round(max(ends) * 1e3, 6)  # in ms, as ``simcomm.run`` says
    1.318291
    """

    def __init__(self, cluster: Cluster, transport: Transport, faults: Faults = NO_FAULTS) -> None:
        super().__init__(cluster, transport, faults)
        if faults.links:
            self.env.process(self.network.change(faults.changes()))

    @property
    def now(self) -> float:
        """The simulated time in seconds since the start of the run."""
        return float(self.env.now)

    def at(self, time: float, act: Act) -> None:
        """Call ``act`` at ``time`` in seconds, or immediately if that time has passed."""
        event = simpy.Event(self.env)
        event._ok, event._value = True, None
        callbacks: list[Any] = [lambda _: act()]
        event.callbacks = callbacks
        self.env.schedule(event, delay=max(0.0, time - self.env.now))

    def step(self) -> bool:
        """Process the next event. Return False if there is none."""
        if self.env.peek() == inf:
            return False
        self.env.step()
        return True

    def send(self, message: PointToPoint, done: Act) -> None:
        """Start a message. ``done`` is called when it has arrived."""
        self.env.process(self._send(message, done))

    def begin(self, part: Part, done: Act) -> None:
        """Start a rank's part of a collective. ``done`` is called when the part has ended."""
        self.env.process(self._part(part, done))

    def span(self, rank: int, name: str, begin: float, end: float) -> None:
        """Record a span of a rank, unless its duration is zero."""
        if end > begin:
            self.spans.append(Span(rank, name, 0, begin, end))

    def _send(self, message: PointToPoint, done: Act) -> Process:
        src, dst, nbytes, number, *posted = message
        sender = self.post(Location(number, src, 0, 0), send(dst, 0), nbytes)
        receiver = self.post(Location(number, dst, 0, 0), recv(src, 0), nbytes)
        sender.posted, receiver.posted = posted
        yield receiver.done
        done()

    def _part(self, part: Part, done: Act) -> Process:
        rank, world_size = part.ranks[part.me], len(part.ranks)
        buffer = Buffer(part.algorithm, world_size, part.elements, part.itemsize, None)
        programs = _renamed(part.algorithm, part.ranks, part.root)[part.me]
        yield from self.collective(rank, programs, buffer, part.op, part.number)
        if part.op == "mean":
            reduced = reduced_slice(part.algorithm.spec, part.me, world_size, part.root, part.elements)
            seconds = self.transport.gamma * (reduced.stop - reduced.start) * part.itemsize
            steps = max(map(len, programs), default=0)
            yield from self.compute("reduce", Location(part.number, rank, DIVISION, steps), seconds)
        done()


@lru_cache(maxsize=256)
def _renamed(algorithm: Algorithm, ranks: Sequence[int], root: int) -> list[list[list[tuple[Operation, ...]]]]:
    """Return the group's programs, as [ranks of the group][channels], with peers given by their global ranks."""
    schedule = verified_schedule(algorithm, len(ranks), root)
    programs = schedule.programs
    return [[list(on_group(iter(program), ranks)) for program in channels] for channels in programs]  # type: ignore[arg-type]
