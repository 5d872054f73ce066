"""Live timing: each rank's part of a collective begins when that rank comes to it, message by message."""

from collections.abc import Callable

from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.program_algorithms import ProgramAlgorithms
from simcomm.reference.live import LiveSimulation, Part, PointToPoint
from virtual.matching.posted import Call, Collective, Half

Act = Callable[[], object]


class LiveTiming:
    """Collectives and messages of ranks on a simulated network, by rank programs of the library or one's own."""

    has_time = True

    def __init__(self, cluster: Cluster, transport: Transport, algorithms: ProgramAlgorithms) -> None:
        self.simulation, self.algorithms = LiveSimulation(cluster, transport), algorithms
        self.at, self.step, self.span = self.simulation.at, self.simulation.step, self.simulation.span
        self._keys = 0

    @property
    def now(self) -> float:
        """Seconds since the start of the run."""
        return self.simulation.now

    def new_key(self) -> int:
        """Return the next number."""
        self._keys += 1
        return self._keys

    def begin(self, collective: Collective, call: Call) -> None:
        """Begin a rank's part by its program; without data all are done when the last rank has come."""
        exchange, ranks = call.exchange, collective.group.ranks
        size, elements = len(ranks), call.buffer_elements
        if size < 2 or not elements:
            collective.finish_if_complete()
            return
        algorithm = self.algorithms.find(exchange.collective, size, elements)
        me = collective.group.places[call.rank.number]
        shape = elements, exchange.dtype.itemsize, exchange.op
        self.simulation.begin(Part(collective.key, ranks, me, algorithm, exchange.root, *shape), call.finish)

    def send(self, sender: Half, receiver: Half, arrived: Act) -> None:
        """Carry a message on the network."""
        ends = sender.rank.number, receiver.rank.number
        message = PointToPoint(*ends, sender.nbytes, self.new_key(), sender.time, receiver.time)
        self.simulation.send(message, arrived)
