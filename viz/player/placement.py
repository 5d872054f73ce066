"""Where nodes stand in the player, by the kind of network, in a unit box with y downwards.

One switch and direct links: a circle. Two switches: racks left and right of them. A torus: rows and columns. Machines
and more tiers of switches: rows, with the ranks below. Nodes that no message passes are left out and counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import cos, pi, sin
from statistics import fmean

import networkx as nx

from collectives.records.trace import Trace
from viz.layout.geometry import natural_order

MOST_NODES = 300  # ranks that stand by themselves; of more, groups do

Point = tuple[float, float]


@dataclass(frozen=True)
class Placement:
    """The kind of layout, where each shown node stands, and how many carry nothing and are left out."""

    kind: str  # circle, star, memory, racks, grid, tiers, or groups
    at: dict[str, Point]
    hidden: int = 0


def place(trace: Trace, hosts: Sequence[str], used: set[str]) -> Placement:
    """Return where the nodes of a trace stand; ``used`` are those that some message passes.

    >>> place(Trace("two", "predicted", 2, 1.0), ["h0", "h1"], set()).at
    {'h0': (0.5, 0.0), 'h1': (0.5, 1.0)}
    """
    if len(hosts) > MOST_NODES:
        return Placement("groups", {})
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(hosts)
    graph.add_edges_from((link.src, link.dst) for link in trace.links)
    idle = [node for node in graph if used and node not in used and node not in hosts]
    graph.remove_nodes_from(idle)
    kind, at = _place(graph, list(hosts))
    return Placement(kind, {node: (round(x, 4), round(y, 4)) for node, (x, y) in at.items()}, len(idle))


def _place(graph: "nx.Graph[str]", hosts: list[str]) -> tuple[str, dict[str, Point]]:
    inner = sorted((node for node in graph if node not in hosts), key=natural_order)
    if not inner:
        columns = _torus_columns(graph, hosts)
        return ("grid", _grid(hosts, columns)) if columns else ("circle", _mesh_circle(hosts))
    if len(inner) == 1:
        return "star", _circle(hosts) | {inner[0]: (0.5, 0.5)}
    if len(inner) == 2 and all(set(graph[host]) == set(inner) for host in hosts):
        return "memory", _circle(hosts) | {inner[0]: (0.47, 0.5), inner[1]: (0.53, 0.5)}
    if len(inner) == 2:
        return "racks", _racks(graph, hosts, inner)
    return "tiers", _tiers(graph, hosts)


def _circle(names: Sequence[str], start: float = -pi / 2) -> dict[str, Point]:
    turn = 2 * pi / len(names)
    return {n: (0.5 + 0.5 * cos(start + turn * i), 0.5 + 0.5 * sin(start + turn * i)) for i, n in enumerate(names)}


def _mesh_circle(hosts: list[str]) -> dict[str, Point]:
    """Return hosts that are linked directly on a circle; the eight GPUs of one machine as two rows of four."""
    if len(hosts) != 8 or ".gpu" not in hosts[0]:
        return _circle(hosts)
    return _circle([*hosts[:4], *hosts[:3:-1]], -pi / 2 - 3 * pi / 8 - pi / 8)


def _grid(hosts: Sequence[str], columns: int) -> dict[str, Point]:
    rows = len(hosts) // columns
    return {host: (i % columns / (columns - 1), i // columns / (rows - 1)) for i, host in enumerate(hosts)}


def _torus_columns(graph: "nx.Graph[str]", hosts: list[str]) -> int:
    """Return how many columns a torus of two dimensions has; 0 for another network."""
    size, edges = len(hosts), {frozenset(edge) for edge in graph.edges}
    for columns in (columns for columns in range(2, size // 2 + 1) if size % columns == 0 and size > 4):
        wanted = set()
        for row, column in product(range(size // columns), range(columns)):
            own = row * columns + column
            right, below = row * columns + (column + 1) % columns, (own + columns) % size
            wanted |= {frozenset((hosts[own], hosts[right])), frozenset((hosts[own], hosts[below]))}
        if {edge for edge in wanted if len(edge) == 2} == edges:
            return columns
    return 0


def _racks(graph: "nx.Graph[str]", hosts: list[str], switches: list[str]) -> dict[str, Point]:
    """Return two switches in the middle, the hosts of each on an arc beside it."""
    at = {switches[0]: (0.33, 0.5), switches[1]: (0.67, 0.5)}
    for switch, x, side in ((switches[0], 0.29, -1), (switches[1], 0.71, 1)):
        own = [host for host in hosts if switch in graph[host]]
        for index, host in enumerate(own):
            angle = (index / max(len(own) - 1, 1) - 0.5) * pi * 0.92
            at[host] = (x + side * 0.29 * cos(angle), 0.5 + 0.5 * sin(angle))
    for host in hosts:
        at.setdefault(host, (0.5, 0.0))
    return at


def _tiers(graph: "nx.Graph[str]", hosts: list[str]) -> dict[str, Point]:
    """Return hosts in the lowest row, every other node as many rows above as links away, over the middle of its own."""
    tier = nx.multi_source_dijkstra_path_length(graph, set(hosts), weight=lambda *_: 1)
    top = int(max(tier.values())) or 1
    at = {host: ((index + 0.5) / len(hosts), 1.0) for index, host in enumerate(hosts)}
    for level in range(1, top + 1):
        row = [node for node in graph if tier.get(node) == level]
        middle = {node: fmean([at[below][0] for below in graph[node] if below in at] or [0.5]) for node in row}
        for index, node in enumerate(sorted(row, key=lambda node: (middle[node], natural_order(node)))):
            at[node] = ((index + 0.5) / len(row), 1 - level / top)
    return at


def find_groups(trace: Trace, hosts: Sequence[str], most: int = 64) -> list[tuple[str, int]]:
    """Return name and size of the groups of consecutive ranks: by machine or switch, else so many at a time.

    >>> find_groups(Trace("four", "predicted", 4, 1.0), ["h0", "h1", "h2", "h3"], most=2)
    [('ranks 0–1', 2), ('ranks 2–3', 2)]
    """
    near: dict[str, set[str]] = {host: set() for host in hosts}
    for link in trace.links:
        if link.src in near:
            near[link.src].add(link.dst)
    of = [
        host.split(".")[0] if ".gpu" in host else "".join(near[host]) if len(near[host]) == 1 else "" for host in hosts
    ]
    starts = [rank for rank in range(len(of)) if rank == 0 or of[rank] != of[rank - 1]]
    if "" in of or not 2 <= len(starts) <= most:
        size = -(-len(hosts) // most)
        starts = list(range(0, len(hosts), size))
        of = [f"ranks {first}–{min(first + size, len(hosts)) - 1}" for first in starts for _ in range(size)]
    ends = [*starts[1:], len(hosts)]
    return [(of[first], end - first) for first, end in zip(starts, ends, strict=True)]
