"""The messages of a Trace as arrays, and their routes as numbers of the Trace's links."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from collectives.records.trace import Message, Trace

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
    numbers = {(link.src, link.dst): number for number, link in enumerate(trace.links)}
    known: dict[tuple[str, ...], int] = {(): 0}
    routes: list[list[int]] = [[]]
    route = np.zeros(len(trace.messages), np.int64)
    for index, message in enumerate(trace.messages):
        if message.route not in known:
            edges = list(pairwise(message.route))
            known[message.route] = len(routes)
            routes.append([numbers[edge] for edge in edges] if all(edge in numbers for edge in edges) else [])
        route[index] = known[message.route]

    def whole(name: str) -> Ints:
        return np.fromiter((getattr(message, name) for message in trace.messages), np.int64, len(trace.messages))

    def seconds(name: str) -> Floats:
        return np.fromiter((getattr(message, name) for message in trace.messages), np.float64, len(trace.messages))

    src, dst, step, chunk, channel, nbytes = map(whole, ("src", "dst", "step", "chunk", "channel", "nbytes"))
    return MessageArrays(src, dst, step, chunk, channel, nbytes, seconds("begin"), seconds("end"), route, routes)


__all__ = ["Message", "MessageArrays", "message_arrays"]
