"""What is said before work that should take more than a moment: what there is to do, and about how long it takes.

The rates are of one core of a server of 2020.
"""

from collections.abc import Collection, Sequence
from math import comb, inf
from typing import NamedTuple

import simcomm
from collectives.catalogue import find_algorithm
from collectives.declaration import GLOO, Algorithm, auto
from collectives.errors import InputError
from collectives.records.calibration import Calibration, cached_calibration
from collectives.records.trace import Trace
from collectives.request import Request, make_request
from collectives.schedule.relative import RelativeSchedule
from collectives.schedule.size_check import estimate_operations
from collectives.schedule.symbolic_build import message_count
from collectives.units import count
from collectives.workload import Training
from ringlab.answers.progress import Progress
from simcomm.cluster.calibrated import resolve_transport
from simcomm.cluster.cluster import Cluster
from simcomm.engine_choice import FEW_RANKS
from simcomm.estimate import make_estimator
from simcomm.expected_time import (
    COMPILED_RATE,
    LEAST_COMPILED_S,
    SEGMENT_RATE,
    count_link_changes,
    expected_build_seconds,
    expected_route_seconds,
    expected_seconds,
    least_delay,
    sent_share,
)
from simcomm.model.tcp_order import count_segments
from simcomm.model.trouble import NO_TROUBLE, Trouble
from simcomm.schedules import compact_schedule
from simcomm.selection import by_world_size, open_candidates
from simcomm.size_limits import check_one_by_one, check_simpy
from simcomm.training import STEPS, usual_steps

MOST_SAID_AT_ONCE = 30_000  # messages that either engine simulates within two seconds
CHOSEN_SHARE = 0.2  # of the candidates of a cell that are simulated; what is found of the first rules others out
WORTH_SAYING_S = 2.5  # expected seconds that are announced
PROVED_S = 5e-6  # an operation of a program of up to 256 ranks, written down and proved
LOAD_TORCH_S = 3.0  # torch with its estimator, beside which a system's tables take hundredths of a second
TABLE_S, REFIT_S = 0.02, 1.2  # a system's tables predicted beside simpler predictions, a fit to all others
CHOICE_S = 5e-4  # a choice of rows tried on a system
FILM_S, LAID_OUT_S = 3.0, 1e-4  # the frames of an animation; a link in it
DRAWN_S = 1e-5  # a message in any other picture
PAIR_S, BUILT_S = 40.0, 2.0  # a pair of emulated hosts calibrated; an emulated network built
CROWD_S = 10.0  # what cores do calibrated again
ROW_S, ROW_BYTES = 1.0, 3.0  # a row measured there: so long, and so many times its bytes at the rate of a host's link
TRAINED_S, TRAINED_BYTES = 25.0, 8.0  # a training calibrated and run there, likewise with the bytes of its gradients
START_S, MEASURED_S, REPEATED = 2.0, 1.0, 7  # ranks that meet; a collective's repetitions, for so long or so often


def announce(progress: Progress | None, what: str, seconds: float) -> None:
    """Say what there is to do and about how long it should take, where it is more than a moment.

    >>> announce(None, "two rows to measure", 10.0)
    """
    if progress is not None and seconds > WORTH_SAYING_S:
        progress.note(f"{what}: {_words(seconds)}")


def _words(seconds: float) -> str:
    """Return how long something takes, in the unit that one would say it in.

    >>> [_words(seconds) for seconds in (90, 5400, 36000, 1e6, inf)]
    ['about 90 s', 'about 5400 s', 'about 10 h', 'about 12 days', 'years']
    """
    for most, unit, name in ((7200, 1, "s"), (48 * 3600, 3600, "h"), (730 * 86400, 86400, "days")):
        if seconds < most:
            return f"about {seconds / unit:.0f} {name}"
    return "years"


def announce_building(asked: Sequence[Request | Training], world_size: int, progress: Progress | None) -> None:
    """Say how long it should take until schedules are written down, where it is more than a moment."""
    if progress is None:
        return
    seconds = {
        each.full_name: expected_build_seconds(each, world_size, root)
        for each, root in dict.fromkeys(_called(one)[:2] for one in asked)
        if each is not None and not each.is_nccl
    }
    if sum(seconds.values()) > WORTH_SAYING_S:
        names = ", ".join(name for name, each in seconds.items() if each > WORTH_SAYING_S / len(seconds))
        total = sum(seconds.values())
        progress.note(f"writing down what {world_size:,} ranks say in {names}: about {total:.0f} s at most")


def _called(asked: Request | Training, cluster: Cluster | None = None) -> tuple[Algorithm | None, int, int]:
    """Return the algorithm that is simulated, its root and how often: a few steps' syncs, or each bucket once.

    It is None for torch's own sync, but on an emulated cluster, where gloo's all_reduce carries the buckets.
    """
    if isinstance(asked, Request):
        return asked.algorithm, asked.root, 1
    algorithm = asked.gradient_sync
    if algorithm is None and cluster is not None and cluster.is_emulated:
        algorithm = find_algorithm(f"all_reduce/{GLOO}")
    if algorithm is not None and asked.overlaps:
        return algorithm, 0, len(asked.fill_buckets(asked.gradients))
    return algorithm, 0, STEPS if cluster is None else usual_steps(cluster)


class Expected(NamedTuple):
    """What there is to simulate for a row, and about how long that takes."""

    messages: int = 0  # of all repetitions
    seconds: float = 0.0
    collectives: int = 1  # that are simulated one after the other in a repetition


def expect(
    asked: Request | Training,
    cluster: Cluster,
    engine: str | None = None,
    trouble: Trouble = NO_TROUBLE,
    most_recorded: int = 0,
    calibration: Calibration | None = None,
) -> Expected:
    """Return how many messages are to be simulated, and about how many seconds that takes.

    In trouble up to ``most_recorded`` messages are recorded. Raises TooLarge, and ProgramError for a program that
    cannot work.
    """
    algorithm, root, times = _called(asked, cluster)
    if algorithm is None or algorithm.is_nccl:
        return Expected()
    check_size(asked, cluster, engine)
    schedule = compact_schedule(algorithm, cluster.world_size, root)
    messages = times * message_count(schedule) * trouble.runs
    record = trouble != NO_TROUBLE and messages <= most_recorded
    over_tcp = cluster.transport is not None and cluster.transport.tcp is not None
    if engine is None and messages > MOST_SAID_AT_ONCE and not isinstance(schedule, RelativeSchedule) and not over_tcp:
        engine = _engine_of(asked, cluster)
    collective = asked if isinstance(asked, Request) else Request(algorithm, asked.gradient_bytes // 4)
    segments = changes = 0.0
    cluster = _with_transport(cluster, calibration)
    if cluster.transport is not None and cluster.transport.tcp is not None:
        segments = count_segments(sent_share(schedule) * collective.nbytes, cluster.transport.tcp.payload)
        engine = engine if isinstance(asked, Request) else "simpy"
    if cluster.transport is not None and any(one.every < inf for one in trouble.links):
        estimator = make_estimator(collective, cluster)
        model = estimator.star or estimator.faster_star
        sent = sent_share(schedule) * collective.nbytes / cluster.world_size  # by a rank, in the mean
        least = max(estimator.bracket(algorithm).least, 0.0 if model is None else sent * model.beta)
        least += least_delay(schedule, trouble)
        changes = count_link_changes(trouble, least + _computing_seconds(asked, trouble))
    seconds = expected_seconds(schedule, engine, trouble, record=record, segments=segments, changes=changes)
    routes_s = expected_route_seconds(algorithm, cluster, root)  # found once
    return Expected(messages, times * seconds + routes_s, times)


def _with_transport(cluster: Cluster, calibration: Calibration | None) -> Cluster:
    """Return the cluster with the transport that is calibrated for it, where there is one; this machine as it is."""
    if cluster.is_here:
        return cluster
    try:
        return resolve_transport(cluster, calibration)[0]
    except InputError:
        return cluster


def _computing_seconds(asked: Request | Training, trouble: Trouble) -> float:
    """Return the seconds that the slowest rank computes before a sync; 0 where only a calibration tells."""
    if isinstance(asked, Request) or asked.compute is None:
        return 0.0
    phases, slowest = asked.compute, max((one.slowdown for one in trouble.ranks), default=1.0)
    return (phases.forward + phases.backward + phases.optimizer) * max(1.0, slowest)


def _engine_of(asked: Request | Training, cluster: Cluster) -> str | None:
    """Return the engine that steps of a training come to where ranks drift apart in it, as a few ranks show."""
    if not isinstance(asked, Training) or asked.compute is None or cluster.world_size <= FEW_RANKS:
        return None
    if asked.buckets is not None:  # predicted as a whole
        return None
    few = simcomm.train(asked, cluster.on_first(FEW_RANKS), engine="compiled", record=False)
    return few.engine if few.engine == "simpy" else None


def check_size(asked: Request | Training, cluster: Cluster, engine: str | None = None) -> None:
    """Raise TooLarge for a collective that is too large by a look at what a few ranks say first."""
    if isinstance(asked, Training) and asked.buckets is not None:  # predicted as a whole, by no engine
        return
    over_tcp = cluster.transport is not None and cluster.transport.tcp is not None
    algorithm, root, times = _called(asked)
    if engine == "simpy" and algorithm is not None and not algorithm.is_nccl:
        check_simpy(algorithm, cluster.world_size, root, times)
    elif isinstance(asked, Request) and engine != "simpy" and not over_tcp:
        check_one_by_one(asked, cluster)


def announce_auto(progress: Progress | None, requests: Sequence[Request], cluster: Cluster) -> None:
    """Say how long it should take to choose an algorithm for each request of ``auto``: what bounds leave open is asked.

    Each such candidate may have to be written down, and some of them simulated.
    """
    asked = [one for one in requests if one.algorithm.is_auto]
    if progress is None or not asked or cluster.transport is None or cluster.world_size <= FEW_RANKS:
        return
    estimator = make_estimator(asked[0], cluster)
    opened = [open_candidates(estimator.for_request(one)) for one in asked]
    seconds = sum(_choosing_seconds(some, cluster.world_size) for some in opened)
    if cluster.transport.tcp is not None:  # where all are simulated, as no bounds are known; each sends about as much
        sent = sum(one.nbytes * len(some) for one, some in zip(asked, opened, strict=True)) * cluster.world_size
        seconds += count_segments(sent, cluster.transport.tcp.payload) / SEGMENT_RATE
    seconds += sum(expected_build_seconds(one, cluster.world_size) for one in {one for some in opened for one in some})
    what = f"{count(len(asked), 'choice')} of an algorithm for {cluster.world_size:,} ranks"
    announce(progress, what, seconds)


def announce_proofs(progress: Progress | None, algorithms: Sequence[Algorithm], world_sizes: Sequence[int]) -> None:
    """Say how long proving should take: operations grow with the square of the ranks at most.

    A user's program is taken to say as much as a ring, so that it is not asked before its time.
    """
    largest = max(world_sizes, default=1)
    ranks = sum(size**2 for size in world_sizes) / largest**2
    operations = sum(estimate_operations(one, largest) if one.source is None else 4 * largest**2 for one in algorithms)
    what = f"{count(len(algorithms), 'algorithm')} to prove at {count(len(world_sizes), 'world size')}"
    announce(progress, what, PROVED_S * operations * ranks)


def announce_choices(
    progress: Progress | None,
    collective: str,
    cluster: Cluster,
    sizes: Sequence[int],
    world_sizes: Sequence[int],
    among: Sequence[Algorithm] | None,
) -> None:
    """Say how long a map of winners should take: what bounds do not rule out is simulated in each cell."""
    seconds = 0.0
    if cluster.transport is not None:
        for estimator in by_world_size(collective, cluster, sizes[0], world_sizes):
            for nbytes in (sizes[0], sizes[-1]):
                opened = open_candidates(
                    estimator.for_request(make_request(auto(collective), estimator.world_size, nbytes)), among
                )
                seconds += len(sizes) / 2 * _choosing_seconds(opened, estimator.world_size)
    announce(progress, f"{len(sizes) * len(world_sizes):,} cells to choose for", seconds)


def _choosing_seconds(candidates: Sequence[Algorithm], world_size: int) -> float:
    """Return about how long simulating takes, of several candidates those that are not ruled out by the first ones."""
    messages = sum(estimate_operations(one, world_size) / 2 for one in candidates)
    return CHOSEN_SHARE * (LEAST_COMPILED_S * len(candidates) + messages / COMPILED_RATE)


def announce_accuracy(progress: Progress | None, systems: int, rows: int, *, refits: bool) -> None:
    """Say how long predicting the tables of so many systems should take, with refits and choices of measured rows."""
    choices = comb(7, rows) if rows else 0
    what = [f"{count(systems, 'fit')} to all systems but one"] * refits
    what.append(f"the tables of {count(systems, 'system')} to predict")
    what += [f"{count(choices, 'choice')} of rows to measure"] * (choices > 0)
    each = REFIT_S * refits + TABLE_S + CHOICE_S * choices
    announce(progress, ", ".join(what), LOAD_TORCH_S + each * systems)


def announce_emulations(
    progress: Progress, rates: Collection[float], rows: Sequence[float], trained: Sequence[float], crowds: int
) -> None:
    """Say how long it should take to measure ``rows`` and trainings on emulated clusters.

    ``rates`` are the bytes/s of the hosts' links of each cluster; of a row, and of a training, the seconds are given
    that its bytes take at that rate. ``crowds`` says how often what cores do is calibrated again.
    """
    seconds = PAIR_S * len(set(rates)) + BUILT_S * len(rates) + CROWD_S * crowds
    seconds += sum(ROW_S + ROW_BYTES * each for each in rows)
    seconds += sum(TRAINED_S + TRAINED_BYTES * each for each in trained)
    what = f"{count(len(rates), 'cluster')} to emulate, {count(len(rows), 'row')} to measure there"
    announce(progress, what + (f" and {count(len(trained), 'training')}" if trained else ""), seconds)


def announce_picture(progress: Progress | None, traces: Sequence[Trace], suffix: str) -> None:
    """Say how long drawing Traces should take."""
    messages = sum(len(trace.messages) for trace in traces)
    seconds = DRAWN_S * messages
    if suffix in (".gif", ".mp4"):
        seconds = FILM_S + LAID_OUT_S * sum(len(trace.links) for trace in traces)
    announce(progress, f"{messages:,} messages to draw", seconds)


def announce_run(
    progress: Progress | None,
    cluster: Cluster,
    requests: Sequence[Request],
    trainings: Sequence[Training],
    backend: str,
) -> None:
    """Say how long real ranks should take, by the cached calibration where there is one; of trainings how many."""
    try:
        known = cached_calibration(cluster.world_size, backend)
    except InputError:
        known = None
    seconds = sum(START_S + max(MEASURED_S, REPEATED * _predict(one, known)) for one in requests)
    rest = f" and {count(len(trainings), 'training')}, whose steps are counted" if trainings else ""
    if trainings and progress is not None and not requests:
        progress.note(f"{count(len(trainings), 'training')} to run, whose steps are counted")
    announce(progress, f"{count(len(requests), 'row')} to measure{rest}", seconds)


def announce_turns(
    progress: Progress | None, ranks: int, requests: Sequence[Request], trainings: Sequence[Training]
) -> None:
    """Say how long calibrating and running in turns should take; of trainings how many there are."""
    from realcomm.calibrating.plan import make_plan  # predictions do without it

    rest = f" and {count(len(trainings), 'training')}, whose steps are counted" if trainings else ""
    if trainings and progress is not None and not requests:
        progress.note(f"{count(len(trainings), 'training')} to calibrate for and to run, whose steps are counted")
        return
    seconds = START_S + make_plan(ranks, requests, trainings, runs=True).expected_seconds
    announce(progress, f"{count(len(requests), 'row')} to calibrate for and to measure{rest}", seconds)


def _predict(request: Request, calibration: Calibration | None) -> float:
    """Return the seconds that a collective takes on this machine; 0 where no calibration tells."""
    if calibration is None or request.algorithm.is_nccl:
        return 0.0
    return simcomm.run(request, simcomm.this_machine(calibration.ranks), calibration=calibration).elapsed
