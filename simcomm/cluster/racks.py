"""Many machines: joined by one switch, or on rails with a leaf switch for each."""

from collections.abc import Sequence

import networkx as nx

from collectives.errors import InputError
from collectives.transport import Transport
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.graph import Wire, empty, join
from simcomm.cluster.machines import Machine, add_machine


def on_one_switch(
    machine: Machine, nodes: int, gpus_per_node: int | None = None, transport: Transport | None = IDEAL
) -> Cluster:
    """``nodes`` machines whose NICs all hang on one switch (s0) that never blocks; a rank on each GPU.

    ``gpus_per_node`` puts ranks on the first GPUs of each machine only. Raises InputError.
    """
    graph, hosts = _machines(machine, nodes, gpus_per_node)
    if nodes > 1:
        graph.add_node("s0", kind="switch", tier=1)
        for nic in _nics(graph):
            join(graph, nic, "s0", _port(machine))
    return Cluster(_title(machine, nodes), graph, hosts, transport)


def on_rails(
    machine: Machine,
    nodes: int,
    gpus_per_node: int | None = None,
    *,
    nodes_per_leaf: int | None = None,
    oversubscription: float = 1.0,
    transport: Transport | None = IDEAL,
) -> Cluster:
    """A rail-optimised pod: NICs of one rail share a leaf switch, ``nodes_per_leaf`` machines each (all, unless said).

    With R rails, machines u * nodes_per_leaf on hang on leaves s(u R) to s(u R + R - 1). Every leaf has a cable to each
    spine switch, and as many spines as it has machines, divided by ``oversubscription``; cables have the NICs' rate. A
    single rail of one leaf has no spine. Raises InputError.
    """
    graph, hosts = _machines(machine, nodes, gpus_per_node)
    if nodes > 1:
        per_leaf = _nodes_per_leaf(nodes, nodes_per_leaf)
        leaves = _add_leaves(graph, machine, per_leaf)
        spines = round(per_leaf / _positive(oversubscription))
        if len(leaves) > 1:
            _add_spines(graph, leaves, max(1, spines), _port(machine))
    return Cluster(_title(machine, nodes), graph, hosts, transport)


def _machines(machine: Machine, nodes: int, gpus_per_node: int | None) -> tuple["nx.DiGraph[str]", tuple[str, ...]]:
    if nodes < 1:
        raise InputError(f"nodes = {nodes}; a cluster has at least 1")
    used = machine.gpus if gpus_per_node is None else gpus_per_node
    if not 1 <= used <= machine.gpus:
        raise InputError(f"gpus_per_node = {used}; {machine.title} has {machine.gpus} GPUs")
    if nodes > 1 and not machine.nics:
        raise InputError(
            f"nodes = {nodes}: {machine.title} has no NIC that is known; give bandwidth and latency of one"
        )
    graph = empty()
    hosts = [gpu for number in range(nodes) for gpu in add_machine(graph, number, machine)[:used]]
    return graph, tuple(hosts)


def _nics(graph: "nx.DiGraph[str]") -> list[str]:
    return [node for node, data in graph.nodes(data=True) if data.get("kind") == "nic"]


def _port(machine: Machine) -> Wire:
    if machine.nic is None:
        raise InputError(f"{machine.title}: its NICs have no port; give their rate")
    return machine.nic


def _nodes_per_leaf(nodes: int, wanted: int | None) -> int:
    per_leaf = nodes if wanted is None else wanted
    if per_leaf < 1:
        raise InputError(f"nodes_per_leaf = {per_leaf}; a leaf switch serves at least 1")
    return min(per_leaf, nodes)


def _positive(oversubscription: float) -> float:
    if not 0 < oversubscription < float("inf"):
        raise InputError(f"oversubscription = {oversubscription}; a number above 0 is needed, 2 for 2:1")
    return oversubscription


def _add_leaves(graph: "nx.DiGraph[str]", machine: Machine, per_leaf: int) -> list[str]:
    rails = 1 + max(graph.nodes[nic]["rail"] for nic in _nics(graph))
    leaves: dict[str, None] = {}
    for nic in _nics(graph):
        data = graph.nodes[nic]
        leaf = f"s{data['machine'] // per_leaf * rails + data['rail']}"
        leaves[leaf] = None
        graph.add_node(leaf, kind="switch", tier=1)
        join(graph, nic, leaf, _port(machine))
    return list(leaves)


def _add_spines(graph: "nx.DiGraph[str]", leaves: Sequence[str], spines: int, cable: Wire) -> None:
    for spine in range(len(leaves), len(leaves) + spines):
        graph.add_node(f"s{spine}", kind="switch", tier=2)
        for leaf in leaves:
            join(graph, leaf, f"s{spine}", cable)


def _title(machine: Machine, nodes: int) -> str:
    return machine.title if nodes == 1 else f"{nodes} x {machine.title}"
