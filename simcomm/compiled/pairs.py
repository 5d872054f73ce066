"""The routes of a cluster between pairs of ranks, as arrays."""

from typing import NamedTuple

import numpy as np

from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.routes import Floats, Ints, Routes


class Pairs(NamedTuple):
    """Ranks that send to each other; what a pair sends takes one route."""

    src: Ints
    dst: Ints


def routes_between(cluster: Cluster, transport: Transport, pairs: Pairs) -> Routes:
    """The route of every pair, as the cluster's policy finds it; links are numbered in the graph's order of edges."""
    hosts = cluster.hosts
    ends = [(hosts[a], hosts[b]) for a, b in zip(pairs.src.tolist(), pairs.dst.tolist(), strict=True)]
    first, link = cluster.router().links(ends)
    alone, shared, latency = _links(cluster)
    counts = np.diff(first)
    seconds = np.zeros(len(counts))
    np.add.at(seconds, np.repeat(np.arange(len(counts)), counts), latency[link])
    return Routes(
        first.astype(np.int32), link.astype(np.int32), np.ones(len(link), np.int32), transport.overhead + seconds,
        alone * transport.goodput, shared * transport.goodput, latency,
    )  # fmt: skip


def _links(cluster: Cluster) -> tuple[Floats, Floats, Floats]:
    """Bytes/s of every link for one message and for several, and its latency in seconds."""
    rows = [
        (data["bandwidth"], data.get("shared_bandwidth", data["bandwidth"]), data["latency"])
        for _, _, data in cluster.graph.edges(data=True)
    ]
    alone, shared, latency = np.array(rows, dtype=np.float64).reshape(-1, 3).T.copy()
    return alone, shared, latency
