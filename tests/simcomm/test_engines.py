"""Whichever engine is asked, the answer is the same; and each says which it was."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import simcomm
from collectives import Algorithm, InputError, ProgramError, Trace, Transport, find_algorithm
from collectives.records.calibration import Calibration, ComputePoint, FittedLine
from collectives.records.environment import threads_per_rank
from collectives.records.files import write_record
from collectives.records.trace import read_trace
from collectives.spec import find_spec
from collectives.step import Program, recv, send
from collectives.training.workload import ComputePhases, Training
from ringlab import cli
from simcomm.performance_models import options

ROOT = Path(__file__).parents[2]
HERE = ("resnet34-cifar10",)  # takes times of this machine, as calibrated
SCENARIOS = sorted(path.stem for path in (ROOT / "scenarios").glob("*.toml") if path.stem not in HERE)
STAR = simcomm.star(6, "10 Gbit/s", "5 us", Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10))
SAID = ("engine", "method")  # in what answers differ that agree
Predict = Callable[..., dict[str, Any]]


MEASURED = ("quickstart", "resnet34-cifar10")  # scenarios whose costs are those of this machine


@pytest.fixture
def predict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Predict]:
    """The answer of ``ringlab predict``, with the numbers of a machine of two ranks."""
    phases = [
        ComputePoint("resnet18", "digits", 32, ranks, threads_per_rank(local), ComputePhases(0.1, 0.2, 0.05), 0.0)
        for ranks, local in ((2, 2), (1, 2), (1, 1))
    ]
    calibration = Calibration(
        *(
            2,
            threads_per_rank(2),
            FittedLine(2e-5, 1e-9, 0.0),
            FittedLine(2e-5, 4e-9, 0.0),
            FittedLine(0.0, 1e-10, 0.0),
        ),
        compute=phases,
    )
    write_record(tmp_path / "calibration.json", calibration)

    monkeypatch.setattr("ringlab.shared.progress.LATE_S", 60.0)  # or a slow machine says what it computes

    def run(*arguments: object) -> dict[str, Any]:
        calibrated = ["--calibration", str(tmp_path / "calibration.json")] if arguments[0] in MEASURED else []
        monkeypatch.setattr(sys, "argv", ["ringlab", "predict", *map(str, arguments), *calibrated, "--json", "-"])
        with suppress(SystemExit):
            cli.main()
        out, err = capsys.readouterr()
        assert err == ""
        found: dict[str, Any] = json.loads(out)
        return found

    yield run


def entries(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """All results of an answer, the what-ifs' too."""
    parts = [answer, *answer["what_if"]]
    return [entry for part in parts for key in ("collectives", "training") for entry in part[key]]


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(name, marks=pytest.mark.slow if name == "faults" else ()) for name in SCENARIOS]
    + ["faults, 3 repetitions"],
)
def test_both_engines_predict_the_same(predict: Predict, scenario: str, tmp_path: Path):
    if scenario == "faults, 3 repetitions":
        text = (ROOT / "scenarios" / "faults.toml").read_text()
        scenario = str(tmp_path / "faults.toml")
        Path(scenario).write_text(text.replace("repetitions = 50", "repetitions = 3"))
    reference, compiled = (
        [entry for entry in entries(predict(scenario, "--engine", engine)) if entry["engine"] != "nccl model"]
        for engine in options.ENGINES
    )
    assert {entry["engine"] for entry in reference} == {"simpy"}
    assert {entry["engine"] for entry in compiled if "algorithm" in entry} == {"compiled"}
    assert any(entry["engine"] == "compiled" for entry in compiled)  # of training, syncs that overlap are simpy's
    assert {entry["method"] for entry in compiled} <= {"events", "max-plus"}
    for one, other in zip(reference, compiled, strict=True):
        assert_same(other, one)


def assert_same(found: Any, wanted: Any) -> None:
    """Equal but for rounding, and for the engine."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key in wanted.keys() - SAID:
            assert_same(found[key], wanted[key])
    elif isinstance(wanted, list):
        for one, other in zip(found, wanted, strict=True):
            assert_same(one, other)
    else:
        assert found == (pytest.approx(wanted, rel=1e-9, abs=1e-15) if isinstance(wanted, float) else wanted)


def test_few_messages_are_simulated_by_simpy_and_many_by_machine_code(predict: Predict):
    star = ("star8", "--set", 'collective.algorithms=["ring"]', "--set", 'collective.sizes=["1 MiB"]')
    star = (*star, "--set", 'training.gradient_sync=["ring"]')
    assert {entry["engine"] for entry in predict(*star)["collectives"]} == {"simpy"}
    (many,) = predict(*star, "--set", "cluster.hosts=100")["collectives"]
    assert (many["engine"], many["method"]) == ("compiled", "max-plus")


def rounded(record: Trace) -> list[tuple[object, ...]]:
    """Messages and spans with their times to the nanosecond, in an order of their own."""
    messages = [
        (*m[:5], round(m.begin, 9), round(m.end, 9), *m[7:9], *(round(s, 9) for s in m[9:])) for m in record.messages
    ]
    spans = [(*s[:3], round(s.begin, 9), round(s.end, 9)) for s in record.spans]
    return [*sorted(messages), *sorted(spans)]


def job(sync: str, phases: ComputePhases) -> Training:
    return Training(find_algorithm(f"all_reduce/{sync}"), compute=phases)


@pytest.mark.parametrize(("sync", "scale"), [("double_tree", 1.0), ("naive", 1.0), ("naive", 1e-5)])
def test_training_is_the_same_message_by_message(sync: str, scale: float):
    """Naive's ranks end far apart and may begin again at once, but all their messages are from and to the root."""
    asked = job(sync, ComputePhases(0.1 * scale, 0.2 * scale, 0.05 * scale))
    one, other = (simcomm.train(asked, STAR, engine=engine) for engine in options.ENGINES)
    assert other.engine == "compiled"
    assert rounded(one) == rounded(other)
    assert (one.title, one.facts, one.links) == (other.title, other.facts, other.links)
    assert other.elapsed == pytest.approx(one.elapsed, rel=1e-12)


def test_syncs_that_overlap_are_left_to_simpy():
    asked = job("binomial", ComputePhases(1e-6, 1e-6, 1e-6))
    one, other = (simcomm.train(asked, STAR, engine=engine) for engine in options.ENGINES)
    assert one == other
    assert other.engine == "simpy"


def test_a_trace_can_be_had_from_either_engine(predict: Predict, tmp_path: Path):
    paths = [tmp_path / f"{engine}.trace.json" for engine in options.ENGINES]
    for engine, path in zip(options.ENGINES, paths, strict=True):
        predict("two-racks", "--engine", engine, "--trace", path)
    one, other = map(read_trace, paths)
    assert (one.engine, other.engine) == options.ENGINES
    assert rounded(one) == rounded(other) != []


def test_only_simpy_carries_data():
    import numpy as np

    with pytest.raises(InputError, match="compiled engine does not support buffers"):
        simcomm.run("all_reduce/ring", STAR, buffers=[np.ones(12) for _ in range(6)], engine="compiled")
    with pytest.raises(InputError, match="unknown engine 'quick'; use simpy or compiled"):
        simcomm.run("all_reduce/ring", STAR, 12, engine="quick")


def circle(rank: int, world_size: int) -> Program:
    """Everyone waits for the left neighbour before it sends to the right one."""
    yield (recv((rank - 1) % world_size, 0),)
    yield (send((rank + 1) % world_size, 0),)


@pytest.mark.parametrize("nbytes", [0, 400])
@pytest.mark.parametrize("engine", options.ENGINES)
def test_a_deadlock_of_many_ranks_is_told_whatever_the_size(engine: str, nbytes: int):
    algorithm = Algorithm(find_spec("all_reduce"), "circle", circle, 1)
    with pytest.raises(ProgramError, match=r"world size 80: deadlock: rank 0 in step 0 .* waits for rank 79"):
        simcomm.run(algorithm, simcomm.star(80, "1 GB/s", "1 us"), nbytes, engine=engine)
