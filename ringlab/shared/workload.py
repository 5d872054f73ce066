"""Resolves ``auto`` in a scenario's collectives and training runs, and counts the messages to simulate."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from collectives.call import CollectiveCall, make_call
from collectives.catalogue import library
from collectives.declaration import NCCL
from collectives.errors import InputError
from collectives.proof.verifier import is_bitwise_identical
from collectives.records.calibration import Calibration
from collectives.training.workload import Training
from scenarios import CollectiveComparison, LoadedScenario
from simcomm.cluster.cluster import Cluster
from simcomm.model.faults import Faults
from simcomm.performance_models.performance_model import PerformanceModel
from simcomm.schedules import compact_schedule, verified_schedule
from simcomm.selection import library_candidates, resolve_auto

FEWEST_TO_DIFFER = 3  # ranks; the sum of two numbers does not depend on their order
MOST_LOOKED_AT = 20_000  # messages of a run that is simulated again to find its bottleneck, in under a second


def resolve_calls(
    comparison: CollectiveComparison | None, cluster: Cluster, calibration: Calibration | None
) -> list[CollectiveCall]:
    """Return the collectives of a scenario on a cluster, with ``auto`` resolved for each size."""
    calls = comparison.calls(cluster.world_size) if comparison else ()
    return [resolve_auto(call, cluster, calibration) for call in calls]


def resolve_training(training: Training, cluster: Cluster, calibration: Calibration | None) -> Training:
    """Return the training with ``auto`` resolved to an algorithm whose ranks all add in the same order."""
    sync = training.gradient_sync
    if sync is None or sync.is_decided:  # the gradients of a user's model need not be counted to run it
        return training
    call = make_call(sync, cluster.world_size, training.gradient_bytes, op="mean")
    among = (
        candidate
        for candidate in library_candidates("all_reduce", cluster)
        if is_bitwise_identical(library()[f"all_reduce/{candidate.name}"], FEWEST_TO_DIFFER)
    )
    return replace(training, gradient_sync=resolve_auto(call, cluster, calibration, among).algorithm)


def predictable(trainings: Sequence[Training]) -> list[Training]:
    """Return the training runs that can be predicted on every cluster: all without DistributedDataParallel."""
    return [training for training in trainings if training.gradient_sync is not None]


def leave_nccl_out(scenario: LoadedScenario) -> LoadedScenario:
    """Return the scenario without NCCL's own collectives, to run on gloo. Raise InputError if nothing remains."""
    collective = scenario.collective
    if collective is not None:
        collective = replace(collective, algorithms=collective.programs) if collective.programs else None
    trainings = tuple(each for each in scenario.trainings if each.gradient_sync is None or each.program is not None)
    if collective is None and not trainings:
        raise InputError(
            f'{scenario.path}: "{NCCL}" cannot run on gloo; add a library algorithm such as ring, '
            "or run on GPUs with --backend nccl"
        )
    return replace(scenario, collective=collective, trainings=trainings)


def check_programs(scenario: LoadedScenario, calls: Sequence[CollectiveCall], trainings: Sequence[Training]) -> None:
    """Raise ProgramError for an incorrect algorithm, before the first measurement."""
    called = [(call.algorithm, call.root) for call in calls if call.algorithm.has_program]
    called += [(training.program, 0) for training in trainings if training.program is not None]
    for algorithm, root in dict.fromkeys(called):
        verified_schedule(algorithm, scenario.cluster.world_size, root)


class WorkCount(NamedTuple):
    """The amount of work to simulate for a row, as numbers of messages and collectives."""

    messages: int = 0  # in all repetitions
    collectives: int = 1  # simulated one after another in each repetition


def is_auto(job: CollectiveCall | Training) -> bool:
    """Return whether the algorithm was resolved from ``auto``."""
    algorithm = job.algorithm if isinstance(job, CollectiveCall) else job.gradient_sync
    return algorithm is not None and algorithm.by_model


def count_work(job: CollectiveCall | Training, model: PerformanceModel, faults: Faults) -> WorkCount:
    """Return the numbers of messages and collectives to simulate. A formula that predicts the row needs 0 messages.

    Raises TooLarge if the schedule exceeds the memory limit, and ProgramError if the program is incorrect.
    """
    carried = model.carried(job)
    if carried is None:
        return WorkCount()
    messages = compact_schedule(carried.algorithm, model.cluster.world_size, carried.root).messages
    return WorkCount(carried.times * messages * faults.runs, carried.times)
