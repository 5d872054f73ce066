"""Read clusters from files: JSON in networkx's node-link form, and GraphML, which is first converted to that form."""

from collections.abc import Callable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import networkx as nx

from collectives.checks import check_path
from collectives.errors import InputError
from collectives.input_files import FileBytes, parse_json, read_text
from collectives.quoting import quote
from collectives.transport import Transport
from collectives.units import count
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.custom import check_graph
from simcomm.cluster.graph import natural_key, rank_nodes

KEYS = ("directed", "multigraph", "graph", "nodes")  # of a graph in node-link form, in addition to its edges
SUFFIXES = (".graphml", ".json")


def read_cluster(path: Path | str, transport: Transport | None = IDEAL) -> Cluster:
    """Read the graph of a ``.graphml`` or ``.json`` file; ``simcomm.from_graph`` describes its attributes.

    Raise InputError that names the file, the node or link, and the key.

    >>> read_cluster("cluster.csv")
    Traceback (most recent call last):
    ...
    collectives.errors.InputError: cluster.csv: a topology must be a .graphml or .json (node-link) file, not '.csv'
    """
    path = check_path("path", path)
    if path.suffix not in SUFFIXES:
        raise InputError(
            f"{path}: a topology must be a {' or '.join(SUFFIXES)} (node-link) file, not {quote(path.suffix)}"
        )
    text = read_text(path, FileBytes.GRAPH)
    try:
        graph = check_graph(_graph_of(_read_graphml(text) if path.suffix == ".graphml" else _read_json(text)))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    hosts = tuple(sorted(rank_nodes(graph), key=natural_key))
    return Cluster(f"{path.name}: {count(len(hosts), 'host')}", graph, hosts, transport)


def _read_json(text: str) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from error


BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
TYPES: dict[str, Callable[[str], Any]] = {
    "boolean": BOOLEANS.__getitem__, "int": int, "long": int, "float": float, "double": float, "string": str
}  # fmt: skip
INSIDE = {
    "graphml": {"key", "graph", "desc"},
    "key": {"desc"},
    "graph": {"node", "edge", "desc"},
    "node": {"data"},
    "edge": {"data"},
}


def _read_graphml(text: str) -> dict[str, Any]:
    """Convert GraphML to node-link form. Raise InputError for elements that would be ignored."""
    if "<!DOCTYPE" in text:  # could declare entities
        raise InputError(
            "the file must not declare a document type; remove <!DOCTYPE ...> and replace entities by their text"
        )
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, RecursionError) as error:
        raise InputError(f"not GraphML: {error}") from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]  # without its namespace
    graphs = root.findall("graph")
    if root.tag != "graphml" or len(graphs) != 1:
        raise InputError(f"the file must have one <graph> in <graphml>, not {len(graphs)} in <{root.tag}>")
    for element in (root, *root.findall("key"), graphs[0], *graphs[0]):
        for child in element:
            if child.tag not in INSIDE.get(element.tag, ()):
                raise InputError(f"<{element.tag}> must not contain <{quote(child.tag)[1:-1]}>")
    keys = {key.get("id"): key for key in root.findall("key")}
    direction = graphs[0].get("edgedefault")
    if direction not in ("directed", "undirected"):
        raise InputError(f"edgedefault must be directed or undirected, not {quote(direction)}")
    nodes = [{**_values(node, keys), **node.attrib} for node in graphs[0].findall("node")]
    edges = [{**_values(edge, keys), **edge.attrib} for edge in graphs[0].findall("edge")]
    for edge in edges:
        edge.pop("id", None)  # other programs number edges
    return {"directed": direction == "directed", "nodes": nodes, "edges": edges}


def _values(element: ElementTree.Element, keys: dict[str | None, ElementTree.Element]) -> dict[str, Any]:
    where, values = f"{element.tag} {quote(' - '.join(element.attrib.values()))}", dict[str, Any]()
    for data in element:
        key = keys.get(data.get("key"))
        if key is None or key.get("for", "all") not in (element.tag, "all") or len(data):
            raise InputError(f"{where}: key {quote(data.get('key'))} must be declared for {element.tag}s, with a value")
        name, type_name = key.get("attr.name", ""), key.get("attr.type", "")
        if name in values:
            raise InputError(f"{where}: duplicate {quote(name)}")
        try:
            values[name] = TYPES[type_name]((data.text or "").strip())
        except (KeyError, ValueError) as error:
            text = f"must be of type {type_name}, one of {', '.join(TYPES)}"
            raise InputError(f"{where}: {name} {text}, not {quote(data.text)}") from error
    return values


def _graph_of(content: Any) -> "nx.Graph[Any]":
    """Build the graph of node-link data. Raise InputError that names the entry and the key."""
    edges = "links" if isinstance(content, dict) and "links" in content else "edges"
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in ("nodes", edges)):
        raise InputError('not a graph in node-link form: an object with lists "nodes" and "edges" is needed')
    for key in ("directed", "multigraph"):
        if not isinstance(content.get(key, False), bool):
            raise InputError(f"{key} must be true or false, not {quote(content[key])}")
    for key in content:
        if key not in (*KEYS, edges):
            raise InputError(f"unknown key {quote(key)}; use {', '.join((*KEYS, edges))}")
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
        for end in (a, b):
            if end not in graph:
                raise InputError(f"{where}: node {quote(end)} does not exist")
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
    """Return the values of an entry, without those in ``names``. Raise InputError for numbers that are not finite."""
    values = {key: value for key, value in entry.items() if key not in names}
    for key, value in values.items():
        if isinstance(value, float) and not isfinite(value):
            raise InputError(f"{where}: {key} must be a finite number, not {value}")
    return values
