"""GPU work is timed on its stream, CPU work when it is done."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from simulated_gpu import SimulatedGpu

from collectives.training.workload import Training
from realcomm.calibration.calibrator import CalibrationTraining
from realcomm.execution import gpu_progress
from realcomm.execution.gpu_progress import StepMark
from realcomm.launching import hangs
from realcomm.launching.status import padded, private_slot
from realcomm.measuring import probes, rank_measurement
from realcomm.training.stopwatch import Stopwatch


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimulatedGpu:
    return SimulatedGpu(monkeypatch)


def test_wait_for_overlapped_buckets_counts_as_sync(gpu: SimulatedGpu):
    watch = Stopwatch(0)
    for _ in range(2):
        watch.start()
        queue_phase(watch, "forward", gpu, 2.0)
        with watch.phase("backward"):
            gpu.channel.wait_stream(gpu.compute)
            gpu.channel.queue(5.0)
            gpu.compute.queue(3.0)
        with watch.phase("sync"):
            gpu.compute.wait_stream(gpu.channel)
        queue_phase(watch, "optimizer", gpu, 1.0)
    watch.pause()
    assert watch.phases() == pytest.approx({"forward": 2.0, "backward": 3.0, "sync": 2.0, "optimizer": 1.0})
    assert [span.begin for span in watch.spans] == pytest.approx([0, 2, 5, 7, 8, 10, 13, 15])
    gpu.compute.queue(10.0)  # of an observer
    watch.resume()
    watch.start()
    queue_phase(watch, "forward", gpu, 1.0)
    assert watch.spans[-1].begin == pytest.approx(16)


def queue_phase(watch: Stopwatch, name: str, gpu: SimulatedGpu, seconds: float) -> None:
    with watch.phase(name):
        gpu.compute.queue(seconds)


def test_calibration_times_gpu_work_without_its_launch(gpu: SimulatedGpu):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        training = CalibrationTraining(Training(None, batch_size=2), 0, 1, [])
        training._exchanges = [lambda gradients: gpu.compute.queue(4.0)]
        (times,) = training.take_steps(1)
    finally:
        dist.destroy_process_group()
    assert times.end - times.begin == pytest.approx(4.0)


def test_time_of_queued_calls_is_the_gpu_time_per_call(gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch):
    ran: list[object] = []

    def run(buffer: object) -> None:
        ran.append(buffer)
        gpu.compute.queue(2.0)

    monkeypatch.setattr(rank_measurement, "max_over_ranks", lambda seconds: seconds)
    executor, buffer = SimpleNamespace(run=run), SimpleNamespace(device=torch.device("cuda", 0))
    assert rank_measurement._time_queued(executor, buffer) == pytest.approx(2.0)  # type: ignore[arg-type]
    assert ran == [buffer] * 2 * rank_measurement.QUEUED, "as many warm up"


def test_gpu_reduction_times_exclude_the_kernel_launch(gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch):
    class GpuTensor(torch.Tensor):
        is_cuda, device = True, torch.device("cuda", 0)

        def add_(self, other: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            gpu.compute.queue(3.0)
            return self

    zeros = torch.zeros
    monkeypatch.setattr(probes, "own_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(torch, "zeros", lambda *sizes, device: zeros(*sizes).as_subclass(GpuTensor))
    assert probes.time_reduction(4096, 2) == pytest.approx([3.0, 3.0])


@pytest.mark.parametrize(("host_s", "device_s"), [(1.0, 3.0), (3.0, 1.0)], ids=["slow device", "slow host"])
def test_queued_messages_have_separate_host_and_device_times(
    host_s: float, device_s: float, gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch
):
    """The first message waits for its receiver, the later ones only for each other."""

    def run() -> None:
        for _ in range(probes.QUEUED):
            gpu.host += host_s
            gpu.compute.queue(device_s)

    monkeypatch.setattr(probes, "own_device", lambda: torch.device("cuda", 0))
    monkeypatch.setattr(probes, "perf_counter", lambda: gpu.host)
    bench = probes.QueueBench(0, 2)
    bench._runs[4096] = run
    gpu.compute.queue(500.0)
    posting, device = bench.time(4096)
    assert posting == pytest.approx(host_s)
    assert device == pytest.approx(max(device_s, host_s), rel=0.02)


@pytest.fixture
def marks_of(gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], gpu_progress.StepMarks]:
    monkeypatch.setattr(gpu_progress, "_start_looking", lambda device: None)
    monkeypatch.setattr(gpu_progress, "_begun", deque())
    return lambda name: gpu_progress.StepMarks(torch.device("cuda", 0), padded(name, 56), timeout_s=60.0)


def test_hang_on_a_gpu_names_the_first_unfinished_step(gpu: SimulatedGpu, marks_of: Callable):
    slot = private_slot()
    done, stuck, behind = map(marks_of, ("first", "second", "third"))
    done.begin()
    done.add(StepMark(0, 0, 1))
    for marks in (stuck, behind):
        marks.begin()
        for number in range(3):
            gpu.compute.queue(10.0)
            marks.add(StepMark(1, number, number + 1))
    gpu.host += 15.0
    gpu_progress.look(slot.wait)
    assert slot.wait.describe() == "second step 1, waiting for rank 2"
    stuck.begin()
    stuck.add(StepMark(0, 0, 1))
    assert stuck.first_unfinished() == StepMark(1, 1, 2), "a run that is queued behind it hides nothing"
    gpu.synchronize()
    gpu_progress.look(slot.wait)
    assert not slot.is_waiting


def test_hang_is_reported_before_torch_watchdog(gpu: SimulatedGpu, marks_of: Callable, monkeypatch: pytest.MonkeyPatch):
    """The report has the collective, channel, step and peer, and comes before the group's timeout."""
    monkeypatch.setattr("realcomm.execution.gpu_progress.time.monotonic", lambda: gpu.host)
    reports: list[str] = []
    monkeypatch.setattr(hangs._Watch, "looks", (lambda: gpu_progress.look(private_slot().wait),))
    monkeypatch.setattr(hangs._Watch, "report", reports.append)
    marks = marks_of("all_reduce/ring")
    marks.begin()
    gpu.compute.queue(1000.0)
    marks.add(StepMark(1, 3, 2))
    gpu.host += 60.0 - hangs.MARGIN_S - 1.0
    assert not hangs.look_once() and not reports
    gpu.host += 1.0
    assert hangs.look_once()
    assert reports == ["all_reduce/ring, channel 1, step 3, waiting for rank 2"]
