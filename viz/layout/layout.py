"""Where the hosts and switches of a trace are drawn, and the lines on which its messages travel.

The GPUs of machines stand in a row with their switches and CPUs above; the hosts of a torus in rows and columns; the
ranks of this machine beside its memory; all other networks as ``placement.py`` says. Everything follows from names and
links: no random numbers, no iteration.
"""

import networkx as nx
import numpy as np

from collectives.records.trace import Trace
from viz.layout.geometry import Box, Edge, Graph, Layout, fit_into, fitting_radius, line_between, nearest_distances
from viz.layout.machines import lay_out_machines, lay_out_torus
from viz.layout.placement import place_nodes
from viz.layout.traced_graph import hosts_of, idle_hosts, memory_edge, traced_graph, used_nodes


def lay_out_memory(all_hosts: tuple[str, ...], hosts: tuple[str, ...], memory_edge: Edge, box: Box) -> Layout:
    """Put the ranks in a row above the memory, more than eight also in one below; lines go straight into it."""
    above = len(all_hosts) if len(all_hosts) <= 8 else (len(all_hosts) + 1) // 2
    below = len(all_hosts) - above
    centre = 0.5 if below else 0.3
    memory = Box(*box.at(-0.04, centre - 0.12), *box.at(1.04, centre + 0.12))
    upper = [
        box.at(0.5 if above == 1 else 0.08 + 0.84 * i / (above - 1), 0.95 if below else 0.82) for i in range(above)
    ]
    lower = [box.at(0.08 + 0.84 * i / max(above - 1, 1), 0.05) for i in range(below)]
    positions = dict(zip(all_hosts, upper + lower, strict=True))
    radius = fitting_radius(list(positions.values()))
    lines = {memory_edge: np.array([(memory.left + 14, memory.middle[1]), (memory.right - 14, memory.middle[1])])}
    for host, (x, y) in positions.items():
        side, aside = 1 if y > memory.top else -1, min(8.0, radius / 2)
        near, edge = y - side * radius, memory.top if side > 0 else memory.bottom
        lines[host, memory_edge[0]] = np.array([(x - aside, near), (x - aside, edge)])
        lines[memory_edge[1], host] = np.array([(x + aside, edge), (x + aside, near)])
    return Layout(positions, hosts, dict.fromkeys(all_hosts, radius), lines, memory)


def lay_out(trace: Trace, box: Box) -> Layout:
    """Return the layout of a trace's cluster; the middles of its hosts are inside ``box``.

    >>> layout = lay_out(Trace("two ranks", "predicted", 2, 1.0), Box(0, 0, 100, 100))
    >>> {host: (float(x), float(y)) for host, (x, y) in layout.positions.items()}
    {'h0': (0.0, 50.0), 'h1': (100.0, 50.0)}
    """
    graph, hosts = traced_graph(trace), hosts_of(trace)
    regular = lay_out_machines(graph, hosts, used_nodes(trace), box) or lay_out_torus(graph, hosts, box)
    if regular:
        return regular
    all_hosts = tuple(dict.fromkeys((*hosts, *idle_hosts(graph, hosts))))
    memory = memory_edge(graph, all_hosts)
    if memory:
        return lay_out_memory(all_hosts, hosts, memory, box)
    return _lay_out_placed(graph, all_hosts, hosts, box)


def _lay_out_placed(graph: Graph, all_hosts: tuple[str, ...], hosts: tuple[str, ...], box: Box) -> Layout:
    """Return the layout of any network: nodes as placed by its kind, links as straight lines."""
    placed = place_nodes(graph, all_hosts)
    positions = fit_into(box, {node: (x, -y) for node, (x, y) in placed.at.items()})
    radius = fitting_radius([positions[host] for host in all_hosts])
    room = nearest_distances(positions)
    inner = [node for node in positions if node not in all_hosts]
    radii = dict.fromkeys(all_hosts, radius) | {
        node: min(_switch_radius(graph, node, radius, len(inner)), 0.45 * room[node]) for node in inner
    }
    lines = {(a, b): line_between(positions, a, b, radii) for a, b in graph.edges}
    return Layout(positions, hosts, radii, lines)


def _switch_radius(graph: Graph, node: str, host_radius: float, switches: int) -> float:
    """Return a radius that lets messages from many links pass side by side; smaller where there are several."""
    room = 40.0 if switches <= 2 else 16.0
    return min(room, max(min(13.0, host_radius), 3.5 * len(set(nx.all_neighbors(graph, node)))))
