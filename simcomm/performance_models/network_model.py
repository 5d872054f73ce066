"""Predict collectives and training steps on a described network from the times of messages on its links.

If a schedule is symmetric and its messages never share a link, times are computed without simulating each message. In
the TCP model, messages travel in segments, limited by windows and socket buffers, and ranks share cores.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from collectives.call import Array, CollectiveCall
from collectives.costs.closed_forms import CostModel
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.records.trace import Trace
from collectives.training.workload import ComputePhases, Training
from collectives.transport import Transport
from simcomm import compiled
from simcomm.cluster.calibrated import resolve_transport
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.model.faults import NO_FAULTS, Faults, check_tcp_faults
from simcomm.performance_models.estimator import Estimator
from simcomm.performance_models.message_simulator import MessageSimulator, sync_of
from simcomm.performance_models.options import SimulationOptions
from simcomm.performance_models.performance_model import PerformanceModel
from simcomm.schedules import verified_schedule

if TYPE_CHECKING:
    from simcomm.compiled.engine import Timing


class TcpSimulator(MessageSimulator):
    """A simulator of collectives and training steps over TCP. It requires the compiled engine."""

    def collective(
        self, call: CollectiveCall, options: SimulationOptions, buffers: Sequence[Array] | None = None
    ) -> Trace:
        """Return the trace of a collective, using the software costs of its algorithm.

        If ``buffers`` are given, run the collective on them in place, in a second simulation without TCP.
        """
        _check_tcp_engine(options.engine)
        transport = call.algorithm.costs_of(self.transport)
        if buffers is not None:
            without_tcp = MessageSimulator(self.cluster, replace(transport, tcp=None))
            without_tcp.collective(call, replace(options, faults=NO_FAULTS), buffers)
        return super(TcpSimulator, replace(self, transport=transport)).collective(call, options)

    def check_faults(self, faults: Faults) -> None:
        super().check_faults(faults)
        check_tcp_faults(faults)

    def engine(self, call: CollectiveCall, options: SimulationOptions, *, carries_data: bool) -> str:
        """Return "compiled", the only engine that supports TCP."""
        return "compiled"

    def shortcut(self, inputs: EngineInput) -> "Timing | None":
        """Return None: no shortcut supports TCP connections."""
        return None

    def one_by_one(self, inputs: EngineInput, *, messages: bool = False) -> "Timing":
        """Return the timing with every segment simulated."""
        return compiled.by_segments(inputs, messages=messages)

    def star_costs(self, nbytes: int) -> tuple[CostModel | None, CostModel | None]:
        """Return (None, None): there are no closed forms for TCP connections."""
        return None, None

    def training(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions, cores: int | None
    ) -> Trace:
        """Return the trace of all training steps, simulated in a single run."""
        self.check_faults(options.faults)
        _check_tcp_engine(options.engine)
        if cores is not None:
            compute = compute.times(cores / self.cluster.world_size)  # time of a rank that never waits for a core
        call, world_size = sync_of(training), self.cluster.world_size
        schedule = verified_schedule(call.algorithm, world_size)
        inputs = EngineInput(call, schedule, self.cluster, self.transport, options.faults)
        return compiled.simulate_tcp_training(inputs, compiled.Phases(compute, cores), steps, record=options.record)


def _check_tcp_engine(engine: str | None) -> None:
    if engine == "simpy":
        raise InputError("engine 'simpy' does not support TCP; use the compiled engine")


class NetworkModel(PerformanceModel):
    """A model that simulates messages on shared links, over TCP if the transport has TCP parameters."""

    @cached_property
    def simulator(self) -> MessageSimulator:
        """The message simulator. Raise InputError if the cluster needs a calibration and none exists."""
        return simulator_of(*resolve_transport(self.cluster, self.calibration))

    def estimator(self, call: CollectiveCall) -> Estimator:
        return Estimator.of(self.simulator, call)

    def collective(
        self, call: CollectiveCall, options: SimulationOptions, buffers: Sequence[Array] | None = None
    ) -> Trace:
        return self.simulator.collective(call, options, buffers)

    def sequential_steps(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions
    ) -> Trace:
        return self.simulator.training(training, compute, steps, options, self.shared_cores(training))

    def caveats(self, algorithms: Sequence[Algorithm]) -> tuple[str, ...]:
        """Return a note for each algorithm that treats a three-dimensional torus as a two-dimensional one."""
        dimensions = self.cluster.graph.graph.get("dimensions", ())
        return tuple(
            f"{algorithm.label} uses two dimensions; for three, write auto or "
            f'{{name = "{algorithm.name}", columns = {dimensions[2]}, rows = {dimensions[1]}}}'
            for algorithm in algorithms
            if len(dimensions) == 3 and "rows" in algorithm.parameter_names and "rows" not in algorithm.parameters
        )

    def shared_cores(self, training: Training) -> int | None:
        """Return the number of cores that ranks share, or None if each rank has its own."""
        return None


def simulator_of(cluster: Cluster, transport: Transport) -> MessageSimulator:
    """Return a simulator of TCP segments if the transport has TCP parameters, else a simulator of whole messages."""
    return (MessageSimulator if transport.tcp is None else TcpSimulator)(cluster, transport)
