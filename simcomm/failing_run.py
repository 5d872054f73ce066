"""A wrong program on a simulated cluster, up to the point where it goes wrong."""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from collectives.calibration.calibration import Calibration
from collectives.errors import ProgramError
from collectives.records.messages import Messages
from collectives.records.trace import ProgramFailure, Trace
from collectives.request import Request
from collectives.schedule.build import columns_of
from collectives.schedule.call import ProgramCall, make_call
from collectives.schedule.rules import first_offence
from collectives.step import Step
from simcomm.cluster.calibrated import resolve_transport
from simcomm.cluster.cluster import Cluster
from simcomm.reference.engine import Buffer, Simulation, make_trace

MOST_STEPS = 10_000  # of a rank that are simulated; a program that never ends has gone wrong long before
SHORTEST = 1e-6  # seconds that a run is shown to take in which nothing happens
SITE = re.compile(r"^rank \d+(, channel \d+)?, step \d+( \(line \d+ of [^()]+\))?: ")  # said beside the text
Programs = list[list[list[Step]]]  # [rank][channel][step]


def run_to_failure(
    request: Request, cluster: Cluster, error: ProgramError, *, calibration: Calibration | None = None
) -> Trace:
    """Simulate a program as far as it comes; ``error`` is why it is wrong, as ``simcomm.run`` raises it.

    The rank that goes wrong stops at that step, or after it if what arrives in it is wrong; the others go on until they
    wait for it, or are done. Raises ``error`` where it names no rank.

    >>> import simcomm
    >>> from collectives import algorithm, find_algorithm, make_request, recv, send
    >>> def late(rank, world_size, root):
    ...     yield send(1, 0) if rank == 0 else recv(0, 0)
    ...     if rank == 0:
    ...         yield send(1, 0)
    >>> wrong, star = algorithm("broadcast", chunks=1)(late).__algorithm__, simcomm.star(2, "10 Gbit/s", "5 us")
    >>> try:
    ...     simcomm.run(wrong, star, nbytes=64)
    ... except ProgramError as error:
    ...     trace = run_to_failure(make_request(wrong, 2, 64), star, error)
    >>> len(trace.messages), trace.failure.rank, trace.failure.step
    (1, 0, 1)
    """
    if error.rank is None:
        raise error
    call = make_call(request.algorithm, cluster.world_size, request.root)
    said = _run_tolerantly(call)
    step = error.step if error.step is not None else max(map(len, said[error.rank]), default=0)
    sound = _cut_offences(call, said)
    for program in sound[error.rank]:
        del program[step + error.lands :]
    cluster, transport = resolve_transport(cluster, calibration)
    simulation = Simulation(cluster, transport)
    buffer = Buffer(request.algorithm, call.world_size, request.elements, request.itemsize, None)
    elapsed = simulation.run(
        simulation.collective(rank, programs, buffer, request.op) for rank, programs in enumerate(sound)
    )
    facts = {"nbytes": float(request.nbytes), "time_min_s": elapsed, "time_max_s": elapsed}
    trace = make_trace(simulation, call, elapsed or SHORTEST, facts)
    at = elapsed if error.step is None else _end_of(trace.messages, error.rank)
    where = re.search(r"\(line (\d+) of ([^()]+)\)", str(error))
    if error.step is None:  # the lines in the text may be of other ranks
        where = re.search(r"\(line (\d+) of ([^()]+)\)", call.at_line(error.rank, 0, max(step - 1, 0))) or where
    text = SITE.sub("", str(error).removeprefix(call.describe()).lstrip(":, "))
    failure = ProgramFailure(error.rank, error.step, f"{where[2]}:{where[1]}" if where else "", text, at)
    return replace(trace, failure=failure)


def _run_tolerantly(call: ProgramCall) -> Programs:
    """Return the steps of all ranks, each as far as it comes."""
    found: Programs = []
    for rank in range(call.world_size):
        found.append([])
        with suppress(Exception, SystemExit):  # what it is has been told already
            for program in call.run(rank):
                found[-1].append([])
                for step in islice(program, MOST_STEPS):
                    found[-1][-1].append(step)
    return found


def _cut_offences(call: ProgramCall, programs: Programs) -> Programs:
    """Return the programs, each channel up to its first step that breaks a rule."""
    sound = [[list(program) for program in channels] for channels in programs]
    while True:
        columns, odd = columns_of(call, sound)
        offence = first_offence(columns, call)
        if offence is not None:
            rank, channel, step = (int(column[offence.at]) for column in columns[:3])
        elif odd is not None and odd.rank is not None and odd.step is not None:
            rank, channel, step = odd.rank, -1, odd.step
        else:
            return sound
        for program in sound[rank] if channel < 0 else [sound[rank][channel]]:
            del program[step:]


def _end_of(messages: Messages, rank: int) -> float:
    """Return when the last message of a rank arrives that it sends or receives; 0.0 without any."""
    own: Iterable[float] = messages.end[(messages.src == rank) | (messages.dst == rank)].tolist()
    return max(own, default=0.0)
