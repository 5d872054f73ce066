"""Measure the errors of predictions on emulated clusters on this machine.

If a measured run differs from its prediction, both are compared message by message along the measured critical path.
The differences of the parts add up to the whole difference.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

import realcomm
import simcomm
import viz
from benchmarks.accuracy.emulated_rows import (
    ATTEMPTS,
    TIMEOUT_S,
    WITHIN,
    EmulatedRow,
    EmulatedRows,
    Errors,
    compare_each,
    compare_trainings,
    find_pair,
    name_of,
    summarize_errors,
)
from collectives.call import CollectiveCall, make_call
from collectives.catalogue import find_algorithm
from collectives.records.calibration import SLOWER, Calibration, CrowdRound, PairProbes
from collectives.records.environment import cores
from collectives.records.messages import Message
from collectives.records.trace import Trace
from collectives.records.waits import critical_path
from collectives.units import count, format_size, format_time
from realcomm.calibration.pair_calibration import from_pair, probe_crowd, with_pair
from realcomm.emulation.network import EmulatedNetwork
from realcomm.measuring.collective_run import RankFigures, TimedCall, make_trace, measure_all
from ringlab.emulated import as_built, emulated, hosts_bandwidth, on_emulated
from ringlab.shared.answer import Answer, to_plain
from ringlab.shared.progress import Progress
from ringlab.shared.workload import resolve_calls
from ringlab.table import NOTHING, Part, Sentences, Table, time_unit
from scenarios import LoadedScenario, load, shipped
from simcomm.uncertainty import of_emulated

SHOWN = 12  # of the rows that are off by most
BESIDE = "all_to_all/direct"  # at the sizes of every scenario that compares all_reduce
TOTAL_S = 0.4  # of the repetitions of a row ...
LONG_S = 1.0  # of one that is run once; others were run once before they count

Crowds = dict[str, list[CrowdRound]]  # rounds that were measured again, by the scenario before which


SMALL = 4096  # bytes: up to here software takes longer than links
BEGIN, BETWEEN, SMALL_MESSAGES, LINKS = "ranks begin", "between messages", "small messages", "links"
Name = tuple[int, int, int, int, int, int]  # collective, sender, receiver, channel, step, chunk


class Lateness(NamedTuple):
    """How much later a measured run ended than predicted, in seconds by part of its critical path."""

    begin: float  # until the first message of the chain was posted
    between: float  # from the end of a message to when the next was posted: ranks, which wait for cores
    small: float  # of messages of ``SMALL`` bytes and less, while both halves were posted
    links: float  # of larger messages
    where: str  # the hop that is furthest from its prediction

    @property
    def whole(self) -> float:
        """The sum of all parts in seconds."""
        return self.begin + self.between + self.small + self.links

    @property
    def cause(self) -> str:
        """The part that explains most of the difference."""
        parts = {BEGIN: self.begin, BETWEEN: self.between, SMALL_MESSAGES: self.small, LINKS: self.links}
        return max(parts, key=lambda name: parts[name] * (1 if self.whole >= 0 else -1))


def find_lateness(predicted: Trace, measured: Trace) -> Lateness | None:
    """Return the lateness of a measured run; None if it has other messages than its prediction.

    >>> first, late = Message(0, 1, 0, 0, 64, 0.0, 1.0), Message(0, 1, 0, 0, 64, 0.5, 1.5)
    >>> then, slow = Message(1, 2, 1, 0, 1 << 20, 1.0, 3.0), Message(1, 2, 1, 0, 1 << 20, 1.5, 7.5)
    >>> model, real = (Trace("one", "measured", 3, 9.0, pair) for pair in ([first, then], [late, slow]))
    >>> find_lateness(model, real)
    Lateness(begin=0.5, between=0.0, small=0.0, links=4.0, where='1 -> 2, step 1: 6 s, not 2 s')
    """
    model = {_name(message): message for message in predicted.messages}
    if not measured.messages or model.keys() != {_name(message) for message in measured.messages}:
        return None
    chain = [measured.messages[leg.number] for leg in critical_path(measured, over_gaps=True) if leg.name == "message"]
    parts = dict.fromkeys((BEGIN, BETWEEN, SMALL_MESSAGES, LINKS), 0.0)
    worst, where, ends = 0.0, "", (0.0, 0.0)
    for place, real in enumerate(chain):
        other = model[_name(real)]
        gap = (real.begin - ends[0]) - (other.begin - ends[1])
        more = (real.end - real.begin) - (other.end - other.begin)
        parts[BETWEEN if place else BEGIN] += gap
        parts[SMALL_MESSAGES if real.nbytes <= SMALL else LINKS] += more
        if max(abs(more), abs(gap)) > worst:
            worst, where = max(abs(more), abs(gap)), _describe(real, other, ends, abs(more) >= abs(gap))
        ends = real.end, other.end
    return Lateness(parts[BEGIN], parts[BETWEEN], parts[SMALL_MESSAGES], parts[LINKS], where)


def _name(message: Message) -> Name:
    return message.collective, message.src, message.dst, message.channel, message.step, message.chunk


def _describe(real: Message, model: Message, before: tuple[float, float], in_message: bool) -> str:
    name = f"{real.src} -> {real.dst}, step {real.step}"
    if in_message:
        return f"{name}: {format_time(real.end - real.begin)}, not {format_time(model.end - model.begin)}"
    late, expected = real.begin - before[0], model.begin - before[1]
    return f"{name} begins {format_time(late)} after the previous operation, not {format_time(expected)}"


@dataclass(frozen=True)
class TracedRow(EmulatedRow):
    """A prediction and its measurement. If the error is large, ``lateness`` locates it in the measured trace."""

    lateness: Lateness | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields with the error, and the cause of the lateness."""
        late = self.lateness
        return super().to_dict() | {"lateness": None if late is None else late._asdict() | {"cause": late.cause}}


@dataclass(frozen=True, repr=False)
class AccuracyHere(Answer):
    """All rows of the emulated scenarios, and the CPU calibration before each scenario."""

    kind = "accuracy here"

    found: EmulatedRows
    crowds: Crowds = field(default_factory=dict)

    @property
    def views(self) -> dict[str, dict[str, Errors]]:
        """The errors of all rows, by algorithm, by size and by scenario."""
        return {
            "all": self._by(lambda row: "all rows"),
            "algorithm": self._by(lambda row: row.what),
            "size": self._by(_size),
            "scenario": self._by(lambda row: row.scenario),
        }

    def _by(self, key: Callable[[EmulatedRow], str]) -> dict[str, Errors]:
        groups: dict[str, list[EmulatedRow]] = {}
        for row in self.found.rows:
            if row.error is not None:
                groups.setdefault(key(row), []).append(row)
        return {name: summarize_errors(rows) for name, rows in groups.items()}

    def draw(self, path: Path | str) -> None:
        """Draw predicted against measured times, with a panel per size, as .png, .svg or .pdf.

        Raise InputError for another suffix, or if nothing was predicted.
        """
        times = dict[tuple[str, str], list[tuple[float, float]]]()
        for row in self.found.rows:
            if row.predicted_s is not None:
                times.setdefault((_size(row), row.what), []).append((row.measured_s, row.predicted_s))
        dots = [viz.Dots(*names, *map(list, zip(*pairs, strict=True))) for names, pairs in times.items()]
        clusters = len({row.scenario for row in self.found.rows if row.predicted_s is not None})
        subtitle = f"{clusters} clusters emulated, calibrated on two hosts; grey: off by less than a factor of 1.3"
        viz.write_figure(viz.accuracy_figure("Predicted and measured here", subtitle, dots), path)

    def to_dict(self) -> dict[str, Any]:
        """Return rows and errors as plain JSON."""
        answer = super().to_dict()
        return {**answer.pop("found"), **answer, "errors": to_plain(self.views)}

    def show(self) -> Iterator[Part]:
        """Yield the errors of all rows, by algorithm, size and scenario, and the rows with the largest errors."""
        headings = ["rows", "median", "nine in ten", "worst", f"within {WITHIN:.0%}", "as stated"]
        for key, groups in self.views.items():
            is_all = key == "all"
            title = "Emulated clusters: errors" if is_all else f"By {key}"
            shown = [[name, *_cells(errors)] for name, errors in groups.items()]
            yield Table(title, ["" if is_all else key, *headings], shown)
        known = [(abs(row.error), row) for row in self.found.rows if row.error is not None]
        worst = [row for _, row in sorted(known, key=lambda pair: -pair[0])[:SHOWN]]
        unit, form = time_unit(seconds for row in worst for seconds in (row.predicted_s, row.measured_s))
        shown = [
            [
                row.scenario,
                row.what,
                NOTHING if row.bytes is None else format_size(row.bytes),
                *map(form, (row.predicted_s or 0.0, row.measured_s)),
                f"{row.error or 0.0:+.0%}",
            ]
            for row in worst
        ]
        headings = ["scenario", "what", "size", f"predicted\n({unit})", f"measured\n({unit})", "error"]
        yield Table("Off by most", headings, shown, words=2)
        refused = [f"{name} was not measured: {reason}" for name, reason in self.found.refused.items()]
        summary = (
            f"{len(self.found.rows)} rows in {self.found.seconds:.0f} s. An error is |predicted / measured - 1|; "
            "as stated: within the uncertainty of the prediction, which should hold for four of five."
        )
        yield Sentences([*refused, summary, *filter(None, [self.found.busy])])


def _cells(errors: Errors) -> list[str]:
    return [
        str(errors.rows),
        *(f"{100 * share:.1f} %" for share in (errors.median, errors.p90, errors.worst)),
        f"{errors.within:.0%}",
        NOTHING if errors.as_stated is None else f"{errors.as_stated:.0%}",
    ]


def _size(row: EmulatedRow) -> str:
    return "training" if row.bytes is None else format_size(row.bytes)


def accuracy_here(names: Sequence[str] = (), *, progress: Progress | None = None) -> AccuracyHere:
    """Emulate scenarios, and return predictions and measured times. Default: all scenarios under ``emulated/``.

    Predictions are calibrated on two emulated hosts for each link rate. The CPU calibration is repeated before each
    later scenario: on two hosts for collectives, in as many processes as cores for training runs. Raises InputError
    for an unknown scenario, and RunFailed if nothing can be emulated.
    """
    progress = Progress() if progress is None else progress
    crowds = Crowds()

    def compare(scenario: LoadedScenario, pairs: dict[float, PairProbes], refused: dict[str, str]) -> list[EmulatedRow]:
        return compare_here(scenario, calibrate(scenario, pairs, crowds, progress), refused, progress)

    chosen = [on_emulated(load(name)) for name in names or [name for name in shipped() if name.startswith("emulated/")]]
    return AccuracyHere(compare_each([(name_of(scenario), scenario) for scenario in chosen], compare, progress), crowds)


def calibrate(
    scenario: LoadedScenario, pairs: dict[float, PairProbes], crowds: Crowds, progress: Progress
) -> Calibration:
    """Return the calibration for a scenario. It is measured now, except pairs of hosts that an earlier scenario needed.

    Calibrations with more ranks than cores are measured again, because CPU speed drifts. Training runs compute in as
    many processes as cores. Raises RunFailed if a rank fails or the network cannot be emulated.
    """
    is_first = not pairs
    pair = find_pair(scenario, pairs, progress)
    if scenario.trainings:
        with progress.task("calibrating the computing of trainings") as tick:
            computing = realcomm.calibrate(
                cores(), scenario.trainings, all_sizes=False, timeout=TIMEOUT_S, progress=tick
            )
        return with_pair(computing, pair)
    rounds, name = list[CrowdRound](), name_of(scenario)
    if not is_first:
        with progress.task(f"calibrating what cores do, before {name}") as tick:
            bandwidth = hosts_bandwidth(scenario.cluster)
            rounds = crowds[name] = probe_crowd(bandwidth, timeout=TIMEOUT_S, progress=tick)
    return from_pair(replace(pair, crowds=[*pair.crowds, *rounds]), cores())


def compare_here(
    scenario: LoadedScenario, calibration: Calibration, refused: dict[str, str], progress: Progress
) -> list[EmulatedRow]:
    """Return the rows of one scenario, all predicted before anything is measured.

    The reasons for rows that are left out are appended to ``refused``.
    """
    calls, ranks = [*_calls_of(scenario)], scenario.cluster.world_size
    with emulated(scenario.cluster, progress) as network:
        scenario = as_built(scenario, network)
        predicted = _predict(scenario, [call for _, call in calls], calibration)
        stated = _stated(scenario, [call for _, call in calls], calibration, predicted)
        measurements = [_measurement(call, prediction) for (_, call), prediction in zip(calls, predicted, strict=True)]
        measured = dict(sorted(_measure(scenario, measurements, network, refused, progress).items()))
        trained = [*compare_trainings(scenario, calibration, network, progress)] if scenario.trainings else []
    rows = list[TracedRow]()
    for number, (trace, attempts) in measured.items():
        label, call = calls[number]
        row = TracedRow(
            *(name_of(scenario), _label(call), ranks, label, predicted[number], trace.elapsed, attempts),
            uncertainty=stated[number],
        )
        if abs(row.error or 0.0) > WITHIN:
            recorded = simcomm.run(call, scenario.cluster, calibration=calibration)
            row = replace(row, lateness=find_lateness(recorded, trace))
        rows.append(row)
    return [*rows, *(TracedRow(**vars(row)) for row in trained)]


def _predict(scenario: LoadedScenario, calls: Sequence[CollectiveCall], calibration: Calibration) -> list[float]:
    predict = partial(simcomm.run, cluster=scenario.cluster, calibration=calibration, record=False)
    return [predict(call).elapsed for call in calls]


def _stated(
    scenario: LoadedScenario, calls: Sequence[CollectiveCall], calibration: Calibration, predicted: Sequence[float]
) -> list[float | None]:
    parts = [_predict(scenario, calls, part) for part in calibration.parts]
    slower = _predict(scenario, calls, calibration.with_slower_cores(SLOWER))
    return [
        of_emulated(seconds, [part[number] for part in parts], slower[number], calibration.age_s)
        for number, seconds in enumerate(predicted)
    ]


def _measurement(call: CollectiveCall, predicted: float) -> TimedCall:
    if predicted > LONG_S:
        return TimedCall(call, 0, 1, None, check=False)
    return TimedCall(call, 1, None, None, check=False, total_s=TOTAL_S, least=1)


def _measure(
    scenario: LoadedScenario,
    measurements: Sequence[TimedCall],
    network: EmulatedNetwork,
    refused: dict[str, str],
    progress: Progress,
) -> dict[int, tuple[Trace, int]]:
    """Also return the number of attempts.

    Runs with TCP timeouts are repeated. If all attempts had timeouts, ``refused`` says so.
    """
    measured: dict[int, tuple[Trace, int]] = {}
    wrong = dict.fromkeys(range(len(measurements)), "")
    for attempt in range(1, ATTEMPTS + 1):
        if wrong:
            left = {number: measurements[number] for number in wrong}
            traces, wrong = _measure_once(scenario, left, network, attempt, progress)
            measured |= {number: (repetition, attempt) for number, repetition in traces.items()}
    for number, why in wrong.items():
        call = measurements[number].call
        name = f"{name_of(scenario)}, {call.algorithm.full_name}, {call.nbytes} bytes"
        refused[name] = f"{why}, in the last of {ATTEMPTS} attempts"
    return measured


def _measure_once(
    scenario: LoadedScenario,
    measurements: dict[int, TimedCall],
    network: EmulatedNetwork,
    attempt: int,
    progress: Progress,
) -> tuple[dict[int, Trace], dict[int, str]]:
    """Also return the problems that the network reported for other measurements."""
    wrong = dict[int, str]()
    again = "" if attempt == 1 else f", which TCP's timeouts disturbed: attempt {attempt} of {ATTEMPTS}"
    numbers = [*measurements]
    with progress.task(f"measuring {count(len(measurements), 'row')} of {name_of(scenario)}{again}") as tick:

        def found(measurement: TimedCall, figures: RankFigures) -> None:
            at = next(at for at, number in enumerate(numbers) if measurements[number] is measurement)
            if complaints := network.complaints():
                wrong[numbers[at]] = complaints[0]
            network.mark()
            tick(0, at + 1, len(measurements), measurement.call.algorithm.full_name)

        by_rank = measure_all([*measurements.values()], scenario.cluster.world_size, found, network=network)
    traces = {
        number: make_trace(scenario.cluster, measurements[number], ranks)
        for number, ranks in zip(numbers, by_rank, strict=True)
        if number not in wrong
    }
    return traces, wrong


def _calls_of(scenario: LoadedScenario) -> Iterable[tuple[int, CollectiveCall]]:
    """all_to_all has sizes that the number of ranks divides."""
    comparison, ranks = scenario.collective, scenario.cluster.world_size
    for call in resolve_calls(comparison, scenario.cluster, None):
        yield call.nbytes, call
    if comparison is not None and comparison.name == "all_reduce":
        for nbytes in comparison.sizes:
            yield nbytes, make_call(find_algorithm(BESIDE), ranks, nbytes)


def _label(call: CollectiveCall) -> str:
    return call.algorithm.label if call.algorithm.spec.name == "all_reduce" else call.algorithm.spec.name


def pair_before(results: dict[str, Any], scenario: str, bandwidth: float) -> PairProbes:
    """Return the probes of earlier JSON output for hosts with links of ``bandwidth`` bytes/s."""
    pair = next(pair for pair in results["pairs"] if pair["bandwidth"] == bandwidth)
    content = {**pair, "crowds": [*pair["crowds"], *results.get("crowds", {}).get(scenario, [])]}
    return TypeAdapter(PairProbes).validate_python(content, extra="forbid")
