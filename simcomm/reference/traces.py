"""The trace of a simulation on the reference engine."""

from collectives.records.messages import Messages
from collectives.records.spans import Spans
from collectives.records.trace import Trace, name_in_library
from collectives.schedule.call import ProgramCall
from simcomm.model.traced_links import trace_links
from simcomm.reference.engine import Simulation


def make_trace(simulation: Simulation, schedule: ProgramCall, elapsed: float, facts: dict[str, float]) -> Trace:
    """Return what a simulation recorded: messages and spans in order of time, links, and what never ended."""
    cluster, transport = simulation.cluster, simulation.transport
    carried = [simulation.network.carried[edge] for edge in cluster.graph.edges]
    return Trace(
        title=schedule.algorithm.full_name,
        kind="predicted",
        world_size=cluster.world_size,
        elapsed=elapsed,
        messages=Messages.of(simulation.messages).sorted(),
        spans=Spans.of(simulation.spans).sorted(),
        links=trace_links(cluster, transport, carried, elapsed, simulation.trouble),
        nodes=list(cluster.graph),
        hosts=list(cluster.hosts),
        facts=facts,
        engine="simpy",
        method="events",
        failed=simulation.failed,
        unfinished=simulation.unfinished(),
        algorithm=name_in_library(schedule.algorithm),
        root=schedule.root,
        chunks=schedule.chunks,
    )
