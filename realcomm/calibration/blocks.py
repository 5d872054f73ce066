"""Compute a calibration from the measurements of calibration blocks. This module does not import torch.

A *block* is a few seconds of calibration measurements. It never contains runs that are compared with predictions.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median, quantiles
from typing import NamedTuple, TypeVar

import numpy as np

from collectives.costs.message_classes import EXCHANGE, PATTERNS, RELAY, MessageClass, Probe, message_seconds, probes_of
from collectives.records.calibration import (
    PARTS,
    Calibration,
    ComputePoint,
    FittedLine,
    MachineLoad,
    MessageCurve,
    OverlapPoint,
    QueuedMessages,
)
from collectives.training.gradients import Gradient
from collectives.training.workload import ComputePhases, Training

Interval = tuple[float, float]  # begin and end on the shared clock
Points = list[tuple[int, float]]  # (nbytes, seconds)
NO_MESSAGES = FittedLine(0.0, 0.0, 0.0)
Key = TypeVar("Key")
Value = TypeVar("Value")


class TrainingKind(NamedTuple):
    """The properties of a training run that determine its compute time."""

    model: str
    dataset: str
    batch_size: int

    @classmethod
    def of(cls, training: Training) -> "TrainingKind":
        return cls(training.model_kind, training.data_kind, training.batch_size)


class BlockStep(NamedTuple):
    """One rank's timed step in a calibration. A probe, a short program of messages, replaces the gradient sync."""

    phases: ComputePhases
    probe: Probe | None
    begin: float
    end: float
    division: float


class OverlapTimes(NamedTuple):
    """The times of one DistributedDataParallel step on one rank. Each part is measured on its own unless noted."""

    gradients: list[Gradient]  # in the order in which backward produces them
    sizes: list[int]  # of the buckets, in bytes
    backward: float
    overlapped: float  # backward during an all_reduce of every bucket
    all_reduce: list[Interval]  # each bucket's all_reduce without backward
    copies: Interval
    broadcast: Interval


@dataclass
class RankBlock:
    """One rank's measurements in one calibration block."""

    probes: dict[Probe, list[Interval]] = field(default_factory=dict)  # the probes in which this rank takes part
    reductions: dict[int, list[float]] = field(default_factory=dict)  # seconds, by bytes
    # host and GPU seconds of a message, by its bytes
    queued: dict[int, tuple[float, float]] = field(default_factory=dict)
    steps: dict[TrainingKind, list[BlockStep]] = field(default_factory=dict)
    overlap: dict[TrainingKind, list[OverlapTimes]] = field(default_factory=dict)
    # by number of threads; only on rank 0
    alone: dict[tuple[TrainingKind, int], list[ComputePhases]] = field(default_factory=dict)


Block = Sequence[RankBlock]  # all ranks' measurements in one block


class Setting(NamedTuple):
    """The conditions under which a calibration was measured."""

    ranks: int
    threads: int  # per rank
    backend: str = "gloo"
    load: MachineLoad | None = None


def make_calibration(blocks: Sequence[Block], setting: Setting) -> Calibration:
    """Compute a calibration from the medians over all repetitions in ``blocks``.

    If there are at least ``PARTS`` blocks, also compute one calibration from each list that ``split`` returns. They are
    stored in the result's ``parts``. Their spread is the uncertainty of predictions.
    """
    parts = [_make_one(share, setting) for share in split(blocks)] if len(blocks) >= PARTS else []
    return replace(_make_one(blocks, setting), parts=parts)


def split(blocks: Sequence[Block]) -> list[list[Block]]:
    """Distribute the blocks round-robin over ``PARTS`` lists, so that each list covers the whole measuring time.

    Blocks of collectives and of each kind of training run are distributed separately.
    """
    dealt: defaultdict[tuple[object, ...], int] = defaultdict(int)
    parts: list[list[Block]] = [[] for _ in range(PARTS)]
    for block in blocks:
        kind = tuple(block[0].steps)
        parts[dealt[kind] % PARTS].append(block)
        dealt[kind] += 1
    return parts


def _make_one(blocks: Sequence[Block], setting: Setting) -> Calibration:
    probes = {
        probe: median(max(end for _, end in ranks) - min(begin for begin, _ in ranks) for ranks in repetitions)
        for probe, repetitions in _repetitions(blocks, lambda rank: rank.probes).items()
    }
    reductions = {
        nbytes: median(map(max, repetitions))
        for nbytes, repetitions in _repetitions(blocks, lambda rank: rank.reductions).items()
    }
    steps = _repetitions(blocks, lambda rank: rank.steps)
    overlap = _repetitions(blocks, lambda rank: rank.overlap)
    alone = _repetitions(blocks, lambda rank: rank.alone)
    message_classes = _curves(probes, setting.ranks, in_training=False)
    for of_kind in steps.values():
        message_classes += _curves(_exchange_seconds(of_kind), setting.ranks, in_training=True)
    compute = [_together(kind, of_kind, setting) for kind, of_kind in steps.items()]
    compute += [_alone(kind, threads, [phases for (phases,) in of_kind]) for (kind, threads), of_kind in alone.items()]
    return Calibration(
        setting.ranks,
        setting.threads,
        one_way=_line(message_classes, RELAY),
        both_ways=_line(message_classes, EXCHANGE),
        reduction=fit_line(sorted(reductions.items())),
        backend=setting.backend,
        compute=compute,
        message_classes=message_classes,
        load=setting.load,
        overlap=[_overlap(kind, of_kind, setting) for kind, of_kind in overlap.items()],
        queued=_queued(blocks),
    )


def _repetitions(
    blocks: Sequence[Block], measured: Callable[[RankBlock], dict[Key, list[Value]]]
) -> dict[Key, list[tuple[Value, ...]]]:
    repetitions: defaultdict[Key, list[tuple[Value, ...]]] = defaultdict(list)
    for block in blocks:
        of_ranks = [measured(rank) for rank in block]
        for key in dict.fromkeys(key for values in of_ranks for key in values):
            repetitions[key] += zip(*(values[key] for values in of_ranks if key in values), strict=True)
    return dict(repetitions)


def _queued(blocks: Sequence[Block]) -> QueuedMessages | None:
    """Return the median host and GPU times of messages that are sent without waiting, or None if none were measured.

    In each block, the slower of ranks 0 and 1 counts.
    """
    posting, device = list[float](), defaultdict[int, list[float]](list)
    for block in blocks:
        for nbytes in block[0].queued:
            of_ranks = [rank.queued[nbytes] for rank in block[:2]]
            posting.append(max(host for host, _ in of_ranks))
            device[nbytes].append(max(seconds for _, seconds in of_ranks))
    points = [(nbytes, median(seconds)) for nbytes, seconds in sorted(device.items())]
    return QueuedMessages(median(posting), points) if points else None


def _exchange_seconds(steps: Sequence[tuple[BlockStep, ...]]) -> dict[Probe, float]:
    """Return the median time of each probe in seconds.

    A probe lasts from the last rank's start to the mean of the ranks' end times.
    """
    by_probe: defaultdict[Probe, list[float]] = defaultdict(list)
    for ranks in steps:
        if ranks[0].probe is not None:
            begin, end = max(rank.begin for rank in ranks), fmean(rank.end for rank in ranks)
            by_probe[ranks[0].probe].append(end - begin)
    return {probe: median(seconds) for probe, seconds in by_probe.items()}


def _curves(seconds: dict[Probe, float], world_size: int, in_training: bool) -> list[MessageCurve]:
    points_by_kind: defaultdict[tuple[str, int, bool, bool], Points] = defaultdict(list)
    kinds = {(probe.width, probe.reduces, probe.nbytes) for probe in seconds}
    for width, reduces, nbytes in sorted(kinds):
        for pattern in PATTERNS:
            for is_first in (True, False):
                message_class = MessageClass(pattern, width, reduces, nbytes, is_first)
                if all(probe in seconds for probe in probes_of(message_class, world_size)):
                    time = message_seconds(message_class, world_size, seconds.__getitem__)
                    points_by_kind[pattern, width, reduces, is_first].append((nbytes, time))
    return [MessageCurve(*kind, points, in_training) for kind, points in points_by_kind.items()]


def _together(kind: TrainingKind, steps: Sequence[tuple[BlockStep, ...]], setting: Setting) -> ComputePoint:

    def median_mean(value: Callable[[BlockStep], float]) -> float:
        return median(fmean(map(value, ranks)) for ranks in steps)

    phases = ComputePhases(
        forward=median_mean(lambda rank: rank.phases.forward),
        backward=median_mean(lambda rank: rank.phases.backward),
        optimizer=median_mean(lambda rank: rank.phases.optimizer),
        loading=median_mean(lambda rank: rank.phases.loading),
    )
    totals = [max(rank.phases.total for rank in ranks) for ranks in steps]
    division = median_mean(lambda rank: rank.division)
    return ComputePoint(
        *(*kind, setting.ranks, setting.threads, phases, _spread(totals)),
        # how long each rank waits for the slowest one before its exchange
        wait_s=median(fmean(max(rank.begin for rank in ranks) - rank.begin for rank in ranks) for ranks in steps),
        division_s=division,
    )


def _overlap(kind: TrainingKind, steps: Sequence[tuple[OverlapTimes, ...]], setting: Setting) -> OverlapPoint:
    sizes = steps[0][0].sizes
    reduced = [
        median(_together_s([rank.all_reduce[bucket] for rank in ranks]) for ranks in steps)
        for bucket in range(len(sizes))
    ]
    alone = median(fmean(rank.backward for rank in ranks) for ranks in steps)
    overlapped = median(fmean(rank.overlapped for rank in ranks) for ranks in steps)
    gradients = steps[0][0].gradients
    return OverlapPoint(
        *(*kind, setting.ranks, setting.threads),
        gradients=[(gradient.nbytes, gradient.ready) for gradient in gradients],
        all_reduce=sorted(dict(zip(sizes, reduced, strict=True)).items()),
        overlap_slowdown=max(0.0, overlapped - alone) / max(1e-9, min(sum(reduced), alone)),
        copies_s=median(fmean(end - begin for begin, end in (rank.copies for rank in ranks)) for ranks in steps),
        broadcast_s=median(_together_s([rank.broadcast for rank in ranks]) for ranks in steps),
    )


def _together_s(intervals: Sequence[Interval]) -> float:
    return max(end for _, end in intervals) - max(begin for begin, _ in intervals)


def _alone(kind: TrainingKind, threads: int, steps: Sequence[ComputePhases]) -> ComputePoint:
    phases = ComputePhases(
        *(median(getattr(step, name) for step in steps) for name in ("forward", "backward", "optimizer", "loading"))
    )
    return ComputePoint(*kind, 1, threads, phases, _spread([step.total for step in steps]))


def _spread(seconds: Sequence[float]) -> float:
    if len(seconds) < 2:
        return 0.0
    first, middle, third = quantiles(seconds)
    return (third - first) / middle


def _line(message_classes: Sequence[MessageCurve], pattern: str) -> FittedLine:
    """Fit a line to the times of ``pattern`` messages of width 1. Leave out reduced messages and the first of a
    sequence.
    """
    points = [
        point
        for curve in message_classes
        if (curve.pattern, curve.reduces, curve.is_first, curve.width) == (pattern, False, False, 1)
        for point in curve.points
        if point[1] > 0
    ]
    return fit_line(sorted(dict(points).items()))


def fit_line(points: Points) -> FittedLine:
    """Fit ``seconds = fixed + per_byte * nbytes`` to (bytes, seconds) points by least squares of relative errors.

    Neither coefficient is negative. Both are zero if there are no points.

    >>> line = fit_line([(1000, 3e-6), (2000, 4e-6)])
    >>> round(line.fixed * 1e6, 6), round(line.per_byte * 1e9, 6)  # microseconds, nanoseconds a byte
    (2.0, 1.0)
    """
    if not points:
        return NO_MESSAGES
    nbytes, seconds = np.array(points, dtype=float).T
    # relative @ (fixed, per_byte): fitted seconds divided by measured seconds
    relative = np.stack([1 / seconds, nbytes / seconds], axis=1)
    both = np.linalg.lstsq(relative, np.ones(len(points)))[0]
    alone = relative.sum(axis=0) / (relative**2).sum(axis=0)  # the best line with only one coefficient
    candidates = [both, alone * (1, 0), alone * (0, 1)]
    fixed, per_byte = min(
        (line for line in candidates if (line >= 0).all()), key=lambda line: float(((relative @ line - 1) ** 2).sum())
    )
    worst = float(np.abs(relative @ (fixed, per_byte) - 1).max())
    return FittedLine(float(fixed), float(per_byte), worst, points)
