"""Simulate the times of collectives and messages while a program runs.

A rank's part of a collective begins when the rank arrives. With NCCL, messages are not simulated. Instead, the modeled
time of the collective begins when the last rank arrives.
"""

import numpy as np

from replay.simulation.carriers import NetworkCarrier, fitted
from replay.simulation.templates import Shape
from simcomm.reference.live import LiveSimulation, Part, PointToPoint
from virtual.matching.posted import Collective, Posted
from virtual.ranks.timing import Act, CallTiming


class LiveTiming(CallTiming):
    """Times collectives and messages with ``carrier``, which is a simulated network or a performance model of NCCL."""

    has_time = True

    def __init__(self, carrier: NetworkCarrier) -> None:
        super().__init__()
        self.carrier = carrier
        self.simulation = LiveSimulation(carrier.resolved, carrier.transport)
        self.at, self.step, self.span = self.simulation.at, self.simulation.step, self.simulation.span  # type: ignore[method-assign]

    @property
    def now(self) -> float:
        return self.simulation.now

    def begin(self, collective: Collective, call: Posted) -> None:
        """Begin a rank's part of a collective. Collectives without elements or in a group of one rank take no time."""
        exchange, ranks = call.exchange, collective.group.ranks
        size, elements = len(ranks), call.elements
        if size < 2 or not elements:
            collective.finish_if_complete()
            return
        requested = Shape(exchange.collective, size, exchange.root, elements, exchange.dtype.itemsize, exchange.op)
        seconds = self.carrier.seconds_inside(requested, ranks)
        if seconds is not None:
            if collective.is_complete:
                self.at(self.now + seconds, collective.finish_if_complete)
            return
        algorithm = self.carrier.algorithm(requested, ranks)
        shape = fitted(requested, algorithm)
        me = collective.group.places[call.rank.number]
        sizes = shape.elements, shape.itemsize, shape.op
        self.simulation.begin(Part(collective.key, ranks, me, algorithm, shape.root, *sizes), call.finish)

    def send(self, sender: Posted, receiver: Posted, arrived: Act) -> None:
        """Simulate a message, and call ``arrived`` at its arrival. With NCCL, the time of the message is modeled."""
        ends = sender.rank.number, receiver.rank.number
        if self.carrier.messages_cross:
            message = PointToPoint(*ends, sender.nbytes, self.new_key(), sender.time, receiver.time)
            self.simulation.send(message, arrived)
            return
        alone, nbytes = np.zeros(1, np.bool_), np.array([float(sender.nbytes)])
        seconds = self.carrier.message_seconds(np.array([ends]), nbytes, alone, np.zeros(1))
        self.at(self.now + float(seconds[0]), arrived)
