"""Which links a message crosses: policies of routing, and the detours that devices without peer-to-peer access need.

A policy (``Routing``) is a function from a graph to its ``Routes``; a cluster carries one. ``shortest`` is the default:
the shortest path, and where several are equally short (see ``simcomm.cluster.paths``) one that the receiver's number
picks, as switches that forward by destination do. ``ecmp`` lets a hash of sender and receiver pick, so that flows can
collide.

GPUs reach each other, and NICs, directly up to their ``p2p_level``: over NVLink only (NVL), also over PCIe switches
(PXB), over one CPU (PHB) or over several (SYS): the words of NCCL_P2P_LEVEL. What lies beyond goes through the
receiver's host memory, and on its way to another machine through the sender's.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property, partial
from itertools import pairwise

import networkx as nx
import numpy as np
import numpy.typing as npt

from collectives.errors import InputError
from simcomm.cluster.graph import P2P_LEVELS, kind_of, kinds, rank_nodes
from simcomm.cluster.paths import Ints, Paths, Ways
from simcomm.model.hashing import mix

Way = tuple[str, ...]  # the nodes of a route, both ends included
SEEDS = range(2**32)


class Routes:
    """The routes through one graph: call it for the nodes of one, or ask for the links of many at once."""

    def __init__(self, graph: "nx.DiGraph[str]") -> None:
        self.graph = graph
        self.paths = Paths(graph)
        self._known: dict[tuple[str, str], Way] = {}

    def __call__(self, src: str, dst: str) -> Way:
        """Nodes from src to dst, always the same. Raises InputError where no link leads there."""
        if (src, dst) not in self._known:
            self._known[src, dst] = self._find(src, dst)
        return self._known[src, dst]

    def _find(self, src: str, dst: str) -> Way:
        raise NotImplementedError

    def many(self, pairs: Sequence[tuple[str, str]]) -> Ways:
        """The links of all these routes as numbers in the graph's order of edges. Raises InputError."""
        links = [[self.paths.link[edge] for edge in pairwise(self(src, dst))] for src, dst in pairs]
        first = np.cumsum([0, *(len(each) for each in links)])
        return Ways(first.astype(np.int32), np.array([link for each in links for link in each], dtype=np.int32))


class Shortest(Routes):
    """Shortest paths. Among equals the receiver's number picks, or with a seed a hash of sender and receiver."""

    def __init__(self, graph: "nx.DiGraph[str]", seed: int | None = None) -> None:
        super().__init__(graph)
        self._seed = seed
        places = rank_nodes(graph)
        self._numbers = np.full(len(self.paths.nodes), len(places), dtype=np.uint64)
        self._numbers[[self.paths.number[node] for node in places]] = np.arange(len(places))
        self._leg = cache(self._find_leg)

    def _find(self, src: str, dst: str) -> Way:
        return self._detoured(self._leg(src, dst))

    def _detoured(self, way: Way) -> Way:
        """The way itself, or where its ends do not reach that far, one through host memory."""
        stops = _stops(self.graph, way) if self._any_doubtful else []
        return joined(self._leg(a, b) for a, b in pairwise((way[0], *stops, way[-1]))) if stops else way

    def _find_leg(self, src: str, dst: str) -> Way:
        if src == dst:
            return (src,)
        ends = self.paths.ends([(src, dst)])
        source, target = ends[0].tolist()
        way = self.paths.one(source, target, int(self._spread(ends)[0]))
        if not way:
            raise InputError(f"no link leads from {src} to {dst}")
        return way

    def many(self, pairs: Sequence[tuple[str, str]]) -> Ways:
        ends = self.paths.ends(pairs)
        ways = self.paths.many(ends, self._spread(ends))
        for number in np.flatnonzero(np.diff(ways.first) == 0).tolist():
            self(*pairs[number])  # raises where no link leads there
        if not self._any_doubtful:
            return ways
        touched = np.repeat(np.arange(len(pairs)), np.diff(ways.first))[self._doubtful[ways.link]]
        doubtful = np.unique(touched).tolist()
        for number in doubtful:
            links = ways.link[ways.first[number] : ways.first[number + 1]].tolist()
            self._known[pairs[number]] = self._detoured(self.paths.nodes_of(links))
        return _spliced(ways, doubtful, super().many([pairs[number] for number in doubtful]))

    @cached_property
    def _doubtful(self) -> "npt.NDArray[np.bool_]":
        """Of each link, whether it leads somewhere that some GPU may not reach directly."""
        lowest = min((_reach(self.graph, node) for node in rank_nodes(self.graph)), default=len(P2P_LEVELS) - 1)
        beyond = {"pcie": 0, "cpu": 2}  # the greatest reach of a GPU that may not go on past such a node
        kind = kinds(self.graph)
        return np.array([lowest <= beyond.get(kind[dst], -1) for _, dst in self.paths.link], dtype=bool)

    @cached_property
    def _any_doubtful(self) -> bool:
        return bool(self._doubtful.any())

    def _spread(self, ends: Ints) -> Ints:
        """The number by which each pair picks among equal paths."""
        receivers = self._numbers[ends[:, 1]]
        if self._seed is None:
            return receivers.astype(np.int64)
        hashed = mix(mix(np.uint64(self._seed) + (self._numbers[ends[:, 0]] << np.uint64(32))) + receivers)
        return (hashed >> np.uint64(1)).astype(np.int64)


class RailAware(Shortest):
    """To another machine over the receiver's rail: first to the own GPU there, which sends (PXN, as NCCL calls it)."""

    def __init__(self, graph: "nx.DiGraph[str]") -> None:
        super().__init__(graph)
        nodes = graph.nodes(data=True)
        self._gpus = {(data["machine"], data["local"]): node for node, data in nodes if "local" in data}
        self._nics = {(data["machine"], data["rail"]): node for node, data in nodes if data.get("kind") == "nic"}
        self._check_rails()

    def _check_rails(self) -> None:
        if not self._nics:
            raise InputError("rail-aware routing needs machines whose GPUs and NICs are on rails; here is none")
        for node in self._gpus.values():
            data = self.graph.nodes[node]
            if (data["machine"], data.get("rail")) not in self._nics:
                raise InputError(
                    f"rail-aware routing: {node} is on rail {data.get('rail')}, where its machine has no NIC"
                )

    def _find(self, src: str, dst: str) -> Way:
        here, there = self.graph.nodes[src], self.graph.nodes[dst]
        if "local" not in here or "local" not in there or here["machine"] == there["machine"]:
            return super()._find(src, dst)
        rail, door = there["rail"], src
        if here["rail"] != rail:
            door = self._gpus.get((here["machine"], there["local"]), src)
        leaving, arriving = self._nics[here["machine"], rail], self._nics[there["machine"], rail]
        stations = dict.fromkeys((src, door, leaving, arriving, dst))
        return self._detoured(joined(self._leg(a, b) for a, b in pairwise(stations)))

    def many(self, pairs: Sequence[tuple[str, str]]) -> Ways:
        return Routes.many(self, pairs)


class Listed(Routes):
    """Routes that were written down, and another policy for all other pairs."""

    def __init__(self, graph: "nx.DiGraph[str]", ways: Iterable[Sequence[str]], otherwise: "Routing") -> None:
        super().__init__(graph)
        self._otherwise = otherwise(graph)
        for way in ways:
            _check_way(graph, way)
            if (way[0], way[-1]) in self._known:
                raise InputError(f"route {' - '.join(way)}: there is already one from {way[0]} to {way[-1]}")
            self._known[way[0], way[-1]] = tuple(way)

    def _find(self, src: str, dst: str) -> Way:
        return self._otherwise(src, dst)


Routing = Callable[["nx.DiGraph[str]"], Routes]
shortest: Routing = Shortest
rail_aware: Routing = RailAware


def ecmp(seed: int = 0) -> Routing:
    """Shortest paths, among equals one that a hash of seed, sender and receiver picks. Raises InputError."""
    if seed not in SEEDS:
        raise InputError(f"seed {seed} is none; give a whole number from 0 to {SEEDS[-1]}")
    return partial(Shortest, seed=seed)


def listed(ways: Iterable[Sequence[str]], otherwise: Routing = shortest) -> Routing:
    """Each of ``ways``, nodes from a sender to a receiver, in that direction; ``otherwise`` for all other pairs.

    The policy raises InputError for a graph in which one of them is no way, or a pair has two.
    """
    return partial(Listed, ways=tuple(map(tuple, ways)), otherwise=otherwise)


def joined(legs: Iterable[Way]) -> Way:
    """Legs, each beginning where the one before ends, as one way."""
    first, *others = legs
    return (*first, *(node for leg in others for node in leg[1:]))


def _spliced(ways: Ways, numbers: Sequence[int], others: Ways) -> Ways:
    """``ways`` with those of these numbers replaced, in turn, by ``others``."""
    old = np.diff(ways.first)
    lengths, stays = old.copy(), np.ones(len(old), dtype=bool)
    lengths[numbers], stays[numbers] = np.diff(others.first), False
    first = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    link, kept = np.empty(first[-1], np.int32), np.repeat(stays, lengths)
    link[kept], link[~kept] = ways.link[np.repeat(stays, old)], others.link
    return Ways(first, link)


def _stops(graph: "nx.DiGraph[str]", way: Way) -> list[str]:
    """The host memories that a way must lead through."""
    machines = [graph.nodes[node].get("machine") for node in way]
    if machines[0] == machines[-1]:
        far = _distance(graph, way) > min(_reach(graph, way[0]), _reach(graph, way[-1]))
        memories = [graph.nodes[node].get("memory") for node in (way[-1], way[0])]
        return [memory for memory in memories if memory][:1] if far else []
    stops = []
    for end in (0, -1):
        side = [node for node, machine in zip(way, machines, strict=True) if machine == machines[end]]
        if _distance(graph, side) > _reach(graph, way[end]):
            stops.append(graph.nodes[way[end]]["memory"])
    return stops


def _distance(graph: "nx.DiGraph[str]", nodes: Sequence[str]) -> int:
    """Index in P2P_LEVELS of what the devices along a way must be able to cross."""
    kinds = [kind_of(graph, node) for node in nodes]
    cpus = kinds.count("cpu")
    return 1 + min(cpus, 2) if cpus else int("pcie" in kinds or "nic" in kinds)


def _reach(graph: "nx.DiGraph[str]", node: str) -> int:
    return P2P_LEVELS.index(graph.nodes[node].get("p2p_level", "SYS"))


def _check_way(graph: "nx.DiGraph[str]", way: Sequence[str]) -> None:
    shown = f"route {' - '.join(way)}"
    if len(way) < 2 or way[0] == way[-1]:
        raise InputError(f"{shown}: a route leads from one node to another; name all on the way, both ends included")
    crossed = set()
    for a, b in pairwise(way):
        if not graph.has_edge(a, b):
            raise InputError(f"{shown}: no link leads from {a} to {b}")
        if (a, b) in crossed:
            raise InputError(f"{shown}: it crosses the link from {a} to {b} twice")
        crossed.add((a, b))
    for node in (way[0], way[-1]):
        if node not in rank_nodes(graph):
            raise InputError(f"{shown}: {node} holds no rank; a route begins and ends at a host or a GPU")
