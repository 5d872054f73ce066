"""What an answer comes to, in sentences; every number in them is in the answer or follows from the algorithms."""

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

from collectives.declaration import Algorithm
from collectives.schedule.build import build_schedule
from collectives.units import format_size, format_time
from ringlab.answers.figures import CollectiveFigures, SideBySide, TrainingFigures
from ringlab.answers.reasons import effect, reasons
from ringlab.answers.scenario_answer import ScenarioAnswer
from ringlab.shared.workload import predictable
from ringlab.table import keep_few
from scenarios import Scenario
from simcomm.cluster.cluster import Cluster

PHASES = ("step_s", "forward_s", "backward_s", "sync_s", "optimizer_s", "scaling_efficiency")


class Conclusions(NamedTuple):
    """What matters most, in a few sentences, and the rest."""

    conclusions: tuple[str, ...]
    explanations: tuple[str, ...]


def conclude(answer: ScenarioAnswer[Any], scenario: Scenario, grounds: Sequence[str] = ()) -> Conclusions:
    """Return the fastest algorithm and sync, why clusters differ, the worst error, and what trouble does.

    Last are the ``grounds`` of the predictions. Where these are too many, the first are among what explains the rest,
    such as who waited for whom.
    """
    sentences = [
        *_fastest_collective(answer),
        *_fastest_training(answer),
        *_why_clusters_differ(answer, scenario),
        *_worst_error(answer),
        *_approximations(answer),
        *filter(None, (effect(answer.own), *(effect(other, answer.own) for other in answer.what_ifs))),
        *grounds,
    ]
    details = [*reasons(answer.own), *(line for other in answer.what_ifs for line in reasons(other, other.title))]
    return Conclusions(*keep_few(sentences, details))


def headline(answer: ScenarioAnswer[Any]) -> str:
    """Return the sentence that answers a scenario's question: of its quickest training, else its collective."""
    return next(iter([*_fastest_training(answer), *_fastest_collective(answer)]), "")


def _approximations(answer: ScenarioAnswer[Any]) -> list[str]:
    """Return by how much the times of the approximate engine may be wrong, as a share of each at most."""
    entries = [entry for cluster in (answer.own, *answer.what_ifs) for entry in cluster.collectives]
    shares = [entry.error_s / _number(entry.time_s) for entry in entries if entry.error_s and entry.time_s]
    if not shares:
        return []
    return [f"Approximate times may be wrong by {max(shares):.1g} of each; with the compiled engine they are exact."]


def _number(value: float | SideBySide | None) -> float:
    """Return the measured value, the predicted one where none was measured, or infinity for a run that never ends."""
    if isinstance(value, SideBySide):
        value = value.predicted if value.measured is None else value.measured
    return inf if value is None else value


def _fastest_collective(answer: ScenarioAnswer[Any]) -> list[str]:
    entries: Sequence[CollectiveFigures[Any]] = answer.collectives
    if not entries:
        return []
    largest = max(entry.bytes for entry in entries)
    ranked = sorted((entry for entry in entries if entry.bytes == largest), key=lambda entry: _number(entry.time_s))
    best, last = ranked[0], ranked[-1]
    where = f"{answer.place}, {format_size(largest)}"
    fast, slow = _number(best.time_s), _number(last.time_s)
    if fast == inf:
        return [f"{where}: no run comes to its end."]
    if fast == slow == 0:
        return []  # one rank sends nothing
    takes = f"{best.algorithm} takes {_describe_time(best.time_s)}"
    if best is last:
        return [f"{where}: {takes}."]
    if slow == inf:
        return [f"{where}: {takes}, {last.algorithm} never ends."]
    ratio = f"{slow / fast:.2f} times as fast as" if fast > 0 and slow / fast > 1.05 else "no faster than"
    return [f"{where}: {takes} and is {ratio} {last.algorithm}, which takes {_describe_time(last.time_s)}."]


def _describe_time(value: float | SideBySide | None) -> str:
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
        return [f"{answer.place}: training never comes to its end."]
    waited, sync = _number(best.sync_s), "gradient sync"
    if best.exposed_s is not None:
        waited, sync = best.exposed_s, "gradient sync that backward does not hide"
    share = waited / _number(best.step_s)
    ranks, efficiency = best.world_size, _number(best.scaling_efficiency)
    work = f"; {ranks} ranks do {efficiency:.0%} of {ranks} times one rank's work" if ranks > 1 else ""
    return [
        f"{answer.place}: with {best.gradient_sync} a step takes {_describe_time(best.step_s)}, "
        f"{share:.0%} of it {sync}{work}."
    ]


def _worst_error(answer: ScenarioAnswer[Any]) -> list[str]:
    """Return which of all rows of the tables is predicted worst."""
    collectives: Sequence[CollectiveFigures[Any]] = answer.collectives
    rows = [(one.time_s, f"{one.algorithm} at {format_size(one.bytes)}") for one in collectives]
    for training in answer.training:
        for key in PHASES:
            name = key.removesuffix("_s").replace("_", " ")
            rows.append((getattr(training, key), f"{name} with {training.gradient_sync}"))
    compared = [(value.error, name) for value, name in rows if isinstance(value, SideBySide)]
    errors = [(abs(error), name) for error, name in compared if error is not None]
    if not errors:
        return []
    worst, name = max(errors)
    return [f"The predictions are off by at most {worst:.0%}, for {name}."]


def _why_clusters_differ(answer: ScenarioAnswer[Any], scenario: Scenario) -> list[str]:
    """Return why the ring gains more on one cluster than on another, from what the busiest rank sends."""
    syncs = {one.sync_name: one.gradient_sync for one in predictable(scenario.trainings) if one.gradient_sync}
    here = _ring_gain(answer.training)
    if not {"naive", "ring"} <= set(syncs) or here is None:
        return []
    sentences = []
    for other, entry in zip(scenario.what_ifs, answer.what_ifs, strict=False):
        there = _ring_gain(entry.training)
        if there is None or other.cluster is scenario.cluster:
            continue
        sentences.append(
            f"Why the ring gains {_format_gain(here)} here and {_format_gain(there)} on {other.title}: "
            f"{_describe_sent(syncs, scenario.cluster, 'here')}; {_describe_sent(syncs, other.cluster, 'there')}."
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
        f"of {cluster.world_size} ranks {where} the busiest sends {shares['naive']:.3g} times the buffer (naive) or "
        f"{shares['ring']:.3g} times (ring){cluster.describe_links()}"
    )
