"""Read clusters from files: GraphML, and JSON in networkx' node-link form.

GraphML is checked as strictly as JSON: anything that networkx would guess or ignore is rejected first.
"""

import re
from collections import Counter
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

KEYS = ("directed", "multigraph", "graph", "nodes")  # of a graph in node-link form, besides its edges
SUFFIXES = (".graphml", ".json")


def read_cluster(path: Path | str, transport: Transport | None = IDEAL) -> Cluster:
    """Read the graph of a ``.graphml`` or ``.json`` file; ``simcomm.from_graph`` describes its meaning.

    Raise InputError with the file, the node or link, and the key.

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
    text = read_text(path, FileBytes.GRAPH)
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
    text = read_text(path, FileBytes.GRAPH)
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
    """Return the name of a node under ``key``. Raise InputError if there is none."""
    name = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        raise InputError(f"{where}: {key} = {quote(name)}; the name of a node is needed")
    return str(name)


DIRECTIONS = ("directed", "undirected")
TYPES = ("boolean", "int", "long", "float", "double", "string")
INSIDE = {
    "graphml": {"key", "graph", "desc"},
    "key": {"desc"},
    "graph": {"node", "edge", "data", "desc"},
    "node": {"data"},
    "edge": {"data"},
}
ATTRIBUTES = {
    "key": {"id", "for", "attr.name", "attr.type"},
    "node": {"id", "parse.indegree", "parse.outdegree"},
    "edge": {"id", "source", "target", "directed"},
}
WHOLE = r"\s*[+-]?[0-9]+\s*"
DECIMAL = r"\s*[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|inf|INF|nan|NaN)\s*"
NUMBERS = {"int": WHOLE, "long": WHOLE, "float": DECIMAL, "double": DECIMAL}  # Python reads more, such as 1_000
DECLARED = re.compile(r"""<\?xml[^>]*\sencoding\s*=\s*["'](?!utf-?8["'])([^"']*)""", re.IGNORECASE)
NOT_GRAPHML = (
    ElementTree.ParseError, nx.NetworkXException, LookupError, ValueError, TypeError, AttributeError, RecursionError,
)  # fmt: skip
Keys = dict[str, ElementTree.Element]  # by id


class _Builder(ElementTree.TreeBuilder):
    """Builds the tree of a file, and rejects a document type, which could declare entities."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        """Reject a document type declaration."""
        raise InputError("a document type is declared; leave <!DOCTYPE ...> out, and write entities out")


def read_graphml(text: str) -> "nx.Graph[Any]":
    """Return the graph of a GraphML text. Raise InputError with the node or edge.

    >>> read_graphml("<graphml/>")
    Traceback (most recent call last):
    collectives.errors.InputError: there are 0 graphs; one is needed
    """
    declared = DECLARED.match(text)
    if declared and not text.isascii():
        raise InputError(f"encoding {quote(declared[1])} is declared, and it is read as UTF-8; write it so")
    try:
        root = ElementTree.fromstring(text, ElementTree.XMLParser(target=_Builder()))
        _check(root)
        return nx.parse_graphml(text)
    except InputError:
        raise
    except NOT_GRAPHML as error:
        raise InputError(f"not GraphML: {quote(str(error))[1:-1]}") from error


def _check(root: ElementTree.Element) -> None:
    """Raise InputError for content outside the format, or that networkx would misread."""
    if _tag(root) != "graphml":
        raise InputError(f"not GraphML: it begins with <{_tag(root)}>")
    _check_children(root, "graphml")
    graphs = [child for child in root if _tag(child) == "graph"]
    if len(graphs) != 1:
        raise InputError(f"there are {len(graphs)} graphs; one is needed")
    if graphs[0].get("edgedefault") not in DIRECTIONS:
        raise InputError(f"edgedefault = {quote(graphs[0].get('edgedefault'))}; there are {' and '.join(DIRECTIONS)}")
    _check_children(graphs[0], "graph")
    keys = _check_keys(root)
    nodes = _check_nodes(graphs[0], keys)
    _check_edges(graphs[0], keys, nodes)


def _check_keys(root: ElementTree.Element) -> Keys:
    """Return the keys of values, by id."""
    keys = [child for child in root if _tag(child) == "key"]
    for key in keys:
        where = f"key {quote(key.get('id'))}"
        if key.get("attr.type") not in TYPES:
            raise InputError(f"{where}: attr.type = {quote(key.get('attr.type'))}; there are {', '.join(TYPES)}")
        if not key.get("attr.name"):
            raise InputError(f"{where}: attr.name is missing")
        _check_children(key, "key")
    _check_once("key", [key.get("id") for key in keys])
    return {key.get("id", ""): key for key in keys}


def _check_nodes(graph: ElementTree.Element, keys: Keys) -> set[str]:
    """Return the names of the nodes."""
    nodes = [child for child in graph if _tag(child) == "node"]
    for number, node in enumerate(nodes):
        if not node.get("id"):
            raise InputError(f"node {number} has no id")
        _check_values(f"node {quote(node.get('id'))}", node, "node", keys)
    _check_once("node", [node.get("id") for node in nodes])
    return {node.get("id", "") for node in nodes}


def _check_edges(graph: ElementTree.Element, keys: Keys, nodes: set[str]) -> None:
    is_directed, found = graph.get("edgedefault") == "directed", []
    for edge in (child for child in graph if _tag(child) == "edge"):
        a, b = edge.get("source", ""), edge.get("target", "")
        where = f"edge {quote(a)} - {quote(b)}"
        for end in (a, b):
            if end not in nodes:
                raise InputError(f"{where}: node {quote(end)} is not among the nodes")
        if edge.get("directed") not in (None, str(is_directed).lower()):
            raise InputError(f"{where}: directed = {quote(edge.get('directed'))}, unlike the graph")
        _check_values(where, edge, "edge", keys)
        found.append((a, b) if is_directed else tuple(sorted((a, b))))
    _check_once("edge", found)


def _check_values(where: str, element: ElementTree.Element, kind: str, keys: Keys) -> None:
    _check_children(element, kind)
    for data in element:
        key = keys.get(data.get("key", ""))
        if key is None or key.get("for", "all") not in (kind, "all"):
            raise InputError(f"{where}: data of key {quote(data.get('key'))}, which is not declared for {kind}s")
        if len(data):
            raise InputError(f"{where}: data of key {quote(data.get('key'))} holds elements; give a value")
        number = NUMBERS.get(key.get("attr.type", ""))
        if number and not re.fullmatch(number, data.text or "", re.ASCII):
            name = key.get("attr.name")
            raise InputError(f"{where}: {quote(name)[1:-1]} = {quote(data.text)} is no {key.get('attr.type')}")
    _check_once(f"{where}:", [keys[data.get("key", "")].get("attr.name") for data in element])


def _check_children(element: ElementTree.Element, kind: str) -> None:
    """Raise InputError for elements and attributes that would be ignored."""
    for name in {*element.keys()} - ATTRIBUTES.get(kind, {*element.keys()}):
        if not name.startswith("{"):  # those of XML itself
            raise InputError(f"<{kind}> has an attribute {quote(name)}, which is not read; give values as <data>")
    for child in element:
        if _tag(child) not in INSIDE[kind] or _space(child) != _space(element):
            raise InputError(f"<{kind}> holds <{quote(_tag(child))[1:-1]}>, which is not read")


def _check_once(what: str, names: list[Any]) -> None:
    """Raise InputError for a duplicate name."""
    for name, times in Counter(names).items():
        if times > 1:
            shown = " - ".join(map(quote, name)) if isinstance(name, tuple) else quote(name)
            raise InputError(f"{what} {shown} is there {'twice' if times == 2 else f'{times} times'}")


def _tag(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _space(element: ElementTree.Element) -> str:
    """Return the namespace of an element."""
    return str(element.tag).rpartition("}")[0]
