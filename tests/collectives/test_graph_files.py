"""Read networks strictly from networkx graphs and node-link JSON."""

import json
import re
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import simcomm
from collectives import InputError

GOOD = {"bandwidth": 1.25e9, "latency": 5e-6}


def undirected() -> "nx.Graph[str]":
    graph: nx.Graph[str] = nx.Graph()
    graph.add_edge("h10", "s0", **GOOD)
    graph.add_edge("h2", "s0", bandwidth=10**9, latency=0)
    return graph


def as_node_link(graph: "nx.Graph[Any]") -> dict[str, Any]:
    return {
        "directed": graph.is_directed(),
        "multigraph": False,
        "graph": {},
        "nodes": [{"id": node, **data} for node, data in graph.nodes(data=True)],
        "edges": [{"source": a, "target": b, **data} for a, b, data in graph.edges(data=True)],
    }


def check(cluster: simcomm.Cluster) -> None:
    assert cluster.hosts == ("h2", "h10")
    assert cluster.graph.edges["h10", "s0"] == cluster.graph.edges["s0", "h10"] == GOOD
    assert cluster.graph.edges["s0", "h2"] == {"bandwidth": 1e9, "latency": 0.0}
    assert simcomm.run("all_reduce/ring", cluster, nbytes=1 << 16).elapsed > 0


def test_cluster_is_made_from_a_networkx_graph():
    check(simcomm.from_graph(undirected()))
    check(simcomm.from_graph(undirected().to_directed()))


@pytest.mark.parametrize("edges", ["edges", "links"])
def test_cluster_is_read_from_a_node_link_file(tmp_path: Path, edges: str):
    content = as_node_link(undirected())
    content[edges] = content.pop("edges")
    (tmp_path / "net.json").write_text(json.dumps(content))
    check(simcomm.read_cluster(tmp_path / "net.json"))


def test_machine_written_to_a_file_has_the_same_hosts_and_routes(tmp_path: Path):
    machine = simcomm.preset("rtx4090-pcie")
    graph = machine.graph.copy()
    for _, _, data in graph.edges(data=True):
        data["bandwidth"] = min(data["bandwidth"], 1e15)  # the file must not contain infinity
    (tmp_path / "machine.json").write_text(json.dumps(as_node_link(graph)))
    pairs = [(a, b) for a in machine.hosts for b in machine.hosts if a != b]
    again = simcomm.read_cluster(tmp_path / "machine.json")
    assert again.hosts == machine.hosts
    assert [again.router().route(*pair) for pair in pairs] == [machine.router().route(*pair) for pair in pairs]


def edited(**changes: Any) -> "nx.Graph[str]":
    """Return two hosts on a switch with a changed first link; None removes a key."""
    graph = undirected()
    data = graph.edges["h10", "s0"]
    data.update(changes)
    for key in [key for key, value in changes.items() if value is None]:
        del data[key]
    return graph


def with_node(node: str, **data: Any) -> "nx.Graph[str]":
    graph = undirected()
    graph.add_node(node, **data)
    return graph


def with_edge(src: str, dst: str) -> "nx.Graph[str]":
    graph = undirected()
    graph.add_edge(src, dst, **GOOD)
    return graph


def one_way() -> "nx.DiGraph[str]":
    graph = undirected().to_directed()
    graph.remove_edge("s0", "h2")
    return graph


WRONG = {
    "link h10 - s0: bandwidth is missing; set it to a positive number": lambda: edited(bandwidth=None),
    "bandwidth must be a positive number of bytes per second, not 0": lambda: edited(bandwidth=0),
    "latency must be a non-negative number of seconds, not -1.0": lambda: edited(latency=-1.0),
    "usable_bandwidth must be at most bandwidth (1250000000.0), not 2e+20": lambda: edited(usable_bandwidth=2e20),
    "link h10 - s0: unknown key weight; use bandwidth, latency": lambda: edited(weight=1),
    "node s0: kind must be one of host, gpu, nic": lambda: with_node("s0", kind="router"),
    "node h2: machine must be a non-negative integer, not -1": lambda: with_node("h2", machine=-1),
    "node h2: p2p_level 'NVL' requires memory": lambda: with_node("h2", p2p_level="NVL"),
    "node h2: memory must name an existing node, not 'm0'": lambda: with_node("h2", memory="m0"),
    "the network has 2 unconnected parts; connect h7 to the rest": lambda: with_node("h7"),
    "no route from h10 to h2; add both directions of each link": one_way,
    "the cluster has no host": lambda: nx.relabel_nodes(undirected(), {"h2": "s2", "h10": "s10"}),
    "several links between two nodes are not supported": lambda: nx.MultiGraph(undirected()),
    "link s0 - s0: the two nodes must be different": lambda: with_edge("s0", "s0"),
    "node 'h\\x1b[31m': a name must be 1 to 100 printable characters": lambda: with_node("h\x1b[31m"),
}


@pytest.mark.parametrize("message", WRONG)
def test_invalid_graph_error_names_the_edge_and_key(message: str):
    with pytest.raises(InputError, match=re.escape(message)):
        simcomm.from_graph(WRONG[message]())


JSON = as_node_link(undirected())
WRONG_FILES = {
    "net.graphml": ("", "a topology must be a .json file; write one with networkx.node_link_data"),
    "cut.json": ("{", "not JSON: "),
    "list.json": ("[]", 'not a graph in node-link form: it must be an object with lists "nodes" and "edges"'),
    "id.json": (json.dumps({**JSON, "nodes": [{"name": "h0"}]}), "nodes.0: id must be the name of a node, not None"),
    "twice.json": (
        json.dumps({**JSON, "nodes": [*JSON["nodes"], JSON["nodes"][0]]}),
        "nodes.3: duplicate node 'h10'",
    ),
    "end.json": (
        json.dumps({**JSON, "edges": [{"source": "h2", "target": "s7", **GOOD}]}),
        "edges.0: node 's7' does not exist",
    ),
    "again.json": (
        json.dumps({**JSON, "edges": [*JSON["edges"], {"source": "s0", "target": "h10", **GOOD}]}),
        "edges.2: duplicate link s0 - h10",
    ),
    "directed.json": (json.dumps({**JSON, "directed": "yes"}), "directed must be true or false, not 'yes'"),
    "infinite.json": (
        json.dumps({**JSON, "edges": [{"source": "h2", "target": "s0", "bandwidth": 1e999, "latency": 0}]}),
        "edges.0: bandwidth must be a finite number, not inf",
    ),
    "medium.json": (
        json.dumps({**JSON, "edges": [{"source": "h2", "target": "s0", "bandwidth": 1, "latency": 0, "medium": []}]}),
        "link s0 - h2: medium must be at most 100 characters, not []",
    ),
    "object.json": ('{"nodes": [{"id": "h0", "id": "h1"}]}', "duplicate key 'id' in one object"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_FILES)
def test_error_begins_with_the_path_of_an_invalid_network_file(tmp_path: Path, name: str):
    text, message = WRONG_FILES[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as refusal:
        simcomm.read_cluster(tmp_path / name)
    assert str(refusal.value).startswith(f"{tmp_path / name}: ") and message in str(refusal.value)
