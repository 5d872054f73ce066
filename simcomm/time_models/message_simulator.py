"""Messages simulated on a network whose links they share: by the reference engine, or the compiled one at scale."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from collectives.budget import Gigabyte
from collectives.costs.closed_forms import CostModel
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.records.spans import Span
from collectives.records.trace import Trace
from collectives.records.waits import Record
from collectives.request import Array, Request, reduced_slice
from collectives.schedule.schedule import Schedule
from collectives.spec import Spec
from collectives.training.workload import ComputePhases, Training
from collectives.transport import Transport
from simcomm import compiled
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.planning.engine_input import EngineInput, as_repeated
from simcomm.model.trouble import BACKWARD, DIVISION, FORWARD, NO_TROUBLE, OPTIMIZER, Trouble, check_trouble
from simcomm.reference.engine import Buffer, Process, Simulation, Site, make_trace
from simcomm.schedules import VERIFIED_UP_TO, check_messages, compact_schedule, verified_schedule
from simcomm.time_models.options import APPROXIMATE, SimulationOptions

if TYPE_CHECKING:
    from simcomm.compiled.engine import Timing


@dataclass(frozen=True)
class MessageSimulator:
    """Collectives and training steps of messages on a cluster."""

    cluster: Cluster
    transport: Transport

    def collective(self, request: Request, options: SimulationOptions, buffers: Sequence[Array] | None = None) -> Trace:
        """Return the trace of a collective, whose result ``buffers`` hold afterwards.

        Raises InputError, and ProgramError for an algorithm that cannot work.
        """
        self.check_trouble(options.trouble)
        engine = self.engine(request, options, carries_data=buffers is not None)
        if engine == "simpy":
            _check_simpy(request.algorithm, self.cluster.world_size, request.root)
            return self.by_reference(request, options.trouble, buffers)
        return self.by_compiled(request, options, is_approximate=engine == APPROXIMATE)

    def check_trouble(self, trouble: Trouble) -> None:
        """Raise InputError for trouble that cannot happen here."""
        check_trouble(trouble, self.cluster.graph, self.cluster.world_size)

    def engine(self, request: Request, options: SimulationOptions, *, carries_data: bool) -> str:
        """Return the engine for a request. Raise InputError for data on the compiled engine."""
        if not carries_data:
            return options.engine or options.choose_engine(self.messages(request))
        if options.engine in ("compiled", APPROXIMATE):
            raise InputError(
                f"{request.algorithm.full_name}: the {options.engine} engine carries no data; buffers need engine "
                "'simpy'"
            )
        return "simpy"

    def messages(self, request: Request) -> int:
        """Return how many messages a request has, empty ones included."""
        return compact_schedule(request.algorithm, self.cluster.world_size, request.root).messages

    def by_reference(self, request: Request, trouble: Trouble, buffers: Sequence[Array] | None) -> Trace:
        """Simulate on the reference engine, with data if there are buffers, which then hold the result."""
        algorithm, world_size, root = request.algorithm, self.cluster.world_size, request.root
        simulation = Simulation(self.cluster, self.transport, trouble)
        schedule = verified_schedule(algorithm, world_size, root)
        data = [None] * world_size if buffers is None else buffers
        held = [Buffer(algorithm, world_size, request.elements, request.itemsize, own) for own in data]
        elapsed = simulation.run(
            _collective_of(simulation, schedule, rank, buffer, request.op) for rank, buffer in enumerate(held)
        )
        if not simulation.unfinished():
            _hand_back(held, buffers, algorithm.spec, root, request.op)
        facts = {"nbytes": float(request.nbytes), "time_min_s": elapsed, "time_max_s": elapsed}
        return make_trace(simulation, schedule, elapsed, facts)

    def by_compiled(self, request: Request, options: SimulationOptions, *, is_approximate: bool) -> Trace:
        """Simulate on the compiled engine. Raise ProgramError for a program that deadlocks, also if not in this run.

        A deadlock shows only where nothing goes wrong and no chunk is empty, as empty ones are not sent.
        """
        world_size, trouble, record = self.cluster.world_size, options.trouble, options.record
        schedule = compact_schedule(request.algorithm, world_size, request.root)
        inputs = as_repeated(EngineInput(request, schedule, self.cluster, self.transport, trouble))
        if world_size > VERIFIED_UP_TO and (request.elements < schedule.chunks or trouble.may_stop):
            filled = replace(request, elements=max(request.elements, schedule.chunks))
            self.timing(replace(inputs, request=filled, trouble=NO_TROUBLE))
        timing = None if record is Record.MESSAGES else self.shortcut(inputs, record)
        if timing is None:
            if record.keeps_messages:
                inputs = inputs.to_record()
            elif trouble.may_stop:
                inputs = inputs.with_table(Gigabyte.WRITTEN)
            timing = self.one_by_one(inputs, messages=record.keeps_messages, is_approximate=is_approximate)
        facts = {"nbytes": float(request.nbytes), "time_min_s": timing.elapsed, "time_max_s": timing.elapsed}
        if timing.error is None:
            return compiled.make_trace(inputs, timing, facts, record=record.keeps_messages)
        found = compiled.make_trace(inputs, timing, facts | {"error_s": timing.error}, record=record.keeps_messages)
        return replace(found, engine=APPROXIMATE)

    def timing(self, inputs: EngineInput) -> "Timing":
        """Return the timing by a shortcut or, where none applies, message by message."""
        return self.shortcut(inputs, Record.TIMES) or self.one_by_one(inputs)

    def shortcut(self, inputs: EngineInput, record: Record) -> "Timing | None":
        """Return the timing without simulating every message; None where no shortcut applies."""
        return compiled.by_shortcut(inputs, record)

    def one_by_one(self, inputs: EngineInput, *, messages: bool = False, is_approximate: bool = False) -> "Timing":
        """Return the timing with every message simulated, and with ``messages`` the times of each."""
        return (compiled.approximately if is_approximate else compiled.one_by_one)(inputs, messages=messages)

    def star_costs(self, nbytes: int) -> tuple[CostModel | None, CostModel | None]:
        """Return the costs of the cluster where it is a symmetric star, else of such a star that is no slower."""
        star = star_model(self.cluster, nbytes)
        return star, None if star is not None else faster_star(self.cluster, nbytes)

    def sweep_seconds(self, request: Request, trouble: Trouble, shared: "compiled.SharedInputs") -> float:
        """Return the seconds of one of many requests of a schedule; infinity where the run never ends."""
        is_whole = self.cluster.world_size <= VERIFIED_UP_TO or request.elements >= shared.schedule.chunks
        if trouble == NO_TROUBLE and is_whole:
            return self.timing(shared.next(request, self.cluster, self.transport)).elapsed
        return self.seconds(request, trouble)

    def seconds(self, request: Request, trouble: Trouble) -> float:
        """Return the seconds by the compiled engine; infinity where the run never ends."""
        trace = self.collective(request, SimulationOptions("compiled", trouble, Record.TIMES))
        return trace.elapsed if trace.is_complete else inf

    def training(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions, cores: int | None
    ) -> Trace:
        """Return the trace of training steps whose gradients travel when backward is through.

        ``cores`` are those that the ranks take turns on, None where each computes on its own. Where ranks drift so far
        apart that two syncs overlap, the reference engine simulates them in any case. Raises InputError.
        """
        self.check_trouble(options.trouble)
        sync, world_size = sync_of(training).algorithm, self.cluster.world_size
        if options.engine == "simpy":
            _check_simpy(sync, world_size, steps=steps)
        elif (options.engine or options.choose_engine(self.messages(sync_of(training)))) != "simpy":
            found = self.training_by_compiled(training, compute, steps, options)
            if found is not None:
                return found
        return self.training_by_reference(training, compute, steps, options.trouble)

    def training_by_compiled(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions
    ) -> Trace | None:
        """Simulate a sync at a time; None where two overlap, a link changes or a rank fails."""
        request = sync_of(training)
        program = compact_schedule(request.algorithm, self.cluster.world_size, 0)
        inputs = as_repeated(EngineInput(request, program, self.cluster, self.transport, options.trouble))
        return compiled.simulate_training(inputs, compute, steps, record=options.record)

    def training_by_reference(self, training: Training, compute: ComputePhases, steps: int, trouble: Trouble) -> Trace:
        """Simulate all steps in one run."""
        request, world_size = sync_of(training), self.cluster.world_size
        schedule = verified_schedule(request.algorithm, world_size)
        simulation = Simulation(self.cluster, self.transport, trouble)
        elapsed = simulation.run(
            _training_of(simulation, rank, schedule, compute, request.nbytes, steps) for rank in range(world_size)
        )
        return make_trace(simulation, schedule, elapsed, {})


def _check_simpy(algorithm: Algorithm, world_size: int, root: int = 0, steps: int = 1) -> None:
    """Raise TooLarge for more messages than the simpy engine, which keeps what happens to each, has memory for."""
    too_many = "for the simpy engine, which simulates them one by one in Python: leave the engine out"
    check_messages(algorithm, world_size, root, steps, Gigabyte.SIMPY, too_many)


def _collective_of(simulation: Simulation, schedule: Schedule, rank: int, buffer: Buffer, op: str) -> Process:
    """Carry out one rank's part in a collective and, for a mean, divide what was reduced."""
    yield from simulation.collective(rank, schedule.programs[rank], buffer, op)
    if op == "mean":
        reduced = reduced_slice(schedule.algorithm.spec, rank, schedule.world_size, schedule.root, buffer.n)
        seconds = simulation.transport.gamma * (reduced.stop - reduced.start) * buffer.itemsize
        yield from simulation.compute("reduce", Site(0, rank, DIVISION, schedule.steps), seconds)


def _hand_back(held: list[Buffer], buffers: Sequence[Array] | None, spec: Spec, root: int, op: str) -> None:
    """Write the result into the user's buffers, divided by the number of ranks for a mean."""
    for rank, buffer in enumerate(buffers or ()):
        result = held[rank].data
        assert result is not None
        buffer[:] = result[: buffer.size]
        if op == "mean":
            buffer[reduced_slice(spec, rank, len(held), root, buffer.size)] /= len(held)


def sync_of(training: Training) -> Request:
    """Return the sum of all gradients."""
    assert training.gradient_sync is not None
    return Request(training.gradient_sync, training.gradient_bytes // 4)


def _training_of(
    simulation: Simulation, rank: int, schedule: Schedule, compute: ComputePhases, nbytes: int, steps: int
) -> Process:
    """Carry out one rank's training steps: forward, backward, all-reduce of the gradients, mean, optimizer."""
    buffer = Buffer(schedule.algorithm, schedule.world_size, nbytes // 4, 4, None)
    scaling = simulation.transport.gamma * nbytes  # the mean divides the sum
    for step in range(steps):
        yield from simulation.compute("forward", Site(step, rank, FORWARD, step), compute.forward)
        yield from simulation.compute("backward", Site(step, rank, BACKWARD, step), compute.backward)
        begin = simulation.env.now
        yield from simulation.collective(rank, schedule.programs[rank], buffer, "mean", step)
        yield from simulation.compute("reduce", Site(step, rank, DIVISION, step), scaling)
        simulation.spans.append(Span(rank, "sync", step, begin, simulation.env.now, collective=step))
        yield from simulation.compute("optimizer", Site(step, rank, OPTIMIZER, step), compute.optimizer)


def without_idle_hosts(star: Cluster) -> Cluster:
    """Return a star without the hosts that hold no rank."""
    busy = {*star.hosts}
    kept = [node for node in star.graph if node in busy or star.graph.in_degree(node) > 1]
    return star if len(kept) == len(star.graph) else replace(star, graph=star.graph.subgraph(kept).copy())


def star_model(cluster: Cluster, nbytes: int) -> CostModel | None:
    """Return the costs of a cluster where every rank has a link of its own, all alike, into one switch, else None.

    >>> import simcomm
    >>> star_model(simcomm.star(4, "8 Gbit/s", "1 us"), nbytes=64)
    CostModel(p=4, nbytes=64, alpha=2e-06, beta=1e-09, gamma=0.0)
    """
    graph, hosts, transport = cluster.graph, cluster.hosts, cluster.transport
    if cluster.sharing != "fair":  # messages that share a link would wait for each other
        return None
    edges = [data for _, _, data in graph.edges(data=True)]
    switches = [node for node in graph if graph.in_degree(node) > 1 or graph.out_degree(node) > 1]
    is_star = len(switches) <= 1 and len(set(hosts)) == len(hosts) and not set(hosts) & set(switches)
    if transport is None or not is_star or not edges or any(data != edges[0] for data in edges[1:]):
        return None
    if edges[0].keys() - {"bandwidth", "latency"} or graph.number_of_edges() != 2 * (len(graph) - 1):
        return None
    alpha = transport.overhead + 2 * edges[0]["latency"]
    beta = 1 / (edges[0]["bandwidth"] * transport.goodput)
    return CostModel(len(hosts), nbytes, alpha, beta, transport.gamma)


def faster_star(cluster: Cluster, nbytes: int) -> CostModel:
    """Return the costs of a symmetric star on which no message is slower than on the cluster.

    Each message leaves its sender's host by one of its links and comes to the receiver's by one of those, which may
    be the same where hosts are joined directly.
    """
    transport, hosts, links = cluster.transport, set(cluster.hosts), cluster.graph.edges(data=True)
    assert transport is not None
    ends = [[data for *nodes, data in links if nodes[end] in hosts] for end in (0, 1)]
    if len(hosts) < len(cluster.hosts) or not all(ends):
        return CostModel(cluster.world_size, nbytes, transport.overhead, 0.0, transport.gamma)
    is_direct = any(a in hosts and b in hosts for a, b, _ in links)
    latency = [min(data["latency"] for data in of_end) for of_end in ends]
    rates = [max(max(data["bandwidth"], data.get("shared_bandwidth", 0.0)) for data in of_end) for of_end in ends]
    alpha = transport.overhead + (max(latency) if is_direct else sum(latency))
    return CostModel(cluster.world_size, nbytes, alpha, 1 / (min(rates) * transport.goodput), transport.gamma)
