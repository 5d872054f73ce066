"""What is to be calibrated, and run in turns with it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collectives.costs.hops import EXCHANGE, FAN_IN, FAN_OUT, RELAY, Hop, Probe, probes_of, request_hops
from collectives.records.calibration import PARTS
from collectives.records.environment import cores, threads_per_rank
from collectives.request import Request
from collectives.training.workload import Training
from realcomm.calibration.blocks import RankBlock, TrainingKind
from realcomm.measuring.measurement import RankMeasurement, TimedRequest
from realcomm.training.rank_result import RankResult

SIZES = tuple(4096 * 16**k for k in range(4))  # 4 KiB to 16 MiB: of messages and reductions, whatever is asked for
LINE_SIZES = (4096, 2 << 20)  # of those that are timed in any case
MEMORY = 2 << 30  # bytes of all ranks' buffers together, at most
TURNS = 6  # blocks of running a training, between blocks of calibrating
HOP_TURNS = 12  # of running collectives: the same time in shorter blocks halves the error (docs/predictions.md)
PROBE_S = 0.035  # of a probe in a block
RUN_S = 0.08  # of a collective in a block
REPETITIONS = 1, 9  # of either, at least and at most
LONE_PROBE_S, LONE_REPETITIONS = 0.1, (3, 25)  # where nothing is run between the blocks, which are few


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
    measurements: tuple[TimedRequest, ...] = ()
    turns: int = TURNS  # of trainings
    hop_turns: int = HOP_TURNS  # of collectives
    probe_s: float = PROBE_S
    run_s: float = RUN_S
    repetitions: tuple[int, int] = REPETITIONS  # of a probe or a collective in a block, at least and at most


def make_plan(
    ranks: int,
    requests: Sequence[Request] = (),
    trainings: Sequence[Training] = (),
    *,
    runs: bool = False,
    all_sizes: bool = False,
    turns: int = TURNS,
) -> CalibrationPlan:
    """Return the plan to calibrate for these requests and trainings and, with ``runs``, to run them in turns.

    Hops are timed at exactly the sizes of the requests; with ``all_sizes`` also at sizes from 4 KiB to 16 MiB. Without
    runs ``turns`` are of all that is timed.
    """
    hops = [hop for request in requests for hop in request_hops(request, ranks)]
    sizes = [size for size in SIZES if ranks * ranks * size <= MEMORY]
    common = [hop for size in (sizes if all_sizes else LINE_SIZES) for hop in _common_hops(size, ranks, all_sizes)]
    kinds: dict[TrainingKind, list[Training]] = {}
    for training in trainings:
        kinds.setdefault(TrainingKind.of(training), []).append(training)
    return CalibrationPlan(
        _probes([*hops, *common], ranks),
        tuple(sizes) if all_sizes else LINE_SIZES,
        tuple(_training_plan(ranks, same, runs) for same in kinds.values()),
        tuple(TimedRequest(request, warmup=2, repetitions=None, inputs=None) for request in requests) if runs else (),
        turns,
        (HOP_TURNS if requests else PARTS - 1) if runs else turns,
        PROBE_S if runs else LONE_PROBE_S,
        repetitions=REPETITIONS if runs else LONE_REPETITIONS,
    )


def _common_hops(nbytes: int, ranks: int, every_kind: bool) -> Iterable[Hop]:
    """Yield the hops from which a prediction reads those that were not asked for.

    Not ``every_kind`` but what a line is fitted to, from which clusters of other machines borrow.
    """
    if ranks < 2:
        return
    if not every_kind:
        yield from (Hop(pattern, 1, False, nbytes, is_first=False) for pattern in (RELAY, EXCHANGE))
        return
    fans = [(FAN_IN, ranks - 1), (FAN_OUT, ranks - 1)] if ranks > 2 else []
    for pattern, width in [(RELAY, 1), (EXCHANGE, 1), *fans]:
        for reduces in (False, True):
            for is_first in (True, False):
                yield Hop(pattern, width, reduces, nbytes, is_first)


def _probes(hops: Iterable[Hop], ranks: int) -> tuple[Probe, ...]:
    return tuple(dict.fromkeys(probe for hop in hops for probe in probes_of(hop, ranks)))


def _synchronised(training: Training) -> list[int]:
    """Return the bytes of each sync of a step: of all gradients, or of each bucket."""
    if training.buckets is None:
        return [training.gradient_bytes]
    return [bucket.nbytes for bucket in training.fill_buckets(training.gradients)]


def _training_plan(ranks: int, same: Sequence[Training], runs: bool) -> TrainingPlan:
    syncs = [
        Request(training.program, nbytes // 4, op="mean")
        for training in same
        for nbytes in _synchronised(training)
        if training.program is not None
    ]
    hops = [hop for sync in syncs for hop in request_hops(sync, ranks)] if ranks > 1 else []
    threads = tuple(dict.fromkeys([threads_per_rank(ranks), cores()]))
    overlaps = ranks > 1 and any(training.overlaps for training in same)
    return TrainingPlan(same[0], _probes(hops, ranks), threads, tuple(same) if runs else (), overlaps)


@dataclass
class RankTurns:
    """What one rank measured in all blocks, those of calibrating and those of running apart."""

    calibration: list[RankBlock]
    collectives: list[RankMeasurement]
    trainings: list[RankResult]
    cpu_s: float  # of all its threads, from the start of the process
