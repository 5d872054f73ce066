"""One rank's part of calibrating, and of calibrating and running in turns."""

from time import process_time

import torch.distributed as dist

from collectives.units import format_size
from realcomm.calibration.blocks import RankBlock, TrainingKind
from realcomm.calibration.calibration_steps import CalibrationTraining
from realcomm.calibration.ddp_overlap import OverlapCalibrator
from realcomm.calibration.plan import Plan, TrainingPlan
from realcomm.calibration.rank_turns import RankTurns
from realcomm.execution.host_group import host_barrier
from realcomm.launching.group import own_device
from realcomm.launching.status import report_progress, set_status
from realcomm.measuring.probes import ProbeBench, time_reduction
from realcomm.measuring.rank_measurement import RunningMeasurement
from realcomm.measuring.timing import without_garbage_collection
from realcomm.training.compute_phases import LoneTraining
from realcomm.training.rank_result import RankResult
from realcomm.training.running import RunningTraining

REDUCTIONS = 9  # repetitions in a block
STEPS_PER_PROBE = 1  # training steps of a block that use the same probe
LEAST_STEPS = 6  # training steps of a block
BESIDE_STEPS = 3  # of the pieces of torch's own sync, in a block
LONE_STEPS = 3  # of one rank by itself, in a block
MOST_PAUSES = 2  # of running in a turn, in which a block is calibrated; more trainings than that share one


def take_turns(rank: int, world_size: int, plan: Plan) -> RankTurns:
    """Calibrate and run in turns, first the collectives, then the trainings."""
    bench, blocks = ProbeBench(rank, world_size), list[RankBlock]()
    running = [RunningMeasurement(rank, world_size, one) for one in plan.measurements]
    if plan.probes or plan.reductions:
        for turn in range(plan.hop_turns + 1):
            blocks.append(_calibrate_hops(bench, plan, f"block {turn + 1} of {plan.hop_turns + 1}"))
            for measurement in running if turn < plan.hop_turns else ():
                measurement.take_block(plan.run_s, *plan.repetitions)
    collectives = [measurement.result() for measurement in running]
    del bench, running
    trainings = []
    for training_plan in plan.trainings:
        found, results = _train_in_turns(rank, world_size, training_plan, plan.turns)
        blocks += found
        trainings += results
    return RankTurns(blocks, collectives, trainings, process_time())


def _calibrate_hops(bench: ProbeBench, plan: Plan, text: str) -> RankBlock:
    """Time every probe and reduction for a moment."""
    block = RankBlock()
    with without_garbage_collection():
        for done, probe in enumerate(plan.probes):
            set_status(f"calibrating {probe.pattern}, {format_size(probe.nbytes)}")
            if bench.rank == 0 and done % 8 == 0:
                report_progress(done, len(plan.probes), f"calibrating, {text}")
            intervals = bench.time(probe, plan.probe_s, plan.repetitions)
            if bench.takes_part(probe):
                block.probes[probe] = intervals
        for nbytes in plan.reductions:
            dist.barrier()
            block.reductions[nbytes] = time_reduction(nbytes, REDUCTIONS)
    return block


def _train_in_turns(
    rank: int, world_size: int, plan: TrainingPlan, turns: int
) -> tuple[list[RankBlock], list[RankResult]]:
    """Calibrate the computing of a kind of training, and run its trainings in turns with that."""
    calibrator = _TrainingCalibrator(rank, world_size, plan)
    running = list[RunningTraining]()
    for training in plan.runs:
        alone = running[0].alone if running else None  # the same for all of a kind
        running.append(RunningTraining(rank, world_size, training, alone=alone))
    calibrator.warm_up()
    blocks = [calibrator.take_block()]
    together = [running] if len(running) > MOST_PAUSES else [[one] for one in running] or [[]]
    for turn in range(turns):
        for trainings in together:
            for one in trainings:
                one.take_steps(-(-(one.steps - one.done) // (turns - turn)))
            blocks.append(calibrator.take_block())
    return blocks, [one.finish() for one in running]


class _TrainingCalibrator:
    """The calibration of a kind of training on one rank."""

    def __init__(self, rank: int, world_size: int, plan: TrainingPlan) -> None:
        self.rank, self.kind = rank, TrainingKind.of(plan.training)
        set_status("preparing the calibration of a training step")
        self._stand_in = CalibrationTraining(plan.training, rank, world_size, plan.probes)
        self._steps = max(LEAST_STEPS, STEPS_PER_PROBE * len(plan.probes))
        self._beside = OverlapCalibrator(self._stand_in) if plan.overlaps and own_device().type == "cpu" else None
        self._lone = {threads: LoneTraining(plan.training, threads) for threads in plan.lone_threads if rank == 0}

    def warm_up(self) -> None:
        """Take steps that do not count."""
        set_status("warming up a training step")
        self._stand_in.warm_up()

    def take_block(self) -> RankBlock:
        """Take steps with all ranks, then with one alone; all ranks call this."""
        set_status("calibrating a training step")
        block = RankBlock(steps={self.kind: self._stand_in.take_steps(self._steps)})
        if self._beside is not None:
            block.beside[self.kind] = self._beside.take_steps(BESIDE_STEPS)
        for threads, lone in self._lone.items():
            block.alone[self.kind, threads] = lone.take_steps(LONE_STEPS)
        host_barrier()  # the others sleep meanwhile
        return block
