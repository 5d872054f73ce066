"""What an answer comes to, in sentences; every number in them is in the answer or follows from the algorithms."""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from collectives.declaration import Algorithm
from collectives.schedule.build import build_schedule
from collectives.units import format_size, format_time
from ringlab.answers.figures import CollectiveFigures, SideBySide, TrainingFigures
from ringlab.answers.reasons import reasons
from ringlab.answers.scenario_answer import ScenarioAnswer
from ringlab.answers.workload import predictable
from scenarios import Scenario
from simcomm.cluster.cluster import Cluster


def conclude(answer: ScenarioAnswer[Any], scenario: Scenario) -> tuple[str, ...]:
    """Return sentences: the fastest algorithm and sync, the reasons under trouble, and why what-if clusters differ."""
    sentences = []
    if answer.collectives:
        sentences.append(_fastest_collective(answer))
    if answer.training:
        sentences.append(_fastest_training(answer))
    sentences += reasons(answer.own)
    for other in answer.what_ifs:
        sentences += reasons(other, other.title)
    return (*sentences, *_why_clusters_differ(answer, scenario))


def _number(value: float | SideBySide | None) -> float:
    """Return the measured value, the predicted one where none was measured, or infinity for a run that never ends."""
    if isinstance(value, SideBySide):
        value = value.predicted if value.measured is None else value.measured
    return inf if value is None else value


def _ratio(fast: float, slow: float) -> str:
    return f"{slow / fast:.2f} times as fast as" if fast > 0 and slow / fast > 1.05 else "no faster than"


def _fastest_collective(answer: ScenarioAnswer[Any]) -> str:
    entries: Sequence[CollectiveFigures[Any]] = answer.collectives
    largest = max(entry.bytes for entry in entries)
    ranked = sorted((entry for entry in entries if entry.bytes == largest), key=lambda entry: _number(entry.time_s))
    best, last = ranked[0], ranked[-1]
    where = f"{answer.cluster}, {format_size(largest)}"
    takes = f"{best.algorithm} takes {format_time(_number(best.time_s))}"
    if _number(best.time_s) == inf:
        return f"{where}: no run comes to its end."
    if _number(last.time_s) == inf:
        return f"{where}: {takes}, {last.algorithm} never ends."
    if best is last:
        return f"{where}: {takes}."
    ratio = _ratio(_number(best.time_s), _number(last.time_s))
    return f"{where}: {best.algorithm} is {ratio} {last.algorithm}.{_worst_error(entry.time_s for entry in entries)}"


def _worst_error(values: Iterable[Any]) -> str:
    errors = [abs(one.error) for one in values if isinstance(one, SideBySide) and one.error is not None]
    return f" The predictions are off by at most {max(errors):.0%}." if errors else ""


def _fastest_training(answer: ScenarioAnswer[Any]) -> str:
    entries: Sequence[TrainingFigures[Any]] = answer.training
    best = min(entries, key=lambda entry: _number(entry.step_s))
    if _number(best.step_s) == inf:
        return f"{answer.cluster}: training never comes to its end."
    share = _number(best.sync_s) / _number(best.step_s)
    step = format_time(_number(best.step_s))
    return (
        f"{answer.cluster}: with {best.gradient_sync} a step takes {step}, "
        f"{share:.0%} of it gradient sync; {best.world_size} ranks do {_number(best.scaling_efficiency):.0%} of "
        f"{best.world_size} times one rank's work.{_worst_error(entry.step_s for entry in entries)}"
    )


def _why_clusters_differ(answer: ScenarioAnswer[Any], scenario: Scenario) -> list[str]:
    """Return why the ring gains more on one cluster than on another, from what the busiest rank sends."""
    syncs = {one.sync_name: one.gradient_sync for one in predictable(scenario.trainings) if one.gradient_sync}
    if len(syncs) < 2 or not {"naive", "ring"} <= set(syncs):
        return []
    here = _ring_gain(answer.training)
    sentences = []
    for other, entry in zip(scenario.what_ifs, answer.what_ifs, strict=False):
        there = _ring_gain(entry.training)
        if here is None or there is None:
            continue
        sentences.append(
            f"Why the ring gains {_format_gain(here)} here and {_format_gain(there)} on {other.title}: "
            f"{_describe_sent(syncs, scenario.cluster, 'here')}, and both directions share one memory; "
            f"{_describe_sent(syncs, other.cluster, 'there')}, and every rank has a link of its own."
        )
    return sentences


def _ring_gain(entries: Sequence[TrainingFigures[Any]]) -> float | None:
    """Return how many times as long the sync takes with naive as with ring."""
    seconds = {entry.gradient_sync: _number(entry.sync_s) for entry in entries}
    if inf in seconds.values() or not {"naive", "ring"} <= set(seconds) or seconds["ring"] <= 0:
        return None
    return seconds["naive"] / seconds["ring"]


def _format_gain(gain: float) -> str:
    return "nothing" if gain < 1.05 else f"{gain:.1f} times"


def _describe_sent(syncs: dict[str, Algorithm], cluster: Cluster, where: str) -> str:
    shares = {}
    for name in ("naive", "ring"):
        schedule = build_schedule(syncs[name], cluster.world_size)
        shares[name] = int(schedule.elements_sent(schedule.chunks).max(initial=0)) / schedule.chunks
    return (
        f"with {cluster.world_size} ranks {where} the busiest one sends {shares['naive']:.3g} buffers "
        f"(naive) or {shares['ring']:.3g} (ring)"
    )
