"""Define routing policies, and detours for devices without peer-to-peer access.

A policy (``Routing``) is a function from a graph to its ``Router``. Each cluster has one policy. The default,
``shortest``, takes the shortest path. If several paths are equally good (see ``simcomm.cluster.paths``), the receiver's
number selects one, as in switches that forward by destination. ``ecmp`` selects by a hash of sender and receiver, so
flows can collide.

A GPU's ``p2p_level`` limits which devices it accesses directly, as NCCL_P2P_LEVEL does: over NVLink only (NVL), also
over PCIe switches (PXB), over one CPU (PHB) or several (SYS). All other traffic goes through the receiver's host memory
and, to another machine, first through the sender's.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property, partial
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt

from collectives.budget import Gigabyte
from collectives.errors import InputError
from collectives.quoting import quote
from simcomm.cluster.graph import P2P_LEVELS, check_is_graph, node_kind, node_kinds, rank_nodes
from simcomm.cluster.paths import Ints, RouteLinks, check_hops, find_shortest_paths
from simcomm.hashing import hash_numbers

Route = tuple[str, ...]  # nodes, including both ends
SEEDS = range(2**32)
GREATEST_REACH = {"pcie": 0, "cpu": 2}  # index in P2P_LEVELS up to which a GPU cannot pass such a node


class Router:
    """A finder of routes in one graph. It returns a single route as node names, and many routes as link numbers."""

    def __init__(self, graph: "nx.DiGraph[str]") -> None:
        check_is_graph(graph)
        self.graph = graph
        self.paths = find_shortest_paths(graph)
        self._known: dict[tuple[str, str], Route] = {}
        self._hops = 0  # links of the known routes

    def route(self, src: str, dst: str) -> Route:
        """Return the nodes from ``src`` to ``dst``. Raise InputError if there is no route.

        Raise TooLarge if the routes found so far have too many links in total.
        """
        if (src, dst) not in self._known:
            route = self._known[src, dst] = self._find(src, dst)
            self._hops += len(route) - 1
            check_hops(self._hops, len(self._known), len(self._known), Gigabyte.NAMED)
        return self._known[src, dst]

    def _find(self, src: str, dst: str) -> Route:
        raise NotImplementedError

    def links_between(self, nodes: Sequence[str], src: npt.NDArray[Any], dst: npt.NDArray[Any]) -> RouteLinks:
        """Return the link numbers of the routes from ``nodes[src[i]]`` to ``nodes[dst[i]]``, for each i."""
        pairs = zip(src.tolist(), dst.tolist(), strict=True)
        links = [[self.paths.link[edge] for edge in pairwise(self.route(nodes[a], nodes[b]))] for a, b in pairs]
        first = np.cumsum([0, *(len(each) for each in links)])
        return RouteLinks(first.astype(np.int32), np.array([link for each in links for link in each], dtype=np.int32))


class ShortestRouter(Router):
    """A router by shortest paths. If several exist, the receiver's number or, with a seed, a hash selects one."""

    def __init__(self, graph: "nx.DiGraph[str]", seed: int | None = None) -> None:
        super().__init__(graph)
        self._seed = seed
        holders = rank_nodes(graph)
        self._numbers = np.full(len(self.paths.nodes), len(holders), dtype=np.uint64)
        self._numbers[[self.paths.number[node] for node in holders]] = np.arange(len(holders))
        self._leg = cache(self._find_leg)

    def _find(self, src: str, dst: str) -> Route:
        return self._with_detour(self._leg(src, dst))

    def _with_detour(self, route: Route) -> Route:
        stops = _memory_stops(self.graph, route) if self._any_may_need_memory else []
        return join_legs(self._leg(a, b) for a, b in pairwise((route[0], *stops, route[-1]))) if stops else route

    def _find_leg(self, src: str, dst: str) -> Route:
        if src == dst:
            return (src,)
        ends = self.paths.ends([(src, dst)])
        source, target = ends[0].tolist()
        route = self.paths.path(source, target, int(self._choices(ends)[0]))
        if not route:
            raise InputError(f"no route from {src} to {dst}")
        return route

    def links_between(self, nodes: Sequence[str], src: npt.NDArray[Any], dst: npt.NDArray[Any]) -> RouteLinks:
        """Return all routes as ``Router.links_between`` does. Routes without a detour are computed together."""
        number = self.paths.ends([(node, node) for node in nodes])[:, 0]
        ends = np.stack([number[src], number[dst]], axis=1)
        routes = self.paths.paths(ends, self._choices(ends))
        for at in np.flatnonzero(np.diff(routes.first) == 0).tolist():
            self.route(nodes[src[at]], nodes[dst[at]])  # raises InputError if there is no route
        if not self._any_may_need_memory:
            return routes
        crossing = np.repeat(np.arange(len(ends), dtype=np.int32), np.diff(routes.first))
        detours = np.unique(crossing[self._may_need_memory[routes.link]])
        for at in detours.tolist():
            links = routes.link[routes.first[at] : routes.first[at + 1]].tolist()
            self._known[nodes[src[at]], nodes[dst[at]]] = self._with_detour(self.paths.nodes_of(links))
        return _replace_routes(routes, detours, super().links_between(nodes, src[detours], dst[detours]))

    @cached_property
    def _may_need_memory(self) -> "npt.NDArray[np.bool_]":
        """Boolean mask of the links that can require a detour through host memory; shape [links]."""
        lowest = min((_reach(self.graph, node) for node in rank_nodes(self.graph)), default=len(P2P_LEVELS) - 1)
        kinds = node_kinds(self.graph)
        return np.array([lowest <= GREATEST_REACH.get(kinds[dst], -1) for _, dst in self.graph.edges], dtype=bool)

    @cached_property
    def _any_may_need_memory(self) -> bool:
        kinds = node_kinds(self.graph).values()
        return not GREATEST_REACH.keys().isdisjoint(kinds) and bool(self._may_need_memory.any())

    def _choices(self, ends: Ints) -> Ints:
        receivers = self._numbers[ends[:, 1]]
        if self._seed is None:
            return receivers.astype(np.int64)
        senders = self._numbers[ends[:, 0]] << np.uint64(32)
        hashed = hash_numbers(hash_numbers(np.uint64(self._seed) + senders) + receivers)
        return (hashed >> np.uint64(1)).astype(np.int64)


Routing = Callable[["nx.DiGraph[str]"], Router]


def shortest(graph: "nx.DiGraph[str]") -> Router:
    """Route by shortest paths, the default of a cluster. The receiver's number selects among equally good paths.

    >>> import simcomm
    >>> shortest(simcomm.star(3, "10 Gbit/s", "5 us").graph).route("h0", "h2")
    ('h0', 's0', 'h2')
    """
    return ShortestRouter(graph)


def ecmp(seed: int = 0) -> Routing:
    """Return a policy that spreads pairs over equally good shortest paths, by a hash of seed, sender and receiver.

    Raise InputError for a seed outside 0 to 2^32 - 1.

    >>> import simcomm
    >>> tree = simcomm.fat_tree(4, "10 Gbit/s", "5 us")
    >>> ecmp(seed=1)(tree.graph).route("h0", "h1")
    ('h0', 's0', 'h1')
    """
    if type(seed) is not int or seed not in SEEDS:
        raise InputError(f"seed must be an integer from 0 to {SEEDS[-1]}, not {quote(seed)}")
    return partial(ShortestRouter, seed=seed)


def join_legs(legs: Iterable[Route]) -> Route:
    """Join routes into one route. Each route begins at the node where the previous route ends."""
    first, *others = legs
    return (*first, *(node for leg in others for node in leg[1:]))


def _replace_routes(routes: RouteLinks, numbers: npt.NDArray[Any], others: RouteLinks) -> RouteLinks:
    old = np.diff(routes.first)
    lengths, stays = old.copy(), np.ones(len(old), dtype=bool)
    lengths[numbers], stays[numbers] = np.diff(others.first), False
    first = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    link, is_kept = np.empty(first[-1], np.int32), np.repeat(stays, lengths)
    link[is_kept], link[~is_kept] = routes.link[np.repeat(stays, old)], others.link
    return RouteLinks(first, link)


def _memory_stops(graph: "nx.DiGraph[str]", route: Route) -> list[str]:
    machines = [graph.nodes[node].get("machine") for node in route]
    if machines[0] == machines[-1]:
        far = _distance(graph, route) > min(_reach(graph, route[0]), _reach(graph, route[-1]))
        memories = [graph.nodes[node].get("memory") for node in (route[-1], route[0])]
        return [memory for memory in memories if memory][:1] if far else []
    stops = []
    for end in (0, -1):
        side = [node for node, machine in zip(route, machines, strict=True) if machine == machines[end]]
        if _distance(graph, side) > _reach(graph, route[end]):
            stops.append(graph.nodes[route[end]]["memory"])
    return stops


def _distance(graph: "nx.DiGraph[str]", nodes: Sequence[str]) -> int:
    """Return the index of the lowest level in P2P_LEVELS at which a device may access another along these nodes."""
    kinds = [node_kind(graph, node) for node in nodes]
    cpus = kinds.count("cpu")
    return 1 + min(cpus, 2) if cpus else int("pcie" in kinds or "nic" in kinds)


def _reach(graph: "nx.DiGraph[str]", node: str) -> int:
    return P2P_LEVELS.index(graph.nodes[node].get("p2p_level", "SYS"))
