"""Engines are chosen and rejected, and all performance models share one interface."""

from dataclasses import replace

import numpy as np
import pytest

import simcomm
from collectives import Algorithm, InputError, ProgramError, TcpTerms, Transport, find_algorithm, library
from collectives.call import CollectiveCall
from collectives.declaration import nccl
from collectives.proof.verifier import verify
from collectives.records.calibration import Calibration, FittedLine, MessageCurve, QueuedMessages
from collectives.spec import find_spec
from collectives.step import Program, recv, send
from collectives.training.workload import ComputePhases, Training
from simcomm.cluster.calibrated import as_emulated
from simcomm.cluster.cluster import Cluster
from simcomm.nccl.clusters import nccl_cluster
from simcomm.nccl.descriptions import describe_preset
from simcomm.nccl.measured.calibration import predict_calibrated
from simcomm.performance_models.measured_times import time_collective
from simcomm.performance_models.options import ENGINES
from simcomm.performance_models.performance_model import MODELS, performance_model

FOUR = simcomm.star(4, "10 Gbit/s", "5 us")
DGX = nccl_cluster(describe_preset("dgx-h100", 1, 4))
OVER_TCP = replace(FOUR, transport=Transport(tcp=TcpTerms(window=65e3)))


def test_engine_is_chosen_by_the_number_of_messages():
    few, many = (
        simcomm.run("all_reduce/ring", simcomm.star(hosts, "10 Gbit/s", "5 us"), 1 << 20, record=False)
        for hosts in (8, 100)
    )
    assert (few.engine, many.engine, many.method) == ("simpy", "compiled", "max-plus")


def test_unsupported_engines_are_rejected():
    with pytest.raises(InputError, match="compiled engine does not support buffers"):
        simcomm.run("all_reduce/ring", FOUR, buffers=[np.ones(12) for _ in range(4)], engine="compiled")
    with pytest.raises(InputError, match="unknown engine 'quick'; use simpy or compiled"):
        simcomm.run("all_reduce/ring", FOUR, 12, engine="quick")


def wait_for_left(rank: int, world_size: int) -> Program:
    yield (recv((rank - 1) % world_size, 0),)
    yield (send((rank + 1) % world_size, 0),)


@pytest.mark.parametrize("nbytes", [0, 400])
@pytest.mark.parametrize("engine", ENGINES)
def test_deadlock_of_80_ranks_is_reported_with_and_without_data(engine: str, nbytes: int):
    algorithm = Algorithm(find_spec("all_reduce"), "circle", wait_for_left, 1)
    with pytest.raises(ProgramError, match=r"world size 80: deadlock: rank 0 in step 0 \(line .*\) waits for rank 79"):
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
def test_gpu_step_takes_the_longer_of_host_and_device_time(name: str, messages: int, turns: int) -> None:
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
    with pytest.raises(InputError, match="own implementation and cannot be simulated"):
        simcomm.run(CollectiveCall(nccl("all_reduce"), 1 << 20), FOUR)
