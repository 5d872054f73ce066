"""The same question by predict, search and plan has the same rate, memory, fit and dollars."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from collectives.errors import InputError
from planner.memory import FILL
from ringlab.commands.predicting.plan import PlanAnswer, plan
from ringlab.commands.predicting.predict_devices import DevicesRow, predict_devices
from ringlab.commands.predicting.search import SearchOptions, find_meshes
from ringlab.shared.models import find_job
from scenarios.loader import read_spread_training

BATCHES = {"gpt2-large": 4, "llama3-8b": 1, "llama2-13b": 2}
MACHINES = {"p4d.24xlarge": 2, "p5.48xlarge": 4, "p5en.48xlarge": 1}
STRATEGIES = ('{strategy = "zero1"}', '{strategy = "fsdp"}', '{strategy = "zero1", tensor = 2, sequence = true}')
JOBS = [
    (machine, f'model = "{model}"\nbatch_size = {BATCHES[model]}\nparallelism = {strategy}', "")
    for model, machine, strategy in product(BATCHES, MACHINES, STRATEGIES)
]
GPT2 = 'model = "gpt2-medium"\nbatch_size = 8\n'
KEYS = {  # part of the message if ``search`` does not support the keys
    GPT2 + 'parallelism = {strategy = "zero1", experts = 8, expert = 4, top_k = 2}': "",
    GPT2 + "parallelism = {gradient_bytes = 2, bucket_mb = 1.0}": "",
    GPT2 + "parallelism = {half_weights = true}\nloader_rate = 30.0": "",
    GPT2 + "parallelism = {}\nvariable_batches = true": "",
    GPT2 + 'accumulate = 2\ngradient_sync = ["ring"]': "",
    GPT2 + "sync_every = 4": "search does not support sync_every",
    GPT2 + 'compute = {rate = 300.0, gpu = "H200 SXM"}': "search does not support compute",
    'model = "llama2-13b"\nbatch_size = 4\nparallelism = {tensor = 4, pipeline = 2}': "",
    GPT2 + 'parallelism = {tensor = 2, pipeline = 4, microbatches = 2, schedule = "gpipe"}': "",
    'model = "bert-large-384"\nbatch_size = 8': "is not a GPT or Llama",
}
ALMOST_FULL = 'model = "gpt2-xl"\nbatch_size = 8\nparallelism = {strategy = "zero1"}'


def ask(path: Path, machine: str, keys: str) -> tuple[DevicesRow | InputError, SearchOptions, PlanAnswer]:
    """Write a scenario. Return the answer of predict, the options for search on the same mesh, and the plan."""
    path.write_text(
        f'[cluster]\npreset = "{machine}"\nnodes = {MACHINES[machine]}\ntransport = "nccl"\n'
        f'[plan]\nproviders = ["AWS"]\ntarget_samples = 1e6\n[training]\nprecision = "bf16"\n{keys}\n'
    )
    spread, gpus = read_spread_training(path), 8 * MACHINES[machine]
    job = find_job(spread.training, spread.folder).on(gpus, 8)
    options = SearchOptions(mesh=job.mesh.name, batch=job.global_batch)
    try:
        return predict_devices(path, [gpus]).cases[0].rows[0], options, plan(path)
    except InputError as error:
        return error, options, plan(path)


@pytest.mark.parametrize(("machine", "keys", "refusal"), [*JOBS, *(("p5en.48xlarge", *each) for each in KEYS.items())])
def test_predict_search_and_plan_give_equal_answers(tmp_path: Path, machine: str, keys: str, refusal: str) -> None:
    predicted, options, answer = ask(tmp_path / "job.toml", machine, keys)
    places = {(row.instance, row.nodes): row for row in answer.candidates}
    planned = places.get((machine, MACHINES[machine]))
    if refusal or isinstance(predicted, InputError):
        with pytest.raises(InputError, match=refusal or "does not fit"):
            find_meshes(tmp_path / "job.toml", options)
    if isinstance(predicted, InputError):
        assert planned is None and "does not fit" in str(predicted)
        return
    assert planned is not None and predicted.target is not None
    assert planned.samples_per_s == pytest.approx(predicted.samples_per_s)
    assert planned.hours_80 == pytest.approx([seconds / 3600 for seconds in predicted.target.interval])
    assert planned.memory_bytes == pytest.approx(predicted.memory["total"])
    assert planned.chance_to_run == predicted.chance_to_run
    assert planned.cost == pytest.approx(predicted.target.dollars)
    if not refusal:
        searched = find_meshes(tmp_path / "job.toml", options).cases[0].best[0]
        assert searched["tokens_per_s"] == pytest.approx(predicted.tokens_per_s)
        assert searched["mfu"] == pytest.approx(predicted.mfu)
        assert searched["memory_bytes"] == pytest.approx(predicted.memory["total"])
        assert searched["chance_to_run"] == predicted.chance_to_run
        assert searched["money"]["dollars"] == pytest.approx(predicted.target.dollars)
        assert searched["money"]["dollars_interval"] == pytest.approx(predicted.target.dollars_interval)


def test_predict_search_and_plan_share_a_memory_limit(tmp_path: Path) -> None:
    predicted, options, answer = ask(tmp_path / "job.toml", "p4d.24xlarge", ALMOST_FULL)
    (row,) = find_meshes(tmp_path / "job.toml", replace(options, fill=1.0)).cases[0].best
    small = next(row for row in answer.too_little_memory if (row.gpu, row.gpus) == ("A100 40GB SXM", 16))
    assert FILL < row["memory_bytes"] / small.memory_bytes < 1
    assert small.needed_bytes == pytest.approx(row["memory_bytes"] / FILL)
    advice = f'--devices 16 --batch 128 --fill 1 --mesh "{options.mesh}"'
    assert f"only {FILL:.0%} of " in str(predicted) and advice in str(predicted)
    with pytest.raises(InputError, match="does not fit"):
        find_meshes(tmp_path / "job.toml", options)
