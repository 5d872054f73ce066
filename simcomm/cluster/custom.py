"""Build your own cluster from a list of links, a networkx graph or a file, and check it."""

import re
from collections.abc import Iterable, Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any

import networkx as nx

from collectives.checks import check_path, check_whole_number, is_finite_number
from collectives.errors import InputError
from collectives.input_files import FileBytes, parse_json, read_text
from collectives.quoting import MOST_LETTERS, quote
from collectives.transport import Transport
from collectives.units import Bandwidth, Latency, count
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.graph import (
    KINDS,
    P2P_LEVELS,
    add_link,
    check_connected,
    check_is_graph,
    empty_graph,
    link_spec,
    natural_key,
    node_kind,
    rank_nodes,
)

NODE_KEYS = ("kind", "machine", "rail", "local", "p2p_level", "memory")
EDGE_KEYS = ("bandwidth", "latency", "shared_bandwidth", "usable_bandwidth", "medium")
RATES = ("bandwidth", "shared_bandwidth", "usable_bandwidth")
GRAPH_KEYS = ("directed", "multigraph", "graph", "nodes")  # in node-link form, in addition to the edges
SUFFIX = ".json"


def from_links(
    links: Iterable[tuple[str, str, str | Bandwidth, str | Latency]],
    transport: Transport | None = IDEAL,
    title: str = "",
    world_size: int | None = None,
) -> Cluster:
    """Build a cluster from links ``(a, b, bandwidth, latency)``. Nodes named h* hold one rank each; s* are switches.

    Raise InputError for other node names, duplicate links, self-loops, a disconnected network, a network without hosts,
    or more ranks than hosts.

    >>> from_links([("h0", "s0", "10 Gbit/s", "1 us"), ("h1", "s0", "25 Gbit/s", "1 us")])
    <Cluster 2 hosts, 2 links: 2 ranks, 3 nodes, 4 links>
    """
    if not isinstance(links, Iterable):
        raise InputError(f"links must be a list of (node, node, bandwidth, latency), not {quote(links)}")
    graph = empty_graph()
    for link in links:
        if not isinstance(link, list | tuple) or len(link) != 4:
            raise InputError(f"a link must be (node, node, bandwidth, latency), not {quote(link)}")
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
    """Build a cluster from a networkx graph with ``bandwidth`` (bytes/s) and ``latency`` (seconds) on its edges.

    In an undirected graph, each edge represents both directions. Ranks are placed in natural order on every node whose
    ``kind`` is host or gpu. A node without a kind holds a rank if its name begins with h. Raise InputError if the graph
    is invalid.

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


def read_cluster(path: Path | str, transport: Transport | None = IDEAL) -> Cluster:
    """Build a cluster from a ``.json`` file in networkx's node-link format. ``from_graph`` describes its attributes.

    If the file is invalid, raise an InputError that names the file, the node or link, and the key.

    >>> read_cluster("cluster.csv")
    Traceback (most recent call last):
    ...
    collectives.errors.InputError: cluster.csv: a topology must be a .json file; write one with networkx.node_link_data
    """
    path = check_path("path", path)
    if path.suffix != SUFFIX:
        raise InputError(f"{path}: a topology must be a {SUFFIX} file; write one with networkx.node_link_data")
    text = read_text(path, FileBytes.GRAPH)
    try:
        graph = check_graph(_graph_of(_read_json(text)))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    hosts = tuple(sorted(rank_nodes(graph), key=natural_key))
    return Cluster(f"{path.name}: {count(len(hosts), 'host')}", graph, hosts, transport)


def _read_json(text: str) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from error


def _graph_of(content: Any) -> "nx.Graph[Any]":
    edges = "links" if isinstance(content, dict) and "links" in content else "edges"
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in ("nodes", edges)):
        raise InputError('not a graph in node-link form: it must be an object with lists "nodes" and "edges"')
    for key in ("directed", "multigraph"):
        if not isinstance(content.get(key, False), bool):
            raise InputError(f"{key} must be true or false, not {quote(content[key])}")
    for key in content:
        if key not in (*GRAPH_KEYS, edges):
            raise InputError(f"unknown key {quote(key)}; use {', '.join((*GRAPH_KEYS, edges))}")
    if content.get("multigraph") is True:
        return nx.MultiGraph()  # check_graph rejects it
    graph: nx.Graph[Any] = nx.DiGraph() if content.get("directed") is True else nx.Graph()
    for number, entry in enumerate(content["nodes"]):
        node = _name(f"nodes.{number}", entry, "id")
        if node in graph:
            raise InputError(f"nodes.{number}: duplicate node {quote(node)}")
        graph.add_node(node, **_finite_values(f"nodes.{number}", entry, ("id",)))
    for number, entry in enumerate(content[edges]):
        where = f"{edges}.{number}"
        a, b = _name(where, entry, "source"), _name(where, entry, "target")
        for node in (a, b):
            if node not in graph:
                raise InputError(f'{where}: node {quote(node)} does not exist; add it to "nodes"')
        if graph.has_edge(a, b):
            raise InputError(f"{where}: duplicate link {a} - {b}")
        graph.add_edge(a, b, **_finite_values(where, entry, ("source", "target")))
    return graph


def _name(where: str, entry: object, key: str) -> str:
    name = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        raise InputError(f"{where}: {key} must be the name of a node, not {quote(name)}")
    return str(name)


def _finite_values(where: str, entry: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    values = {key: value for key, value in entry.items() if key not in names}
    for key, value in values.items():
        if isinstance(value, float) and not isfinite(value):
            raise InputError(f"{where}: {key} must be a finite number, not {value}")
    return values


def _check_link(graph: "nx.DiGraph[str]", a: str, b: str) -> None:
    for node in (a, b):
        if not isinstance(node, str) or not re.fullmatch(r"[hs]\w{,99}", node):
            raise InputError(
                f"link {a} - {b}: node must be a host h0, h1, ... or a switch s0, s1, ..., not {quote(node)}"
            )
    if a == b:
        raise InputError(f"link {a} - {b}: the two nodes must be different")
    if graph.has_edge(a, b):
        raise InputError(f"duplicate link {a} - {b}")


def check_graph(graph: "nx.Graph[Any]") -> "nx.DiGraph[str]":
    """Check a graph, and return a copy with both directions of each link, names as strings, and numbers as floats.

    If the graph is invalid, raise an InputError that names the node or link, and the key.
    """
    if graph.is_multigraph():
        raise InputError("several links between two nodes are not supported; set one link with the total bandwidth")
    directed: nx.DiGraph[str] = nx.DiGraph()
    for node, data in graph.nodes(data=True):
        if not str(node) or len(str(node)) > MOST_LETTERS or not str(node).isprintable():
            raise InputError(f"node {quote(str(node))}: a name must be 1 to {MOST_LETTERS} printable characters")
        if str(node) in directed:
            raise InputError(f"duplicate node {node}")
        directed.add_node(str(node), **_node_attributes(f"node {node}", data))
    for a, b, data in graph.edges(data=True):
        if a == b:
            raise InputError(f"link {a} - {b}: the two nodes must be different")
        attributes = _edge_attributes(f"link {a} - {b}", data)
        for src, dst in ((a, b),) if graph.is_directed() else ((a, b), (b, a)):
            directed.add_edge(str(src), str(dst), **attributes)
    _check_memories(directed)
    _check_reachable(directed)
    return directed


def _node_attributes(where: str, data: Mapping[str, Any]) -> dict[str, Any]:
    _check_keys(where, data, NODE_KEYS)
    for key, accepted in (("kind", KINDS), ("p2p_level", P2P_LEVELS)):
        if key in data and data[key] not in accepted:
            raise InputError(f"{where}: {key} must be one of {', '.join(accepted)}, not {quote(data[key])}")
    for key in ("machine", "rail", "local"):
        if key in data:
            check_whole_number(f"{where}: {key}", data[key], at_least=0)
    for key in ("rail", "local"):
        if key in data and "machine" not in data:
            raise InputError(f"{where}: {key} requires machine, the number of the host (0, 1, ...)")
    return dict(data)


def _edge_attributes(where: str, data: Mapping[str, Any]) -> dict[str, Any]:
    _check_keys(where, data, EDGE_KEYS)
    for key in ("bandwidth", "latency"):
        if key not in data:
            raise InputError(f"{where}: {key} is missing; set it to {_EXPECTED[key]}")
    for key in (*RATES, "latency"):
        if key in data and not _is_quantity(data[key], above_zero=key in RATES):
            raise InputError(
                f"{where}: {key} must be {_EXPECTED.get(key, _EXPECTED['bandwidth'])}, not {quote(data[key])}"
            )
    if data.get("usable_bandwidth", 0.0) > data["bandwidth"]:
        raise InputError(
            f"{where}: usable_bandwidth must be at most bandwidth ({data['bandwidth']}), not {data['usable_bandwidth']}"
        )
    medium = data.get("medium", "")
    if not isinstance(medium, str) or len(medium) > MOST_LETTERS or not medium.isprintable():
        raise InputError(f"{where}: medium must be at most {MOST_LETTERS} characters, not {quote(medium)}")
    return {key: value if key == "medium" else abs(float(value)) for key, value in data.items()}  # no -0.0


_EXPECTED = {"bandwidth": "a positive number of bytes per second", "latency": "a non-negative number of seconds"}


def _is_quantity(value: object, above_zero: bool) -> bool:
    if isinstance(value, float) and value == inf:
        return above_zero
    return is_finite_number(value) and (value > 0 if above_zero else value >= 0)


def _check_keys(where: str, data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in data:
        if key not in known:
            raise InputError(f"{where}: unknown key {key}; use {', '.join(known)}")


def _check_memories(graph: "nx.DiGraph[str]") -> None:
    for node, data in graph.nodes(data=True):
        memory = data.get("memory")
        if memory is not None and memory not in graph:
            raise InputError(f"node {node}: memory must name an existing node, not {quote(memory)}")
        if data.get("p2p_level", "SYS") != "SYS" and memory is None:
            raise InputError(
                f"node {node}: p2p_level {quote(data['p2p_level'])} requires memory, the name of the host memory's node"
            )
        if "machine" not in data and node_kind(graph, node) == "gpu" and memory is not None:
            raise InputError(f"node {node}: memory requires machine, the number of the host (0, 1, ...)")


def _check_reachable(graph: "nx.DiGraph[str]") -> None:
    check_connected(graph)
    first = rank_nodes(graph)[0]
    for is_forward, reached in ((True, nx.descendants(graph, first)), (False, nx.ancestors(graph, first))):
        for node in rank_nodes(graph):
            if node != first and node not in reached:
                ends = (first, node) if is_forward else (node, first)
                raise InputError(f"no route from {ends[0]} to {ends[1]}; add both directions of each link")
