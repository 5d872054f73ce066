"""Prediction and measurement side by side, and what is said of them."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import simcomm
from collectives import find_algorithm
from collectives.units import format_time
from collectives.workload import ComputePhases, Training
from ringlab import answer
from ringlab.conclusions import conclude
from ringlab.tables import PHASES, show
from scenarios import Scenario, WhatIf

STAR2, STAR8 = (simcomm.star(p, "10 Gbit/s", "5 us") for p in (2, 8))
JOBS = tuple(
    Training(sync and find_algorithm(f"all_reduce/{sync}"), compute=ComputePhases(0.01, 0.02, 0.005))
    for sync in ("naive", "ring", None)
)
SCENARIO = Scenario("two", Path("two.toml"), STAR2, None, JOBS, (WhatIf("eight hosts", STAR8),))


def measured(predicted: answer.Answer, factor: float) -> answer.Answer:
    """As if every time had been so many times the predicted one; and DistributedDataParallel beside."""
    slower = [
        {k: v * factor if k.endswith("_s") and k != "samples_per_s" else v for k, v in entry.items()}
        for entry in predicted["training"]
    ]
    return {**predicted, "kind": "measurement", "training": [*slower, {**slower[-1], "gradient_sync": "ddp"}]}


@pytest.fixture
def compared() -> answer.Answer:
    predicted = answer.predict(SCENARIO, None)
    return answer.compare(predicted, measured(predicted, 1.25))


def test_errors_are_relative_to_what_was_measured(compared):
    naive, ring, ddp = compared["training"]
    for entry in (naive, ring):
        assert entry["step_s"]["error"] == pytest.approx(-0.2)
        assert entry["step_s"]["measured"] == pytest.approx(1.25 * entry["step_s"]["predicted"])
        assert entry["samples_per_s"]["error"] == 0.0
    assert ddp["step_s"]["predicted"] is None
    assert ddp["step_s"]["error"] is None
    assert compared["kind"] == "comparison"


def test_the_what_if_stands_in_the_same_table(compared):
    compared["conclusions"] = conclude(compared, SCENARIO)
    console = Console(file=io.StringIO(), width=80)
    show(compared, console)
    tables = console.file.getvalue().partition(compared["conclusions"][0][:20])[0]
    assert tables.count("Training step") == 1
    assert "eight hosts" in tables
    assert tables.count("-20%") == 2 * len(PHASES)
    step = compared["what_if"][0]["training"][0]["step_s"]
    assert any({"naive", "step", *format_time(step).split(), "-"} <= {*line.split()} for line in tables.splitlines())


def test_one_sentence_says_why_two_ranks_differ_from_eight(compared):
    why = conclude(compared, SCENARIO)[-1]
    assert "here the busiest one sends 1 buffers (naive) or 1 (ring)" in why
    assert "there the busiest one sends 7 buffers (naive) or 1.75 (ring)" in why
    assert "eight hosts" in why


def test_no_reason_is_given_where_nothing_is_compared():
    alone = replace(SCENARIO, trainings=JOBS[1:2], what_ifs=())
    assert len(conclude(answer.predict(alone, None), alone)) == 1
