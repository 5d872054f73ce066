"""Calibrate one rank. Calibration blocks can alternate with runs that are compared with predictions.

In a calibration's training steps, ranks do not synchronize gradients. Instead they exchange the messages of a probe
(``realcomm.measuring.probes``). Ranks wait for each other after every exchange, so all of them compute each phase at
the same time, as in a training run.

The calibration does not run DistributedDataParallel itself. It measures the parts of a step: the times at which
backward produces each gradient, gloo's all_reduce of each bucket, the slowdown of backward during these all_reduces,
the copies of gradients into buckets and back, and the broadcast of the buffers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter, process_time
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from collectives.call import round_down
from collectives.costs.message_classes import Probe
from collectives.training.gradients import Bucket, Gradient, fill_buckets
from collectives.training.workload import ComputePhases, Training
from collectives.units import format_size
from realcomm.calibration.blocks import BlockStep, Interval, OverlapTimes, RankBlock, TrainingKind
from realcomm.calibration.calibration import CalibrationPlan, RankTurns, TrainingPlan
from realcomm.execution.executor import Executor
from realcomm.execution.group_memory import host_barrier
from realcomm.execution.shared_clock import shared_clock_offset
from realcomm.launching.group import own_device
from realcomm.launching.status import report_progress, set_status
from realcomm.measuring.probes import ProbeBench, QueueBench, probe_call, time_reduction
from realcomm.measuring.rank_measurement import RunningMeasurement, without_garbage_collection
from realcomm.training.datasets import load_next
from realcomm.training.gradient_sync import AfterBackward, Average
from realcomm.training.models import build_model
from realcomm.training.rank_result import RankResult
from realcomm.training.replica import WARM_UP_STEPS, make_replica, take_step
from realcomm.training.running import EndlessBatches, LoneTraining, RunningTraining
from realcomm.training.stopwatch import Stopwatch

REDUCTIONS = 9  # repetitions of a reduction in a block
OVERLAP_STEPS = 3  # steps per block that measure DistributedDataParallel's parts
LONE_STEPS = 3  # steps per block of one rank alone

T = TypeVar("T")


class CalibrationTraining:
    """Runs one rank's training steps in a calibration. Each step runs a probe instead of the gradient sync."""

    def __init__(self, training: Training, rank: int, world_size: int, probes: Sequence[Probe]) -> None:
        self.rank, self.world_size, self.probes = rank, world_size, list(probes)
        self.replica = make_replica(build_model(training, training.seed), training)
        self.batches = EndlessBatches(training, rank, world_size)
        self._exchanges = [self._exchange(probe) for probe in self.probes]
        self._watch = Stopwatch(rank)
        self._done, self._offset = 0, 0.0
        self._token = torch.zeros(1, device=own_device())

    def take_steps(self, count: int) -> list[BlockStep]:
        """Take ``count`` steps, each with the next probe in rotation. Return their times. All ranks must call this."""
        self.batches.take_prefetched()
        self._offset = shared_clock_offset()
        dist.barrier()
        return [self._step() for _ in range(count)]

    def warm_up(self) -> None:
        self.take_steps(max(WARM_UP_STEPS, len(self.probes)))

    def _step(self) -> BlockStep:
        images, labels = load_next(self.batches, self._watch)
        number = self._done % max(1, len(self.probes))
        exchange = self._exchanges[number] if self._exchanges else None
        marks: list[float] = []

        def exchange_probe(gradients: torch.Tensor) -> None:
            marks.append(self._watch.now())
            if exchange is not None:
                exchange(gradients)
            marks.append(self._watch.now())
            gradients.div_(self.world_size)
            marks.append(self._watch.now())
            if self.world_size > 1:
                dist.all_reduce(self._token)  # on a GPU, the stream waits for all ranks and the host does not

        take_step(self.replica, images, labels, AfterBackward(exchange_probe), self._watch)
        self._done += 1
        seconds = self._watch.phases()
        begin, end, divided = (self._watch.seconds(mark) + self._offset for mark in marks)
        probe = self.probes[number] if self.probes else None
        phases = ComputePhases(*(seconds[name] for name in ("forward", "backward", "optimizer", "loading")))
        return BlockStep(phases, probe, begin, end, divided - end)

    def _exchange(self, probe: Probe) -> Average:
        """Return a function that runs the probe on the gradients, or on zeros if the probe has another size."""
        call = probe_call(probe, self.world_size)
        gradients = self.replica.gradients
        if abs(call.elements - gradients.numel()) < self.world_size:
            call = replace(call, elements=round_down(call.algorithm, gradients.numel(), self.world_size))
            most = gradients[: call.elements]  # all gradients, except a remainder that equal chunks leave
            run = Executor(call, self.rank, self.world_size, device=own_device()).run
            return lambda gradients: run(most)
        executor = Executor(call, self.rank, self.world_size, device=own_device())
        buffer = torch.zeros(call.elements, device=own_device())
        return lambda gradients: executor.run(buffer)


class OverlapCalibrator:
    """Measures the parts of a DistributedDataParallel step on one rank. All ranks must call each method together."""

    def __init__(self, training: CalibrationTraining) -> None:
        self._training, self._offset = training, 0.0
        self._model = training.replica.model
        self._gradients = self._time_gradients(*next(training.batches))
        self._gradients = self._time_gradients(*next(training.batches))
        self._buckets: list[Bucket] = fill_buckets(self._gradients)
        self._messages = [torch.zeros(bucket.nbytes // 4) for bucket in self._buckets]
        self._flat = torch.zeros_like(training.replica.gradients)
        self._buffers = torch.zeros(sum(buffer.nbytes for buffer in self._model.buffers()) // 4)

    def take_steps(self, count: int) -> list[OverlapTimes]:
        self._offset = shared_clock_offset()
        return [self._step() for _ in range(count)]

    def _step(self) -> OverlapTimes:
        images, labels = next(self._training.batches)
        alone = self._backward(images, labels, lambda: None)
        dist.barrier()
        reduced = [self._interval(partial(dist.all_reduce, message)) for message in self._messages]
        under_way: list[dist.Work] = []

        def start() -> None:
            under_way.extend(dist.all_reduce(message, async_op=True) for message in self._messages)

        overlapped = self._backward(images, labels, start)
        for work in under_way:
            work.wait()
        dist.barrier()
        copies = self._interval(self._copy)
        dist.barrier()
        broadcast = self._interval(lambda: dist.broadcast(self._buffers, 0))
        self._training.replica.optimizer.step()
        sizes = [bucket.nbytes for bucket in self._buckets]
        return OverlapTimes(self._gradients, sizes, alone, overlapped, reduced, copies, broadcast)

    def _interval(self, action: Callable[[], object]) -> Interval:
        begin = perf_counter() + self._offset
        action()
        return begin, perf_counter() + self._offset

    def _backward(self, images: torch.Tensor, labels: torch.Tensor, start: Callable[[], None]) -> float:
        """Return the seconds that backward takes while the collectives started by ``start`` are in flight."""
        loss = cross_entropy(self._model(images), labels)
        dist.barrier()
        start()
        begin = perf_counter()
        self._training.replica.optimizer.zero_grad(set_to_none=False)
        loss.backward()
        return perf_counter() - begin

    def _copy(self) -> None:
        """Copy each gradient into a flat buffer and back, as DistributedDataParallel does without bucket views."""
        parameters = [p for p in self._model.parameters() if p.grad is not None]
        for direction in (True, False):
            offset = 0
            for parameter in parameters:
                assert parameter.grad is not None
                piece = self._flat[offset : offset + parameter.numel()].view_as(parameter)
                (piece.copy_(parameter.grad) if direction else parameter.grad.copy_(piece))
                offset += parameter.numel()

    def _time_gradients(self, images: torch.Tensor, labels: torch.Tensor) -> list[Gradient]:
        """Run one backward. Return each gradient with its time as a fraction of backward, in order of readiness."""
        times: list[tuple[int, float]] = []
        hooks = [
            parameter.register_post_accumulate_grad_hook(
                lambda parameter: times.append((parameter.nbytes, perf_counter()))
            )
            for parameter in self._model.parameters()
        ]
        loss = cross_entropy(self._model(images), labels)
        begin = perf_counter()
        loss.backward()
        elapsed = perf_counter() - begin
        for hook in hooks:
            hook.remove()
        return [Gradient(nbytes, min(1.0, (at - begin) / elapsed)) for nbytes, at in times]


def take_turns(rank: int, world_size: int, plan: CalibrationPlan) -> RankTurns:
    """Measure calibration blocks, alternating with the plan's collectives and then with its training runs.

    All ranks must call this together.
    """
    bench, blocks = ProbeBench(rank, world_size), list[RankBlock]()
    queue = QueueBench(rank, world_size) if world_size > 1 and own_device().type == "cuda" else None
    running = [RunningMeasurement(rank, world_size, measurement_plan) for measurement_plan in plan.measurements]
    if plan.probes or plan.reductions:
        for turn in range(plan.message_turns + 1):
            _report_blocks(rank, plan, turn)
            blocks.append(_calibrate_messages(bench, queue, plan))
            for measurement in running if turn < plan.message_turns else ():
                measurement.take_block(plan.run_s, *plan.repetitions)
    collectives = [measurement.result() for measurement in running]
    del bench, queue, running
    trainings = []
    for training_plan in plan.trainings:
        training_blocks, results = _train_in_turns(rank, world_size, plan, training_plan, len(blocks))
        blocks += training_blocks
        trainings += results
    return RankTurns(blocks, collectives, trainings, process_time())


def _report_blocks(rank: int, plan: CalibrationPlan, done: int) -> None:
    blocks = (plan.message_turns + 1) * bool(plan.probes or plan.reductions)
    blocks += sum(plan.turns * len(_in_groups(training.runs)) + 1 for training in plan.trainings)
    if rank == 0:
        report_progress(done, blocks, "calibration blocks")


def _in_groups(runs: Sequence[T]) -> list[list[T]]:
    """Group the runs that share a calibration block: up to two runs stay separate, more runs are one group."""
    return [[*runs]] if len(runs) > 2 else [[run] for run in runs] or [[]]


def _calibrate_messages(bench: ProbeBench, queue: QueueBench | None, plan: CalibrationPlan) -> RankBlock:
    block = RankBlock()
    with without_garbage_collection():
        for probe in plan.probes:
            set_status(f"calibrating {probe.pattern}, {format_size(probe.nbytes)}")
            intervals = bench.time(probe, plan.probe_s, plan.repetitions)
            if bench.takes_part(probe):
                block.probes[probe] = intervals
        for nbytes in plan.reductions:
            dist.barrier()
            block.reductions[nbytes] = time_reduction(nbytes, REDUCTIONS)
            if queue is not None:
                block.queued[nbytes] = queue.time(nbytes)
    return block


def _train_in_turns(
    rank: int, world_size: int, calibration: CalibrationPlan, plan: TrainingPlan, blocks_before: int
) -> tuple[list[RankBlock], list[RankResult]]:
    _report_blocks(rank, calibration, blocks_before)
    calibrator = _TrainingCalibrator(rank, world_size, plan)
    running = list[RunningTraining]()
    for training in plan.runs:
        alone = running[0].alone if running else None  # equal for all trainings of a kind
        running.append(RunningTraining(rank, world_size, training, alone=alone))
    calibrator.warm_up()
    blocks = [calibrator.take_block()]
    for turn in range(calibration.turns):
        for trainings in _in_groups(running):
            for run in trainings:
                run.take_steps(-(-(run.steps - run.done) // (calibration.turns - turn)))
            _report_blocks(rank, calibration, blocks_before + len(blocks))
            blocks.append(calibrator.take_block())
    return blocks, [run.finish() for run in running]


class _TrainingCalibrator:
    def __init__(self, rank: int, world_size: int, plan: TrainingPlan) -> None:
        self.rank, self.kind = rank, TrainingKind.of(plan.training)
        set_status("preparing the calibration of a training step")
        self._training = CalibrationTraining(plan.training, rank, world_size, plan.probes)
        self._steps = max(6, len(plan.probes))  # steps in a block
        self._overlap = OverlapCalibrator(self._training) if plan.overlaps and own_device().type == "cpu" else None
        self._lone = {threads: LoneTraining(plan.training, threads) for threads in plan.lone_threads if rank == 0}

    def warm_up(self) -> None:
        set_status("warming up a training step")
        self._training.warm_up()

    def take_block(self) -> RankBlock:
        set_status("calibrating a training step")
        block = RankBlock(steps={self.kind: self._training.take_steps(self._steps)})
        if self._overlap is not None:
            block.overlap[self.kind] = self._overlap.take_steps(OVERLAP_STEPS)
        for threads, lone in self._lone.items():
            block.alone[self.kind, threads] = lone.take_steps(LONE_STEPS)
        host_barrier()  # other ranks sleep until here
        return block
