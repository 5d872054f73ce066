"""A graph in which every two hosts have a link is the graph that was written out, whatever is done with it."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
import pytest

import simcomm
from collectives import Transport
from collectives.errors import TooLarge
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.graph import LinkSpec, add_link, complete_links, each_link, empty_graph
from simcomm.cluster.routing import shortest
from simcomm.compiled.planning.engine_input import same_paths
from simcomm.compiled.planning.routes import Pairs, find_routes

LINK = LinkSpec(1.25e9, 5e-6)
SENDING = ("all_reduce/ring", "all_reduce/halving_doubling", "all_to_all/direct", "broadcast/binomial")


def lazy(hosts: int) -> Cluster:
    return simcomm.fully_connected(hosts, "10 Gbit/s", "5 us")


def written(hosts: int) -> Cluster:
    """The same cluster of a graph made link by link."""
    graph = empty_graph(f"h{host}" for host in range(hosts))
    for a, b in combinations(list(graph), 2):
        add_link(graph, a, b, LINK)
    return replace(lazy(hosts), graph=graph)


def as_lists(graph: Any) -> list[object]:
    """All of a graph, in its order."""
    incoming = {node: list(graph.pred[node]) for node in graph} if graph.is_directed() else {}
    return [list(graph.nodes(data=True)), list(graph.edges(data=True)), incoming, graph.is_directed()]


def edited(edit: Callable[[Any], object]) -> Callable[[Any], Any]:
    """What edits a graph and returns it."""

    def change(graph: Any) -> Any:
        edit(graph)
        return graph

    return change


def test_links_of_a_complete_graph_are_told_without_writing_them_down():
    for cluster in (lazy(5), lazy(1)):
        told = list(each_link(cluster.graph))
        assert complete_links(cluster.graph) is not None
        assert told == list(cluster.graph.edges(data=True))
    with pytest.raises(TooLarge, match="cables is too large"):
        each_link(lazy(20_000).graph)


def test_a_run_is_recorded_without_writing_links_down():
    cluster = lazy(5)
    found, wanted = (simcomm.run("all_gather/bruck", each, 4000, engine="compiled") for each in (cluster, written(5)))
    assert complete_links(cluster.graph) is not None
    assert (found.links, found.messages.route.tolist()) == (wanted.links, wanted.messages.route.tolist())


USES: dict[str, Callable[[Any], Any]] = {
    "look": lambda graph: graph,
    "copy": lambda graph: graph.copy(),
    "copied by networkx": nx.DiGraph,
    "subgraph": lambda graph: graph.subgraph(["h0", "h2"]),
    "subgraph copied": lambda graph: graph.subgraph(["h0", "h2"]).copy(),
    "reverse": lambda graph: graph.reverse(),
    "reversed view": lambda graph: graph.reverse(copy=False),
    "undirected": lambda graph: graph.to_undirected(),
    "directed": lambda graph: graph.to_directed(),
    "pickle": lambda graph: pickle.loads(pickle.dumps(graph)),
    "deepcopy": copy.deepcopy,
    "frozen": nx.freeze,
    "relabel": lambda graph: nx.relabel_nodes(graph, {"h0": "first"}),
    "remove a node": edited(lambda graph: graph.remove_node("h1")),
    "remove an edge": edited(lambda graph: graph.remove_edge("h1", "h2")),
    "add a node": edited(lambda graph: graph.add_node("s0", kind="switch")),
    "add nodes": edited(lambda graph: graph.add_nodes_from(["s0", "h0"], kind="switch")),
    "add an edge": edited(lambda graph: graph.add_edge("h0", "s0", bandwidth=1.0, latency=0.0)),
    "edit an edge": edited(lambda graph: graph.edges["h0", "h1"].update(bandwidth=1.0)),
    "edit by index": edited(lambda graph: graph["h0"]["h1"].update(bandwidth=1.0)),
    "edit a node": edited(lambda graph: graph.nodes["h0"].update(kind="gpu")),
    "clear edges": edited(lambda graph: graph.clear_edges()),
    "clear": edited(lambda graph: graph.clear()),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_whatever_is_done_with_it_it_is_the_graph_that_was_written_out(use: Callable[[Any], Any]):
    graph = lazy(4).graph
    assert complete_links(graph) == LINK
    assert as_lists(use(graph)) == as_lists(use(written(4).graph))
    assert as_lists(graph)[1] == list(graph.edges(data=True))


@pytest.mark.parametrize("hosts", [1, 2, 3, 7])
def test_counts_and_neighbours_are_those_of_the_graph_that_was_written_out(hosts: int):
    ours = lazy(hosts)
    assert repr(ours) == repr(written(hosts)) and complete_links(ours.graph) == LINK
    assert nx.is_weakly_connected(ours.graph) and ours.graph.number_of_edges() == hosts * (hosts - 1)
    assert lazy(hosts).graph.number_of_edges("h0", "h0") == 0
    assert dict(lazy(hosts).graph.out_degree()) == dict(written(hosts).graph.out_degree())
    assert list(lazy(hosts).graph.predecessors("h0")) == list(written(hosts).graph.predecessors("h0"))
    assert as_lists(lazy(hosts).graph) == as_lists(written(hosts).graph)


@pytest.mark.parametrize("hosts", [2, 5, 8])
@pytest.mark.parametrize("routing", [simcomm.shortest, simcomm.ecmp(seed=3)])
def test_routes_are_the_same_and_no_edge_is_looked_at(hosts: int, routing: Any):
    ours, plain = replace(lazy(hosts), routing=routing), replace(written(hosts), routing=routing)
    pairs = [(a, b) for a in ours.hosts for b in ours.hosts]
    for mine, known in zip(ours.router().links(pairs), plain.router().links(pairs), strict=True):
        assert mine.tolist() == known.tolist()
    assert [ours.router().route(*pair) for pair in pairs] == [plain.router().route(*pair) for pair in pairs]
    assert complete_links(ours.graph) == LINK


@pytest.mark.parametrize("algorithm", SENDING)
def test_predictions_are_the_same_and_no_edge_is_looked_at(algorithm: str):
    ours, plain = lazy(8), written(8)
    found = simcomm.run(algorithm, ours, 1 << 20, engine="compiled", record=False)
    assert complete_links(ours.graph) == LINK
    assert found.elapsed == simcomm.run(algorithm, plain, 1 << 20, engine="compiled", record=False).elapsed
    with_links = simcomm.run(algorithm, ours, 1 << 20, engine="simpy")
    assert with_links == simcomm.run(algorithm, plain, 1 << 20, engine="simpy")


def test_a_sweep_over_bandwidths_looks_at_no_edge():
    clusters = [simcomm.fully_connected(8, f"{rate} Gbit/s", "5 us") for rate in (1, 10)]
    found = simcomm.sweep("all_reduce/ring", clusters, [1 << 20]).seconds.tolist()
    assert all(complete_links(cluster.graph) for cluster in clusters) and same_paths(*clusters)
    clusters = [replace(cluster, graph=cluster.graph.copy()) for cluster in clusters]
    assert simcomm.sweep("all_reduce/ring", clusters, [1 << 20]).seconds.tolist() == found


def test_an_edit_counts():
    slow, plain = lazy(4), written(4)
    for cluster in (slow, plain):
        cluster.graph.edges["h1", "h2"]["bandwidth"] /= 10
    times = [
        simcomm.run("all_reduce/ring", cluster, 1 << 20, record=False).elapsed for cluster in (lazy(4), slow, plain)
    ]
    assert times[0] < times[1] == times[2]


def test_routes_of_many_pairs_take_a_few_bytes_each():
    cluster = lazy(40)
    hosts = tuple(reversed(cluster.hosts))
    src, dst = (each.ravel().astype(np.int32) for each in np.mgrid[:40, :40])
    ends = [(hosts[a], hosts[b]) for a, b in zip(src.tolist(), dst.tolist(), strict=True)]
    wanted = shortest(lazy(40).graph).links(ends)
    for graph in (cluster.graph, written(40).graph):
        found = shortest(graph).links_between(hosts, src, dst)
        assert np.array_equal(found.first, wanted.first) and np.array_equal(found.link, wanted.link)
    away = src != dst
    routes = find_routes(replace(cluster, hosts=hosts), Transport("test", overhead=1e-6), Pairs(src[away], dst[away]))
    held = [getattr(routes, name) for name in routes._fields]
    assert sum(each.nbytes for each in held if each.strides != (0,)) <= 8 * (away.sum() + 1)
    assert (routes.delay == 6e-6).all() and len(routes.delay) == away.sum()


def test_more_links_than_fit_into_memory_are_not_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = simcomm.fully_connected(20, "1 GB/s", "1 us")
    monkeypatch.setattr("collectives.budget.Gigabyte.LINKS", 189)
    assert simcomm.run("all_reduce/ring", cluster, 4096, engine="compiled", record=False).elapsed > 0
    with pytest.raises(TooLarge, match="a network of 190 cables is too large to be built; up to 189 will do"):
        cluster.graph.edges["h0", "h1"]
