"""Place ranks on hosts in the order that a launcher uses.

A group contains hosts that are close to each other: the GPUs of one machine, or the hosts on one switch.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, zip_longest

import networkx as nx

from collectives.checks import check_cluster, check_sequence
from collectives.errors import InputError
from collectives.quoting import name_some, quote
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.graph import rank_nodes


def place_in_blocks(cluster: Cluster) -> Cluster:
    """Place consecutive ranks in the same group until it is full (Slurm's ``block``, torchrun's order).

    >>> import simcomm
    >>> place_in_blocks(simcomm.two_level_tree(2, 2, "10 Gbit/s", "5 us")).hosts
    ('h0', 'h1', 'h2', 'h3')
    """
    return replace(cluster, hosts=tuple(chain.from_iterable(_groups(cluster))))


def place_round_robin(cluster: Cluster) -> Cluster:
    """Place consecutive ranks in different groups, one per group and round (Slurm's ``cyclic``).

    >>> import simcomm
    >>> place_round_robin(simcomm.two_level_tree(2, 2, "10 Gbit/s", "5 us")).hosts
    ('h0', 'h2', 'h1', 'h3')
    """
    rounds = zip_longest(*_groups(cluster))
    return replace(cluster, hosts=tuple(host for hosts in rounds for host in hosts if host is not None))


def place_on(cluster: Cluster, hosts: Sequence[str]) -> Cluster:
    """Place rank r on ``hosts[r]``. Raise InputError for an empty list, duplicates, or nodes that cannot hold a rank.

    >>> import simcomm
    >>> place_on(simcomm.star(4, "10 Gbit/s", "5 us"), ["h3", "h1"]).world_size
    2
    """
    check_cluster(cluster, Cluster)
    allowed = rank_nodes(cluster.graph)
    for rank, host in enumerate(check_sequence("hosts", hosts, of="nodes")):
        if host not in allowed:
            raise InputError(f"rank {rank}: host {quote(host)} does not exist; hosts are {name_some(allowed)}")
        if host in hosts[:rank]:
            raise InputError(
                f"rank {rank}: host {quote(host)} already has rank {list(hosts).index(host)}; use each host once"
            )
    if not hosts:
        raise InputError(f"hosts must not be empty; use at least one of {name_some(allowed)}")
    return replace(cluster, hosts=tuple(hosts))


def make_room(cluster: Cluster, ranks: int) -> Cluster:
    """Return the cluster with enough hosts for ``ranks`` ranks. Each new host has the same links as an existing host.

    Raise InputError if hosts are missing, and the existing ones are GPUs, forward messages, or are processes on this
    machine.

    >>> import simcomm
    >>> make_room(simcomm.two_level_tree(2, 2, "10 Gbit/s", "5 us"), 8).hosts
    ('h0', 'h0.1', 'h1', 'h1.1', 'h2', 'h2.1', 'h3', 'h3.1')
    """
    times = -(-ranks // cluster.world_size)
    if times <= 1 or cluster.is_built is not False:
        return cluster.on_first(ranks)
    graph, hosts = nx.DiGraph(cluster.graph), []
    for host in cluster.hosts:
        switches = list(graph.successors(host))
        if len(switches) != 1 or switches[0] in cluster.hosts or "machine" in graph.nodes[host]:
            return cluster.on_first(ranks)  # raises InputError
        hosts += [host, *(f"{host}.{number}" for number in range(1, times))]
        for node in hosts[1 - times :]:
            graph.add_node(node, **graph.nodes[host])
            graph.add_edge(node, switches[0], **graph.edges[host, switches[0]])
            graph.add_edge(switches[0], node, **graph.edges[switches[0], host])
    title = f"{cluster.title}, each host {times} times"
    return replace(cluster, title=title, graph=graph, hosts=tuple(hosts)).on_first(ranks)


def _groups(cluster: Cluster) -> list[list[str]]:
    check_cluster(cluster, Cluster)
    groups: dict[object, list[str]] = {}
    for host in cluster.hosts:
        groups.setdefault(_group(cluster, host), []).append(host)
    return list(groups.values())


def _group(cluster: Cluster, host: str) -> object:
    data = cluster.graph.nodes[host]
    if "machine" in data:
        return data["machine"]
    neighbors = list(cluster.graph.successors(host))
    return neighbors[0] if len(neighbors) == 1 else host
