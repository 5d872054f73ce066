"""Test predictions of meshes: their properties, their accuracy on published runs, and the search over all meshes."""

import json
from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.accuracy.meshes import judge, mark_slow, mesh_accuracy
from collectives.errors import InputError
from collectives.training.parallelism import Parallelism
from planner.beliefs import PRIORS, believe, chance_to_run, find_slopes, read_shipped
from planner.hosts import Host, host_of_preset
from planner.jobs import ZERO, Job, transformer_model
from planner.memory import FILL, memory_parts
from planner.pipeline import deal_layers
from planner.prediction import Training
from planner.runs import columns_of_runs, complete, read_own_runs, read_table, why_untimed
from planner.search import enumerate_meshes, search, what_would_fit
from planner.step import step_parts, step_seconds

P = read_shipped().parameters
MODEL = {
    "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256, "seq": 4096, "gpu": "H100",
}  # fmt: skip


def run(**keys):
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
    return [run for run in read_table()[0] if why_untimed(run) is None]


def training(model="llama3-8b:context=4096", batch=256, gpus=64, host=HOST, lora=0, **experts):
    """Return a training with a global batch of ``batch`` sequences."""
    keys = {"precision": "bf16", "optimizer": "adamw", "lora": lora}
    return Training(Job(transformer_model(model), batch / gpus, Parallelism(data=gpus, **experts), **keys), host)


@cache
def search_once(**keys):
    return search(training(**keys))


def test_batch_of_runs_has_the_step_times_of_single_runs():
    timed = timed_runs()[::97]
    together = step_seconds(columns_of_runs(timed), P)
    alone = [float(step_seconds(columns_of_runs([row]), P)[0]) for row in timed]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([*ZERO]),
    st.sampled_from(["none", "selective", "full"]), st.sampled_from([1, 2, 4]),
)  # fmt: skip
def test_more_layers_take_longer_and_recomputation_saves_memory(tp, pp, sharding, recompute, micro):
    mesh = {"tp": tp, "pp": pp, "dp": 64 // tp // pp, "micro_batch": micro, "recompute": recompute}
    mesh["sharding"] = sharding if pp == 1 else "zero1"
    base = seconds(**mesh)
    assert np.isfinite(base) and base > 0
    assert seconds(**mesh, layers=64) > base
    assert seconds(**{**mesh, "grad_accum": 8}) > base
    assert seconds(**{**mesh, "recompute": "full"}) >= base
    assert memory_of(**{**mesh, "recompute": "full"}) <= memory_of(**{**mesh, "recompute": "none"})
    assert all(value >= -1e-9 for value in parts_of(**mesh).values())


def test_sharding_and_8_bit_states_need_less_memory():
    sizes = [memory_of(sharding=strategy) for strategy in ("ddp", "zero1", "zero2", "zero3")]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 1.5 * sizes[1] > 2 * sizes[3]
    assert sizes[3] < memory_of(sharding="hsdp") < sizes[0]
    assert sizes[0] > memory_of(optimizer="sgd", sharding="ddp") > memory_of(optimizer="adamw8bit", sharding="ddp")


def test_more_microbatches_or_zero_bubble_shrink_pipeline_bubble():
    def bubble(count, schedule="1f1b"):
        parts = parts_of(pp=8, dp=8, grad_accum=count, vocab=8, schedule=schedule)
        return parts["pipeline"] / parts["total"]

    assert bubble(8) > 0.3 > bubble(64) > bubble(256)
    assert bubble(8, "zero_bubble") < 0.75 * bubble(8)


@pytest.mark.parametrize(
    "framework, layers, pp, most, last",
    [("nanotron", 32, 16, 3, 0), ("megatron", 126, 16, 8, 7), ("megatron-deepspeed", 78, 12, 7, 1),
     ("other", 10, 4, 3, 2)],
)  # fmt: skip
def test_layer_counts_of_pipeline_stages_match_each_framework(framework, layers, pp, most, last):
    counts = deal_layers(framework, layers, pp, 4 * 4096**2 + 3 * 4096 * 14336, 131072 * 4096)
    assert (counts[0], counts[2]) == (most, last)


def test_every_mesh_model_parameter_has_a_prior():
    assert PRIORS.keys() == P.keys()


HEAD, ROW = "layers,hidden,heads,vocab,seq,gpu,gpus,step_s", "32,4096,32,32000,2048,H100,8,1.5"
UNTIMED, UNTIMED_ROW = HEAD.removesuffix(",step_s"), ROW.removesuffix(",1.5")
POSITIVE, INTEGER = "must be a positive number, not", "must be an integer from 1 to 2147483647, not"


@pytest.fixture
def table(tmp_path):
    return tmp_path / "runs.csv"


def test_run_table_may_omit_columns_and_have_empty_cells(table):
    assert not read_table()[1] and Counter(run["source"] for run in read_table()[0])["ultrascale"] == 1676
    rate = f"{UNTIMED},tokens_per_s_per_gpu\n"
    table.write_text(
        f"{rate}{UNTIMED_ROW},8000\n{UNTIMED_ROW.replace('H100', 'H9000')},8000\n32,4096,,1,4096,H100,8,1\n"
    )
    (row,), refused = read_table(table)
    assert why_untimed(row) is None and row["step_s"] == pytest.approx(8 * 2048 / 8000 / 8)
    assert sorted(refused.values()) == [1, 1] and any("H9000" in reason for reason in refused)
    table.write_text(f" {HEAD.replace(',', ' , ')}\n{ROW.replace(',', ', ')},,\n,,\n")  # spaces and empty cells
    ((group,), _) = read_own_runs(table)
    assert (group.gpu, len(group.rows)) == ("H100 SXM", 1)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("micro_batch", "x"), f"micro_batch {INTEGER} 'x'"), (("ep", "0"), f"ep {INTEGER} '0'"),
        (("step_s", "inf"), f"step_s {POSITIVE} 'inf'"), (("attention", "slow"), "attention 'slow'"),
    ],
)  # fmt: skip
def test_row_with_an_invalid_cell_is_skipped_with_the_reason(table, more, reason):
    table.write_text(f"{UNTIMED},{more[0]}\n{UNTIMED_ROW},{more[1]}\n")
    rows, refused = read_table(table)
    assert not rows and reason in next(iter(refused))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{HEAD},gpu\n{ROW},A100", "column 'gpu' is repeated"), (HEAD, "the table has no rows"),
        (f"{HEAD}\n{ROW},9", "more cells than the table"), (f"{HEAD},mfu\n{ROW},9", "did you mean mfu_percent"),
        (f"{HEAD},color\n{ROW},9", "unknown column 'color'"), ("layers,hidden\n1,2\n", "column heads is missing"),
        (f"{HEAD}\n{ROW}".replace(",", ";"), r"column layers is missing; .* not 'layers;hidden"),
        (f"{HEAD},status\n{ROW},OOM", "status is 'OOM'"),
        (f"{HEAD},micro_batch,global_batch\n{ROW},3,16", "global_batch must be dp 8 x micro_batch 3 x grad_accum 1"),
        (f"{UNTIMED}\n{UNTIMED_ROW}", "neither step_s nor tokens_per_s_per_gpu"),
    ],
)  # fmt: skip
def test_invalid_table_is_rejected_with_the_reason(table, text, reason):
    table.write_text(text)
    with pytest.raises(InputError, match=reason):
        read_own_runs(table)


def test_detection_of_slow_runs_depends_on_absolute_times():
    timed = timed_runs()
    slow = mark_slow(timed)
    assert 300 < slow.sum() < 400
    faster = [{**run, "step_s": run["step_s"] / 7} for run in timed]
    assert mark_slow(faster).sum() < slow.sum()  # the slow mode loses a fixed time, not a share


def test_enumerated_meshes_use_all_devices_and_the_batch():
    meshes = enumerate_meshes(training())
    assert len(meshes) == len({*meshes}) > 1000
    for mesh in meshes:
        assert mesh.tp * mesh.pp * mesh.cp * mesh.dp == 64 and 32 % (mesh.pp * mesh.vp) == 0
        assert mesh.dp * mesh.micro_batch * mesh.grad_accum == 256
    with pytest.raises(InputError, match="no mesh of 64 devices splits a batch of 3 sequences equally"):
        enumerate_meshes(training(model="llama3-8b:layers=1,heads=1,kv_heads=1", batch=3))


def test_search_lists_meshes_that_fit_by_decreasing_throughput():
    answer = search_once()
    rates = answer.tokens_per_s[answer.order]
    assert (np.diff(rates) <= 0).all()
    assert (answer.memory["total"][answer.order] <= FILL * answer.columns.memory_bytes[answer.order]).all()
    assert 0.2 < answer.mfu[answer.order[0]] < 0.6
    front = answer.front
    assert front[0] == answer.order[0] and (np.diff(answer.memory["total"][front]) < 0).all()


def test_remedies_for_too_little_memory_keep_an_odd_sequence():
    assert isinstance(what_would_fit(training(model="llama3-405b:context=1025", gpus=1, batch=7)), dict)


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


@settings(deadline=None, max_examples=5)
@given(st.lists(st.sampled_from(range(0, 1200, 7)), min_size=1, max_size=4, unique=True), st.floats(0.5, 2.0))
def test_adaptation_reduces_the_error_and_narrows_the_interval(rows, factor):
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
    belief, slopes = answer.training.belief, answer.slopes(answer.order[:100])
    chosen = belief.choose_runs(slopes, 3)
    assert len({*chosen}) == 3

    def left(rows):
        return (belief.after_runs(slopes.slopes[rows]).deviations(slopes) ** 2).sum()

    assert left(chosen[:1]) == pytest.approx(min(left([row]) for row in range(len(slopes.logs))))
    assert left(chosen) < left([0, 1, 2]) < left([])


def test_lora_saves_device_memory():
    card = training(model="llama-7b", batch=4, host=Host("pc", "RTX 4090", 1, "host", 12, 0.0), gpus=1)
    full = search(card)
    assert not len(full.order)
    remedies = what_would_fit(card)
    assert not any("devices" in name for name in remedies)  # no network is known
    lora = remedies["LoRA of rank 16"]
    assert float(lora.memory["optimizer"][0]) < 0.02 * float(full.memory["optimizer"][0])
    packed = remedies["LoRA of rank 16 with 4-bit weights"]
    assert float(packed.memory["weights"][0]) < 0.35 * float(lora.memory["weights"][0])


def test_expert_parallelism_divides_experts_among_devices():
    answer = search(training(experts=8, top_k=2, batch=128))
    assert {mesh.ep for mesh in answer.searched} == {1, 2, 4, 8}
    alike = [n for n, mesh in enumerate(answer.searched) if (mesh.sharding, mesh.tp, mesh.pp) == ("ddp", 1, 1)]
    dense, divided = ([n for n in alike if answer.searched[n].ep == ep] for ep in (1, 8))
    assert answer.memory["weights"][divided].min() < 0.4 * answer.memory["weights"][dense].min()
    assert (answer.parts["expert"][divided] > 0).all()


def test_lower_precision_is_not_slower():
    steps = [seconds(precision=precision, micro_batch=4) for precision in ("float32", "tf32", "bf16", "fp8")]
    assert all(faster <= 1.03 * slower for slower, faster in pairwise(steps))


def test_mfu_excludes_gradients_of_frozen_weights():
    full, adapters = (search(training(batch=64, lora=rank)) for rank in (0, 16))
    ratio = adapters.mfu / adapters.tokens_per_s / (full.mfu / full.tokens_per_s)[0]
    assert 0.66 < float(ratio.min()) <= float(ratio.max()) < 0.75  # attention has FLOPs but no weights


@pytest.mark.parametrize(
    ("keys", "message"),
    [({"experts": 8, "top_k": 2, "ep": 3}, "experts .8. must be a multiple of ep .3."),
     ({"tp": 5, "gpus": 320}, "heads .32. must be a multiple of tp .5."),
     ({"heads": 31}, "hidden must be a multiple of the 31 heads, not 4096; or set head_dim")],
)  # fmt: skip
def test_run_whose_sizes_do_not_divide_evenly_is_rejected(keys, message):
    with pytest.raises(InputError, match=message):
        run(**keys)


def test_user_runs_of_a_new_source_are_predicted_with_priors(accuracy_of, tmp_path):
    table = tmp_path / "meshes.csv"
    table.write_text(f"{HEAD},source,framework\n")
    status, out, err = accuracy_of("--meshes", "--data", str(tmp_path))
    assert (status, out.strip()) == (0, "No run in the table has a time."), err
    table.write_text(f"{HEAD},source,framework\n{ROW.replace('H100', 'RTX 4090')},ours,torchtitan\n")
    _, out, _ = accuracy_of("--meshes", "--data", str(tmp_path))
    assert "no run of source ours, gpu RTX 4090, so priors predict these runs" in " ".join(out.split())


def test_accuracy_of_published_runs_is_as_documented(accuracy_of, tmp_path):
    file, picture = tmp_path / "a.json", tmp_path / "a.png"
    status, out, err = accuracy_of("--meshes", "--json", str(file), "--plot", str(picture))
    assert status == 0 and picture.exists(), err
    answer = json.loads(file.read_text())
    assert "llm-foundry" in out and "ultrascale, slow mode" in out and answer["memory"]["n"] == 1189
    assert answer["sources"]["llm-foundry"]["n"] == 299 and answer["refused"] == {} and answer["unseen"] == []
    assert {*answer["slow"]} == {"ultrascale"}
    assert sum(size["n"] for size in answer["sizes"].values()) == answer["all"]["n"] > 1200
    assert max(answer["mean_of_medians"], answer["all"]["median"]) < 0.06
    assert answer["all"]["coverage80"] > 0.9  # of fitted sources; step_fit.py evaluates left-out sources
    assert answer["memory"]["median"] < 0.08 and answer["failed"]["auc"] > 0.97
    model, playbook = (answer["choice"][name] for name in ("model", "playbook"))
    assert model["regret_median"] < playbook["regret_median"] and model["best_of_3_median"] < 0.01
    assert answer["choice"]["model, slow mode left out"]["best_of_3_mean"] < 0.03


def test_accuracy_command_rejects_invalid_options(accuracy_of):
    assert "--meshes" in accuracy_of("--leave-one-out").err
    assert "--meshes can only be combined" in accuracy_of("--meshes", "--here").err
    with pytest.raises(InputError, match=r"calibrate must be between .*, not 1000"):
        mesh_accuracy(calibrate=1000)


def test_three_runs_of_a_source_improve_its_predictions():
    runs = [run for run in read_table()[0] if run["source"] == "torchtitan" and why_untimed(run) is None]
    alone = judge([{**run, "step_s": run["step_s"] * 1.4} for run in runs])
    adapted = judge([{**run, "step_s": run["step_s"] * 1.4} for run in runs], adapt_to=3)
    assert adapted.all.n == alone.all.n - 3
    assert adapted.all.median < 0.7 * alone.all.median
