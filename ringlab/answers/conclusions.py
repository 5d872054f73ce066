"""What an answer comes to, in sentences; every number in them is in the answer or follows from the algorithms."""

from math import inf
from typing import Any

from collectives.schedule.schedule import build_schedule
from collectives.units import format_size, format_time
from ringlab.answers.answer import Answer, predictable
from ringlab.answers.trouble_reasons import reasons
from scenarios import Scenario
from simcomm import Cluster


def conclude(answer: Answer, scenario: Scenario) -> list[str]:
    """One sentence under each table, and why small and large clusters differ where both are there."""
    sentences = []
    if answer["collectives"]:
        sentences.append(_fastest_collective(answer))
    if answer["training"]:
        sentences.append(_training(answer))
    for part in (answer, *answer.get("what_if", [])):
        sentences += reasons(part)
    return sentences + _why(answer, scenario)


def _number(value: Any) -> float:
    """What was measured or, where nothing was, predicted."""
    if isinstance(value, dict):
        return float(value["predicted"] if value.get("measured") is None else value["measured"])
    return inf if value is None else float(value)  # of a run that never ends


def _ratio(fast: float, slow: float) -> str:
    return f"{slow / fast:.2f} times as fast as" if fast > 0 and slow / fast > 1.05 else "no faster than"


def _fastest_collective(answer: Answer) -> str:
    entries = answer["collectives"]
    largest = max(entry["bytes"] for entry in entries)
    ranked = sorted((e for e in entries if e["bytes"] == largest), key=lambda e: _number(e["time_s"]))
    best, last = ranked[0], ranked[-1]
    where = f"{answer['scenario']['cluster']}, {format_size(largest)}"
    takes = f"{best['algorithm']} takes {format_time(_number(best['time_s']))}"
    if _number(best["time_s"]) == inf:
        return f"{where}: no run comes to its end."
    if _number(last["time_s"]) == inf:
        return f"{where}: {takes}, {last['algorithm']} never ends."
    if best is last:
        return f"{where}: {takes}."
    ratio = _ratio(_number(best["time_s"]), _number(last["time_s"]))
    return f"{where}: {best['algorithm']} is {ratio} {last['algorithm']}.{_worst_error(entries, 'time_s')}"


def _worst_error(entries: list[Any], key: str) -> str:
    errors = [e[key]["error"] for e in entries if isinstance(e[key], dict) and e[key]["error"] is not None]
    return f" The predictions are off by at most {max(map(abs, errors)):.0%}." if errors else ""


def _training(answer: Answer) -> str:
    entries = answer["training"]
    best = min(entries, key=lambda e: _number(e["step_s"]))
    if _number(best["step_s"]) == inf:
        return f"{answer['scenario']['cluster']}: training never comes to its end."
    share = _number(best["sync_s"]) / _number(best["step_s"])
    step = format_time(_number(best["step_s"]))
    return (
        f"{answer['scenario']['cluster']}: with {best['gradient_sync']} a step takes {step}, "
        f"{share:.0%} of it gradient sync; {best['world_size']} ranks do {_number(best['scaling_efficiency']):.0%} of "
        f"{best['world_size']} times one rank's work.{_worst_error(entries, 'step_s')}"
    )


def _why(answer: Answer, scenario: Scenario) -> list[str]:
    """Why the gain differs between the cluster and each what-if, from what the busiest rank sends."""
    jobs = {job.sync_name: job.gradient_sync for job in predictable(scenario.trainings)}
    if len(jobs) < 2 or not {"naive", "ring"} <= set(jobs):
        return []
    here = _gain(answer["training"])
    sentences = []
    for other, entry in zip(scenario.what_ifs, answer.get("what_if", []), strict=False):
        there = _gain(entry["training"])
        if here is None or there is None:
            continue
        sentences.append(
            f"Why the ring gains {_times(here)} here and {_times(there)} on {other.title}: "
            f"{_sent(jobs, scenario.cluster, 'here')}, and both directions share one memory; "
            f"{_sent(jobs, other.cluster, 'there')}, and every rank has a link of its own."
        )
    return sentences


def _gain(entries: list[Any]) -> float | None:
    by_name = {entry["gradient_sync"]: _number(entry["sync_s"]) for entry in entries}
    if inf in by_name.values():
        return None
    return by_name["naive"] / by_name["ring"] if {"naive", "ring"} <= set(by_name) and by_name["ring"] > 0 else None


def _times(gain: float) -> str:
    return "nothing" if gain < 1.05 else f"{gain:.1f} times"


def _sent(jobs: dict[str, Any], cluster: Cluster, where: str) -> str:
    shares = {}
    for name in ("naive", "ring"):
        schedule = build_schedule(jobs[name], cluster.world_size)
        shares[name] = int(schedule.elements_sent(schedule.chunks).max(initial=0)) / schedule.chunks
    return (
        f"with {cluster.world_size} ranks {where} the busiest one sends {shares['naive']:.3g} buffers "
        f"(naive) or {shares['ring']:.3g} (ring)"
    )
