"""Several machines: joined by one switch, or on rails with a leaf switch for each."""

from collections.abc import Sequence

import networkx as nx

from collectives.checks import check_number, check_whole_number
from collectives.errors import InputError
from collectives.transport import Transport
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.graph import LinkSpec, add_link, empty_graph
from simcomm.cluster.machines import Machine, add_machine


def on_one_switch(
    machine: Machine, nodes: int, gpus_per_node: int | None = None, transport: Transport | None = IDEAL
) -> Cluster:
    """Build ``nodes`` machines whose NICs are all linked to one switch (s0) that never blocks; a rank on each GPU.

    ``gpus_per_node`` puts ranks on the first GPUs of each machine only. Raises InputError.

    >>> from simcomm.cluster.presets import find_machine
    >>> on_one_switch(find_machine("dgx-h100"), nodes=2)
    <Cluster 2 x NVIDIA DGX H100: 16 ranks, 59 nodes, 172 links>
    """
    graph, hosts = _separate_machines(machine, nodes, gpus_per_node)
    if nodes > 1:
        graph.add_node("s0", kind="switch", tier=1)
        for nic in _nics(graph):
            add_link(graph, nic, "s0", _port(machine))
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
    """Build a rail-optimised pod: the NICs of one rail share a leaf switch, ``nodes_per_leaf`` machines each.

    One leaf serves all machines unless said. With R rails, machine m is linked to leaves s(u R) to s(u R + R - 1),
    where u = m // nodes_per_leaf. Every leaf has a cable of the NICs' rate to each spine switch; there are as many
    spines as a leaf has machines, divided by ``oversubscription``. A single rail of one leaf has no spine.
    Raises InputError.

    >>> from simcomm.cluster.presets import find_machine
    >>> on_rails(find_machine("dgx-h100"), nodes=4, nodes_per_leaf=2)
    <Cluster 4 x NVIDIA DGX H100: 32 ranks, 134 nodes, 408 links>
    """
    graph, hosts = _separate_machines(machine, nodes, gpus_per_node)
    if nodes > 1:
        per_leaf = (
            nodes
            if nodes_per_leaf is None
            else min(check_whole_number("nodes_per_leaf", nodes_per_leaf, at_least=1), nodes)
        )
        leaves = _add_leaves(graph, machine, per_leaf)
        spines = round(per_leaf / check_number("oversubscription", oversubscription, above=0))
        if len(leaves) > 1:
            _add_spines(graph, leaves, max(1, spines), _port(machine))
    return Cluster(_title(machine, nodes), graph, hosts, transport)


def _separate_machines(
    machine: Machine, nodes: int, gpus_per_node: int | None
) -> tuple["nx.DiGraph[str]", tuple[str, ...]]:
    """Return a graph of ``nodes`` machines that are not joined yet, and the nodes of their ranks."""
    check_whole_number("nodes", nodes, at_least=1)
    used = machine.gpus if gpus_per_node is None else check_whole_number("gpus_per_node", gpus_per_node, at_least=1)
    if used > machine.gpus:
        raise InputError(f"gpus_per_node = {used}; {machine.title} has {machine.gpus} GPUs")
    if nodes > 1 and not machine.nics:
        raise InputError(
            f"nodes = {nodes}: {machine.title} has no NIC that is known; give bandwidth and latency of one"
        )
    graph = empty_graph()
    hosts = [gpu for number in range(nodes) for gpu in add_machine(graph, number, machine)[:used]]
    return graph, tuple(hosts)


def _nics(graph: "nx.DiGraph[str]") -> list[str]:
    return [node for node, data in graph.nodes(data=True) if data.get("kind") == "nic"]


def _port(machine: Machine) -> LinkSpec:
    if machine.nic is None:
        raise InputError(f"{machine.title}: its NICs have no port; give their rate")
    return machine.nic


def _add_leaves(graph: "nx.DiGraph[str]", machine: Machine, per_leaf: int) -> list[str]:
    """Link every NIC to the leaf switch of its rail. Return the leaves in order."""
    rails = 1 + max(graph.nodes[nic]["rail"] for nic in _nics(graph))
    leaves: dict[str, None] = {}
    for nic in _nics(graph):
        data = graph.nodes[nic]
        leaf = f"s{data['machine'] // per_leaf * rails + data['rail']}"
        leaves[leaf] = None
        graph.add_node(leaf, kind="switch", tier=1)
        add_link(graph, nic, leaf, _port(machine))
    return list(leaves)


def _add_spines(graph: "nx.DiGraph[str]", leaves: Sequence[str], spines: int, cable: LinkSpec) -> None:
    for spine in range(len(leaves), len(leaves) + spines):
        graph.add_node(f"s{spine}", kind="switch", tier=2)
        for leaf in leaves:
            add_link(graph, leaf, f"s{spine}", cable)


def _title(machine: Machine, nodes: int) -> str:
    return machine.title if nodes == 1 else f"{nodes} x {machine.title}"
