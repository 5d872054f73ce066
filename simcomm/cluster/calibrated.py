"""Clusters whose costs are measured: processes of this machine, and other machines that run this one's software."""

from collections.abc import Sequence
from dataclasses import fields, replace
from math import inf

import networkx as nx

from collectives.checks import check_whole_number
from collectives.errors import InputError
from collectives.records.calibration import Calibration, cached_calibration, check_calibration
from collectives.transport import TcpTerms, Transport
from collectives.units import count
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.pair_fit import fit_pair

# Payload of a TCP segment over what it takes on an Ethernet link: MTU 1500 less 20 bytes of IPv4 header (RFC 791) and
# 32 of TCP with time stamps (RFC 9293, RFC 7323); plus 14 of Ethernet header, 4 of checksum, 8 of preamble and 12 of
# gap (IEEE 802.3).
TCP_GOODPUT = (1500 - 20 - 32) / (1500 + 14 + 4 + 8 + 12)


class ThisMachine(Cluster):
    """Processes of this machine, joined by its memory."""

    time_model = "measured"
    is_here, is_built = True, None

    @property
    def place_of_run(self) -> str:
        return self.title

    def machines(self) -> list[object]:
        return [self.title] * self.world_size

    def describe_links(self) -> str:
        return ", and both directions share one memory"

    def world_sizes(self) -> list[int]:
        return [self.world_size]

    def on_first(self, world_size: int) -> Cluster:
        """Return the cluster for all of its ranks, for which alone it is calibrated. Raise InputError for fewer."""
        if world_size != self.world_size:
            raise InputError(f"this machine is calibrated for all of its {self.world_size} ranks alone")
        return self

    @property
    def local_ranks(self) -> int:
        return self.world_size

    @property
    def calibration_ranks(self) -> int:
        return self.world_size


class EmulatedCluster(Cluster):
    """Processes of this machine on a network that is built for them as the graph says."""

    time_model = "emulated"
    is_built = True

    @property
    def place_of_run(self) -> str:
        return f"{self.title}, emulated"

    @property
    def local_ranks(self) -> int:
        return self.world_size


def as_emulated(cluster: Cluster) -> EmulatedCluster:
    """Return the cluster as a network that is built on this machine.

    >>> import simcomm
    >>> as_emulated(simcomm.star(4, "1 Gbit/s", "0 us")).local_ranks
    4
    """
    return EmulatedCluster(**{each.name: getattr(cluster, each.name) for each in fields(Cluster)})


def this_machine(ranks: int) -> Cluster:
    """Return ``ranks`` processes of this machine, joined by its memory. Raise InputError for less than one.

    ``simcomm.run`` needs a calibration for it.

    >>> this_machine(2).world_size
    2
    """
    hosts = tuple(f"h{i}" for i in range(check_whole_number("ranks", ranks, at_least=1)))
    return ThisMachine(f"{count(ranks, 'rank')} of this machine", _memory_graph(hosts, inf, inf), hosts, None)


def with_calibration(cluster: Cluster, calibration: Calibration) -> Cluster:
    """Return the cluster with the measured costs of this machine's software and, if it is this machine, its memory.

    Raise InputError if this machine was measured with another number of ranks.
    """
    if cluster.is_here:
        if calibration.ranks != cluster.world_size:
            raise InputError(
                f"the calibration is of {calibration.ranks} ranks, but {cluster.title} has {cluster.world_size}; "
                f"make one with `ringlab calibrate --ranks {cluster.world_size}`"
            )
        alone = _rate(1, calibration.one_way.per_byte)
        together = _rate(len(cluster.hosts), calibration.both_ways.per_byte)
        graph = _memory_graph(cluster.hosts, alone, together)
        return replace(cluster, graph=graph, transport=calibration.transport(goodput=1.0))
    if cluster.transport is None:
        return replace(cluster, transport=_borrowed_transport(cluster, calibration))
    return cluster


def _borrowed_transport(cluster: Cluster, calibration: Calibration) -> Transport:
    """Return the costs of this machine's software for a cluster of other machines, with the terms that it asks for."""
    given = cluster.tcp_terms or {}
    if calibration.pair is not None:
        measured = fit_pair(calibration.pair, cluster.world_size)
        assert measured.tcp is not None
        return replace(measured, tcp=replace(measured.tcp, **given), source=f"calibrated {calibration.created}")
    if not given:
        return calibration.transport(goodput=TCP_GOODPUT)
    return replace(calibration.transport(goodput=1.0), tcp=TcpTerms(**given))


def _rate(messages: int, seconds_per_byte: float) -> float:
    """Return bytes per second; infinitely many where, as with one rank, nothing was sent."""
    return messages / seconds_per_byte if seconds_per_byte > 0 else inf


def hop_calibration(cluster: Cluster, calibration: Calibration | None) -> Calibration | None:
    """Return the calibration whose hops time what runs on this machine; None where it has a transport already.

    Without ``calibration`` the cached one is taken. Raises InputError where there is none, or it is of other ranks.
    """
    check_calibration(calibration)
    if cluster.transport is not None:
        return None
    calibration = calibration or cached_calibration(cluster.world_size)
    with_calibration(cluster, calibration)
    return calibration if calibration.hops or cluster.world_size == 1 else None


def resolve_transport(cluster: Cluster, calibration: Calibration | None = None) -> tuple[Cluster, Transport]:
    """Return the cluster and its transport, both calibrated where they need to be.

    Without ``calibration`` the cached one is taken. Raises InputError where there is none.
    """
    check_calibration(calibration)
    if cluster.transport is None:
        cluster = with_calibration(cluster, calibration or cached_calibration(cluster.calibration_ranks))
    assert cluster.transport is not None
    return cluster, cluster.transport


def _memory_graph(hosts: Sequence[str], alone: float, shared: float) -> "nx.DiGraph[str]":
    """Return hosts whose messages all cross one edge: processes of a machine share its memory in both directions.

    The edge offers ``alone`` bytes/s to a single message and ``shared`` bytes/s to several together.
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edge("s0", "s1", bandwidth=alone, shared_bandwidth=shared, latency=0.0)
    for host in hosts:
        graph.add_edge(host, "s0", bandwidth=inf, latency=0.0)
        graph.add_edge("s1", host, bandwidth=inf, latency=0.0)
    return graph
