"""The ResNet course's answers follow from the figures."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
course = SimpleNamespace(**runpy.run_path(str(FOLDER / "resnet_course.py")))


def row(name: str, predicted: float, measured: float, sync: float = 0.25) -> SimpleNamespace:
    step, sync_s = SimpleNamespace(predicted=predicted, measured=measured), SimpleNamespace(measured=sync)
    return SimpleNamespace(gradient_sync=name, step_s=step, sync_s=sync_s, world_size=4, test_accuracy=0.9583)


@pytest.mark.parametrize(
    ("ring", "comparison"),
    [
        (0.8, "a step with the ring takes 20 % less than with naive"),
        (1.01, "a step takes as long with the ring as with naive"),
        (1.5, "a step with the ring takes 50 % more than with naive"),
    ],
)
def test_course_answers_change_with_the_measured_times(ring: float, comparison: str):
    rows = [row("naive", 1.0, 1.0), row("ring", 1.0, ring)]
    faster, expected, why, quickest, error, learned = course.answer_questions(rows)
    assert faster == f"Is the ring faster here? Measured, {comparison}."
    yes = "Yes" if ring == 1.01 else "No"
    assert expected == f"Did you expect it? {yes}: predicted, a step takes as long with the ring as with naive."
    assert "6 times one after the other in naive, 1.5 times in the ring" in why
    assert "Sync is 25 % of naive's step, so that alone saves at most 19 % of it" in why
    best = f"ring, {1e3 * ring:.0f}" if ring < 1 else "naive, 1000"
    assert quickest == f"Which is the fastest? {best} ms per step."
    assert error == f"How good was the prediction? Steps are 0 % to {100 * abs(1 / ring - 1):.0f} % off."
    assert learned.endswith("Held out: 95.8 %, 95.8 %.")


SMALL = """
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))
"""


@pytest.mark.usefixtures("brief_calibration")
def test_course_runs_with_a_small_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    (tmp_path / "small.py").write_text(SMALL)
    model = f"training.model={tmp_path / 'small.py'}:build"
    less = ["training.parameters=5354", "training.epochs=1", "training.images=512"]
    monkeypatch.setattr("sys.argv", ["resnet_course.py", model, *less])
    course.main()
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["gradient_sync", "step", "predicted", "measured", "speed-up", "predicted", "measured"]
    assert [line.split()[0] for line in lines[:4]] == ["naive", "ring", "ring[overlap]", "ddp"]
    assert [line.split("?")[0] for line in lines[4:]] == [
        "Is the ring faster here", "Did you expect it", "Why", "Which is the fastest",
        "How good was the prediction", "Do all reach the same accuracy",
    ]  # fmt: skip
    assert len(set(lines[-1].removesuffix(".").split("Held out: ")[1].split(", "))) == 1, "the same curve for all"
