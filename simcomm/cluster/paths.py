"""Shortest paths on the arrays of a graph: of one pair, or of very many at once.

Better is: fewer links, then fewer GPUs and CPUs in between, then wider links. Where paths are equally good, a number
that belongs to the message says which: its digits, in the mixed radix of the choices that it meets on the way, pick one
after the other. The receiver's number makes it destination routing, D-mod-k in a fat tree (Zahavi, "Fat-tree routing
and node ordering providing contention free traffic for MPI global collectives", 2012); a hash makes it ECMP.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from itertools import chain, pairwise
from math import inf
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import numpy.typing as npt

from collectives.errors import InputError
from simcomm.cluster.graph import kinds

Ints = npt.NDArray[np.int64]

LINK, PROCESSOR_BETWEEN, NARROWEST = 1 << 44, 1 << 33, 1 << 20  # so many of one never add up to the next
WORTH_COMPILING = 1_000_000  # looks at a link; with fewer, plain Python is done before numba is imported
LOOKS_ON_A_WALK = 16  # as a rule of thumb


class Ways(NamedTuple):
    """Routes as arrays: route k crosses ``link[first[k]:first[k + 1]]``, numbers in the graph's order of edges."""

    first: npt.NDArray[np.int32]  # [routes + 1]
    link: npt.NDArray[np.int32]


class Arrays(NamedTuple):
    """A graph as numbers. A leaf is a node with one neighbour, which has more; choices are among the others."""

    src: Ints  # [links]: node
    dst: Ints
    cost: Ints
    up: Ints  # [nodes]: a leaf's link to its neighbour, else -1
    down: Ints  # and the one from it
    first_out: Ints  # [nodes + 1], into out
    out: Ints  # links between nodes that are no leaves, by the node that they leave
    first_in: Ints
    into: Ints  # the same, by the node that they reach


class Paths:
    """Shortest paths in one graph."""

    def __init__(self, graph: "nx.DiGraph[str]") -> None:
        self.nodes = list(graph)
        self.number = {node: index for index, node in enumerate(self.nodes)}
        self.edges = list(graph.edges)
        self.link = {edge: index for index, edge in enumerate(self.edges)}
        self._graph = graph

    @cached_property
    def _arrays(self) -> Arrays:
        ends = self.ends(self.edges)
        src, dst = ends[:, 0].copy(), ends[:, 1].copy()
        up, down = self._leaves()
        inner = np.flatnonzero((up[src] < 0) & (up[dst] < 0))
        first_out, out = _by(src, inner, len(self.nodes))
        first_in, into = _by(dst, inner, len(self.nodes))
        return Arrays(src, dst, self._costs(inner), up, down, first_out, out, first_in, into)

    def _costs(self, inner: Ints) -> Ints:
        """Of each link between nodes that are no leaves; an exact whole number, so that equal means equal."""
        kind, costs = kinds(self._graph), np.zeros(len(self.edges), np.int64)
        edges = [self.edges[link] for link in inner.tolist()]
        widths = [self._graph.edges[edge]["bandwidth"] for edge in edges]
        narrowest = min((width for width in widths if width < inf), default=1.0)
        costs[inner] = [
            LINK + PROCESSOR_BETWEEN * (kind[src] in ("gpu", "cpu")) + round(NARROWEST * narrowest / width)
            for (src, _), width in zip(edges, widths, strict=True)
        ]
        return costs

    @cached_property
    def _scratch(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Of each node its distance, -1 between searches, and its cost; a queue; and links to choose from."""
        count = len(self.nodes)
        return np.full(count, -1), np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64)

    @cached_property
    def _lists(self) -> tuple[Any, Any]:
        """Arrays and scratch as lists, which plain Python reads faster."""
        return Arrays(*(column.tolist() for column in self._arrays)), [column.tolist() for column in self._scratch]

    def _leaves(self) -> tuple[Ints, Ints]:
        up, down = np.full(len(self.nodes), -1), np.full(len(self.nodes), -1)
        after = dict(self._graph.adjacency())
        before = dict(self._graph.reverse(copy=False).adjacency())
        for number, node in enumerate(self.nodes):
            if len(after[node]) == len(before[node]) == 1:
                (other,) = after[node]
                if other in before[node] and len(after[other]) > 1:
                    up[number], down[number] = self.link[node, other], self.link[other, node]
        return up, down

    def ends(self, pairs: Sequence[tuple[str, str]]) -> Ints:
        """The nodes of pairs as numbers, shape [pairs, 2]. Raises InputError for one that is not there."""
        names = chain.from_iterable(pairs)
        try:
            return np.fromiter(map(self.number.__getitem__, names), np.int64, 2 * len(pairs)).reshape(-1, 2)
        except KeyError as error:
            raise InputError(f"there is no node {error} in this network") from error

    def many(self, ends: Ints, spread: Ints) -> Ways:
        """The path of every pair in ``ends``; ``spread``, a number from 0 on for each, picks among equals.

        There are no links where there is no path.
        """
        sources, targets, arrays = ends[:, 0], ends[:, 1], self._arrays
        starts = _neighbours(sources, arrays.up, arrays.dst)
        doors = _neighbours(targets, arrays.down, arrays.src)
        order = np.argsort(doors, kind="stable")
        counts, links = self._by_door(doors[order], [column[order] for column in (sources, starts, targets, spread)])
        return _reordered(order, counts, links)

    def _by_door(self, doors: Ints, given: list[Ints]) -> tuple[Ints, Ints]:
        """Lengths and links of paths sorted by door: the last node that is no leaf, searched back from only once."""
        cuts = [0, *(np.flatnonzero(np.diff(doors)) + 1).tolist(), len(doors)] if len(doors) else [0]
        large = len(cuts) * len(self._arrays.out) + len(doors) * LOOKS_ON_A_WALK > WORTH_COMPILING
        paths_to = _compiled() if large else PLAIN
        net, scratch = (self._arrays, self._scratch) if large else self._lists
        counts, links = np.zeros(len(doors), np.int64), [np.zeros(0, np.int64)]
        for begin, end in pairwise(cuts):
            mine = [column[begin:end] if large else column[begin:end].tolist() for column in given]
            found = paths_to(net, int(doors[begin]), mine, scratch, counts[begin:end])
            links.append(np.asarray(found, dtype=np.int64))
        return counts, np.concatenate(links)

    def one(self, source: int, target: int, spread: int) -> tuple[str, ...]:
        """The nodes of one path, both ends included, as ``many`` would find it; none where there is no path."""
        net, scratch = self._lists
        start = source if net.up[source] < 0 else net.dst[net.up[source]]
        door = target if net.down[target] < 0 else net.src[net.down[target]]
        return self.nodes_of(PLAIN(net, door, ([source], [start], [target], [spread]), scratch, [0]).tolist())

    def nodes_of(self, links: Iterable[int]) -> tuple[str, ...]:
        """The nodes of a path of links, both ends included."""
        pairs = [self.edges[link] for link in links]
        return (*(src for src, _ in pairs), pairs[-1][1]) if pairs else ()


def _neighbours(nodes: Ints, leaf_links: Ints, far_ends: Ints) -> Ints:
    """Each node itself, or a leaf's neighbour."""
    links = leaf_links[nodes]
    return np.where(links < 0, nodes, far_ends[links]) if len(far_ends) else nodes


def _by(ends: Ints, links: Ints, nodes: int) -> tuple[Ints, Ints]:
    """Links sorted by the node at one of their ends, and where each node's begin."""
    counts = np.bincount(ends[links], minlength=nodes)
    return np.concatenate([[0], np.cumsum(counts)]), links[np.argsort(ends[links], kind="stable")]


def _reordered(order: Ints, counts: Ints, links: Ints) -> Ways:
    """Paths that lie one after the other in ``order``, put into the order from 0 on."""
    begins = np.concatenate([[0], np.cumsum(counts)])[:-1]
    place = np.argsort(order)
    lengths, begins = counts[place], begins[place]
    first = np.concatenate([[0], np.cumsum(lengths)])
    at = np.repeat(begins - first[:-1], lengths) + np.arange(first[-1])
    return Ways(first.astype(np.int32), links[at].astype(np.int32))


class Kernels(NamedTuple):
    """What finds paths: plain Python on lists, or the same compiled, on arrays."""

    search: Callable[..., int]
    walk: Callable[..., Any]

    def __call__(self, net: Any, door: int, given: Sequence[Any], scratch: Any, counts: Any) -> Any:
        """Links of the paths to what is behind one door, one after the other; ``counts`` gets their lengths."""
        seen = self.search(net, door, given[1], scratch)
        return self.walk(net, door, *given, scratch, seen, counts)


def _search(net: Any, door: int, starts: Any, scratch: Any) -> int:
    """Breadth first, back from the door, until every start has its distance and its least cost.

    How many nodes have then been seen, which the queue begins with. Plain loops, the same for Python and numba.
    """
    level, best, queue, _ = scratch
    level[door], best[door], queue[0] = 0, 0, door
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
    return tail


def _walk(
    net: Any, door: int, sources: Any, starts: Any, targets: Any, spread: Any, scratch: Any, seen: int, counts: Any
) -> Any:
    """Each source walks downhill to the door, and on to its target; then no node has a distance any more."""
    level, best, queue, choices = scratch
    links = [0]  # which tells numba what is in the list
    for k in range(len(sources)):
        source, node, target, left, begin = sources[k], starts[k], targets[k], spread[k], len(links)
        if source == target or level[node] < 0:
            continue
        if net.up[source] >= 0:
            links.append(net.up[source])
        while node != door:
            equals = 0
            for at in range(net.first_out[node], net.first_out[node + 1]):
                link = net.out[at]
                after = net.dst[link]
                if level[after] == level[node] - 1 and best[after] + net.cost[link] == best[node]:
                    choices[equals] = link
                    equals += 1
            link, left = choices[left % equals], left // equals
            links.append(link)
            node = net.dst[link]
        if net.down[target] >= 0:
            links.append(net.down[target])
        counts[k] = len(links) - begin
    for at in range(seen):
        level[queue[at]] = -1
    return np.array(links[1:])


PLAIN = Kernels(_search, _walk)


@cache
def _compiled() -> Kernels:
    """The same in machine code, kept on disk where there is a place for it."""
    import numba  # slow to import, and worth it for large networks only

    try:
        return Kernels(*(numba.njit(kernel, cache=True) for kernel in PLAIN))
    except RuntimeError:  # neither __pycache__ nor the user's cache folder can be written
        return Kernels(*(numba.njit(kernel) for kernel in PLAIN))
