"""Networks of hosts: counts, degrees, distances and bisections as the literature has them; the ring runs on all."""

from dataclasses import replace
from functools import partial
from itertools import combinations, product

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcomm
from collectives import InputError
from collectives.errors import TooLarge
from simcomm.cluster import topologies
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.graph import LinkSpec, node_kind
from simcomm.cluster.machines import Machine, add_cube_mesh, add_nvlink_pairs, add_nvswitch, on_one_switch

LINK = ("10 Gbit/s", "0 us")
RATE = 1.25e9
CABLE = LinkSpec(RATE)


def cube_mesh(rate: float, bricks: int = 6) -> Cluster:
    return on_one_switch(
        Machine("cube mesh", 8, nvlinks=partial(add_cube_mesh, brick=LinkSpec(rate), bricks=bricks)), 1
    )


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
    "dragonfly": topologies.dragonfly(1, 2, 1, *LINK),
    "dragonfly of fewer groups": topologies.dragonfly(2, 2, 2, *LINK, groups=3),
    "PCIe": on_one_switch(Machine("PCIe", 4, CABLE, pcie_switches=2), 1),
    "PCIe, two sockets, no P2P": on_one_switch(
        Machine(
            "PCIe", 8, CABLE, sockets=2, pcie_switches=4, socket=LinkSpec(10e9), memory=LinkSpec(1e11), p2p_level="NVL"
        ),
        1,
    ),
    "NVLink pairs": on_one_switch(
        Machine("pairs", 4, LinkSpec(24e9), nvlinks=partial(add_nvlink_pairs, link=LinkSpec(56e9)), p2p_level="NVL"), 1
    ),
    "cube mesh": cube_mesh(25e9),
    "cube mesh of P100": cube_mesh(20e9, bricks=4),
    "NVSwitch": on_one_switch(Machine("NVSwitch", 8, nvlinks=partial(add_nvswitch, link=LinkSpec(450e9))), 1),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_is_whole_and_its_links_are_alike_in_both_directions(name: str):
    cluster = NETWORKS[name]
    graph = cluster.graph
    assert nx.is_strongly_connected(graph)
    for a, b, data in graph.edges(data=True):
        assert a != b
        assert graph.edges[b, a] == data
    assert len(set(cluster.hosts)) == cluster.world_size
    assert {node_kind(graph, host) for host in cluster.hosts} <= {"host", "gpu"}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_ring_runs_on_every_network(name: str):
    cluster = NETWORKS[name]
    p = cluster.world_size
    trace = simcomm.run("all_reduce/ring", cluster, nbytes=4096 * p)
    assert len(trace.messages) == 2 * p * (p - 1)
    router = cluster.router()
    assert all(m.route == router.route(cluster.hosts[m.src], cluster.hosts[m.dst]) for m in trace.messages)


@pytest.mark.parametrize("name", ["star", "ring", "fully connected", "fat tree", "smallest fat tree"])
def test_where_neighbours_do_not_share_links_the_ring_has_its_textbook_time(name: str):
    cluster = NETWORKS[name]
    p, nbytes = cluster.world_size, 2**20 * NETWORKS[name].world_size
    elapsed = simcomm.run("all_reduce/ring", cluster, nbytes).elapsed
    assert elapsed == pytest.approx(2 * (p - 1) / p * nbytes / RATE, rel=1e-9)


def distances(cluster: Cluster) -> dict[str, dict[str, int]]:
    lengths = dict(nx.all_pairs_shortest_path_length(cluster.graph))
    return {a: {b: lengths[a][b] for b in cluster.hosts} for a in cluster.hosts}


def diameter(cluster: Cluster) -> int:
    """Most links between two hosts."""
    return max(max(row.values()) for row in distances(cluster).values())


def bisection(cluster: Cluster) -> float:
    """Bytes/s that the first half of the hosts can send to the second."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_weighted_edges_from(cluster.graph.edges(data="bandwidth"), weight="capacity")
    half = cluster.world_size // 2
    graph.add_edges_from([("from", host) for host in cluster.hosts[:half]])
    graph.add_edges_from([(host, "to") for host in cluster.hosts[half:]])
    return nx.maximum_flow_value(graph, "from", "to")


@given(st.integers(3, 12))
def test_ring(hosts: int):
    cluster = topologies.ring(hosts, *LINK)
    assert {degree for _, degree in cluster.graph.out_degree()} == {2}
    assert diameter(cluster) == hosts // 2
    assert bisection(cluster) == 2 * RATE


@given(st.integers(2, 8))
def test_fully_connected(hosts: int):
    cluster = topologies.fully_connected(hosts, *LINK)
    assert cluster.graph.number_of_edges() == hosts * (hosts - 1)
    assert diameter(cluster) == 1
    assert bisection(cluster) == (hosts // 2) * (hosts - hosts // 2) * RATE


@given(st.lists(st.integers(1, 5), min_size=2, max_size=3))
@settings(max_examples=20, deadline=None)
def test_torus_distances_are_those_of_a_grid_that_closes(dimensions: list[int]):
    cluster = topologies.torus(dimensions, *LINK)
    places = dict(zip(cluster.hosts, product(*map(range, dimensions)), strict=True))
    for a, row in distances(cluster).items():
        for b, distance in row.items():
            apart = [abs(i - j) for i, j in zip(places[a], places[b], strict=True)]
            assert distance == sum(min(d, size - d) for d, size in zip(apart, dimensions, strict=True))


def test_torus_bisection_and_degree():
    cluster = topologies.torus([4, 4], *LINK)
    assert {degree for _, degree in cluster.graph.out_degree()} == {4}
    assert bisection(cluster) == 2 * 4 * RATE  # each column is cut twice
    assert bisection(topologies.torus([4, 4, 4], *LINK)) == 2 * 16 * RATE


@given(st.integers(2, 5), st.integers(1, 6), st.sampled_from([0.5, 1, 2, 4, 3.5]))
@settings(max_examples=30, deadline=None)
def test_two_level_tree_bisection_is_its_hosts_rate_over_the_oversubscription(racks: int, per_rack: int, ratio: float):
    cluster = topologies.two_level_tree(2 * (racks // 2), per_rack, *LINK, oversubscription=ratio)
    half = cluster.world_size // 2
    assert bisection(cluster) == pytest.approx(half * RATE / max(ratio, 1), rel=1e-12)
    trunk = cluster.graph.edges["s0", f"s{2 * (racks // 2)}"]["bandwidth"]
    assert trunk == pytest.approx(per_rack * RATE / ratio, rel=1e-12)


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_fat_tree(k: int):
    cluster = topologies.fat_tree(k, *LINK)
    graph = cluster.graph
    assert cluster.world_size == k**3 // 4
    switches = [node for node in graph if node not in cluster.hosts]
    assert len(switches) == 5 * k * k // 4
    assert all(graph.out_degree(switch) == k for switch in switches)
    assert {len(row) and max(row.values()) for row in distances(cluster).values()} == {6}
    assert bisection(cluster) == cluster.world_size // 2 * RATE


@pytest.mark.parametrize(("p", "a", "h"), [(1, 1, 1), (2, 3, 1), (2, 4, 2), (1, 2, 3)])
def test_dragonfly(p: int, a: int, h: int):
    cluster = topologies.dragonfly(p, a, h, *LINK)
    groups = a * h + 1
    assert cluster.world_size == groups * a * p
    switches = [f"s{i}" for i in range(groups * a)]
    assert {cluster.graph.out_degree(switch) for switch in switches} == {p + a - 1 + h}
    between = [{int(x[1:]) // a, int(y[1:]) // a} for x, y in cluster.graph.edges if {x, y} <= set(switches)]
    crossing = [pair for pair in between if len(pair) == 2]
    for pair in combinations(range(groups), 2):
        assert crossing.count(set(pair)) == 2  # one link, both directions
    assert diameter(cluster) <= 5  # host, router, router, router, router, host


def test_dragonfly_bisection_is_its_global_links():
    assert bisection(topologies.dragonfly(2, 3, 1, *LINK)) == 4 * RATE  # groups 0 and 1 to groups 2 and 3


def test_the_cube_mesh_is_that_of_a_dgx_1():
    """``nvidia-smi topo -m`` of a DGX-1 with V100, as in msccl-tools' test_topologies.py; 0 stands for SYS."""
    printed = """
        0 1 1 2 2 0 0 0
        1 0 2 1 0 2 0 0
        1 2 0 2 0 0 1 0
        2 1 2 0 0 0 0 1
        2 0 0 0 0 1 1 2
        0 2 0 0 1 0 2 1
        0 0 1 0 1 2 0 2
        0 0 0 1 2 1 2 0"""
    expected = [[int(entry) for entry in row.split()] for row in printed.split("\n")[1:]]
    cluster = cube_mesh(25e9)
    edges = cluster.graph.edges
    found = [
        [round(edges[a, b]["bandwidth"] / 25e9) if (a, b) in edges else 0 for b in cluster.hosts] for a in cluster.hosts
    ]
    assert found == expected and diameter(cluster) == 2


def test_a_pcie_tree_spreads_its_gpus_over_switches_and_sockets():
    cluster = NETWORKS["PCIe, two sockets, no P2P"]
    for gpu in range(8):
        assert list(cluster.graph.successors(f"n0.gpu{gpu}")) == [f"n0.pcie{gpu // 2}"]
        assert cluster.graph.has_edge(f"n0.pcie{gpu // 2}", f"n0.cpu{gpu // 4}")
    assert cluster.graph.edges["n0.cpu0", "n0.cpu1"]["bandwidth"] == 10e9


WRONG = {
    "hosts is 0; give a whole number from 1 on": lambda: topologies.ring(0, *LINK),
    "hosts is 2.0; give a whole number from 1 on": lambda: topologies.fully_connected(2.0, *LINK),
    "a torus of 1 dimensions; 2 or 3 are built": lambda: topologies.torus([4], *LINK),
    "every dimension is 0; give a whole number from 1 on": lambda: topologies.torus([4, 0], *LINK),
    "racks is 0; give a whole number from 1 on": lambda: topologies.two_level_tree(0, 4, *LINK),
    "oversubscription is 0; give a number above 0": lambda: topologies.two_level_tree(2, 4, *LINK, oversubscription=0),
    "5 ports; half of a fat tree's ports go up, so their number is even": lambda: topologies.fat_tree(5, *LINK),
    "6 groups; 2 routers of 2 global links join 1 to 5": lambda: topologies.dragonfly(1, 2, 2, *LINK, groups=6),
    "global_links is -1; give a whole number from 0 on": lambda: topologies.dragonfly(1, 2, -1, *LINK),
    "hosts is '8'; give a whole number from 1 on": lambda: simcomm.star("8", *LINK),
    "hosts is True; give a whole number from 1 on": lambda: simcomm.ring(True, *LINK),
    "dimensions is 4; give a list of numbers of hosts": lambda: topologies.torus(4, *LINK),
    "oversubscription is '4'; give a number above 0": lambda: topologies.two_level_tree(2, 4, *LINK, "4"),
    "groups is '2'; give a whole number": lambda: topologies.dragonfly(1, 2, 1, *LINK, groups="2"),
    "10 is no bandwidth: a bare number has no unit": lambda: simcomm.star(4, 10, "1 us"),
    "5e-06 is no time: a bare number has no unit": lambda: simcomm.star(4, "10 Gbit/s", 5e-6),
    "transport is 'gloo-tcp'; give a Transport": lambda: simcomm.star(4, *LINK, transport="gloo-tcp"),
    "graph is {}; give a networkx graph": lambda: simcomm.from_graph({}),
    "link is ('h0', 's0'); give two nodes, a bandwidth and a latency": lambda: simcomm.from_links([("h0", "s0")]),
    "link 0 - s0: node 0 leads nowhere": lambda: simcomm.from_links([(0, "s0", *LINK)]),
    "path is 3; give the name of a file": lambda: simcomm.read_cluster(3),
    "ranks is 2.5; give a whole number from 1 on": lambda: simcomm.this_machine(2.5),
    "machine 7 is not in the catalogue": lambda: simcomm.preset(7),
    "nodes is '2'; give a whole number from 1 on": lambda: simcomm.preset("dgx-h100", nodes="2"),
    "sharing is 'exclusive'; there are fair and fifo": lambda: replace(simcomm.star(2, *LINK), sharing="exclusive"),
    "world_size is '2'; give a whole number": lambda: simcomm.star(4, *LINK).on_first("2"),
    "'10 Gb/s' is no bandwidth": lambda: topologies.ring(3, "10 Gb/s", "1 us"),
    "a hybrid cube mesh has 4 or 8 GPUs with 4 or 6 NVLinks each, not 8 with 5": lambda: cube_mesh(RATE, 5),
    "gpus is 0; give a whole number from 1 on": lambda: Machine("none", 0),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_be_built_is_refused(message: str):
    with pytest.raises(InputError) as refusal:
        WRONG[message]()
    assert message in str(refusal.value)


def test_a_cluster_shows_itself_on_one_line():
    for cluster in NETWORKS.values():
        shown = repr(cluster)
        assert cluster.title in shown and f"{cluster.world_size} ranks" in shown
        assert len(shown) < 120 and "\n" not in shown


def test_every_public_name_is_there():
    assert sorted(simcomm.__all__) == simcomm.__all__
    assert all(callable(getattr(simcomm, name)) for name in simcomm.__all__)
    with pytest.raises(AttributeError, match="module 'simcomm' has no attribute 'wires'"):
        simcomm.wires  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    "build",
    [
        lambda: topologies.star(10_000_000, *LINK),
        lambda: topologies.ring(10_000_000, *LINK),
        lambda: topologies.torus([300, 300, 300], *LINK),
        lambda: topologies.two_level_tree(3000, 3000, *LINK),
        lambda: topologies.fat_tree(500, *LINK),
        lambda: topologies.dragonfly(1, 10_000, 0, *LINK),
        lambda: topologies.dragonfly(1, 100, 100, *LINK),
    ],
)
def test_a_network_that_is_too_large_is_refused_before_it_is_built(build, monkeypatch):
    monkeypatch.setattr(topologies, "add_link", lambda *_: pytest.fail("a link was added"))
    monkeypatch.setattr(topologies, "empty_graph", lambda *_: pytest.fail("a graph was made"))
    with pytest.raises(TooLarge, match="cables is too large to be built; up to 450,000 will do"):
        build()
