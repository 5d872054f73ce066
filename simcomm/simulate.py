"""One collective on a simulated cluster: what ``realcomm.run`` does on real processes."""

from collections.abc import Sequence
from dataclasses import replace

from collectives.checks import check_cluster
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.parts import reduced_slice
from collectives.records.calibration import Calibration
from collectives.records.trace import Trace
from collectives.records.waits import WAITS, Recording
from collectives.request import Array, Request, make_request
from collectives.schedule.schedule import Schedule
from collectives.spec import Spec
from collectives.transport import Transport
from simcomm.cluster.calibrated import hop_calibration, resolve_transport, with_calibration
from simcomm.cluster.cluster import Cluster
from simcomm.engine_choice import APPROXIMATE, choose_engine
from simcomm.hop_times import run_by_hops
from simcomm.model.tcp_order import count_segments
from simcomm.model.trouble import DIVISION, NO_TROUBLE, Trouble, check_tcp_trouble, check_trouble
from simcomm.reference.engine import Buffer, Process, Simulation, Site
from simcomm.reference.tcp_engine import make_simulation
from simcomm.reference.traces import make_trace as make_reference_trace
from simcomm.schedules import VERIFIED_UP_TO, compact_schedule, verified_schedule
from simcomm.size_limits import check_one_by_one, check_simpy


def run(
    algorithm: str | Algorithm | Request,
    cluster: Cluster,
    nbytes: int | None = None,
    *,
    dtype: str | None = None,
    op: str | None = None,
    root: int | None = None,
    buffers: Sequence[Array] | None = None,
    calibration: Calibration | None = None,
    trouble: Trouble = NO_TROUBLE,
    engine: str | None = None,
    record: Recording = True,
) -> Trace:
    """Simulate one collective on ``nbytes`` bytes per rank, or on real data: ``buffers``, reduced in place.

    Unless given, the elements are float32, the operator is sum and the root rank 0; a Request in place of the algorithm
    says these itself. Shapes: one 1-D array of the same length and type per rank. A cluster whose transport needs a
    calibration takes the one given or the cached one. ``engine`` is "simpy", which alone carries data, "compiled", or
    whichever suits the number of messages; "approximate" is the compiled one where it takes events that lie close
    together as one, and says by how much that may be wrong (``facts["error_s"]``). On this machine a prediction is made
    of measured hops unless an engine is named or something is in trouble. Without ``record`` the trace is of the times
    only, which at scale takes far less, and with ``record="waits"`` of what ``collectives.records.waits`` reads: a
    ``BriefTrace`` without messages where steps tell it, else messages without an order; with "brief waits" only the
    first of these. Under ``trouble`` a run may never end: see ``Trace.is_complete``.
    Raises InputError, and ProgramError for an algorithm that cannot work.

    >>> import simcomm
    >>> trace = run("all_reduce/ring", simcomm.star(4, "10 Gbit/s", "5 us"), nbytes=1 << 20)
    >>> len(trace.messages), round(trace.elapsed * 1e3, 6)  # in ms
    (24, 1.318291)
    """
    check_cluster(cluster, Cluster)
    request = make_request(algorithm, cluster.world_size, nbytes, dtype=dtype, op=op, root=root, buffers=buffers)
    if engine is None and buffers is None and trouble == NO_TROUBLE:
        measured = hop_calibration(cluster, calibration)
        if measured is not None:
            return run_by_hops(request, with_calibration(cluster, measured), measured)
    cluster, transport = resolve_transport(cluster, calibration)
    if request.algorithm.is_gloo:
        transport = transport.for_gloo()
    check_trouble(trouble, cluster.graph, cluster.world_size)
    world_size = cluster.world_size
    if transport.tcp is not None:
        check_tcp_trouble(trouble)
    segments = 0.0
    if transport.tcp is not None:
        segments = count_segments(world_size * request.nbytes, transport.tcp.payload)
    if engine == "simpy" or buffers is not None:
        check_simpy(request.algorithm, world_size, request.root)
    elif transport.tcp is None:
        check_one_by_one(request, cluster)
    taken = _engine(engine, request, world_size, buffers is not None, trouble, segments)
    if taken != "simpy":
        is_approximate = taken == APPROXIMATE and transport.tcp is None
        return _on_compiled(request, cluster, transport, trouble, record, is_approximate)
    if transport.tcp is not None and buffers is not None:  # what they hold afterwards does not depend on times
        _on_reference(request, Simulation(cluster, replace(transport, tcp=None)), buffers)
        buffers = None
    return _on_reference(request, make_simulation(request, cluster, transport, trouble), buffers)


def _on_reference(request: Request, simulation: Simulation, buffers: Sequence[Array] | None) -> Trace:
    """Simulate on the reference engine, with data if there are buffers, which then hold the result."""
    algorithm, world_size, root = request.algorithm, simulation.cluster.world_size, request.root
    schedule = verified_schedule(algorithm, world_size, root)
    held = [
        Buffer(algorithm, world_size, request.elements, request.itemsize, None if buffers is None else buffers[rank])
        for rank in range(world_size)
    ]
    elapsed = simulation.run(_rank(simulation, schedule, rank, buffer, request.op) for rank, buffer in enumerate(held))
    if not simulation.unfinished():
        _hand_back(held, buffers, algorithm.spec, root, request.op)
    facts = {"nbytes": float(request.nbytes), "time_min_s": elapsed, "time_max_s": elapsed}
    return make_reference_trace(simulation, schedule, elapsed, facts)


def _engine(
    engine: str | None,
    request: Request,
    world_size: int,
    carries_data: bool,
    trouble: Trouble,
    segments: float,
) -> str:
    """Return the engine for a request. Raise InputError for data on the compiled engine."""
    if not carries_data:
        return choose_engine(engine, request.algorithm, world_size, request.root, trouble, segments)
    if engine in ("compiled", APPROXIMATE):
        raise InputError(
            f"{request.algorithm.full_name}: the {engine} engine carries no data; buffers need engine 'simpy'"
        )
    return choose_engine("simpy", request.algorithm, world_size, request.root)


def _on_compiled(
    request: Request, cluster: Cluster, transport: Transport, trouble: Trouble, record: Recording, is_approximate: bool
) -> Trace:
    """Simulate on the compiled engine. Raise ProgramError for a program that deadlocks, also where this run would not.

    A deadlock shows only where nothing goes wrong and no chunk is empty, as empty ones are not sent.
    """
    # what has few messages does without this engine
    from simcomm.compiled.approximate import approximately
    from simcomm.compiled.engine import by_shortcut, one_by_one, simulate
    from simcomm.compiled.planning.engine_input import MOST_WRITTEN, EngineInput, as_repeated
    from simcomm.compiled.traces import make_trace

    schedule = compact_schedule(request.algorithm, cluster.world_size, request.root)
    inputs, chunks = as_repeated(EngineInput(request, schedule, cluster, transport, trouble)), schedule.chunks
    shows = request.elements >= chunks and not trouble.may_stop
    if cluster.world_size > VERIFIED_UP_TO and not shows:
        simulate(replace(inputs, request=replace(request, elements=max(request.elements, chunks)), trouble=NO_TROUBLE))
    timing = None if record is True else by_shortcut(inputs, record)
    if timing is None:
        record = record is True or record == WAITS
        if record or trouble.may_stop:
            inputs = inputs.to_record() if record else inputs.with_table(MOST_WRITTEN)
        timing = (approximately if is_approximate else one_by_one)(inputs, messages=bool(record))
    facts = {"nbytes": float(request.nbytes), "time_min_s": timing.elapsed, "time_max_s": timing.elapsed}
    if timing.error is None:
        return make_trace(inputs, timing, facts, record=bool(record))
    found = make_trace(inputs, timing, facts | {"error_s": timing.error}, record=bool(record))
    return replace(found, engine=APPROXIMATE)


def _rank(simulation: Simulation, schedule: Schedule, rank: int, buffer: Buffer, op: str) -> Process:
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
