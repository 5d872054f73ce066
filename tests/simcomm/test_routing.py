"""Routes: the shortest, spread or hashed, over rails, as written, and through host memory where devices need it."""

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import inf

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
from simcomm.cluster.paths import ShortestPaths
from simcomm.cluster.routing import Routing, ecmp, listed_routes, rail_aware, shortest

LINK = ("10 Gbit/s", "0 us")


def all_pairs(cluster: Cluster) -> list[tuple[str, str]]:
    return [(a, b) for a in cluster.hosts for b in cluster.hosts if a != b]


@st.composite
def graphs(draw: st.DrawFn) -> "nx.DiGraph[str]":
    """Small networks in one piece or several, some links in one direction only, of three widths."""
    n = draw(st.integers(2, 9))
    graph = empty_graph(f"h{i}" for i in range(n))
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] != pair[1])
    for a, b in draw(st.lists(ends, max_size=3 * n)):
        add_link(graph, f"h{a}", f"h{b}", LinkSpec(draw(st.sampled_from([1.0, 2.0, 4.0]))))
    for a, b in draw(st.lists(ends, max_size=3)):
        if graph.has_edge(f"h{a}", f"h{b}"):
            graph.remove_edge(f"h{a}", f"h{b}")
    return graph


@given(graphs(), st.integers(0, 2**62))
@settings(max_examples=100, deadline=None)
def test_paths_are_shortest_and_among_those_widest(graph: "nx.DiGraph[str]", spread: int):
    net = ShortestPaths(graph)
    pairs = [(a, b) for a in graph for b in graph]
    routes = net.paths(net.ends(pairs), np.full(len(pairs), spread))
    for number, (a, b) in enumerate(pairs):
        route = net.nodes_of(routes.link[routes.first[number] : routes.first[number + 1]].tolist())
        if a == b or not nx.has_path(graph, a, b):
            assert route == ()
            continue
        assert (route[0], route[-1]) == (a, b)
        best = min(slowness(graph, each) for each in nx.all_shortest_paths(graph, a, b))
        assert len(route) == nx.shortest_path_length(graph, a, b) + 1
        assert slowness(graph, route) == pytest.approx(best, rel=1e-9)


def slowness(graph: "nx.DiGraph[str]", route: tuple[str, ...]) -> float:
    return sum(1 / graph.edges[edge]["bandwidth"] for edge in pairwise(route))


@given(st.integers(0, 2**62))
@settings(max_examples=5, deadline=None)
def test_every_equal_path_can_be_picked_and_compiled_code_picks_the_same(spread: int):
    cluster = topologies.fat_tree(8, *LINK)
    net = ShortestPaths(cluster.graph)
    pairs = all_pairs(cluster)[:3000]
    numbers = (np.arange(len(pairs)) * 7919 + spread) % 2**62
    found = net.paths(net.ends(pairs), numbers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "WORTH_COMPILING", -1)
        compiled = net.paths(net.ends(pairs), numbers)
    assert np.array_equal(found.first, compiled.first)
    assert np.array_equal(found.link, compiled.link)


def pcie_tree(gpus: int, switches: int, sockets: int = 1, socket: float = 12e9, p2p_level: str = "NVL") -> Cluster:
    """Return a machine of GPUs on PCIe; unless said without peer-to-peer access."""
    cpus = LinkSpec(socket) if sockets > 1 else None
    machine = machines.Machine(
        "", gpus, LinkSpec(12e9), sockets=sockets, pcie_switches=switches, socket=cpus, p2p_level=p2p_level
    )
    return on_one_switch(machine, 1)


NO_P2P = pcie_tree(8, switches=4, sockets=2, socket=20e9)
POD, FAR_POD = (  # whose GPUs reach no further than a PCIe switch, and everywhere in their machine
    on_rails(
        machines.Machine(
            "test machine", 4, LinkSpec(12e9), sockets=2, pcie_switches=4, socket=LinkSpec(10e9), nics=4,
            nic=LinkSpec(6e9), p2p_level=level,
            nvlinks=lambda graph, name, gpus: machines.add_nvswitch(graph, name, gpus, LinkSpec(100e9)),
        ),
        nodes=4,
        nodes_per_leaf=2,
    )
    for level in ("PXB", "SYS")
)  # fmt: skip
CASES = [
    (NO_P2P, shortest),
    (POD, shortest),
    (POD, ecmp(3)),
    (POD, rail_aware),
    (FAR_POD, rail_aware),
    (topologies.torus([3, 3], *LINK), ecmp(1)),
    (simcomm.star(3, *LINK), listed_routes([("h0", "s0", "h1")])),
    (simcomm.this_machine(3), shortest),
    *(
        (simcomm.preset(name, nodes=n), shortest)
        for name, n in (("rtx4090-pcie", 1), ("dgx-h100", 2), ("g4dn.metal", 2))
    ),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_many_routes_at_once_are_those_found_one_by_one(number: int):
    cluster, policy = CASES[number]
    pairs = all_pairs(cluster)
    routes, single, edges = policy(cluster.graph).links(pairs), policy(cluster.graph), list(cluster.graph.edges)
    for k, (a, b) in enumerate(pairs):
        links = [edges[link] for link in routes.link[routes.first[k] : routes.first[k + 1]]]
        assert links == list(pairwise(single.route(a, b)))
        assert len(set(links)) == len(links)
    places = [[cluster.hosts.index(pair[end]) for pair in pairs] for end in (0, 1)]
    between = policy(cluster.graph).links_between(cluster.hosts, *map(np.array, places))
    assert all(np.array_equal(one, other) for one, other in zip(routes, between, strict=True))


def test_no_links_are_needed_to_stay():
    routes = shortest(POD.graph).links([("n0.gpu0", "n0.gpu0"), ("n0.gpu0", "n0.gpu1")])
    assert routes.first.tolist() == [0, 0, 2]
    assert shortest(POD.graph).route("n0.gpu0", "n0.gpu0") == ("n0.gpu0",)


@pytest.mark.parametrize("k", [4, 6])
def test_by_default_no_shift_of_a_fat_tree_shares_a_link(k: int):
    """D-mod-k is free of contention for every shift permutation (Zahavi, 2012)."""
    cluster = topologies.fat_tree(k, *LINK)
    hosts = cluster.hosts
    for shift in range(1, len(hosts)):
        routes = cluster.router().links([(host, hosts[(i + shift) % len(hosts)]) for i, host in enumerate(hosts)])
        assert np.bincount(routes.link).max() == 1


def heaviest(cluster: Cluster, policy: Routing, shift: int) -> int:
    hosts = cluster.hosts
    pairs = [(host, hosts[(i + shift) % len(hosts)]) for i, host in enumerate(hosts)]
    return int(np.bincount(policy(cluster.graph).links(pairs).link).max())


def test_ecmp_collides_and_another_seed_collides_elsewhere():
    cluster = topologies.fat_tree(8, *LINK)
    pairs = all_pairs(cluster)
    one, again, other = (ecmp(seed)(cluster.graph).links(pairs) for seed in (1, 1, 2))
    assert np.array_equal(one.link, again.link)
    assert np.array_equal(one.first, other.first)
    assert not np.array_equal(one.link, other.link)
    assert max(heaviest(cluster, ecmp(1), shift) for shift in (16, 32, 64)) > 1


def test_ecmp_spreads_flows_evenly_over_the_core():
    cluster = topologies.fat_tree(8, *LINK)
    routes = ecmp(5)(cluster.graph).links([(a, b) for a in cluster.hosts[:16] for b in cluster.hosts[64:]])
    edges = list(cluster.graph.edges)
    through = Counter(edges[link][1] for link in routes.link if cluster.graph.nodes[edges[link][1]].get("tier") == 3)
    assert len(through) == 16
    assert sum(through.values()) == 16 * 64
    assert min(through.values()) > 64 - 4 * 8
    assert max(through.values()) < 64 + 4 * 8  # four standard deviations of a binomial


def test_ecmp_collisions_cost_time_in_a_run():
    cluster = topologies.fat_tree(4, *LINK)
    cluster = replace(cluster, hosts=tuple(f"h{5 * rank % 16}" for rank in range(16)))  # every message leaves its pod
    times = [
        simcomm.run("all_reduce/ring", replace(cluster, routing=policy), nbytes=16 << 16).elapsed
        for policy in (shortest, ecmp(0), ecmp(0))
    ]
    assert times[0] < times[1] == times[2]


def test_wider_links_win_where_the_number_of_links_is_the_same():
    """Two GPUs on one PCIe switch and on one NVSwitch."""
    switch = partial(machines.add_nvswitch, link=LinkSpec(100e9))
    machine = machines.Machine("", 2, LinkSpec(12e9), pcie_switches=1, nvlinks=switch)
    assert on_one_switch(machine, 1).router().route("n0.gpu0", "n0.gpu1") == ("n0.gpu0", "n0.nvswitch", "n0.gpu1")


def test_without_peer_to_peer_messages_go_through_the_receivers_memory():
    router = NO_P2P.router()
    assert router.route("n0.gpu0", "n0.gpu1") == (
        *("n0.gpu0", "n0.pcie0", "n0.cpu0", "n0.memory0"),
        *("n0.cpu0", "n0.pcie0", "n0.gpu1"),
    )
    assert router.route("n0.gpu0", "n0.gpu7") == (
        *("n0.gpu0", "n0.pcie0", "n0.cpu0", "n0.cpu1", "n0.memory1"),
        *("n0.cpu1", "n0.pcie3", "n0.gpu7"),
    )


def test_two_cards_behind_one_switch_without_p2p_are_half_as_fast_as_on_two_sockets():
    """As NCCL's maintainers say of GeForce cards: https://github.com/NVIDIA/nccl/issues/1309."""
    together, apart = pcie_tree(2, switches=1), pcie_tree(2, switches=2, sockets=2)
    times = [simcomm.run("all_reduce/ring", cluster, nbytes=1 << 24).elapsed for cluster in (together, apart)]
    assert times[0] == pytest.approx(2 * times[1], rel=1e-9)
    direct = pcie_tree(2, switches=1, p2p_level="SYS")
    assert simcomm.run("all_reduce/ring", direct, nbytes=1 << 24).elapsed == pytest.approx(times[1], rel=1e-9)


@pytest.mark.parametrize(
    ("level", "same_switch", "same_socket", "other_socket"),
    [("NVL", True, True, True), ("PXB", False, True, True), ("PHB", False, False, True), ("SYS", False, False, False)],
)
def test_p2p_levels_mean_what_nccl_means_by_them(level: str, same_switch: bool, same_socket: bool, other_socket: bool):
    router = pcie_tree(8, switches=4, sockets=2, p2p_level=level).router()
    for dst, staged in (("n0.gpu1", same_switch), ("n0.gpu2", same_socket), ("n0.gpu7", other_socket)):
        assert any("memory" in node for node in router.route("n0.gpu0", dst)) is staged


def test_nvlink_needs_no_host_memory_and_what_lies_beyond_it_does():
    bridges = partial(machines.add_nvlink_pairs, link=LinkSpec(56e9))
    router = on_one_switch(machines.Machine("", 4, LinkSpec(24e9), nvlinks=bridges, p2p_level="NVL"), 1).router()
    assert router.route("n0.gpu0", "n0.gpu1") == ("n0.gpu0", "n0.gpu1")
    assert "n0.memory0" in router.route("n0.gpu1", "n0.gpu2")


def test_by_default_a_message_leaves_by_its_own_nic_and_crosses_the_spine_to_another_rail():
    route = POD.router().route("n0.gpu0", "n1.gpu2")
    assert [node for node in route if "nic" in node] == ["n0.nic0", "n1.nic2"]
    assert POD.graph.nodes[route[4]] == {"kind": "switch", "tier": 2}


def test_rail_aware_messages_change_rails_inside_the_sender_and_cross_no_spine():
    router = rail_aware(POD.graph)
    assert router.route("n0.gpu0", "n1.gpu2") == (
        *("n0.gpu0", "n0.nvswitch", "n0.gpu2", "n0.pcie2", "n0.nic2", "s2"),
        *("n1.nic2", "n1.pcie2", "n1.gpu2"),
    )
    assert router.route("n0.gpu2", "n1.gpu2")[:3] == ("n0.gpu2", "n0.pcie2", "n0.nic2")
    assert router.route("n0.gpu0", "n0.gpu2") == ("n0.gpu0", "n0.nvswitch", "n0.gpu2")
    for src, dst in all_pairs(POD):
        under_one_leaf = POD.graph.nodes[src]["machine"] // 2 == POD.graph.nodes[dst]["machine"] // 2
        spines = [node for node in router.route(src, dst) if POD.graph.nodes[node].get("tier") == 2]
        assert len(spines) == (0 if under_one_leaf else 1)


def test_a_route_that_is_written_down_is_taken_in_its_direction_only():
    cluster = topologies.ring(5, "10 Gbit/s", "1 us")
    long_route = ("h0", "h4", "h3", "h2", "h1")
    routed = replace(cluster, routing=listed_routes([long_route]))
    assert routed.router().route("h0", "h1") == long_route
    assert routed.router().route("h1", "h0") == ("h1", "h0")
    trace = simcomm.run("all_reduce/ring", routed, nbytes=5 << 16)
    assert {message.route for message in trace.messages if (message.src, message.dst) == (0, 1)} == {long_route}
    assert trace.elapsed > simcomm.run("all_reduce/ring", cluster, nbytes=5 << 16).elapsed


WRONG_ROUTES = {
    "route h0 - s0 - h9: no link leads from s0 to h9": [("h0", "s0", "h9")],
    "route h0: a route leads from one node to another": [("h0",)],
    "route h0 - s0 - h0: a route leads from one node to another": [("h0", "s0", "h0")],
    "route h0 - s0: s0 holds no rank": [("h0", "s0")],
    "it comes to s0 twice": [("h0", "s0", "h2", "s0", "h1")],
    "it comes to h0 twice": [("h0", "s0", "h0", "s0", "h1")],
    "there is already one from h0 to h1": [("h0", "s0", "h1"), ("h0", "s0", "h1")],
}


@pytest.mark.parametrize("message", WRONG_ROUTES)
def test_a_route_that_is_none_is_refused(message: str):
    with pytest.raises(InputError) as refusal:
        listed_routes(WRONG_ROUTES[message])(simcomm.star(3, *LINK).graph)
    assert message in str(refusal.value)


def test_policies_refuse_what_they_cannot_do():
    with pytest.raises(InputError, match="rail-aware routing needs machines whose GPUs and NICs are on rails"):
        rail_aware(simcomm.star(3, *LINK).graph)
    broken = POD.graph.copy()
    broken.nodes["n0.gpu1"]["rail"] = 9
    with pytest.raises(InputError, match=r"n0\.gpu1 is on rail 9, where its machine has no NIC"):
        rail_aware(broken)
    with pytest.raises(InputError, match="seed -1 is none; give a whole number from 0 to 4294967295"):
        ecmp(-1)
    with pytest.raises(InputError, match="seed '1' is none; give a whole number"):
        ecmp("1")
    with pytest.raises(InputError, match="route is 'h0 - h1'; give a list of nodes"):
        listed_routes(["h0 - h1"])


def test_what_no_link_leads_to_is_refused_by_name():
    graph = empty_graph(["h0", "h1"])
    for ask in (lambda: shortest(graph).route("h0", "h1"), lambda: shortest(graph).links([("h0", "h1")])):
        with pytest.raises(InputError, match="no link leads from h0 to h1"):
            ask()
    with pytest.raises(InputError, match="there is no node 'h7' in this network"):
        shortest(graph).route("h0", "h7")


def test_links_without_limit_are_the_widest():
    graph = empty_graph(["h0", "h1"], ["s0", "s1"])
    for switch, width in (("s0", 5.0), ("s1", inf)):
        add_link(graph, "h0", switch, LinkSpec(width))
        add_link(graph, "h1", switch, LinkSpec(width))
    assert shortest(graph).route("h0", "h1") == ("h0", "s1", "h1")


@pytest.mark.parametrize("worth_compiling", [-1, paths.WORTH_COMPILING])
def test_routes_are_right_after_a_refusal_of_the_same_router(worth_compiling: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(paths, "WORTH_COMPILING", worth_compiling)
    ring = simcomm.ring(12, *LINK)
    router, edges = shortest(ring.graph), list(ring.graph.edges)
    with monkeypatch.context() as patch:
        patch.setattr(Gigabyte, "HOPS", 1)
        with pytest.raises(TooLarge):
            router.links(all_pairs(ring))
    assert [edges[link] for link in router.links([("h3", "h6")]).link] == [("h3", "h4"), ("h4", "h5"), ("h5", "h6")]
