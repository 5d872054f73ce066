"""``ringlab demo``: its table, its sentences, its files and its progress reports."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Ringlab

import realcomm
import simcomm
from collectives.call import CollectiveCall
from collectives.catalogue import find_algorithm
from collectives.records.calibration import Calibration, FittedLine, MachineLoad
from collectives.records.trace import Trace
from collectives.training.workload import ComputePhases, Training
from ringlab.commands.demo import Demo, summarize
from ringlab.commands.measuring.compare import make_comparison
from ringlab.commands.measuring.run import Kept, measure
from ringlab.commands.predicting.prediction import predict
from ringlab.session import Session
from ringlab.table import Sentences, Table
from scenarios import CollectiveComparison, LoadedScenario, WhatIf

LINE = FittedLine(2e-5, 1e-9, 0.0)
CALIBRATION = Calibration(2, 1, one_way=LINE, both_ways=LINE, reduction=LINE)
NAIVE, RING = (find_algorithm(f"all_reduce/{name}") for name in ("naive", "ring"))
SIZES = (1 << 16, 1 << 20, 1 << 23)
SCENARIO = LoadedScenario(
    "two here, eight there",
    Path("two.toml"),
    simcomm.star(2, "10 Gbit/s", "5 us"),
    CollectiveComparison("all_reduce", (NAIVE, RING), SIZES, "float32", "sum", 0),
    tuple(Training(sync, compute=ComputePhases(0.01, 0.02, 0.005)) for sync in (NAIVE, RING)),
    (WhatIf("eight hosts", simcomm.star(8, "10 Gbit/s", "5 us")),),
)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Demo:
    """Return the demo of a busy machine whose measurements equal the predictions."""

    def simulate(work: CollectiveCall | Training, cluster: simcomm.Cluster, **options: object) -> Trace:
        run = simcomm.run if isinstance(work, CollectiveCall) else simcomm.train
        return replace(run(work, cluster), kind="measured")

    monkeypatch.setattr(realcomm, "run", simulate)
    monkeypatch.setattr(realcomm, "train", simulate)
    measured = measure(SCENARIO, None, Session(), Kept())
    busy = replace(CALIBRATION, load=MachineLoad(0.5, 0.0, ["make"]))
    return summarize(make_comparison(SCENARIO, predict(SCENARIO), measured, busy), SCENARIO, ("a.html", "b.gif"))


def test_demo_has_one_short_table_and_three_sentences(shown: Demo) -> None:
    parts = list(shown.show())
    [table] = [part for part in parts if isinstance(part, Table)]
    assert 8 == len(table.rows) <= 12
    [sentences] = [part for part in parts if isinstance(part, Sentences)]
    here, errors, on_hosts, busy = sentences.said
    assert here.startswith("On this machine, all_reduce, 8 MiB: ") and "both directions share one memory" in here
    assert "The median prediction error is 0%" in errors
    assert re.search(r"On eight hosts, training step: ring takes .* times as fast as naive", on_hosts)
    assert "The busiest rank sends 1.75 times the buffer with ring, and 7 times the buffer with naive" in on_hosts
    assert busy.startswith("This machine was busy: other processes took 50%")
    assert not any("?" in str(cell) for row in table.rows for cell in row)


def test_demo_output_ends_with_its_files_and_the_course(shown: Demo) -> None:
    *_, report, animation, last = map(str, shown.show())
    assert "a.html" in report and "b.gif" in animation and "ringlab learn" in last


@pytest.mark.slow
def test_demo_writes_its_files_within_minutes(ringlab: Ringlab, tmp_path: Path) -> None:
    done = ringlab("demo", "-o", tmp_path / "demo")
    assert done.status == 0, done.err
    counts = [int(count) for count in re.findall(r"^ +(\d+)/100 ", done.err, re.MULTILINE)]
    assert counts == sorted(counts) and len(counts) > 3
    assert sorted(file.name for file in (tmp_path / "demo").iterdir()) == ["report.html", "ring.gif"]
