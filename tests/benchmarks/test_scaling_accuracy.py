"""``python -m benchmarks.accuracy --training``: its JSON, its notes, and held-out series."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Ringlab

from benchmarks.accuracy.series import OWN_DATA, read_series
from benchmarks.accuracy.tables import read_tables
from benchmarks.accuracy.training import BASELINES, accuracy_training
from benchmarks.studies.unseen_machines import find_link_errors, find_step_errors, link_deviation, step_deviation
from collectives.errors import InputError
from planner.beliefs import PRIORS, read_shipped
from simcomm.nccl.descriptions import read_systems


def test_scaling_accuracy_json_has_documented_keys(accuracy_of: Ringlab, tmp_path: Path) -> None:
    """The published series are read as if they were a user's own file."""
    text = (OWN_DATA / "series_described.toml").read_text(encoding="utf-8")
    (tmp_path / "series_described.toml").write_text(text)
    done = accuracy_of("--training", "--data", tmp_path, "--json", tmp_path / "out.json")
    assert done.status == 0, done.err
    assert "parameter server " in done.out and "no sync " in done.out  # no word of a table is broken
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["points"].keys() == {"all", "hard"} and content["baselines"].keys() == {*BASELINES}
    assert (content["points"]["all"]["n"], content["points"]["hard"]["n"], content["series"]) == (594, 151, 252)
    assert {"n", "median", "p90", "within15", "coverage80"} <= content["points"]["hard"].keys()
    assert content["points"]["all"]["median"] < 0.017 and content["points"]["hard"]["median"] < 0.052
    for errors in content["baselines"].values():
        assert all(errors[difficulty].keys() == {"median", "p90"} for difficulty in ("all", "hard"))
        assert errors["hard"]["median"] > content["points"]["hard"]["median"]
    linear = np.array([1 / (1 + content["baselines"]["linear"]["hard"]["median"]) < 0.9])
    assert linear.all()


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
def test_extreme_series_values_give_finite_predictions(key: str, sync: str, tmp_path: Path) -> None:
    for value in (1, 1_000_000) if key == "cores" else (LEAST, 1e8 if key == "busbw" else MOST):
        for rate in (LEAST, MOST):
            text = SERIES.format(**{**USUAL, **WORDS, "sync": sync, "rate": rate, key: value})
            (tmp_path / "series_described.toml").write_text(text)
            answer = accuracy_training(tmp_path)
            json.dumps(answer.to_dict(), allow_nan=False)
            assert np.isfinite(answer.judged.predicted).all()


def test_notes_report_duplicate_series_and_unknown_precisions(tmp_path: Path) -> None:
    text, more = SERIES.format(**{**USUAL, **WORDS, "precision": "fp7"}), []
    for again in range(5):
        more.append(text[text.index("[[series]]") :].replace("fp7", f"fp{7 + again}"))
    (tmp_path / "series_described.toml").write_text(text + more[0])
    again = "duplicates among the series, which count again: 1"
    assert accuracy_training(tmp_path).notes == (again, "precision 'fp7' is unknown and treated as float32")
    (tmp_path / "series_described.toml").write_text(text + "".join(more[1:]))
    (*_, unknown) = accuracy_training(tmp_path).notes
    named = "'fp10', 'fp11', 'fp7', 'fp8', 'fp9'"
    assert unknown == f"precisions {named} are unknown and treated as float32"


def test_held_out_option_rejects_a_user_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--held-out applies to the series that Ringlab ships"):
        accuracy_training(tmp_path, only_held_out=True)
    with pytest.raises(InputError, match=r"series_described\.toml"):
        accuracy_training(tmp_path)


def test_series_of_an_unknown_model_must_state_the_model_size(tmp_path: Path) -> None:
    """A series of an unknown model is used if it states the model's size."""
    text = SERIES.format(**USUAL, **WORDS)
    again = text[text.index("[[series]]") :].replace("ResNet-50", "ResNeXt-50")
    path = tmp_path / "series_described.toml"
    path.write_text(text + again)
    answer = accuracy_training(tmp_path)
    assert answer.series == 1
    (note,) = (note for note in answer.notes if "left out" in note)
    assert "not known: 1: " in note and "unknown model 'ResNeXt-50'" in note
    sized = again.replace("grad_bytes", "parameters = 25_000_000\nflops = 8.4e9\ngrad_bytes")
    path.write_text(text + sized)
    assert (accuracy_training(tmp_path).series, read_series(tmp_path)[1].job.model.parameters) == (2, 25_000_000)
    path.write_text(text.replace("ResNet-50", "ResNeXt-50"))
    with pytest.raises(InputError, match=r"no series left to predict: .*unknown model 'ResNeXt-50'"):
        accuracy_training(tmp_path)


def test_prior_spreads_of_new_machines_match_published_errors() -> None:
    shared, links = read_shipped().deviations["shared"], [*find_link_errors(read_tables(read_systems()))]
    assert len(links) == 24
    assert shared * PRIORS["unseen_link"].spread == pytest.approx(link_deviation(links), rel=0.02)
    assert shared * PRIORS["unseen_several"].spread == pytest.approx(step_deviation(find_step_errors()), rel=0.02)
