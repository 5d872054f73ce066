"""Messages that gloo carries over TCP: in segments, through windows and buffers, by cores that ranks share."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from collectives.costs.closed_forms import CostModel
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.trace import Trace
from collectives.records.waits import Recording
from collectives.request import Array, Request
from collectives.transport import TcpTerms
from collectives.workload import ComputePhases, Training
from simcomm.model.tcp_order import count_segments
from simcomm.model.trouble import NO_TROUBLE, Trouble, check_tcp_trouble
from simcomm.reference.engine import Simulation
from simcomm.reference.tcp_engine import TcpSimulation
from simcomm.size_limits import check_simpy
from simcomm.time_models.message_simulator import MessageSimulator
from simcomm.time_models.options import SimulationOptions

if TYPE_CHECKING:
    from simcomm.compiled.planning.engine_input import EngineInput
    from simcomm.compiled.planning.shared_input import SharedInputs
    from simcomm.compiled.timing import Timing


class TcpSimulator(MessageSimulator):
    """Collectives and training steps over a transport that has the terms of TCP."""

    def collective(self, request: Request, options: SimulationOptions, buffers: Sequence[Array] | None = None) -> Trace:
        """Return the trace of a collective, whose messages cost what those of its algorithm do."""
        transport = request.algorithm.costs_of(self.transport)
        return MessageSimulator.collective(replace(self, transport=transport), request, options, buffers)

    def check_trouble(self, trouble: Trouble) -> None:
        super().check_trouble(trouble)
        check_tcp_trouble(trouble)

    def check_size(self, request: Request, engine: str | None, *, carries_data: bool = False) -> None:
        if engine == "simpy" or carries_data:
            check_simpy(request.algorithm, self.cluster.world_size, request.root)

    def segments(self, request: Request) -> float:
        """Return about how many segments the messages of a request are cut into."""
        return count_segments(self.cluster.world_size * request.nbytes, (self.transport.tcp or TcpTerms()).payload)

    def simulation(self, request: Request, trouble: Trouble) -> Simulation:
        return TcpSimulation(request, self.cluster, self.transport, trouble)

    def by_reference(self, request: Request, trouble: Trouble, buffers: Sequence[Array] | None) -> Trace:
        """Simulate on the reference engine; what buffers hold afterwards does not depend on times."""
        if buffers is not None:
            without_tcp = MessageSimulator(self.cluster, replace(self.transport, tcp=None))
            without_tcp.by_reference(request, NO_TROUBLE, buffers)
        return super().by_reference(request, trouble, None)

    def shortcut(self, inputs: "EngineInput", record: Recording) -> "Timing | None":
        """Return None: shortcuts know nothing of connections."""
        return None

    def one_by_one(self, inputs: "EngineInput", *, messages: bool = False, is_approximate: bool = False) -> "Timing":
        """Return the timing with every segment simulated, never approximately."""
        from simcomm.compiled.engine import by_segments

        return by_segments(inputs, messages=messages)

    def star_costs(self, nbytes: int) -> tuple[CostModel | None, CostModel | None]:
        """Return nothing: there are no closed forms of connections."""
        return None, None

    def sweep_seconds(self, request: Request, trouble: Trouble, shared: "SharedInputs") -> float:
        return self.seconds(request, trouble)

    def training(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions, cores: int | None
    ) -> Trace:
        """Return the trace of training steps; only the reference engine knows of cores that ranks share."""
        if cores is None:
            return super().training(training, compute, steps, options, None)
        self.check_trouble(options.trouble)
        if options.engine not in (None, "simpy"):
            raise InputError(
                f"engine {quote(options.engine)} knows nothing of cores that ranks share, and the calibration is of "
                "fewer ranks than this machine would run at once; leave the engine out, or take simpy"
            )
        undisturbed = compute.times(cores / self.cluster.world_size)  # of a rank that does not wait for a core
        return self.training_by_reference(training, undisturbed, steps, options.trouble, cores)

    def training_by_compiled(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions
    ) -> Trace | None:
        """Return None: connections keep what one sync left on them, so that syncs are not simulated one by one."""
        return None
