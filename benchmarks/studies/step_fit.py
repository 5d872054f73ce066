"""Fit the parameters of a step to published runs and series, and evaluate them on sources that a fit has not seen.

    python -m benchmarks.studies.step_fit            fit without the held-out jobs and systems, and print errors
    python -m benchmarks.studies.step_fit --open     also print the errors of the held-out jobs and systems
    python -m benchmarks.studies.step_fit --write    fit to all but put_aside.txt, and write the shipped parameters

Runs of a slow mode (``mark_slow``) are never fitted. Takes minutes.
"""

import argparse
import json
import random
import tomllib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares, minimize, minimize_scalar
from scipy.special import expit
from scipy.stats import norm

from benchmarks.accuracy.meshes import has_memory, mark_slow, measured_memory
from benchmarks.accuracy.series import Series, read_series
from benchmarks.accuracy.steps import (
    Fitted,
    RunSteps,
    SeriesSteps,
    fit,
    fit_of_series,
    put_aside,
    soften,
    steps_of_series,
    weigh,
)
from collectives.output_files import write_text
from planner.beliefs import FITTED, PRIORS, PRIORS_FILE, Z_80, find_slopes
from planner.columns import Columns
from planner.hosts import Array
from planner.memory import memory_parts
from planner.runs import columns_of_runs, read_table, why_untimed

LOT_SEED, LOT_SOURCES, LOT_SYSTEMS = 20261129, ("ultrascale", "llm-foundry"), 6
HARD = 0.9  # share of linear scaling below which a point is hard


def draw_lot(runs: Sequence[dict[str, Any]]) -> Array:
    """Return a mask of the runs that are held out: a third of the jobs of two sources."""
    aside = set[str]()
    for source in LOT_SOURCES:
        jobs = sorted({run["group"] for run in runs if run["source"] == source})
        aside |= set(random.Random(f"{LOT_SEED} {source}").sample(jobs, round(len(jobs) / 3)))
    return np.array([run["group"] in aside for run in runs])


def summarize(name: str, errors: Array) -> str:
    """Return a line with the count and statistics of relative errors."""
    median, ninety = np.median(np.abs(errors)), np.quantile(np.abs(errors), 0.9)
    return f"{name:18} {len(errors):5} median {median:6.1%} p90 {ninety:6.1%} signed {np.median(errors):+6.1%}"


def draw_systems(series: Sequence[Series]) -> set[str]:
    """Return the systems of series that are held out in addition to those of put_aside.txt."""
    others = sorted({curve.system for curve in series} - put_aside())
    return set(random.Random(f"{LOT_SEED} systems").sample(others, LOT_SYSTEMS))


class RunErrors(NamedTuple):
    """The errors of runs, as logarithms of predicted by measured seconds, and the sums of their squared slopes."""

    logs: Array
    moved: Array


class SeriesErrors(NamedTuple):
    """The errors of the predicted points of series, and the share of the step that several GPUs add."""

    logs: Array
    moved: Array
    lost: Array
    sources: Array
    hard: Array


def leave_out(runs: RunSteps, series: Sequence[Series]) -> tuple[RunErrors, SeriesErrors]:
    """Return the errors of runs and series, each source predicted by a fit to the others.

    Each fit leaves out one source of runs and several sources of series.
    """
    sources, steps = list(dict.fromkeys(runs.sources)), steps_of_series(series)
    published = sorted({curve.source for curve in series})
    run_errors, points = np.zeros((2, len(runs.measured))), np.zeros((3, int(steps.predicted.sum())))
    for number, name in enumerate(sources):
        mine = runs.sources == name
        left = np.array([curve.source in published[number :: len(sources)] for curve in series])
        seen = [curve for curve, is_left in zip(series, left, strict=True) if not is_left]
        p = fit([Fitted.of(runs.take(~mine)), fit_of_series(seen)])
        slopes, inner = find_slopes(runs.columns.take(mine), p), steps.take(left)
        run_errors[:, mine] = slopes.logs - np.log(runs.measured[mine]), (slopes.slopes**2).sum(axis=1)
        points[:, left[steps.of][steps.predicted]] = inner.logs(p), *inner.moves(p)
        print("left out", summarize(name, np.expm1(run_errors[0, mine])), flush=True)
    logs, moved, lost = points
    return RunErrors(*run_errors), SeriesErrors(logs, moved, lost, steps.sources[steps.predicted], find_hard(steps))


def find_hard(steps: SeriesSteps) -> Array:
    """Return a mask of the predicted points that were measured below ``HARD`` of linear scaling."""
    rates = steps.columns.micro_batch * steps.columns.gpus / steps.measured
    linear = rates[steps.first] * steps.columns.gpus / steps.columns.gpus[steps.first]
    return np.asarray(rates < HARD * linear)[steps.predicted]


def find_noise(logs: Array, sources: Array) -> float:
    """Return the standard deviation of the fitted logarithms. Each source has the same weight."""
    left = [np.median(np.abs(logs[sources == name])) for name in dict.fromkeys(sources)]
    return float(np.mean(left) / norm.ppf(0.75))


def fit_shared(logs: Array, moved: Array, sources: Array, noise: float) -> float:
    """Return by which factor of the priors' deviations the parameters of a new source deviate, by maximum likelihood.

    Each source has the same weight.
    """
    weights = 1 / np.array([np.sum(sources == source) for source in sources])

    def loss(x: float) -> float:
        deviation = np.sqrt(np.exp(2 * x) * moved + noise**2)
        return float(np.sum(weights * (0.5 * (logs / deviation) ** 2 + np.log(deviation))))

    return float(np.exp(minimize_scalar(loss, bounds=(-4, 2), method="bounded").x))


def judge_deviations(logs: Array, moved: Array, sources: Array, noise: float) -> dict[str, float]:
    """Return the share of each source's runs inside 80 % intervals that are fitted to the other sources."""
    coverages = dict[str, float]()
    for name in dict.fromkeys(sources):
        mine = sources == name
        shared = fit_shared(logs[~mine], moved[~mine], sources[~mine], noise)
        deviation = np.sqrt(shared**2 * moved[mine] + noise**2)
        coverages[str(name)] = float(np.mean(np.abs(logs[mine]) <= Z_80 * deviation))
    return coverages


def fit_losses(errors: SeriesErrors, shared: float) -> dict[str, float]:
    """Return the deviations of the part that several devices add: a floor, and a share of it, by maximum likelihood.

    The weight of each source is the square root of its number of points. Priors with medians of 1 % and 15 % hold both
    deviations.
    """
    _, places, counts = np.unique(errors.sources, return_inverse=True, return_counts=True)
    weights = 1 / np.sqrt(counts)[places]

    def loss(x: Array) -> float:
        deviation = np.sqrt(shared**2 * errors.moved + np.exp(2 * x[0]) + np.exp(2 * x[1]) * errors.lost**2)
        penalty = 0.5 * ((x[0] - np.log(0.01)) ** 2 + (x[1] - np.log(0.15)) ** 2)
        return float(np.sum(weights * (0.5 * (errors.logs / deviation) ** 2 + np.log(deviation))) + penalty)

    best = minimize(loss, np.log([0.01, 0.15]), method="Nelder-Mead").x
    return {"floor": float(np.exp(best[0])), "lost": float(np.exp(best[1]))}


def judge_losses(errors: SeriesErrors, shared: float) -> dict[str, float]:
    """Return the share of each source's points inside 80 % intervals that are fitted to the other sources."""
    coverages = dict[str, float]()
    for name in dict.fromkeys(errors.sources):
        mine = errors.sources == name
        widths = fit_losses(SeriesErrors(*(column[~mine] for column in errors)), shared)
        deviation = np.sqrt(shared**2 * errors.moved + widths["floor"] ** 2 + (widths["lost"] * errors.lost) ** 2)
        coverages[str(name)] = float(np.mean((np.abs(errors.logs) <= Z_80 * deviation)[mine]))
    return coverages


def fit_memory(columns: Columns, measured: Array, sources: Sequence[str]) -> dict[str, float]:
    """Return the parameters that explain the measured bytes best. Priors with deviations of 40 % hold them."""
    priors = tomllib.loads(PRIORS_FILE.read_text(encoding="utf-8"))["memory"]
    weights = weigh(np.asarray(sources))

    def at(x: Array) -> dict[str, float]:
        return {name: priors[name] * float(np.exp(0.4 * move)) for name, move in zip(priors, x, strict=True)}

    def residuals(x: Array) -> Array:
        logs = np.log(memory_parts(columns, at(x))["total"] / measured)
        return np.concatenate([weights * soften(logs, 0.2) / 0.1, x])

    best: Any = least_squares(residuals, np.zeros(len(priors)), diff_step=np.full(len(priors), 1e-3))
    return at(best.x)


def fit_chance(runs: Sequence[dict[str, Any]], p: dict[str, float]) -> dict[str, float]:
    """Return the parameters of the probability of failures, which depends on the filled memory and on empty stages."""
    known = [run for run in runs if run["source"] == "ultrascale"]
    columns = columns_of_runs(known)
    fill = np.log(memory_parts(columns, p)["total"] / columns.memory_bytes)
    failed = np.array([run["status"] != "ok" for run in known])
    has_empty = columns.pp >= np.maximum(2, columns.layers)

    def loss(x: Array) -> float:
        middle, spread, empty, others = x[0], np.exp(x[1]), expit(x[2]), expit(x[3])
        runs_through = others * norm.cdf((middle - fill) / spread) * np.where(has_empty, 1 - empty, 1.0)
        chance = np.clip(runs_through, 1e-3, 1 - 1e-3)
        return -float(np.sum(np.where(failed, np.log(1 - chance), np.log(chance))))

    best = minimize(loss, np.array([-0.1, -2.0, 0.0, 3.0]), method="Nelder-Mead", options={"maxiter": 4000}).x
    return {
        "fill": float(np.exp(best[0])), "spread": float(np.exp(best[1])), "empty_stages": float(expit(best[2])),
        "others": float(expit(best[3])),
    }  # fmt: skip


def write_shipped(runs: RunSteps) -> None:
    """Fit to all runs and to the series that are not held out, and write the shipped parameters."""
    hidden = put_aside()
    series = [curve for curve in read_series() if curve.system not in hidden]
    parameters, (errors, points) = fit([Fitted.of(runs), fit_of_series(series)]), leave_out(runs, series)
    noise = find_noise(runs.logs(parameters), runs.sources)
    everything = read_table()[0]
    remembered = [run for run in everything if has_memory(run)]
    known = columns_of_runs(remembered), measured_memory(remembered), [run["source"] for run in remembered]
    memory, shared = fit_memory(*known), fit_shared(*errors, runs.sources, noise)
    answer = {
        "parameters": parameters,
        "deviations": {"shared": shared, "noise": noise, **fit_losses(points, shared)},
        "memory": memory, "chance": fit_chance(everything, memory),
    }  # fmt: skip
    write_text(FITTED, json.dumps(answer, indent=1) + "\n")


def print_errors(title: str, runs: RunSteps, p: dict[str, float]) -> None:
    """Print the errors of runs by source."""
    errors = np.expm1(runs.logs(p))
    for name in dict.fromkeys(runs.sources):
        print(f"{title:9}", summarize(name, errors[runs.sources == name]))
    print(f"{title:9}", summarize("all", errors), f"mean of medians {_mean(errors, runs.sources):.2%}", flush=True)


def print_series(title: str, series: Sequence[Series], p: dict[str, float]) -> None:
    """Print the errors of the rates of series, for all points and for hard points."""
    steps = fit_of_series(series).steps
    assert isinstance(steps, SeriesSteps)
    errors = np.expm1(-steps.logs(p))
    print(f"{title:9}", summarize("series", errors))
    print(f"{title:9}", summarize("series, hard", errors[find_hard(steps)]), flush=True)


def main() -> None:
    """Fit the parameters, and print the errors or write the parameters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--open", action="store_true", help="also evaluate the held-out jobs and systems")
    parser.add_argument("--write", action="store_true", help="fit to all runs, and write the shipped parameters")
    parser.add_argument("--fitted-only", action="store_true", help="leave no source out")
    options = parser.parse_args()
    rows = [run for run in read_table()[0] if why_untimed(run) is None]
    slow, aside = mark_slow(rows), draw_lot(rows)
    sources, measured = np.array([run["source"] for run in rows]), np.array([run["step_s"] for run in rows])
    every = RunSteps(columns_of_runs(rows), measured, sources)
    if options.write:
        write_shipped(every.take(~slow))
        return
    runs, series = every.take(~slow & ~aside), read_series()
    hidden = put_aside() | draw_systems(series)
    seen = [curve for curve in series if curve.system not in hidden]
    p = fit([Fitted.of(runs), fit_of_series(seen)])
    for name, value in p.items():
        shift = np.log(value / PRIORS[name].value) / PRIORS[name].spread
        print(f"{name:30} {value:9.4g} prior {PRIORS[name].value:9.4g} moved {shift:+.1f} sd")
    print_errors("fitted", runs, p)
    print_series("fitted", seen, p)
    if not options.fitted_only:
        (logs, moved), points = leave_out(runs, seen)
        errors = np.expm1(logs)
        print("left out", summarize("all", errors), f"mean of medians {_mean(errors, runs.sources):.2%}")
        print("left out", summarize("series", np.expm1(-points.logs)))
        print("left out", summarize("series, hard", np.expm1(-points.logs[points.hard])))
        noise = find_noise(runs.logs(p), runs.sources)
        shared = fit_shared(logs, moved, runs.sources, noise)
        print(f"shared {shared:.3f} noise {noise:.3f}", fit_losses(points, shared))
        print(
            "runs inside 80 % intervals fitted to the other sources", judge_deviations(logs, moved, runs.sources, noise)
        )
        print("points inside 80 % intervals of other sources", judge_losses(points, shared))
    if options.open:
        print_errors("held out", every.take(~slow & aside), p)
        for title, systems in (("by lot", draw_systems(series)), ("always", put_aside())):
            print_series(title, [curve for curve in series if curve.system in systems], p)


def _mean(errors: Array, sources: Array) -> float:
    return float(np.mean([np.median(np.abs(errors[sources == name])) for name in dict.fromkeys(sources)]))


if __name__ == "__main__":
    main()
