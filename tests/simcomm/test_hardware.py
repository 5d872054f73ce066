"""The catalogue: every figure has a source, parts fit together, and known machines come out as they are known."""

from collections import Counter
from pathlib import Path

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
def test_every_figure_has_a_value_that_can_be_read_and_a_source(kind: str):
    for name, figures in parts(kind).items():
        for quantity, (value, source) in figures.items():
            assert len(source) > 8, (name, quantity)
            assert value == value.strip() != "", (name, quantity)
            if quantity.startswith(("fp", "tf", "bf16")):
                assert value.endswith(" TFLOP/s")
                assert float(value.split()[0]) > 0
            if quantity == "int8":
                assert value.endswith(" TOP/s") and float(value.split()[0]) > 0
            if quantity == "power":
                assert value.endswith(" W") and 50 < float(value.split()[0]) < 1500
            READERS.get(quantity, str)(value)


def test_what_is_said_of_a_gpu_can_be_looked_up():
    published = ("http", "assumed: ", "NVIDIA ", "AMD ", "TensorFlow benchmarks")  # the last three are titles
    for name, figures in parts("GPU").items():
        for quantity, (_, source) in figures.items():
            assert "http" in source or source.startswith(published), (name, quantity, source)
    rates = ("fp32", "fp16", "memory", "memory_bandwidth")
    for name in {entry["gpu"] for entry in machine_entries().values()}:
        assert set(rates) <= parts("GPU")[name].keys(), name
    for name in ("L4", "L40S", "RTX 4090", "H100 SXM", "H200 SXM", "B200", "GB200"):
        assert {"fp8", "int8"} <= parts("GPU")[name].keys(), name


@pytest.mark.parametrize("name", machine_entries())
def test_every_figure_of_a_machine_has_a_source(name: str):
    entry = machine_entries()[name]
    assert set(entry) - {"title", "sources"} == set(entry["sources"])
    assert all(len(source) > 8 for source in entry["sources"].values())


@pytest.mark.parametrize("name", parts("link"))
def test_every_link_has_a_rate_of_which_software_gets_no_more_than_all(name: str):
    link = find_link(name)
    assert 0 < link.bandwidth < 1e12
    assert link.usable is None or link.usable <= link.bandwidth
    assert find_link(f"{name} x2").bandwidth == 2 * link.bandwidth


def test_rates_follow_from_lanes_and_encoding():
    assert find_link("PCIe 3.0 x16").bandwidth == pytest.approx(8e9 * 16 * 128 / 130 / 8, rel=1e-15)
    assert find_link("PCIe 4.0 x16").bandwidth == pytest.approx(31.508e9, rel=1e-4)
    assert find_link("PCIe 5.0 x16").bandwidth == pytest.approx(63.015e9, rel=1e-4)
    assert find_link("10 GbE").bandwidth == pytest.approx(10e9 / 8, rel=1e-12)
    assert find_link("25 GbE").bandwidth == pytest.approx(25e9 / 8, rel=1e-12)
    assert find_link("100 GbE").bandwidth == pytest.approx(100e9 / 8, rel=1e-12)
    assert find_link("InfiniBand NDR").bandwidth == 50e9
    assert find_link("RoCE 100").usable == pytest.approx(12.5e9 * 4096 / 4178, rel=1e-12)


@pytest.mark.parametrize(
    ("gpu", "gigabytes"),
    [("P100 SXM2", 80), ("V100 SXM2 16GB", 150), ("A100 40GB SXM", 300), ("H100 SXM", 450), ("B200", 900)],
)
def test_nvlink_gives_each_gpu_what_its_makers_say(gpu: str, gigabytes: int):
    assert find_link(find_part("GPU", gpu)["nvlink"].value).bandwidth == gigabytes * 1e9


def by_kind(cluster: Cluster) -> Counter[str]:
    return Counter(kind for _, kind in cluster.graph.nodes(data="kind"))


@pytest.mark.parametrize("name", machine_entries())
def test_every_machine_is_whole_and_the_ring_runs_on_it(name: str):
    cluster = preset(name)
    assert nx.is_strongly_connected(cluster.graph)
    assert all(cluster.graph.edges[b, a] == data for a, b, data in cluster.graph.edges(data=True))
    entry = machine_entries()[name]
    assert by_kind(cluster)["gpu"] == cluster.world_size == entry["gpus"]
    assert (by_kind(cluster)["nic"], by_kind(cluster)["cpu"]) == (entry.get("nics", 0), entry["sockets"])
    first = cluster.on_first(min(8, cluster.world_size))
    trace = simcomm.run("all_reduce/ring", first, nbytes=8 << 16)
    assert len(trace.messages) == 2 * first.world_size * (first.world_size - 1)


@pytest.mark.parametrize("name", [name for name, entry in machine_entries().items() if entry.get("nics")])
def test_machines_with_nics_make_a_cluster(name: str):
    gpus = min(2, machine_entries()[name]["gpus"])
    cluster = preset(name, nodes=2, gpus_per_node=gpus)
    assert cluster.world_size == 2 * gpus
    assert nx.is_strongly_connected(cluster.graph)
    assert simcomm.run("all_reduce/ring", cluster, nbytes=1 << 16).elapsed > 0
    port = find_machine(name).nic
    assert port is not None
    into = [data["bandwidth"] for a, _, data in cluster.graph.out_edges("n0.nic0", data=True) if a == "n0.nic0"]
    assert port.bandwidth in into


def test_dgx_1_has_six_nvlinks_a_gpu_with_v100_and_four_with_p100():
    for name, brick, bricks in (("dgx-1-v100", 25e9, 6), ("dgx-1-p100", 20e9, 4)):
        graph = preset(name).graph
        for gpu in (f"n0.gpu{i}" for i in range(8)):
            links = [data["bandwidth"] for _, to, data in graph.out_edges(gpu, data=True) if "gpu" in to]
            assert sum(links) == bricks * brick


@pytest.mark.parametrize(("name", "expected"), [("dgx-h100", 365e9), ("dgx-h200", 367e9), ("dgx-a100", 230e9)])
def test_at_the_rates_that_software_gets_one_ring_is_as_fast_as_published(name: str, expected: float):
    """Ring busbw in GB/s on 8 GPUs: 365 to 370 (nccl #1455), 367.6 (stas00/ml-engineering), 230 (nccl-tests #149)."""
    nbytes = 1 << 30
    elapsed = simcomm.run("all_reduce/ring", with_usable_bandwidths(preset(name)), nbytes).elapsed
    assert 2 * 7 / 8 * nbytes / elapsed == pytest.approx(expected, rel=0.05)


def test_eight_4090s_share_the_uplinks_of_their_two_switches():
    """Without P2P every message of four GPUs goes up and comes down the one link of their switch."""
    nbytes = 1 << 30
    elapsed = simcomm.run("all_reduce/ring", preset("rtx4090-pcie"), nbytes).elapsed
    one_link = find_link("PCIe 4.0 x16").bandwidth
    assert 2 * 7 / 8 * nbytes / elapsed == pytest.approx(one_link / 4, rel=1e-3)


def test_a_dgx_pod_has_a_leaf_switch_for_each_rail_and_spines_for_its_width():
    graph = preset("dgx-h100", nodes=8, nodes_per_leaf=4, oversubscription=2).graph
    tiers = Counter(tier for _, tier in graph.nodes(data="tier") if tier)
    assert tiers == {1: 2 * 8, 2: 2}
    for machine in range(8):
        for rail in range(8):
            assert graph.has_edge(f"n{machine}.nic{rail}", f"s{machine // 4 * 8 + rail}")
    assert all(graph.out_degree(f"s{leaf}") == 4 + 2 for leaf in range(16))


def test_an_nvl72_joins_all_its_gpus_at_900_gigabytes_a_second():
    cluster = preset("gb200-nvl72")
    router = cluster.router()
    for peer in ("n0.gpu1", "n0.gpu4", "n0.gpu71"):
        assert router.route("n0.gpu0", peer) == ("n0.gpu0", "n0.nvswitch", peer)
    assert cluster.graph.edges["n0.gpu0", "n0.nvswitch"]["bandwidth"] == 900e9


def test_a_preset_can_be_cut_and_joined_by_another_network():
    cluster = preset("rtx3090-pcie", nodes=3, gpus_per_node=4, bandwidth="25 Gbit/s", latency="2 us")
    assert cluster.world_size == 12
    assert cluster.graph.edges["n2.nic0", "s0"] == {
        "bandwidth": 3.125e9, "latency": 2e-6, "medium": "NIC of 25 Gbit/s",
    }  # fmt: skip
    slower = preset("dgx-h100", nodes=2, bandwidth="100 Gbit/s")
    assert slower.graph.edges["n0.nic0", "s0"]["bandwidth"] == 12.5e9


def latency(cluster: Cluster, *nodes: str) -> float:
    return sum(cluster.graph.edges[edge]["latency"] for edge in nx.utils.pairwise(nodes))


def test_a_switch_delays_by_half_of_its_latency_on_each_of_its_links():
    through = latency(preset("dgx-a100"), "n0.gpu0", "n0.pcie0", "n0.nic0")
    assert through == pytest.approx(105e-9 + 2 * find_link("PCIe 4.0 x16").latency, rel=1e-12)


def test_a_hop_takes_as_long_as_nccl_counts_for_it():
    """``hwLat`` in NCCL's src/graph/tuning.cc, ring, protocol LL: NVLink 0.6 us, PCIe 1.0 us, network 2.7 us."""
    assert latency(preset("dgx-h100"), "n0.gpu0", "n0.nvswitch", "n0.gpu7") == pytest.approx(0.6e-6)
    assert latency(preset("dgx-1-v100"), "n0.gpu0", "n0.gpu3") == pytest.approx(0.6e-6)
    assert latency(preset("dgx-1-v100"), "n0.gpu0", "n0.pcie0", "n0.gpu1") == pytest.approx(1e-6)
    pod = preset("dgx-h100", nodes=2)
    route = pod.router().route("n0.gpu0", "n1.gpu0")
    assert latency(pod, *route) == pytest.approx(2.7e-6, rel=0.1)


REFUSED = {
    "machine 'dgx-h10' is not in the catalogue; did you mean dgx-h": lambda: preset("dgx-h10"),
    "GPU 'H100' is not in the catalogue; did you mean ": lambda: find_part("GPU", "H100"),
    "link 'PCIe 4 x16' is not in the catalogue; did you mean PCIe": lambda: find_link("PCIe 4 x16"),
    "link 'PCIe 4.0 x0' is not in the catalogue": lambda: find_link("PCIe 4.0 x0"),
    "gpus_per_node = 9; NVIDIA DGX H100 has 8 GPUs": lambda: preset("dgx-h100", 2, 9),
    "nodes is 0; give a whole number from 1 on": lambda: preset("dgx-h100", 0),
    "nodes = 2: 8 x RTX 4090, two sockets has no NIC that is known": lambda: preset("rtx4090-pcie", 2),
    "give both its bandwidth and its latency": lambda: preset("rtx4090-pcie", 2, bandwidth="10 Gbit/s"),
    "nodes_per_leaf is 0; give a whole number from 1 on": lambda: preset("dgx-h100", 4, nodes_per_leaf=0),
    "oversubscription is -1; give a number above 0": lambda: preset("dgx-h100", 4, oversubscription=-1),
    "several p5.48xlarge are joined by one switch": lambda: preset("p5.48xlarge", 4, nodes_per_leaf=2),
    "'H100' is not in the hardware catalogue; did you mean": lambda: hardware_part("H100"),
    "'T4' is not a machine and has no topology": lambda: hardware_part("T4").draw(Path("t4.png")),
    "-o x.png: specify a machine": lambda: list_command("hardware", None, Path("x.png")),
    "x.gif: a still picture is written as .png or .svg or .pdf": lambda: hardware_part("dgx-h100").draw(Path("x.gif")),
    "list models 'T4': only hardware": lambda: list_command("models", "T4"),
    "unknown category 'T4'; there are algorithms": lambda: list_command("T4"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_there_is_refused_with_what_is(message: str):
    with pytest.raises(InputError) as refusal:
        REFUSED[message]()
    assert message in str(refusal.value)


def test_the_overview_names_everything_and_details_give_sources():
    found = hardware().to_dict()
    assert [entry["name"] for entry in found["machines"]] == list(machine_entries())
    assert len(found["gpus"]) == len(parts("GPU"))
    shown = hardware_part("dgx-h100").to_dict()
    assert {"quantity": "gpus", "value": "8", "source": machine_entries()["dgx-h100"]["sources"]["gpus"]} in shown[
        "figures"
    ]
    links = {link["medium"]: link for link in shown["links"]}
    assert (links["NVLink 4 x18"]["count"], links["NVLink 4 x18"]["bandwidth"]) == (8, 450e9)
    assert links["memory"]["bandwidth"] is None  # no source says


@pytest.mark.parametrize(("suffix", "begin"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_a_machine_is_drawn(tmp_path: Path, suffix: str, begin: bytes):
    path = tmp_path / f"dgx{suffix}"
    part = hardware_part("dgx-1-v100").draw(path)
    assert path.read_bytes().startswith(begin)
    assert part.file == str(path)
    assert list(tmp_path.iterdir()) == [path]
