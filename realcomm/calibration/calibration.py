"""Measure what messages, reductions and training steps cost on this machine, by which runs on it are predicted.

What is to be calibrated, and run in turns with it, is planned first.
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
from realcomm.calibration.blocks import CalibrationBlock, RankBlock, Setting, TrainingKind, make_calibration
from realcomm.calibration.load import LoadWatch, watch_load
from realcomm.launching.launcher import check_launch, launch
from realcomm.launching.types import Progress, Ranks
from realcomm.measuring.collective_run import RankMeasurement, TimedCall
from realcomm.measuring.collective_run import make_trace as make_collective_trace
from realcomm.training.model_files import check_model, count_parameters
from realcomm.training.rank_result import RankResult, known_images
from realcomm.training.trainer import make_trace, preload_for

SIZES = tuple(4096 * 16**k for k in range(4))  # 4 KiB to 16 MiB: of messages and reductions, whatever is asked for
LINE_SIZES = (4096, 2 << 20)  # of those that are timed in any case
MEMORY = 2 << 30  # bytes of all ranks' buffers together, at most
TURNS = 6  # blocks of running a training, between blocks of calibrating
MESSAGE_TURNS = 12  # of running collectives: the same time in shorter blocks halves the error (docs/predictions.md)
PROBE_S = 0.035  # of a probe in a block
RUN_S = 0.08  # of a collective in a block
REPETITIONS = 1, 9  # of either, at least and at most
LONE_PROBE_S, LONE_REPETITIONS = 0.1, (3, 25)  # where nothing is run between the blocks, which are few
BRIEF_BLOCK_S = 1.3  # for all probes of such a block together, at most, unless all sizes are timed


@dataclass(frozen=True)
class TrainingPlan:
    """A kind of training to be calibrated, and the trainings of this kind to be run."""

    training: Training  # any of the kind
    probes: tuple[Probe, ...]  # for the sync's place
    lone_threads: tuple[int, ...]  # of a rank that computes by itself
    runs: tuple[Training, ...] = ()
    overlaps: bool = False  # whether torch's own sync is among them, which overlaps backward


@dataclass(frozen=True)
class CalibrationPlan:
    """The work of a launch that calibrates, and runs in turns with that."""

    probes: tuple[Probe, ...] = ()
    reductions: tuple[int, ...] = ()  # bytes
    trainings: tuple[TrainingPlan, ...] = ()
    measurements: tuple[TimedCall, ...] = ()
    turns: int = TURNS  # of trainings
    message_turns: int = MESSAGE_TURNS  # of collectives
    probe_s: float = PROBE_S
    run_s: float = RUN_S
    repetitions: tuple[int, int] = REPETITIONS  # of a probe or a collective in a block, at least and at most


def make_plan(
    ranks: int,
    calls: Sequence[CollectiveCall] = (),
    trainings: Sequence[Training] = (),
    *,
    runs: bool = False,
    all_sizes: bool = False,
    turns: int = TURNS,
) -> CalibrationPlan:
    """Return the plan to calibrate for these calls and trainings and, with ``runs``, to run them in turns.

    Message classes are timed at exactly the sizes of the calls; with ``all_sizes`` also at sizes from 4 KiB to 16 MiB.
    Without runs ``turns`` are of all that is timed.
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
    """Yield the message classes from which a prediction reads those that were not asked for.

    Not ``every_kind`` but what a line is fitted to, from which clusters of other machines borrow.
    """
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


def _synchronised(training: Training) -> list[int]:
    """Return the bytes of each sync of a step: of all gradients, or of each bucket."""
    if training.buckets is None:
        return [training.gradient_bytes]
    return [bucket.nbytes for bucket in training.fill_buckets(training.gradients)]


def _training_plan(ranks: int, same: Sequence[Training], runs: bool) -> TrainingPlan:
    syncs = [
        CollectiveCall(training.program, nbytes // 4, op="mean")
        for training in same
        for nbytes in _synchronised(training)
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
    """What one rank measured in all blocks, those of calibrating and those of running apart."""

    calibration: list[RankBlock]
    collectives: list[RankMeasurement]
    trainings: list[RankResult]
    cpu_s: float  # of all its threads, from the start of the process


CALIBRATOR = "realcomm.calibration.calibrator:take_turns"  # which only ranks import, as torch comes with it

ALONE_TURNS = 3  # of a calibration without runs


class CalibrationTurns(NamedTuple):
    """Calibration blocks, and the runs that took place between them, which share no number with the blocks."""

    calibration: list[CalibrationBlock]
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
    """Measure this machine with ``ranks`` processes, each with its share of the cores, and return the calibration.

    Message classes are timed from 4 KiB to 16 MiB, unless ``all_sizes`` at two of them, and at the sizes of ``calls``;
    with one rank there are none. Steps of each of ``trainings`` are timed in all processes at once, and in one alone
    with one rank's threads and with all cores. Raise InputError, RankFailed and TimedOut as ``launch`` does.

    >>> calibrate(1).one_way.points  # doctest: +SKIP
    []
    """
    check_launch(ranks, backend, timeout)
    check_sequence("trainings", trainings, of="trainings")
    check_sequence("calls", calls, of="calls")
    trainings = _prepare(trainings)
    plan = make_plan(ranks, calls, trainings, all_sizes=all_sizes, turns=ALONE_TURNS)
    with watch_load() as load:
        found = launch(CALIBRATOR, ranks, plan, backend=backend, timeout=timeout, progress=progress)
    return make_calibration(_blocks(found), _setting(ranks, backend, found, load))


def run_in_turns(
    calls: Sequence[CollectiveCall],
    trainings: Sequence[Training],
    cluster: Ranks,
    *,
    backend: str = "gloo",
    timeout: float = 600.0,
    progress: Progress | None = None,
) -> CalibrationTurns:
    """Calibrate and run in one launch, in turns of a few seconds, and return what both kinds of block measured.

    With trainings ``timeout`` is of the seconds without progress. Raise InputError, RankFailed and TimedOut as
    ``launch`` does.
    """
    check_cluster(cluster, Ranks)
    trainings = _prepare(trainings)
    ranks = cluster.world_size
    plan = make_plan(ranks, calls, trainings, runs=True)
    with watch_load() as load:
        found = launch(
            CALIBRATOR, ranks, plan, backend=backend, timeout=timeout, progress=progress, renews=bool(trainings)
        )
    collectives = [
        make_collective_trace(cluster, measurement, [rank.collectives[number] for rank in found])
        for number, measurement in enumerate(plan.measurements)
    ]
    return CalibrationTurns(
        _blocks(found),
        _setting(ranks, backend, found, load),
        collectives,
        _training_traces(plan, cluster, trainings, found),
    )


def _setting(ranks: int, backend: str, found: "Sequence[RankTurns]", load: LoadWatch) -> Setting:
    return Setting(ranks, threads_per_rank(ranks), backend, load.share_of_others(sum(rank.cpu_s for rank in found)))


def _blocks(ranks: "Sequence[RankTurns]") -> list[CalibrationBlock]:
    return [CalibrationBlock(list(same)) for same in zip(*(rank.calibration for rank in ranks), strict=True)]


def _training_traces(
    plan: CalibrationPlan, cluster: Ranks, trainings: Sequence[Training], ranks: "Sequence[RankTurns]"
) -> list[Trace]:
    """Return the trace of each training, in the order in which they were asked for."""
    runs = [training for one in plan.trainings for training in one.runs]
    traces = [
        (training, make_trace(training, cluster, [rank.trainings[number] for rank in ranks]))
        for number, training in enumerate(runs)
    ]
    return [next(trace for run, trace in traces if run is training) for training in trainings]


def _prepare(trainings: Sequence[Training]) -> list[Training]:
    """Have the ranks' modules imported; return the trainings with the parameters of a user's model counted.

    Raise InputError for missing images and for models that cannot be built, before any rank starts.
    """
    preload_for(trainings)
    for training in trainings:
        check_model(training)
        if known_images(training) is None:
            from realcomm.training.datasets import load_images  # torch comes with it

            load_images(training, train=True)
    return [count_parameters(training) for training in trainings]
