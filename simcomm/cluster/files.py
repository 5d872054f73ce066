"""Clusters from files: GraphML, and JSON in networkx' node-link form."""

from math import isfinite
from pathlib import Path
from typing import Any

import networkx as nx

from collectives.checks import check_path
from collectives.errors import InputError
from collectives.input_files import MEBIBYTE, parse_json, read_text
from collectives.quoting import quote
from collectives.transport import Transport
from collectives.units import count
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.graph import natural_key, rank_nodes
from simcomm.cluster.graph_check import check_graph
from simcomm.cluster.graphml import read_graphml

KEYS = ("directed", "multigraph", "graph", "nodes")  # of a graph in node-link form, besides its edges
SUFFIXES = (".graphml", ".json")
MOST_BYTES = 32 * MEBIBYTE  # some 200,000 links


def read_cluster(path: Path | str, transport: Transport | None = IDEAL) -> Cluster:
    """Read the graph of a ``.graphml`` or ``.json`` file; what it means, see ``simcomm.from_graph``.

    Raises InputError that names the file, the node or link, and the key.

    >>> read_cluster("cluster.csv")
    Traceback (most recent call last):
    ...
    collectives.errors.InputError: cluster.csv: a topology is read from .graphml or .json (node-link), not '.csv'
    """
    path = check_path("path", path)
    if path.suffix not in SUFFIXES:
        raise InputError(
            f"{path}: a topology is read from {' or '.join(SUFFIXES)} (node-link), not {quote(path.suffix)}"
        )
    graph = check_graph((_from_graphml if path.suffix == ".graphml" else _from_json)(path), str(path))
    hosts = tuple(sorted(rank_nodes(graph), key=natural_key))
    return Cluster(f"{path.name}: {count(len(hosts), 'host')}", graph, hosts, transport)


def _from_graphml(path: Path) -> "nx.Graph[Any]":
    text = read_text(path, MOST_BYTES)
    try:
        graph = read_graphml(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    for node, data in graph.nodes(data=True):
        _check_finite(f"{path}: node {quote(node)}", data)
    for a, b, data in graph.edges(data=True):
        _check_finite(f"{path}: link {a} - {b}", data)
    return graph


def _from_json(path: Path) -> "nx.Graph[Any]":
    text = read_text(path, MOST_BYTES)
    try:
        content = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    edges = "links" if isinstance(content, dict) and "links" in content else "edges"
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in ("nodes", edges)):
        raise InputError(f'{path}: not a graph in node-link form: an object with lists "nodes" and "edges" is needed')
    for key in ("directed", "multigraph"):
        if not isinstance(content.get(key, False), bool):
            raise InputError(f"{path}: {key} = {quote(content[key])}; there are true and false")
    for key in content:
        if key not in (*KEYS, edges):
            raise InputError(f"{path}: {quote(key)} is no known key; there are {', '.join((*KEYS, edges))}")
    if content.get("multigraph") is True:
        return nx.MultiGraph()  # check_graph refuses it, whatever it contains
    graph: nx.Graph[Any] = nx.DiGraph() if content.get("directed") is True else nx.Graph()
    for number, entry in enumerate(content["nodes"]):
        _add_node(graph, f"{path}: nodes.{number}", entry)
    for number, entry in enumerate(content[edges]):
        _add_edge(graph, f"{path}: {edges}.{number}", entry)
    return graph


def _add_node(graph: "nx.Graph[Any]", where: str, entry: object) -> None:
    node = _name(where, entry, "id")
    if node in graph:
        raise InputError(f"{where}: node {quote(node)} is there twice")
    assert isinstance(entry, dict)
    _check_finite(where, entry)
    graph.add_node(node, **{key: value for key, value in entry.items() if key != "id"})


def _add_edge(graph: "nx.Graph[Any]", where: str, entry: object) -> None:
    a, b = _name(where, entry, "source"), _name(where, entry, "target")
    for end in (a, b):
        if end not in graph:
            raise InputError(f"{where}: node {quote(end)} is not among the nodes")
    if graph.has_edge(a, b):
        raise InputError(f"{where}: link {a} - {b} is there twice")
    assert isinstance(entry, dict)
    _check_finite(where, entry)
    graph.add_edge(a, b, **{key: value for key, value in entry.items() if key not in ("source", "target")})


def _check_finite(where: str, values: dict[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, float) and not isfinite(value):
            raise InputError(f"{where}: {key} = {value}; give a finite number")


def _name(where: str, entry: object, key: str) -> str:
    """Return the name of a node under ``key`` of a node or link. Raise InputError where there is none."""
    name = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        raise InputError(f"{where}: {key} = {quote(name)}; the name of a node is needed")
    return str(name)
