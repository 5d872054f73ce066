"""Pairs of ranks that send to each other and the routes between them, as arrays."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.graph import complete_links
from simcomm.cluster.paths import find_shortest_paths
from simcomm.cluster.routing import Router
from simcomm.compiled.kernel.arrays import Floats, Ints

HOPS_AT_ONCE = 1_000_000  # of which more than a number each is worked out, which bounds the memory for that


class Pairs(NamedTuple):
    """Pairs of ranks: all that a pair sends takes one route."""

    src: Ints
    dst: Ints


class Routes(NamedTuple):
    """Routes by number; route r crosses the links ``hop_link[first_hop[r]:first_hop[r + 1]]``."""

    first_hop: Ints  # [routes + 1]
    hop_link: Ints  # [hops]
    delay: Floats  # [routes]: seconds from both halves posted to the first byte on the links
    alone: Floats  # [links]: bytes/s for one message alone on the link
    shared: Floats  # [links]: bytes/s for several together
    latency: Floats  # [links]: seconds, which the delays already contain


def find_routes(cluster: Cluster, transport: Transport, pairs: Pairs, router: Router | None = None) -> Routes:
    """Return the route of every pair as the cluster's policy finds it; links are in the graph's order of edges.

    A ``router`` of the cluster that is at hand has worked out some of it before.
    """
    first, link = (router or cluster.router()).links_between(cluster.hosts, pairs.src, pairs.dst)
    return _make_routes(first.astype(np.int32, copy=False), link.astype(np.int32, copy=False), cluster, transport)


def with_speeds(routes: Routes, cluster: Cluster, transport: Transport) -> Routes:
    """Return the same routes with the bandwidths and latencies of another cluster, whose links are numbered alike."""
    return _make_routes(routes.first_hop, routes.hop_link, cluster, transport)


def _make_routes(first: Ints, link: Ints, cluster: Cluster, transport: Transport) -> Routes:
    alone, shared, latency = _link_figures(cluster, transport.goodput)
    delay = _delays(transport.overhead, latency, first, link)
    return Routes(first, link, delay, alone, shared, latency)


def _delays(overhead: float, latency: Floats, first: Ints, link: Ints) -> Floats:
    """Return the overhead and the latency of all links of each route together."""
    counts = np.diff(first)
    if not (counts == 1).all():
        found = np.empty(len(counts))
        for begin, end in pieces(first):
            route = np.repeat(np.arange(end - begin), counts[begin:end])
            found[begin:end] = np.bincount(route, latency[link[first[begin] : first[end]]], minlength=end - begin)
        return overhead + found
    found = _of_links(latency, link)
    return np.broadcast_to(overhead + found[0], len(link)) if _are_one(found) else overhead + found


def _are_one(figures: Floats) -> bool:
    """Return whether figures share one place."""
    return len(figures) > 0 and figures.strides == (0,)


def _of_links(figures: Floats, link: Ints) -> Floats:
    """Return the figure of each link; figures that share one place share it again."""
    return np.broadcast_to(figures[0], len(link)) if _are_one(figures) and len(link) else figures[link]


def _link_figures(cluster: Cluster, goodput: float) -> tuple[Floats, Floats, Floats]:
    """Return the bytes/s of payload of every link for one message and for several, and its latency in seconds.

    Where all links are alike, their figures share one place.
    """
    link, hosts = complete_links(cluster.graph), len(cluster.graph)
    if link is not None:
        figures = link.bandwidth * goodput, link.latency
        bandwidth, delay = (np.broadcast_to(np.float64(figure), hosts * (hosts - 1)) for figure in figures)
        return bandwidth, bandwidth, delay
    alone, shared, latency = find_shortest_paths(cluster.graph).speeds
    return alone * goodput, shared * goodput, latency


def pieces(first_hop: Ints) -> Iterator[tuple[int, int]]:
    """Yield where pieces of the list of routes begin and end, each with about ``HOPS_AT_ONCE`` hops."""
    cuts = np.searchsorted(first_hop, np.arange(0, int(first_hop[-1]) + 1, HOPS_AT_ONCE))
    yield from pairwise(np.unique(np.append(cuts, [0, len(first_hop) - 1])).tolist())


def alone_rates(routes: Routes) -> Floats:
    """Return the bytes/s of a message that shares no link, for each route; infinite where none limits it."""
    if (np.diff(routes.first_hop) == 1).all():
        return _of_links(routes.alone, routes.hop_link)
    rate = np.full(len(routes.delay), np.inf)
    for begin, end in pieces(routes.first_hop):
        route = np.repeat(np.arange(begin, end), np.diff(routes.first_hop[begin : end + 1]))
        np.minimum.at(rate, route, routes.alone[routes.hop_link[routes.first_hop[begin] : routes.first_hop[end]]])
    return rate
