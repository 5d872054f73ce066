"""One GPU from its data sheet and from others: what is known moves what is not, and what is held out is not seen."""

import runpy
from collections.abc import Mapping
from dataclasses import replace
from math import exp, inf
from pathlib import Path

import pytest

from benchmarks.accuracy.series import read_series
from benchmarks.studies.one_gpu_fit import Likelihood, fit_process, seen_rates
from benchmarks.studies.one_gpu_left_out import judge_one_gpu
from collectives.records.model_profile import Measured, find_model_profile
from planner.gpus import Gpu, find_gpu, find_series_gpu
from planner.jobs import Job, even_model, find_model
from planner.one_gpu import YOURS, Alone, OneGpuRate, guess_rates, make_columns, published, read_process
from planner.rates import GpuRates, find_compute
from simcomm.cluster.hardware import parts

JOB = Job(find_model("ResNet-50"), 256.0, precision="fp16")


def one_gpu_rate(job: Job, gpu: str | Gpu, known: Mapping[str, float] | None = None) -> OneGpuRate:
    """Return the estimated rate of one GPU, given rates of the same job on other GPU types."""
    rows = [Alone(job, find_series_gpu(name), YOURS, rate) for name, rate in (known or {}).items()]
    board = find_series_gpu(gpu) if isinstance(gpu, str) else gpu
    return guess_rates([*published(), *rows], [Alone(job, board, YOURS)])[0]


def test_known_rates_change_the_estimated_rate_of_another_gpu() -> None:
    """Halving all known rates almost halves the estimate. Published rates of the model hold it back a little."""
    known = {"A100-80": 1582.0, "H100 SXM": 2785.0, "RTX 4090": 1301.0, "V100": 833.0, "RTX 3090": 905.0}
    once = one_gpu_rate(JOB, "H100 PCIe", known)
    half = one_gpu_rate(JOB, "H100 PCIe", {name: rate / 2 for name, rate in known.items()})
    assert half.rate / once.rate == pytest.approx(0.5, abs=0.06)
    assert once.rate == pytest.approx(1866, rel=0.15)  # as published (Lambda, fp16)
    assert once.spread < one_gpu_rate(JOB, "H100 PCIe").spread


def test_estimated_rate_rises_with_watts_and_a_faster_framework() -> None:
    board = find_series_gpu("RTX 6000 Ada")._replace(name="another")
    less, more = (one_gpu_rate(JOB, board._replace(watts=watts)).rate for watts in (200.0, 450.0))
    assert more > 1.1 * less
    slow, fast = (one_gpu_rate(replace(JOB, framework=name), "A100").rate for name in ("PyTorch", "NGC MXNet"))
    assert fast > 1.2 * slow


def test_memory_bound_model_gains_more_from_memory_bandwidth() -> None:
    board = find_series_gpu("A100")._replace(name="another")
    twice = board._replace(memory_rate=2 * board.memory_rate)
    gains = []
    for flops, written in ((1e9, 1e9), (1e12, 1e6)):
        job = Job(even_model("mine", 10_000_000, flops, written), 64.0, precision="fp16")
        gains.append(one_gpu_rate(job, twice).rate / one_gpu_rate(job, board).rate)
    assert gains[0] > 1.1 * gains[1] > 1.1


def test_rate_of_a_similar_model_has_more_influence() -> None:
    """A lower rate of BERT-base with 384 tokens lowers that with 128 tokens more than a rate of BERT-large does."""
    ratios = {}
    for name in ("BERT-base-384", "BERT-large-384"):
        job, board = Job(find_model(name), 32.0, precision="fp16"), find_series_gpu("A100")
        jobs = [Alone(Job(find_model("BERT-base-128"), 32.0, precision="fp16"), board, "unknown")]
        once, half = (guess_rates([*published(), Alone(job, board, "mine", rate)], jobs) for rate in (400.0, 200.0))
        ratios[name] = half[0].rate / once[0].rate
    assert ratios["BERT-base-384"] < ratios["BERT-large-384"] < 1
    rows = [Alone(Job(JOB.model, 32.0, precision=how), find_series_gpu(name), "mine") for how, name in
            (("fp32", "V100"), ("fp32", "A100"), ("fp32", "H100 SXM"), ("fp16", "A100"))]  # fmt: skip
    assert make_columns(rows).words["arithmetic"].tolist() == ["whole", "tf32", "tf32", "half"]


def test_likelihood_gradient_equals_finite_differences() -> None:
    likelihood, values = Likelihood(published()[::4]), dict(read_process())
    _, slopes = likelihood(values)
    assert slopes.keys() == values.keys()
    for name, value in values.items():
        above, below = (likelihood({**values, name: value * exp(by)})[0] for by in (1e-5, -1e-5))
        assert slopes[name] == pytest.approx((above - below) / 2e-5, rel=1e-4, abs=1e-4), name


def test_shipped_gpu_rate_model_equals_a_new_fit() -> None:
    rows = seen_rates()
    assert fit_process(rows, steps=3, pinned={"watts": 0.0})["watts"] == 0.0
    fit = fit_process(rows)
    for name, value in read_process().items():
        assert value == pytest.approx(fit[name], rel=0.02), name


def test_gpu_is_predicted_from_the_rates_of_other_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the fit nor the estimate sees rates of the evaluated GPU type."""
    seen, fitted = list[set[str]](), list[set[str]]()

    def spy(rows: list[Alone], jobs: list[Alone], process: object) -> object:
        seen.append({row.gpu.name for row in rows} & {row.gpu.name for row in jobs})
        assert not fitted[-1] & {row.gpu.name for row in jobs}
        return guess_rates(rows, jobs)

    def spy_fit(rows: list[Alone], *_: object, **__: object) -> None:
        fitted.append({row.gpu.name for row in rows})

    monkeypatch.setattr("benchmarks.studies.one_gpu_left_out.guess_rates", spy)
    monkeypatch.setattr("benchmarks.studies.one_gpu_left_out.fit_process", spy_fit)
    scores = judge_one_gpu(read_series(), refit=True)
    assert not set().union(*seen) and len(seen) > 12 and len(fitted) > 8
    assert scores["data_sheet"].n == 242
    assert scores["same_job"].median is not None and scores["data_sheet"].median is not None
    assert scores["same_job"].median < scores["data_sheet"].median


def test_profile_of_a_gpu_changes_rates_of_other_gpus() -> None:
    """Doubling the measured rate raises every prediction. The measured type is not among the rows."""
    script = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "other_gpus.py"))
    rows = []
    for seconds in (0.25, 0.125):
        profile = find_model_profile("resnet50")
        none = tuple(0.0 for _ in profile.layers)
        measured = Measured("Tesla V100-SXM2-16GB", 289, "fp16", none, none, 0.0, 0.0, seconds, "test")
        rows.append(script["compare"](replace(profile, measured=(measured,)), "mine.json"))
    slow, fast = rows
    assert {row.gpu for row in slow} >= {"RTX 4090", "H100 SXM"} and "V100" not in {row.gpu for row in slow}
    assert all(1.3 < two.predicted / row.predicted < 2.1 for row, two in zip(slow, fast, strict=True))
    assert all(row.low < row.predicted < row.high for row in slow)
    stated = {row.gpu: row for row in slow if row.published is not None}
    assert stated["RTX 4090"].error == pytest.approx(stated["RTX 4090"].predicted / stated["RTX 4090"].published - 1)


def test_each_gpu_of_the_catalog_has_a_rate() -> None:
    rates = GpuRates(JOB, {}, parts("GPU"))
    widest = max(rates.rate(gpu).spread for gpu in parts("GPU") if not gpu.startswith("MI"))
    for gpu in parts("GPU"):
        assert find_gpu(gpu).memory_bytes < inf and rates.rate(gpu).rate > 0
        assert rates.rate(gpu).spread > (1.3 * widest if gpu.startswith("MI") else 0.15)


@pytest.mark.parametrize(("gpu", "is_seen"), [("V100 SXM2", True), ("RTX 3060", False), ("MI300X", False)])
def test_rate_source_states_when_no_run_on_the_gpu_is_published(gpu: str, is_seen: bool) -> None:
    source = find_compute(JOB, gpu).source
    assert (f"no published run is on {gpu}" in source) is not is_seen
