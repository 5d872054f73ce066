"""Machines with what is in them, in rows: NVSwitches below the GPUs; PCIe switches, CPUs, memory, NICs and the network
above."""

import re
from collections.abc import Iterable

import networkx as nx

from viz.layout.geometry import (
    Box,
    Graph,
    Layout,
    Line,
    Point,
    bent,
    fitted,
    fitting_radius,
    lane_between,
    nearest_of_each,
)
from viz.layout.rows import place_nodes

PART = re.compile(r"n\d+\.([a-z]+)\d*")  # as simcomm.cluster.machines names them
SMALLEST, LARGEST = 2.5, 17.0  # pixels of a symbol's radius
ARC = 48.0  # pixels between the highest arc and its row


def in_machines(graph: Graph, hosts: tuple[str, ...], used: set[str], box: Box) -> Layout | None:
    """Layout of machines whose ranks are GPUs; None for another network.

    Memory and NICs that lead nowhere else are left out unless ``used``.
    """
    if not all(kind_in(host) == "gpu" for host in hosts):
        return None
    shown = _annotated(graph, [node for node in graph if node in used or not _is_dead_end(graph, node)])
    at = place_nodes(shown, hosts)
    places = fitted(at, _less_arcs(shown, at, box))
    radius = min(LARGEST, fitting_radius([places[host] for host in hosts]))
    room = nearest_of_each(places)
    radii = {n: radius if n in hosts else max(SMALLEST, min(LARGEST, 0.36 * room[n])) for n in places}
    kinds = {node: kind for node in shown if (kind := kind_in(node)) is not None}
    lanes = {(a, b): _lane(places, a, b, radii, _rise(at, a, b, kinds.get(a) == "gpu")) for a, b in shown.edges}
    return Layout(places, hosts, radii, lanes, kinds=kinds)


def kind_in(node: str) -> str | None:
    """``gpu`` of ``n0.gpu3``; None for what is no part of a machine."""
    found = PART.fullmatch(node)
    return found[1] if found else None


def _is_dead_end(graph: Graph, node: str) -> bool:
    return kind_in(node) in ("memory", "nic") and len(set(nx.all_neighbors(graph, node))) <= 1


def _annotated(graph: Graph, nodes: Iterable[str]) -> Graph:
    """These nodes with their kinds, and switches with their tier: how far they are from a NIC."""
    shown: Graph = nx.DiGraph(graph.subgraph(nodes).edges)
    shown.add_nodes_from(nodes)
    nics = {node for node in shown if kind_in(node) == "nic"}
    tiers = nx.multi_source_dijkstra_path_length(shown.to_undirected(), nics, weight=lambda *_: 1) if nics else {}
    for node in shown:
        kind = kind_in(node)
        shown.nodes[node].update({"kind": kind} if kind else {"kind": "switch", "tier": int(tiers.get(node, 1))})
    return shown


def _less_arcs(graph: Graph, at: dict[str, Point], box: Box) -> Box:
    """The box without the room that arcs along the lowest and the highest row need."""
    rises = {at[a][1]: _rise(at, a, b, kind_in(a) == "gpu") for a, b in graph.edges if _passes_others(at, a, b)}
    low, high = (limit(y for _, y in at.values()) for limit in (min, max))
    below, above = min(0.0, rises.get(low, 0.0)), max(0.0, rises.get(high, 0.0))
    return Box(box.left, box.bottom + ARC * (below < 0), box.right, box.top - ARC * (above > 0))


def _passes_others(at: dict[str, Point], a: str, b: str) -> bool:
    (x, y), (u, v) = at[a], at[b]
    return y == v and abs(u - x) > 1


def _rise(at: dict[str, Point], a: str, b: str, is_gpu: bool) -> float:
    """Pixels by which a link leaves its row so as to pass others: GPUs below, others above; the two ways apart."""
    if not _passes_others(at, a, b):
        return 0.0
    far = at[b][0] - at[a][0]
    return ARC * min(1.0, 0.3 + 0.1 * abs(far)) * (1.0 if far > 0 else 0.85) * (-1 if is_gpu else 1)


def _lane(places: dict[str, Point], a: str, b: str, radii: dict[str, float], rise: float) -> Line:
    lane = lane_between(places, a, b, radii)
    return bent(lane, (0.0, rise)) if rise else lane
