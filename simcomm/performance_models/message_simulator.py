"""Simulate messages on a network with shared links, on the reference engine or the compiled engine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from collectives.budget import Gigabyte
from collectives.call import Array, CollectiveCall, reduced_slice
from collectives.costs.closed_forms import CostModel
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.records.spans import Span
from collectives.records.trace import Trace
from collectives.schedule.schedule import Schedule
from collectives.spec import Spec
from collectives.training.workload import ComputePhases, Training
from collectives.transport import Transport
from simcomm import compiled
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.planning.engine_input import EngineInput, as_repeated
from simcomm.model.faults import BACKWARD, DIVISION, FORWARD, NO_FAULTS, OPTIMIZER, Faults, check_faults
from simcomm.performance_models.options import SimulationOptions
from simcomm.reference.engine import Buffer, Location, Process, Simulation, make_trace
from simcomm.schedules import VERIFIED_UP_TO, check_messages, compact_schedule, verified_schedule

if TYPE_CHECKING:
    from simcomm.compiled.engine import Timing


@dataclass(frozen=True)
class MessageSimulator:
    """A simulator of collectives and training steps on a cluster, message by message."""

    cluster: Cluster
    transport: Transport

    def collective(
        self, call: CollectiveCall, options: SimulationOptions, buffers: Sequence[Array] | None = None
    ) -> Trace:
        """Return the trace of a collective. If ``buffers`` are given, run the collective on them in place.

        Raise InputError if the simulator does not support the faults or the engine, and ProgramError for an invalid
        program.
        """
        self.check_faults(options.faults)
        engine = self.engine(call, options, carries_data=buffers is not None)
        if engine == "simpy":
            _check_simpy(call.algorithm, self.cluster.world_size, call.root)
            return self.simulate_reference(call, options.faults, buffers)
        return self.simulate_compiled(call, options)

    def check_faults(self, faults: Faults) -> None:
        """Raise InputError for faults that the simulator does not support on this cluster."""
        check_faults(faults, self.cluster.graph, self.cluster.world_size)

    def engine(self, call: CollectiveCall, options: SimulationOptions, *, carries_data: bool) -> str:
        """Return the name of the engine to use. Raise InputError if the compiled engine was requested with data."""
        if not carries_data:
            return options.engine or options.choose_engine(self.messages(call))
        if options.engine == "compiled":
            raise InputError(
                f"{call.algorithm.full_name}: the compiled engine does not support buffers; use engine 'simpy'"
            )
        return "simpy"

    def messages(self, call: CollectiveCall) -> int:
        """Return the number of messages of a call, including empty ones."""
        return compact_schedule(call.algorithm, self.cluster.world_size, call.root).messages

    def simulate_reference(self, call: CollectiveCall, faults: Faults, buffers: Sequence[Array] | None) -> Trace:
        """Simulate on the reference engine. If ``buffers`` are given, run the collective on them in place."""
        algorithm, world_size, root = call.algorithm, self.cluster.world_size, call.root
        simulation = Simulation(self.cluster, self.transport, faults)
        schedule = verified_schedule(algorithm, world_size, root)
        data = [None] * world_size if buffers is None else buffers
        working = [Buffer(algorithm, world_size, call.elements, call.itemsize, array) for array in data]
        elapsed = simulation.run(
            _collective_of(simulation, schedule, rank, buffer, call.op) for rank, buffer in enumerate(working)
        )
        if not simulation.unfinished():
            _copy_results(working, buffers, algorithm.spec, root, call.op)
        facts = {"nbytes": float(call.nbytes), "time_min_s": elapsed, "time_max_s": elapsed}
        return make_trace(simulation, schedule, elapsed, facts)

    def simulate_compiled(self, call: CollectiveCall, options: SimulationOptions) -> Trace:
        """Simulate on the compiled engine. Raise ProgramError if the program can deadlock, even if this run does not.

        Faults and empty chunks, which are never sent, can hide a deadlock. With more than 64 ranks, a run with empty
        chunks or with faults that may hang it is first simulated with full chunks and without faults.
        """
        world_size, faults, record = self.cluster.world_size, options.faults, options.record
        schedule = compact_schedule(call.algorithm, world_size, call.root)
        inputs = as_repeated(EngineInput(call, schedule, self.cluster, self.transport, faults))
        if world_size > VERIFIED_UP_TO and (call.elements < schedule.chunks or faults.may_hang):
            filled = replace(call, elements=max(call.elements, schedule.chunks))
            self.timing(replace(inputs, call=filled, faults=NO_FAULTS))
        timing = None if record else self.shortcut(inputs)
        if timing is None:
            if record:
                inputs = inputs.to_record()
            elif faults.may_hang:
                inputs = inputs.with_table()
            timing = self.one_by_one(inputs, messages=record)
        facts = {"nbytes": float(call.nbytes), "time_min_s": timing.elapsed, "time_max_s": timing.elapsed}
        return compiled.make_trace(inputs, timing, facts, record=record)

    def timing(self, inputs: EngineInput) -> "Timing":
        """Return the timing, by a shortcut if one applies, else by simulating each message."""
        return self.shortcut(inputs) or self.one_by_one(inputs)

    def shortcut(self, inputs: EngineInput) -> "Timing | None":
        """Return the timing without simulating every message, or None if no shortcut applies."""
        return compiled.by_shortcut(inputs)

    def one_by_one(self, inputs: EngineInput, *, messages: bool = False) -> "Timing":
        """Simulate every message and return the timing. If ``messages`` is True, it includes each message's times."""
        return compiled.one_by_one(inputs, messages=messages)

    def star_costs(self, nbytes: int) -> tuple[CostModel | None, CostModel | None]:
        """Return (cost model, None) for a symmetric star, else (None, cost model of a faster symmetric star)."""
        star = star_model(self.cluster, nbytes)
        return star, None if star is not None else faster_star(self.cluster, nbytes)

    def training(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions, cores: int | None
    ) -> Trace:
        """Return the trace of training steps that synchronize gradients after backward.

        ``cores`` is the number of cores that the ranks share, or None if each rank has its own. If ranks drift so far
        apart that two syncs overlap, the reference engine is used regardless of the requested engine. Raise InputError
        for faults that the simulator does not support on this cluster.
        """
        self.check_faults(options.faults)
        sync, world_size = sync_of(training).algorithm, self.cluster.world_size
        if options.engine == "simpy":
            _check_simpy(sync, world_size, steps=steps)
        elif (options.engine or options.choose_engine(self.messages(sync_of(training)))) != "simpy":
            trace = self.train_compiled(training, compute, steps, options)
            if trace is not None:
                return trace
        return self.train_reference(training, compute, steps, options.faults)

    def train_compiled(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions
    ) -> Trace | None:
        """Simulate one sync at a time. Return None if messages of two syncs may be in flight at the same time."""
        call = sync_of(training)
        program = compact_schedule(call.algorithm, self.cluster.world_size, 0)
        inputs = as_repeated(EngineInput(call, program, self.cluster, self.transport, options.faults))
        return compiled.simulate_training(inputs, compute, steps, record=options.record)

    def train_reference(self, training: Training, compute: ComputePhases, steps: int, faults: Faults) -> Trace:
        """Simulate all steps in a single run on the reference engine."""
        call, world_size = sync_of(training), self.cluster.world_size
        schedule = verified_schedule(call.algorithm, world_size)
        simulation = Simulation(self.cluster, self.transport, faults)
        elapsed = simulation.run(
            _training_of(simulation, rank, schedule, compute, call.nbytes, steps) for rank in range(world_size)
        )
        return make_trace(simulation, schedule, elapsed, {})


def _check_simpy(algorithm: Algorithm, world_size: int, root: int = 0, steps: int = 1) -> None:
    too_many = "for the simpy engine, which simulates them one by one in Python; use the compiled engine"
    check_messages(algorithm, world_size, root, steps, Gigabyte.SIMPY, too_many)


def _collective_of(simulation: Simulation, schedule: Schedule, rank: int, buffer: Buffer, op: str) -> Process:
    yield from simulation.collective(rank, schedule.programs[rank], buffer, op)
    if op == "mean":
        reduced = reduced_slice(schedule.algorithm.spec, rank, schedule.world_size, schedule.root, buffer.n)
        seconds = simulation.transport.gamma * (reduced.stop - reduced.start) * buffer.itemsize
        yield from simulation.compute("reduce", Location(0, rank, DIVISION, schedule.steps), seconds)


def _copy_results(working: list[Buffer], buffers: Sequence[Array] | None, spec: Spec, root: int, op: str) -> None:
    for rank, buffer in enumerate(() if buffers is None else buffers):
        result = working[rank].data
        assert result is not None
        buffer[:] = result[: buffer.size]
        if op == "mean":
            buffer[reduced_slice(spec, rank, len(working), root, buffer.size)] /= len(working)


def sync_of(training: Training) -> CollectiveCall:
    """Return the collective call that sums all gradients."""
    assert training.gradient_sync is not None
    return CollectiveCall(training.gradient_sync, training.gradient_bytes // 4)


def _training_of(
    simulation: Simulation, rank: int, schedule: Schedule, compute: ComputePhases, nbytes: int, steps: int
) -> Process:
    buffer = Buffer(schedule.algorithm, schedule.world_size, nbytes // 4, 4, None)
    scaling = simulation.transport.gamma * nbytes  # the mean divides the sum
    for step in range(steps):
        yield from simulation.compute("forward", Location(step, rank, FORWARD, step), compute.forward)
        yield from simulation.compute("backward", Location(step, rank, BACKWARD, step), compute.backward)
        begin = simulation.env.now
        yield from simulation.collective(rank, schedule.programs[rank], buffer, "mean", step)
        yield from simulation.compute("reduce", Location(step, rank, DIVISION, step), scaling)
        simulation.spans.append(Span(rank, "sync", step, begin, simulation.env.now, collective=step))
        yield from simulation.compute("optimizer", Location(step, rank, OPTIMIZER, step), compute.optimizer)


def without_idle_hosts(star: Cluster) -> Cluster:
    """Return the star without the hosts that run no rank."""
    busy = {*star.hosts}
    nodes = [node for node in star.graph if node in busy or star.graph.in_degree(node) > 1]
    return star if len(nodes) == len(star.graph) else replace(star, graph=star.graph.subgraph(nodes).copy())


def star_model(cluster: Cluster, nbytes: int) -> CostModel | None:
    """Return the cost model of a symmetric star, or None for any other cluster.

    In a symmetric star, each rank has its own link to one switch, and all links are identical. The result is also None
    if the cluster has no transport.
    """
    graph, hosts, transport = cluster.graph, cluster.hosts, cluster.transport
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
    """Return the cost model of a symmetric star on which no message is slower than on the cluster.

    Each message leaves its sender's host over one of that host's links, and reaches its receiver's host over one of
    that host's links. If the hosts are directly connected, both are the same link.
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
