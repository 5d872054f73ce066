"""A network in which every two hosts have a link: its million edges are written down only for those who look at them.

The engines read what all links have in common and number them by their ends; whoever looks at an edge, or edits one,
gets those that networkx would have.
"""

from collections.abc import Iterable
from itertools import combinations, permutations
from typing import Any

import networkx as nx
import numpy.typing as npt

from collectives.budget import Gigabyte, check_fits
from collectives.units import count
from simcomm.cluster.graph import LinkSpec, add_link, check_links, empty_graph, link_attributes

AnyInts = npt.NDArray[Any]  # of 32 bits or of 64


class CompleteGraph(nx.DiGraph):  # type: ignore[type-arg,unused-ignore]  # at run time it has no parameter
    """Hosts with a link between every two, all alike, whose edges are written down at the first look at one.

    Made without hosts, as networkx makes the graphs that it copies to, it is an empty graph like any other.

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
        """Write all edges down. Raise TooLarge for more than fit into memory."""
        if self.link is not None:
            check_links(self.number_of_edges() // 2)
            written: Any = empty_graph(self)
            for a, b in combinations(list(self), 2):
                add_link(written, a, b, self.link)
            self.link = None
            self._adj, self._pred = written._adj, written._pred


def _edges_written(name: str) -> property:
    """Return an attribute in which networkx keeps edges: to look at it writes them down."""

    def get(graph: CompleteGraph) -> Any:
        graph.write_out()
        return vars(graph)[name]

    return property(get, vars(nx.DiGraph)[name].__set__)


for _name in ("_adj", "_succ", "_pred"):
    setattr(CompleteGraph, _name, _edges_written(_name))


def complete_links(graph: "nx.DiGraph[str]") -> LinkSpec | None:
    """Return what every link offers, if every two hosts have one and nobody has looked at any; else None."""
    if not isinstance(graph, CompleteGraph):
        return None
    return graph.link if all(data == {"kind": "host"} for _, data in graph.nodes(data=True)) else None


def complete_link_numbers(src: AnyInts, dst: AnyInts, hosts: int) -> AnyInts:
    """Return the number of the link from each source to its target in the graph's order of edges; in their type.

    >>> edges = list(CompleteGraph(["h0", "h1", "h2"], LinkSpec()).edges)
    >>> import numpy as np
    >>> edges.index(("h2", "h1")), complete_link_numbers(np.array([2]), np.array([1]), hosts=3).tolist()
    (5, [5])
    """
    numbers: AnyInts = src * (hosts - 1) + dst - (dst > src)
    return numbers


def each_link(graph: "nx.DiGraph[str]") -> Iterable[tuple[str, str, dict[str, Any]]]:
    """Return the ends of each link and its attributes, in the graph's order; those of a complete graph stay unwritten.

    Raise TooLarge for more than fit into memory.

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
    """How many cables several networks have written down: each network counts once, a fully connected one when it has.

    >>> together, star = CablesTogether(), nx.DiGraph([("h0", "s0"), ("s0", "h0")])
    >>> together.add(star, CompleteGraph(["h0", "h1"], LinkSpec()), star)
    >>> together.cables
    1
    """

    def __init__(self) -> None:
        self.cables = 0
        self._counted: dict[int, nx.DiGraph[str]] = {}

    def add(self, *graphs: "nx.DiGraph[str]") -> None:
        """Count these too. Raise TooLarge for more cables than fit into memory."""
        for graph in graphs:
            if id(graph) not in self._counted and complete_links(graph) is None:
                self._counted[id(graph)] = graph
                self.cables += graph.number_of_edges() // 2
        what = f"{count(len(self._counted), 'network')} with {self.cables:,} cables together take too much memory"
        check_fits(self.cables, Gigabyte.LINKS, what, "leave some of the clusters out")
