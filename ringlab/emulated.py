"""Scenarios on networks that are built on this machine: build, calibrate, and hold predictions against what is taken.

The rows of ``ringlab accuracy --here`` are predicted and measured one scenario at a time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import realcomm
import simcomm
from collectives.catalogue import find_algorithm
from collectives.errors import InputError, RunFailed
from collectives.records.calibration import SLOWER, Calibration, CrowdRound, PairProbes
from collectives.records.environment import cores
from collectives.records.trace import Trace
from collectives.records.waits import Lateness, find_lateness
from collectives.request import Request, make_request
from collectives.training.workload import Training
from collectives.units import count, format_bandwidth, format_time
from realcomm.calibration.pair_calibration import calibrate_emulated, calibrate_pair, from_pair, probe_crowd, with_pair
from realcomm.emulation.goodput import expected_goodput
from realcomm.emulation.network import EmulatedNetwork
from realcomm.emulation.plan import plan_network
from realcomm.measuring.collective_run import RankFigures, TimedRequest, make_trace, measure_all
from realcomm.training.trainer import train_each
from ringlab.session import Session
from ringlab.shared.answer import AnswerRecord
from ringlab.shared.failures import refusals_about
from ringlab.shared.figures import training_figures
from ringlab.shared.progress import Progress, Tick
from ringlab.shared.workload import resolve_requests
from scenarios import LoadedScenario
from simcomm.cluster.calibrated import as_emulated
from simcomm.cluster.cluster import Cluster
from simcomm.model.faults import NO_FAULTS
from simcomm.uncertainty import of_emulated

AnyScenario = TypeVar("AnyScenario", bound=LoadedScenario)


def on_emulated(scenario: AnyScenario) -> AnyScenario:
    """Return the scenario on its cluster as it is emulated. Raise InputError where it cannot be, or has faults."""
    if scenario.faults != NO_FAULTS:
        raise InputError(
            f"{scenario.path}: faults cannot be reproduced on an emulated network; remove [faults], "
            "or predict them with [what_if.faults]"
        )
    with refusals_about(f"{scenario.path}: cluster"):
        plan_network(scenario.cluster)
    return replace(scenario, cluster=as_emulated(scenario.cluster))


@contextmanager
def emulated(cluster: Cluster, progress: Progress) -> Iterator[EmulatedNetwork]:
    """Build a cluster's network within the context, and say what it is. Raise InputError and RunFailed."""
    with progress.task(f"building {cluster.title} on this machine and measuring its links"):
        network = realcomm.emulate(cluster).__enter__()
    with network:
        progress.note(describe(network))
        yield network


def as_built(scenario: AnyScenario, network: EmulatedNetwork) -> AnyScenario:
    """Return the scenario to predict: its links without latencies where the network has none."""
    if network.delays or not network.plan.is_delayed:
        return scenario
    return replace(scenario, cluster=without_latencies(scenario.cluster))


def without_latencies(cluster: Cluster) -> Cluster:
    """Return a cluster as it is emulated where the kernel cannot delay packets."""
    graph = cluster.graph.copy()
    for _, _, data in graph.edges(data=True):
        data["latency"] = 0.0
    return replace(cluster, graph=graph)


def describe(network: EmulatedNetwork) -> str:
    """Return what was built, how exact its links are, and what it leaves out."""
    plan = network.plan
    worst = max(abs(got / want - 1) for got, want in zip(network.goodputs, expected_goodputs(network), strict=True))
    built = f"{count(len(plan.hosts), 'host')}, {count(len(plan.directions) // 2, 'link')}, each within {worst:.2%}"
    if not plan.is_delayed or network.delays:
        return f"emulated: {built}"
    most = format_time(max(one.latency for one in plan.directions))
    return f"emulated: {built}; latencies of up to {most} are not: this kernel cannot delay packets (netem)"


def expected_goodputs(network: EmulatedNetwork) -> list[float]:
    """Return the bytes/s that TCP should get on each of the network's directions."""
    return [expected_goodput(one.bandwidth) for one in network.plan.directions]


def hosts_bandwidth(cluster: Cluster) -> float:
    """Return the bytes/s that the links of most hosts have."""
    plan = plan_network(cluster)
    return Counter(one.bandwidth for one in plan.directions if one.src in plan.hosts).most_common(1)[0][0]


def calibrate_for_emulation(scenario: LoadedScenario, session: Session) -> Calibration:
    """Measure two emulated hosts, and the trainings' computing on as many processes as the cluster has ranks.

    The pair has links of the bandwidth that most of the cluster's hosts have.
    """
    bandwidth, ranks = hosts_bandwidth(scenario.cluster), scenario.cluster.world_size
    trainings = [one for one in scenario.trainings if one.compute is None or one.gradient_sync is None]
    with session.progress.task(f"calibrating on two emulated hosts at {format_bandwidth(bandwidth)}") as tick:
        return calibrate_emulated(bandwidth, ranks, trainings, timeout=session.timeout_s, progress=tick)


WITHIN = 0.15  # an error that is not more is small; what is more is looked for in the traces
BESIDE = "all_to_all/direct"  # at the sizes of every scenario that compares all_reduce
PHASES = ("step_s", "sync_s", "forward_s", "backward_s", "optimizer_s")
WARM_UP, COUNTED_S, MOST_COUNTED = 3, 9.0, 5  # of a training: first steps, seconds of those that count, most of these
TOTAL_S = 0.4  # of the repetitions of a row ...
LONG_S = 1.0  # of one that is run once; others were run once before they count
ATTEMPTS = 3  # of a row, or of a scenario's trainings, during which TCP times out
TIMEOUT_S = 900.0  # of one calibration


@dataclass(frozen=True)
class EmulatedRow(AnswerRecord):
    """One prediction beside its measurement."""

    scenario: str
    what: str  # an algorithm, or a phase of a training with a gradient sync
    world_size: int
    bytes: int | None  # of a collective; an all_to_all has a few less, so that the ranks divide them
    predicted_s: float | None
    measured_s: float
    attempts: int = 1  # of which the last was not disturbed by timeouts of TCP
    is_busy: bool = False  # whether other processes took this machine's cores while it was measured
    uncertainty: float | None = None  # share of the prediction that it may be off by, in four cases of five
    lateness: Lateness | None = None  # where the measured trace is later than the predicted; of rows that are far off

    @property
    def error(self) -> float | None:
        """How far the prediction is off, relative to what was measured; None without one."""
        return None if self.predicted_s is None else self.predicted_s / self.measured_s - 1

    @property
    def is_as_stated(self) -> bool | None:
        """Whether the measured time is within the stated uncertainty; None where none is stated."""
        if self.predicted_s is None or self.uncertainty is None:
            return None
        return abs(self.measured_s - self.predicted_s) <= self.uncertainty * self.predicted_s


class EmulatedCalibrator:
    """The calibrations of several scenarios: two hosts for each rate of links, and the computing of each scenario."""

    def __init__(self, progress: Progress, computing: Calibration | None = None) -> None:
        """Calibrate for scenarios; ``computing`` is known where it need not be measured."""
        self._progress = progress
        self._computing = computing
        self.pairs: dict[float, PairProbes] = {}  # by bytes/s of the hosts' links
        self.crowds: dict[str, list[CrowdRound]] = {}  # that were measured again, by the scenario before which

    def calibrate(self, scenario: LoadedScenario) -> Calibration:
        """Return what a scenario is predicted by, measured now but for pairs that one before it needed.

        Of a crowd measured before, the larger one is measured again, as what cores do drifts. Trainings compute in as
        many processes as there are cores. Raises RunFailed.
        """
        bandwidth = hosts_bandwidth(scenario.cluster)
        is_first = not self.pairs
        if bandwidth not in self.pairs:
            with self._progress.task(f"calibrating on two emulated hosts at {format_bandwidth(bandwidth)}") as tick:
                crowd = next(iter(self.pairs.values()), None)  # of the cores, which no link's rate changes
                self.pairs[bandwidth] = calibrate_pair(bandwidth, crowd=crowd, timeout=TIMEOUT_S, progress=tick)
        if not scenario.trainings:
            rounds = list[CrowdRound]()
            if not is_first:
                with self._progress.task(f"calibrating what cores do, before {name_of(scenario)}") as tick:
                    rounds = self.crowds[name_of(scenario)] = probe_crowd(bandwidth, timeout=TIMEOUT_S, progress=tick)
            return from_pair(self.pairs[bandwidth].with_crowds(rounds), cores())
        return with_pair(self._computing or self._calibrate_computing(scenario.trainings), self.pairs[bandwidth])

    def _calibrate_computing(self, trainings: Sequence[Training]) -> Calibration:
        """Return what trainings compute, measured just before they are run, as what cores do drifts."""
        with self._progress.task("calibrating the computing of trainings") as tick:
            return realcomm.calibrate(cores(), trainings, all_sizes=False, timeout=TIMEOUT_S, progress=tick)


def compare_here(
    scenario: LoadedScenario, calibration: Calibration, refused: dict[str, str], progress: Progress
) -> list[EmulatedRow]:
    """Return the rows of one scenario, predicted before anything is measured; say in ``refused`` which are left out."""
    requests, ranks = [*_requests(scenario)], scenario.cluster.world_size
    with emulated(scenario.cluster, progress) as network:
        scenario = as_built(scenario, network)
        predicted = _predict(scenario, [request for _, request in requests], calibration)
        stated = _stated(scenario, [request for _, request in requests], calibration, predicted)
        measurements = [_measurement(request, own) for (_, request), own in zip(requests, predicted, strict=True)]
        measured = dict(sorted(_measure(scenario, measurements, network, refused, progress).items()))
        trained = [*_train(scenario, calibration, network, progress)] if scenario.trainings else []
    rows = list[EmulatedRow]()
    for number, (trace, attempts) in measured.items():
        asked, request = requests[number]
        row = EmulatedRow(
            *(name_of(scenario), _label(request), ranks, asked, predicted[number], trace.elapsed, attempts),
            uncertainty=stated[number],
        )
        if abs(row.error or 0.0) > WITHIN:
            recorded = simcomm.run(request, scenario.cluster, calibration=calibration)
            row = replace(row, lateness=find_lateness(recorded, trace))
        rows.append(row)
    return rows + trained


def _predict(scenario: LoadedScenario, requests: Sequence[Request], calibration: Calibration) -> list[float]:
    """Return the seconds of each request."""
    predict = partial(simcomm.run, cluster=scenario.cluster, calibration=calibration, record=False)
    return [predict(request).elapsed for request in requests]


def _stated(
    scenario: LoadedScenario, requests: Sequence[Request], calibration: Calibration, predicted: Sequence[float]
) -> list[float | None]:
    """Return the uncertainty of each prediction."""
    parts = [_predict(scenario, requests, part) for part in calibration.parts]
    slower = _predict(scenario, requests, calibration.with_slower_cores(SLOWER))
    return [
        of_emulated(seconds, [part[number] for part in parts], slower[number], calibration.age_s)
        for number, seconds in enumerate(predicted)
    ]


def _measurement(request: Request, predicted: float) -> TimedRequest:
    """Return how a row is measured that should take so many seconds."""
    if predicted > LONG_S:
        return TimedRequest(request, 0, 1, None, check=False)
    return TimedRequest(request, 1, None, None, check=False, total_s=TOTAL_S, least=1)


def _measure(
    scenario: LoadedScenario,
    measurements: Sequence[TimedRequest],
    network: EmulatedNetwork,
    refused: dict[str, str],
    progress: Progress,
) -> dict[int, tuple[Trace, int]]:
    """Return the trace of each measurement and the attempts that it took, by its number.

    What TCP's timeouts disturbed is measured again; ``refused`` says what they disturbed in all attempts.
    """
    measured: dict[int, tuple[Trace, int]] = {}
    wrong = dict.fromkeys(range(len(measurements)), "")
    for attempt in range(1, ATTEMPTS + 1):
        if wrong:
            left = {number: measurements[number] for number in wrong}
            traces, wrong = _measure_once(scenario, left, network, attempt, progress)
            measured |= {number: (found, attempt) for number, found in traces.items()}
    for number, why in wrong.items():
        request = measurements[number].request
        name = f"{name_of(scenario)}, {request.algorithm.full_name}, {request.nbytes} bytes"
        refused[name] = f"{why}, in the last of {ATTEMPTS} attempts"
    return measured


def _measure_once(
    scenario: LoadedScenario,
    measurements: dict[int, TimedRequest],
    network: EmulatedNetwork,
    attempt: int,
    progress: Progress,
) -> tuple[dict[int, Trace], dict[int, str]]:
    """Return the trace of each measurement by its number, and of others what the network complains of."""
    wrong = dict[int, str]()
    again = "" if attempt == 1 else f", which TCP's timeouts disturbed: attempt {attempt} of {ATTEMPTS}"
    numbers = [*measurements]
    with progress.task(f"measuring {count(len(measurements), 'row')} of {name_of(scenario)}{again}") as tick:

        def found(measurement: TimedRequest, figures: RankFigures) -> None:
            at = next(at for at, number in enumerate(numbers) if measurements[number] is measurement)
            if complaints := network.complaints():
                wrong[numbers[at]] = complaints[0]
            network.mark()
            tick(0, at + 1, len(measurements), measurement.request.algorithm.full_name)

        by_rank = measure_all([*measurements.values()], scenario.cluster.world_size, found, network=network)
    traces = {
        number: make_trace(scenario.cluster, measurements[number], ranks)
        for number, ranks in zip(numbers, by_rank, strict=True)
        if number not in wrong
    }
    return traces, wrong


def _requests(scenario: LoadedScenario) -> Iterable[tuple[int, Request]]:
    """Yield sizes and requests of a scenario and, beside all_reduce, all_to_all at sizes that the ranks divide."""
    comparison, ranks = scenario.collective, scenario.cluster.world_size
    for request in resolve_requests(comparison, scenario.cluster, None):
        yield request.nbytes, request
    if comparison is not None and comparison.name == "all_reduce":
        for nbytes in comparison.sizes:
            yield nbytes, make_request(find_algorithm(BESIDE), ranks, nbytes)


def _label(request: Request) -> str:
    return request.algorithm.label if request.algorithm.spec.name == "all_reduce" else request.algorithm.spec.name


def _train(
    scenario: LoadedScenario, calibration: Calibration, network: EmulatedNetwork, progress: Progress
) -> Iterable[EmulatedRow]:
    """Yield the phases of each training's step, predicted before they are measured."""
    simulated, slower, *parts = (
        [
            training_figures(simcomm.train(each, scenario.cluster, calibration=one, record=False), each)
            for each in scenario.trainings
        ]
        for one in (calibration, calibration.with_slower_cores(SLOWER), *calibration.parts)
    )
    steps = [training_steps(one.step_s or COUNTED_S) for one in simulated]
    traces, attempts = _train_undisturbed(scenario, steps, network, progress)
    for number, (training, predicted, trace) in enumerate(zip(scenario.trainings, simulated, traces, strict=True)):
        measured = training_figures(trace, training)
        for phase in PHASES:
            what, seconds = f"{training.sync_name}: {phase.removesuffix('_s')}", getattr(measured, phase)
            known = getattr(predicted, phase) or None  # of a sync that backward hides there is nothing to see
            if seconds:
                by_part = [getattr(part[number], phase) for part in parts]
                stated = of_emulated(known or 0.0, by_part, getattr(slower[number], phase), calibration.age_s)
                row = name_of(scenario), what, measured.world_size, None, known, seconds, attempts
                yield EmulatedRow(*row, uncertainty=stated)


def training_steps(predicted: float) -> int:
    """Return how many steps of a training are taken, one of which should take so many seconds.

    The first three do not count, of a training with long steps the first two.

    >>> training_steps(0.7), training_steps(2.1), training_steps(10.3)
    (8, 7, 3)
    """
    counted = min(int(COUNTED_S / predicted), MOST_COUNTED)
    return WARM_UP + counted if counted > 1 else WARM_UP


def _train_undisturbed(
    scenario: LoadedScenario, steps: Sequence[int], network: EmulatedNetwork, progress: Progress
) -> tuple[list[Trace], int]:
    """Return the traces of a scenario's trainings, and the attempts that they took. Raise RunFailed."""
    names = ", ".join(training.sync_name for training in scenario.trainings)
    for attempt in range(1, ATTEMPTS):
        with progress.task(f"training with {names} on {name_of(scenario)}") as tick:
            try:
                return _train_once(scenario, steps, network, tick), attempt
            except RunFailed as error:
                if not network.complaints():  # what failed is not the network
                    raise
                progress.note(f"warning: {error}; once more")
    with progress.task(f"training with {names} on {name_of(scenario)}, for the last time") as tick:
        return _train_once(scenario, steps, network, tick), ATTEMPTS


def _train_once(scenario: LoadedScenario, steps: Sequence[int], network: EmulatedNetwork, tick: Tick) -> list[Trace]:
    return train_each(
        scenario.trainings, scenario.cluster, steps=steps, timeout=TIMEOUT_S, progress=tick, network=network
    )


def name_of(scenario: LoadedScenario) -> str:
    return Path(scenario.path).stem
