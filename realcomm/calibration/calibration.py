"""Measure what messages, reductions and training steps cost on this machine, by which runs on it are predicted."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from collectives.checks import check_cluster
from collectives.records.calibration import Calibration
from collectives.records.environment import threads_per_rank
from collectives.records.trace import Trace
from collectives.request import Request
from collectives.training.workload import Training
from realcomm.calibration.blocks import CalibrationBlock, Setting, make_calibration
from realcomm.calibration.load import LoadWatch, watch_load
from realcomm.calibration.plan import CalibrationPlan, make_plan
from realcomm.launching.launcher import launch
from realcomm.launching.types import Progress, Ranks
from realcomm.measuring.collective_run import make_trace as make_collective_trace
from realcomm.training.model_files import check_model
from realcomm.training.rank_result import known_images
from realcomm.training.trainer import make_trace, preload_for

if TYPE_CHECKING:
    from realcomm.calibration.plan import RankTurns

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
    requests: Sequence[Request] = (),
    backend: str = "gloo",
    all_sizes: bool = True,
    timeout: float = 600.0,
    progress: Progress | None = None,
) -> Calibration:
    """Measure this machine with ``ranks`` processes, each with its share of the cores, and return the calibration.

    Hops are timed from 4 KiB to 16 MiB, unless ``all_sizes`` at two of them, and at the sizes of ``requests``; with one
    rank there are none. Steps of each of ``trainings`` are timed in all processes at once, and in one alone with one
    rank's threads and with all cores. Raise InputError, RankFailed and TimedOut as ``launch`` does.

    >>> calibrate(1).one_way.points  # doctest: +SKIP
    []
    """
    _prepare(trainings)
    plan = make_plan(ranks, requests, trainings, all_sizes=all_sizes, turns=ALONE_TURNS)
    with watch_load() as load:
        found = launch(CALIBRATOR, ranks, plan, backend=backend, timeout=timeout, progress=progress)
    return make_calibration(_blocks(found), _setting(ranks, backend, found, load))


def run_in_turns(
    requests: Sequence[Request],
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
    _prepare(trainings)
    ranks = cluster.world_size
    plan = make_plan(ranks, requests, trainings, runs=True)
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


def _prepare(trainings: Sequence[Training]) -> None:
    """Have the ranks' modules imported. Raise InputError for missing images and hostile models, before any rank."""
    preload_for(trainings)
    for training in trainings:
        check_model(training)
        if known_images(training) is None:
            from realcomm.training.datasets import load_images  # torch comes with it

            load_images(training, train=True)
