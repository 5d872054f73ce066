"""Measure the costs of messages, reductions and training steps on this machine, to predict runs on it.

A plan lists the measurements. It can also list runs to execute between them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from collectives.call import CollectiveCall
from collectives.checks import check_cluster, check_sequence
from collectives.costs.message_classes import (
    EXCHANGE,
    FAN_IN,
    FAN_OUT,
    RELAY,
    MessageClass,
    Probe,
    find_message_classes,
    probes_of,
)
from collectives.records.calibration import PARTS, Calibration
from collectives.records.environment import cores, threads_per_rank
from collectives.records.trace import Trace
from collectives.training.workload import Training
from realcomm.calibration.blocks import Block, RankBlock, Setting, TrainingKind, make_calibration
from realcomm.calibration.load import LoadWatch, watch_load
from realcomm.launching.launcher import check_launch, launch
from realcomm.launching.types import Progress, Ranks
from realcomm.measuring.collective_run import RankMeasurement, TimedCall
from realcomm.measuring.collective_run import make_trace as make_collective_trace
from realcomm.training.model_files import check_model, count_parameters
from realcomm.training.rank_result import RankResult, known_images
from realcomm.training.trainer import make_trace, preload_for

SIZES = tuple(4096 * 16**k for k in range(4))  # bytes of messages and reductions: 4 KiB to 16 MiB
LINE_SIZES = (4096, 2 << 20)  # sizes that are always timed
MEMORY = 2 << 30  # bytes of all ranks' buffers together, at most
TURNS = 6  # training blocks, alternating with calibration blocks
MESSAGE_TURNS = 12  # blocks of collectives; shorter blocks halve the error
PROBE_S = 0.035  # seconds per probe in a block
RUN_S = 0.08  # seconds per collective in a block
REPETITIONS = 1, 9  # least and most in a block, of a probe or a collective
LONE_PROBE_S, LONE_REPETITIONS = 0.1, (3, 25)  # in a calibration without runs, which has few blocks
BRIEF_BLOCK_S = 1.3  # most for all probes of such a block; with all sizes, there is no limit


@dataclass(frozen=True)
class TrainingPlan:
    """The calibration of one kind of training run, and the runs of this kind to execute between its blocks."""

    training: Training  # one training of this kind
    probes: tuple[Probe, ...]  # that replace the gradient sync
    lone_threads: tuple[int, ...]  # numbers of threads of a rank that computes alone
    runs: tuple[Training, ...] = ()
    overlaps: bool = False  # whether one of them uses DistributedDataParallel


@dataclass(frozen=True)
class CalibrationPlan:
    """The measurements of a calibration, and the runs to execute between its blocks."""

    probes: tuple[Probe, ...] = ()
    reductions: tuple[int, ...] = ()  # sizes in bytes
    trainings: tuple[TrainingPlan, ...] = ()
    measurements: tuple[TimedCall, ...] = ()
    turns: int = TURNS  # number of training blocks
    message_turns: int = MESSAGE_TURNS  # number of collective blocks
    probe_s: float = PROBE_S
    run_s: float = RUN_S
    repetitions: tuple[int, int] = REPETITIONS  # least and most, per probe or collective and block


def make_plan(
    ranks: int,
    calls: Sequence[CollectiveCall] = (),
    trainings: Sequence[Training] = (),
    *,
    runs: bool = False,
    all_sizes: bool = False,
    turns: int = TURNS,
) -> CalibrationPlan:
    """Return a plan that measures the costs of these collective calls and training runs.

    Messages are timed at the sizes that the calls send and at ``LINE_SIZES``. If ``all_sizes`` is true, sizes from 4
    KiB to at most 16 MiB replace ``LINE_SIZES``. If ``runs`` is true, the calls and training runs are also executed
    between the calibration blocks. ``turns`` is the number of rounds of training blocks. If ``runs`` is false, it is
    also the number of rounds of collective blocks.
    """
    message_classes = [message_class for call in calls for message_class in find_message_classes(call, ranks)]
    sizes = [size for size in SIZES if ranks * ranks * size <= MEMORY]
    common = [
        message_class
        for size in (sizes if all_sizes else LINE_SIZES)
        for message_class in _common_classes(size, ranks, all_sizes)
    ]
    kinds: dict[TrainingKind, list[Training]] = {}
    for training in trainings:
        kinds.setdefault(TrainingKind.of(training), []).append(training)
    probes = _probes([*message_classes, *common], ranks)
    lone_probe_s = LONE_PROBE_S if all_sizes else min(LONE_PROBE_S, BRIEF_BLOCK_S / max(1, len(probes)))
    return CalibrationPlan(
        probes,
        tuple(sizes) if all_sizes else LINE_SIZES,
        tuple(_training_plan(ranks, same, runs) for same in kinds.values()),
        tuple(TimedCall(call, warmup=2, repetitions=None, inputs=None) for call in calls) if runs else (),
        turns,
        (MESSAGE_TURNS if calls else PARTS - 1) if runs else turns,
        PROBE_S if runs else lone_probe_s,
        repetitions=REPETITIONS if runs else LONE_REPETITIONS,
    )


def _common_classes(nbytes: int, ranks: int, every_kind: bool) -> Iterable[MessageClass]:
    """Yield the message classes to measure at one size, including fans and reductions if ``every_kind`` is true."""
    if ranks < 2:
        return
    if not every_kind:
        yield from (MessageClass(pattern, 1, False, nbytes, is_first=False) for pattern in (RELAY, EXCHANGE))
        return
    fans = [(FAN_IN, ranks - 1), (FAN_OUT, ranks - 1)] if ranks > 2 else []
    for pattern, width in [(RELAY, 1), (EXCHANGE, 1), *fans]:
        for reduces in (False, True):
            for is_first in (True, False):
                yield MessageClass(pattern, width, reduces, nbytes, is_first)


def _probes(message_classes: Iterable[MessageClass], ranks: int) -> tuple[Probe, ...]:
    return tuple(dict.fromkeys(probe for message_class in message_classes for probe in probes_of(message_class, ranks)))


def _sync_bytes(training: Training) -> list[int]:
    """Return the bytes of each all_reduce that synchronizes gradients in a step."""
    if training.buckets is None:
        return [training.gradient_bytes]
    return [bucket.nbytes for bucket in training.fill_buckets(training.gradients)]


def _training_plan(ranks: int, same: Sequence[Training], runs: bool) -> TrainingPlan:
    syncs = [
        CollectiveCall(training.program, nbytes // 4, op="mean")
        for training in same
        for nbytes in _sync_bytes(training)
        if training.program is not None
    ]
    message_classes = (
        [message_class for sync in syncs for message_class in find_message_classes(sync, ranks)] if ranks > 1 else []
    )
    threads = tuple(dict.fromkeys([threads_per_rank(ranks), cores()]))
    overlaps = ranks > 1 and any(training.overlaps for training in same)
    return TrainingPlan(same[0], _probes(message_classes, ranks), threads, tuple(same) if runs else (), overlaps)


@dataclass
class RankTurns:
    """One rank's calibration blocks, and its results of the collectives and training runs between them."""

    calibration: list[RankBlock]
    collectives: list[RankMeasurement]
    trainings: list[RankResult]
    cpu_s: float  # CPU time of all threads since the process started


CALIBRATOR = "realcomm.calibration.calibrator:take_turns"  # imports torch, so only ranks import it

ALONE_TURNS = 3  # number of blocks of a calibration without runs


class CalibrationTurns(NamedTuple):
    """All ranks' calibration blocks, and the traces of the collectives and training runs between them."""

    calibration: list[Block]
    setting: Setting
    collectives: list[Trace]
    trainings: list[Trace]


def calibrate(
    ranks: int,
    trainings: Sequence[Training] = (),
    *,
    calls: Sequence[CollectiveCall] = (),
    backend: str = "gloo",
    all_sizes: bool = True,
    timeout: float = 600.0,
    progress: Progress | None = None,
) -> Calibration:
    """Measure this machine with ``ranks`` processes, and return its calibration.

    Each process gets an equal share of the cores. Messages are timed at the sizes that ``calls`` send and at sizes from
    4 KiB to at most 16 MiB. If ``all_sizes`` is false, only 4 KiB and 2 MiB are timed in addition to the sizes of
    ``calls``. With one rank, no messages are timed. Steps of ``trainings`` are timed in all processes at once. They are
    also timed in one process alone, with one rank's threads and with all cores. ``timeout`` is in seconds. Raise
    InputError, RankFailed and TimedOut as ``launch`` does.

    >>> calibrate(1).one_way.points  # doctest: +SKIP
    []
    """
    check_launch(ranks, backend, timeout)
    check_sequence("trainings", trainings, of="trainings")
    check_sequence("calls", calls, of="calls")
    trainings = _prepare(trainings)
    plan = make_plan(ranks, calls, trainings, all_sizes=all_sizes, turns=ALONE_TURNS)
    with watch_load() as load:
        ranks_turns = launch(CALIBRATOR, ranks, plan, backend=backend, timeout=timeout, progress=progress)
    return make_calibration(_blocks(ranks_turns), _setting(ranks, backend, ranks_turns, load))


def run_in_turns(
    calls: Sequence[CollectiveCall],
    trainings: Sequence[Training],
    cluster: Ranks,
    *,
    backend: str = "gloo",
    timeout: float = 600.0,
    progress: Progress | None = None,
) -> CalibrationTurns:
    """Run ``calls`` and ``trainings``, alternating with calibration blocks every few seconds.

    Return the blocks and the traces of the runs. ``timeout`` limits the whole launch, in seconds. If there are
    ``trainings``, each progress report restarts the timeout. Raise InputError, RankFailed and TimedOut as ``launch``
    does.
    """
    check_cluster(cluster, Ranks)
    trainings = _prepare(trainings)
    ranks = cluster.world_size
    plan = make_plan(ranks, calls, trainings, runs=True, turns=TURNS)
    with watch_load() as load:
        ranks_turns = launch(
            CALIBRATOR, ranks, plan, backend=backend, timeout=timeout, progress=progress, renews=bool(trainings)
        )
    collectives = [
        make_collective_trace(cluster, measurement, [rank.collectives[number] for rank in ranks_turns])
        for number, measurement in enumerate(plan.measurements)
    ]
    return CalibrationTurns(
        _blocks(ranks_turns),
        _setting(ranks, backend, ranks_turns, load),
        collectives,
        _training_traces(plan, cluster, trainings, ranks_turns),
    )


def _setting(ranks: int, backend: str, ranks_turns: "Sequence[RankTurns]", load: LoadWatch) -> Setting:
    return Setting(
        ranks, threads_per_rank(ranks), backend, load.share_of_others(sum(rank.cpu_s for rank in ranks_turns))
    )


def _blocks(ranks: "Sequence[RankTurns]") -> list[Block]:
    return list(zip(*(rank.calibration for rank in ranks), strict=True))


def _training_traces(
    plan: CalibrationPlan, cluster: Ranks, trainings: Sequence[Training], ranks: "Sequence[RankTurns]"
) -> list[Trace]:
    runs = [training for kind in plan.trainings for training in kind.runs]
    traces = [
        (training, make_trace(training, cluster, [rank.trainings[number] for rank in ranks]))
        for number, training in enumerate(runs)
    ]
    return [next(trace for run, trace in traces if run is training) for training in trainings]


def _prepare(trainings: Sequence[Training]) -> list[Training]:
    """Check the training runs' images and models. Return the runs with the number of parameters of users' models."""
    preload_for(trainings)
    for training in trainings:
        check_model(training)
        if known_images(training) is None:
            from realcomm.training.datasets import load_images  # slow: imports torch

            load_images(training, train=True)
    return [count_parameters(training) for training in trainings]
