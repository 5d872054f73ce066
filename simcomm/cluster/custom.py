"""Clusters of a user's own making: from a list of links, or from a networkx graph."""

import re
from collections.abc import Iterable

import networkx as nx

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.transport import Transport
from collectives.units import Bandwidth, Latency, count
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.graph import (
    add_link,
    check_connected,
    check_is_graph,
    empty_graph,
    link_spec,
    natural_key,
    rank_nodes,
)
from simcomm.cluster.graph_check import check_graph


def from_links(
    links: Iterable[tuple[str, str, str | Bandwidth, str | Latency]],
    transport: Transport | None = IDEAL,
    title: str = "",
    world_size: int | None = None,
) -> Cluster:
    """Build a cluster of links ``(a, b, bandwidth, latency)``; nodes named h* hold one rank each, s* are switches.

    Raises InputError for a node that is neither, a link twice, a link from a node to itself, a network in pieces, no
    host, or more ranks than hosts.

    >>> from_links([("h0", "s0", "10 Gbit/s", "1 us"), ("h1", "s0", "25 Gbit/s", "1 us")])
    <Cluster 2 hosts, 2 links: 2 ranks, 3 nodes, 4 links>
    """
    if not isinstance(links, Iterable):
        raise InputError(f"links is {quote(links)}; give a list of links, each two nodes, a bandwidth and a latency")
    graph = empty_graph()
    for link in links:
        if not isinstance(link, list | tuple) or len(link) != 4:
            raise InputError(f"link is {quote(link)}; give two nodes, a bandwidth and a latency")
        a, b, bandwidth, latency = link
        _check_link(graph, a, b)
        add_link(graph, a, b, link_spec(bandwidth, latency))
    hosts = sorted(rank_nodes(graph), key=natural_key)
    check_connected(graph)
    title = title or f"{count(len(hosts), 'host')}, {count(graph.number_of_edges() // 2, 'link')}"
    cluster = Cluster(title, graph, tuple(hosts), transport)
    return cluster if world_size is None else cluster.on_first(world_size)


def from_graph(
    graph: "nx.Graph[str] | nx.DiGraph[str]", transport: Transport | None = IDEAL, title: str = ""
) -> Cluster:
    """Build a cluster of a networkx graph with ``bandwidth`` (bytes/s) and ``latency`` (seconds) on its edges.

    An edge of an undirected graph stands for both directions. One rank lives on every node whose ``kind`` is host or
    gpu or, where it has no kind, whose name begins with h; in natural order. Raises InputError that names edge and key.

    >>> graph = nx.Graph()
    >>> graph.add_edge("h0", "h1", bandwidth=1.25e9, latency=5e-6)
    >>> from_graph(graph)
    <Cluster 2 hosts, 2 nodes: 2 ranks, 2 nodes, 2 links>
    """
    check_is_graph(graph)
    directed = check_graph(graph)
    hosts = tuple(sorted(rank_nodes(directed), key=natural_key))
    return Cluster(
        title or f"{count(len(hosts), 'host')}, {count(directed.number_of_nodes(), 'node')}", directed, hosts, transport
    )


def _check_link(graph: "nx.DiGraph[str]", a: str, b: str) -> None:
    for node in (a, b):
        if not isinstance(node, str) or not re.fullmatch(r"[hs]\w{,99}", node):
            raise InputError(
                f"link {a} - {b}: node {quote(node)} leads nowhere; name hosts h0, h1, ... and switches s0, s1, ..."
            )
    if a == b:
        raise InputError(f"link {a} - {b}: a link needs two different nodes")
    if graph.has_edge(a, b):
        raise InputError(f"link {a} - {b} is there twice")
