"""The ResNet course's answers follow from the figures."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from scenarios import load

FOLDER = Path(__file__).parent.parent / "examples"
course = SimpleNamespace(**runpy.run_path(str(FOLDER / "resnet_course.py")))


def row(name: str, predicted: float, measured: float, sync: float = 0.25) -> SimpleNamespace:
    step, own = SimpleNamespace(predicted=predicted, measured=measured), SimpleNamespace(measured=sync)
    return SimpleNamespace(gradient_sync=name, step_s=step, sync_s=own, world_size=4, test_accuracy=0.9583)


def test_its_scenario_trains_naive_ring_buckets_and_ddp():
    scenario = load(FOLDER / "resnet_course.toml")
    assert [one.sync_name for one in scenario.trainings] == ["naive", "ring", "ring[overlap]", "ddp"]


@pytest.mark.parametrize(
    ("ring", "said"),
    [
        (0.8, "a step with the ring takes 20 % less than with naive"),
        (1.01, "a step takes as long with the ring as with naive"),
        (1.5, "a step with the ring takes 50 % more than with naive"),
    ],
)
def test_the_answers_are_those_of_the_numbers(ring: float, said: str):
    rows = [row("naive", 1.0, 1.0), row("ring", 1.0, ring)]
    faster, expected, why, quickest, error, learned = course.answer_questions(rows)
    assert faster == f"Is the ring faster here? Measured, {said}."
    assert expected == "Did you expect it? Predicted, a step takes as long with the ring as with naive."
    assert "6 times one after the other in naive, 1.5 times in the ring" in why
    assert "Sync is 25 % of naive's step, so that alone saves at most 19 % of it" in why
    best = f"ring, {1e3 * ring:.0f}" if ring < 1 else "naive, 1000"
    assert quickest == f"Which way is the quickest? {best} ms a step."
    assert error == f"How good was the prediction? Steps are 0 % to {100 * abs(1 / ring - 1):.0f} % off."
    assert learned.endswith("right are 95.8 %, 95.8 %.")
