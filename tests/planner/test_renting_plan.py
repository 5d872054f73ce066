"""``ringlab plan``: the answer, its JSON and picture, the models it plans, and its errors."""

import json
import re
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ringlab
from benchmarks.accuracy.series import read_series
from collectives.errors import InputError
from collectives.records.model_profile import Measured, find_model_profile
from collectives.training.parallelism import Parallelism
from planner.gpus import find_series_gpu
from planner.hosts import Host
from planner.jobs import Job, even_model, find_model, is_half
from planner.one_gpu import MEASURED_SPREAD, YOURS, Alone, OneGpuRate, guess_rates, published
from planner.prediction import Training, predict_trainings
from planner.rates import SERIES_GPUS, GpuRates, at_rate, series_gpu
from planner.renting import prices
from planner.renting.candidates import find_host
from planner.renting.prices import read_prices
from planner.runs import OwnRuns
from ringlab.cli import app
from simcomm.cluster.hardware import memory_bytes

RATES = 'plan.known_rates={V100 = 1156.0, A100 = 2300.0, "H100 SXM" = 2785.0, "RTX 4090" = 1776.0}'
SCENARIO = """
title = "a plan"
[training]
model = "resnet50"
batch_size = 256
precision = "fp16"
[plan]
target_samples = 1e8
"""
TODAY = date(2026, 9, 1)
AWS, LAMBDA, NEBIUS = (f"plan.providers=['{name}']" for name in ("AWS", "Lambda", "Nebius"))  # with few machines


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "rent.toml"
    path.write_text(SCENARIO)
    return str(path)


def test_plan_lists_hours_and_dollars_with_intervals(scenario: str) -> None:
    answer = ringlab.plan(scenario, RATES, deadline="10 h", spot=True, today=TODAY)
    assert all(cheaper.cost <= other.cost for cheaper, other in pairwise(answer.candidates))
    for row in answer.candidates:
        assert row.hours * row.samples_per_s * 3600 == pytest.approx(1e8, rel=1e-9)
        assert row.cost == pytest.approx(row.hours * row.price_per_hour, rel=1e-9)
        assert row.cost_80[0] < row.cost < row.cost_80[1] and row.hours <= 10.0
    assert {row.market for row in answer.candidates} == {"on demand", "spot"}
    alone = {row.gpu: row for row in answer.candidates if row.gpus == 1}
    assert alone["H100 SXM"].samples_per_s == pytest.approx(2785.0)
    assert answer.candidates[0].front and answer.beyond_limits > 0
    assert "84 of 102 are older than 90 days or have no date" in answer.notes[-1]
    json.dumps(answer.to_dict(), allow_nan=False)


def test_plan_marks_candidates_that_may_exceed_a_limit(scenario: str) -> None:
    """The point estimate decides. If the deadline is inside the interval, the candidate is listed and marked."""
    usual = ringlab.plan(scenario, RATES, LAMBDA, "training.price_per_hour=2.5", today=TODAY)
    assert usual.notes[-1].startswith("training.price_per_hour (2.5) is not used")
    first = usual.candidates[0]
    between = (first.hours + first.hours_80[1]) / 2
    answer = ringlab.plan(scenario, RATES, LAMBDA, deadline=f"{between} h", today=TODAY)
    assert answer.candidates[0].label == first.label and not answer.candidates[0].high_end_within_limits
    assert answer.advice.endswith("the high end is late.")
    assert first.high_end_within_limits
    late = ringlab.plan(scenario, RATES, LAMBDA, deadline=f"{0.99 * first.hours} h", today=TODAY)
    assert first.label not in {row.label for row in late.candidates} and late.beyond_limits > 0


def test_host_of_an_instance_type_has_its_link_and_network() -> None:
    hosts = {price.instance: find_host(price) for price in read_prices()}
    assert (hosts["p3.16xlarge"].link, hosts["p3.16xlarge"].nic) == ("nvlink", 3.125e9)
    assert hosts["4x-RTX_4090-32-65536"].link == "host"
    assert hosts["n3-H100x8"].link == "pcie"
    assert hosts["p6-b200.48xlarge"].bus_bandwidth(8) > 1.5 * hosts["p5.48xlarge"].bus_bandwidth(8)


def test_known_rate_narrows_the_estimates_of_other_gpus() -> None:
    job, names = Job(find_model("ResNet-50"), 256.0, precision="fp16"), ["V100 SXM2 16GB", "A100 40GB SXM"]
    for gpu in (*names, "RTX 4090"):
        (expected,) = guess_rates(published(), [Alone(job, find_series_gpu(series_gpu(gpu)), YOURS)])
        guessed = GpuRates(job, {}, [gpu, "L40S"]).rate(gpu)
        assert (guessed.rate, guessed.spread) == pytest.approx((expected.rate, expected.spread))
    measured = GpuRates(job, {"V100": 1000.0}, names)
    assert len({GpuRates(job, {}, [gpu]).rate(gpu) for gpu in ("A100 80GB SXM", "A800 SXM")}) == 1
    assert measured.rate("V100 SXM2 32GB") == OneGpuRate(1000.0, MEASURED_SPREAD)
    assert measured.rate("A100 40GB SXM").spread < GpuRates(job, {}, names).rate("A100 40GB SXM").spread


def test_model_without_layers_requires_a_measured_rate() -> None:
    mine = Job(even_model("mine", 10), 1.0, precision="fp16")
    with pytest.raises(InputError, match="model mine has no layers, only a number of parameters"):
        GpuRates(mine, {}, ["RTX 4090"]).rate("RTX 4090")
    small, large = (GpuRates(mine, {"V100": rate}, ["A100"]).rate("A100 40GB SXM").rate for rate in (5.0, 5000.0))
    assert large / small == pytest.approx(1000.0)
    assert 5.0 < small < 20.0


def test_impossibly_high_rate_is_rejected(scenario: str) -> None:
    with pytest.raises(InputError, match=r"rate is 1e\+308 samples/s, which no device reaches"):
        ringlab.predict_devices("quickstart", [1], "training.compute={rate=1e308}")
    answer = ringlab.plan(scenario, "plan.known_rates={V100=1e308}", AWS, today=TODAY)
    assert "V100" not in " ".join(row.gpu for row in answer.candidates)
    assert [note for note in answer.notes if note.startswith("not supported: ") and "which no device reaches" in note]


def test_plan_command_writes_json_and_picture(scenario: str, tmp_path: Path) -> None:
    picture, json_file = tmp_path / "plan.svg", tmp_path / "plan.json"
    options = ["--set", RATES, "--budget", "100", "--deadline", "12h", "--plot", str(picture), "--json", str(json_file)]
    done = CliRunner().invoke(app, ["plan", scenario, *options])
    assert done.exit_code == 0, done.output
    answer = json.loads(json_file.read_text())
    assert (answer["kind"], answer["budget"], answer["deadline_hours"]) == ("plan", 100.0, 12.0)
    assert answer["advice"] in " ".join(done.output.split())
    text = picture.read_text()
    assert "training time in hours (log)" in text and "cost in dollars (log)" in text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("plan.known_rates={H900 = 1.0}", r"\.toml: plan.known_rates: 'H900' is not in the hardware catalog; did"),
        ("plan.providers=['Lamda']", "plan.providers: unknown provider 'Lamda'; did you mean Lambda"),
        ("training.model=resnet51", r"\.toml: training: unknown model 'resnet51'; did you mean "),
        ("plan.deadline=soon", "plan.deadline: invalid duration 'soon'"),
        ("plan.target_samples=0", "plan.target_samples = 0 must be positive|plan.target_samples = 0 should be greater"),
        ("training.compute={rate=60.0}", r"plan needs the GPU of this rate; set compute = {rate = 60, gpu = .H100 SXM"),
        ("plan.budget=nan", r"plan\.budget = NaN should be a finite number"),
        ("plan={target_tokens=1024e3, target_samples=1e3}", "target_samples and target_tokens are mutually exclusive"),
        ("plan.interruptions_per_day=1", "plan.interruptions_per_day was removed; subtract the expected downtime from"),
        ("training={model='gpt2', parallelism={tensor=3}}", "parallelism tensor 3 x pipeline 1 .* set tensor x pip"),
        ("training={parameters=1000000, image_shape=[3,64,64]}", "image_shape and parameters are mutually exclusive"),
    ],
)
def test_plan_rejects_invalid_keys(scenario: str, override: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ringlab.plan(scenario, RATES, override)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("plan.deadline=0.01", "No candidate finishes within 0.01 h. Fastest: 32 x B300 on 4 nodes, AWS "),
        ("plan.budget=0.01", r"No candidate finishes for \$0.01\. Fastest: .*\. Cheapest: "),
    ],
)
def test_plan_without_candidates_names_the_fastest_and_cheapest(scenario: str, override: str, message: str) -> None:
    answer = ringlab.plan(scenario, RATES, override)
    assert not answer.candidates and answer.beyond_limits > 50
    assert re.match(message, answer.advice)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.batch_size=100000", "batch_size 100000 does not fit into B300: it needs .* samples a device fit"),
        ("training.parameters=99_000_000_000", "fit into B300.* not even one sample fits; strategy = .fsdp. shards"),
    ],
)
def test_plan_states_memory_when_no_candidate_fits(scenario: str, override: str, message: str, tmp_path: Path) -> None:
    answer = ringlab.plan(scenario, RATES, override)
    assert not answer.candidates and not answer.beyond_limits
    assert re.match(f"No candidate has enough memory. The closest: .*{message}", answer.advice)
    assert all(row.needed_bytes > row.memory_bytes for row in answer.too_little_memory)
    (table, _) = answer.show()
    assert table.title == "Too little memory" and table.rows[0][0].endswith("B300")
    answer.draw(tmp_path / "plan.png")


def test_llama_70b_is_planned_on_enough_nodes_for_its_memory(scenario: str) -> None:
    job = ["training={model='llama3-70b', batch_size=8, precision='bf16'}"]
    answer = ringlab.plan(scenario, *job, AWS, today=TODAY)
    assert {row.gpus for row in answer.candidates if row.gpu == "H100 SXM"} == {32}
    assert {row.gpus for row in answer.too_little_memory if row.gpu == "H100 SXM"} >= {8, 16}
    single = ringlab.plan(scenario, *job, LAMBDA, today=TODAY)
    assert not single.candidates
    assert re.search(r"no mesh of 8 x B200 fits into memory: each GPU needs 188.* GiB and has 180 GiB", single.advice)


def test_plan_with_only_spot_prices_suggests_spot(scenario: str, tmp_path: Path) -> None:
    heading, *rows = (Path(prices.__file__).parent / "prices.csv").read_text().splitlines()
    at = heading.split(",").index("Price")
    cells = next(row.split(",") for row in rows if row.split(",")[at + 1])
    cells[at] = ""
    mine = tmp_path / "mine.csv"
    mine.write_text(f"{heading}\n{','.join(cells)}\n")
    with pytest.raises(InputError, match="the price list has only spot prices for these providers; pass --spot"):
        ringlab.plan(scenario, RATES, prices=mine)
    assert ringlab.plan(scenario, RATES, prices=mine, spot=True).candidates


def test_target_samples_argument_overrides_target_tokens_of_file(scenario: str) -> None:
    job = ["training.model=gpt2", "training.batch_size=1", NEBIUS]
    tokens = ringlab.plan(scenario, *job, "plan.target_tokens=1024e3")
    samples = ringlab.plan(scenario, *job, target_samples=1000)
    assert (tokens.target_samples, samples.target_tokens) == (1000, 1024e3)


def test_plan_supports_sharded_tensor_and_pipeline_parallelism() -> None:
    """The scenario's epochs define the number of samples. Candidates that cannot have the mesh are omitted."""
    scenario = str(Path(__file__).parents[2] / "examples" / "gpt2_xl.toml")
    job = ["training.epochs=2", "plan.providers=['Vast.ai']"]
    sharded = ringlab.plan(scenario, *job, today=TODAY)
    unsharded = ringlab.plan(scenario, *job, "training.parallelism.strategy=ddp", today=TODAY)
    assert sharded.target_samples == unsharded.target_samples == 2_000_000
    labels = [{row.label for row in answer.candidates} for answer in (sharded, unsharded)]
    assert "4 x A100 40GB SXM, Vast.ai" in labels[0] - labels[1]
    for mesh, least in (("{tensor=4}", 4), ("{pipeline=2, microbatches=8}", 2), ("{strategy='zero1', data=16}", 16)):
        some = ["training.model=gpt2", f"training.parallelism={mesh}", AWS]
        answer = ringlab.plan(scenario, *some, today=TODAY)
        assert answer.candidates and all(row.gpus % least == 0 for row in answer.candidates)


def test_plan_equals_predict_devices_on_the_same_gpus(scenario: str, tmp_path: Path) -> None:
    """Both commands return the same rate and interval. A rate without a GPU is that of the cluster's GPU.

    Several GPUs also store communication buffers, so one H200 has enough memory and eight have not.
    """
    devices = tmp_path / "devices.toml"
    devices.write_text('cluster = {preset = "p5en.48xlarge", nodes = 1, transport = "nccl"}\n[training]\n')
    job = ["training.model=gpt2-xl", "training.batch_size=4", "training.precision=bf16"]
    times = "{forward = '90 ms', backward = '0.2 s', optimizer = '10 ms'}"
    for compute in ('{rate = 12.0, gpu = "A100 80GB SXM"}', "{rate = 12.0}", times, None):
        known = [f"training.compute={compute}"] * (compute is not None)
        row = ringlab.predict_devices(devices, [1], *job, *known).cases[0].rows[0]
        rows = ringlab.plan(devices, *job, NEBIUS, *known, today=TODAY, target_samples=1e8).candidates
        alone = next(row for row in rows if row.gpu.startswith("H200") and row.gpus == 1)
        assert alone.samples_per_s == pytest.approx(row.samples_per_s)
        assert alone.hours_80[1] / alone.hours == pytest.approx(row.interval[1] / row.samples_per_s, rel=0.02)
    job = ["training={model='llama-7b', batch_size=2, precision='bf16', optimizer='sgd', parallelism={strategy='ddp'}}"]
    with pytest.raises(InputError, match=r"does not fit into H200.*: it needs 1\d\d.* GiB, but only 85% of 141 GiB"):
        ringlab.predict_devices(devices, [8], *job)
    answer = ringlab.plan(scenario, *job, NEBIUS, today=TODAY)
    assert {row.gpus for row in answer.too_little_memory if row.gpu == "H200 SXM"} == {8}
    assert {row.gpus for row in answer.candidates if row.gpu == "H200 SXM"} == {1}


@pytest.mark.parametrize(("model", "precision"), [("gpt2", "bf16"), ("resnet50", "fp16")])
def test_plan_names_gpus_without_published_runs(scenario: str, model: str, precision: str) -> None:
    job = [f"training.model={model}", "training.batch_size=8", f"training.precision={precision}"]
    answer = ringlab.plan(scenario, *job, LAMBDA, today=TODAY)
    (note,) = [note for note in answer.notes if "published run" in note]
    named = {*note.removeprefix("no published run is on ").partition(", so predictions")[0].split(", ")}
    assert named < {row.gpu for row in answer.candidates} - {"H100 SXM"}


def test_language_model_is_planned_on_its_fastest_mesh(scenario: str) -> None:
    """Without a mesh in the scenario, more candidates fit, and none is slower."""
    job = ["training.model=llama-7b", "training.batch_size=2", "training.precision=bf16", LAMBDA]
    free, stated = (
        {row.label: row for row in ringlab.plan(scenario, *job, *overrides, today=TODAY).candidates}
        for overrides in ((), ("training.parallelism={strategy='zero1'}",))
    )
    assert free.keys() - stated.keys() and all(row.mesh for row in free.values())
    assert not any(row.mesh for row in stated.values())
    both = free.keys() & stated.keys()
    assert both and all(free[label].samples_per_s > 0.999 * stated[label].samples_per_s for label in both)


def test_plan_is_adapted_to_the_users_runs(scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved runs that took five times as long slow down predictions on their GPU only."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    job = ["training.model=llama-7b", "training.batch_size=1", "training.precision=bf16", LAMBDA]
    before = ringlab.plan(scenario, *job, today=TODAY)
    row = {"layers": 32, "hidden": 4096, "heads": 32, "vocab": 32000, "ffn": 11008, "seq": 4096, "gpus": 8}
    row |= {"sharding": "zero3", "micro_batch": 1, "grad_accum": 4, "gpu": "H100 SXM", "step_s": 20.0}
    OwnRuns(gpu="H100 SXM", framework="torchtitan", rows=[row], source="mine.csv").write()
    after = ringlab.plan(scenario, *job, today=TODAY)
    rates = [{row.label: (row.gpu, row.samples_per_s) for row in answer.candidates} for answer in (before, after)]
    for label, (gpu, rate) in rates[1].items():
        before_it = rates[0][label][1]
        assert rate < 0.9 * before_it if gpu == "H100 SXM" else rate == before_it, label
    assert [note for note in after.notes if "adapted to 1 run on H100 SXM with torchtitan, saved from mine.csv" in note]


def test_plan_supports_models_that_are_not_shipped(scenario: str, tmp_path: Path) -> None:
    """Models can be defined in a Python file next to the scenario, or by the dimensions of a transformer."""
    layers = "torch.nn.Flatten(), torch.nn.Linear(3072, 10)"
    (tmp_path / "mine.py").write_text(f"import torch\n\ndef build():\n    return torch.nn.Sequential({layers})\n")
    options = ["training.model=mine.py:build", "training.image_shape=[3,32,32]", "plan.deadline=1 week", LAMBDA]
    assert ringlab.plan(scenario, *options, today=TODAY).model.endswith("mine.py:build")
    dimensions = "gpt:layers=2,width=64,heads=2,context=32,vocabulary=100"
    assert ringlab.plan(scenario, f"training.model={dimensions}", LAMBDA, today=TODAY).model == dimensions
    with pytest.raises(InputError, match=r"\.toml: training: model .*mine\.py has no function none"):
        ringlab.plan(scenario, "training.model=mine.py:none")


def test_image_shape_requires_a_model_that_can_be_traced(scenario: str) -> None:
    shape = "training.image_shape=[3,64,64]"
    assert ringlab.plan(scenario, "training.model=ResNet-50", shape, LAMBDA, today=TODAY).candidates
    with pytest.raises(InputError, match="training: image_shape cannot be set for model 'GNMT'; remove"):
        ringlab.plan(scenario, "training.model=GNMT", shape)


def test_gpu_profile_and_equal_known_rate_give_the_same_plan(scenario: str, tmp_path: Path) -> None:
    profile = find_model_profile("resnet50")
    none = tuple(0.0 for _ in profile.layers)
    for device in ("Tesla V100-SXM2-16GB", "AMD EPYC"):
        measured = Measured(device, 289, "fp16", none, none, 0.0, 0.0, 0.25, "test")
        replace(profile, measured=(measured,)).write(tmp_path / f"{device[:3]}.json")
    stated, profiled = (
        ringlab.plan(scenario, override, AWS, today=TODAY)
        for override in ("plan.known_rates={V100 = 1156.0}", "plan.profiles=['Tes.json']")
    )
    assert profiled.candidates == stated.candidates
    with pytest.raises(InputError, match=r"AMD\.json: the times were measured on 'AMD EPYC', not on a known GPU"):
        ringlab.plan(scenario, "plan.profiles=['AMD.json']")


def test_published_runs_are_predicted_to_fit_in_memory() -> None:
    """Batches that are accumulated are not checked, because the series do not state the number of micro-batches."""
    smallest: dict[str, float] = {}
    for price in read_prices():
        name = next((ours for start, ours in SERIES_GPUS.items() if price.gpu.startswith(start)), price.gpu)
        smallest[name] = max(smallest.get(name, 0.0), memory_bytes(price.gpu) or 0.0)
    listed = [each for each in read_series() if each.gpu.name in smallest and each.model.startswith(tuple("RBVIS"))]
    listed = [series for series in listed if series.job.batch < 4096]
    assert len(listed) > 80
    for series in listed:
        job, precision = series.job, "fp16" if is_half(series.job.precision) else "float32"
        alone = replace(job, batch=round(job.batch), precision=precision, parallelism=Parallelism(data=1))
        training = Training(alone, Host("any", None, 1, "", 12, 0.0), at_rate(job.model, 1.0))
        needed = predict_trainings([training.alone]).memory["total"]
        assert needed <= smallest[series.gpu.name], series.where
