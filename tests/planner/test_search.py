"""``ringlab search``: its meshes, prices and adaptation to own runs, and its errors."""

import json
from pathlib import Path

import pytest

from planner.clusters import describe_network
from planner.gpus import PUBLISHED, find_gpu
from planner.renting.prices import find_cheapest, read_prices
from planner.runs import read_table
from ringlab.commands.predicting.predict_devices import predict_devices
from ringlab.commands.predicting.search import SearchOptions, find_meshes
from scenarios.loader import read_spread_training
from simcomm.nccl.clusters import NcclCluster
from simcomm.nccl.descriptions import describe_preset
from simcomm.nccl.measured.calibration import predict_calibrated
from simcomm.nccl.predict import NOT_VALIDATED

SCENARIO = """
[cluster]
preset = "dgx-h100"
nodes = 8
transport = "nccl"
[training]
model = "llama3-8b"
batch_size = 4
precision = "bf16"
price_per_hour = 2.5
"""
RUNS = "layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,gpus,sharding,micro_batch,grad_accum,step_s\n"
UNLISTED = 'cluster={system={nodes=1, gpus=8, gpu="Z1", generation="hopper", nvlink=0, pcie=5}, transport="nccl"}'


@pytest.fixture
def scenario(tmp_path):
    file = tmp_path / "llama.toml"
    file.write_text(SCENARIO)
    return file


@pytest.fixture
def answer_of(ringlab, scenario, tmp_path):
    def run(command, *options):
        status, out, err = ringlab(command, scenario, *options, "--json", tmp_path / "a.json")
        assert status == 0, err
        return json.loads((tmp_path / "a.json").read_text()), " ".join(out.split())

    return run


def test_search_lists_the_fastest_meshes_with_prices(answer_of):
    answer, out = answer_of("search", "--devices", "8,64", "--why")
    assert "tokens/s" in out and "Measure these next: " in out and "Why others are slower" in out
    assert "H100 SXM at $2.50 an hour: training.price_per_hour." in out and "GiB per device: weights " in out
    assert [case["devices"] for case in answer["cases"]] == [8, 64]
    best = answer["cases"][1]["best"][0]
    assert best["tokens_interval"][0] < best["tokens_per_s"] < best["tokens_interval"][1]
    assert best["dollars_per_billion_tokens"] == pytest.approx(2.5 * 64 / 3600 / best["tokens_per_s"] * 1e9, rel=1e-5)
    assert best["step_s"] == best["parts"].pop("total") == pytest.approx(sum(best["parts"].values()))
    assert best["memory_bytes"] == pytest.approx(sum(best["memory_parts"].values()), rel=1e-5)


def test_search_compares_the_values_of_a_what_if_key(answer_of):
    presets = "preset=dgx-h100,dgx-b200,rtx4090-pcie,a3-megagpu-8g"
    answer, out = answer_of("search", "--what-if", presets, "--target-tokens", "1e10")
    assert [case["value"] for case in answer["cases"]] == ["dgx-h100", "dgx-b200", "a3-megagpu-8g"]
    assert any("rtx4090-pcie" in reason for reason in answer["refused"])
    best = [case["best"][0] for case in answer["cases"]]
    assert best[1]["tokens_per_s"] > 1.5 * best[0]["tokens_per_s"]
    money = best[0]["money"]
    assert money["hours"] == pytest.approx(1e10 / best[0]["tokens_per_s"] / 3600, rel=1e-5)
    assert money["dollars_interval"][0] < money["dollars"] < money["dollars_interval"][1]
    assert "Cheapest with a price for 1e+10 tokens: preset dgx-" in " ".join(out.split()) and "h (80 %)" in out


def test_saved_runs_are_used_until_removed(ringlab, scenario, tmp_path):
    runs, answer = tmp_path / "runs.csv", tmp_path / "answer.json"
    runs.write_text(RUNS + "32,4096,32,8,14336,128256,8192,H100,8,zero3,1,4,6.0\n")
    status, out, err = ringlab("calibrate", "--runs", str(runs), "--json", str(answer))
    assert status == 0 and "Saved to" in out, err
    adapted = json.loads(answer.read_text())["kept"][0]
    assert adapted["gpu"] == "H100 SXM" and adapted["within_after"] < adapted["within"]
    assert abs(adapted["runs"][0]["after"] / 6.0 - 1) < abs(adapted["runs"][0]["before"] / 6.0 - 1)
    assert "Adapted to 1 run on H100 SXM" in ringlab("search", str(scenario))[1]
    assert "Adapted" not in ringlab("search", str(scenario), "--set", "training.framework=megatron")[1]
    Path(adapted["file"]).unlink()
    assert "Adapted" not in ringlab("search", str(scenario))[1]


def test_predict_search_and_plan_agree_on_sequence_and_target(answer_of):
    size = ("--sequence", "2048", "--target-tokens", "2e9", "--set", 'training.parallelism.strategy="fsdp"')
    row = answer_of("predict", "--devices", "8", *size)[0]["rows"][0]
    case = answer_of("search", "--devices", "8", "--mesh", "zero3 8, mb 4", *size)[0]["cases"][0]
    providers = ("--set", "plan.most_nodes=1", "--set", "plan.providers=['Lambda']")
    plan = answer_of("plan", *providers, *size)[0]
    same = next(row for row in plan["candidates"] if row["instance"] == "gpu_8x_h100_sxm5")
    assert row["tokens_per_s"] == pytest.approx(2048 * row["samples_per_s"], rel=1e-5)
    assert row["target"]["seconds"] == pytest.approx(2e9 / row["tokens_per_s"], rel=1e-5)
    assert case["seq"] == 2048 and plan["target_tokens"] == 2e9
    money, target = case["best"][0]["money"], row["target"]
    assert [3600 * money["hours"], money["dollars"]] == pytest.approx([target["seconds"], target["dollars"]], rel=1e-3)
    assert same["hours"] * 3600 == pytest.approx(target["seconds"], rel=0.05)


def test_search_names_a_gpu_without_published_runs(answer_of):
    assert {find_gpu(run["gpu"]).name for run in read_table()[0]} == {*PUBLISHED}
    _, out = answer_of("search", "--set", 'cluster.preset="dgx-1-v100"', "--precision", "fp16", "--devices", "64")
    assert "No published run is on V100 SXM2 32GB" in out


@pytest.mark.parametrize(
    ("machine", "gpu", "nodes", "devices"),
    [("p4d.24xlarge", "A100 40GB SXM", 2, 16), ("dgx-h100", "H100 SXM", 16, 128), ("rtx4090-pcie", "RTX 4090", 1, 8),
     ("dgx-h100", "H100 SXM", 1, 1)],
)  # fmt: skip
def test_price_comes_from_a_comparable_instance_type(machine, gpu, nodes, devices):
    system = describe_preset(machine, nodes, 8)
    instance = find_cheapest(read_prices(), gpu, [devices], system)
    assert instance is not None and instance.gpu_price == instance.price / instance.gpus
    assert instance.gpus >= min(devices, 8) and instance.machine in (machine, None, "p5.48xlarge")
    assert nodes == 1 or instance.nic_bandwidth >= system.nic * 1e9


@pytest.mark.parametrize(
    ("machine", "gpu", "network"),
    [("rtx4090-pcie", "RTX 4090", {"net": "ib", "nic": "3200 Gbit/s"}), ("a3-megagpu-8g", "H100 SXM", {}),
     ("coreweave-a100", "A100 80GB SXM", {})],
)  # fmt: skip
def test_price_is_none_if_no_instance_type_matches(machine, gpu, network):
    assert find_cheapest(read_prices(), gpu, [16], describe_preset(machine, 2, 8, **network)) is None


def test_all_device_counts_use_the_price_of_one_instance_type():
    scenario, h100 = Path(__file__).parents[2] / "examples/gpt2_xl.toml", 'cluster.preset="dgx-h100"'
    epochs = [(row.epoch, row.devices) for row in predict_devices(scenario, [8, 16], h100).cases[0].rows]
    prices = {round(epoch.dollars / epoch.seconds / devices * 3600, 6) for epoch, devices in epochs}
    for options in (SearchOptions(devices="8,16"), SearchOptions(what_if="nodes=1,2")):
        answer = find_meshes(scenario, options, (h100,))
        for row, devices in ((row, case.devices) for case in answer.cases for row in case.best):
            hourly = row["dollars_per_billion_tokens"] / 1e9 * row["tokens_per_s"] * 3600
            prices.add(round(hourly / devices, 6))
        assert sum(" an hour: " in note for note in answer.notes) == 1
    assert prices == {55.04 / 8}
    half = predict_devices(scenario, [4])
    (epoch,) = [row.epoch for row in half.cases[0].rows]
    assert epoch.dollars / epoch.seconds * 3600 == pytest.approx(21.957642)
    assert "; instances of 8 GPUs are billed whole." in " ".join(half.conclusions)


def test_network_description_omits_the_validation_note():
    cluster = read_spread_training(Path(__file__).parents[2] / "examples/llama2_70b.toml").cluster
    assert isinstance(cluster, NcclCluster)
    notes = predict_calibrated(cluster.system, "all_reduce", 1024, settings=cluster.settings).notes
    (sentence,) = describe_network(cluster)
    assert any(note.startswith(NOT_VALIDATED) for note in notes) and NOT_VALIDATED not in sentence


def test_requested_mesh_is_compared_with_the_fastest(answer_of):
    answer, out = answer_of("search", "--mesh", "zero1 32,tp 2, mb 1, full")
    assert [row["mesh"] for row in answer["cases"][0]["best"]] == ["zero1 32, tp 2, mb 1, full"]
    assert "compared with the fastest, " in out and "% longer, " in out and "fit; the fastest" not in out


@pytest.mark.parametrize(
    "options, message",
    [
        (("--export", "megatron=a"), "search --export was removed; the guide to search lists the options"),
        (("--set", 'training.model="resnet50"'), "is not a GPT or Llama with known dimensions"),
        (("--set", 'cluster.transport="ideal"'), "transport"),
        (("--set", UNLISTED, "--devices", "8"), "search requires a GPU from the catalog, but"),
        (("--set", "training.framework=jaxtitan"), "jaxtitan"),
        (("--devices", "12"), "12 devices do not fill hosts of 8"),
        (("--bits", "4"), "requires --lora RANK"),
        (("--optimizer", "lion"), "unknown optimizer 'lion'"),
        (("--what-if", "color=red"), "--what-if: unknown key 'color'"),
        (("--precision", "nvfp4"), "H100 SXM does not support nvfp4; set precision to bf16, fp16, fp8,"),
        (("--what-if", "sequence=long"), 'training.sequence = "long" must be an integer'),
        (("--mesh", "zero3 64, mb 3"), "is not a mesh of 64 devices and a global batch of 256; did you mean zero3"),
        (("--mesh", "ddp 64, mb 1"), "mesh 'ddp 64, mb 1' does not fit: it needs"),
        (("--set", 'training.model="llama:layers=2,width=64,heads=2"'), "missing; write llama:layers=32"),
    ],
)
def test_search_command_rejects_invalid_input(ringlab, scenario, options, message):
    status, _, err = ringlab("search", str(scenario), *options)
    assert status == 2 and message in err and "Traceback" not in err
