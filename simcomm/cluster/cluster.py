"""Clusters: hosts, switches and links as a networkx graph, and which host each rank lives on."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

import networkx as nx

from collectives.errors import InputError
from collectives.records.calibration import Calibration
from collectives.transport import Transport
from collectives.units import format_bandwidth
from simcomm.cluster.check import check_graph
from simcomm.cluster.graph import check_whole, empty, join, natural, rank_nodes, wire
from simcomm.cluster.routing import Routes, Routing, shortest
from simcomm.model.sharing import Sharing, fair

IDEAL = Transport()

# Payload of a TCP segment over what it takes on an Ethernet wire: MTU 1500 less 20 bytes of IPv4 header (RFC 791) and
# 32 of TCP with time stamps (RFC 9293, RFC 7323); plus 14 of Ethernet header, 4 of checksum, 8 of preamble and 12 of
# gap (IEEE 802.3).
TCP_GOODPUT = (1500 - 20 - 32) / (1500 + 14 + 4 + 8 + 12)


@dataclass(frozen=True)
class Cluster:
    """Where the ranks are, what joins them, and which way messages take.

    Every edge of ``graph`` is one direction of a link: ``bandwidth`` in bytes/s, ``latency`` in seconds and, where
    several messages at once get another total than one alone, ``shared_bandwidth``. ``simcomm.cluster.graph``
    lists what else nodes and edges may say.
    """

    title: str
    graph: "nx.DiGraph[str]"
    hosts: tuple[str, ...]  # node of each rank
    transport: Transport | None  # None: needs a calibration
    is_here: bool = False  # the ranks are processes of this machine
    routing: Routing = shortest
    sharing: Sharing = fair  # of a link between the messages on it

    @property
    def world_size(self) -> int:
        return len(self.hosts)

    @property
    def local_ranks(self) -> int:
        """Ranks that share one machine."""
        return self.world_size if self.is_here else 1

    def routes(self) -> Routes:
        """The routes between its nodes, as its policy finds them."""
        return self.routing(self.graph)

    def on_first(self, world_size: int) -> "Cluster":
        """The same network with one rank on each of its first hosts. Raises InputError for none or too many."""
        if not 1 <= world_size <= len(self.hosts):
            raise InputError(
                f"{world_size} ranks do not fit: the cluster has {len(self.hosts)} hosts, and each holds one rank"
            )
        return replace(self, hosts=self.hosts[:world_size])

    def calibrated(self, calibration: Calibration) -> "Cluster":
        """The same cluster with what was measured of this machine's software and, if it is this machine, its memory."""
        if self.is_here:
            if calibration.ranks != self.world_size:
                raise InputError(
                    f"the calibration is of {calibration.ranks} ranks, but {self.title} has {self.world_size}; "
                    f"make one with `ringlab calibrate --ranks {self.world_size}`"
                )
            return replace(self, graph=_loopback(self.hosts, calibration), transport=calibration.transport(goodput=1.0))
        return replace(self, transport=calibration.transport(goodput=TCP_GOODPUT)) if self.transport is None else self


def star(hosts: int, bandwidth: str, latency: str, transport: Transport | None = IDEAL) -> Cluster:
    """``hosts`` machines on one switch, each by a link of ``bandwidth`` and ``latency`` in each direction."""
    if hosts < 1:
        raise InputError(f"a star of {hosts} hosts has none to hold a rank; at least 1 is needed")
    graph, along = empty(), wire(bandwidth, latency)
    for host in range(hosts):
        join(graph, f"h{host}", "s0", along)
    names = tuple(f"h{host}" for host in range(hosts))
    return Cluster(f"star of {hosts} hosts, {format_bandwidth(along.bandwidth)}", graph, names, transport)


def from_links(
    links: Iterable[tuple[str, str, str, str]],
    transport: Transport | None = IDEAL,
    title: str = "",
    world_size: int | None = None,
) -> Cluster:
    """A cluster of links ``(a, b, bandwidth, latency)``; nodes named h* hold one rank each, s* are switches.

    Raises InputError for a node that is neither, a link twice, a link from a node to itself, a network in pieces, no
    host, or more ranks than hosts.
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    for a, b, bandwidth, latency in links:
        _check_link(graph, a, b)
        join(graph, a, b, wire(bandwidth, latency))
    hosts = sorted(rank_nodes(graph), key=natural)
    check_whole(graph)
    title = title or f"{len(hosts)} hosts, {graph.number_of_edges() // 2} links"
    cluster = Cluster(title, graph, tuple(hosts), transport)
    return cluster if world_size is None else cluster.on_first(world_size)


def from_graph(
    graph: "nx.Graph[str] | nx.DiGraph[str]", transport: Transport | None = IDEAL, title: str = ""
) -> Cluster:
    """A cluster of any networkx graph with ``bandwidth`` (bytes/s) and ``latency`` (seconds) on its edges.

    An edge of an undirected graph stands for both directions. One rank lives on every node whose ``kind`` is host or
    gpu or, where it has no kind, whose name begins with h; in natural order. Raises InputError that names edge and key.
    """
    directed = check_graph(graph)
    hosts = tuple(sorted(rank_nodes(directed), key=natural))
    return Cluster(title or f"{len(hosts)} hosts, {directed.number_of_nodes()} nodes", directed, hosts, transport)


def usable(cluster: Cluster) -> Cluster:
    """The same cluster with, on every link where a source says, what software gets of it in place of the wire rate."""
    graph = cluster.graph.copy()
    for _, _, data in graph.edges(data=True):
        data["bandwidth"] = data.get("usable_bandwidth", data["bandwidth"])
    return replace(cluster, graph=graph)


def this_machine(ranks: int) -> Cluster:
    """``ranks`` processes of this machine, joined by its memory; ``simcomm.run`` needs its calibration."""
    if ranks < 1:
        raise InputError(f"a cluster needs at least one rank, not {ranks}")
    hosts = tuple(f"h{i}" for i in range(ranks))
    return Cluster(f"{ranks} ranks of this machine", _through_memory(hosts, inf, inf), hosts, None, is_here=True)


def _through_memory(hosts: Sequence[str], alone: float, shared: float) -> "nx.DiGraph[str]":
    """Every message crosses one edge: processes of one machine share its memory and cores in both directions."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edge("s0", "s1", bandwidth=alone, shared_bandwidth=shared, latency=0.0)
    for host in hosts:
        graph.add_edge(host, "s0", bandwidth=inf, latency=0.0)
        graph.add_edge("s1", host, bandwidth=inf, latency=0.0)
    return graph


def _loopback(hosts: Sequence[str], calibration: Calibration) -> "nx.DiGraph[str]":
    alone = 1 / calibration.one_way.per_byte
    return _through_memory(hosts, alone, len(hosts) / calibration.both_ways.per_byte)


def _check_link(graph: "nx.DiGraph[str]", a: str, b: str) -> None:
    for node in (a, b):
        if not re.fullmatch(r"[hs]\w*", node):
            raise InputError(
                f"link {a} - {b}: node {node!r} leads nowhere; name hosts h0, h1, ... and switches s0, s1, ..."
            )
    if a == b:
        raise InputError(f"link {a} - {b}: a link needs two different nodes")
    if graph.has_edge(a, b):
        raise InputError(f"link {a} - {b} is there twice")
