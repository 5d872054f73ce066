"""The trace of a simulation on the reference engine."""

from collectives.records.trace import Trace, TracedLink
from simcomm.reference.engine import Simulation


def make_trace(simulation: Simulation, title: str, elapsed: float, facts: dict[str, float]) -> Trace:
    """Return what a simulation recorded: messages and spans in order of time, links, and what never ended."""
    graph, carried = simulation.cluster.graph, simulation.network.carried
    links = [
        TracedLink(a, b, data["bandwidth"], data["latency"], carried[a, b]) for a, b, data in graph.edges(data=True)
    ]
    return Trace(
        title,
        "predicted",
        simulation.cluster.world_size,
        elapsed,
        sorted(simulation.messages, key=lambda message: (message.begin, message.src)),
        sorted(simulation.spans, key=lambda span: (span.begin, span.rank)),
        links,
        list(graph),
        list(simulation.cluster.hosts),
        facts,
        engine="simpy",
        method="events",
        failed=simulation.failed,
        unfinished=simulation.unfinished(),
    )
