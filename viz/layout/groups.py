"""Group equivalent nodes of a large network so that its drawing stays readable.

First, each machine becomes one node. While a row is still too wide, three rules join nodes: hosts with the same
neighbors, switches with the same lower neighbors, and lowest-tier switches with the same upper neighbors.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from viz.layout.geometry import Graph, natural_order
from viz.layout.layout import find_tiers, place_nodes
from viz.layout.machines import kind_of

WIDEST = 32  # maximum nodes in a row without groups
WIDEST_OF_GROUPS = 24  # maximum nodes in a row with groups

Cable = tuple[str, float]  # medium and bytes per second
KeyOf = Callable[[str], Hashable]


@dataclass(frozen=True)
class NodeGroup:
    """Equivalent nodes that are drawn as one node."""

    kind: str
    members: tuple[str, ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class GroupedNetwork:
    """A network of groups, each named after its machine or its first member."""

    groups: Mapping[str, NodeGroup]
    graph: Graph  # both directions of each link; the edge attribute ``cables`` counts links by Cable
    hosts: tuple[str, ...]  # groups with ranks, in the order of the ranks
    is_whole: bool  # each group is one node


def group_nodes(graph: Graph, hosts: Sequence[str]) -> GroupedNetwork:
    """Return the network with equivalent nodes grouped. A small network is returned without groups.

    >>> graph = nx.DiGraph()
    >>> for host in range(100):
    ...     graph.add_edge(f"h{host}", "s0", bandwidth=1e9)
    >>> network = group_nodes(graph, [f"h{host}" for host in range(100)])
    >>> [(name, len(group.members)) for name, group in network.groups.items()]
    [('h0', 100), ('s0', 1)]
    """
    of = {node: node for node in graph}
    if not _is_readable(graph, hosts):
        if any(graph.nodes[node].get("kind") == "gpu" for node in graph):
            of = {node: _machine(graph, node) for node in graph}
        of = _join(graph, hosts, of)
    return _network(graph, hosts, of)


def _is_readable(graph: Graph, hosts: Sequence[str]) -> bool:
    if len(graph) > 80:
        return False
    is_machine = any(graph.nodes[node].get("kind") == "gpu" for node in graph)
    return len(hosts) <= WIDEST or (not is_machine and place_nodes(graph, hosts).kind != "tiers")


def _machine(graph: Graph, node: str) -> str:
    """Return the machine of a node: ``n0`` for ``n0.gpu3``. For a switch or a host, return ``node`` unchanged."""
    machine, dot, _ = node.partition(".")
    return machine if dot and graph.nodes[node].get("kind", "switch") != "switch" else node


def _join(graph: Graph, hosts: Sequence[str], of: dict[str, str]) -> dict[str, str]:
    """Join equivalent groups until no row is too wide, and return the group of each node."""
    for _ in range(8):  # networks of more tiers stay wide
        for key in (_twins, _above_the_same, _below_the_same):
            network = _network(graph, hosts, of)
            if max(Counter(find_tiers(network.graph, network.hosts).values()).values(), default=0) <= WIDEST_OF_GROUPS:
                return of
            key_of = key(network)
            first: dict[Hashable, str] = {}
            joined = {name: first.setdefault(key_of(name), name) for name in network.groups}
            of = {node: joined[group] for node, group in of.items()}
    return of


def _twins(network: GroupedNetwork) -> KeyOf:
    """Return a function that maps hosts of one kind to equal keys if they have the same neighbors."""
    hosts = set(network.hosts)
    return lambda name: (
        (network.groups[name].kind, frozenset(network.graph[name])) if name in hosts and network.graph[name] else name
    )


def _above_the_same(network: GroupedNetwork) -> KeyOf:
    """Return a function that maps switches of one tier to equal keys if they have the same lower neighbors."""
    hosts, tiers = set(network.hosts), find_tiers(network.graph, network.hosts)
    below = {name: frozenset(p for p in network.graph[name] if tiers[p] < tiers[name]) for name in network.groups}
    return lambda name: name if name in hosts or not below[name] else (tiers[name], below[name])


def _below_the_same(network: GroupedNetwork) -> KeyOf:
    """Return a function that maps lowest-tier switches to equal keys if they have the same upper neighbors."""
    tiers = find_tiers(network.graph, network.hosts)
    above = {name: frozenset(p for p in network.graph[name] if tiers[p] > tiers[name]) for name in network.groups}
    return lambda name: (tiers[name], above[name]) if tiers[name] == 1 and above[name] else name


def _network(graph: Graph, hosts: Sequence[str], of: Mapping[str, str]) -> GroupedNetwork:
    ranks, members = defaultdict[str, list[int]](list), defaultdict[str, list[str]](list)
    for rank, host in enumerate(hosts):
        ranks[of[host]].append(rank)
    for node in graph:
        members[of[node]].append(node)
    groups = dict[str, NodeGroup]()
    for name, nodes in members.items():
        kinds = {kind_of(graph, node, hosts) for node in nodes}
        kind = kinds.pop() if len(kinds) == 1 else "machine"
        groups[name] = NodeGroup(kind, tuple(nodes), tuple(ranks.get(name, ())))
    return GroupedNetwork(groups, _links(graph, of), tuple(ranks), len(groups) == len(graph))


def _links(graph: Graph, of: Mapping[str, str]) -> Graph:
    """Return the graph of groups. The attribute ``cables`` of an edge counts its links by medium and bandwidth."""
    links: Graph = nx.DiGraph()
    for node, data in graph.nodes(data=True):  # a node that is drawn alone keeps its kind and tier
        attributes = {key: value for key, value in data.items() if key in ("kind", "tier") and of[node] == node}
        links.add_node(of[node], **attributes)
    seen = set()
    for a, b, data in sorted(graph.edges(data=True), key=lambda edge: (natural_order(edge[0]), natural_order(edge[1]))):
        cable = frozenset((a, b))
        if of[a] == of[b] or cable in seen:
            continue
        seen.add(cable)
        for src, dst in ((of[a], of[b]), (of[b], of[a])):
            if not links.has_edge(src, dst):
                links.add_edge(src, dst, cables=Counter())
            links.edges[src, dst]["cables"][data.get("medium", ""), data["bandwidth"]] += 1
    return links
