"""Topologies from files: GraphML, and JSON in networkx' node-link form."""

import json
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import networkx as nx

from collectives.errors import InputError
from collectives.transport import Transport
from simcomm.cluster.check import check_graph
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.graph import natural, rank_nodes

SUFFIXES = (".graphml", ".json")


def read_cluster(path: Path | str, transport: Transport | None = IDEAL) -> Cluster:
    """The cluster that a file describes; see ``simcomm.cluster.cluster.from_graph``.

    Raises InputError that names the file, the node or link, and the key.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: a topology is read from {' or '.join(SUFFIXES)} (node-link), not {path.suffix!r}")
    graph = check_graph((_from_graphml if path.suffix == ".graphml" else _from_json)(path), str(path))
    hosts = tuple(sorted(rank_nodes(graph), key=natural))
    return Cluster(f"{path.name}: {len(hosts)} hosts", graph, hosts, transport)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: it is not UTF-8 text") from error


def _from_graphml(path: Path) -> "nx.Graph[Any]":
    text = _text(path)
    try:
        return nx.parse_graphml(text)
    except (ParseError, nx.NetworkXException, LookupError, ValueError, TypeError) as error:
        raise InputError(f"{path}: not GraphML: {error}") from error


def _from_json(path: Path) -> "nx.Graph[Any]":
    text = _text(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    edges = "links" if isinstance(content, dict) and "links" in content else "edges"
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in ("nodes", edges)):
        raise InputError(f'{path}: not a graph in node-link form: an object with lists "nodes" and "edges" is needed')
    if content.get("multigraph") is True:
        return nx.MultiGraph()  # which is refused for being one, whatever is in it
    graph: nx.Graph[Any] = nx.DiGraph() if content.get("directed") is True else nx.Graph()
    for number, entry in enumerate(content["nodes"]):
        _add_node(graph, f"{path}: nodes.{number}", entry)
    for number, entry in enumerate(content[edges]):
        _add_edge(graph, f"{path}: {edges}.{number}", entry)
    return graph


def _add_node(graph: "nx.Graph[Any]", where: str, entry: object) -> None:
    node = _named(where, entry, "id")
    if node in graph:
        raise InputError(f"{where}: node {node!r} is there twice")
    assert isinstance(entry, dict)
    graph.add_node(node, **{key: value for key, value in entry.items() if key != "id"})


def _add_edge(graph: "nx.Graph[Any]", where: str, entry: object) -> None:
    a, b = _named(where, entry, "source"), _named(where, entry, "target")
    for end in (a, b):
        if end not in graph:
            raise InputError(f"{where}: node {end!r} is not among the nodes")
    if graph.has_edge(a, b):
        raise InputError(f"{where}: link {a} - {b} is there twice")
    assert isinstance(entry, dict)
    graph.add_edge(a, b, **{key: value for key, value in entry.items() if key not in ("source", "target")})


def _named(where: str, entry: object, key: str) -> str:
    name = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        raise InputError(f"{where}: {key} = {name!r}; the name of a node is needed")
    return str(name)
