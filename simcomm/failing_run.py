"""Simulate an invalid program up to its failure."""

import re
from dataclasses import replace

from collectives.call import CollectiveCall
from collectives.errors import Deadlock, ProgramError
from collectives.records.calibration import Calibration
from collectives.records.trace import ProgramFailure, Trace
from collectives.schedule.build import sound_schedule
from simcomm.cluster.calibrated import resolve_transport
from simcomm.cluster.cluster import Cluster
from simcomm.reference.engine import Buffer, Simulation, make_trace

SHORTEST = 1e-6  # seconds; the length of a run without events
LOCATION = re.compile(r"^rank \d+(, channel \d+)?, step \d+( \(line \d+ of [^()]+\))?: ")  # starts an error's text


def run_to_failure(
    collective_call: CollectiveCall, cluster: Cluster, error: ProgramError, *, calibration: Calibration | None = None
) -> Trace:
    """Simulate a program up to its failure, given the ProgramError that ``simcomm.run`` raised.

    The failing rank stops before the failing step, or after it if the step delivers wrong data. Other ranks continue
    until they end or wait for the failing rank. In a deadlock, no rank is stopped. If ``error`` does not name a rank,
    raise it.

    >>> import simcomm
    >>> from collectives import algorithm, find_algorithm, make_call, recv, send
    >>> def late(rank, world_size, root):
    ...     yield send(1, 0) if rank == 0 else recv(0, 0)
    ...     if rank == 0:
    ...         yield send(1, 0)
    >>> wrong, star = algorithm("broadcast", chunks=1)(late), simcomm.star(2, "10 Gbit/s", "5 us")
    >>> try:
    ...     simcomm.run(wrong, star, nbytes=64)
    ... except ProgramError as error:
    ...     trace = run_to_failure(make_call(wrong, 2, 64), star, error)
    >>> len(trace.messages), trace.failure.rank, trace.failure.step
    (1, 0, 1)
    """
    if error.rank is None:
        raise error
    circle = error.circle if isinstance(error, Deadlock) else ()
    done = None if circle or error.step is None else error.step + error.lands
    call = sound_schedule(collective_call.algorithm, cluster.world_size, collective_call.root, error.rank, done)
    step = error.step if error.step is not None else max(map(len, call.programs[error.rank]), default=0)
    cluster, transport = resolve_transport(cluster, calibration)
    simulation = Simulation(cluster, transport)
    buffer = Buffer(
        collective_call.algorithm, call.world_size, collective_call.elements, collective_call.itemsize, None
    )
    elapsed = simulation.run(
        simulation.collective(rank, programs, buffer, collective_call.op) for rank, programs in enumerate(call.programs)
    )
    facts = {"nbytes": float(collective_call.nbytes), "time_min_s": elapsed, "time_max_s": elapsed}
    trace = make_trace(simulation, call, elapsed or SHORTEST, facts)
    messages = trace.messages
    ends = messages.end[(messages.src == error.rank) | (messages.dst == error.rank)]
    at = elapsed if error.step is None or circle else float(ends.max(initial=0.0))
    where = re.search(r"\(line (\d+) of ([^()]+)\)", str(error))
    if error.step is None:  # the lines in the text may belong to other ranks
        where = re.search(r"\(line (\d+) of ([^()]+)\)", call.at_line(error.rank, 0, max(step - 1, 0))) or where
    text = LOCATION.sub("", str(error).removeprefix(call.describe()).lstrip(":, "))
    line = f"{where[2]}:{where[1]}" if where else ""
    failure = ProgramFailure(error.rank, error.step, line, text, at, error.lands, circle)
    return replace(trace, failure=failure).of_program(collective_call.algorithm)
