"""Build the graph of a network, and define the attributes of its nodes and links.

Node attributes: ``kind`` (one of ``KINDS``); in a machine also ``machine`` (its number) and, for GPUs and NICs,
``rail`` (their rail number); for GPUs ``local`` (number in the machine), ``p2p_level`` (how far they reach other
devices directly, as in NCCL_P2P_LEVEL) and ``memory`` (the host memory for all other traffic). Edge attributes, where
an edge is one direction of a link: ``bandwidth`` in bytes/s, ``latency`` in seconds; if known ``shared_bandwidth``, the
total for several messages, ``usable_bandwidth``, the software's share of the line rate, and ``medium``, its name.

In a fully connected network, the million edges are only created on access. The engines read what all links have in
common and number them by their ends. Code that reads or edits an edge sees a normal networkx graph.
"""

import re
from collections.abc import Iterable
from itertools import combinations, permutations
from math import inf
from typing import Any, NamedTuple

import networkx as nx
import numpy.typing as npt

from collectives.budget import Gigabyte, check_fits
from collectives.errors import InputError
from collectives.quoting import name_some
from collectives.units import Bandwidth, Latency, count, parse_bandwidth, parse_latency

Link = tuple[str, str]  # the nodes that one direction of a cable leads from and to
KINDS = ("host", "gpu", "nic", "pcie", "cpu", "memory", "nvswitch", "switch")
HOLDS_A_RANK = ("host", "gpu")
P2P_LEVELS = ("NVL", "PXB", "PHB", "SYS")  # over NVLink; PCIe switches; one CPU; several. Each includes those before it


class LinkSpec(NamedTuple):
    """The properties of a link in each direction."""

    bandwidth: float = inf  # bytes/s
    latency: float = 0.0  # seconds
    medium: str = ""  # for example "PCIe 4.0 x16"
    usable: float | None = None  # bytes/s that software gets, where a source says

    def times(self, count: float) -> "LinkSpec":
        """Return ``count`` parallel links, for messages that spread over all of them."""
        return self._replace(bandwidth=self.bandwidth * count, usable=self.usable and self.usable * count)


def link_spec(bandwidth: str | Bandwidth, latency: str | Latency, medium: str = "") -> LinkSpec:
    """Return a link from a bandwidth and a latency, as text with units or parsed values. Raise InputError.

    >>> link_spec("10 Gbit/s", "5 us")
    LinkSpec(bandwidth=1250000000.0, latency=5e-06, medium='', usable=None)
    """
    return LinkSpec(parse_bandwidth(bandwidth), parse_latency(latency), medium)


def add_link(graph: "nx.DiGraph[str]", a: str, b: str, link: LinkSpec) -> None:
    """Add a link between two nodes: one edge per direction."""
    data = link_attributes(link)
    graph.add_edge(a, b, **data)
    graph.add_edge(b, a, **data)


def link_attributes(link: LinkSpec) -> dict[str, Any]:
    """Return the edge attributes of a link."""
    data: dict[str, Any] = {"bandwidth": link.bandwidth, "latency": link.latency}
    if link.medium:
        data["medium"] = link.medium
    if link.usable is not None:
        data["usable_bandwidth"] = link.usable
    return data


def check_links(links: int) -> None:
    """Raise TooLarge for too many cables, before any is created."""
    check_fits(links, Gigabyte.LINKS, f"a network of {links:,} cables is too large to be built")


def empty_graph(hosts: Iterable[str] = (), switches: Iterable[str] = ()) -> "nx.DiGraph[str]":
    """Return a graph of hosts and switches without links."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(hosts, kind="host")
    graph.add_nodes_from(switches, kind="switch")
    return graph


def node_kinds(graph: "nx.DiGraph[str]") -> dict[str, str]:
    """Return the kind of every node. Default: host if its name begins with h, else switch."""
    return {
        node: data.get("kind") or ("host" if node.startswith("h") else "switch")
        for node, data in graph.nodes(data=True)
    }


def node_kind(graph: "nx.DiGraph[str]", node: str) -> str:
    """Return the kind of one node, as ``node_kinds`` does."""
    kind: str = graph.nodes[node].get("kind") or ("host" if node.startswith("h") else "switch")
    return kind


def rank_nodes(graph: "nx.DiGraph[str]") -> list[str]:
    """Return the nodes that can hold a rank, in the graph's order."""
    return [node for node, kind in node_kinds(graph).items() if kind in HOLDS_A_RANK]


def natural_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that places h2 before h10.

    >>> sorted(["h10", "h2"], key=natural_key)
    ['h2', 'h10']
    """
    parts = re.split(r"([0-9]+)", name)  # text and digits in turn; of two numbers the longer one is larger
    return [(len(part.lstrip("0")), part.lstrip("0")) if at % 2 else (-1, part) for at, part in enumerate(parts)]


def check_is_graph(graph: object) -> None:
    """Raise InputError unless ``graph`` is a networkx graph."""
    if not isinstance(graph, nx.Graph):
        raise InputError(f"graph is {graph!r}; give a networkx graph")


def check_connected(graph: "nx.DiGraph[str]") -> None:
    """Raise InputError for a network without rank nodes, or in several pieces."""
    if not rank_nodes(graph):
        raise InputError("the cluster has no host; name hosts h0, h1, ...")
    if not nx.is_weakly_connected(graph):
        pieces = sorted((sorted(piece, key=natural_key) for piece in nx.weakly_connected_components(graph)), key=len)
        raise InputError(
            f"the network is in {len(pieces)} pieces: no link leads from {', '.join(pieces[0])} to the rest"
        )


def list_nodes(graph: "nx.DiGraph[str]") -> str:
    """Return the names of all nodes, with consecutive numbers as ranges.

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
        own = sorted(numbers)
        in_a_row = own == [*range(own[0], own[0] + len(own))]
        if len(own) > 1 and in_a_row:
            parts.append(f"{stem}{own[0]} to {stem}{own[-1]}")
        else:
            parts += [stem if stem in graph else f"{stem}{number}" for number in own]
    return name_some(parts)


AnyInts = npt.NDArray[Any]  # of 32 bits or of 64


class CompleteGraph(nx.DiGraph):  # type: ignore[type-arg,unused-ignore]  # at run time it has no parameter
    """Hosts with equal links between all pairs, whose edges are created at the first access.

    Without hosts, as networkx creates copies, it is a normal empty graph.

    >>> graph = CompleteGraph(["h0", "h1", "h2"], LinkSpec(1e9, 1e-6))
    >>> len(graph), complete_links(graph) == graph.link
    (3, True)
    >>> graph.edges["h2", "h0"]["bandwidth"], complete_links(graph)
    (1000000000.0, None)
    """

    link: LinkSpec | None = None  # None: all edges that there are have been written down

    def __init__(self, hosts: Iterable[str] = (), link: LinkSpec | None = None) -> None:
        super().__init__()
        self.add_nodes_from(hosts, kind="host")
        self.link = link

    def number_of_edges(self, u: Any = None, v: Any = None) -> int:
        if u is None and self.link is not None:
            return len(self) * (len(self) - 1)
        return super().number_of_edges(u, v)

    def write_out(self) -> None:
        """Create all edges. Raise TooLarge if they exceed the memory limit."""
        if self.link is not None:
            check_links(self.number_of_edges() // 2)
            written: Any = empty_graph(self)
            for a, b in combinations(list(self), 2):
                add_link(written, a, b, self.link)
            self.link = None
            self._adj, self._pred = written._adj, written._pred


def _edges_written(name: str) -> property:
    """Return a property for a networkx edge attribute that creates the edges on access."""

    def get(graph: CompleteGraph) -> Any:
        graph.write_out()
        return vars(graph)[name]

    return property(get, vars(nx.DiGraph)[name].__set__)


for _name in ("_adj", "_succ", "_pred"):
    setattr(CompleteGraph, _name, _edges_written(_name))


def complete_links(graph: "nx.DiGraph[str]") -> LinkSpec | None:
    """Return the common link of a complete graph whose edges were not accessed, else None."""
    if not isinstance(graph, CompleteGraph):
        return None
    return graph.link if all(data == {"kind": "host"} for _, data in graph.nodes(data=True)) else None


def complete_link_numbers(src: AnyInts, dst: AnyInts, hosts: int) -> AnyInts:
    """Return the number of the link from each source to its target in the graph's edge order, in their type.

    >>> edges = list(CompleteGraph(["h0", "h1", "h2"], LinkSpec()).edges)
    >>> import numpy as np
    >>> edges.index(("h2", "h1")), complete_link_numbers(np.array([2]), np.array([1]), hosts=3).tolist()
    (5, [5])
    """
    numbers: AnyInts = src * (hosts - 1) + dst - (dst > src)
    return numbers


def each_link(graph: "nx.DiGraph[str]") -> Iterable[tuple[str, str, dict[str, Any]]]:
    """Return the ends and attributes of each link in the graph's order, without creating edges.

    Raise TooLarge if they exceed the memory limit.

    >>> [ends for *ends, data in each_link(CompleteGraph(["h0", "h1"], LinkSpec()))]
    [['h0', 'h1'], ['h1', 'h0']]
    """
    link = complete_links(graph)
    if link is None:
        return graph.edges(data=True)
    check_links(graph.number_of_edges() // 2)
    attributes = link_attributes(link)
    return ((a, b, attributes) for a, b in permutations(graph, 2))


class CablesTogether:
    """Count the created cables of several networks, each network once.

    >>> together, star = CablesTogether(), nx.DiGraph([("h0", "s0"), ("s0", "h0")])
    >>> together.add(star, CompleteGraph(["h0", "h1"], LinkSpec()), star)
    >>> together.cables
    1
    """

    def __init__(self) -> None:
        self.cables = 0
        self._counted: dict[int, nx.DiGraph[str]] = {}

    def add(self, *graphs: "nx.DiGraph[str]") -> None:
        """Count these networks. Raise TooLarge if the cables exceed the memory limit."""
        for graph in graphs:
            if id(graph) not in self._counted and complete_links(graph) is None:
                self._counted[id(graph)] = graph
                self.cables += graph.number_of_edges() // 2
        what = f"{count(len(self._counted), 'network')} with {self.cables:,} cables together take too much memory"
        check_fits(self.cables, Gigabyte.LINKS, what, "leave some of the clusters out")
