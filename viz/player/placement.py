"""Which nodes stand where in the player: those that no message passes are left out, and many ranks are in groups."""

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from collectives.records.trace import Trace
from viz.layout.geometry import Point
from viz.layout.placement import place_nodes

MOST_NODES = 300  # ranks that stand by themselves; of more, groups do


@dataclass(frozen=True)
class ShownNodes:
    """The kind of layout, where each shown node stands, and how many carry nothing and are left out."""

    kind: str  # circle, star, memory, racks, grid, tiers, or groups
    at: dict[str, Point]
    hidden: int = 0

    @property
    def in_groups(self) -> bool:
        """Whether no rank stands by itself."""
        return not self.at


def place(trace: Trace, hosts: Sequence[str], used: set[str]) -> ShownNodes:
    """Return where the nodes of a trace stand; ``used`` are those that some message passes.

    >>> place(Trace("two", "predicted", 2, 1.0), ["h0", "h1"], set()).at
    {'h0': (0.0, 0.5), 'h1': (1.0, 0.5)}
    """
    if len(hosts) > MOST_NODES:
        return ShownNodes("groups", {})
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(hosts)
    graph.add_edges_from((link.src, link.dst) for link in trace.links)
    idle = [node for node in graph if used and node not in used and node not in hosts]
    graph.remove_nodes_from(idle)
    found = place_nodes(graph, hosts)
    return ShownNodes(found.kind, {node: (round(x, 4), round(y, 4)) for node, (x, y) in found.at.items()}, len(idle))


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
