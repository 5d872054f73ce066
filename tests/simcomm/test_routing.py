"""Routes: shortest, spread or hashed, and through host memory if devices need it."""

import re
from collections import Counter
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcomm
from collectives import InputError
from collectives.budget import Gigabyte
from collectives.errors import TooLarge
from simcomm.cluster import machines, paths, topologies
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.graph import LinkSpec, add_link, empty_graph
from simcomm.cluster.machines import on_one_switch, on_rails
from simcomm.cluster.paths import RouteLinks, ShortestPaths
from simcomm.cluster.routing import Router, Routing, ecmp, shortest

LINK = ("10 Gbit/s", "0 us")


def all_pairs(cluster: Cluster) -> list[tuple[str, str]]:
    return [(a, b) for a in cluster.hosts for b in cluster.hosts if a != b]


def links(router: Router, pairs: list[tuple[str, str]]) -> RouteLinks:
    number = {node: place for place, node in enumerate(dict.fromkeys(node for pair in pairs for node in pair))}
    src, dst = np.array([[number[a], number[b]] for a, b in pairs]).T
    return router.links_between(list(number), src, dst)


@st.composite
def graphs(draw: st.DrawFn) -> "nx.DiGraph[str]":
    """Small networks, possibly in several pieces, with some one-way links and three link speeds."""
    n = draw(st.integers(2, 9))
    graph = empty_graph(f"h{i}" for i in range(n))
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] != pair[1])
    for a, b in draw(st.lists(ends, max_size=3 * n)):
        add_link(graph, f"h{a}", f"h{b}", LinkSpec(draw(st.sampled_from([1.0, 2.0, 4.0]))))
    for a, b in draw(st.lists(ends, max_size=3)):
        if graph.has_edge(f"h{a}", f"h{b}"):
            graph.remove_edge(f"h{a}", f"h{b}")
    return graph


def slowness(graph: "nx.DiGraph[str]", route: tuple[str, ...]) -> float:
    return sum(1 / graph.edges[edge]["bandwidth"] for edge in pairwise(route))


@given(graphs(), st.integers(0, 2**62))
@settings(max_examples=100, deadline=None)
def test_paths_are_shortest_and_then_widest(graph: "nx.DiGraph[str]", choice: int):
    search = ShortestPaths(graph)
    pairs = [(a, b) for a in graph for b in graph]
    routes = search.paths(search.ends(pairs), np.full(len(pairs), choice))
    for number, (a, b) in enumerate(pairs):
        route = search.nodes_of(routes.link[routes.first[number] : routes.first[number + 1]].tolist())
        if a == b or not nx.has_path(graph, a, b):
            assert route == ()
            continue
        best = min(slowness(graph, each) for each in nx.all_shortest_paths(graph, a, b))
        assert (route[0], route[-1], len(route)) == (a, b, nx.shortest_path_length(graph, a, b) + 1)
        assert slowness(graph, route) == pytest.approx(best, rel=1e-9)


@given(st.integers(0, 2**62))
@settings(max_examples=5, deadline=None)
def test_compiled_and_plain_path_search_agree(choice: int):
    cluster = topologies.fat_tree(8, *LINK)
    search = ShortestPaths(cluster.graph)
    pairs = all_pairs(cluster)[:3000]
    choices = (np.arange(len(pairs)) * 7919 + choice) % 2**62
    plain = search.paths(search.ends(pairs), choices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "WORTH_COMPILING", -1)
        compiled = search.paths(search.ends(pairs), choices)
    assert np.array_equal(plain.first, compiled.first) and np.array_equal(plain.link, compiled.link)


def pcie_tree(gpus: int, switches: int, sockets: int = 1, socket: float = 12e9, p2p_level: str = "NVL") -> Cluster:
    """Return a machine of GPUs on PCIe. Default: without peer-to-peer access."""
    between = LinkSpec(socket) if sockets > 1 else None
    machine = machines.Machine(
        "", gpus, LinkSpec(12e9), sockets=sockets, pcie_switches=switches, socket=between, p2p_level=p2p_level
    )
    return on_one_switch(machine, 1)


NO_P2P = pcie_tree(8, switches=4, sockets=2, socket=20e9)
POD = on_rails(  # GPUs reach devices behind one PCIe switch
    machines.Machine(
        "test machine", 4, LinkSpec(12e9), sockets=2, pcie_switches=4, socket=LinkSpec(10e9), nics=4,
        nic=LinkSpec(6e9), p2p_level="PXB",
        nvlinks=lambda graph, name, gpus: machines.add_nvswitch(graph, name, gpus, LinkSpec(100e9)),
    ),
    nodes=4,
    nodes_per_leaf=2,
)  # fmt: skip
CASES = [
    (NO_P2P, shortest),
    (POD, shortest),
    (POD, ecmp(3)),
    (topologies.torus([3, 3], *LINK), ecmp(1)),
    (simcomm.this_machine(3), shortest),
    *(
        (simcomm.preset(name, nodes=n), shortest)
        for name, n in (("rtx4090-pcie", 1), ("dgx-h100", 2), ("g4dn.metal", 2))
    ),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_batch_routes_match_single_routes(number: int):
    cluster, policy = CASES[number]
    pairs = all_pairs(cluster)
    routes, single, edges = links(policy(cluster.graph), pairs), policy(cluster.graph), list(cluster.graph.edges)
    for k, (a, b) in enumerate(pairs):
        crossed = [edges[link] for link in routes.link[routes.first[k] : routes.first[k + 1]]]
        assert crossed == list(pairwise(single.route(a, b))) and len(set(crossed)) == len(crossed)


def test_route_from_a_node_to_itself_has_no_links():
    routes = links(shortest(POD.graph), [("n0.gpu0", "n0.gpu0"), ("n0.gpu0", "n0.gpu1")])
    assert routes.first.tolist() == [0, 0, 2]
    assert shortest(POD.graph).route("n0.gpu0", "n0.gpu0") == ("n0.gpu0",)


def heaviest(cluster: Cluster, policy: Routing, shift: int) -> int:
    """Return the maximum number of routes on one link if each host sends to the host ``shift`` positions further."""
    hosts = cluster.hosts
    pairs = [(host, hosts[(i + shift) % len(hosts)]) for i, host in enumerate(hosts)]
    return int(np.bincount(links(policy(cluster.graph), pairs).link).max())


@pytest.mark.parametrize("k", [4, 6])
def test_fat_tree_shift_routes_share_no_link_by_default(k: int):
    """D-mod-k is free of contention for every shift permutation (Zahavi, 2012)."""
    cluster = topologies.fat_tree(k, *LINK)
    assert all(heaviest(cluster, shortest, shift) == 1 for shift in range(1, cluster.world_size))


def test_ecmp_spreads_flows_but_collides():
    cluster = topologies.fat_tree(8, *LINK)
    first, again, other = (links(ecmp(seed)(cluster.graph), all_pairs(cluster)) for seed in (1, 1, 2))
    assert np.array_equal(first.link, again.link) and not np.array_equal(first.link, other.link)
    assert max(heaviest(cluster, ecmp(1), shift) for shift in (16, 32, 64)) > 1
    routes = links(ecmp(5)(cluster.graph), [(a, b) for a in cluster.hosts[:16] for b in cluster.hosts[64:]])
    edges = list(cluster.graph.edges)
    cores = Counter(edges[link][1] for link in routes.link if cluster.graph.nodes[edges[link][1]].get("tier") == 3)
    assert (len(cores), sum(cores.values())) == (16, 16 * 64)
    assert all(abs(count - 64) < 4 * 8 for count in cores.values())  # four standard deviations of a binomial


def test_messages_without_p2p_pass_the_receivers_host_memory():
    router = NO_P2P.router()
    near = ["gpu0", "pcie0", "cpu0", "memory0", "cpu0", "pcie0", "gpu1"]
    far = ["gpu0", "pcie0", "cpu0", "cpu1", "memory1", "cpu1", "pcie3", "gpu7"]
    for names in (near, far):
        route = tuple(f"n0.{name}" for name in names)
        assert router.route(route[0], route[-1]) == route


@pytest.mark.parametrize(
    ("level", "same_switch", "same_socket", "other_socket"),
    [("NVL", True, True, True), ("PXB", False, True, True), ("PHB", False, False, True), ("SYS", False, False, False)],
)
def test_p2p_level_decides_use_of_host_memory(level: str, same_switch: bool, same_socket: bool, other_socket: bool):
    router = pcie_tree(8, switches=4, sockets=2, p2p_level=level).router()
    for dst, is_staged in (("n0.gpu1", same_switch), ("n0.gpu2", same_socket), ("n0.gpu7", other_socket)):
        assert any("memory" in node for node in router.route("n0.gpu0", dst)) is is_staged


PARTS = empty_graph(["h0", "h1"])
WRONG = {
    "seed must be an integer from 0 to 4294967295, not -1": lambda: ecmp(-1),
    "seed must be an integer from 0 to 4294967295, not '1'": lambda: ecmp("1"),
    "no route from h0 to h1": lambda: shortest(PARTS).route("h0", "h1"),
    "no route from h0 to h1 ": lambda: links(shortest(PARTS), [("h0", "h1")]),
    "node 'h7' does not exist": lambda: shortest(PARTS).route("h0", "h7"),
}


@pytest.mark.parametrize("message", WRONG)
def test_routing_policies_reject_invalid_routes_and_arguments(message: str):
    with pytest.raises(InputError, match=re.escape(message.strip())):
        WRONG[message]()


@pytest.mark.parametrize("worth_compiling", [-1, paths.WORTH_COMPILING])
def test_router_finds_routes_after_it_rejected_too_many_pairs(worth_compiling: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(paths, "WORTH_COMPILING", worth_compiling)
    ring = simcomm.ring(12, *LINK)
    router, edges = shortest(ring.graph), list(ring.graph.edges)
    with monkeypatch.context() as patch:
        patch.setattr(Gigabyte, "HOPS", 1)
        with pytest.raises(TooLarge):
            links(router, all_pairs(ring))
    assert [edges[link] for link in links(router, [("h3", "h6")]).link] == [("h3", "h4"), ("h4", "h5"), ("h5", "h6")]
