"""Times on a network that is described: every message is simulated, whole or as gloo carries it over TCP.

Over TCP messages travel in segments, through windows and buffers, by cores that ranks share.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from collectives.costs.closed_forms import CostModel
from collectives.errors import InputError
from collectives.records.trace import Trace
from collectives.records.waits import Record
from collectives.request import Array, Request
from collectives.training.workload import ComputePhases, Training
from collectives.transport import Transport
from simcomm import compiled
from simcomm.cluster.calibrated import resolve_transport
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.model.trouble import NO_TROUBLE, Trouble, check_tcp_trouble
from simcomm.schedules import verified_schedule
from simcomm.time_models.estimator import Estimator
from simcomm.time_models.message_simulator import MessageSimulator, sync_of
from simcomm.time_models.options import SimulationOptions
from simcomm.time_models.time_model import TimeModel

if TYPE_CHECKING:
    from simcomm.compiled.engine import Timing


class TcpSimulator(MessageSimulator):
    """Collectives and training steps over a transport that has the terms of TCP: by the compiled engine alone."""

    def collective(self, request: Request, options: SimulationOptions, buffers: Sequence[Array] | None = None) -> Trace:
        """Return the trace of a collective, whose messages cost what those of its algorithm do.

        What buffers hold afterwards does not depend on times.
        """
        _check_tcp_engine(options.engine)
        transport = request.algorithm.costs_of(self.transport)
        if buffers is not None:
            without_tcp = MessageSimulator(self.cluster, replace(transport, tcp=None))
            without_tcp.collective(request, replace(options, trouble=NO_TROUBLE), buffers)
        if options.record is Record.BRIEF_WAITS:
            options = replace(options, record=Record.WAITS)  # no steps tell who waits on connections
        return super(TcpSimulator, replace(self, transport=transport)).collective(request, options)

    def check_trouble(self, trouble: Trouble) -> None:
        super().check_trouble(trouble)
        check_tcp_trouble(trouble)

    def engine(self, request: Request, options: SimulationOptions, *, carries_data: bool) -> str:
        """Return the only engine that knows the terms."""
        return "compiled"

    def shortcut(self, inputs: EngineInput, record: Record) -> "Timing | None":
        """Return None: shortcuts know nothing of connections."""
        return None

    def one_by_one(self, inputs: EngineInput, *, messages: bool = False, is_approximate: bool = False) -> "Timing":
        """Return the timing with every segment simulated, never approximately."""
        return compiled.by_segments(inputs, messages=messages)

    def star_costs(self, nbytes: int) -> tuple[CostModel | None, CostModel | None]:
        """Return nothing: there are no closed forms of connections."""
        return None, None

    def sweep_seconds(self, request: Request, trouble: Trouble, shared: "compiled.SharedInputs") -> float:
        return self.seconds(request, trouble)

    def training(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions, cores: int | None
    ) -> Trace:
        """Return the trace of training steps, all of them in one run."""
        self.check_trouble(options.trouble)
        _check_tcp_engine(options.engine)
        if cores is not None:
            compute = compute.times(cores / self.cluster.world_size)  # of a rank that does not wait for a core
        request, world_size = sync_of(training), self.cluster.world_size
        schedule = verified_schedule(request.algorithm, world_size)
        inputs = EngineInput(request, schedule, self.cluster, self.transport, options.trouble)
        record = options.record if options.record is Record.TIMES else Record.MESSAGES
        return compiled.simulate_tcp_training(inputs, compiled.Phases(compute, cores), steps, record=record)


def _check_tcp_engine(engine: str | None) -> None:
    if engine == "simpy":
        raise InputError("engine 'simpy' does not know the terms of TCP; leave the engine out, or take compiled")


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
