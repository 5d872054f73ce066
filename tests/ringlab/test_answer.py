"""Answers of predict, run and compare: their tables, their sentences, and the errors of predictions."""

import io
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import simcomm
from collectives import InputError, find_algorithm
from collectives.call import CollectiveCall
from collectives.declaration import auto
from collectives.records.calibration import Calibration, FittedLine, MachineLoad
from collectives.records.limits import find_limits
from collectives.records.spans import PHASES
from collectives.records.trace import Trace
from collectives.training.workload import ComputePhases, Training
from collectives.units import format_time
from ringlab.commands.measuring import run as running
from ringlab.commands.measuring.compare import Comparison, make_comparison
from ringlab.commands.measuring.run import RunAnswer
from ringlab.commands.predicting.prediction import Prediction, predict
from ringlab.pictures.traces import OneRun
from ringlab.scenario import load
from ringlab.session import Session
from ringlab.shared.conclusions import conclude, headline
from ringlab.shared.figures import side_by_side
from ringlab.shared.output import PlainConsole
from ringlab.table import Table, format_digits, print_parts
from scenarios import CollectiveComparison, LoadedScenario, WhatIf
from simcomm.selection import choose

STAR2, STAR8 = (simcomm.star(p, "10 Gbit/s", "5 us") for p in (2, 8))
JOBS = tuple(
    Training(sync and find_algorithm(f"all_reduce/{sync}"), compute=ComputePhases(0.01, 0.02, 0.005))
    for sync in ("naive", "ring", None)
)
NAIVE, RING = (find_algorithm(f"all_reduce/{name}") for name in ("naive", "ring"))
LINE = FittedLine(2e-5, 1e-9, 0.0)
MEASURED = Calibration(2, 1, one_way=LINE, both_ways=LINE, reduction=LINE)
SCENARIO = LoadedScenario("two", Path("two.toml"), STAR2, None, JOBS, (WhatIf("eight hosts", STAR8),))


SECONDS = ("step_s", "forward_s", "backward_s", "sync_s", "optimizer_s")


def measured(predicted: Prediction, factor: float) -> RunAnswer:
    """Return measurements that are ``factor`` times the predictions, and a row for DistributedDataParallel."""
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


def printed(parts: Iterable[Any], width: int = 200) -> str:
    """Return the output of an answer in a terminal of ``width`` columns."""
    shown = io.StringIO()
    print_parts(parts, PlainConsole(file=shown, width=width))
    return shown.getvalue()


@pytest.fixture
def compared() -> Comparison:
    predicted = predict(SCENARIO)
    return make_comparison(SCENARIO, predicted, measured(predicted, 1.25), None)


def test_comparison_names_the_largest_relative_error(compared):
    naive, ring, ddp = compared.training
    for entry in (naive, ring):
        assert entry.step_s.error == pytest.approx(-0.2)
        assert entry.step_s.measured == pytest.approx(1.25 * entry.step_s.predicted)
        assert entry.samples_per_s.error == 0.0
    assert (ddp.step_s.predicted, ddp.step_s.error, compared.to_dict()["kind"]) == (None, None, "comparison")
    off = replace(compared, training=(naive, replace(ring, sync_s=side_by_side(1.44, 1.0)), ddp))
    assert "The largest prediction error is 44%, for sync with ring." in conclude(off, SCENARIO)


def test_what_if_rows_are_in_the_same_table_as_the_prediction(compared):
    tables = printed(compared.show(), width=80).rpartition("Scaling efficiency")[0]
    assert tables.count("Training step") == 1 and "eight hosts" in tables
    assert tables.count(" -20 ") == 2 * len(PHASES)
    shown = {"naive", "step", format_digits(1e3 * compared.what_ifs[0].training[0].step_s), "-"}
    assert any(shown <= {*line.split()} for line in tables.splitlines())


def test_conclusion_compares_the_two_fastest_at_the_largest_size():
    scenario = load(
        "star8", "collective.algorithms=['naive', 'double_tree', 'ring']", "collective.sizes=['64 B', '64 MiB']"
    )
    answer = scenario.predict()
    largest = {row.algorithm: row for row in answer.collectives if row.bytes == 64 << 20}
    naive, tree, ring = (largest[name].time_s or 0.0 for name in ("naive", "double_tree", "ring"))
    assert naive > 3 * tree > 3 * ring
    fastest = f"{STAR8.title}, 64 MiB: ring takes {format_time(ring)}"
    following = f"{tree / ring:.2f} times as fast as double_tree, which takes {format_time(tree)}."
    assert answer.conclusions[0] == f"{fastest} and is {following}"
    alone = replace(answer, collectives=(largest["ring"], largest["ring"]))
    assert conclude(alone, scenario)[0] == f"{fastest}."
    assert len(predict(replace(SCENARIO, trainings=JOBS[1:2], what_ifs=())).conclusions) == 1


@pytest.fixture(scope="module")
def with_faults() -> Prediction:
    return load("faults").predict()


def test_conclusions_name_a_degraded_link(with_faults):
    assert any(
        "3.27 times" in sentence and "over h3 - s0, which has 0.1 times its bandwidth" in sentence
        for sentence in with_faults.conclusions
    )
    assert any(sentence.endswith("never ends, as rank 2 failed at 5 ms.") for sentence in with_faults.conclusions)
    lines = printed(with_faults.show(), width=500).splitlines()
    assert lines[0] == with_faults.title and {*with_faults.sentences} <= {*lines}


@pytest.mark.parametrize("width", [80, 200])
def test_column_has_one_unit_and_table_fits_the_terminal(with_faults, width):
    text = printed(with_faults.show(), width)
    tables = text[: text.rindex("Under faults")]
    assert max(map(len, text.splitlines())) <= width
    titles = [other.title for other in with_faults.what_ifs]
    numbers = re.sub("|".join(map(re.escape, titles)), "", tables)
    assert width == 80 or not re.search(r"\d (us|ms|s|KiB|MiB)\b", numbers)
    assert all(title in tables for title in titles) == (width == 200)


def test_auto_is_resolved_for_each_size_and_cluster():
    auto_training = Training(auto("all_reduce"), compute=ComputePhases(0.01, 0.02, 0.005))
    comparison = CollectiveComparison("all_reduce", (auto("all_reduce"), RING), (64, 1 << 20), "float32", "sum", 0)
    links = [(f"h{i}", f"s{i // 4}", "10 Gbit/s", "1 us") for i in range(8)] + [("s0", "s1", "1 Gbit/s", "1 us")]
    racks = simcomm.from_links(links)  # where sending to all at once is quick for short messages only
    scenario = LoadedScenario(
        "auto", Path("auto.toml"), racks, comparison, (auto_training,), (WhatIf("two hosts", STAR2),)
    )
    predicted = predict(scenario)
    for answer, cluster in ((predicted, racks), (predicted.what_ifs[0], STAR2)):
        small, ring, large, _ = answer.collectives
        assert small.algorithm == f"auto ({choose('all_reduce', cluster, 64).algorithm.label})"
        assert large.algorithm == f"auto ({choose('all_reduce', cluster, 1 << 20).algorithm.label})"
        assert small.time_s < ring.time_s
        assert answer.training[0].gradient_sync.startswith("auto (")
    assert predicted.collectives[0].algorithm != predicted.collectives[2].algorithm
    shown = OneRun(scenario, algorithm="auto", nbytes=64).simulate()
    assert shown.title == f"all_reduce/{predicted.collectives[0].algorithm}"


def test_variants_of_an_algorithm_are_named_by_parameters():
    variants = tuple(find_algorithm(f"all_reduce/chain[slices={slices}]") for slices in (2, 4))
    comparison = CollectiveComparison("all_reduce", variants, (1 << 20,), "float32", "sum", 0)
    scenario = LoadedScenario("chains", Path("chains.toml"), STAR8, comparison, (), ())
    shown = printed(predict(scenario).show(), width=80)
    assert all(f"chain[slices={slices}]" in shown for slices in (2, 4))
    assert OneRun(scenario, algorithm="chain[slices=2]").simulate().title == "all_reduce/chain[slices=2]"
    with pytest.raises(InputError, match=r"several algorithms match 'chain'; use one of chain\[slices=2\], chain"):
        OneRun(scenario, algorithm="chain").simulate()


def test_prediction_names_the_bottleneck_of_a_short_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = load("two-racks", "collective.sizes=1 MiB")
    answer = scenario.predict()
    limits = find_limits(scenario.trace("ring"))
    assert answer.limits == f"What limits ring, 1 MiB: {limits.heading}. {limits.sentence}"
    assert "s0 ↔ s1 is the bottleneck" in answer.limits
    assert answer.to_dict()["limits"] == answer.limits
    assert answer.limits in printed(answer.show(), width=2000)
    monkeypatch.setattr("ringlab.commands.predicting.prediction.MOST_LOOKED_AT", 10)
    assert scenario.predict().limits == ""


def test_title_with_line_breaks_is_escaped_to_one_line():
    answer = replace(load("star8", "cluster.hosts=1").predict(), title="a\nb\tc")
    shown = printed(answer.show(), width=100)
    assert shown.startswith("a\\nb\\tc\n")
    assert "0 ns" not in shown and "1 host" in shown  # one rank sends nothing, so none is faster


def test_conclusions_on_a_busy_machine_omit_comparisons():
    comparison = CollectiveComparison("all_reduce", (RING, NAIVE), (64, 8 << 20), "float32", "sum", 0)
    scenario = replace(SCENARIO, collective=comparison)
    predicted = predict(scenario)
    ran = replace(measured(predicted, 2.0), collectives=predicted.collectives)
    free, busy = (
        make_comparison(scenario, predicted, ran, replace(MEASURED, load=MachineLoad(others, 0.0, ["make"])))
        for others in (0.0, 0.4)
    )
    words = ("takes", "prediction error", "fastest")
    assert [sum(word in text for text in free.conclusions) for word in words][:2] == [2, 1]
    (first,) = busy.conclusions
    assert first.startswith("This machine was busy: other processes took 40% of this machine's cores (make).")
    assert headline(busy) == busy.title != headline(free)
    rows = [line for line in printed(busy.show()).splitlines() if " -50" in line]
    assert rows and not any("?" in row for row in rows), "it is said once, in words"


def test_equal_calls_and_trainings_are_measured_once(monkeypatch: pytest.MonkeyPatch):
    """Rows may only become equal after their sizes are rounded down to whole elements."""
    ran: list[CollectiveCall | Training] = []

    def measure(work: CollectiveCall | Training, cluster: simcomm.Cluster, **options: object) -> Trace:
        ran.append(work)
        run = simcomm.run if isinstance(work, CollectiveCall) else simcomm.train
        return replace(run(work, cluster), kind="measured")

    monkeypatch.setattr("realcomm.run", measure)
    monkeypatch.setattr("realcomm.train", measure)
    comparison = CollectiveComparison("all_reduce", (RING, NAIVE, RING), (64, 66, 128), "float32", "sum", 0)
    jobs = (JOBS[1], JOBS[1])
    twice = LoadedScenario("twice", Path("twice.toml"), STAR2, comparison, jobs, ())
    answer = running.measure(twice, None, Session(), running.Kept())
    assert [row.bytes for row in answer.collectives] == [64] * 6 + [128] * 3
    assert len(answer.training) == 2 and answer.training[0] == answer.training[1]
    assert len(ran) == 2 * 2 + 1
    assert [trace.title for trace in answer.traces] == ["all_reduce/ring", "all_reduce/naive"]


def test_table_breaks_names_only_when_too_wide() -> None:
    rows = [["hierarchical[gpus=8]", "1.30 to 3.24", "nvls_tree/simple x16"], ["ring", "-", "-"]]
    table = Table(None, ["the cluster", "algorithm", "takes so long", "choice"], rows, 2, [("with NCCL_ALGO=Ring", 2)])
    for width, names in ((80, rows[0][::2]), (65, rows[0][:1]), (52, [])):
        shown = printed([table], width)
        assert max(map(len, shown.splitlines())) <= width
        assert all(re.search(rf" {re.escape(name)} ", shown) for name in names), shown
