"""Prediction and measurement side by side, and what is said of them."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import simcomm
from collectives import InputError, find_algorithm
from collectives.declaration import auto
from collectives.units import format_time
from collectives.workload import ComputePhases, Training
from ringlab.answers.comparison import Comparison, make_comparison
from ringlab.answers.predicted_trace import predict_trace
from ringlab.answers.prediction import Prediction, predict
from ringlab.answers.real_run import RunAnswer
from ringlab.terminal.scenario_tables import PHASES, show_scenario_answer
from scenarios import CollectiveComparison, Scenario, WhatIf
from simcomm.selection import choose

STAR2, STAR8 = (simcomm.star(p, "10 Gbit/s", "5 us") for p in (2, 8))
JOBS = tuple(
    Training(sync and find_algorithm(f"all_reduce/{sync}"), compute=ComputePhases(0.01, 0.02, 0.005))
    for sync in ("naive", "ring", None)
)
RING = find_algorithm("all_reduce/ring")
SCENARIO = Scenario("two", Path("two.toml"), STAR2, None, JOBS, (WhatIf("eight hosts", STAR8),))


SECONDS = ("step_s", "forward_s", "backward_s", "sync_s", "optimizer_s")


def measured(predicted: Prediction, factor: float) -> RunAnswer:
    """As if every time had been so many times the predicted one; and DistributedDataParallel beside."""
    slower = [
        replace(entry, **{name: getattr(entry, name) * factor for name in SECONDS}) for entry in predicted.training
    ]
    return RunAnswer(
        title=predicted.title,
        file=predicted.file,
        cluster=predicted.cluster,
        collectives=(),
        training=(*slower, replace(slower[-1], gradient_sync="ddp")),
    )


@pytest.fixture
def compared() -> Comparison:
    predicted = predict(SCENARIO)
    return make_comparison(SCENARIO, predicted, measured(predicted, 1.25))


def test_errors_are_relative_to_what_was_measured(compared):
    naive, ring, ddp = compared.training
    for entry in (naive, ring):
        assert entry.step_s.error == pytest.approx(-0.2)
        assert entry.step_s.measured == pytest.approx(1.25 * entry.step_s.predicted)
        assert entry.samples_per_s.error == 0.0
    assert ddp.step_s.predicted is None
    assert ddp.step_s.error is None
    assert compared.to_dict()["kind"] == "comparison"


def test_the_what_if_stands_in_the_same_table(compared):
    shown = io.StringIO()
    console = Console(file=shown, width=80)
    show_scenario_answer(compared, console)
    tables = shown.getvalue().partition(compared.conclusions[0][:20])[0]
    assert tables.count("Training step") == 1
    assert "eight hosts" in tables
    assert tables.count("-20%") == 2 * len(PHASES)
    step = compared.what_ifs[0].training[0].step_s
    assert any({"naive", "step", *format_time(step).split(), "-"} <= {*line.split()} for line in tables.splitlines())


def test_one_sentence_says_why_two_ranks_differ_from_eight(compared):
    why = compared.conclusions[-1]
    assert "here the busiest one sends 1 buffers (naive) or 1 (ring)" in why
    assert "there the busiest one sends 7 buffers (naive) or 1.75 (ring)" in why
    assert "eight hosts" in why


def test_no_reason_is_given_where_nothing_is_compared():
    alone = replace(SCENARIO, trainings=JOBS[1:2], what_ifs=())
    assert len(predict(alone).conclusions) == 1


def test_auto_is_chosen_for_each_size_and_cluster_and_says_so():
    auto_training = Training(auto("all_reduce"), compute=ComputePhases(0.01, 0.02, 0.005))
    comparison = CollectiveComparison("all_reduce", (auto("all_reduce"), RING), (64, 1 << 20), "float32", "sum", 0)
    links = [(f"h{i}", f"s{i // 4}", "10 Gbit/s", "1 us") for i in range(8)] + [("s0", "s1", "1 Gbit/s", "1 us")]
    racks = simcomm.from_links(links)  # where sending to all at once is quick for short messages only
    asked = Scenario("auto", Path("auto.toml"), racks, comparison, (auto_training,), (WhatIf("two hosts", STAR2),))
    predicted = predict(asked)
    for found, cluster in ((predicted, racks), (predicted.what_ifs[0], STAR2)):
        small, ring, large, _ = found.collectives
        assert small.algorithm == f"auto ({choose('all_reduce', cluster, 64).algorithm.label})"
        assert large.algorithm == f"auto ({choose('all_reduce', cluster, 1 << 20).algorithm.label})"
        assert small.time_s < ring.time_s
        assert found.training[0].gradient_sync.startswith("auto (")
    assert predicted.collectives[0].algorithm != predicted.collectives[2].algorithm
    shown = predict_trace(asked, None, "auto", 64)
    assert shown.title == f"all_reduce/{predicted.collectives[0].algorithm}"


def test_variants_of_one_algorithm_are_told_apart():
    variants = tuple(find_algorithm(f"all_reduce/chain[slices={slices}]") for slices in (2, 4))
    comparison = CollectiveComparison("all_reduce", variants, (1 << 20,), "float32", "sum", 0)
    asked = Scenario("chains", Path("chains.toml"), STAR8, comparison, (), ())
    predicted = predict(asked)
    shown = io.StringIO()
    console = Console(file=shown, width=80)
    show_scenario_answer(predicted, console)
    assert all(f"chain[slices={slices}]" in shown.getvalue() for slices in (2, 4))
    assert predict_trace(asked, None, "chain[slices=2]").title == "all_reduce/chain[slices=2]"
    with pytest.raises(InputError, match=r"more than one algorithm 'chain' in it; there are chain\[slices=2\], chain"):
        predict_trace(asked, None, "chain")
