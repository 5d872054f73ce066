"""The layout of any network: hosts on an ellipse, clockwise by rank and beside those on the same switch; switches on
smaller ellipses, the further from a host the nearer to the middle."""

from collections.abc import Iterable
from math import atan2, cos, hypot, pi, sin

import networkx as nx

from viz.layout.geometry import (
    Box,
    Graph,
    Layout,
    fit_into,
    fitting_radius,
    least_distance,
    line_between,
    natural_order,
    nearest_distances,
)


def lay_out_ellipses(graph: Graph, all_hosts: tuple[str, ...], hosts: tuple[str, ...], box: Box) -> Layout:
    """Put hosts on the outermost ellipse, and switches on inner ones by their distance from a host."""
    angles, layers = _host_angles(graph, all_hosts), _layers(graph, all_hosts)
    shares = dict.fromkeys(all_hosts, 1.0)
    depth = len(layers) + (1 if layers and len(layers[-1]) > 1 else 0)
    for distance, layer in enumerate(layers, start=1):
        angles |= _switch_angles(graph, layer, angles)
        shares |= dict.fromkeys(layer, (1 - distance / depth) ** 1.3)
    on_unit_circle = {node: (shares[node] * cos(angles[node]), shares[node] * sin(angles[node])) for node in angles}
    positions = fit_into(box, on_unit_circle)
    radius = fitting_radius([positions[host] for host in all_hosts])
    room = nearest_distances(positions)
    radii = {
        node: radius if node in all_hosts else min(_switch_radius(graph, node, radius, len(layers)), 0.45 * room[node])
        for node in positions
    }
    lines = {(a, b): line_between(positions, a, b, radii) for a, b in graph.edges}
    return Layout(positions, hosts, radii, lines)


def _host_angles(graph: Graph, all_hosts: tuple[str, ...]) -> dict[str, float]:
    """Return the angle of each host: clockwise from the top, those on one switch together, gaps between switches."""
    groups: dict[str, list[str]] = {}
    for host in all_hosts:
        near = sorted(set(nx.all_neighbors(graph, host)) - set(all_hosts), key=natural_order)
        groups.setdefault(near[0] if len(near) == 1 else "", []).append(host)
    gap = 1 if len(groups) > 1 else 0
    slot = 2 * pi / (len(all_hosts) + gap * len(groups))
    first = len(next(iter(groups.values()))) - 1
    start = (pi if len(groups) == 2 or len(all_hosts) == 2 else pi / 2) + (slot * first / 2 if gap else 0)
    seats = [host for group in groups.values() for host in (*group, *[""] * gap)]
    return {host: start - index * slot for index, host in enumerate(seats) if host}


def _layers(graph: Graph, all_hosts: tuple[str, ...]) -> list[list[str]]:
    """Return the switches in layers, by how many links lie between them and the nearest host."""
    distance = nx.multi_source_dijkstra_path_length(graph.to_undirected(), set(all_hosts), weight=lambda *_: 1)
    inner = [node for node in graph if node not in all_hosts]
    farthest = max((int(distance.get(node, 1)) for node in inner), default=0)
    layers = [[node for node in inner if int(distance.get(node, 1)) == d] for d in range(1, farthest + 1)]
    return [sorted(layer, key=natural_order) for layer in layers]


def _switch_angles(graph: Graph, layer: list[str], angles: dict[str, float]) -> dict[str, float]:
    """Return for each switch the mean angle of its neighbours further out; evenly spread angles where some coincide."""
    outward = {node: [angles[peer] for peer in nx.all_neighbors(graph, node) if peer in angles] for node in layer}
    wanted = {node: _mean_angle(outward[node]) for node in layer}
    slot = 2 * pi / len(layer)
    points = [(cos(angle), sin(angle)) for angle in wanted.values()]
    if least_distance(points) > 0.4 * min(slot, 1.0):
        return wanted
    distinct = {round(angle, 6) for peers in outward.values() for angle in peers}
    start = pi / 2 + slot / 2 + pi / max(len(distinct), 1)
    return {node: start - index * slot for index, node in enumerate(layer)}


def _mean_angle(angles: Iterable[float]) -> float:
    """Return the angle of the mean of the unit vectors; upwards where they cancel."""
    points = [(cos(angle), sin(angle)) for angle in angles]
    x, y = sum(x for x, _ in points), sum(y for _, y in points)
    return round(atan2(y, x), 9) if hypot(x, y) > 1e-9 else pi / 2


def _switch_radius(graph: Graph, node: str, host_radius: float, layers: int) -> float:
    """Return a radius that lets messages from many links pass side by side; smaller where there are several layers."""
    room = 40.0 if layers == 1 else 16.0
    return min(room, max(min(13.0, host_radius), 3.5 * len(set(nx.all_neighbors(graph, node)))))
