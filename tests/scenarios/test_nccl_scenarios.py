"""Check scenarios with NCCL: reading, predicting, explaining, drawing, running, and errors."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Ringlab
from hypothesis import given, settings
from hypothesis import strategies as st
from scenario_texts import ASKS, STAR, check_refused, write

import ringlab
import simcomm
from collectives import InputError
from ringlab.commands.predicting.explain import explain
from ringlab.commands.predicting.prediction import predict
from scenarios import LoadedScenario, load
from simcomm.nccl.clusters import NcclCluster, nccl_cluster
from simcomm.nccl.descriptions import describe_system, read_systems
from simcomm.nccl.predict import predict_collective
from simcomm.nccl.rings import double_tree, parents, second_parents
from simcomm.nccl.settings import NcclSettings

TWO = '[cluster]\npreset = "dgx-a100"\nnodes = 2\ntransport = "nccl"\n'
BOX = '[cluster]\nsystem = {gpus = 4, gpu = "RTX 4090", p2p = true, p2p_level = "SYS", nccl = "2.21"}\n'
OWN = '[collective]\nname = "all_reduce"\nalgorithms = ["nccl", "ring"]\nsizes = ["64 KiB", "64 MiB"]\n'
SHIPPED = ("dgx-h100", "rtx4090-4x", "two-p5")


def read(folder: Path, text: str) -> LoadedScenario:
    return load(write(folder, text))


def own_cluster(scenario: LoadedScenario) -> NcclCluster:
    assert isinstance(scenario.cluster, NcclCluster)
    return scenario.cluster


def test_nccl_is_predicted_by_its_model_and_a_ring_is_simulated(tmp_path: Path):
    scenario = read(tmp_path, TWO + '[nccl]\nversion = "2.19"\n' + OWN)
    cluster = own_cluster(scenario)
    assert cluster.world_size == 16 and cluster.settings == NcclSettings(version="2.19")
    for figures in predict(scenario).collectives:
        if figures.algorithm == "nccl":
            prediction = predict_collective(cluster.system, "all_reduce", figures.bytes, settings=cluster.settings)
            assert (figures.time_s, figures.interval_s) == (prediction.seconds, (prediction.low, prediction.high))
            assert figures.choice == f"{prediction.algorithm}/{prediction.protocol} x{prediction.channels}"
            assert figures.busbw_GBps == pytest.approx(figures.bytes / prediction.seconds / 1e9 * 2 * 15 / 16)
        else:
            assert figures.time_s == simcomm.run("all_reduce/ring", cluster, figures.bytes, record=False).elapsed
            assert figures.interval_s is None and figures.choice is None


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_nccl_scenario_is_predicted_and_explained(name: str, ringlab: Ringlab):
    done = ringlab("predict", name, "--json", "-")
    answer = json.loads(done.out)
    assert done.status == 0 and answer["what_if"]
    rows = [entry for entry in answer["collectives"] if entry["algorithm"] == "nccl"]
    assert rows and all(low < entry["time_s"] < high for entry in rows for low, high in [entry["interval_s"]])
    outcome = ringlab("explain", name)
    assert outcome.status == 0
    for word in ("ring 0: 0 > 1", "NCCL's choices", "Candidates at 8 KiB", "tuner's best"):
        assert word in outcome.out
    explained = json.loads(ringlab("explain", name, "--json", "-").out)
    first = explained["clusters"][0]["sizes"][0]
    assert explained["kind"] == "explanation"
    assert [option["algorithm"] for option in first["options"] if option["is_chosen"]] == [first["algorithm"]]
    assert first["time_s"] == rows[0]["time_s"]


def test_explain_and_predict_agree_at_each_size(tmp_path: Path):
    scenario = read(tmp_path, BOX + OWN)
    (cluster,) = explain(scenario).clusters
    predicted = [row for row in predict(scenario).collectives if row.algorithm == "nccl"]
    assert [(size.time_s, size.interval_s) for size in cluster.sizes] == [(p.time_s, p.interval_s) for p in predicted]
    for size in cluster.sizes:
        timed = {
            (option.algorithm, option.protocol): option.tuner_s for option in size.options if option.tuner_s is not None
        }
        assert min(timed, key=lambda choice: timed[choice]) == (size.algorithm, size.protocol)
        assert all(option.reason for option in size.options)


def test_nccl_settings_change_algorithm_channels_and_paths(tmp_path: Path):
    forced = read(tmp_path, TWO + OWN + '[nccl]\nNCCL_ALGO = "Ring"\nNCCL_PROTO = "^LL"\nNCCL_MAX_NCHANNELS = 2\n')
    (cluster,) = explain(forced).clusters
    assert cluster.channels == 2 and "set: NCCL_ALGO=Ring NCCL_PROTO=^LL NCCL_MAX_NCHANNELS=2" in cluster.system
    for size in cluster.sizes:
        assert size.algorithm == "ring" and size.protocol != "ll" and size.channels <= 2
    off = read(tmp_path, BOX + OWN + '[[what_if]]\ntitle = "off"\n[what_if.nccl]\nNCCL_P2P_DISABLE = 1\n')
    assert off.what_ifs[0].cluster.settings.p2p_disable is True  # type: ignore[attr-defined]
    on, without = explain(off).clusters
    assert any("(P2P)" in line for line in on.system) and any("(SHM)" in line for line in without.system)
    assert without.sizes[-1].time_s > on.sizes[-1].time_s
    texts = read(tmp_path, BOX + OWN + '[nccl]\nNCCL_P2P_DISABLE = "0"\nNCCL_MAX_CTAS = "4"\nNCCL_P2P_LEVEL = 5\n')
    assert own_cluster(texts).settings == NcclSettings(p2p_disable=False, max_channels=4, p2p_level="5")


def test_nccl_preset_can_be_changed_by_keys_and_description(tmp_path: Path):
    plain = own_cluster(read(tmp_path, TWO + OWN)).system
    assert (plain.gpu.name, plain.nodes, plain.gpus, plain.net, plain.nic) == ("A100 SXM", 2, 8, "ib", 200.0)
    halved = own_cluster(read(tmp_path, TWO + 'bandwidth = "100 Gbit/s"\ngpus_per_node = 4\n' + OWN)).system
    assert (halved.nic, halved.gpus) == (100.0, 4)
    more = own_cluster(read(tmp_path, TWO + 'description = {procs = "single", gdr = false}\n' + OWN)).system
    assert (more.procs, more.gdr) == ("single", False)
    sentence = predict(read(tmp_path, TWO + OWN)).conclusions[-1]
    assert sentence.startswith("2 x NVIDIA DGX A100: ") and "procs is not stated" in sentence
    assert "NCCL's version (nccl) is a guess: 2." in sentence
    known = own_cluster(read(tmp_path, '[cluster]\nsystem = "h100_2x8_aws_p5_efa"\nnodes = 4\n' + OWN))
    assert known.world_size == 32 and known.system.net == "efa2"


def test_changed_gpu_count_updates_the_system_description(tmp_path: Path):
    few = '[cluster]\nsystem = "h100_2x8_aws_p5_efa"\nnodes = 2\ngpus_per_node = 4\n' + OWN
    cluster = own_cluster(read(tmp_path, few))
    line = {"machine": "aws_p5", "nodes": 2, "gpus": 4}
    assert (cluster.system.domain, cluster.system.layout) == (4, describe_system("same", line).layout)
    (explained,) = explain(read(tmp_path, few)).clusters
    assert explained.ranks_per_node == 4 and not any("NVLink domain" in text for text in explained.system)


def test_nccl_version_keeps_its_trailing_zero(tmp_path: Path):
    table = '[cluster]\nsystem = {gpus = 8, gpu = "H100 SXM"%s}\n'
    assert own_cluster(read(tmp_path, table % ", nccl = 2.30" + OWN)).system.version == (2, 30)
    for text, overrides in ((OWN + "[nccl]\nversion = 2.30\n", []), (OWN, ["nccl.version=2.30"])):
        cluster = own_cluster(load(write(tmp_path, table % "" + text), overrides))
        assert cluster.settings.parsed_version() == (2, 30)


GPUS = "cluster={system={gpus=4, gpu='RTX 4090'}}"
WRONG = {
    STAR + ASKS: {
        "cluster.transport=nccl": 'cluster: transport = "nccl" requires known GPUs',
        "collective.algorithms=['nccl']": 'algorithms.0: algorithm "nccl" requires transport = "nccl"',
        "nccl.version=2.21": "[nccl] requires a cluster with",
        "what_if=[{title='x', nccl={version='2.21'}}]": "what_if.0.nccl requires a cluster with",
        "cluster={preset='dgx-a100', description={p2p=false}}": 'description requires transport = "nccl"',
    },
    TWO + OWN: {
        "cluster={system='h100_2x8'}": "cluster: system 'h100_2x8' is not one of the 114 system descriptions",
        "cluster={system='mpi_cpu_2procs_kind_onehost'}": "runs MPI on CPUs",
        GPUS.replace("}}", ", nick=3}}"): "cluster: system in this file: unknown key 'nick'",
        GPUS.replace("'RTX 4090'", "['RTX 3090', 'RTX 4090']"): "must be a string, because a system has only one GPU",
        GPUS.replace("}}", ", nodes=2}}"): "net is required for more than one node; for example, net = 'ib'",
        GPUS.replace("4,", "1,"): "has a single GPU, so NCCL does not communicate",
        "cluster.latency=1 us": 'cluster: latency is not supported with transport = "nccl"',
        "cluster.world_size=4": 'cluster: world_size is not supported with transport = "nccl"',
        "nccl={NCCL_MAX_CTAS=2, NCCL_MAX_NCHANNELS=2}": "are the same setting; remove one of them",
        "nccl.version='2.21abc'": "nccl: version must be two or three numbers such as 2.21.5, not '2.21abc'",
        "nccl.NCCL_P2P_DISABLE=2": "nccl.NCCL_P2P_DISABLE = 2 must be true or false",
        "collective.name=barrier": '"nccl" does not support barrier; it supports all_reduce',
        "faults={rank=[{rank=1, slowdown=2.0}]}": '"nccl" does not support faults, because it is predicted by formula',
    },
}


@pytest.mark.parametrize(("text", "key"), [(text, key) for text, table in WRONG.items() for key in table])
def test_invalid_nccl_scenario_key_is_rejected(text: str, key: str, tmp_path: Path):
    check_refused(tmp_path, text, WRONG[text][key], key)


def test_run_rejects_nccl_and_compare_rejects_another_system(
    tmp_path: Path, ringlab: Ringlab, monkeypatch: pytest.MonkeyPatch
):
    labels: list[list[str]] = []

    def instead(scenario: LoadedScenario, *_: Any, **__: Any) -> None:
        assert scenario.collective is not None
        labels.append([algorithm.label for algorithm in scenario.collective.algorithms])
        raise InputError("this test starts no ranks")

    monkeypatch.setattr("ringlab.commands.measuring.run.measure", instead)
    alone = write(tmp_path, TWO + OWN.replace('["nccl", "ring"]', '["nccl"]'))
    refused = ringlab("run", alone)
    assert refused.status == 2 and "cannot run on gloo; use an algorithm" in refused.err
    both = write(tmp_path, '[cluster]\nsystem = {gpus = 2, gpu = "A100 SXM"}\n' + OWN.replace('"64 MiB"', '"1 KiB"'))
    done = ringlab("run", both)
    assert labels == [["ring"]] and "because gloo cannot run it" in done.err
    assert "by gloo on its CPUs" in done.err
    compared = ringlab("compare", both)
    assert compared.status == 2 and "is not this machine, so it cannot be measured here" in compared.err
    assert (
        "no algorithm matches 'nccl'; use one of ring"
        in ringlab("animate", both, "--algorithm", "nccl", "-o", "x.gif").err
    )


def test_explain_shows_one_ring_per_nic(ringlab: Ringlab, tmp_path: Path):
    rings = explain(load("two-p5")).clusters[0].rings
    assert [ring[0] for ring in rings] == list(range(8)) and all(ring[8] == ring[0] + 8 for ring in rings)
    assert all(sorted(ring) == list(range(16)) for ring in rings)
    shared = explain(read(tmp_path, TWO.replace("dgx-a100", "p4d.24xlarge") + OWN)).clusters[0].rings
    assert shared[0] == (0, 7, 6, 5, 4, 3, 2, 1, 8, 15, 14, 13, 12, 11, 10, 9), "the log of NVIDIA/nccl issue 514"
    assert [ring[0] for ring in shared] == [0, 2, 4, 6]
    text = ringlab("explain", "two-p5", "--set", "nccl.NCCL_MAX_NCHANNELS=1").out
    assert "inside a host: NVSwitch" in text and "3.2 Tbit/s (400 GB/s) per node" in text
    assert "1 channel over these" in text
    assert explain(load("two-p5", ["nccl.NCCL_MAX_NCHANNELS=1"])).clusters[0].rings == rings[:1]
    assert "a mean over the candidates" in text
    pairs = OWN.replace("all_reduce", "all_to_all").replace('["nccl", "ring"]', '["nccl"]')
    small, large = explain(read(tmp_path, TWO + pairs.replace("64 KiB", "8 KiB"))).clusters[0].sizes
    assert (small.protocol, large.protocol) == ("ll", "simple")


def test_all_to_all_loads_all_nics_of_a_host_equally():
    system = replace(read_systems()["h100_2x8_aws_p5_efa"], cluster=None)
    cluster = nccl_cluster(system)
    nbytes = 1 << 28
    done = simcomm.run("all_to_all/direct", cluster, nbytes, record=False)
    ports = [link for link in done.links if link.dst == "s0"]
    assert len(ports) == 16 and len({link.nbytes for link in ports}) == 1
    assert done.elapsed == pytest.approx(predict_collective(system, "all_to_all", nbytes).seconds, rel=0.25)
    nic = cluster.graph["n0.nic0"]["s0"]["bandwidth"]
    assert min(cluster.graph["n0.gpu0"]["n0.pcie0"]["bandwidth"], nic) == nic
    ring = simcomm.run("all_reduce/ring", cluster, 1 << 30, record=False).elapsed  # one ring: one NIC of each host
    assert ring == pytest.approx(2 * 15 / 16 * (1 << 30) / nic, rel=0.1)


def test_explain_requires_nccl(ringlab: Ringlab):
    refused = ringlab("explain", "star8")
    assert refused.status == 2 and 'explain requires a cluster with transport = "nccl"' in refused.err


def test_nccl_training_syncs_after_backward(tmp_path: Path):
    compute = '[training.compute]\nforward = "4 ms"\nbackward = "8 ms"\noptimizer = "1 ms"\n'
    scenario = read(tmp_path, BOX + '[training]\ngradient_sync = ["nccl", "ring"]\n' + compute)
    of_nccl, ring = predict(scenario).training
    nbytes = scenario.trainings[0].gradient_bytes
    sync = predict_collective(own_cluster(scenario).system, "all_reduce", nbytes).seconds
    assert of_nccl.sync_s == pytest.approx(sync) and of_nccl.step_s == pytest.approx(0.013 + sync)
    assert of_nccl.scaling_efficiency == pytest.approx(0.013 / (0.013 + sync))
    assert ring.sync_s is not None and ring.sync_s > sync
    with pytest.raises(InputError, match='needs a cluster with transport = "nccl"'):
        simcomm.train(scenario.trainings[0], simcomm.star(4, "10 Gbit/s", "5 us"))


GPU_SYSTEMS = [slug for slug, system in read_systems().items() if system.gpu.generation != "cpu"]


@pytest.mark.parametrize(
    "slug",
    [
        slug if number % 10 == 0 else pytest.param(slug, marks=pytest.mark.slow)
        for number, slug in enumerate(GPU_SYSTEMS)
    ],
)
def test_simulated_ring_takes_about_as_long_as_the_nccl_model(slug: str):
    """On one host, NCCL's ring and Ringlab's ring send the same bytes over the same links."""
    system = replace(read_systems()[slug], cluster=None)  # without what is peculiar to hosts that were measured
    cluster = nccl_cluster(system)
    assert cluster.world_size == system.ranks
    if system.nodes > 1 or system.gpus == 1 or system.link == "mesh":  # there NCCL has several rings
        return
    settings = NcclSettings(algo="ring", proto="simple")
    of_nccl = predict_collective(system, "all_reduce", 1 << 30, settings=settings).seconds
    ours = simcomm.run("all_reduce/ring", cluster.under_nccl(settings), 1 << 30, record=False).elapsed
    assert 0.8 < ours / of_nccl < 1.5


@given(nodes=st.integers(1, 200))
@settings(max_examples=50, deadline=None)
def test_inner_nodes_of_the_double_tree_differ_between_trees(nodes: int):
    for parent_of in (parents(nodes), second_parents(nodes)):
        assert sum(parent is None for parent in parent_of) == 1
        for node in range(nodes):
            steps: list[Any] = [node]
            while parent_of[steps[-1]] is not None:
                steps.append(parent_of[steps[-1]])
                assert len(steps) <= 2 + nodes.bit_length()
    if nodes % 2 == 0:
        inner = [{parent for parent in tree if parent is not None} for tree in (parents(nodes), second_parents(nodes))]
        assert not inner[0] & inner[1]
    for tree in double_tree(nodes, (0, 1, 2)):
        assert [node.rank for node in tree] == list(range(3 * nodes))
        assert all(tree[child].parent == node.rank for node in tree for child in node.children)


def test_nvl72_preset_has_the_nics_of_all_boards(tmp_path: Path, ringlab: Ringlab):
    racks = '[cluster]\npreset = "gb200-nvl72"\nnodes = 2\ntransport = "nccl"\n' + OWN
    system = own_cluster(read(tmp_path, racks)).system
    described = describe_system("racks", {"machine": "coreweave_gb200", "nodes": 36, "gpus": 4})
    assert (system.nodes, system.gpus, system.domain, system.nic) == (36, 4, 72, described.nic)
    done = ringlab("explain", write(tmp_path, racks))
    assert done.status == 0 and "144 ranks" in done.out and "... 80 more" in done.out, done.err
    refused = ringlab("explain", write(tmp_path, racks.replace("nodes = 2", "nodes = 2\ngpus_per_node = 6")))
    assert (
        refused.status == 2 and "gpus_per_node must be at most 4 (one board) or a multiple of 4, not 6" in refused.err
    )


def test_predict_notes_a_fallback_to_rings_and_rings_on_one_nic(tmp_path: Path):
    text = TWO + '[nccl]\nversion = "2.21"\nNCCL_ALGO = "tree"\n' + OWN.replace("all_reduce", "all_gather")
    conclusions = " ".join(predict(ringlab.load(write(tmp_path, text))).conclusions)
    assert (
        "NCCL_ALGO=tree excludes all candidates for all_gather, so NCCL before 2.24 falls back to rings" in conclusions
    )
    assert "uses one of a node's 8 NICs" in conclusions


def test_old_nccl_falls_back_to_rings():
    """Up to 2.21, the ring uses all protocols, later only those of NCCL_PROTO (NVIDIA/nccl issue 1304)."""
    system = describe_system("p5", {"machine": "aws_p5", "nodes": 2, "gpus": 8})

    def chosen(version: str, **settings: str) -> set[str]:
        nccl_settings = NcclSettings(version=version, **settings)
        predictions = (
            predict_collective(system, "broadcast", size, settings=nccl_settings) for size in (1024, 1 << 28)
        )
        return {f"{prediction.algorithm}/{prediction.protocol}" for prediction in predictions}

    assert chosen("2.21", algo="tree", proto="simple") == {"ring/ll", "ring/simple"}
    assert chosen("2.22", algo="tree", proto="simple") == {"ring/simple"}


@pytest.mark.parametrize(
    ("table", "key", "number"),
    [('system = {{nodes = 2, gpus = 8, gpu = "H100 SXM", net = "ib", {0}}}', "nic", 100.0),
     ('preset = "dgx-h100"\nnodes = 2\ntransport = "nccl"\ndescription = {{{0}}}', "nvlink", 200.0)],
)  # fmt: skip
def test_bandwidths_of_a_description_have_units(tmp_path: Path, table: str, key: str, number: float):
    def described(value: str) -> float:
        text = f"[cluster]\n{table.format(f'{key} = {value}')}\n{ASKS}"
        return float(getattr(own_cluster(read(tmp_path, text)).system, key))

    assert described(f'"{8 * number} Gbit/s"') == described(f'"{number} GB/s"') == number
    with pytest.warns(FutureWarning, match=f"{key} = {number} has no unit and is taken as GB/s"):
        assert described(str(number)) == number
    with pytest.raises(InputError, match=f"{key} = '100 Gb': .*for example '100 Gbit/s'"):
        described('"100 Gb"')


def test_slurm_but_not_predict_accepts_oversubscription_of_nccl(tmp_path: Path, ringlab: Ringlab):
    thin = write(tmp_path, TWO + "oversubscription = 4.0\n" + OWN)
    job = ringlab("slurm", thin)
    assert job.status == 0 and "#SBATCH --nodes=2" in job.out
    for command in ("predict", "explain"):
        rejected = ringlab(command, thin)
        assert rejected.status == 2 and "not model oversubscription; remove it, or remove transport" in rejected.err
