"""``python -m benchmarks.accuracy --training``: its JSON, and that what is held out is held out."""

import json
from dataclasses import replace
from math import log
from pathlib import Path

import numpy as np
import pytest
from command_line import Ringlab

from benchmarks.accuracy.training import BASELINES, accuracy_training, judge_frozen, seen_series
from benchmarks.studies.scaling_columns import make_points, predict_steps
from benchmarks.studies.scaling_fit import fit_parameters
from benchmarks.studies.scaling_left_out import judge_held_out
from benchmarks.studies.scaling_limits import held_if_exact, other_frameworks
from benchmarks.studies.scaling_widths import fit_widths
from collectives.errors import InputError
from planner.mesh.intervals import COVERAGES, SHAPE, Shares, log_halfwidth, unsure
from planner.mesh.terms import read_parameters
from planner.scaling import TrainingJob, find_model, predict_rate
from planner.scaling.descriptions import OWN_DATA, Point, read_series

ROOT = Path(__file__).parents[2]
MADE = TrainingJob(find_model("ResNet-50"), 256.0, precision="fp16")
DECODED = replace(MADE, loader="decode")


def test_the_json_has_the_keys_that_are_promised(accuracy_of: Ringlab, tmp_path: Path) -> None:
    """By frozen parameters, of a file of others: here the project's own, as if it were another's."""
    text = (OWN_DATA / "series_described.toml").read_text(encoding="utf-8")
    (tmp_path / "series_described.toml").write_text(text)
    done = accuracy_of("--training", "--data", tmp_path, "--json", tmp_path / "out.json")
    assert done.status == 0, done.err
    assert "parameter server " in done.out and "no exchange " in done.out  # no word of a table is broken
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["points"].keys() == {"all", "hard"} and found["baselines"].keys() == {*BASELINES}
    assert (found["points"]["all"]["n"], found["points"]["hard"]["n"], found["series"]) == (594, 151, 252)
    assert {"n", "median", "p90", "within15", "coverage80"} <= found["points"]["hard"].keys()
    for errors in found["baselines"].values():
        assert all(errors[what].keys() == {"median", "p90"} for what in ("all", "hard"))
        assert errors["hard"]["median"] > found["points"]["hard"]["median"]
    linear = np.array([1 / (1 + found["baselines"]["linear"]["hard"]["median"]) < 0.9])
    assert linear.all()


def test_held_out_source_does_not_change_its_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half its published throughputs on several GPUs: the refit without it predicts as before."""
    own = [one for one in read_series() if one.source.startswith(("tf_", "tensorpack", "dle_pt_txl"))]
    spoilt = [
        replace(one, points=(one.points[0], *(Point(p.gpus, p.nodes, p.rate / 2) for p in one.points[1:])))
        if one.source == "tf_gce_k80" else one
        for one in own
    ]  # fmt: skip
    before, after = (judge_held_out(series, lambda *_: None) for series in (own, spoilt))
    rows = np.array([source == "tf_gce_k80" for source in before.keys["source"]])
    assert after.predicted[rows] == pytest.approx(before.predicted[rows], rel=1e-9)
    assert after.predicted[~rows] != pytest.approx(before.predicted[~rows], rel=1e-3)
    for name in BASELINES:
        assert after.baselines[name][rows] == pytest.approx(before.baselines[name][rows], rel=1e-6)


def test_a_fit_finds_the_parameters_that_made_the_rates() -> None:
    """Rates that the model itself made with other parameters: the fit comes near to what they say."""
    series = [one for one in read_series() if one.source in ("lambda_bench_v1", "dlperf_v1")]
    truth = read_parameters().changed({"process_ms": 100.0, "copy_passes": 30.0})
    points = make_points(series)
    made = replace(points, rate=predict_steps(points, truth)[0])
    found = fit_parameters(made, read_parameters())
    errors = np.abs(predict_steps(made, found)[0] / made.rate - 1)
    assert np.quantile(errors, 0.9) < 0.01
    assert found["process_ms"] == pytest.approx(100.0, rel=0.2)


def test_intervals_are_as_wide_as_errors_were() -> None:
    """Of errors with a known law, intervals hold as often as is stated: of small and large losses and on networks."""
    rng = np.random.default_rng(3)
    shares = Shares(rng.uniform(0, 0.6, 8000) ** 2, rng.uniform(0, 0.02, 8000), network=rng.integers(0, 2, 8000))
    truth = {"floor": 0.005, "exchange": 0.3, "power": 0.7, "stragglers": 0.67, "others": 1.0}
    errors = rng.standard_t(3, 8000) * unsure(shares, truth)
    widths = fit_widths(errors, shares, ["one"] * len(errors), np.full(len(errors), True))
    assert widths.shape["power"] == pytest.approx(0.7, rel=0.1)
    for coverage in COVERAGES:
        held = np.abs(errors) <= log_halfwidth(shares, coverage, widths)
        assert held.mean() == pytest.approx(coverage, abs=0.001)
        for rows in (shares.exchange < 0.05, shares.exchange > 0.2, shares.network > 0):
            assert held[rows].mean() == pytest.approx(coverage, abs=0.025)


def test_intervals_are_wider_without_the_source() -> None:
    """Only one of two sources exchanges, and is off by three times what is expected of an exchange beforehand."""
    rng = np.random.default_rng(4)
    exchange, sources = np.repeat([0.5, 0.0], 400), np.repeat(["exchanges", "does not"], 400)
    shares = Shares(exchange)
    usual = {name: value for name, (value, _) in SHAPE.items()}
    errors = rng.standard_t(3, 800) * unsure(shares, {**usual, "exchange": 3 * usual["exchange"]})
    as_one, as_two = (fit_widths(errors, shares, names, sources == "exchanges") for names in (["one"] * 800, sources))
    assert as_two.shape == as_one.shape
    assert as_two.quantiles[0.9] > 1.4 * as_one.quantiles[0.9]


def test_intervals_hold_what_scales_badly() -> None:
    """Hard points err three times as much as others, in units of what is unsure: their errors say how wide."""
    rng = np.random.default_rng(5)
    shares, hard = Shares(np.full(4000, 0.3)), rng.uniform(size=4000) < 0.2
    errors = rng.standard_t(3, 4000) * np.where(hard, 0.3, 0.1)
    widths = fit_widths(errors, shares, ["one"] * 4000, hard)
    for coverage in COVERAGES:
        held = np.abs(errors) <= log_halfwidth(shares, coverage, widths)
        assert held[hard].mean() == pytest.approx(coverage, abs=0.01)
        assert held[~hard].mean() > coverage + 0.05


def test_what_is_unsure_grows_with_each_of_what_a_step_rests_on() -> None:
    lost = unsure(Shares(np.array([0.0, 0.1, 0.5])))
    assert (np.diff(lost) > 0).all()
    for more in ({"loaders": 0.5}, {"unequal": 0.1}, {"stragglers": 0.1}, {"network": 1.0}):
        assert unsure(Shares(0.1, **more)) > lost[1]
    slow, fast = (predict_rate(job, "dlperf", 8, 1, 1400.0, gpu="V100") for job in (DECODED, MADE))
    assert slow.rests_on.loaders > 0.5 and fast.rests_on.loaders == 0.0
    assert log(slow.interval()[1] / slow.rate) > log(fast.interval()[1] / fast.rate)
    inside, between = (predict_rate(MADE, "dlperf", 8, nodes, 1400.0, gpu="V100").rests_on for nodes in (1, 2))
    assert between.network and not inside.network


def test_shipped_parameters_are_what_the_fit_gives() -> None:
    found = fit_parameters(make_points(seen_series()))
    for name, value in read_parameters().items():
        assert value == pytest.approx(found[name], rel=0.02), name


SERIES = """
[links.mine]
"1" = {busbw}
[nodes.box]
gpus = 8
link = "mine"
cores = {cores}
nic_GBps = {busbw}
[gpus.X]
fp32 = {tflops}
memory_GBps = {tflops}
year = 2020
[[series]]
source = "mine"
system = "box"
model = "ResNet-50"
precision = "{precision}"
gpu = "X"
node = "box"
batch = {batch}
grad_bytes = 4
sync = "{sync}"
loader = "{loader}"
ps_paths = 1
points = [[1, 1, {rate}], [8, 1, {rates}], [16, 2, {rates}]]
"""
USUAL = {"busbw": 10.0, "cores": 8, "tflops": 10.0, "batch": 64.0, "rate": 100.0, "rates": 700.0}
LEAST, MOST = 1e-9, 1e15
WORDS = {"precision": "fp32", "sync": "ddp", "loader": "decode"}


SYNCS = ["ddp", "after", "ps", "none"]
LIMITS = [
    pytest.param(key, sync, marks=[pytest.mark.slow] * ((row - column) % len(SYNCS) > 0))  # each key, each sync once
    for row, key in enumerate(USUAL)
    for column, sync in enumerate(SYNCS)
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("key", "sync"), LIMITS)
def test_figures_at_their_limits_have_finite_answers(key: str, sync: str, tmp_path: Path) -> None:
    for value in (1, 1_000_000) if key == "cores" else (LEAST, 1e8 if key == "busbw" else MOST):
        for rate in (LEAST, MOST):
            text = SERIES.format(**{**USUAL, **WORDS, "sync": sync, "rate": rate, key: value})
            (tmp_path / "series_described.toml").write_text(text)
            answer = accuracy_training(tmp_path)
            json.dumps(answer.to_dict(), allow_nan=False)
            assert np.isfinite(answer.judged.predicted).all()


def test_errors_of_any_size_find_room_in_a_table(tmp_path: Path, accuracy_of: Ringlab) -> None:
    (tmp_path / "series_described.toml").write_text(SERIES.format(**{**USUAL, **WORDS, "rates": LEAST}))
    done = accuracy_of("--training", "--data", tmp_path)
    assert done.status == 0, done.err
    (row,) = (line for line in done.out.splitlines() if line.startswith(" all "))
    assert row.count("e+") == 3  # median, nine in ten, bias


def test_what_is_odd_about_series_is_said(tmp_path: Path) -> None:
    text, more = SERIES.format(**{**USUAL, **WORDS, "precision": "fp7"}), []
    for again in range(5):
        more.append(text[text.index("[[series]]") :].replace("fp7", f"fp{7 + again}"))
    (tmp_path / "series_described.toml").write_text(text + more[0])
    again = "1 series stand there again, and count again"
    assert accuracy_training(tmp_path).notes == (again, "precision 'fp7' is not known, and taken as float32")
    (tmp_path / "series_described.toml").write_text(text + "".join(more[1:]))
    (*_, unknown) = accuracy_training(tmp_path).notes
    named = "'fp10', 'fp11', 'fp7', 'fp8', 'fp9'"
    assert unknown == f"precisions {named} are not known, and taken as float32"


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--held-out applies to the series that Ringlab ships"):
        accuracy_training(tmp_path, only_held_out=True)
    with pytest.raises(InputError, match=r"series_described\.toml"):
        accuracy_training(tmp_path)


def test_other_frameworks_say_how_a_job_scales_on_their_machine() -> None:
    """Three frameworks at efficiencies of 0.5, 0.6 and 0.8: each is told by the middle of the other two."""
    one = next(series for series in read_series() if series.source == "dlperf_v1" and len(series.points) > 1)
    rates = {"PyTorch": 0.5, "MXNet": 0.6, "OneFlow": 0.8}
    same = [
        replace(one, job=replace(one.job, framework=name), points=(Point(1, 1, 100.0), Point(8, 1, 800.0 * efficiency)))
        for name, efficiency in rates.items()
    ]
    assert other_frameworks(make_points(same)) == pytest.approx([560.0, 520.0, 440.0])
    assert np.isnan(other_frameworks(make_points(same[:2]))).all()
    larger = replace(same[2], job=replace(same[2].job, batch=2 * one.job.batch))
    assert np.isnan(other_frameworks(make_points([*same[:2], larger]))).all()
    again = [*same[:2], replace(same[1])]
    assert np.isnan(other_frameworks(make_points(again))[1:]).all()  # of its own framework nothing is learned


def test_exact_intervals_contain_fewer_hard_points_than_all() -> None:
    """All points are predicted at 0.95 of linear, so that those which come out hard are the unlucky ones."""
    rng = np.random.default_rng(5)
    judged = judge_frozen(read_series())
    count = len(judged.measured)
    half = {0.5: np.full(count, 0.0674), 0.8: np.full(count, 0.1282), 0.9: np.full(count, 0.1645)}
    predicted = 0.95 * judged.keys["linear"]
    measured = predicted * np.exp(0.1 * rng.standard_normal(count))
    low, high = ({coverage: predicted * np.exp(sign * one) for coverage, one in half.items()} for sign in (-1, 1))
    hard = measured < 0.9 * judged.keys["linear"]
    made = replace(judged, predicted=predicted, measured=measured, low=low, high=high)
    for coverage in (0.5, 0.8, 0.9):
        expected = made.take(hard).held(coverage).mean()
        assert held_if_exact(made, coverage) == pytest.approx(expected, abs=0.05)
        assert held_if_exact(made, coverage) < coverage - 0.05


def test_a_model_that_is_not_known_leaves_out_its_series_alone(tmp_path: Path) -> None:
    """Unless its sizes are stated, which are taken then."""
    text = SERIES.format(**USUAL, **WORDS)
    again = text[text.index("[[series]]") :].replace("ResNet-50", "ResNeXt-50")
    path = tmp_path / "series_described.toml"
    path.write_text(text + again)
    found = accuracy_training(tmp_path)
    assert found.series == 1
    (note,) = (note for note in found.notes if "left out" in note)
    assert "not known: 1: " in note and "model = 'ResNeXt-50' is not known" in note
    sized = again.replace("grad_bytes", "parameters = 25_000_000\nflops = 8.4e9\ngrad_bytes")
    path.write_text(text + sized)
    assert (accuracy_training(tmp_path).series, read_series(tmp_path)[1].job.model.parameters) == (2, 25_000_000)
    path.write_text(text.replace("ResNet-50", "ResNeXt-50"))
    with pytest.raises(InputError, match=r"no series left to predict: .*model = 'ResNeXt-50'"):
        accuracy_training(tmp_path)
