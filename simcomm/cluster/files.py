"""Read clusters from files: GraphML, and JSON in networkx' node-link form.

GraphML is checked as strictly as JSON: an element or attribute that would be ignored is an error.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
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
    text = read_text(path, FileBytes.GRAPH)
    try:
        graph = check_graph(read_graphml(text) if path.suffix == ".graphml" else _read_json(text))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    hosts = tuple(sorted(rank_nodes(graph), key=natural_key))
    return Cluster(f"{path.name}: {count(len(hosts), 'host')}", graph, hosts, transport)


def _read_json(text: str) -> "nx.Graph[Any]":
    try:
        content = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from error
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
        _add_node(graph, f"nodes.{number}", entry)
    for number, entry in enumerate(content[edges]):
        _add_edge(graph, f"{edges}.{number}", entry)
    return graph


def _add_node(graph: "nx.Graph[Any]", where: str, entry: Any) -> None:
    node = _name(where, entry, "id")
    if node in graph:
        raise InputError(f"{where}: duplicate node {quote(node)}")
    graph.add_node(node, **_finite_values(where, entry, ("id",)))


def _add_edge(graph: "nx.Graph[Any]", where: str, entry: Any) -> None:
    a, b = _name(where, entry, "source"), _name(where, entry, "target")
    for end in (a, b):
        if end not in graph:
            raise InputError(f"{where}: node {quote(end)} does not exist")
    if graph.has_edge(a, b):
        raise InputError(f"{where}: duplicate link {a} - {b}")
    graph.add_edge(a, b, **_finite_values(where, entry, ("source", "target")))


def _name(where: str, entry: object, key: str) -> str:
    name = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        raise InputError(f"{where}: {key} must be the name of a node, not {quote(name)}")
    return str(name)


def _finite_values(where: str, entry: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return the values of an entry except its ``names``. Raise InputError for numbers that are not finite."""
    values = {key: value for key, value in entry.items() if key not in names}
    for key, value in values.items():
        if isinstance(value, float) and not isfinite(value):
            raise InputError(f"{where}: {key} must be a finite number, not {value}")
    return values


DIRECTIONS = ("directed", "undirected")
WHOLE = r"\s*[+-]?[0-9]+\s*"
DECIMAL = r"\s*[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|inf|INF|nan|NaN)\s*"
TYPES = {"boolean": r"true|false|0|1", "int": WHOLE, "long": WHOLE, "float": DECIMAL, "double": DECIMAL, "string": ""}
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
ENCODING = re.compile(r"""<\?xml[^>]*\sencoding\s*=\s*["'](?!utf-?8["'])([^"']*)""", re.IGNORECASE)
Keys = dict[str | None, ElementTree.Element]  # by id


class _Builder(ElementTree.TreeBuilder):
    """Builds the tree of a file, and rejects a document type, which could declare entities."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise InputError("the file declares a document type; remove <!DOCTYPE ...> and write entities out")


def read_graphml(text: str) -> "nx.Graph[Any]":
    """Return the graph of a GraphML text. Raise InputError with the node or edge.

    >>> read_graphml("<graphml/>")
    Traceback (most recent call last):
    collectives.errors.InputError: the file must have one graph, not 0
    """
    encoding = ENCODING.match(text)
    if encoding and not text.isascii():
        raise InputError(f"the file declares encoding {quote(encoding[1])}; write it in UTF-8")
    try:
        return _read_graph(ElementTree.fromstring(text, ElementTree.XMLParser(target=_Builder())))
    except InputError:
        raise
    except (ElementTree.ParseError, LookupError, ValueError, RecursionError) as error:
        raise InputError(f"not GraphML: {quote(str(error))[1:-1]}") from error


def _read_graph(root: ElementTree.Element) -> "nx.Graph[Any]":
    if _tag(root) != "graphml":
        raise InputError(f"not GraphML: it begins with <{_tag(root)}>")
    _check_children(root, "graphml")
    graphs = list(_children(root, "graph"))
    if len(graphs) != 1:
        raise InputError(f"the file must have one graph, not {len(graphs)}")
    (element,) = graphs
    _check_children(element, "graph")
    if element.get("edgedefault") not in DIRECTIONS:
        raise InputError(f"edgedefault must be {' or '.join(DIRECTIONS)}, not {quote(element.get('edgedefault'))}")
    keys, is_directed = _read_keys(root), element.get("edgedefault") == "directed"
    graph: nx.Graph[Any] = nx.DiGraph() if is_directed else nx.Graph()
    for number, node in enumerate(_children(element, "node")):
        where = f"node {quote(node.get('id', number))}"
        _add_node(graph, where, {**_values(where, node, "node", keys), "id": node.get("id")})
    for edge in _children(element, "edge"):
        ends = {"source": edge.get("source"), "target": edge.get("target")}
        where = f"edge {' - '.join(map(quote, ends.values()))}"
        if edge.get("directed") not in (None, str(is_directed).lower()):
            raise InputError(f"{where}: directed = {quote(edge.get('directed'))}, unlike the graph")
        _add_edge(graph, where, {**_values(where, edge, "edge", keys), **ends})
    return graph


def _read_keys(root: ElementTree.Element) -> Keys:
    """Return the declarations of values, by id."""
    keys = list(_children(root, "key"))
    for key in keys:
        where = f"key {quote(key.get('id'))}"
        if key.get("attr.type") not in TYPES:
            raise InputError(f"{where}: attr.type must be one of {', '.join(TYPES)}, not {quote(key.get('attr.type'))}")
        if key.get("attr.name", "") in ("", "id", "source", "target"):
            raise InputError(f"{where}: attr.name must be the name of a value, not {quote(key.get('attr.name'))}")
        _check_children(key, "key")
    _check_unique("key", [key.get("id") for key in keys])
    return {key.get("id"): key for key in keys}


def _values(where: str, element: ElementTree.Element, kind: str, keys: Keys) -> dict[str, Any]:
    """Return the values of a node or an edge, by name."""
    _check_children(element, kind)
    values = []
    for data in element:
        key = keys.get(data.get("key"))
        if key is None or key.get("for", "all") not in (kind, "all"):
            raise InputError(f"{where}: key {quote(data.get('key'))} is not declared for {kind}s")
        if len(data):
            raise InputError(f"{where}: key {quote(data.get('key'))} must have a value, not elements")
        name, type_name, text = key.get("attr.name", ""), key.get("attr.type", ""), data.text or ""
        if type_name != "string" and not re.fullmatch(TYPES[type_name], text, re.ASCII):
            raise InputError(f"{where}: {name} must be of type {type_name}, not {quote(text)}")
        values.append((name, _converted(text, type_name)))
    _check_unique(f"{where}:", [name for name, _ in values])
    return dict(values)


def _converted(text: str, type_name: str) -> Any:
    if type_name == "boolean":
        return text in ("true", "1")
    return text if type_name == "string" else int(text) if TYPES[type_name] == WHOLE else float(text)


def _check_children(element: ElementTree.Element, kind: str) -> None:
    """Raise InputError for elements and attributes that would be ignored."""
    for name in {*element.keys()} - ATTRIBUTES.get(kind, {*element.keys()}):
        if not name.startswith("{"):  # attributes of XML itself
            raise InputError(f"<{kind}> has an unknown attribute {quote(name)}; write values as <data>")
    for child in element:
        if _tag(child) not in INSIDE[kind] or _space(child) != _space(element):
            raise InputError(f"<{kind}> must not contain <{quote(_tag(child))[1:-1]}>")


def _check_unique(what: str, names: list[Any]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise InputError(f"{what} duplicate {quote(name)}")


def _children(element: ElementTree.Element, tag: str) -> Iterator[ElementTree.Element]:
    return (child for child in element if _tag(child) == tag)


def _tag(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _space(element: ElementTree.Element) -> str:
    """Return the namespace of an element."""
    return str(element.tag).rpartition("}")[0]
