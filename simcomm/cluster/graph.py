"""Build the graph of a network, and define the attributes of its nodes and links.

Every node has ``kind`` (one of ``KINDS``). Nodes inside a machine also have ``machine`` (its number); GPUs and NICs
have ``rail`` (their rail's number). GPUs also have ``local`` (their number in the machine) and ``p2p_level`` (the
distance up to which they access devices directly, as in NCCL_P2P_LEVEL). The attribute ``memory`` names the host memory
that all other traffic of a GPU passes through.

An edge is one direction of a link, with ``bandwidth`` in bytes/s and ``latency`` in seconds. If known, it also has
``shared_bandwidth`` (the total for several messages), ``usable_bandwidth`` (the part of the line rate that software
reaches) and ``medium`` (its name).
"""

import re
from collections.abc import Iterable
from math import inf
from typing import Any, NamedTuple

import networkx as nx

from collectives.budget import Gigabyte, check_fits
from collectives.errors import InputError
from collectives.quoting import name_some
from collectives.units import Bandwidth, Latency, count, parse_bandwidth, parse_latency

Link = tuple[str, str]  # source and target of one direction
KINDS = ("host", "gpu", "nic", "pcie", "cpu", "memory", "nvswitch", "switch")
HOLDS_A_RANK = ("host", "gpu")
P2P_LEVELS = ("NVL", "PXB", "PHB", "SYS")  # P2P over NVLink only; also PCIe switches; also one CPU; also several CPUs


class LinkSpec(NamedTuple):
    """The properties of a link in each direction."""

    bandwidth: float = inf  # bytes/s
    latency: float = 0.0  # seconds
    medium: str = ""  # for example "PCIe 4.0 x16"
    usable: float | None = None  # bytes/s that software gets, if a source states it

    def times(self, count: float) -> "LinkSpec":
        """Return one link that combines ``count`` parallel links, for messages that spread over all of them."""
        return self._replace(bandwidth=self.bandwidth * count, usable=self.usable and self.usable * count)


def link_spec(bandwidth: str | Bandwidth, latency: str | Latency) -> LinkSpec:
    """Return a link with this bandwidth and latency: text with a unit, or a number in bytes/s or seconds.

    Raise InputError if a text is not a bandwidth or a latency.

    >>> link_spec("10 Gbit/s", "5 us")
    LinkSpec(bandwidth=1250000000.0, latency=5e-06, medium='', usable=None)
    """
    return LinkSpec(parse_bandwidth(bandwidth), parse_latency(latency))


def add_link(graph: "nx.DiGraph[str]", a: str, b: str, link: LinkSpec) -> None:
    """Add a link between two nodes: one edge per direction."""
    data: dict[str, Any] = {"bandwidth": link.bandwidth, "latency": link.latency}
    if link.medium:
        data["medium"] = link.medium
    if link.usable is not None:
        data["usable_bandwidth"] = link.usable
    graph.add_edge(a, b, **data)
    graph.add_edge(b, a, **data)


def check_links(links: int) -> None:
    """Raise TooLarge if a network of ``links`` links would exceed the memory limit."""
    check_fits(links, Gigabyte.LINKS, f"a network of {links:,} links is too large")


def empty_graph(hosts: Iterable[str] = (), switches: Iterable[str] = ()) -> "nx.DiGraph[str]":
    """Return a graph of hosts and switches without links."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(hosts, kind="host")
    graph.add_nodes_from(switches, kind="switch")
    return graph


def node_kinds(graph: "nx.DiGraph[str]") -> dict[str, str]:
    """Return the kind of every node, by name."""
    return {node: node_kind(graph, node) for node in graph}


def node_kind(graph: "nx.DiGraph[str]", node: str) -> str:
    """Return the kind of a node. Default: host if its name begins with h, else switch."""
    kind: str = graph.nodes[node].get("kind") or ("host" if node.startswith("h") else "switch")
    return kind


def rank_nodes(graph: "nx.DiGraph[str]") -> list[str]:
    """Return the nodes that can hold a rank (hosts and GPUs), in the graph's order."""
    return [node for node, kind in node_kinds(graph).items() if kind in HOLDS_A_RANK]


def natural_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that places h2 before h10.

    >>> sorted(["h10", "h2"], key=natural_key)
    ['h2', 'h10']
    """
    parts = re.split(r"([0-9]+)", name)  # text and digits in turn; the longer of two numbers is larger
    return [(len(part.lstrip("0")), part.lstrip("0")) if at % 2 else (-1, part) for at, part in enumerate(parts)]


def check_is_graph(graph: object) -> None:
    """Raise InputError unless ``graph`` is a networkx graph."""
    if not isinstance(graph, nx.Graph):
        raise InputError(f"graph must be a networkx graph, not {graph!r}")


def check_connected(graph: "nx.DiGraph[str]") -> None:
    """Raise InputError if a network has no hosts or is not connected."""
    if not rank_nodes(graph):
        raise InputError("the cluster has no host; name hosts h0, h1, ...")
    if not nx.is_weakly_connected(graph):
        pieces = sorted((sorted(piece, key=natural_key) for piece in nx.weakly_connected_components(graph)), key=len)
        raise InputError(f"the network has {len(pieces)} unconnected parts; connect {', '.join(pieces[0])} to the rest")


def list_nodes(graph: "nx.DiGraph[str]") -> str:
    """Return the names of all nodes as text, with ranges for consecutive numbers.

    >>> import simcomm
    >>> list_nodes(simcomm.star(8, "1 GB/s", "1 us").graph)
    'h0 to h7, s0'
    """
    numbered: dict[str, list[int]] = {}
    for node in graph:
        stem = node.rstrip("0123456789")
        numbered.setdefault(stem if stem != node else node, []).append(int(node[len(stem) :] or 0))
    parts = []
    for stem, numbers in numbered.items():
        ordered = sorted(numbers)
        in_a_row = ordered == [*range(ordered[0], ordered[0] + len(ordered))]
        if len(ordered) > 1 and in_a_row:
            parts.append(f"{stem}{ordered[0]} to {stem}{ordered[-1]}")
        else:
            parts += [stem if stem in graph else f"{stem}{number}" for number in ordered]
    return name_some(parts)


class LinkBudget:
    """A counter of the links in several networks, each counted once. It raises TooLarge above the memory limit."""

    def __init__(self) -> None:
        self.links = 0
        self._counted: dict[int, nx.DiGraph[str]] = {}

    def add(self, *graphs: "nx.DiGraph[str]") -> None:
        """Add the links of these networks. Raise TooLarge if the total exceeds the memory limit."""
        for graph in graphs:
            if id(graph) not in self._counted:
                self._counted[id(graph)] = graph
                self.links += graph.number_of_edges() // 2
        subject = f"{count(len(self._counted), 'network')} with {self.links:,} links in total take too much memory"
        check_fits(self.links, Gigabyte.LINKS, subject, "remove some of the clusters")
