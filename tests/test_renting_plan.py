"""``ringlab plan``: the answer and its JSON, executors, what is kept, refusals."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ringlab
from collectives.errors import InputError
from collectives.input_files import inputs_protected
from collectives.records.model_profile import Measured, find_model_profile
from collectives.training.parallelism import Parallelism
from ringlab.cli import app
from scenarios.forms import parse_hours
from simcomm.cluster.hardware import memory_bytes
from simcomm.mesh.compute import MEASURED_SPREAD
from simcomm.mesh.intervals import Uncertain
from simcomm.mesh.job import TrainingJob, is_half
from simcomm.mesh.memory import memory_of
from simcomm.mesh_search.runs import OwnRuns
from simcomm.renting import predicting
from simcomm.renting.predicting import scaling_node
from simcomm.renting.quotes import Rate, second_node
from simcomm.renting.rentals import read_rentals
from simcomm.scaling.descriptions import find_scaling_gpu, read_series
from simcomm.scaling.gpu_rates import SERIES_GPUS, GpuRates, series_gpu
from simcomm.scaling.models import even_model, find_model
from simcomm.scaling.one_gpu import YOURS, Alone, guess_together, published

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
AWS, LAMBDA, NEBIUS = (
    f"plan.providers=['{name}']" for name in ("AWS", "Lambda", "Nebius")
)  # where a few machines will do


@pytest.fixture(autouse=True)
def without_break_evens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not search for break-evens, which take most of the time of a plan."""
    monkeypatch.setattr("simcomm.renting.plan.second_node", lambda first, predict: ())


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "rent.toml"
    path.write_text(SCENARIO)
    return str(path)


def test_a_plan_adds_up(scenario: str) -> None:
    answer = ringlab.plan(scenario, RATES, deadline="10 h", spot=True, today=TODAY)
    assert all(one.cost <= other.cost for one, other in pairwise(answer.choices))
    for row in answer.choices:
        assert row.hours * row.samples_per_s * 3600 == pytest.approx(1e8, rel=1e-9)
        assert row.cost == pytest.approx(row.hours * row.price_per_hour, rel=1e-9)
        assert row.cost_80[0] <= row.cost <= row.cost_80[1]
        assert row.hours <= 10.0
    assert {row.market for row in answer.choices} == {"on demand", "spot"}
    alone = {row.gpu: row for row in answer.choices if row.gpus == 1}
    assert alone["H100 SXM"].samples_per_s == pytest.approx(2785.0)
    assert answer.choices[0].front and answer.beyond_limits > 0
    assert "84 of 102 are or may be older than 90 days" in answer.notes[0]
    json.dumps(answer.to_dict(), allow_nan=False)


def test_types_of_gpu_are_wrong_together_as_far_as_they_are() -> None:
    job = TrainingJob(find_model("ResNet-50"), 256.0, precision="fp16")
    names = ["V100 SXM2 16GB", "A100 40GB SXM", "RTX 4090"]
    found = GpuRates(job, {}, names)
    boards = [find_scaling_gpu(series_gpu(name)) for name in sorted(names, key=series_gpu)]
    rates, covariance = guess_together(published(), [Alone(job, board, YOURS) for board in boards])
    for place, board in enumerate(boards):
        one = found.rate(board.name)
        assert (one.median, one.spread) == pytest.approx((rates[place].rate, rates[place].spread))
        for other, second in enumerate(boards):
            apart = covariance[place, place] + covariance[other, other] - 2 * covariance[place, other]
            assert one.over(found.rate(second.name)).spread ** 2 == pytest.approx(apart, abs=1e-6)
    measured = GpuRates(job, {"V100": 1000.0}, names)
    assert measured.rate("V100 SXM2 32GB") == Uncertain(1000.0, {"one V100": MEASURED_SPREAD})
    assert measured.rate("A100 40GB SXM").spread < found.rate("A100 40GB SXM").spread
    mine = TrainingJob(even_model("mine", 10), 1.0, precision="fp16")
    with pytest.raises(InputError, match="nothing is known of mine but its size: measure one GPU"):
        GpuRates(mine, {}, names).rate("RTX 4090")
    small, large = (GpuRates(mine, {"V100": rate}, names).rate("A100 40GB SXM").median for rate in (5.0, 5000.0))
    assert large / small == pytest.approx(1000.0)
    assert 5.0 < small < 20.0


def test_machines_are_joined_as_they_are_sold() -> None:
    nodes = {one.instance: scaling_node(one) for one in read_rentals()}
    assert (nodes["p3.16xlarge"].link, nodes["p3.16xlarge"].nic_GBps) == ("cube_v100", 3.125)
    assert nodes["4x-RTX_4090-32-65536"].kind == "host"
    assert nodes["n3-H100x8"].kind == "pcie"
    assert nodes["p6-b200.48xlarge"].bandwidth(8) > 1.5 * nodes["p5.48xlarge"].bandwidth(8)


def test_what_to_measure_first_is_worked_out(scenario: str) -> None:
    """A large training is worth ten minutes of measuring, a small one is not; where the rates are known, none is."""
    large = ringlab.plan(scenario, "plan.target_samples=1e11", LAMBDA)
    assert large.measure_first is not None
    assert large.measure_first.saves > large.measure_first.costs
    assert large.measure_first.uncertainty_after < large.measure_first.uncertainty_before
    assert ringlab.plan(scenario, "plan.target_samples=1e4", LAMBDA).measure_first is None


def test_what_is_kept_is_not_predicted_again(scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "rates.jsonl"
    first = ringlab.plan(scenario, RATES, AWS, kept=kept, today=TODAY)
    lines = kept.read_text().splitlines()
    kept.write_text("\n".join(lines[:-3]) + "\n" + lines[-1][:20])  # killed while it wrote, in the middle of a line
    asked = list[predicting.RateQuestion]()

    def counted(block: list[predicting.RateQuestion]) -> list[Rate]:
        asked.extend(block)
        return [question.answer() for question in block]

    monkeypatch.setattr(predicting, "answer_all", counted)
    with inputs_protected():  # as in each command
        again = ringlab.plan(scenario, RATES, AWS, kept=kept, today=TODAY)
    assert (len(asked), again.choices) == (3, first.choices)
    assert sorted(kept.read_text().splitlines()) == sorted(lines)
    with ThreadPoolExecutor(1) as executor:
        assert ringlab.plan(scenario, RATES, AWS, executor=executor, today=TODAY).choices == first.choices
    spot = tmp_path / "spot.jsonl"
    sold = ringlab.plan(scenario, RATES, NEBIUS, spot=True, kept=spot, today=TODAY).choices
    keys = [json.loads(line)["key"] for line in spot.read_text().splitlines()]
    assert len({*keys}) == len(keys) < len(sold)  # machines at two prices are one question
    for other in ('{"key": "a"}\n', "no rates\nand no end of a line"):
        kept.write_text(other)
        with pytest.raises(InputError, match=r"rates.jsonl, line 1: .* is no rate of a plan"):
            ringlab.plan(scenario, RATES, kept=kept)
        assert kept.read_text() == other, "what is no file of rates stays as it is"


def test_an_interrupt_keeps_what_is_done(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def some(function: object, tasks: list[list[predicting.RateQuestion]], executor: object) -> Iterator[Any]:
        yield 0, predicting.answer_all(tasks[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(predicting, "BLOCK", 20)
    monkeypatch.setattr(predicting, "in_any_order", some)
    answer = ringlab.plan(scenario, RATES)
    assert answer.interrupted and len(answer.choices) == 20


def test_the_command(scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcomm.renting.plan.second_node", second_node)
    picture, found = tmp_path / "plan.svg", tmp_path / "plan.json"
    options = ["--set", RATES, "--budget", "100", "--deadline", "12h", "--plot", str(picture), "--json", str(found)]
    done = CliRunner().invoke(app, ["plan", scenario, *options])
    assert done.exit_code == 0, done.output
    answer = json.loads(found.read_text())
    assert (answer["kind"], answer["budget"], answer["deadline_hours"]) == ("plan", 100.0, 12.0)
    assert answer["advice"] in done.output
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "training.batch_size=100000",
            r"\.toml: training: batch_size 100000 does not fit into B300, the largest GPU that is for sale: it takes",
        ),
        (
            "training.parameters=99_000_000_000",
            "B300, the largest GPU that is for sale.* not one sample fits: form = .fsdp. divides the states",
        ),
        ("plan.deadline=0.01", "nothing is done within 0.6 min: the soonest is"),
        ("plan.budget=0.01", r"nothing is done for \$0.01: the cheapest is"),
        ("plan.known_rates={H900 = 1.0}", r"\.toml: plan.known_rates: 'H900' is no GPU of the catalogue; did you mean"),
        ("plan.providers=['Ours']", "plan.providers: unknown provider 'Ours'; there are AWS, "),
        ("plan.providers=['Lamda']", "plan.providers: unknown provider 'Lamda'; did you mean Lambda"),
        ("training.model=resnet51", r"\.toml: training: model 'resnet51' is not known; did you mean "),
        ("plan.deadline=soon", "plan.deadline: invalid duration 'soon'"),
        ("plan.target_samples=0", "plan.target_samples = 0 should be greater than 0"),
    ],
)
def test_refusals(scenario: str, override: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ringlab.plan(scenario, RATES, override)


def test_a_deadline_that_is_none_is_named(scenario: str) -> None:
    with pytest.raises(InputError, match="--deadline: invalid duration 'soon'; write for example '12 h'"):
        ringlab.plan(scenario, RATES, deadline="soon")
    assert [parse_hours(text) for text in ("1 week", "2 weeks", "30 minutes", "1 d")] == [168.0, 336.0, 0.5, 24.0]


def test_a_training_is_planned_in_every_form_that_devices_know() -> None:
    """The samples are those of its epochs; machines on which the mesh cannot be made are not chosen."""
    scenario = str(Path(__file__).parent.parent / "examples" / "gpt2_xl.toml")
    job = ["training.epochs=2", "plan.providers=['Vast.ai']"]
    sharded = ringlab.plan(scenario, *job, today=TODAY)
    whole = ringlab.plan(scenario, *job, "training.parallelism.form=ddp", today=TODAY)
    assert sharded.target_samples == whole.target_samples == 2_000_000
    assert "4 x A100 40GB SXM, Vast.ai" in {row.label for row in sharded.choices} - {row.label for row in whole.choices}
    for mesh, least in (("{tensor=4}", 4), ("{pipeline=2, microbatches=8}", 2), ("{form='zero1', data=16}", 16)):
        some = ["training.model=gpt2", f"training.parallelism={mesh}", AWS]
        found = ringlab.plan(scenario, *some, today=TODAY)
        assert found.choices and all(row.gpus % least == 0 for row in found.choices)
    with pytest.raises(InputError, match=r"training: parallelism is data rest x tensor 3 .* give tensor x pipeline"):
        ringlab.plan(scenario, "training.model=gpt2", "training.parallelism={tensor=3}")
    with pytest.raises(InputError, match=r"training\.parallelism: form 'nothing' is not known"):
        ringlab.plan(scenario, "training.parallelism.form=nothing")


def test_one_gpu_does_what_it_does_on_devices(scenario: str, tmp_path: Path) -> None:
    """One rate with one interval, whichever command is asked; a rate of ``compute`` is a known one."""
    job = ["training.model=gpt2-xl", "training.batch_size=4", "training.precision=bf16", NEBIUS]
    devices = tmp_path / "devices.toml"
    devices.write_text('cluster = {preset = "p5en.48xlarge", nodes = 1, transport = "nccl"}\n[training]\n')
    for known in ([], ['training.compute={rate = 12.0, gpu = "A100 80GB SXM"}']):
        row = ringlab.predict_devices(devices, [1], *job[:-1], *known).cases[0].rows[0]
        alone = next(
            one for one in ringlab.plan(scenario, *job, *known, today=TODAY).choices if one.gpu.startswith("H200")
            and one.gpus == 1
        )  # fmt: skip
        assert alone.samples_per_s == pytest.approx(row.samples_per_s)
        assert alone.hours_80[1] / alone.hours == pytest.approx(row.interval[1] / row.samples_per_s, rel=0.02)


def test_machines_are_refused_for_their_memory_as_devices_are(scenario: str, tmp_path: Path) -> None:
    """Several GPUs keep what is exchanged too: what one H200 has memory for, eight of them do not."""
    job = ["training.model=llama-7b", "training.batch_size=2", "training.precision=bf16", "training.optimizer=adamw"]
    job.append("training.parallelism={form='ddp'}")
    found = ringlab.plan(scenario, *job, NEBIUS, today=TODAY)
    devices = tmp_path / "devices.toml"
    devices.write_text('cluster = {preset = "p5en.48xlarge", nodes = 1, transport = "nccl"}\n[training]\n')
    with pytest.raises(InputError, match=r"does not fit into H200.*: it takes 1\d\d.* GiB of 141 GiB"):
        ringlab.predict_devices(devices, [8], *job, "training.compute={rate=10.0}")
    assert "H200" in " ".join(found.does_not_fit)
    assert not any(row.gpu.startswith("H200") and row.gpus > 1 for row in found.choices)
    assert any(row.gpu.startswith("B200") for row in found.choices)


def test_a_language_model_is_planned_on_the_fastest_mesh_of_each_choice(scenario: str) -> None:
    """What no mesh is stated for is searched: more fits, and nothing is slower than a mesh that is stated."""
    job = ["training.model=llama-7b", "training.batch_size=2", "training.precision=bf16", LAMBDA]
    free, stated = (
        {row.label: row for row in ringlab.plan(scenario, *job, *given, today=TODAY).choices}
        for given in ((), ("training.parallelism={form='zero1'}",))
    )
    assert free.keys() - stated.keys() and all(row.mesh for row in free.values())
    assert not any(row.mesh for row in stated.values())
    both = free.keys() & stated.keys()
    assert both and all(free[one].samples_per_s > 0.999 * stated[one].samples_per_s for one in both)


def test_runs_of_ones_own_are_planned_by(scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that took five times as long, by the only framework of which any are kept, slow their GPU and no other."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    job = ["training.model=llama-7b", "training.batch_size=1", "training.precision=bf16", LAMBDA]
    before = ringlab.plan(scenario, *job, today=TODAY)
    row = {"layers": 32, "hidden": 4096, "heads": 32, "vocab": 32000, "ffn": 11008, "seq": 4096, "gpus": 8}
    row |= {"sharding": "zero3", "micro_batch": 1, "grad_accum": 4, "gpu": "H100 SXM", "step_s": 20.0}
    OwnRuns(gpu="H100 SXM", framework="torchtitan", rows=[row], source="mine.csv").write()
    after = ringlab.plan(scenario, *job, today=TODAY)
    rates = [{one.label: (one.gpu, one.samples_per_s) for one in found.choices} for found in (before, after)]
    for label, (gpu, rate) in rates[1].items():
        before_it = rates[0][label][1]
        assert rate < 0.9 * before_it if gpu == "H100 SXM" else rate == before_it, label
    assert [one for one in after.notes if "adapted: 1 run on H100 SXM by torchtitan, kept from mine.csv" in one]


def test_models_that_are_not_shipped_are_planned(scenario: str, tmp_path: Path) -> None:
    """One of a file, which is beside the scenario, and a transformer by its dimensions."""
    layers = "torch.nn.Flatten(), torch.nn.Linear(3072, 10)"
    (tmp_path / "mine.py").write_text(f"import torch\n\ndef build():\n    return torch.nn.Sequential({layers})\n")
    options = ["training.model=mine.py:build", "training.image_shape=[3,32,32]", "plan.deadline=1 week", LAMBDA]
    assert ringlab.plan(scenario, *options, today=TODAY).model.endswith("mine.py:build")
    dimensions = "gpt:layers=2,width=64,heads=2,context=32,vocabulary=100"
    assert ringlab.plan(scenario, f"training.model={dimensions}", LAMBDA, today=TODAY).model == dimensions
    with pytest.raises(InputError, match=r"\.toml: training: model .*mine\.py has no function none"):
        ringlab.plan(scenario, "training.model=mine.py:none")


def test_an_image_shape_is_of_a_model_that_can_be_followed(scenario: str) -> None:
    small = [
        ringlab.plan(scenario, f"training.model={name}", "training.image_shape=[3,64,64]", LAMBDA, today=TODAY)
        for name in ("resnet50", "ResNet-50")
    ]
    assert small[0].model == small[1].model == "resnet50"
    assert small[0].choices == small[1].choices
    for name in ("GNMT", "BERT-base", "gpt2-xl"):
        with pytest.raises(InputError, match=f"training: image_shape cannot be set for model '{name}'"):
            ringlab.plan(scenario, f"training.model={name}", "training.image_shape=[3,64,64]")
    with pytest.raises(InputError, match=r"training: image_shape and parameters are mutually exclusive"):
        ringlab.plan(scenario, "training.parameters=1000000", "training.image_shape=[3,64,64]")


def test_a_profile_of_one_gpu_is_as_good_as_its_rate(scenario: str, tmp_path: Path) -> None:
    profile = find_model_profile("resnet50")
    none = tuple(0.0 for _ in profile.layers)
    for device in ("Tesla V100-SXM2-16GB", "AMD EPYC"):
        measured = Measured(device, 289, "fp16", none, none, 0.0, 0.0, 0.25, "test")
        replace(profile, measured=(measured,)).write(tmp_path / f"{device[:3]}.json")
    stated, profiled = (
        ringlab.plan(scenario, given, AWS, today=TODAY)
        for given in ("plan.known_rates={V100 = 1156.0}", "plan.profiles=['Tes.json']")
    )
    assert profiled.choices == stated.choices
    with pytest.raises(InputError, match=r"AMD\.json: its times are of 'AMD EPYC', which is no GPU"):
        ringlab.plan(scenario, "plan.profiles=['AMD.json']")


@pytest.mark.parametrize("given", [{"budget": float("nan")}, {"budget": -1.0}, {"target_samples": float("inf")}])
def test_numbers_that_are_none(scenario: str, given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"--{next(iter(given)).replace('_', '-')} is"):
        ringlab.plan(scenario, **given)


def test_no_published_training_is_refused_as_too_large() -> None:
    """What ran fits; but for batches that are accumulated, of which the series do not say the pieces."""
    smallest: dict[str, float] = {}
    for one in read_rentals():
        name = next((ours for start, ours in SERIES_GPUS.items() if one.gpu.startswith(start)), one.gpu)
        smallest[name] = max(smallest.get(name, 0.0), memory_bytes(one.gpu) or 0.0)
    checked = 0
    for series in read_series():
        job = series.job
        if series.gpu.name in smallest and job.batch < 4096 and series.model.startswith(("R", "B", "V", "I", "S")):
            precision = "fp16" if is_half(job.precision) else "float32"
            alone = replace(job, batch=round(job.batch), precision=precision, parallelism=Parallelism(data=1))
            assert memory_of(alone)[0].total <= smallest[series.gpu.name], series.where
            checked += 1
    assert checked > 80
