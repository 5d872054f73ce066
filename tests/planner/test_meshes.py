"""Test predictions of meshes: their properties, their accuracy on published runs, and the search over all meshes."""

import json
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.accuracy.meshes import judge, mark_slow, mesh_accuracy
from collectives.errors import InputError
from collectives.records.model_profile import parse_transformer
from planner.beliefs import believe, chance_to_run, find_slopes, read_shipped
from planner.gpus import PUBLISHED
from planner.hosts import Host, host_of_preset
from planner.jobs import ZERO
from planner.memory import FILL, memory_parts
from planner.parameters import PRIORS
from planner.renting.prices import find_gpu_price, read_prices
from planner.runs import columns_of_runs, complete, gpu_name, has_time, read_own_runs, read_table
from planner.search import (
    MeshJob,
    choose_tries,
    enumerate_meshes,
    pareto_front,
    search,
    what_would_fit,
)
from planner.stages import LayerSizes, deal_layers
from planner.step import step_parts, step_seconds
from ringlab.commands.predicting.mesh_files import FORMATS, write_mesh
from ringlab.commands.predicting.predict_devices import predict_devices
from ringlab.commands.predicting.search import SearchOptions, find_meshes
from simcomm.nccl.descriptions import describe_preset

P = read_shipped().parameters
MODEL = {
    "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256, "seq": 4096, "gpu": "H100",
}  # fmt: skip


def run(**keys):
    """Return a run of an 8B model on 64 H100s."""
    return complete({**MODEL, "gpus": 64, "dp": 64, "micro_batch": 1, "grad_accum": 4, "sharding": "zero1", **keys})


def seconds(**keys):
    return float(step_seconds(columns_of_runs([run(**keys)]), P)[0])


def parts_of(**keys):
    return {name: float(values[0]) for name, values in step_parts(columns_of_runs([run(**keys)]), P).items()}


def memory_of(**keys):
    return float(memory_parts(columns_of_runs([run(**keys)]), read_shipped().memory)["total"][0])


HOST = host_of_preset("dgx-h100")


@cache
def timed_runs():
    return [run for run in read_table()[0] if has_time(run)]


def job(**keys):
    _, shape = parse_transformer("llama3-8b")
    usual = {
        "kind": "llama", "shape": shape, "seq": 4096, "batch": 256, "host": HOST, "gpus": 64,
    }  # fmt: skip
    return MeshJob(**{**usual, **keys})


@cache
def search_once(**keys):
    return search(job(**keys))


def test_shipped_runs_are_all_valid():
    runs, refused = read_table()
    assert not refused
    assert Counter(run["source"] for run in runs)["ultrascale"] == 1676
    assert sum(map(has_time, runs)) == 1608


def test_published_runs_have_the_documented_accuracy():
    accuracy = judge(*read_table())
    assert accuracy.mean_of_medians < 0.06
    assert accuracy.all.median < 0.06
    assert accuracy.memory["median"] < 0.08
    assert accuracy.failed["auc"] > 0.97
    assert accuracy.choice["model"].regret_median < accuracy.choice["playbook"].regret_median
    assert accuracy.choice["model"].best_of_3_median < 0.01
    assert accuracy.choice["model, slow mode left out"].best_of_3_mean < 0.03
    assert accuracy.all.coverage80 > 0.9  # of fitted sources; step_fit.py evaluates left-out sources
    assert {*accuracy.slow} == {"ultrascale"}


def test_step_time_does_not_depend_on_other_rows():
    timed = timed_runs()[::97]
    together = step_seconds(columns_of_runs(timed), P)
    alone = [float(step_seconds(columns_of_runs([row]), P)[0]) for row in timed]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([*ZERO]),
    st.sampled_from(["none", "selective", "full"]), st.sampled_from([1, 2, 4]),
)  # fmt: skip
def test_more_work_takes_longer_and_recomputation_saves_memory(tp, pp, sharding, recompute, micro):
    mesh = {"tp": tp, "pp": pp, "dp": 64 // tp // pp, "micro_batch": micro, "recompute": recompute}
    mesh["sharding"] = sharding if pp == 1 else "zero1"
    base = seconds(**mesh)
    assert np.isfinite(base) and base > 0
    assert seconds(**mesh, layers=64) > base
    assert seconds(**{**mesh, "grad_accum": 8}) > base
    assert seconds(**{**mesh, "recompute": "full"}) >= base
    assert memory_of(**{**mesh, "recompute": "full"}) <= memory_of(**{**mesh, "recompute": "none"})
    assert all(value >= -1e-9 for value in parts_of(**mesh).values())


def test_more_sharding_needs_less_memory():
    strategies = ("ddp", "zero1", "zero2", "zero3")
    assert [memory_of(sharding=strategy) for strategy in strategies] == sorted(
        (memory_of(sharding=strategy) for strategy in strategies), reverse=True
    )
    assert memory_of(sharding="zero3") < memory_of(sharding="hsdp") < memory_of(sharding="ddp")
    assert memory_of(sharding="ddp") > 1.5 * memory_of(sharding="zero1") > 2 * memory_of(sharding="zero3")


def test_pipeline_bubble_shrinks_with_more_microbatches():
    def bubble(count):
        parts = parts_of(pp=8, dp=8, grad_accum=count, vocab=8)
        return parts["pipeline"] / parts["total"]

    assert bubble(8) > 0.3 > bubble(64) > bubble(256)


@pytest.mark.parametrize(
    "framework, layers, pp, most, last",
    [
        ("nanotron", 32, 16, 3, 0),
        ("megatron", 126, 16, 8, 7),
        ("megatron-deepspeed", 78, 12, 7, 1),
        ("other", 10, 4, 3, 2),
    ],
)  # fmt: skip
def test_layers_are_distributed_as_frameworks_do(framework, layers, pp, most, last):
    counts = deal_layers(framework, layers, pp, LayerSizes(4096, 32, 32, 128, 14336, 3, 131072))
    assert (counts[0], counts[2]) == (most, last)


def test_every_model_parameter_has_a_prior():
    assert PRIORS.keys() == P.keys()


def test_table_of_runs_needs_few_columns(tmp_path):
    file = tmp_path / "runs.csv"
    file.write_text(
        "layers,hidden,heads,vocab,seq,gpu,gpus,tokens_per_s_per_gpu\n"
        "32,4096,32,128256,4096,H100 SXM,8,8000\n32,4096,32,128256,4096,H9000,8,8000\n32,4096,,1,4096,H100 SXM,8,1\n"
    )
    runs, refused = read_table(file)
    assert len(runs) == 1 and has_time(runs[0]) and runs[0]["step_s"] == pytest.approx(8 * 4096 / 8000 / 8)
    assert sorted(refused.values()) == [1, 1] and any("H9000" in reason for reason in refused)
    head = "layers,hidden,heads,vocab,seq,gpu,gpus,micro_batch,ep,tokens_per_s_per_gpu,attention\n"
    for cells, reason in (
        ("x,1,9", "micro_batch must be an integer from 1 to 2147483647, not 'x'"),
        ("0,1,9", "micro_batch must be an integer from 1 to 2147483647, not '0'"),
        ("1,0,9", "ep must be an integer from 1 to 2147483647, not '0'"),
        ("1,1,fast", "tokens_per_s_per_gpu must be a positive number, not 'fast'"),
        ("1,1,0", "tokens_per_s_per_gpu must be a positive number, not '0'"),
        ("1,1,inf", "tokens_per_s_per_gpu must be a positive number, not 'inf'"),
        ("1,1,9,slow", "attention 'slow'"),
    ):
        file.write_text(f"{head}32,4096,32,128256,4096,H100 SXM,8,{cells}\n")
        runs, refused = read_table(file)
        assert not runs and reason in next(iter(refused))
    file.write_text("layers,hidden\n1,2\n")
    with pytest.raises(InputError, match="column heads is missing"):
        read_table(file)


def test_invalid_table_is_rejected_with_the_reason(tmp_path):
    file = tmp_path / "runs.csv"
    head, row = "layers,hidden,heads,vocab,seq,gpu,gpus,step_s", "32,4096,32,32000,2048,H100,8,1.5"
    for text, reason in (
        (f"{head},gpu\n{row},A100", "column 'gpu' is repeated"), (head, "the table has no rows"),
        (f"{head}\n{row},9", "more cells than columns"), (f"{head},mfu\n{row},9", "did you mean mfu_percent"),
        (f"{head},color\n{row},9", "unknown column 'color'"),
        (f"{head}\n{row}".replace(",", ";"), r"column layers is missing; .*begins with 'layers;hidden"),
        (f"{head},status\n{row},OOM", "status is 'OOM'"), ("\n", "column layers is missing"),
        (f"{head},micro_batch,global_batch\n{row},3,16", "dp 8 x micro_batch 3 x grad_accum 1 is not global_batch 16"),
        (f"{head.removesuffix(',step_s')}\n{row.removesuffix(',1.5')}", "neither step_s nor tokens_per_s_per_gpu"),
    ):  # fmt: skip
        file.write_text(text)
        with pytest.raises(InputError, match=reason):
            read_own_runs(file)
    file.write_text(f" {head.replace(',', ' , ')}\n{row.replace(',', ', ')},,\n,,\n")  # spaces and empty cells
    (group,) = read_own_runs(file).groups
    assert (group.gpu, len(group.rows)) == ("H100 SXM", 1)


def test_slow_mode_is_detected_from_measured_figures():
    timed = timed_runs()
    slow = mark_slow(timed)
    assert 300 < slow.sum() < 400
    faster = [{**run, "step_s": run["step_s"] / 7} for run in timed]
    assert mark_slow(faster).sum() < slow.sum()  # the slow mode loses a fixed time, not a share


def test_search_enumerates_every_mesh():
    meshes = enumerate_meshes(job())
    assert len(meshes) == len({*meshes}) > 1000
    for mesh in meshes:
        assert mesh.tp * mesh.pp * mesh.cp * mesh.dp == 64 and 32 % (mesh.pp * mesh.vp) == 0
        assert mesh.dp * mesh.micro_batch * mesh.grad_accum == 256
    with pytest.raises(InputError, match="no mesh of 64 devices divides a batch of 3"):
        enumerate_meshes(job(batch=3, shape=job().shape._replace(layers=1, heads=1, kv_heads=1)))


def test_search_orders_meshes_that_fit_and_offers_three_tries():
    answer = search_once()
    rates = answer.tokens_per_s[answer.order]
    assert (np.diff(rates) <= 0).all()
    assert (answer.memory["total"][answer.order] <= FILL * answer.columns.memory_bytes[answer.order]).all()
    assert 0.2 < answer.mfu[answer.order[0]] < 0.6
    tries = choose_tries(answer)
    assert tries[0] == answer.order[0] and len({*tries}) == 3
    front = pareto_front(answer)
    assert front[0] == answer.order[0] and (np.diff(answer.memory["total"][front]) < 0).all()


def test_suggested_tries_include_a_mesh_that_likely_runs():
    _, shape = parse_transformer("llama2-70b")
    answer = search_once(shape=shape, batch=128)
    tries = choose_tries(answer)
    assert answer.chance[tries[0]] < 0.7 and answer.chance[tries].max() > 0.9


def test_remedies_skip_indivisible_sequences():
    _, shape = parse_transformer("llama3-405b")
    assert isinstance(what_would_fit(job(shape=shape, gpus=1, batch=7, seq=1025)), list)


def test_torchtitan_export_defines_an_unknown_flavor():
    text = write_mesh(search_once(), "llama2-70b", "torchtitan")[1]
    assert "n_kv_heads=8, vocab_size=128256, multiple_of=14336)" in text and "ffn_dim_multiplier" not in text
    assert tomllib.loads(text)["model"]["flavor"] == "ringlab"
    narrow = job(shape=job().shape._replace(hidden=4096))
    width = 8 * 4096 // 3
    factor = float(write_mesh(search(narrow), "a", "torchtitan")[1].partition("multiplier=")[2].partition(")")[0])
    assert -(-int(factor * width) // 4096) == 1


def test_tensor_groups_are_slower_over_pcie():
    cards = host_of_preset("dgx-h100", "H100 SXM", link="pcie")
    fast, slow = (search_once(gpus=8, batch=32, host=host) for host in (HOST, cards))
    groups = slow.columns.tp > 1
    assert (slow.parts["tensor"][groups] > fast.parts["tensor"][groups]).all()


def test_probability_to_run_falls_with_memory_use():
    chances = chance_to_run(columns_of_runs([run()] * 5), np.array([40e9, 60e9, 70e9, 80e9, 100e9]))
    assert (np.diff(chances) < 0).all() and chances[0] > 0.95 and chances[-1] < 0.1
    empty = columns_of_runs([run(layers=8, pp=8, dp=8, framework="nanotron")])
    assert chance_to_run(empty, np.array([1e9])) < 0.5


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


@pytest.fixture
def scenario(tmp_path) -> Path:
    file = tmp_path / "llama.toml"
    file.write_text(SCENARIO)
    return file


def test_search_command_lists_the_fastest_meshes(ringlab, scenario, tmp_path):
    status, out, err = ringlab(
        "search", str(scenario), "--devices", "8,64", "--why", "--json", str(tmp_path / "a.json")
    )
    assert status == 0, err
    assert "tokens/s" in out and "Try these meshes, whose" in out and "Why others are slower" in out
    assert "H100 SXM at $2.50 an hour: training.price_per_hour." in " ".join(out.split())
    answer = json.loads((tmp_path / "a.json").read_text())
    assert [case["devices"] for case in answer["cases"]] == [8, 64]
    best = answer["cases"][1]["best"][0]
    assert best["tokens_interval"][0] < best["tokens_per_s"] < best["tokens_interval"][1]
    assert best["dollars_per_billion_tokens"] == pytest.approx(2.5 * 64 / 3600 / best["tokens_per_s"] * 1e9, rel=1e-5)
    assert best["step_s"] == best["parts"].pop("total") == pytest.approx(sum(best["parts"].values()))
    assert "GiB per device: weights " in out
    assert best["memory_bytes"] == pytest.approx(sum(best["memory_parts"].values()), rel=1e-5)


def test_search_command_adapts_to_own_runs(ringlab, scenario, tmp_path):
    runs = tmp_path / "runs.csv"
    head = "layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,gpus,sharding,micro_batch,grad_accum,step_s\n"
    rows = [f"32,4096,32,8,14336,128256,8192,H100 SXM,{n},zero3,1,4,12.0\n" for n in (8, 16, 32)]
    runs.write_text(head + "".join(rows))
    fast, slow = tmp_path / "fast.json", tmp_path / "slow.json"
    assert ringlab("search", str(scenario), "--json", str(fast))[0] == 0
    status, out, _ = ringlab("search", str(scenario), "--runs", str(runs), "--json", str(slow))
    assert status == 0 and "Adapted to 3 runs" in out
    best = [json.loads(file.read_text())["cases"][0]["best"][0] for file in (fast, slow)]
    assert best[1]["tokens_per_s"] < 0.8 * best[0]["tokens_per_s"]
    widths = [row["tokens_interval"][1] / row["tokens_per_s"] for row in best]
    assert widths[1] < widths[0]  # own runs narrow the interval


def test_saved_runs_are_used_until_removed(ringlab, scenario, tmp_path):
    runs, answer = tmp_path / "runs.csv", tmp_path / "answer.json"
    head = "layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,gpus,sharding,micro_batch,grad_accum,step_s\n"
    runs.write_text(head + "32,4096,32,8,14336,128256,8192,H100,8,zero3,1,4,6.0\n")
    status, out, err = ringlab("calibrate", "--runs", str(runs), "--json", str(answer))
    assert status == 0 and "Saved to" in out, err
    adapted = json.loads(answer.read_text())["kept"][0]
    assert adapted["gpu"] == "H100 SXM" and adapted["within_after"] < adapted["within"]
    assert abs(adapted["runs"][0]["after"] / 6.0 - 1) < abs(adapted["runs"][0]["before"] / 6.0 - 1)
    assert "Adapted to 1 run on H100 SXM" in ringlab("search", str(scenario))[1]
    assert "Adapted" not in ringlab("search", str(scenario), "--set", "training.framework=megatron")[1]
    Path(adapted["file"]).unlink()
    assert "Adapted" not in ringlab("search", str(scenario))[1]


@settings(deadline=None, max_examples=5)
@given(st.lists(st.sampled_from(range(0, 1200, 7)), min_size=1, max_size=4, unique=True), st.floats(0.5, 2.0))
def test_adaptation_improves_and_narrows_predictions(rows, factor):
    timed = timed_runs()
    columns, belief = columns_of_runs([timed[row] for row in rows]), believe()
    measured = factor * step_seconds(columns, belief.parameters)
    after = belief.adapted(columns, measured)
    left = np.abs(np.log(step_seconds(columns, after.parameters) / measured)).sum()
    assert left <= abs(np.log(factor)) * len(rows) + 1e-9
    slopes = find_slopes(columns, belief.parameters)
    assert (after.deviations(slopes) <= belief.deviations(slopes) + 1e-9).all()


def test_suggested_runs_reduce_uncertainty_most():
    answer = search_once()
    belief, slopes = answer.belief, answer.fastest
    chosen = belief.choose_runs(slopes, 3)
    assert len({*chosen}) == 3

    def left(rows):
        return (belief.after_runs(slopes.slopes[rows]).deviations(slopes) ** 2).sum()

    assert left(chosen[:1]) == pytest.approx(min(left([row]) for row in range(len(slopes.logs))))
    assert left(chosen) < left([0, 1, 2]) < left([])


def test_lora_and_offloading_save_device_memory():
    _, shape = parse_transformer("llama-7b")
    card = job(shape=shape, seq=2048, batch=4, host=Host("pc", "RTX 4090", 1, "host", 12, 0.0), gpus=1)
    full = search(card)
    assert not len(full.order)
    remedies = {remedy.change: remedy.found for remedy in what_would_fit(card)}
    assert any("LoRA" in name for name in remedies) and any("host" in name for name in remedies)
    assert not any("devices" in name for name in remedies)  # no network is known
    lora, host = remedies["LoRA of rank 16"], remedies["states and gradients offloaded to the host"]
    assert float(lora.memory["optimizer"][0]) < 0.02 * float(full.memory["optimizer"][0])
    assert float(lora.step_s[lora.order[0]]) < float(host.step_s[host.order[0]])
    assert float(host.memory["optimizer"].max()) == 0 and 90e9 < float(host.host_bytes[0]) < 130e9
    packed = remedies["LoRA of rank 16 with 4-bit weights"]
    assert float(packed.memory["weights"][0]) < 0.35 * float(lora.memory["weights"][0])


def test_optimizers_with_smaller_states_need_less_memory():
    kinds = {name: memory_of(optimizer=name, sharding="ddp") for name in ("adamw", "sgd", "adamw8bit")}
    assert kinds["adamw"] > kinds["sgd"] > kinds["adamw8bit"]


def test_zero_bubble_schedule_waits_a_third_as_long():
    def bubble(schedule):
        return parts_of(pp=8, dp=8, grad_accum=8, schedule=schedule)["pipeline"]

    assert 0.2 < bubble("zero_bubble") / bubble("1f1b") < 0.6


def test_experts_are_divided_among_devices():
    many = job(experts=8, top_k=2, batch=128)
    answer = search(many)
    assert {mesh.ep for mesh in answer.searched} == {1, 2, 4, 8}
    alike = [n for n, mesh in enumerate(answer.searched) if (mesh.sharding, mesh.tp, mesh.pp) == ("ddp", 1, 1)]
    dense, divided = ([n for n in alike if answer.searched[n].ep == ep] for ep in (1, 8))
    assert answer.memory["weights"][divided].min() < 0.4 * answer.memory["weights"][dense].min()
    assert (answer.parts["expert"][divided] > 0).all()
    with pytest.raises(InputError, match="ep must divide the 8 experts, not 3"):
        run(experts=8, top_k=2, expert_ffn=14336, ep=3)
    with pytest.raises(InputError, match="tp must divide the 32 heads, not 5"):
        run(tp=5, gpus=320)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16", "fp8", "mxfp8"])
def test_lower_precision_is_faster(precision):
    order = ["float32", "tf32", "bf16", "fp8"]
    faster = order[order.index(precision) + 1] if precision in order[:-1] else "fp8"
    assert seconds(precision=faster, micro_batch=4) <= 1.03 * seconds(precision=precision, micro_batch=4)


def test_fastest_mesh_is_exported_to_frameworks(ringlab, scenario, tmp_path):
    files = {name: tmp_path / f"{name}.out" for name in FORMATS}
    options = [word for name, file in files.items() for word in ("--export", f"{name}={file}")]
    status, _, err = ringlab("search", str(scenario), *options)
    assert status == 0, err
    titan = tomllib.loads(files["torchtitan"].read_text())
    degrees = titan["parallelism"]
    product = 1
    for name in ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel", "context_parallel"):
        product *= degrees[f"{name}_degree"]
    assert product * degrees["pipeline_parallel_degree"] == 64
    assert titan["training"]["global_batch_size"] == 256
    words = files["megatron"].read_text().split()
    flags = {word: words[at + 1] for at, word in enumerate(words[:-1]) if word.startswith("--")}
    assert (flags["--num-layers"], flags["--num-query-groups"], flags["--seq-length"]) == ("32", "8", "8192")
    assert "num_processes: 64" in files["accelerate"].read_text()


@pytest.mark.parametrize("framework", FORMATS)
def test_exported_axes_multiply_to_the_devices(framework):
    answer = search_once()
    can, write, *_ = FORMATS[framework]
    meshes = [mesh for number in answer.order if can(answer.job, mesh := answer.searched[int(number)])][::25]
    assert meshes and all(write(answer.job, mesh, "llama3-8b") for mesh in meshes)


@pytest.mark.parametrize(
    "name, changes, option",
    [
        ("torchtitan", {"experts": 8, "top_k": 2}, "experts"),
        ("torchtitan", {"precision": "fp8"}, "fp8 (but bf16, float32)"),
        ("torchtitan", {"optimizer": "sgd"}, "optimizer sgd (but adamw)"),
        ("megatron", {"lora": 16}, "adapters"),
        ("megatron", {"optimizer": "adamw8bit"}, "optimizer adamw8bit"),
        ("accelerate", {"offload": "optimizer"}, "offload of optimizer"),
    ],
)
def test_export_includes_every_option_of_the_training(name, changes, option):
    with pytest.raises(InputError, match=re.escape(f"export {name}: the format does not support {option}")):
        write_mesh(search_once(batch=128, **changes), "llama3-8b", name)


def test_export_as_a_torch_script_is_reported_as_removed():
    with pytest.raises(InputError, match="--export torch was removed; use `--export torchtitan=FILE`"):
        write_mesh(search_once(batch=128), "llama3-8b", "torch")


def test_experts_are_only_exported_to_megatron():
    answer = search_once(experts=8, top_k=2, batch=128)
    number, text = write_mesh(answer, "mine", "megatron")
    assert f"--num-experts 8 --moe-router-topk 2\n--expert-model-parallel-size {answer.searched[number].ep} " in text
    assert answer.searched[write_mesh(answer, "mine", "accelerate")[0]].ep == 1


@pytest.mark.parametrize("name", ["megatron", "torchtitan"])
def test_export_excludes_unsupported_schedules_and_heads(name):
    answer = search_once(with_zero_bubble=True)
    can = FORMATS[name][0]
    meshes = [mesh for mesh in answer.searched if can(answer.job, mesh)]
    assert max(mesh.tp for mesh in meshes) == 8 and all(mesh.schedule != "zero_bubble" for mesh in meshes)


def test_search_command_varies_a_key(ringlab, scenario, tmp_path):
    file = tmp_path / "a.json"
    options = ("--target-tokens", "1e10", "--deadline", "2 days", "--budget", "9000", "--json", str(file))
    status, out, err = ringlab("search", str(scenario), "--what-if", "preset=dgx-h100,dgx-b200,rtx4090-pcie", *options)
    assert status == 0, err
    answer = json.loads(file.read_text())
    assert [case["value"] for case in answer["cases"]] == ["dgx-h100", "dgx-b200"] and answer["key"] == "preset"
    assert any("rtx4090-pcie" in reason for reason in answer["refused"])
    best = [case["best"][0] for case in answer["cases"]]
    assert best[1]["tokens_per_s"] > 1.5 * best[0]["tokens_per_s"]
    money = best[0]["money"]
    assert money["hours"] == pytest.approx(1e10 / best[0]["tokens_per_s"] / 3600, rel=1e-5)
    assert money["dollars_interval"][0] < money["dollars"] < money["dollars_interval"][1]
    assert 0 <= money["chance_within_limits"] <= 1 and "for 1e+10 tokens" in " ".join(out.split())


def test_sequence_and_target_options_agree_in_all_commands(ringlab, scenario, tmp_path):
    (tmp_path / "mesh.toml").write_text(SCENARIO + '[training.parallelism]\nstrategy = "fsdp"\n')
    size = ("--sequence", "2048", "--target-tokens", "2e9", "--json", str(tmp_path / "a.json"))

    def answer(*command):
        status, _, err = ringlab(command[0], str(tmp_path / "mesh.toml"), *command[1:], *size)
        assert status == 0, err
        return json.loads((tmp_path / "a.json").read_text())

    row = answer("predict", "--devices", "8")["rows"][0]
    case = answer("search", "--devices", "8", "--mesh", "zero3 8, mb 4")["cases"][0]
    plan = answer("plan", "--set", "plan.most_nodes=1", "--set", "plan.providers=['Lambda']")
    same = next(row for row in plan["candidates"] if row["instance"] == "gpu_8x_h100_sxm5")
    assert row["tokens_per_s"] == pytest.approx(2048 * row["samples_per_s"], rel=1e-5)
    assert row["target"]["seconds"] == pytest.approx(2e9 / row["tokens_per_s"], rel=1e-5)
    assert case["seq"] == 2048 and plan["target_tokens"] == 2e9
    assert case["best"][0]["money"]["hours"] * 3600 == pytest.approx(row["target"]["seconds"], rel=1e-3)
    assert case["best"][0]["money"]["dollars"] == pytest.approx(row["target"]["dollars"], rel=1e-3)
    assert same["hours"] * 3600 == pytest.approx(row["target"]["seconds"], rel=0.05)


def test_mesh_is_selected_and_exported_by_name(ringlab, scenario, tmp_path):
    file = tmp_path / "a.txt"
    options = ("--mesh", "zero1 32,tp 2, mb 1, full", "--export", f"megatron={file}")
    status, out, err = ringlab("search", str(scenario), *options)
    assert status == 0 and "compared with the fastest, " in out and "% longer, " in out, err
    assert "fit; the fastest" not in out
    assert "--tensor-model-parallel-size 2\n--pipeline-model-parallel-size 1\n" in file.read_text()


def test_search_varies_the_lora_rank_from_zero(ringlab, scenario, tmp_path):
    file = tmp_path / "a.json"
    assert ringlab("search", str(scenario), "--what-if", "lora=0,16", "--json", str(file))[0] == 0
    assert [case["value"] for case in json.loads(file.read_text())["cases"]] == ["0", "16"]


def test_mfu_excludes_gradients_of_frozen_weights():
    full, adapters = (search(job(batch=64, lora=rank)) for rank in (0, 16))
    ratio = adapters.mfu / adapters.tokens_per_s / (full.mfu / full.tokens_per_s)[0]
    assert 0.66 < float(ratio.min()) <= float(ratio.max()) < 0.75  # attention has FLOPs but no weights


def test_search_names_a_gpu_without_published_runs(ringlab, scenario):
    assert {gpu_name(run["gpu"]) for run in read_table()[0]} == {*PUBLISHED}
    changed = ("--set", 'cluster.preset="dgx-1-v100"', "--precision", "fp16", "--devices", "64")
    text = " ".join(ringlab("search", str(scenario), *changed)[1].split())
    assert "No published run is on V100 SXM2 32GB" in text


def test_unsupported_precision_is_rejected(ringlab, scenario):
    status, _, err = ringlab("predict", str(scenario), "--devices", "8", "--set", 'cluster.preset="dgx-1-v100"')
    assert status == 2 and "V100 SXM2 32GB does not support bf16; set training.precision to fp16," in err


def test_run_with_indivisible_heads_is_rejected():
    with pytest.raises(InputError, match="hidden must be a multiple of the 31 heads, not 4096; or set head_dim"):
        run(heads=31, kv_heads=31)
    assert run(heads=31, kv_heads=31, head_dim=128)["head_dim"] == 128


@pytest.mark.parametrize(
    ("machine", "gpu", "nodes", "devices"),
    [("p4d.24xlarge", "A100 40GB SXM", 2, 16), ("dgx-h100", "H100 SXM", 16, 128), ("rtx4090-pcie", "RTX 4090", 1, 8),
     ("dgx-h100", "H100 SXM", 1, 1)],
)  # fmt: skip
def test_price_is_from_an_instance_type_like_the_machine(machine, gpu, nodes, devices):
    system = describe_preset(machine, nodes, 8)
    price = find_gpu_price(read_prices(), gpu, [devices], system)
    assert price is not None and price.dollars == price.instance.price / price.instance.gpus
    assert price.instance.gpus >= min(devices, 8) and price.instance.machine in (machine, None, "p5.48xlarge")
    assert nodes == 1 or price.instance.nic_bandwidth >= system.nic * 1e9


def test_one_instance_type_prices_all_device_counts():
    scenario = Path(__file__).parents[2] / "examples/gpt2_xl.toml"
    h100 = 'cluster.preset="dgx-h100"'
    epoch = predict_devices(scenario, [8, 16], h100).cases[0].rows
    predicted = {round(row.epoch.dollars / row.epoch.seconds / row.devices * 3600, 6) for row in epoch}
    searched = [
        find_meshes(scenario, options, (h100,))
        for options in (SearchOptions(devices="8,16"), SearchOptions(what_if="nodes=1,2"))
    ]
    prices = {
        round(row.dollars_per_billion_tokens / 1e9 * row.tokens_per_s * 3600 / case.devices, 6)
        for answer in searched
        for case in answer.cases
        for row in case.best
    }
    assert prices == predicted == {55.04 / 8}
    assert all(sum(" an hour: " in note for note in answer.notes) == 1 for answer in searched)


def test_price_is_none_if_instance_networks_are_too_slow():
    system = describe_preset("rtx4090-pcie", 2, 8, net="ib", nic="3200 Gbit/s")
    assert find_gpu_price(read_prices(), "RTX 4090", [16], system) is None


def test_own_table_is_evaluated_with_its_unseen_sources(accuracy_of, tmp_path):
    table = tmp_path / "meshes.csv"
    head = "layers,hidden,heads,vocab,seq,gpu,gpus,step_s,source,framework\n"
    table.write_text(head)
    status, out, err = accuracy_of("--meshes", "--data", str(tmp_path))
    assert (status, out.strip()) == (0, "No run in the table has a time."), err
    table.write_text(head + "32,4096,32,32000,2048,RTX 4090,8,9.0,ours,torchtitan\n")
    _, out, _ = accuracy_of("--meshes", "--data", str(tmp_path))
    assert "no run of source ours, gpu RTX 4090, so priors predict these runs" in " ".join(out.split())


def test_accuracy_command_evaluates_published_runs(accuracy_of, tmp_path):
    options = ("--json", str(tmp_path / "a.json"), "--plot", str(tmp_path / "a.png"))
    status, out, err = accuracy_of("--meshes", *options)
    assert status == 0, err
    answer = json.loads((tmp_path / "a.json").read_text())
    assert "llm-foundry" in out and "ultrascale, slow mode" in out and answer["memory"]["n"] == 1189
    assert answer["sources"]["llm-foundry"]["n"] == 299 and answer["refused"] == {} and answer["unseen"] == []
    assert sum(size["n"] for size in answer["sizes"].values()) == answer["all"]["n"]
    assert {"regret_median", "best_of_3_mean", "rank", "jobs"} <= answer["choice"]["model"].keys()
    with pytest.raises(InputError, match=r"calibrate must be between .*, not 1000"):
        mesh_accuracy(calibrate=1000)
    for options, message in (
        (("--leave-one-out",), "--meshes"),
        (("--meshes", "--here"), "--meshes can only be combined"),
    ):
        status, _, err = accuracy_of(*options)
        assert status == 2 and message in err


def test_three_runs_of_a_source_improve_its_predictions():
    runs = [run for run in read_table()[0] if run["source"] == "torchtitan" and has_time(run)]
    alone = judge([{**run, "step_s": run["step_s"] * 1.4} for run in runs])
    adapted = judge([{**run, "step_s": run["step_s"] * 1.4} for run in runs], adapt_to=3)
    assert adapted.all.n == alone.all.n - 3
    assert adapted.all.median < 0.7 * alone.all.median


UNLISTED = 'cluster={system={nodes=1, gpus=8, gpu="Z1", generation="hopper", nvlink=0, pcie=5}, transport="nccl"}'


@pytest.mark.parametrize(
    "options, message",
    [
        (("--export", "megatron"), "expected FORMAT=FILE"),
        (("--export", "megatrn=a"), "did you mean megatron"),
        (("--set", 'training.model="resnet50"'), "is not a transformer with known dimensions"),
        (("--devices", "0"), "--devices"),
        (("--runs", "nowhere.csv"), "nowhere.csv"),
        (("--set", 'cluster.transport="ideal"'), "transport"),
        (("--set", UNLISTED, "--devices", "8"), "search requires a GPU from the catalog, but"),
        (("--plot", "a.doc"), "a plot is written as"),
        (("--framework", "jax"), "search --framework was removed; use `--set training.framework=NAME`"),
        (("--set", "training.framework=jaxtitan"), "jaxtitan"),
        (("--devices", "12"), "12 devices do not fill hosts of 8"),
        (("--bits", "4"), "requires --lora RANK"),
        (("--optimizer", "lion"), "unknown optimizer 'lion'"),
        (("--offload", "everything"), "unknown offload 'everything'"),
        (("--deadline", "3 days"), "require --target-tokens"),
        (("--target-tokens", "1e9", "--deadline", "soon"), "--deadline: invalid duration 'soon'"),
        (("--what-if", "color=red"), "--what-if: unknown key 'color'"),
        (
            ("--precision", "nvfp4"),
            "H100 SXM does not support nvfp4; set --precision to bf16, fp16, fp8,",
        ),
        (("--what-if", "sequence=long"), 'training.sequence = "long" must be an integer'),
        (("--mesh", "zero3 64, mb 3"), "'zero3 64, mb 3' is not a mesh of 64 devices; did you mean zero3 64, mb"),
        (("--mesh", "ddp 64, mb 1"), "mesh 'ddp 64, mb 1' does not fit: it needs"),
        (("--set", 'training.model="llama:layers=2,width=64,heads=2"'), "missing; write llama:layers=32"),
    ],
)
def test_search_command_rejects_invalid_input(ringlab, scenario, options, message):
    status, _, err = ringlab("search", str(scenario), *options)
    assert status == 2 and message in err and "Traceback" not in err
