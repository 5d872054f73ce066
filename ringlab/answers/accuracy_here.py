"""``AccuracyHere``: how far predictions are from what emulated clusters on this machine do."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import realcomm
import simcomm
import viz
from collectives.catalogue import find_algorithm
from collectives.errors import InputError, RunFailed
from collectives.records.calibration import Calibration
from collectives.records.environment import cores, describe_environment
from collectives.request import Request, make_request
from collectives.units import count, format_size
from realcomm.emulation.network import EmulatedNetwork
from realcomm.measuring.measurement import Figures, Measurement
from realcomm.measuring.sweep import measure_all
from ringlab.answers.emulation import as_built, calibrate_for_emulation, emulated, hosts_bandwidth, on_emulated
from ringlab.answers.figures import training_figures
from ringlab.answers.progress import NoProgress, Progress
from ringlab.answers.record import SCHEMA_VERSION, Record
from ringlab.answers.workload import resolve_requests
from scenarios import Scenario, load, shipped

BESIDE = "all_to_all/direct"  # at the sizes of every scenario that compares all_reduce
WITHIN = 0.15  # an error that is not more is small
PHASES = ("step_s", "sync_s", "forward_s", "backward_s", "optimizer_s")
TRAINING_STEPS = 2  # of which the first does not count
TOTAL_S = 0.4  # of the repetitions of a row ...
LEAST_REPETITIONS = 1  # ... of which one is enough where it takes long: it was run once before
ATTEMPTS = 3  # of a row during which TCP times out


@dataclass(frozen=True)
class HereRow(Record):
    """One prediction beside its measurement."""

    scenario: str
    what: str  # an algorithm, or a phase of a training with a gradient sync
    world_size: int
    bytes: int | None  # of a collective; an all_to_all has a few less, so that the ranks divide them
    predicted_s: float | None
    measured_s: float
    attempts: int = 1  # of which the last was not disturbed by timeouts of TCP

    @property
    def error(self) -> float | None:
        """How far the prediction is off, relative to what was measured; None without one."""
        return None if self.predicted_s is None else self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class Errors:
    """The absolute errors of some rows."""

    rows: int
    median: float
    p90: float  # nine in ten are not larger
    worst: float
    within: float  # share of rows whose error is at most ``WITHIN``


@dataclass(frozen=True)
class AccuracyHere(Record):
    """All rows of the scenarios that were emulated, the scenarios that were not with the reason, and the seconds."""

    rows: tuple[HereRow, ...]
    refused: dict[str, str]
    seconds: float
    environment: dict[str, str | int] = field(default_factory=describe_environment)
    pairs: tuple[dict[str, Any], ...] = ()  # what the predictions were calibrated by
    file: str | None = None

    def by(self, key: Callable[[HereRow], str]) -> dict[str, Errors]:
        """Return the errors of the rows that have the same key, in the order in which the keys come."""
        groups: dict[str, list[float]] = {}
        for row in self.rows:
            if row.error is not None:
                groups.setdefault(key(row), []).append(abs(row.error))
        return {name: summarise(errors) for name, errors in groups.items()}

    @property
    def views(self) -> dict[str, dict[str, Errors]]:
        """The errors of all rows, by algorithm, by size and by scenario."""
        return {
            "all": self.by(lambda row: "all rows"),
            "algorithm": self.by(lambda row: row.what),
            "size": self.by(lambda row: "training" if row.bytes is None else format_size(row.bytes)),
            "scenario": self.by(lambda row: row.scenario),
        }

    def draw(self, path: Path | str) -> None:
        """Draw predicted against measured times, a panel a size, as .png, .svg or .pdf. Raise InputError."""
        known = [row for row in self.rows if row.predicted_s is not None]
        panels = dict.fromkeys(_panel(row) for row in known)
        dots = [
            viz.Dots(panel, what, *_times([row for row in known if (_panel(row), row.what) == (panel, what)]))
            for panel in panels
            for what in dict.fromkeys(row.what for row in known if _panel(row) == panel)
        ]
        subtitle = (
            f"{len(dict.fromkeys(row.scenario for row in known))} clusters emulated, calibrated on two hosts; grey: "
        )
        viz.draw_accuracy("Predicted and measured here", f"{subtitle}off by less than a factor of 1.3", dots, path)

    def to_dict(self) -> dict[str, Any]:
        """Return rows and errors as plain JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "accuracy here",
            "environment": self.environment,
            "seconds": self.seconds,
            "errors": {
                view: {name: asdict(errors) for name, errors in groups.items()} for view, groups in self.views.items()
            },
            "refused": self.refused,
            "pairs": list(self.pairs),
            "rows": [asdict(row) | {"error": row.error} for row in self.rows],
        }


def summarise(errors: Sequence[float]) -> Errors:
    """Return what absolute errors come to.

    >>> summarise([0.01, 0.02, 0.3]).median
    0.02
    """
    values = np.array(errors)
    p90 = float(np.quantile(values, 0.9))
    return Errors(len(values), float(np.median(values)), p90, float(values.max()), float((values <= WITHIN).mean()))


def accuracy_here(names: Sequence[str] = (), *, progress: Progress | None = None) -> AccuracyHere:
    """Emulate scenarios, unless said all under ``emulated/``, and return predictions beside what was measured.

    Predictions are calibrated on two emulated hosts for each rate of links, and trainings' computing in as many
    processes as there are cores, on nothing that is measured here. A
    scenario that this machine did not bear is left out, with the reason; after an interrupt, those that follow are too.
    Raises InputError, and RunFailed where nothing can be emulated.

    >>> accuracy_here(["emulated/star4"]).by(lambda row: row.what)["ring"].median < 0.2  # doctest: +SKIP
    True
    """
    begin, progress = time.monotonic(), NoProgress() if progress is None else progress
    chosen = [on_emulated(load(name)) for name in names or [name for name in shipped() if name.startswith("emulated/")]]
    calibrations: dict[float, Calibration] = {}
    rows: list[HereRow] = []
    refused: dict[str, str] = {}
    for scenario in chosen:
        bandwidth = hosts_bandwidth(scenario.cluster)
        try:
            if bandwidth not in calibrations or scenario.trainings:
                calibrations[bandwidth] = calibrate_for_emulation(
                    scenario, most_ranks=cores(), timeout=900.0, progress=progress
                )
            rows += _compare(scenario, calibrations[bandwidth], refused, progress)
        except KeyboardInterrupt:
            if not rows:
                raise
            refused[_name(scenario)] = "interrupted, as were all that follow"
            break
        except (RunFailed, InputError) as error:
            refused[_name(scenario)] = str(error)
            progress.note(f"warning: {_name(scenario)}: {error}")
    if not rows:
        raise RunFailed("; ".join(refused.values()))
    pairs = tuple(asdict(one.pair) for one in calibrations.values() if one.pair is not None)
    return AccuracyHere(tuple(rows), refused, time.monotonic() - begin, pairs=pairs)


def _compare(
    scenario: Scenario, calibration: Calibration, refused: dict[str, str], progress: Progress
) -> list[HereRow]:
    """Return the rows of one scenario, predicted before anything is measured; say in ``refused`` which are left out."""
    requests, ranks = [*_requests(scenario)], scenario.cluster.world_size
    with emulated(scenario.cluster, progress) as network:
        scenario = as_built(scenario, network)
        predict = partial(simcomm.run, cluster=scenario.cluster, calibration=calibration, record=False)
        predicted = [predict(request).elapsed for _, request in requests]
        measured = _measure(scenario, [request for _, request in requests], network, refused, progress)
        trained = [*_train(scenario, calibration, network, progress)]
    rows = [
        HereRow(_name(scenario), _label(request), ranks, asked, predicted[number], *measured[number])
        for number, (asked, request) in enumerate(requests)
        if number in measured
    ]
    return rows + trained


def _measure(
    scenario: Scenario,
    requests: Sequence[Request],
    network: EmulatedNetwork,
    refused: dict[str, str],
    progress: Progress,
) -> dict[int, tuple[float, int]]:
    """Return the seconds of each request and the attempts that they took, by its number.

    What TCP's timeouts disturbed is measured again; ``refused`` says what they disturbed in all attempts.
    """
    measured: dict[int, tuple[float, int]] = {}
    wrong = dict.fromkeys(range(len(requests)), "")
    for attempt in range(1, ATTEMPTS + 1):
        if wrong:
            left = {number: requests[number] for number in wrong}
            seconds, wrong = _measure_once(scenario, left, network, attempt, progress)
            measured |= {number: (found, attempt) for number, found in seconds.items()}
    for number, why in wrong.items():
        request = requests[number]
        name = f"{_name(scenario)}, {request.algorithm.full_name}, {request.nbytes} bytes"
        refused[name] = f"{why}, in the last of {ATTEMPTS} attempts"
    return measured


def _measure_once(
    scenario: Scenario, requests: dict[int, Request], network: EmulatedNetwork, attempt: int, progress: Progress
) -> tuple[dict[int, float], dict[int, str]]:
    """Return the seconds of each request by its number, and of others what the network complains of."""
    measured, wrong = dict[int, float](), dict[int, str]()
    measurements = {
        number: Measurement(request, 1, None, None, check=False, total_s=TOTAL_S, least=LEAST_REPETITIONS)
        for number, request in requests.items()
    }
    again = "" if attempt == 1 else f", which TCP's timeouts disturbed: attempt {attempt} of {ATTEMPTS}"
    numbers = [*measurements]
    with progress.task(f"measuring {count(len(requests), 'row')} of {_name(scenario)}{again}") as tick:

        def found(measurement: Measurement, figures: Figures) -> None:
            at = next(at for at, number in enumerate(numbers) if measurements[number] is measurement)
            if complaints := network.complaints():
                wrong[numbers[at]] = complaints[0]
            else:
                measured[numbers[at]] = figures.median_s
            network.mark()
            tick(0, at + 1, len(requests), measurement.request.algorithm.full_name)

        measure_all([*measurements.values()], scenario.cluster.world_size, found, network=network)
    return measured, wrong


def _requests(scenario: Scenario) -> Iterable[tuple[int, Request]]:
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
    scenario: Scenario, calibration: Calibration, network: EmulatedNetwork, progress: Progress
) -> Iterable[HereRow]:
    """Yield the phases of each training's step, predicted and measured."""
    for training in scenario.trainings:
        with progress.task(f"training with {training.sync_name} on {_name(scenario)}") as tick:
            real = realcomm.train(training, scenario.cluster, steps=TRAINING_STEPS, network=network, progress=tick)
        measured = training_figures(real, training)
        simulated = simcomm.train(training, scenario.cluster, calibration=calibration, record=False)
        predicted = training_figures(simulated, training)
        for phase in PHASES:
            seconds = getattr(measured, phase)
            if seconds:
                what = f"{training.sync_name}: {phase.removesuffix('_s')}"
                ranks = scenario.cluster.world_size
                seen = getattr(predicted, phase, None) or None  # of a sync that backward hides there is nothing to see
                yield HereRow(_name(scenario), what, ranks, None, seen, seconds)


def _name(scenario: Scenario) -> str:
    return Path(scenario.path).stem


def _panel(row: HereRow) -> str:
    return "training" if row.bytes is None else format_size(row.bytes)


def _times(rows: Sequence[HereRow]) -> tuple[list[float], list[float]]:
    return [row.measured_s for row in rows], [row.predicted_s for row in rows if row.predicted_s is not None]
