"""Define clusters of processes on this machine, connected by its memory or by an emulated network."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from math import inf

import networkx as nx

from collectives.checks import check_whole_number
from collectives.errors import InputError
from collectives.records.calibration import Calibration, cached_calibration, check_calibration
from collectives.training.workload import Training
from collectives.transport import Transport
from collectives.units import count
from simcomm.cluster.cluster import Cluster


class ThisMachine(Cluster):
    """Processes on this machine, which exchange messages through its memory."""

    performance_model = "measured"
    is_here, is_built = True, None

    @property
    def place_of_run(self) -> str:
        return self.title

    def machines(self) -> list[object]:
        return [self.title] * self.world_size

    def on_first(self, world_size: int) -> Cluster:
        """Return this cluster unchanged. Raise InputError if ``world_size`` is not its number of ranks."""
        if world_size != self.world_size:
            raise InputError(
                f"world_size must be {self.world_size}, the number of ranks of {self.title}, not {world_size}"
            )
        return self

    def calibrated_by(self, calibration: Calibration) -> Cluster:
        """Return the cluster with the calibrated software costs and memory bandwidths.

        Raise InputError if the calibration is for a different number of ranks.
        """
        if calibration.ranks != self.world_size:
            raise InputError(
                f"the calibration is for {calibration.ranks} ranks, but {self.title} has {self.world_size}; "
                f"run `ringlab calibrate --ranks {self.world_size}`"
            )
        alone = _rate(1, calibration.one_way.per_byte)
        together = _rate(len(self.hosts), calibration.both_ways.per_byte)
        graph = _memory_graph(self.hosts, alone, together)
        return replace(self, graph=graph, transport=calibration.transport(goodput=1.0))

    def check_measurable(self, backend: str, gpus: Callable[[], Sequence[str]]) -> None:
        """Do nothing: the ranks are processes on this machine, so every backend can be measured."""

    def warn_of_run(self, backend: str) -> str:
        return ""

    @property
    def local_ranks(self) -> int:
        return self.world_size

    @property
    def calibration_ranks(self) -> int:
        return self.world_size


class EmulatedCluster(Cluster):
    """Processes on this machine, connected by an emulated network that is built for the run."""

    performance_model = "emulated"
    is_built = True

    @property
    def place_of_run(self) -> str:
        return f"{self.title}, emulated"

    @property
    def local_ranks(self) -> int:
        return self.world_size


def as_emulated(cluster: Cluster) -> EmulatedCluster:
    """Return the cluster as an EmulatedCluster, whose network is emulated on this machine.

    >>> import simcomm
    >>> as_emulated(simcomm.star(4, "1 Gbit/s", "0 us")).local_ranks
    4
    """
    return EmulatedCluster(**{each.name: getattr(cluster, each.name) for each in fields(Cluster)})


def this_machine(ranks: int) -> Cluster:
    """Return a cluster of ``ranks`` processes on this machine. Raise InputError if ``ranks`` is less than one.

    ``simcomm.run`` needs a calibration for this cluster.

    >>> this_machine(2).world_size
    2
    """
    hosts = tuple(f"h{i}" for i in range(check_whole_number("ranks", ranks, at_least=1)))
    return ThisMachine(f"{count(ranks, 'rank')} of this machine", _memory_graph(hosts, inf, inf), hosts, None)


def uses_calibration(cluster: Cluster, training: Training | None = None) -> bool:
    """Return whether a calibration affects predictions of collectives on a cluster.

    If ``training`` is given, return whether it affects predictions of that training run.

    >>> import simcomm
    >>> uses_calibration(simcomm.star(4, "10 Gbit/s", "5 us")), uses_calibration(simcomm.this_machine(2))
    (False, True)
    """
    if cluster.transport is None or cluster.is_built is not False:
        return True
    return training is not None and (training.compute is None or training.overlaps)


def check_used(calibration: Calibration | None, clusters: Sequence[Cluster], training: Training | None = None) -> None:
    """Raise InputError if a calibration is given, but has no effect on predictions for any of the clusters."""
    described = [cluster.title for cluster in clusters if not uses_calibration(cluster, training)]
    if check_calibration(calibration) is not None and len(described) == len(clusters) > 0:
        raise InputError(
            f"a calibration has no effect on {described[0]}, which states all of its costs; omit the calibration"
        )


def resolve_transport(cluster: Cluster, calibration: Calibration | None = None) -> tuple[Cluster, Transport]:
    """Return the cluster and its transport. If the cluster has no transport, a calibration provides it.

    ``calibration`` defaults to the cached one. Raise InputError if a calibration is needed and missing.
    """
    check_calibration(calibration)
    if cluster.transport is None:
        cluster = cluster.calibrated_by(calibration or cached_calibration(cluster.calibration_ranks))
    assert cluster.transport is not None
    return cluster, cluster.transport


def _rate(messages: int, seconds_per_byte: float) -> float:
    return messages / seconds_per_byte if seconds_per_byte > 0 else inf


def _memory_graph(hosts: Sequence[str], alone: float, shared: float) -> "nx.DiGraph[str]":
    """Return a network in which every message crosses one edge, s0 to s1, that represents the machine's memory.

    A message alone gets ``alone`` bytes/s, and several messages get ``shared`` bytes/s in total.
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edge("s0", "s1", bandwidth=alone, shared_bandwidth=shared, latency=0.0)
    for host in hosts:
        graph.add_edge(host, "s0", bandwidth=inf, latency=0.0)
        graph.add_edge("s1", host, bandwidth=inf, latency=0.0)
    return graph
