"""Bytes on TCP connections in virtual time: streams of items, segments of them, and links that serve in order.

A connection of two ranks is two *streams*, one each way. An *item* on a stream is a message, or the notice that a rank
is ready to receive one. It leaves in *segments* of a few packets, as many as the window lets be under way. A link
serves segments in the order in which they come; an acknowledgement goes back for each, in line on the links there.

Events of one instant happen in an order that their names say, never in the order in which something was called:
``Alarm``.
"""

from collections import deque
from collections.abc import Callable, Generator
from math import ceil, inf

import simpy
from simpy.events import EventPriority

from collectives.transport import TcpTerms
from simcomm.model.tcp_order import (
    SEGMENT_PACKETS,
    arrival_order,
    passing_order,
    segment_order,
    serve_core,
)


class Alarm(simpy.Event):
    """An event after ``delay`` seconds; of alarms at one instant the one with the lower ``order`` is first.

    Whatever else is due at that instant, as ranks that go on, comes before any alarm.
    """

    def __init__(self, env: simpy.Environment, delay: float, order: int) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, EventPriority(order), delay)


class ShapedLink:
    """A link that serves in the order of arrival, at ``rate`` bytes/s, and ``burst`` bytes at once after idle.

    A token bucket: ``free_at`` is when a server without one would be through with what has come. It lies up to
    ``burst / rate`` seconds in the past, which is the bucket.
    """

    __slots__ = ("burst", "free_at", "latency", "rate")

    def __init__(self, rate: float, latency: float, burst: float) -> None:
        self.rate, self.latency = rate, latency
        self.burst = burst / rate  # seconds
        self.free_at = -inf

    def serve(self, head: float, tail: float, nbytes: float) -> tuple[float, float]:
        """Return when the first and the last byte are at the link's other end, which came here at head and tail.

        >>> link = ShapedLink(rate=100.0, latency=1.0, burst=50.0)
        >>> link.serve(0.0, 0.0, 100.0), link.serve(0.0, 0.0, 100.0)
        ((1.0, 1.5), (1.5, 2.5))
        """
        service = nbytes / self.rate
        begin = max(self.free_at, head - self.burst)
        self.free_at = begin + service
        return max(begin, head) + self.latency, max(self.free_at, tail) + self.latency


class Item:
    """Bytes on a stream; ``written`` and ``arrived`` are called when they are in the send buffer, and there."""

    __slots__ = ("arrived", "end", "left", "nbytes", "written")

    def __init__(self, nbytes: float, arrived: Callable[[], None], written: Callable[[], None] | None = None) -> None:
        self.nbytes, self.arrived, self.written = nbytes, arrived, written
        self.left = nbytes  # not yet sent
        self.end = 0.0  # bytes of the stream up to its last


class Stream:
    """One direction of a connection: items in line, sent as its window allows.

    ``way`` and ``back`` are the links from the sender to the receiver and those that acknowledgements take, ``cores``
    say when each that all ranks share is free.
    """

    def __init__(
        self,
        env: simpy.Environment,
        number: int,
        terms: TcpTerms,
        way: list[ShapedLink],
        back: list[ShapedLink],
        cores: list[float],
    ) -> None:
        self.env, self.number, self.terms, self.way, self.back, self.cores = env, number, terms, way, back, cores
        self._put, self._sent, self._passed, self._acknowledged = 0.0, 0.0, 0.0, 0.0  # bytes
        self._to_send: deque[Item] = deque()
        self._to_write: deque[Item] = deque()
        self._segments = 0
        self._entered_at, self._known_at = 0.0, 0.0  # seconds: when the last item came, and when its receiver knew

    def put(self, item: Item, delay: float, order: int) -> None:
        """Put an item in line after ``delay`` seconds, but not before what was put earlier."""
        delay = max(delay, self._entered_at - self.env.now)
        self._entered_at = self.env.now + delay
        self.env.process(self._enter(item, delay, order))

    def _enter(self, item: Item, delay: float, order: int) -> Generator[simpy.Event, None, None]:
        yield Alarm(self.env, delay, order)
        self._put += item.nbytes
        item.end = self._put
        self._to_send.append(item)
        self._to_write.append(item)
        self._write()
        self._send()

    def _write(self) -> None:
        """Tell of items whose last byte has come into the send buffer."""
        while self._to_write and self._to_write[0].end - self._acknowledged <= self.terms.send_buffer:
            item = self._to_write.popleft()
            if item.written is not None:
                item.written()

    def _send(self) -> None:
        """Send segments while the window has room; one may always be under way."""
        largest = SEGMENT_PACKETS * self.terms.payload
        while self._to_send:
            item = self._to_send[0]
            nbytes = min(item.left, largest)
            under_way = self._sent - self._acknowledged
            if under_way > 0 and under_way + nbytes > self.terms.window:
                return
            leaving = self._sent - self._passed
            if self.way and leaving > 0 and leaving + nbytes > self.terms.piece:
                return
            self._sent += nbytes
            item.left -= nbytes
            if item.left <= 0:
                self._to_send.popleft()
            self._segments += 1
            self.env.process(self._carry(nbytes, item, item.left <= 0, self._segments))

    def _carry(self, nbytes: float, item: Item, is_last: bool, number: int) -> Generator[simpy.Event, None, None]:
        """Carry a segment over its links, and its acknowledgement back. A simpy process."""
        terms, order = self.terms, segment_order(self.number, number)
        packets = ceil(nbytes / terms.payload)
        on_wire = nbytes + packets * terms.header
        yield from self._cross(self.way, on_wire, order, lambda tail: self._leave(nbytes, tail, number))
        if is_last:
            self._arrive(item, number)
        acknowledgements = packets / terms.packets_acknowledged * terms.acknowledgement
        yield from self._cross(self.back, acknowledgements, order)
        self._acknowledged += nbytes
        self._write()
        self._send()

    def _leave(self, nbytes: float, tail: float, number: int) -> None:
        """Let the last byte of a segment leave the first link at ``tail``: others of the connection may follow."""
        if self.terms.piece == inf:
            return

        def passed(_: object) -> None:
            self._passed += nbytes
            self._send()

        left = Alarm(self.env, max(tail - self.env.now, 0.0), passing_order(self.number, number))
        left.callbacks.append(passed)

    def _arrive(self, item: Item, number: int) -> None:
        """Let the receiver know of an item when a core has had time for it, in the order in which items came."""
        if self.terms.arrival_cpu == 0:
            item.arrived()
            return
        self._known_at = max(self._known_at, serve_core(self.cores, self.env.now, self.terms.arrival_cpu))
        known = Alarm(self.env, self._known_at - self.env.now, arrival_order(self.number, number))
        known.callbacks.append(lambda _: item.arrived())

    def _cross(
        self, links: list[ShapedLink], nbytes: float, order: int, leave: Callable[[float], None] | None = None
    ) -> Generator[simpy.Event, None, None]:
        """Cross links one after the other, each joined when the first byte comes, and the last left with the last.

        ``leave`` is told when the last byte is on its way on the first of them.
        """
        head = tail = self.env.now
        for place, link in enumerate(links):
            if head > self.env.now:
                yield Alarm(self.env, head - self.env.now, order)
            head, tail = link.serve(head, tail, nbytes)
            if place == 0 and leave is not None:
                leave(tail - link.latency)
        yield Alarm(self.env, max(tail - self.env.now, 0.0), order)
