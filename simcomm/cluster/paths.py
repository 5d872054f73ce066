"""Find shortest paths on a graph stored as arrays, for one pair of nodes or for millions of pairs at once.

Paths with fewer links are preferred, then paths through fewer GPUs and CPUs, then paths over wider links. Each pair of
nodes has a number, its *choice*, which selects one of several equally good paths. At each node, one digit of the choice
selects one of the candidate links: the digits form a mixed-radix number, whose bases are the numbers of candidates. If
the choice is the receiver's number, this is destination routing, or D-mod-k in a fat tree (Zahavi, "Fat-tree routing
and node ordering providing contention free traffic for MPI global collectives", 2012). If it is a hash, this is ECMP.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property
from itertools import chain, pairwise
from math import inf
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import numpy.typing as npt

from collectives.budget import SHORTER_ROUTES, Gigabyte, allowed, check_fits
from collectives.errors import InputError, TooLarge
from simcomm.cluster.graph import list_nodes, node_kinds

Ints = npt.NDArray[np.int64]

LINK, PROCESSOR_BETWEEN, NARROWEST = 1 << 44, 1 << 33, 1 << 20  # weights: sums of one never reach the next larger
WORTH_COMPILING = 1_000_000  # visits of links; below, plain Python is faster than importing numba
LOOKS_ON_A_PATH = 16  # estimate


class RouteLinks(NamedTuple):
    """Routes as arrays. Route k crosses the links ``link[first[k]:first[k + 1]]``, numbered in the graph's order."""

    first: npt.NDArray[np.int32]  # [routes + 1]
    link: npt.NDArray[np.int32]


class GraphArrays(NamedTuple):
    """A graph as arrays. A leaf is a node whose only neighbor has several neighbors. Searches skip the leaves."""

    src: Ints  # [links]: node
    dst: Ints
    cost: Ints
    up: Ints  # [nodes]: a leaf's link to its neighbor, else -1
    down: Ints  # [nodes]: a leaf's link from its neighbor, else -1
    first_out: Ints  # [nodes + 1], into out
    out: Ints  # links between non-leaf nodes, by source
    first_in: Ints
    into: Ints  # links between non-leaf nodes, by target


class ShortestPaths:
    """A finder of shortest paths in one graph. Nodes and links are numbered in the graph's order.

    >>> import simcomm
    >>> search = ShortestPaths(simcomm.star(2, "10 Gbit/s", "5 us").graph)
    >>> search.path(search.number["h0"], search.number["h1"], choice=0)
    ('h0', 's0', 'h1')
    """

    def __init__(self, graph: "nx.DiGraph[str]") -> None:
        self.nodes = list(graph)
        self.number = {node: index for index, node in enumerate(self.nodes)}
        self._graph = graph

    def is_of(self, graph: "nx.DiGraph[str]") -> bool:
        """Return whether these paths were computed for exactly this graph object."""
        return self._graph is graph

    @cached_property
    def edges(self) -> list[tuple[str, str]]:
        """All links, in the order of their numbers."""
        return list(self._graph.edges)

    @cached_property
    def link(self) -> dict[tuple[str, str], int]:
        """The number of each link, by its two nodes."""
        return {edge: index for index, edge in enumerate(self.edges)}

    @cached_property
    def _arrays(self) -> GraphArrays:
        ends = self.ends(self._graph.edges)
        src, dst = ends[:, 0].copy(), ends[:, 1].copy()
        up, down = _leaves(src, dst, len(self.nodes))
        inner = np.flatnonzero((up[src] < 0) & (up[dst] < 0))
        first_out, out = _sorted_by_node(src, inner, len(self.nodes))
        first_in, into = _sorted_by_node(dst, inner, len(self.nodes))
        return GraphArrays(
            src=src,
            dst=dst,
            cost=self._costs(src, inner),
            up=up,
            down=down,
            first_out=first_out,
            out=out,
            first_in=first_in,
            into=into,
        )

    def _costs(self, src: Ints, inner: Ints) -> Ints:
        """Return the cost of each link, as integers so that sums are exact. The links of leaves cost nothing."""
        kinds, costs = node_kinds(self._graph), np.zeros(len(src), np.int64)
        links = self._graph.edges(data=True)
        widths = np.fromiter((data["bandwidth"] for *_, data in links), np.float64, len(src))[inner]
        narrowest = widths.min(initial=inf)
        narrowness = np.rint(NARROWEST * (narrowest if narrowest < inf else 1.0) / widths).astype(np.int64)
        is_processor = np.array([kinds[node] in ("gpu", "cpu") for node in self.nodes])
        costs[inner] = LINK + PROCESSOR_BETWEEN * is_processor[src[inner]] + narrowness
        return costs

    @cached_property
    def _scratch(self) -> tuple[Ints, Ints, Ints, Ints]:
        """The arrays that each search overwrites: distances and costs of nodes, a queue, and links."""
        count = len(self.nodes)
        return np.full(count, -1), np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64)

    @cached_property
    def _lists(self) -> tuple[Any, Any]:
        """The arrays of the graph and of searches as lists, which pure Python code reads faster."""
        return GraphArrays(*(column.tolist() for column in self._arrays)), [column.tolist() for column in self._scratch]

    @cached_property
    def speeds(self) -> npt.NDArray[np.float64]:
        """The bytes/s of links for one message and for several, and their latency in seconds; shape [3, links]."""
        count, speeds = self._graph.number_of_edges(), list[npt.NDArray[np.float64]]()
        for keys in (("bandwidth",), ("shared_bandwidth", "bandwidth"), ("latency",)):
            links = self._graph.edges(data=True)
            figures = (data[keys[0]] if keys[0] in data else data[keys[-1]] for *_, data in links)
            speeds.append(np.fromiter(figures, np.float64, count))
        return np.stack(speeds)

    def ends(self, pairs: Collection[tuple[str, str]]) -> Ints:
        """Return the node numbers of each pair; shape [pairs, 2]. Raise InputError for an unknown node."""
        names = chain.from_iterable(pairs)
        try:
            return np.fromiter(map(self.number.__getitem__, names), np.int64, 2 * len(pairs)).reshape(-1, 2)
        except KeyError as error:
            known = list_nodes(self._graph)
            raise InputError(f"node {error} does not exist; nodes are {known}") from error

    def paths(self, ends: Ints, choices: Ints) -> RouteLinks:
        """Return the path of every pair in ``ends``. A pair without a path gets no links.

        ``choices`` has one non-negative number per pair, which selects one of several equally good paths.
        """
        sources, targets, arrays = ends[:, 0], ends[:, 1], self._arrays
        starts = _neighbors(sources, arrays.up, arrays.dst)
        gateways = _neighbors(targets, arrays.down, arrays.src)
        order = np.argsort(gateways, kind="stable")
        queries = [column[order] for column in (sources, starts, targets, choices)]
        counts, links = self._by_gateway(gateways[order], queries)
        return _by_number(order, counts, links)

    def _by_gateway(self, gateways: Ints, queries: list[Ints]) -> tuple[Ints, Ints]:
        """Search backward once per distinct gateway. Return each path's number of links, and the links of all paths.

        A path's gateway is its last node that is not a leaf. ``gateways`` is sorted, and ``queries`` has the same
        order.
        """
        cuts = [0, *(np.flatnonzero(np.diff(gateways)) + 1).tolist(), len(gateways)] if len(gateways) else [0]
        large = len(cuts) * len(self._arrays.out) + len(gateways) * LOOKS_ON_A_PATH > WORTH_COMPILING
        find_paths = _compiled() if large else PLAIN
        net, scratch = (self._arrays, self._scratch) if large else self._lists
        counts, links, number = np.zeros(len(gateways), np.int64), [np.zeros(0, np.int32)], 0
        for begin, end in pairwise(cuts):
            mine = [column[begin:end] if large else column[begin:end].tolist() for column in queries]
            seen, length = find_paths.measure(net, int(gateways[begin]), mine[1], scratch)
            number += length
            try:
                check_hops(number, end, len(gateways), Gigabyte.HOPS)
            except TooLarge:
                for node in scratch[2][:seen]:  # reset the distances, as ``descend`` does, for later calls
                    scratch[0][node] = -1
                raise
            path = find_paths.descend(net, int(gateways[begin]), tuple(mine), scratch, seen, counts[begin:end])
            links.append(np.asarray(path, dtype=np.int32))
        return counts, np.concatenate(links)

    def path(self, source: int, target: int, choice: int) -> tuple[str, ...]:
        """Return the nodes of one path; empty if there is none. ``choice`` selects among equally good paths."""
        net, scratch = self._lists
        start = source if net.up[source] < 0 else net.dst[net.up[source]]
        gateway = target if net.down[target] < 0 else net.src[net.down[target]]
        seen, _ = PLAIN.measure(net, gateway, [start], scratch)
        links = PLAIN.descend(net, gateway, ([source], [start], [target], [choice]), scratch, seen, [0])
        return self.nodes_of(links.tolist())

    def nodes_of(self, links: Iterable[int]) -> tuple[str, ...]:
        """Return the nodes along these links, including both ends."""
        pairs = [self.edges[link] for link in links]
        return (*(src for src, _ in pairs), pairs[-1][1]) if pairs else ()


_kept: ContextVar[list[ShortestPaths] | None] = ContextVar("kept_paths", default=None)


@contextmanager
def keeping_paths() -> Iterator[None]:
    """Within the context, cache the search data of the last network, which must not change."""
    token = _kept.set([])
    try:
        yield
    finally:
        _kept.reset(token)


def find_shortest_paths(graph: "nx.DiGraph[str]") -> ShortestPaths:
    """Return the path finder of a graph. Within ``keeping_paths``, the last graph's path finder is cached."""
    cache = _kept.get()
    if cache and cache[0].is_of(graph):
        return cache[0]
    paths = ShortestPaths(graph)
    if cache is not None:
        cache[:] = [paths]
    return paths


def _leaves(src: Ints, dst: Ints, nodes: int) -> tuple[Ints, Ints]:
    """Return, for each leaf, its link to the neighbor and the link back; -1 for all other nodes."""
    leaving, coming = np.bincount(src, minlength=nodes), np.bincount(dst, minlength=nodes)
    up, down = np.full(nodes, -1), np.full(nodes, -1)
    up[src] = down[dst] = np.arange(len(src))  # valid for nodes with one of each
    leaves = np.flatnonzero((leaving == 1) & (coming == 1))
    other = dst[up[leaves]]
    leaves = leaves[(src[down[leaves]] == other) & (leaving[other] > 1)]
    leaf_links = np.full((2, nodes), -1)
    leaf_links[:, leaves] = up[leaves], down[leaves]
    return leaf_links[0], leaf_links[1]


def _neighbors(nodes: Ints, leaf_links: Ints, far_ends: Ints) -> Ints:
    links = leaf_links[nodes]
    return np.where(links < 0, nodes, far_ends[links]) if len(far_ends) else nodes


def _sorted_by_node(ends: Ints, links: Ints, nodes: int) -> tuple[Ints, Ints]:
    """Sort links by their nodes in ``ends``. Return the index of each node's first link, and the sorted links."""
    counts = np.bincount(ends[links], minlength=nodes)
    return np.concatenate([[0], np.cumsum(counts)]), links[np.argsort(ends[links], kind="stable")]


def _by_number(order: Ints, counts: Ints, links: Ints) -> RouteLinks:
    """Sort paths by the number of their pair. Path i of the arguments belongs to pair ``order[i]``."""
    begins = np.concatenate([[0], np.cumsum(counts)])[:-1]
    position = np.argsort(order)
    lengths, begins = counts[position], begins[position]
    first = np.concatenate([[0], np.cumsum(lengths)])
    at = np.repeat((begins - first[:-1]).astype(np.int32), lengths)
    at += np.arange(first[-1], dtype=np.int32)
    return RouteLinks(first.astype(np.int32), links[at])


class PathFinder(NamedTuple):
    """The two functions of a search, ``_measure`` and ``_descend``: plain Python for lists, or compiled for arrays."""

    measure: Callable[..., tuple[int, int]]
    descend: Callable[..., Any]


def check_hops(number: int, known_pairs: int, pairs: int, most: int) -> None:
    """Raise TooLarge if the routes of ``pairs`` pairs would have too many links in total.

    The total is extrapolated from the first ``known_pairs`` pairs, whose routes have ``number`` links.
    """
    if number > allowed(most):
        about = number * pairs // known_pairs
        subject = f"the routes between {pairs:,} pairs of hosts have about {about:,} links or more in total"
        check_fits(about, most, subject, SHORTER_ROUTES)


def _measure(net: Any, gateway: int, starts: Any, scratch: Any) -> tuple[int, int]:
    """Search breadth-first, backward from the gateway, until every start has its distance and lowest cost.

    Return the number of visited nodes, which come first in the queue, and the total length of all paths from the
    starts. Python and numba both run this code.
    """
    level, best, queue, _ = scratch
    level[gateway], best[gateway], queue[0] = 0, 0, gateway
    head, tail, depth = 0, 1, -1
    while head < tail:
        node = queue[head]
        if level[node] > depth:  # all nodes of this depth are in the queue and have their final cost
            depth, missing = level[node], 0
            for start in starts:
                missing += level[start] < 0
            if missing == 0:
                break
        head += 1
        for at in range(net.first_in[node], net.first_in[node + 1]):
            link = net.into[at]
            before, cost = net.src[link], best[node] + net.cost[link]
            if level[before] < 0:
                level[before], best[before], queue[tail] = level[node] + 1, cost, before
                tail += 1
            elif level[before] == level[node] + 1 and cost < best[before]:
                best[before] = cost
    length = 0
    for start in starts:
        length += max(0, level[start])
    return tail, length


def _descend(net: Any, gateway: int, queries: Any, scratch: Any, seen: int, counts: Any) -> Any:
    """Return the links of all paths, one path after the other, after a search by ``_measure``. Reset all distances.

    Each path follows decreasing distances to the gateway. ``queries`` contains, for each path, the source, its first
    non-leaf node, the target and the choice.
    """
    sources, starts, targets, choices = queries
    level, best, queue, equal_links = scratch
    links = [0]  # tells numba the type of the list; not returned
    for k in range(len(sources)):
        source, node, target, remaining, begin = sources[k], starts[k], targets[k], choices[k], len(links)
        if source == target or level[node] < 0:
            continue
        if net.up[source] >= 0:
            links.append(net.up[source])
        while node != gateway:
            equals = 0
            for at in range(net.first_out[node], net.first_out[node + 1]):
                link = net.out[at]
                after = net.dst[link]
                if level[after] == level[node] - 1 and best[after] + net.cost[link] == best[node]:
                    equal_links[equals] = link
                    equals += 1
            link, remaining = equal_links[remaining % equals], remaining // equals
            links.append(link)
            node = net.dst[link]
        if net.down[target] >= 0:
            links.append(net.down[target])
        counts[k] = len(links) - begin
    for at in range(seen):
        level[queue[at]] = -1
    return np.array(links[1:])


PLAIN = PathFinder(_measure, _descend)


@cache
def _compiled() -> PathFinder:
    try:
        from simcomm.jit import compile_and_cache  # imports numba, which is slow
    except InputError:  # NUMBA_DISABLE_JIT is set; the simpy engine still works
        return PLAIN
    return PathFinder(compile_and_cache(_measure), compile_and_cache(_descend))
