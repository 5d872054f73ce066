"""The network that a trace knows of, as a graph."""

from itertools import pairwise

import networkx as nx
import numpy as np

from collectives.records.trace import Trace
from viz.layout.geometry import Edge, Graph, natural_order


def traced_graph(trace: Trace) -> Graph:
    """Return every node and every directed edge that appears in the trace's links or in the routes of its messages."""
    graph: Graph = nx.DiGraph()
    graph.add_nodes_from(hosts_of(trace))
    graph.add_edges_from((link.src, link.dst) for link in trace.links)
    for route in set(used_routes(trace)):
        graph.add_edges_from(pairwise(route))
    graph.add_nodes_from(trace.nodes if graph.edges else ())
    return graph


def hosts_of(trace: Trace) -> tuple[str, ...]:
    """Return the node of each rank; ``h0``, ``h1``, ... where the trace does not say."""
    return (
        tuple(trace.hosts) if len(trace.hosts) == trace.world_size else tuple(f"h{r}" for r in range(trace.world_size))
    )


def used_nodes(trace: Trace) -> set[str]:
    """Return the nodes that some message passes."""
    return {node for route in used_routes(trace) for node in route}


def used_routes(trace: Trace) -> list[tuple[str, ...]]:
    """Return the routes that some message takes."""
    return [trace.messages.routes[number] for number in np.unique(trace.messages.route).tolist()]


def idle_hosts(graph: Graph, hosts: tuple[str, ...]) -> list[str]:
    """Return the hosts without a rank: nodes with one neighbour at most that are not in ``hosts``."""
    leaves = (node for node in graph if node not in hosts and len(set(nx.all_neighbors(graph, node))) <= 1)
    return sorted(leaves, key=natural_order)


def memory_edge(graph: Graph, hosts: tuple[str, ...]) -> Edge | None:
    """Return the one edge that every message crosses, where the graph is ``this-machine``; None for other networks."""
    switches = [node for node in graph if node not in hosts]
    if len(switches) != 2:
        return None
    for a, b in (switches, switches[::-1]):
        if set(graph.edges) == {(a, b), *((host, a) for host in hosts), *((b, host) for host in hosts)}:
            return a, b
    return None


def is_through_memory(trace: Trace) -> bool:
    """Return whether the trace's ranks are joined by the memory of one machine."""
    return memory_edge(traced_graph(trace), hosts_of(trace)) is not None
