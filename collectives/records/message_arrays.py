"""The messages of a Trace as arrays, and their routes as numbers of the Trace's links."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectives.records.messages import Message
from collectives.records.trace import Trace

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MessageArrays:
    """One entry a message, in the order of the Trace; ``route`` is an index into ``routes``, whose first is empty."""

    src: Ints
    dst: Ints
    step: Ints
    chunk: Ints
    channel: Ints
    nbytes: Ints
    begin: Floats
    end: Floats
    route: Ints
    routes: list[list[int]]  # numbers of the Trace's links from src to dst
    dst_step: Ints
    count: Ints
    into: Ints
    reduces: npt.NDArray[np.bool_]
    collective: Ints

    def crossings(self) -> tuple[Ints, Ints]:
        """Return the message and the link of each crossing of a link, message by message.

        >>> trace = Trace("broadcast/naive", "predicted", 2, 1.0, [Message(0, 1, 0, 0, 8, 0.0, 1.0)])
        >>> message_arrays(trace).crossings()[0].size
        0
        """
        hops = np.array([len(route) for route in self.routes])
        flat = np.array([link for route in self.routes for link in route], np.int64)
        message = np.repeat(np.arange(len(self.src)), hops[self.route])
        before = np.cumsum(hops[self.route]) - hops[self.route]
        within = np.arange(len(message)) - np.repeat(before, hops[self.route])
        first = np.cumsum(hops) - hops
        return message, flat[first[self.route][message] + within] if len(flat) else flat


def message_arrays(trace: Trace) -> MessageArrays:
    """Return the messages of a trace as arrays; a route over a link that the trace does not list is empty.

    >>> trace = Trace("broadcast/naive", "predicted", 2, 1.0, [Message(0, 1, 0, 0, 8, 0.0, 1.0)])
    >>> message_arrays(trace).nbytes
    array([8])
    """
    messages = trace.messages
    first, link = messages.routes.links({(link.src, link.dst): number for number, link in enumerate(trace.links)})
    used, route = np.unique(messages.route, return_inverse=True)
    routes: list[list[int]] = [[]]
    for number in used.tolist():
        links = link[first[number] : first[number + 1]].tolist()
        routes.append([] if -1 in links else links)
    columns = (messages.src, messages.dst, messages.step, messages.chunk, messages.channel, messages.nbytes)
    more = (messages.dst_step, messages.count, messages.into, messages.reduces, messages.collective)
    return MessageArrays(*columns, messages.begin, messages.end, route.reshape(-1) + 1, routes, *more)


__all__ = ["Message", "MessageArrays", "message_arrays"]
