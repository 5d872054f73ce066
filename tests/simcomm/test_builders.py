"""Networks of hosts match the literature in counts, distances and bisections, and ranks are placed on their hosts."""

import re
from functools import partial

import networkx as nx
import pytest

import simcomm
from collectives import InputError
from collectives.errors import TooLarge
from simcomm.cluster import placement, topologies
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.graph import LinkSpec, node_kind
from simcomm.cluster.machines import Machine, add_cube_mesh, on_one_switch

LINK = ("10 Gbit/s", "0 us")
RATE = 1.25e9


def machine(title: str, gpus: int, pcie: LinkSpec | None = None, **parts: object) -> Cluster:
    return on_one_switch(Machine(title, gpus, pcie, **parts), 1)


def cube_mesh(rate: float, bricks: int = 6) -> Cluster:
    return machine("cube mesh", 8, nvlinks=partial(add_cube_mesh, brick=LinkSpec(rate), bricks=bricks))


TWO_SOCKETS = machine(
    "PCIe", 8, LinkSpec(RATE), sockets=2, pcie_switches=4, socket=LinkSpec(10e9), memory=LinkSpec(1e11), p2p_level="NVL"
)  # fmt: skip
NETWORKS = {
    "star": simcomm.star(5, *LINK),
    "one host": topologies.ring(1, *LINK),
    "ring of two": topologies.ring(2, *LINK),
    "ring": topologies.ring(7, *LINK),
    "fully connected": topologies.fully_connected(5, *LINK),
    "2-D torus": topologies.torus([3, 4], *LINK),
    "3-D torus": topologies.torus([2, 3, 2], *LINK),
    "two-level tree": topologies.two_level_tree(3, 2, *LINK, oversubscription=2),
    "fat tree": topologies.fat_tree(4, *LINK),
    "smallest fat tree": topologies.fat_tree(2, *LINK),
    "PCIe, two sockets, no P2P": TWO_SOCKETS,
}


@pytest.mark.parametrize("cluster", NETWORKS.values(), ids=NETWORKS)
def test_every_network_is_connected_and_runs_a_ring(cluster: Cluster):
    graph, p, shown = cluster.graph, cluster.world_size, repr(cluster)
    assert nx.is_strongly_connected(graph)
    assert all(a != b and graph.edges[b, a] == data for a, b, data in graph.edges(data=True))
    assert len(set(cluster.hosts)) == p and {node_kind(graph, host) for host in cluster.hosts} <= {"host", "gpu"}
    trace, router = simcomm.run("all_reduce/ring", cluster, nbytes=4096 * p), cluster.router()
    assert len(trace.messages) == 2 * p * (p - 1)
    assert all(m.route == router.route(cluster.hosts[m.src], cluster.hosts[m.dst]) for m in trace.messages)
    assert cluster.title in shown and f"{p} ranks" in shown and len(shown) < 120 and "\n" not in shown


@pytest.mark.parametrize("name", ["star", "ring", "fully connected", "fat tree", "smallest fat tree"])
def test_ring_takes_its_textbook_time_on_unshared_links(name: str):
    cluster = NETWORKS[name]
    p, nbytes = cluster.world_size, 2**20 * cluster.world_size
    elapsed = simcomm.run("all_reduce/ring", cluster, nbytes).elapsed
    assert elapsed == pytest.approx(2 * (p - 1) / p * nbytes / RATE, rel=1e-9)


def diameter(cluster: Cluster) -> int:
    lengths = dict(nx.all_pairs_shortest_path_length(cluster.graph))
    return max(lengths[a][b] for a in cluster.hosts for b in cluster.hosts)


def bisection(cluster: Cluster) -> float:
    """Return the bytes/s that the first half of the hosts can send to the second."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_weighted_edges_from(cluster.graph.edges(data="bandwidth"), weight="capacity")
    half = cluster.world_size // 2
    graph.add_edges_from([("from", host) for host in cluster.hosts[:half]])
    graph.add_edges_from([(host, "to") for host in cluster.hosts[half:]])
    return nx.maximum_flow_value(graph, "from", "to")


@pytest.mark.parametrize(
    ("cluster", "links", "rates"),
    [
        (topologies.ring(7, *LINK), 3, 2),
        (topologies.ring(12, *LINK), 6, 2),
        (topologies.fully_connected(5, *LINK), 1, 2 * 3),
        (topologies.torus([4, 4], *LINK), 4, 2 * 4),  # each column is cut twice
        (topologies.torus([4, 4, 4], *LINK), 6, 2 * 16),
        (topologies.torus([4, 3, 5], *LINK), 5, 2 * 15),
        (topologies.two_level_tree(2, 6, *LINK), 4, 6),
        (topologies.two_level_tree(4, 4, *LINK, oversubscription=3.5), 4, 2 * 4 / 3.5),
        (topologies.fat_tree(4, *LINK), 6, 8),
        (topologies.fat_tree(6, *LINK), 6, 27),
    ],
    ids=lambda value: value.title if isinstance(value, Cluster) else None,
)
def test_network_has_textbook_diameter_and_bisection(cluster: Cluster, links: int, rates: float):
    assert (diameter(cluster), bisection(cluster)) == (links, pytest.approx(rates * RATE, rel=1e-12))


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_fat_tree_has_textbook_size(k: int):
    cluster = topologies.fat_tree(k, *LINK)
    switches = [node for node in cluster.graph if node not in cluster.hosts]
    assert (cluster.world_size, len(switches)) == (k**3 // 4, 5 * k * k // 4)
    assert all(cluster.graph.out_degree(switch) == k for switch in switches)


def test_cube_mesh_matches_dgx_1():
    """Expect ``nvidia-smi topo -m`` of a DGX-1 with V100, as in msccl-tools' test_topologies.py; 0 is SYS."""
    printed = """
        0 1 1 2 2 0 0 0
        1 0 2 1 0 2 0 0
        1 2 0 2 0 0 1 0
        2 1 2 0 0 0 0 1
        2 0 0 0 0 1 1 2
        0 2 0 0 1 0 2 1
        0 0 1 0 1 2 0 2
        0 0 0 1 2 1 2 0"""
    cluster = cube_mesh(25e9)
    edges = cluster.graph.edges
    counts = [
        [round(edges[a, b]["bandwidth"] / 25e9) if (a, b) in edges else 0 for b in cluster.hosts] for a in cluster.hosts
    ]
    assert counts == [[int(entry) for entry in row.split()] for row in printed.split("\n")[1:]]
    assert diameter(cluster) == 2


def test_pcie_tree_spreads_gpus_over_switches_and_sockets():
    for gpu in range(8):
        assert list(TWO_SOCKETS.graph.successors(f"n0.gpu{gpu}")) == [f"n0.pcie{gpu // 2}"]
        assert TWO_SOCKETS.graph.has_edge(f"n0.pcie{gpu // 2}", f"n0.cpu{gpu // 4}")
    assert TWO_SOCKETS.graph.edges["n0.cpu0", "n0.cpu1"]["bandwidth"] == 10e9


WRONG = {
    "hosts must be a positive integer, not 0": lambda: topologies.ring(0, *LINK),
    "dimensions must be 2 or 3 numbers, for example [4, 4, 2], not 1": lambda: topologies.torus([4], *LINK),
    "oversubscription must be a positive number": lambda: topologies.two_level_tree(2, 4, *LINK, oversubscription=0),
    "ports of a fat tree must be even, not 5": lambda: topologies.fat_tree(5, *LINK),
    "10 is not a bandwidth: the unit is missing": lambda: simcomm.star(4, 10, "1 us"),
    "transport must be a Transport, or None": lambda: simcomm.star(4, *LINK, transport="gloo-tcp"),
    "graph must be a networkx graph, not {}": lambda: simcomm.from_graph({}),
    "a link must be (node, node, bandwidth, latency), not ('h0', 's0')": lambda: simcomm.from_links([("h0", "s0")]),
    "node must be a host h0, h1, ... or a switch s0, s1, ..., not 0": lambda: simcomm.from_links([(0, "s0", *LINK)]),
    "path must be the name of a file or directory, not 3": lambda: simcomm.read_cluster(3),
    "a hybrid cube mesh must have 4 or 8 GPUs with 4 or 6 NVLinks each, not 8 GPUs with 5": lambda: cube_mesh(RATE, 5),
}


@pytest.mark.parametrize("message", WRONG)
def test_builders_reject_invalid_arguments(message: str):
    with pytest.raises(InputError, match=re.escape(message)):
        WRONG[message]()


def test_public_names_of_simcomm_exist_and_are_sorted():
    assert sorted(simcomm.__all__) == simcomm.__all__
    assert all(callable(getattr(simcomm, name)) for name in simcomm.__all__)
    with pytest.raises(AttributeError, match="module 'simcomm' has no attribute 'wires'"):
        simcomm.wires  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("build", "arguments"),
    [
        (topologies.star, (10_000_000,)),
        (topologies.ring, (10_000_000,)),
        (topologies.fully_connected, (1000,)),
        (topologies.torus, ([300, 300, 300],)),
        (topologies.two_level_tree, (3000, 3000)),
        (topologies.fat_tree, (500,)),
    ],
)
def test_too_large_network_is_rejected_before_it_is_built(build, arguments, monkeypatch):
    monkeypatch.setattr(topologies, "add_link", lambda *_: pytest.fail("a link was added"))
    monkeypatch.setattr(topologies, "empty_graph", lambda *_: pytest.fail("a graph was made"))
    with pytest.raises(TooLarge, match="links is too large; the limit is 450,000"):
        build(*arguments, *LINK)


def test_placement_alternates_between_switches_or_fills_each():
    cluster = topologies.two_level_tree(2, 3, *LINK)
    spread = placement.place_round_robin(cluster)
    assert spread.hosts == ("h0", "h3", "h1", "h4", "h2", "h5")
    assert placement.place_in_blocks(spread).hosts == cluster.hosts == placement.place_in_blocks(cluster).hosts
    ring = topologies.ring(4, *LINK)  # without switches, each host is a group
    assert placement.place_round_robin(ring).hosts == ring.hosts


def test_round_robin_alternates_between_machines_of_unequal_size():
    cluster = simcomm.preset("rtx4090-pcie", nodes=2, gpus_per_node=2, bandwidth="25 Gbit/s", latency="1 us")
    assert placement.place_round_robin(cluster).hosts == ("n0.gpu0", "n1.gpu0", "n0.gpu1", "n1.gpu1")
    uneven = placement.place_on(cluster, ["n0.gpu0", "n0.gpu1", "n1.gpu1"])
    assert placement.place_round_robin(uneven).hosts == ("n0.gpu0", "n1.gpu1", "n0.gpu1")


@pytest.mark.parametrize(("per_rack", "ratio"), [(2, 1), (4, 2), (6, 4)])
def test_alternating_ring_is_slowed_by_oversubscription(per_rack: int, ratio: int):
    """All hosts of a rack send over the trunk, which has 1/ratio of their bandwidth; in order, only one does."""
    cluster = topologies.two_level_tree(2, per_rack, *LINK, oversubscription=ratio)
    p, nbytes = 2 * per_rack, 2 * per_rack << 16
    in_order, alternating = (
        simcomm.run("all_reduce/ring", place(cluster), nbytes).elapsed
        for place in (placement.place_in_blocks, placement.place_round_robin)
    )
    trunk = per_rack / ratio  # in units of one host's rate
    assert in_order == pytest.approx(2 * (p - 1) / p * nbytes / RATE / min(1, trunk), rel=1e-9)
    assert alternating == pytest.approx(2 * (p - 1) / p * nbytes / RATE * max(1, ratio), rel=1e-9)


def test_place_on_uses_listed_hosts():
    cluster = placement.place_on(simcomm.star(4, *LINK), ["h3", "h1"])
    trace = simcomm.run("all_reduce/ring", cluster, nbytes=1 << 16)
    assert {message.route for message in trace.messages} == {("h3", "s0", "h1"), ("h1", "s0", "h3")}


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        (["h0", "h9"], "rank 1: host 'h9' does not exist; hosts are h0, h1, h2"),
        (["h0", "s0"], "rank 1: host 's0' does not exist"),
        (["h1", "h0", "h1"], "rank 2: host 'h1' already has rank 0; use each host once"),
        ([], "hosts must not be empty; use at least one of h0, h1, h2"),
        ("h0", "hosts must be a list of nodes, not 'h0'"),
    ],
)
def test_place_on_rejects_invalid_hosts(hosts: list[str], message: str):
    with pytest.raises(InputError, match=re.escape(message)):
        placement.place_on(simcomm.star(3, *LINK), hosts)


def test_make_room_adds_hosts_with_the_same_links():
    cluster = placement.make_room(simcomm.two_level_tree(2, 2, *LINK), 7)
    assert cluster.world_size == 7 and cluster.title.endswith(", each host 2 times")
    (link,) = {tuple(data.values()) for a, _, data in cluster.graph.edges(data=True) if a.startswith("h")}
    assert link == tuple(simcomm.two_level_tree(2, 2, *LINK).graph.edges["h0", "s0"].values())
    trace = simcomm.run("all_reduce/ring", cluster, nbytes=1 << 16)
    assert ("h1.1", "s0", "s2", "s1", "h2") in {message.route for message in trace.messages}
    assert placement.make_room(simcomm.star(4, *LINK), 3).hosts == ("h0", "h1", "h2")


def test_make_room_rejects_hosts_that_forward_messages():
    with pytest.raises(InputError, match="9 ranks do not fit"):
        placement.make_room(simcomm.ring(4, *LINK), 9)
