"""Times on a network that is described: every message is simulated."""

from collections.abc import Sequence
from functools import cached_property

from collectives.records.trace import Trace
from collectives.request import Array, Request
from collectives.training.workload import ComputePhases, Training
from collectives.transport import Transport
from simcomm.cluster.calibrated import resolve_transport
from simcomm.cluster.cluster import Cluster
from simcomm.time_models.estimator import Estimator
from simcomm.time_models.message_simulator import MessageSimulator
from simcomm.time_models.options import SimulationOptions
from simcomm.time_models.tcp_simulator import TcpSimulator
from simcomm.time_models.time_model import TimeModel


class NetworkModel(TimeModel):
    """Messages over links that they share, with the terms of TCP where the transport has them."""

    @cached_property
    def simulator(self) -> MessageSimulator:
        """What simulates the messages. Raises InputError where a calibration is needed and there is none."""
        return simulator_of(*resolve_transport(self.cluster, self.calibration))

    def estimator(self, request: Request) -> Estimator:
        return Estimator.of(self.simulator, request)

    def collective(self, request: Request, options: SimulationOptions, buffers: Sequence[Array] | None = None) -> Trace:
        return self.simulator.collective(request, options, buffers)

    def steps_in_turn(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions
    ) -> Trace:
        return self.simulator.training(training, compute, steps, options, self.shared_cores(training))

    def shared_cores(self, training: Training) -> int | None:
        """Return how many cores the ranks take turns on; None where each computes on its own."""
        return None


def simulator_of(cluster: Cluster, transport: Transport) -> MessageSimulator:
    """Return what simulates messages over a transport: whole, or as TCP carries them where it has the terms of that."""
    return (MessageSimulator if transport.tcp is None else TcpSimulator)(cluster, transport)
