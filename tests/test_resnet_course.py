"""The ResNet course's answers follow from the figures."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from scenarios import load

FOLDER = Path(__file__).parent.parent / "examples"
course = SimpleNamespace(**runpy.run_path(str(FOLDER / "resnet_course.py")))


def row(name: str, predicted: float, measured: float) -> SimpleNamespace:
    step = SimpleNamespace(predicted=predicted, measured=measured)
    return SimpleNamespace(gradient_sync=name, step_s=step, world_size=2, test_accuracy=0.96)


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
    first, second, third, fourth = course.answer_questions([row("naive", 1.0, 1.0), row("ring", 1.0, ring)])
    assert first == f"Is the ring faster here? Measured, {said}."
    assert "Predicted, a step takes as long" in second and "sends 1 times the gradients in naive and 1 times" in second
    assert third == f"Which way is the quickest? {'ring' if ring < 1 else 'naive'}."
    assert "96.0%, 96.0%" in fourth
