"""Networks of others: networkx graphs, GraphML and node-link JSON, read strictly."""

import json
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


def test_any_networkx_graph_makes_a_cluster():
    check(simcomm.from_graph(undirected()))
    check(simcomm.from_graph(undirected().to_directed()))


def test_a_graphml_file_makes_a_cluster(tmp_path: Path):
    nx.write_graphml(undirected(), tmp_path / "net.graphml")
    check(simcomm.read_cluster(tmp_path / "net.graphml"))


@pytest.mark.parametrize("edges", ["edges", "links"])
def test_a_node_link_file_makes_a_cluster(tmp_path: Path, edges: str):
    content = as_node_link(undirected())
    content[edges] = content.pop("edges")
    (tmp_path / "net.json").write_text(json.dumps(content))
    check(simcomm.read_cluster(tmp_path / "net.json"))


def test_a_machine_survives_both_kinds_of_file_with_its_detours(tmp_path: Path):
    machine = simcomm.preset("rtx4090-pcie")
    graph = machine.graph.copy()
    for _, _, data in graph.edges(data=True):
        data["bandwidth"] = min(data["bandwidth"], 1e15)  # neither file has an infinity
    nx.write_graphml(graph, tmp_path / "machine.graphml")
    (tmp_path / "machine.json").write_text(json.dumps(as_node_link(graph)))
    pairs = [(a, b) for a in machine.hosts for b in machine.hosts if a != b]
    for name in ("machine.graphml", "machine.json"):
        again = simcomm.read_cluster(tmp_path / name)
        assert again.hosts == machine.hosts
        assert [again.router().route(*pair) for pair in pairs] == [machine.router().route(*pair) for pair in pairs]


def edited(**changes: Any) -> "nx.Graph[str]":
    """Two hosts on a switch, the first link changed; None takes a key away."""
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


def one_way() -> "nx.DiGraph[str]":
    graph = undirected().to_directed()
    graph.remove_edge("s0", "h2")
    return graph


WRONG = {
    "link h10 - s0: bandwidth is missing; give bytes per second as a number above 0": lambda: edited(bandwidth=None),
    "link h10 - s0: latency is missing; give seconds as a number from 0 on": lambda: edited(latency=None),
    "link h10 - s0: bandwidth = '10 Gbit/s'; give bytes per second as a number": lambda: edited(bandwidth="10 Gbit/s"),
    "link h10 - s0: bandwidth = 0; give bytes per second": lambda: edited(bandwidth=0),
    "link h10 - s0: bandwidth = True; give bytes per second": lambda: edited(bandwidth=True),
    "link h10 - s0: bandwidth = nan; give bytes per second": lambda: edited(bandwidth=float("nan")),
    "link h10 - s0: latency = -1.0; give seconds": lambda: edited(latency=-1.0),
    "link h10 - s0: latency = inf; give seconds": lambda: edited(latency=float("inf")),
    "link h10 - s0: usable_bandwidth = -2; give bytes per second": lambda: edited(usable_bandwidth=-2),
    "link h10 - s0: weight is no known key; there are bandwidth, latency": lambda: edited(weight=1),
    "node s0: kind = 'router'; there are host, gpu, nic": lambda: with_node("s0", kind="router"),
    "node h2: colour is no known key; there are kind, machine": lambda: with_node("h2", colour="red"),
    "node h2: machine is -1; give a whole number from 0 on": lambda: with_node("h2", machine=-1),
    "node h2: rail without machine; number the machines": lambda: with_node("h2", rail=0),
    "node h2: p2p_level = 'NODE'; there are NVL, PXB, PHB, SYS": lambda: with_node("h2", p2p_level="NODE"),
    "node h2: p2p_level = 'NVL' needs memory, the node to go through": lambda: with_node("h2", p2p_level="NVL"),
    "node h2: memory = 'm0'; there is no such node": lambda: with_node("h2", memory="m0"),
    "the network is in 2 pieces: no link leads from h7 to the rest": lambda: with_node("h7"),
    "no link leads from h10 to h2; give both directions": one_way,
    "the cluster has no host": lambda: nx.relabel_nodes(undirected(), {"h2": "s2", "h10": "s10"}),
    "it has several links between two nodes": lambda: nx.MultiGraph(undirected()),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_graph_that_is_no_network_is_refused_by_edge_and_key(message: str):
    with pytest.raises(InputError) as refusal:
        simcomm.from_graph(WRONG[message]())
    assert message in str(refusal.value)


def test_a_link_to_itself_is_refused():
    graph = undirected()
    graph.add_edge("s0", "s0", **GOOD)
    with pytest.raises(InputError, match="link s0 - s0: a link needs two different nodes"):
        simcomm.from_graph(graph)


JSON = as_node_link(undirected())
WRONG_FILES = {
    "net.txt": ("", "a topology is read from .graphml or .json (node-link), not '.txt'"),
    "net.graphml": ("<graphml", "not GraphML: "),
    "cut.json": ("{", "not JSON: "),
    "list.json": ("[]", 'not a graph in node-link form: an object with lists "nodes" and "edges" is needed'),
    "nodes.json": (json.dumps({**JSON, "nodes": {}}), 'not a graph in node-link form: an object with lists "nodes"'),
    "multi.json": (
        json.dumps(nx.node_link_data(nx.MultiGraph(undirected()), edges="edges")),
        "it has several links between two nodes; give one with the bandwidth of all",
    ),
    "id.json": (json.dumps({**JSON, "nodes": [{"name": "h0"}]}), "nodes.0: id = None; the name of a node is needed"),
    "twice.json": (
        json.dumps({**JSON, "nodes": [*JSON["nodes"], JSON["nodes"][0]]}),
        "nodes.3: node 'h10' is there twice",
    ),
    "end.json": (
        json.dumps({**JSON, "edges": [{"source": "h2", "target": "s7", **GOOD}]}),
        "edges.0: node 's7' is not among the nodes",
    ),
    "again.json": (
        json.dumps({**JSON, "edges": [*JSON["edges"], {"source": "s0", "target": "h10", **GOOD}]}),
        "edges.2: link s0 - h10 is there twice",
    ),
    "key.json": (
        json.dumps({**JSON, "edges": [{"source": "h2", "target": "s0", "bandwith": 1, "latency": 0}]}),
        "link s0 - h2: bandwith is no known key",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_FILES)
def test_a_file_that_is_no_network_is_refused_by_name(tmp_path: Path, name: str):
    text, message = WRONG_FILES[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as refusal:
        simcomm.read_cluster(tmp_path / name)
    said = str(refusal.value)
    assert said.startswith(f"{tmp_path / name}: ")
    assert message in said


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(InputError) as missing:
        simcomm.read_cluster(tmp_path / "none.json")
    assert str(missing.value) == f"{tmp_path / 'none.json'}: no such file"
    (tmp_path / "latin.json").write_bytes(b"\xff")
    with pytest.raises(InputError) as unreadable:
        simcomm.read_cluster(tmp_path / "latin.json")
    assert str(unreadable.value) == f"{tmp_path / 'latin.json'}: line 1 is not UTF-8 text"
