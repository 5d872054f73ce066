"""What is said before work that should take more than a moment: what there is to do, and about how long it takes.

The rates are of one core of a server of 2020.
"""

from collections.abc import Sequence
from math import comb

import simcomm
from collectives.declaration import Algorithm
from collectives.errors import InputError, Undefined
from collectives.records.calibration import Calibration, cached_calibration
from collectives.records.trace import Trace
from collectives.request import Request, make_request
from collectives.schedule.size_check import estimate_operations
from collectives.units import count
from collectives.workload import Training
from ringlab.answers.progress import Progress
from simcomm.cluster.cluster import Cluster
from simcomm.estimate import make_estimator
from simcomm.expected_time import COMPILED_RATE, LEAST_COMPILED_S
from simcomm.selection import library_candidates

WORTH_SAYING_S = 2.5  # expected seconds that are announced
PROVED_S = 5e-6  # an operation of a program of up to 256 ranks, written down and proved
LOAD_TORCH_S = 3.0  # torch with its estimator, beside which a system's tables take hundredths of a second
TABLE_S, REFIT_S = 0.02, 1.2  # a system's tables predicted beside simpler predictions, a fit to all others
CHOICE_S = 5e-4  # a choice of rows tried on a system
FILM_S, DRAWN_S = 3.0, 1e-5  # the frames of an animation; a message in any other picture
START_S, MEASURED_S, REPEATED = 2.0, 1.0, 7  # ranks that meet; a collective's repetitions, for so long or so often


def announce(progress: Progress | None, what: str, seconds: float) -> None:
    """Say what there is to do and about how long it should take, where it is more than a moment.

    >>> announce(None, "two rows to measure", 10.0)
    """
    if progress is not None and seconds > WORTH_SAYING_S:
        progress.note(f"{what}: about {seconds:.0f} s")


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
    """Say how long a map of winners should take at most: what has no closed form is simulated in each cell."""
    candidates = among if among is not None else [*library_candidates(collective)]
    seconds = 0.0
    if cluster.transport is not None:
        for world_size in world_sizes:
            first = cluster.on_first(world_size)
            simulated = [one for one in candidates if _is_simulated(one, first, sizes[-1])]
            messages = sum(estimate_operations(one, world_size) / 2 for one in simulated)
            seconds += len(sizes) * (LEAST_COMPILED_S * len(simulated) + messages / COMPILED_RATE)
    announce(progress, f"{len(sizes) * len(world_sizes):,} cells to choose for, at most", seconds)


def _is_simulated(algorithm: Algorithm, cluster: Cluster, nbytes: int) -> bool:
    request = make_request(algorithm, cluster.world_size, nbytes)
    try:
        return make_estimator(request, cluster, None, equal_chunks=True).closed_form(algorithm) is None
    except Undefined:
        return False


def announce_accuracy(progress: Progress | None, systems: int, rows: int, *, refits: bool) -> None:
    """Say how long predicting the tables of so many systems should take, with refits and choices of measured rows."""
    choices = comb(7, rows) if rows else 0
    what = [f"{count(systems, 'fit')} to all systems but one"] * refits
    what.append(f"the tables of {count(systems, 'system')} to predict")
    what += [f"{count(choices, 'choice')} of rows to measure"] * (choices > 0)
    each = REFIT_S * refits + TABLE_S + CHOICE_S * choices
    announce(progress, ", ".join(what), LOAD_TORCH_S + each * systems)


def announce_picture(progress: Progress | None, traces: Sequence[Trace], suffix: str) -> None:
    """Say how long drawing Traces should take."""
    messages = sum(len(trace.messages) for trace in traces)
    announce(progress, f"{messages:,} messages to draw", FILM_S if suffix in (".gif", ".mp4") else DRAWN_S * messages)


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
    seconds = START_S + make_plan(ranks, requests, trainings, runs=True).expected_seconds
    announce(progress, f"{count(len(requests), 'row')} to calibrate for and to measure{rest}", seconds)


def _predict(request: Request, calibration: Calibration | None) -> float:
    """Return the seconds that a collective takes on this machine; 0 where no calibration tells."""
    if calibration is None or request.algorithm.is_nccl:
        return 0.0
    return simcomm.run(request, simcomm.this_machine(calibration.ranks), calibration=calibration).elapsed
