"""Check topologies, presets, routing and placement in scenario files."""

import json
from pathlib import Path
from unittest.mock import patch

import networkx as nx
import pytest
from scenario_texts import ASKS, HERE, STAR, check_refused, write

import simcomm
from collectives.budget import Gigabyte
from collectives.errors import InputError
from scenarios import load
from scenarios.cluster_sections import TOPOLOGY_SECTIONS
from simcomm.cluster import placement, topologies
from simcomm.cluster.cluster import Cluster

EACH = 'bandwidth = "10 Gbit/s"\nlatency = "5 us"\n'
LINK = ("10 Gbit/s", "5 us")
BUILT = {
    "star": ("hosts = 4", simcomm.star(4, *LINK)),
    "ring": ("hosts = 4", topologies.ring(4, *LINK)),
    "fully-connected": ("hosts = 3", topologies.fully_connected(3, *LINK)),
    "torus": ("dimensions = [2, 3]", topologies.torus([2, 3], *LINK)),
    "two-level-tree": (
        "racks = 2\nhosts_per_rack = 3\noversubscription = 1.5",
        topologies.two_level_tree(2, 3, *LINK, oversubscription=1.5),
    ),
    "fat-tree": ("ports = 4", topologies.fat_tree(4, *LINK)),
}
POD = '[cluster]\npreset = "dgx-h100"\nnodes = 4\ngpus_per_node = 2\n'


def same(a: Cluster, b: Cluster) -> bool:
    return (a.title, a.hosts, list(a.graph.edges(data=True))) == (b.title, b.hosts, list(b.graph.edges(data=True)))


@pytest.mark.parametrize("name", TOPOLOGY_SECTIONS)
def test_every_topology_name_builds_its_network(tmp_path: Path, name: str):
    keys, expected = BUILT[name]
    cluster = load(write(tmp_path, f'[cluster]\ntopology = "{name}"\n{keys}\n{EACH}{ASKS}')).cluster
    assert same(cluster, expected)


def test_preset_scenario_accepts_nodes_gpus_and_network_keys(tmp_path: Path):
    assert same(load(write(tmp_path, POD + ASKS)).cluster, simcomm.preset("dgx-h100", 4, 2))
    text = POD + 'bandwidth = "100 Gbit/s"\nnodes_per_leaf = 2\noversubscription = 2\n' + ASKS
    expected = simcomm.preset("dgx-h100", 4, 2, bandwidth="100 Gbit/s", nodes_per_leaf=2, oversubscription=2)
    assert same(load(write(tmp_path, text)).cluster, expected)


def test_topology_file_is_relative_to_the_scenario(tmp_path: Path):
    nodes = [{"id": "h0"}, {"id": "h1"}]
    edges = [{"source": "h0", "target": "h1", "bandwidth": 1e9, "latency": 0}]
    (tmp_path / "net.json").write_text(json.dumps({"nodes": nodes, "edges": edges}))
    cluster = load(write(tmp_path, '[cluster]\ntopology = "net.json"\n' + ASKS)).cluster
    assert cluster.hosts == ("h0", "h1")
    assert cluster.graph.edges["h1", "h0"] == {"bandwidth": 1e9, "latency": 0.0}


def test_placement_is_applied_before_world_size(tmp_path: Path):
    cluster = load(write(tmp_path, POD + 'placement = "round-robin"\nworld_size = 3\n' + ASKS)).cluster
    assert cluster.hosts == ("n0.gpu0", "n1.gpu0", "n2.gpu0")
    assert load(write(tmp_path, POD + 'placement = "block"\n' + ASKS)).cluster.hosts[1] == "n0.gpu1"
    listed = load(write(tmp_path, STAR + 'placement = ["h2", "h0"]\n' + ASKS)).cluster
    assert listed.hosts == placement.place_on(BUILT["star"][1], ["h2", "h0"]).hosts


def test_ecmp_routing_is_reproducible_by_its_seed(tmp_path: Path):
    named, usual = (load(write(tmp_path, POD + routing + ASKS)).cluster for routing in ('routing = "shortest"\n', ""))
    assert named.router().route("n0.gpu0", "n1.gpu1") == usual.router().route("n0.gpu0", "n1.gpu1")
    fat = '[cluster]\ntopology = "fat-tree"\nports = 8\n' + EACH
    routers = [
        load(write(tmp_path, fat + f'routing = {{name = "ecmp", seed = {seed}}}\n' + ASKS)).cluster.router()
        for seed in (1, 1, 2)
    ]
    pairs = [("h0", f"h{host}") for host in range(16, 128)]
    assert [routers[0].route(*pair) for pair in pairs] == [routers[1].route(*pair) for pair in pairs]
    assert [routers[0].route(*pair) for pair in pairs] != [routers[2].route(*pair) for pair in pairs]


RING = '[cluster]\ntopology = "ring"\nhosts = 4\n' + EACH
LINKED = "bandwidth='1 Gbit/s', latency='1 us'"
WRONG = {
    RING + ASKS: {
        f"cluster={{topology='torus', {LINKED}}}": 'dimensions is missing; topology = "torus" requires dimensions',
        f"cluster={{topology='torus', dimensions=[60000, 60000], {LINKED}}}": "a network of 7,200,000,000 links",
        f"cluster={{topology='fat-tree', ports=5, {LINKED}}}": "cluster: ports of a fat tree must be even, not 5",
        "cluster={topology='none.json'}": "none.json: no such file",
        "cluster={topology='x.json', hosts=2}": "cluster: hosts is not a key of topology from a file",
        "cluster.racks=2": 'racks is not a key of topology = "ring", but of topology = "two-level-tree"',
        "cluster.routing=rip": "unknown routing 'rip'; use shortest or ecmp",
        "cluster.routing={name='ecmp', sed=1}": "routing ecmp has no parameter sed; it takes seed",
        "cluster.routing=3": 'a routing is "shortest", "ecmp" or {name = "ecmp", seed = 1}',
        "cluster.placement=spread": "unknown placement 'spread'; use block, round-robin, or a list of hosts",
        "cluster.placement=['h0', 'h9']": "cluster.placement: rank 1: host 'h9' does not exist",
    },
    POD + ASKS: {
        "cluster.nodes=60000": "cluster: nodes = 60000 of dgx-h100 is too large; the maximum is 65536 GPUs",
        "cluster.oversubscription=0": "cluster.oversubscription = 0 should be greater than 0",
        "cluster.gpus_per_node=9": "cluster: gpus_per_node must be at most 8 for NVIDIA DGX H100, not 9",
    },
    HERE + ASKS: {
        "cluster.nodes=2": 'cluster: nodes is not a key of preset = "this-machine", but of a hardware catalog preset',
        "cluster.placement=block": "cluster: placement is not supported with preset",
    },
}


@pytest.mark.parametrize(("text", "key"), [(text, key) for text, table in WRONG.items() for key in table])
def test_invalid_cluster_is_rejected(tmp_path: Path, text: str, key: str):
    check_refused(tmp_path, text, WRONG[text][key], key)


def test_what_if_networks_share_one_memory_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal networks count once."""
    what_ifs = "".join(
        f'[[what_if]]\ntitle = "{number}"\n[what_if.cluster]\ntopology = "{kind}"\nhosts = {hosts}\n{EACH}'
        for number, (kind, hosts) in enumerate([("star", 10), ("ring", 15)])
    )
    thin = '[[what_if]]\ntitle = "thin"\n[[what_if.faults.link]]\nbetween = ["h0", "s0"]\nshare = 0.5\n'
    path = write(tmp_path, STAR + ASKS + thin + what_ifs)
    monkeypatch.setattr(Gigabyte, "LINKS", 4 + 25)
    with patch("networkx.DiGraph.number_of_edges", autospec=True, side_effect=nx.DiGraph.number_of_edges) as counting:
        assert len(load(path).what_ifs) == 3
    assert counting.call_count == 3  # the own one, the star and the ring, each once
    monkeypatch.setattr(Gigabyte, "LINKS", 4 + 24)
    with pytest.raises(InputError, match=r"what_if\.2: 3 networks with \d\d links in total take .* the limit is \d\d;"):
        load(path)
