"""Each cluster has its performance model, and all models share one interface."""

from dataclasses import replace

import pytest

import simcomm
from collectives import find_algorithm
from collectives.call import CollectiveCall
from collectives.declaration import nccl
from collectives.errors import InputError
from collectives.records.calibration import Calibration, FittedLine, MessageCurve, QueuedMessages
from collectives.training.workload import ComputePhases, Training
from collectives.transport import TcpTerms, Transport
from simcomm.cluster.calibrated import as_emulated
from simcomm.cluster.cluster import Cluster
from simcomm.nccl.clusters import nccl_cluster
from simcomm.nccl.descriptions import describe_preset
from simcomm.nccl.measured.calibration import predict_calibrated
from simcomm.performance_models.measured_times import time_collective
from simcomm.performance_models.performance_model import MODELS, performance_model

STAR = simcomm.star(4, "10 Gbit/s", "5 us")
DGX = nccl_cluster(describe_preset("dgx-h100", 1, 4))
OVER_TCP = replace(STAR, transport=Transport(tcp=TcpTerms(window=65e3)))


@pytest.mark.parametrize(
    ("cluster", "name"),
    [(STAR, "network"), (OVER_TCP, "network"), (as_emulated(STAR), "emulated"), (DGX, "nccl"),
     (simcomm.this_machine(2), "measured")],
)  # fmt: skip
def test_cluster_selects_its_performance_model(cluster: Cluster, name: str) -> None:
    assert type(performance_model(cluster)).__name__ == MODELS[name]


@pytest.mark.parametrize("cluster", [STAR, OVER_TCP, as_emulated(STAR), DGX], ids=lambda cluster: cluster.title)
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
        simcomm.run(CollectiveCall(nccl("all_reduce"), 1 << 20), STAR)
