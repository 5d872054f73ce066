"""Builds the sentences under the tables of a scenario: fastest algorithm, scaling, errors, effects of faults."""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from collectives.records.spans import PHASES
from collectives.units import format_size, format_time
from ringlab.shared.figures import ClusterFigures, CollectiveFigures, SideBySide, TrainingFigures
from ringlab.shared.scenario_answer import Entry, ScenarioAnswer, Value
from scenarios import LoadedScenario
from simcomm.repetition import Waiting

REDUCING_IS_FREE = "; reducing takes no time on this transport, so slow ranks do not slow it down"
MOST_NAMED = 3  # ranks or parts of the critical path in a sentence
PHASE_LOOKED_AT = 0.01  # share of a step; errors of shorter phases are not reported
TIE = 0.01  # times whose relative difference is smaller count as equal: closed forms assume chunks of equal length
WORTH_NAMING = 0.1  # share of the critical path; shorter parts are not named


def conclude(answer: ScenarioAnswer[Any], scenario: LoadedScenario, caveats: Sequence[str] = ()) -> tuple[str, ...]:
    """Return sentences on the fastest algorithms, the largest error and the effects of faults. Append ``caveats``.

    If this machine was busy during a comparison, return only a sentence that says so.
    """
    if busy := _describe_load(answer):
        return (busy,)
    return (
        *([f"The [training] table is left out: {scenario.left_out}."] if scenario.left_out else []),
        *_fastest_collective(answer),
        *describe_crossovers(answer.place, answer.collectives),
        *_fastest_training(answer),
        *_worst_error(answer),
        *filter(None, (effect(answer.own), *(effect(other, answer.own) for other in answer.what_ifs))),
        *caveats,
    )


def headline(answer: ScenarioAnswer[Any]) -> str:
    """Return the conclusion about the fastest training run or, without training runs, the fastest collective.

    Return the title if there is neither, or if this machine was busy during a comparison.
    """
    sentences = [] if _describe_load(answer) else [*_fastest_training(answer), *_fastest_collective(answer)]
    return sentences[0] if sentences else answer.title


def _describe_load(answer: ScenarioAnswer[Any]) -> str:
    load = getattr(answer, "load", None)  # of a comparison
    if load is None or not load.is_busy:
        return ""
    meaningless = "The errors are not meaningful; compare again when the machine is idle."
    return f"This machine was busy: {load.describe()}. {meaningless}"


def _number(value: Value) -> float:
    """Return the measured time, or the predicted time if none was measured. Return infinity if the run never ends."""
    if isinstance(value, SideBySide):
        value = value.predicted if value.measured is None else value.measured
    return inf if value is None else value


def _fastest_collective(answer: ScenarioAnswer[Any]) -> list[str]:
    entries: Sequence[CollectiveFigures[Any]] = answer.collectives
    if not entries:
        return []
    ranked = sorted(_of_the_largest(entries), key=lambda entry: _number(entry.time_s))
    best, where = ranked[0], f"{answer.place}, {format_size(ranked[0].bytes)}"
    fast = _number(best.time_s)
    if fast == inf:
        return [f"{where}: no run ends."]
    if fast == 0:
        return []  # one rank sends nothing
    takes = f"{best.algorithm} takes {_describe_time(best.time_s)}"
    following = next((entry for entry in ranked if entry.algorithm != best.algorithm), None)
    if following is None:
        return [f"{where}: {takes}."]
    ratio = _number(following.time_s) / fast
    if ratio == inf:
        return [f"{where}: {takes}, {following.algorithm} never ends."]
    faster = f"{ratio:.2f} times as fast as" if ratio > 1.05 else "no faster than"
    return [f"{where}: {takes} and is {faster} {following.algorithm}, which takes {_describe_time(following.time_s)}."]


def describe_crossovers(where: str, entries: Iterable[CollectiveFigures[Any]]) -> list[str]:
    """Return a list with one sentence about the sizes at which each algorithm is fastest.

    The list is empty if one algorithm is fastest at all sizes. Times within 1 % of the fastest count as equal.
    """
    seconds = dict[int, dict[str, float]]()
    for entry in entries:
        if (time := _number(entry.time_s)) < inf:
            seconds.setdefault(entry.bytes, {})[entry.algorithm] = time
    sizes, fastest, ranges = sorted(seconds), "", list[tuple[str, list[int]]]()
    for nbytes in sizes:
        times = seconds[nbytes]
        if times.get(fastest, inf) > min(times.values()) * (1 + TIE):
            fastest = min(times, key=times.__getitem__)
            ranges.append((fastest, []))
        ranges[-1][1].append(nbytes)
    parts = [f"{name} {_describe_sizes(own[0], own[-1], sizes)}" for name, own in ranges]
    return [f"{where}: fastest is {', '.join(parts)}."] if len(parts) > 1 else []


def _describe_sizes(first: int, last: int, sizes: Sequence[int]) -> str:
    """Describe the range of sizes from ``first`` to ``last`` among ``sizes``, such as "up to 1 MiB"."""
    if first == sizes[0]:
        return f"up to {format_size(last)}"
    if last == sizes[-1]:
        return f"from {format_size(first)} on"
    return f"at {format_size(first)}" if first == last else f"from {format_size(first)} to {format_size(last)}"


def _describe_time(value: Value) -> str:
    shown = format_time(_number(value))
    if isinstance(value, SideBySide) and value.predicted is not None and value.measured is not None:
        return f"{shown} (predicted {format_time(value.predicted)})"
    return shown


def _fastest_training(answer: ScenarioAnswer[Any]) -> list[str]:
    entries: Sequence[TrainingFigures[Any]] = answer.training
    if not entries:
        return []
    best = min(entries, key=lambda entry: _number(entry.step_s))
    if _number(best.step_s) == inf and best.test_accuracy is not None:
        return [f"{answer.place}: no step was left to train."]
    if _number(best.step_s) == inf:
        return [f"{answer.place}: the training never ends."]
    waited, sync = _number(best.sync_s), "gradient sync"
    if best.exposed_s is not None:
        waited, sync = best.exposed_s, "exposed gradient sync"
    is_known = waited > 0 or best.exposed_s is not None
    share = f", {waited / _number(best.step_s):.0%} of it {sync}" if is_known else ""
    ranks, efficiency = best.world_size, _number(best.scaling_efficiency)
    work = f"; the scaling efficiency of {ranks} ranks is {efficiency:.0%}" if ranks > 1 else ""
    return [f"{answer.place}: with {best.gradient_sync} a step takes {_describe_time(best.step_s)}{share}{work}."]


def _worst_error(answer: ScenarioAnswer[Any]) -> list[str]:
    collectives: Sequence[CollectiveFigures[Any]] = answer.collectives
    rows = [(entry.time_s, f"{entry.algorithm} at {format_size(entry.bytes)}") for entry in collectives]
    for training in answer.training:
        for key in ("step_s", *(f"{phase}_s" for phase in PHASES), "scaling_efficiency"):
            value, name = getattr(training, key), key.removesuffix("_s").replace("_", " ")
            if name not in PHASES or _number(value) >= PHASE_LOOKED_AT * _number(training.step_s):
                rows.append((value, f"{name} with {training.gradient_sync}"))
    compared = [(value.error, name) for value, name in rows if isinstance(value, SideBySide)]
    errors = [(abs(error), name) for error, name in compared if error is not None]
    if not errors:
        return []
    worst, name = max(errors)
    return [f"The largest prediction error is {worst:.0%}, for {name}."]


def effect(figures: ClusterFigures[Any], without: ClusterFigures[Any] | None = None) -> str:
    """Describe how faults affect the fastest training run or, without training runs, the fastest collective.

    If ``without`` has the same cluster, its run without faults is the baseline. Return "" if there are no faults.
    """
    entry = min(_shown(figures), key=lambda each: _seconds(each) or inf, default=None)
    if entry is None or entry.faults is None:
        return ""
    where = f"{figures.title}: {_name(entry)}"
    faults, seconds = entry.faults, _seconds(entry)
    if seconds is None:
        failed, down = (faults.stuck.failed, faults.stuck.down) if faults.stuck else ((), ())
        causes = [f"rank {each.rank} failed at {format_time(each.at_s)}" for each in failed]
        causes += [f"{' - '.join(each.between)} is down since {format_time(each.at_s)}" for each in down]
        why = f", as {' and '.join(causes[:MOST_NAMED])}" if causes else ""
        return f"{where} never ends{why}."
    others = _shown(without) if without and without.cluster == figures.cluster else []
    before = next((_seconds(each) for each in others if _name(each) == _name(entry) and each.faults is None), None)
    slower = f", {seconds / before:.3g} times as long as without faults ({format_time(before)})" if before else ""
    never = f"; {faults.never_ended} of {faults.repetitions} runs never end" if faults.never_ended else ""
    cause = _main_cause(faults.waiting) if faults.waiting else ""
    cause += REDUCING_IS_FREE if faults.computing == "free" else ""
    return f"{where} takes {format_time(seconds)}{slower}{cause}{never}."


def _of_the_largest(entries: Sequence[CollectiveFigures[Any]]) -> list[CollectiveFigures[Any]]:
    largest = max((entry.bytes for entry in entries), default=0)
    return [entry for entry in entries if entry.bytes == largest]


def _shown(figures: ClusterFigures[Any]) -> list[Entry]:
    return [*figures.training] or [*_of_the_largest(figures.collectives)]


def _seconds(entry: Entry) -> float | None:
    """Return the predicted seconds of a collective or a training step, or None if it never ends."""
    value: Value = entry.time_s if isinstance(entry, CollectiveFigures) else entry.step_s
    return value.predicted if isinstance(value, SideBySide) else value


def _main_cause(waiting: Waiting) -> str:
    path_s = waiting.critical_path_s
    if path_s <= 0 or not waiting.critical_path:
        return ""
    link = waiting.degraded_links[0] if waiting.degraded_links else None
    if link is not None and link.s >= WORTH_NAMING * path_s:
        has = f"has {link.share:.3g} times its bandwidth" if link.share else "is down"
        fault = f"{'at times ' if link.at_times else ''}{has}"
        return f"; {link.s / path_s:.0%} of that are messages over {' - '.join(link.between)}, which {fault}"
    part = waiting.critical_path[0]
    if part.s < WORTH_NAMING * path_s:
        return f"; each part of that is below {WORTH_NAMING:.0%}"
    return f"; the largest part is {part.what} ({part.s / path_s:.0%})"


def _name(entry: Entry) -> str:
    if isinstance(entry, CollectiveFigures):
        return f"{entry.algorithm}, {format_size(entry.bytes)}"
    return f"a step with {entry.gradient_sync}"
