"""Pairs of ranks that send to each other and the routes between them, as arrays."""

from typing import NamedTuple

import numpy as np

from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.complete import complete_links
from simcomm.compiled.kernel.arrays import Floats, Ints


class Pairs(NamedTuple):
    """Pairs of ranks: all that a pair sends takes one route."""

    src: Ints
    dst: Ints


class Routes(NamedTuple):
    """Routes by number; route r crosses the links ``hop_link[first_hop[r]:first_hop[r + 1]]``.

    A route may stand for several alike: ``hop_weight`` says how many of them cross one link. With every weight 1 it
    stands for itself.
    """

    first_hop: Ints  # [routes + 1]
    hop_link: Ints  # [hops]
    hop_weight: Ints  # [hops]
    delay: Floats  # [routes]: seconds from both halves posted to the first byte on the links
    alone: Floats  # [links]: bytes/s for one message alone on the link
    shared: Floats  # [links]: bytes/s for several together
    latency: Floats  # [links]: seconds, which the delays already contain


def find_routes(cluster: Cluster, transport: Transport, pairs: Pairs) -> Routes:
    """Return the route of every pair as the cluster's policy finds it; links are in the graph's order of edges."""
    hosts = cluster.hosts
    ends = [(hosts[a], hosts[b]) for a, b in zip(pairs.src.tolist(), pairs.dst.tolist(), strict=True)]
    first, link = cluster.router().links(ends)
    return _make_routes(first.astype(np.int32), link.astype(np.int32), cluster, transport)


def with_speeds(routes: Routes, cluster: Cluster, transport: Transport) -> Routes:
    """Return the same routes with the bandwidths and latencies of another cluster, whose links are numbered alike."""
    return _make_routes(routes.first_hop, routes.hop_link, cluster, transport)


def _make_routes(first: Ints, link: Ints, cluster: Cluster, transport: Transport) -> Routes:
    alone, shared, latency = _link_figures(cluster)
    counts = np.diff(first)
    seconds = np.bincount(np.repeat(np.arange(len(counts)), counts), weights=latency[link], minlength=len(counts))
    return Routes(
        first, link, np.ones(len(link), np.int32), transport.overhead + seconds,
        alone * transport.goodput, shared * transport.goodput, latency,
    )  # fmt: skip


def _link_figures(cluster: Cluster) -> tuple[Floats, Floats, Floats]:
    """Return the bytes/s of every link for one message and for several, and its latency in seconds."""
    link, hosts = complete_links(cluster.graph), len(cluster.graph)
    if link is not None:
        bandwidth, delay = (np.full(hosts * (hosts - 1), figure) for figure in (link.bandwidth, link.latency))
        return bandwidth, bandwidth, delay
    rows = [
        (data["bandwidth"], data.get("shared_bandwidth", data["bandwidth"]), data["latency"])
        for _, _, data in cluster.graph.edges(data=True)
    ]
    alone, shared, latency = np.array(rows, dtype=np.float64).reshape(-1, 3).T.copy()
    return alone, shared, latency


def alone_rates(routes: Routes) -> Floats:
    """Return the bytes/s of a message that shares no link, for each route; infinite where none limits it."""
    rate = np.full(len(routes.delay), np.inf)
    np.minimum.at(rate, np.repeat(np.arange(len(rate)), np.diff(routes.first_hop)), routes.alone[routes.hop_link])
    return rate
