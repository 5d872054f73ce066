"""Which rank lives where: the order of a cluster's hosts, as launchers know it.

A group is a machine or, where hosts stand alone, the hosts on one switch: what is near each other.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, zip_longest

from collectives.errors import InputError
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.graph import rank_nodes


def groups(cluster: Cluster) -> list[list[str]]:
    """The hosts by machine or switch, both in the order in which they come."""
    found: dict[object, list[str]] = {}
    for host in cluster.hosts:
        found.setdefault(_group(cluster, host), []).append(host)
    return list(found.values())


def _group(cluster: Cluster, host: str) -> object:
    data = cluster.graph.nodes[host]
    if "machine" in data:
        return data["machine"]
    around = list(cluster.graph.successors(host))
    return around[0] if len(around) == 1 else host


def block(cluster: Cluster) -> Cluster:
    """Neighbouring ranks live in one group until it is full (Slurm's block, torchrun's order)."""
    return replace(cluster, hosts=tuple(chain.from_iterable(groups(cluster))))


def round_robin(cluster: Cluster) -> Cluster:
    """Neighbouring ranks live in different groups, one in each in turn (Slurm's cyclic)."""
    turns = zip_longest(*groups(cluster))
    return replace(cluster, hosts=tuple(host for turn in turns for host in turn if host is not None))


def listed(cluster: Cluster, hosts: Sequence[str]) -> Cluster:
    """Rank r lives on ``hosts[r]``. Raises InputError for a node that is not there, holds no rank, or comes twice."""
    there = rank_nodes(cluster.graph)
    for rank, host in enumerate(hosts):
        if host not in there:
            raise InputError(f"rank {rank} on {host!r}: no such host; there are {_shown(there)}")
        if host in hosts[:rank]:
            raise InputError(f"rank {rank} on {host!r}: rank {list(hosts).index(host)} is there, and a host holds one")
    if not hosts:
        raise InputError(f"no rank is placed; name at least one of {_shown(there)}")
    return replace(cluster, hosts=tuple(hosts))


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:4])} to {names[-1]}"
