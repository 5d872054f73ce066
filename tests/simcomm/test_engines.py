"""Both engines give the same answer, and all performance models share one interface."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringlab
import simcomm
from collectives import Algorithm, InputError, ProgramError, TcpTerms, Trace, Transport, find_algorithm, library
from collectives.call import CollectiveCall
from collectives.declaration import nccl
from collectives.proof.verifier import verify
from collectives.records.calibration import Calibration, ComputePoint, FittedLine, MessageCurve, QueuedMessages
from collectives.records.environment import threads_per_rank
from collectives.records.files import write_record
from collectives.spec import find_spec
from collectives.step import Program, recv, send
from collectives.training.workload import ComputePhases, Training
from ringlab.shared.workload import Asked, count_work
from simcomm.cluster.calibrated import as_emulated
from simcomm.cluster.cluster import Cluster
from simcomm.model.faults import NO_FAULTS
from simcomm.nccl.clusters import nccl_cluster
from simcomm.nccl.descriptions import describe_preset
from simcomm.nccl.measured.calibration import predict_calibrated
from simcomm.performance_models.measured_times import time_collective
from simcomm.performance_models.options import ENGINES
from simcomm.performance_models.performance_model import MODELS, PerformanceModel, performance_model
from simcomm.simulate import simulate

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted(path.stem for path in (ROOT / "scenarios").glob("*.toml") if path.stem != "resnet34-cifar10")
STAR = simcomm.star(6, "10 Gbit/s", "5 us", Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10))
Predict = Callable[..., dict[str, Any]]


@pytest.fixture
def predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Predict:
    """Return a function that predicts a scenario with an engine and, for ``quickstart``, with made calibrations."""
    phases = [
        ComputePoint("resnet18", "digits", 32, ranks, threads_per_rank(local), ComputePhases(0.1, 0.2, 0.05), 0.0)
        for ranks, local in ((2, 2), (1, 2), (1, 1))
    ]
    lines = [FittedLine(alpha, beta, 0.0) for alpha, beta in ((2e-5, 1e-9), (2e-5, 4e-9), (0.0, 1e-10))]
    write_record(tmp_path / "calibration.json", Calibration(2, threads_per_rank(2), *lines, compute=phases))

    def run(scenario: str, *changes: str, engine: str | None = None) -> dict[str, Any]:
        def simulate_with(model: PerformanceModel, job: Asked, **options: Any) -> Trace:
            has_messages = count_work(job, model, NO_FAULTS) > 0
            return simulate(model, job, engine=engine if has_messages else None, **options)

        calibration = tmp_path / "calibration.json" if scenario == "quickstart" else None
        with monkeypatch.context() as patch:
            patch.setattr("ringlab.shared.workload.simulate", simulate_with)
            return ringlab.predict(ringlab.load(scenario, *changes), calibration=calibration).to_dict()

    return run


def entries(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all results of an answer, including its what-ifs."""
    parts = [answer, *answer["what_if"]]
    return [entry for part in parts for key in ("collectives", "training") for entry in part[key]]


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(name, marks=pytest.mark.slow if name == "faults" else ()) for name in SCENARIOS]
    + ["faults, 3 repetitions"],
)
def test_engines_agree_on_shipped_scenarios(predict: Predict, scenario: str, tmp_path: Path):
    if scenario == "faults, 3 repetitions":
        text = (ROOT / "scenarios" / "faults.toml").read_text()
        scenario = str(tmp_path / "faults.toml")
        Path(scenario).write_text(text.replace("repetitions = 50", "repetitions = 3"))
    reference, compiled = (
        [entry for entry in entries(predict(scenario, engine=engine)) if entry["engine"] != "nccl model"]
        for engine in ENGINES
    )
    assert {entry["engine"] for entry in reference} == {"simpy"}
    assert {entry["engine"] for entry in compiled if "algorithm" in entry} == {"compiled"}
    assert any(entry["engine"] == "compiled" for entry in compiled)  # overlapping syncs of a training use simpy
    assert {entry["method"] for entry in compiled} <= {"events", "max-plus"}
    for expected, other in zip(reference, compiled, strict=True):
        assert_same(other, expected)


def assert_same(value: Any, expected: Any) -> None:
    """Check that both are equal within rounding, except for engine and method."""
    if isinstance(expected, dict):
        assert value.keys() == expected.keys()
        for key in expected.keys() - {"engine", "method"}:
            assert_same(value[key], expected[key])
    elif isinstance(expected, list):
        for item, other in zip(value, expected, strict=True):
            assert_same(item, other)
    else:
        assert value == (pytest.approx(expected, rel=1e-9, abs=1e-15) if isinstance(expected, float) else expected)


def test_engine_is_chosen_by_the_number_of_messages(predict: Predict):
    star = ("star8", 'collective.algorithms=["ring"]', 'collective.sizes=["1 MiB"]', 'training.gradient_sync=["ring"]')
    assert {entry["engine"] for entry in predict(*star)["collectives"]} == {"simpy"}
    (many,) = predict(*star, "cluster.hosts=100")["collectives"]
    assert (many["engine"], many["method"]) == ("compiled", "max-plus")


def rounded(trace: Trace) -> list[tuple[object, ...]]:
    """Return messages and spans in a fixed order, with their times in nanoseconds."""
    messages = [
        (*m[:5], round(m.begin, 9), round(m.end, 9), *m[7:9], *(round(s, 9) for s in m[9:])) for m in trace.messages
    ]
    return [*sorted(messages), *sorted((*s[:3], round(s.begin, 9), round(s.end, 9)) for s in trace.spans)]


@pytest.mark.parametrize(
    ("sync", "phases", "engine"),
    [
        ("double_tree", ComputePhases(0.1, 0.2, 0.05), "compiled"),
        ("naive", ComputePhases(0.1, 0.2, 0.05), "compiled"),
        ("naive", ComputePhases(1e-6, 2e-6, 5e-7), "compiled"),  # ranks drift apart, but only talk to the root
        ("binomial", ComputePhases(1e-6, 1e-6, 1e-6), "simpy"),  # two syncs overlap
    ],
)
def test_engines_agree_on_training(sync: str, phases: ComputePhases, engine: str):
    training = Training(find_algorithm(f"all_reduce/{sync}"), compute=phases)
    simulated, other = (simcomm.train(training, STAR, engine=each) for each in ENGINES)
    assert other.engine == engine
    assert rounded(simulated) == rounded(other)
    assert (simulated.title, simulated.facts, simulated.links) == (other.title, other.facts, other.links)
    assert other.elapsed == pytest.approx(simulated.elapsed, rel=1e-12)


def test_unsupported_engines_are_rejected():
    with pytest.raises(InputError, match="compiled engine does not support buffers"):
        simcomm.run("all_reduce/ring", STAR, buffers=[np.ones(12) for _ in range(6)], engine="compiled")
    with pytest.raises(InputError, match="unknown engine 'quick'; use simpy or compiled"):
        simcomm.run("all_reduce/ring", STAR, 12, engine="quick")


def wait_for_left(rank: int, world_size: int) -> Program:
    """Wait for the left neighbor before sending to the right one."""
    yield (recv((rank - 1) % world_size, 0),)
    yield (send((rank + 1) % world_size, 0),)


@pytest.mark.parametrize("nbytes", [0, 400])
@pytest.mark.parametrize("engine", ENGINES)
def test_deadlock_of_many_ranks_is_reported_with_and_without_data(engine: str, nbytes: int):
    algorithm = Algorithm(find_spec("all_reduce"), "circle", wait_for_left, 1)
    with pytest.raises(ProgramError, match=r"world size 80: deadlock: rank 0 in step 0 .* waits for rank 79"):
        simcomm.run(algorithm, simcomm.star(80, "1 GB/s", "1 us"), nbytes, engine=engine)


@pytest.mark.parametrize("name", library())
@pytest.mark.parametrize("p", [1, 2, 4, 7])
def test_link_bytes_match_the_schedule(name: str, p: int):
    trace = simcomm.run(name, simcomm.star(p, "10 Gbit/s", "5 us"), 4 * 1003)
    schedule_share = verify(library()[name], p).sent_share
    uplinks = {link.src: link.nbytes for link in trace.links if link.src.startswith("h")}
    assert list(uplinks.values()) == trace.bytes_sent()
    assert max(trace.bytes_sent()) == pytest.approx(schedule_share * 4 * 1003, abs=4 * 2 * p)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"nbytes": 8, "op": "avg"}, "op 'avg'.*sum, mean"),
        ({"nbytes": 8, "dtype": "float8"}, "dtype 'float8'"),
        ({"nbytes": 8, "dtype": "int32", "op": "mean"}, "floating-point dtype"),
        ({"buffers": [np.zeros(2), np.zeros(3)]}, "buffers.1. has 3 elements of float64; buffers.0. has 2 of"),
    ],
)
def test_run_rejects_invalid_arguments(asked, message):
    with pytest.raises(InputError, match=message):
        simcomm.run("all_reduce/ring", simcomm.star(2, "10 Gbit/s", "5 us"), **asked)


def test_this_machine_requires_calibration(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match="ringlab calibrate --ranks 2"):
        simcomm.run("all_reduce/ring", simcomm.this_machine(2), 1024)


FOUR = simcomm.star(4, "10 Gbit/s", "5 us")
DGX = nccl_cluster(describe_preset("dgx-h100", 1, 4))
OVER_TCP = replace(FOUR, transport=Transport(tcp=TcpTerms(window=65e3)))


@pytest.mark.parametrize(
    ("cluster", "name"),
    [(FOUR, "network"), (OVER_TCP, "network"), (as_emulated(FOUR), "emulated"), (DGX, "nccl"),
     (simcomm.this_machine(2), "measured")],
)  # fmt: skip
def test_cluster_selects_its_performance_model(cluster: Cluster, name: str) -> None:
    assert type(performance_model(cluster)).__name__ == MODELS[name]


@pytest.mark.parametrize("cluster", [FOUR, OVER_TCP, as_emulated(FOUR), DGX], ids=lambda cluster: cluster.title)
def test_every_model_predicts_collectives_and_trainings(cluster: Cluster) -> None:
    ring = find_algorithm("all_reduce/ring")
    trace = simcomm.run(CollectiveCall(ring, 1 << 20), cluster)
    assert trace.elapsed > 0 and trace.title == "all_reduce/ring"
    training = Training(ring, compute=ComputePhases(0.01, 0.02, 0.005))
    step = simcomm.train(training, cluster, steps=1)
    assert step.elapsed > 0.035 and {span.name for span in step.spans} >= {"forward", "backward", "sync", "optimizer"}


def gpu_seconds(name: str, posting_s: float, message_s: float) -> float:
    """Return the predicted time on two GPUs with a latency of 1000 us, and these times for a queued message."""
    line, latency = FittedLine(0.0, 0.0, 0.0), [(1, 1e-3), (1 << 20, 1e-3)]
    message_classes = [MessageCurve(pattern, 1, False, True, latency) for pattern in ("relay", "exchange")]
    queued = QueuedMessages(posting_s, [(1, message_s), (1 << 20, message_s)])
    calibration = Calibration(2, 1, line, line, line, backend="nccl", message_classes=message_classes, queued=queued)
    return time_collective(CollectiveCall(find_algorithm(name), 1024), calibration, [0.0, 0.0]).finished[1]


@pytest.mark.parametrize(
    ("name", "messages", "turns"),
    [("broadcast/chain", 8, 1), ("all_reduce/double_tree", 16, 2), ("all_reduce/ring", 2, 2)],
)
def test_gpu_step_takes_the_longer_of_posting_and_device_time(name: str, messages: int, turns: int) -> None:
    """A message that waits for an answer takes its latency; a queued message only the longer of the two times."""
    device_bound = gpu_seconds(name, 1e-6, 40e-6)
    assert device_bound == pytest.approx(turns * 1e-3 + (messages - turns) * 40e-6, rel=0.02)
    steps = messages * (2 if name.endswith("tree") else 1)  # both channels' steps are posted by one host
    host_bound = gpu_seconds(name, 1e-3, 40e-6)
    assert host_bound == pytest.approx(steps * 1e-3, rel=0.07)


def test_nccl_collective_is_timed_on_nccl_cluster() -> None:
    trace = simcomm.run(CollectiveCall(nccl("all_reduce"), 1 << 20), DGX)
    expected = predict_calibrated(DGX.system, "all_reduce", 4 << 20)
    assert (trace.elapsed, trace.facts["low_s"]) == (expected.seconds, expected.low)
    assert trace.choice.startswith(f"{expected.algorithm}/{expected.protocol} x")
    with pytest.raises(InputError, match="own implementation, without a program"):
        simcomm.run(CollectiveCall(nccl("all_reduce"), 1 << 20), FOUR)
