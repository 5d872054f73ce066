"""The catalog: every value has a source, parts fit together, and known machines match published values."""

import re
from collections import Counter

import networkx as nx
import pytest

import simcomm
from collectives import InputError
from collectives.units import parse_bandwidth, parse_latency, parse_size
from ringlab.commands.catalogue import hardware, hardware_part, list_command
from simcomm.cluster.cluster import Cluster, with_usable_bandwidths
from simcomm.cluster.hardware import TABLES, find_link, find_machine, find_part, machine_entries, parts, preset

READERS = {
    "memory": parse_size,
    "memory_bandwidth": parse_bandwidth,
    "bandwidth": parse_bandwidth,
    "usable_bandwidth": parse_bandwidth,
    "lane_rate": parse_bandwidth,
    "latency": parse_latency,
    "pcie": find_link,
    "nvlink": find_link,
    "port": find_link,
    "ports": int,
    "lanes": int,
}


@pytest.mark.parametrize("kind", TABLES)
def test_catalog_values_can_be_parsed_and_have_sources(kind: str):
    for name, figures in parts(kind).items():
        for quantity, (value, source) in figures.items():
            assert len(source) > 8 and value == value.strip() != "", (name, quantity)
            is_rate = quantity.startswith(("fp", "tf", "bf"))
            unit = {"int8": " TOP/s", "power": " W"}.get(quantity, " TFLOP/s" if is_rate else "")
            assert value.endswith(unit), (name, quantity)
            if unit:
                assert float(value.split()[0]) > 0 and (quantity != "power" or 50 < float(value.split()[0]) < 1500)
            READERS.get(quantity, str)(value)


def test_gpus_have_published_rates():
    published = ("http", "assumed: ", "NVIDIA ", "AMD ", "TensorFlow benchmarks")  # the last three are titles
    for name, figures in parts("GPU").items():
        for quantity, (_, source) in figures.items():
            assert "http" in source or source.startswith(published), (name, quantity, source)
    for name in {entry["gpu"] for entry in machine_entries().values()}:
        assert {"fp32", "fp16", "memory", "memory_bandwidth"} <= parts("GPU")[name].keys(), name
    for name in ("L4", "L40S", "RTX 4090", "H100 SXM", "H200 SXM", "B200", "GB200"):
        assert {"fp8", "int8"} <= parts("GPU")[name].keys(), name


@pytest.mark.parametrize("name", parts("link"))
def test_usable_rate_of_link_is_at_most_its_bandwidth(name: str):
    link = find_link(name)
    assert 0 < link.bandwidth < 1e12
    assert link.usable is None or link.usable <= link.bandwidth
    assert find_link(f"{name} x2").bandwidth == 2 * link.bandwidth


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("PCIe 3.0 x16", 8e9 * 16 * 128 / 130 / 8),
        ("PCIe 5.0 x16", 63.015e9),
        ("100 GbE", 100e9 / 8),
        ("InfiniBand NDR", 50e9),
        *(
            (find_part("GPU", gpu)["nvlink"].value, gigabytes * 1e9)
            for gpu, gigabytes in (("P100 SXM2", 80), ("V100 SXM2 16GB", 150), ("A100 40GB SXM", 300), ("B200", 900))
        ),
    ],
)
def test_link_bandwidths_match_data_sheets(name: str, bandwidth: float):
    assert find_link(name).bandwidth == pytest.approx(bandwidth, rel=1e-4)
    assert find_link("RoCE 100").usable == pytest.approx(12.5e9 * 4096 / 4178, rel=1e-12)


@pytest.mark.parametrize("name", machine_entries())
def test_catalog_machine_is_connected_and_runs_a_ring(name: str):
    cluster, entry = preset(name), machine_entries()[name]
    assert set(entry) - {"title", "sources"} == set(entry["sources"])
    assert all(len(source) > 8 for source in entry["sources"].values())
    assert nx.is_strongly_connected(cluster.graph)
    assert all(cluster.graph.edges[b, a] == data for a, b, data in cluster.graph.edges(data=True))
    kinds = Counter(data["kind"] for _, data in cluster.graph.nodes(data=True))
    assert kinds["gpu"] == cluster.world_size == entry["gpus"]
    assert (kinds["nic"], kinds["cpu"]) == (entry.get("nics", 0), entry["sockets"])
    first = cluster.on_first(min(8, cluster.world_size))
    trace = simcomm.run("all_reduce/ring", first, nbytes=8 << 16)
    assert len(trace.messages) == 2 * first.world_size * (first.world_size - 1)
    if port := find_machine(name).nic:
        two = preset(name, nodes=2, gpus_per_node=min(2, entry["gpus"]))
        assert two.world_size == 2 * min(2, entry["gpus"]) and nx.is_strongly_connected(two.graph)
        assert port.bandwidth in [data["bandwidth"] for *_, data in two.graph.out_edges(["n0.nic0"], data=True)]


@pytest.mark.parametrize(("name", "expected"), [("dgx-h100", 365e9), ("dgx-h200", 367e9), ("dgx-a100", 230e9)])
def test_usable_bandwidths_give_published_ring_bandwidth(name: str, expected: float):
    """Ring busbw in GB/s on 8 GPUs: 365 to 370 (nccl #1455), 367.6 (stas00/ml-engineering), 230 (nccl-tests #149)."""
    elapsed = simcomm.run("all_reduce/ring", with_usable_bandwidths(preset(name)), 1 << 30).elapsed
    assert 2 * 7 / 8 * (1 << 30) / elapsed == pytest.approx(expected, rel=0.05)


def test_eight_rtx_4090_share_the_uplinks_of_two_switches():
    """Without P2P, every message of four GPUs crosses the single uplink of their switch, up and down."""
    elapsed = simcomm.run("all_reduce/ring", preset("rtx4090-pcie"), 1 << 30).elapsed
    assert 2 * 7 / 8 * (1 << 30) / elapsed == pytest.approx(find_link("PCIe 4.0 x16").bandwidth / 4, rel=1e-3)


def test_dgx_pod_has_a_leaf_per_rail_and_spines():
    graph = preset("dgx-h100", nodes=8, nodes_per_leaf=4, oversubscription=2).graph
    assert Counter(tier for _, tier in graph.nodes(data="tier") if tier) == {1: 2 * 8, 2: 2}
    for machine in range(8):
        for rail in range(8):
            assert graph.has_edge(f"n{machine}.nic{rail}", f"s{machine // 4 * 8 + rail}")
    assert all(graph.out_degree(f"s{leaf}") == 4 + 2 for leaf in range(16))


def test_preset_accepts_another_nic_bandwidth_and_latency():
    cluster = preset("rtx3090-pcie", nodes=3, gpus_per_node=4, bandwidth="25 Gbit/s", latency="2 us")
    port = {"bandwidth": 3.125e9, "latency": 2e-6, "medium": "NIC of 25 Gbit/s"}
    assert (cluster.world_size, cluster.graph.edges["n2.nic0", "s0"]) == (12, port)
    slower = preset("dgx-h100", nodes=2, bandwidth="100 Gbit/s")
    assert slower.graph.edges["n0.nic0", "s0"]["bandwidth"] == 12.5e9


def latency(cluster: Cluster, *nodes: str) -> float:
    return sum(cluster.graph.edges[edge]["latency"] for edge in nx.utils.pairwise(nodes))


def test_catalog_latencies_equal_those_of_the_nccl_tuner():
    """``hwLat`` in NCCL's src/graph/tuning.cc, ring, protocol LL: NVLink 0.6 us, PCIe 1.0 us, network 2.7 us."""
    assert latency(preset("dgx-h100"), "n0.gpu0", "n0.nvswitch", "n0.gpu7") == pytest.approx(0.6e-6)
    assert latency(preset("dgx-1-v100"), "n0.gpu0", "n0.gpu3") == pytest.approx(0.6e-6)
    assert latency(preset("dgx-1-v100"), "n0.gpu0", "n0.pcie0", "n0.gpu1") == pytest.approx(1e-6)
    pod = preset("dgx-h100", nodes=2)
    assert latency(pod, *pod.router().route("n0.gpu0", "n1.gpu0")) == pytest.approx(2.7e-6, rel=0.1)
    switch = latency(preset("dgx-a100"), "n0.gpu0", "n0.pcie0", "n0.nic0")  # half of its latency on each of its links
    assert switch == pytest.approx(105e-9 + 2 * find_link("PCIe 4.0 x16").latency, rel=1e-12)


WRONG = {
    "machine 'dgx-h10' is not in the catalog; did you mean dgx-h": lambda: preset("dgx-h10"),
    "GPU 'H100' is not in the catalog; did you mean ": lambda: find_part("GPU", "H100"),
    "link 'PCIe 4 x16' is not in the catalog; did you mean PCIe": lambda: find_link("PCIe 4 x16"),
    "gpus_per_node must be at most 8 for NVIDIA DGX H100, not 9": lambda: preset("dgx-h100", 2, 9),
    "nodes = 2: 8 x RTX 4090, two sockets has no known NIC": lambda: preset("rtx4090-pcie", 2),
    "set both bandwidth and latency": lambda: preset("rtx4090-pcie", 2, bandwidth="10 Gbit/s"),
    "p5.48xlarge has no rail-optimized network": lambda: preset("p5.48xlarge", 4, nodes_per_leaf=2),
    "'H100' is not in the hardware catalog; did you mean": lambda: hardware_part("H100"),
    "list models 'T4': only hardware": lambda: list_command("models", "T4"),
    "unknown category 'T4'; choose one of algorithms": lambda: list_command("T4"),
}


@pytest.mark.parametrize("message", WRONG)
def test_catalog_rejects_unknown_names(message: str):
    with pytest.raises(InputError, match=re.escape(message)):
        WRONG[message]()


def test_hardware_overview_is_complete_and_details_cite_sources():
    overview = hardware().to_dict()
    assert [entry["name"] for entry in overview["machines"]] == list(machine_entries())
    assert len(overview["gpus"]) == len(parts("GPU"))
    details = hardware_part("dgx-h100").to_dict()
    source = machine_entries()["dgx-h100"]["sources"]["gpus"]
    assert {"quantity": "gpus", "value": "8", "source": source} in details["figures"]
    links = {link["medium"]: link for link in details["links"]}
    assert (links["NVLink 4 x18"]["count"], links["NVLink 4 x18"]["bandwidth"]) == (8, 450e9)
    assert links["memory"]["bandwidth"] is None  # unknown
