"""Compare predictions with measured times of scenarios on emulated networks, row by row."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import simcomm
from collectives.errors import InputError, RunFailed
from collectives.records.calibration import SLOWER, Calibration, MachineLoad, PairProbes
from collectives.records.environment import describe_measurement
from collectives.records.trace import Trace
from collectives.training.workload import Training
from collectives.units import format_bandwidth
from realcomm.calibration.load import watch_load
from realcomm.calibration.pair_calibration import calibrate_pair
from realcomm.emulation.network import EmulatedNetwork
from realcomm.launching.launcher import launch
from realcomm.training.rank_result import RankResult
from realcomm.training.trainer import make_trace, preload_for, train_rank
from ringlab.emulated import hosts_bandwidth
from ringlab.shared.answer import AnswerRecord
from ringlab.shared.figures import training_figures
from ringlab.shared.progress import Progress, Tick
from scenarios import LoadedScenario
from simcomm.uncertainty import of_emulated

WITHIN = 0.15  # an error that is not more is small; what is more is looked for in the traces
PHASES = ("step_s", "sync_s", "forward_s", "backward_s", "optimizer_s")
WARM_UP, COUNTED_S, MOST_COUNTED = 3, 9.0, 5  # of a training: first steps, seconds of those that count, most of these
ATTEMPTS = 3  # of a row, or of a scenario's trainings, during which TCP times out
TIMEOUT_S = 900.0  # of one calibration


@dataclass(frozen=True)
class EmulatedRow(AnswerRecord):
    """A prediction and its measurement."""

    scenario: str
    what: str  # an algorithm, or a phase of a training with a gradient sync
    world_size: int
    bytes: int | None  # of a collective; an all_to_all has a few less, so that the ranks divide them
    predicted_s: float | None
    measured_s: float
    attempts: int = 1  # of which the last was not disturbed by timeouts of TCP
    is_busy: bool = False  # whether other processes took this machine's cores while it was measured
    uncertainty: float | None = None  # share of the prediction that it may be off by, in four cases of five

    @property
    def error(self) -> float | None:
        """The error relative to the measurement; None without a prediction."""
        return None if self.predicted_s is None else self.predicted_s / self.measured_s - 1

    @property
    def is_as_stated(self) -> bool | None:
        """Whether the measured time is inside the stated uncertainty; None if no uncertainty is stated."""
        if self.predicted_s is None or self.uncertainty is None:
            return None
        return abs(self.measured_s - self.predicted_s) <= self.uncertainty * self.predicted_s

    def to_dict(self) -> dict[str, Any]:
        """Return the fields with the error."""
        return asdict(self) | {"error": self.error}


@dataclass(frozen=True)
class Errors:
    """The absolute errors of some rows."""

    rows: int
    median: float
    p90: float  # nine in ten are not larger
    worst: float
    within: float  # share of rows whose error is at most ``WITHIN``
    as_stated: float | None = None  # share of rows that are within their stated uncertainty


def summarize_errors(rows: Iterable[EmulatedRow]) -> Errors:
    """Return the absolute errors of the rows that have a prediction.

    >>> rows = [EmulatedRow("star4", "ring", 4, 1024, predicted, measured_s=1.0) for predicted in (0.99, 1.02, 1.3)]
    >>> round(summarize_errors(rows).median, 9)
    0.02
    """
    known = [row for row in rows if row.error is not None]
    values = np.array([abs(row.error or 0.0) for row in known])
    stated = [row.is_as_stated for row in known if row.is_as_stated is not None]
    return Errors(
        rows=len(values),
        median=float(np.median(values)),
        p90=float(np.quantile(values, 0.9)),
        worst=float(values.max()),
        within=float((values <= WITHIN).mean()),
        as_stated=sum(stated) / len(stated) if stated else None,
    )


@dataclass(frozen=True)
class EmulatedRows(AnswerRecord):
    """The rows of all emulated scenarios, the reasons why others were left out, and the total time in seconds."""

    rows: tuple[EmulatedRow, ...]
    refused: dict[str, str]
    seconds: float
    environment: dict[str, str | int] = field(default_factory=describe_measurement)
    pairs: tuple[dict[str, Any], ...] = ()  # what the predictions were calibrated by
    loads: dict[str, MachineLoad] = field(default_factory=dict)  # what else this machine did, by scenario

    @property
    def busy(self) -> str:
        """When this machine was busy and with which processes; empty if it was not busy."""
        busy = {name: load for name, load in self.loads.items() if load.is_busy}
        if not busy:
            return ""
        worst = max(busy.values(), key=lambda load: load.others + load.steal)
        marked = sum(row.is_busy for row in self.rows)
        return (
            f"This machine was busy during {', '.join(busy)}: {worst.describe()}. {marked} of {len(self.rows)} rows "
            "are marked; measure again when it is idle."
        )


Compare = Callable[[LoadedScenario, dict[float, PairProbes], dict[str, str]], Sequence[EmulatedRow]]


def compare_each(scenarios: Sequence[tuple[str, LoadedScenario]], compare: Compare, progress: Progress) -> EmulatedRows:
    """Return the rows of named scenarios. Rows are marked if other processes used the cores.

    ``compare`` returns the rows of one scenario. It receives the calibrated pairs of hosts by link rate, and a list for
    the reasons of rows that are left out. A scenario that this machine cannot emulate is left out with the reason.
    After an interrupt, all later scenarios are left out. Raises RunFailed if no scenario has rows.
    """
    begin = time.monotonic()
    pairs, refused = dict[float, PairProbes](), dict[str, str]()
    rows, loads = list[EmulatedRow](), dict[str, MachineLoad]()
    for name, scenario in scenarios:
        try:
            with watch_load() as watch:
                compared = compare(scenario, pairs, refused)
            if machine := watch.share_of_others():
                loads[name] = machine
                compared = [replace(row, is_busy=machine.is_busy) for row in compared]
            rows += compared
        except KeyboardInterrupt:
            if not rows:
                raise
            refused[name] = "interrupted, as were all that follow"
            break
        except (RunFailed, InputError) as error:
            refused[name] = str(error)
            progress.note(f"warning: {name}: {error}")
    if not rows:
        raise RunFailed("; ".join(refused.values()))
    pair_dicts = tuple(asdict(pair) for pair in pairs.values())
    return EmulatedRows(tuple(rows), refused, time.monotonic() - begin, pairs=pair_dicts, loads=loads)


def find_pair(scenario: LoadedScenario, pairs: dict[float, PairProbes], progress: Progress) -> PairProbes:
    """Return the probes of two emulated hosts with a scenario's link rate, measured unless ``pairs`` contains them."""
    bandwidth = hosts_bandwidth(scenario.cluster)
    if bandwidth not in pairs:
        with progress.task(f"calibrating on two emulated hosts at {format_bandwidth(bandwidth)}") as tick:
            crowd = next(iter(pairs.values()), None)  # of the cores, which no link's rate changes
            pairs[bandwidth] = calibrate_pair(bandwidth, crowd=crowd, timeout=TIMEOUT_S, progress=tick)
    return pairs[bandwidth]


def compare_trainings(
    scenario: LoadedScenario, calibration: Calibration, network: EmulatedNetwork, progress: Progress
) -> Iterable[EmulatedRow]:
    """Yield the phases of each training's step, predicted before they are measured."""
    simulated, slower, *parts = (
        [
            training_figures(simcomm.train(each, scenario.cluster, calibration=variant, record=False), each)
            for each in scenario.trainings
        ]
        for variant in (calibration, calibration.with_slower_cores(SLOWER), *calibration.parts)
    )
    steps = [training_steps(trainings.step_s or COUNTED_S) for trainings in simulated]
    traces, attempts = _train_undisturbed(scenario, steps, network, progress)
    for number, (training, predicted, trace) in enumerate(zip(scenario.trainings, simulated, traces, strict=True)):
        measured = training_figures(trace, training)
        for phase in PHASES:
            figure, seconds = f"{training.sync_name}: {phase.removesuffix('_s')}", getattr(measured, phase)
            known = getattr(predicted, phase) or None  # of a sync that backward hides there is nothing to see
            if seconds:
                by_part = [getattr(part[number], phase) for part in parts]
                stated = of_emulated(known or 0.0, by_part, getattr(slower[number], phase), calibration.age_s)
                row = name_of(scenario), figure, measured.world_size, None, known, seconds, attempts
                yield EmulatedRow(*row, uncertainty=stated)


def training_steps(predicted: float) -> int:
    """Return the number of steps of a training run whose steps take this many seconds.

    The first three steps are not evaluated; if steps are long, the first two.

    >>> training_steps(0.7), training_steps(2.1), training_steps(10.3)
    (8, 7, 3)
    """
    counted = min(int(COUNTED_S / predicted), MOST_COUNTED)
    return WARM_UP + counted if counted > 1 else WARM_UP


def _train_undisturbed(
    scenario: LoadedScenario, steps: Sequence[int], network: EmulatedNetwork, progress: Progress
) -> tuple[list[Trace], int]:
    """Also return the number of attempts. Raise RunFailed if the last attempt fails."""
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
    trainings, cluster = scenario.trainings, scenario.cluster
    preload_for(trainings)
    options: dict[str, Any] = {"timeout": TIMEOUT_S, "progress": tick, "network": network, "renews": True}
    results = launch(_train_each, cluster.world_size, trainings, steps, **options)
    return [
        make_trace(training, cluster, [*ranks])
        for training, ranks in zip(trainings, zip(*results, strict=True), strict=True)
    ]


def _train_each(rank: int, world_size: int, trainings: Sequence[Training], steps: Sequence[int]) -> list[RankResult]:
    return [train_rank(rank, world_size, training, count) for training, count in zip(trainings, steps, strict=True)]


def name_of(scenario: LoadedScenario) -> str:
    return Path(scenario.path).stem
