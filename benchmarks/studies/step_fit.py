"""Fit the parameters of a step to published runs and series together, and evaluate them on data left out of the fit.

    python -m benchmarks.studies.step_fit            fit to all that is not held out; print errors, fitted and left out
    python -m benchmarks.studies.step_fit --open     also print the errors of held-out jobs
    python -m benchmarks.studies.step_fit --write    fit to all except put_aside.txt, and write the shipped parameters

Unusually slow runs (``mark_slow``) are never fitted. This takes minutes.
"""

import argparse
import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import least_squares, minimize, minimize_scalar
from scipy.special import expit
from scipy.stats import norm

from benchmarks.accuracy.meshes import has_memory, mark_slow, measured_memory
from benchmarks.accuracy.series import Series, read_series
from benchmarks.accuracy.steps import (
    HUBER,
    RUN_DEVIATION,
    Fitted,
    RunSteps,
    SeriesSteps,
    fit,
    fit_of_series,
    fitted_series,
    put_aside,
    weigh,
)
from collectives.output_files import write_text
from planner.beliefs import FITTED, Z_80, find_slopes
from planner.columns import Columns
from planner.hosts import Array
from planner.memory import MEMORY_PRIORS, memory_parts
from planner.parameters import PRIORS
from planner.runs import columns_of_runs, has_time, read_table

LOT_SEED, LOT_SOURCES, LOT_SYSTEMS = 20261129, ("ultrascale", "llm-foundry"), 6
HARD = 0.9  # of linear scaling


def draw_lot(runs: Sequence[dict[str, Any]]) -> Array:
    """Return which runs are held out: a third of the jobs of two sources."""
    aside = set[str]()
    for source in LOT_SOURCES:
        jobs = sorted({run["group"] for run in runs if run["source"] == source})
        aside |= set(random.Random(f"{LOT_SEED} {source}").sample(jobs, round(len(jobs) / 3)))
    return np.array([run["group"] in aside for run in runs])


def summarize(name: str, errors: Array) -> str:
    """Return a line of errors."""
    median, ninety = np.median(np.abs(errors)), np.quantile(np.abs(errors), 0.9)
    return f"{name:18} {len(errors):5} median {median:6.1%} p90 {ninety:6.1%} signed {np.median(errors):+6.1%}"


def draw_systems(series: Sequence[Series]) -> set[str]:
    """Return the systems of series that are held out, besides those of put_aside.txt."""
    others = sorted({curve.system for curve in series} - put_aside())
    return set(random.Random(f"{LOT_SEED} systems").sample(others, LOT_SYSTEMS))


def fitted_runs(runs: RunSteps) -> Fitted:
    """Return runs as a fit has them."""
    return Fitted.of(runs, runs.sources, RUN_DEVIATION)


def leave_out(runs: RunSteps, series: Fitted) -> tuple[Array, Array]:
    """Return the logarithms of predicted by measured, each source by a fit that has not seen it, and what moves them.

    That is the sum of the squares of what a prior's deviation of each parameter adds to the logarithm.
    """
    logs, moved = np.zeros(len(runs.measured)), np.zeros(len(runs.measured))
    for name in dict.fromkeys(runs.sources):
        mine = runs.sources == name
        p = fit([fitted_runs(runs.take(~mine)), series])
        slopes = find_slopes(runs.columns.take(mine), p)
        logs[mine], moved[mine] = slopes.logs - np.log(runs.measured[mine]), (slopes.slopes**2).sum(axis=1)
        print("left out", summarize(name, np.expm1(logs[mine])), flush=True)
    return logs, moved


def leave_series_out(runs: RunSteps, series: Sequence[Series], folds: int) -> None:
    """Print the errors of series, each source by a fit that has not seen it nor those of its fold."""
    names, fitted, logs, hard = (
        sorted({curve.source for curve in series}),
        fitted_runs(runs),
        list[Array](),
        list[Array](),
    )
    for fold in range(folds):
        left = {*names[fold::folds]}
        p = fit([fitted, fit_of_series([curve for curve in series if curve.source not in left])])
        steps = fit_of_series([curve for curve in series if curve.source in left]).steps
        logs.append(steps.logs(p))
        hard.append(find_hard(steps))
    errors = np.expm1(-np.concatenate(logs))
    print("left out", summarize("series", errors))
    print("left out", summarize("series, hard", errors[np.concatenate(hard)]), flush=True)


def find_hard(steps: SeriesSteps) -> Array:
    """Return which predicted points were measured below ``HARD`` of linear scaling."""
    rates = steps.columns.micro_batch * steps.columns.gpus / steps.measured
    linear = rates[steps.first] * steps.columns.gpus / steps.columns.gpus[steps.first]
    return np.asarray(rates < HARD * linear)[steps.predicted]


def find_noise(logs: Array, sources: Array) -> float:
    """Return the deviation of what is left of each run's logarithm where its source was fitted too, sources alike."""
    left = [np.median(np.abs(logs[sources == name])) for name in dict.fromkeys(sources)]
    return float(np.mean(left) / norm.ppf(0.75))


def fit_shared(logs: Array, moved: Array, sources: Array, noise: float) -> float:
    """Return by how much a source that is not seen differs in each parameter: the likeliest, of normals.

    Sources count alike.
    """
    weights = 1 / np.array([np.sum(sources == source) for source in sources])

    def loss(x: float) -> float:
        deviation = np.sqrt(np.exp(2 * x) * moved + noise**2)
        return float(np.sum(weights * (0.5 * (logs / deviation) ** 2 + np.log(deviation))))

    return float(np.exp(minimize_scalar(loss, bounds=(-4, 2), method="bounded").x))


def judge_deviations(logs: Array, moved: Array, sources: Array, noise: float) -> dict[str, float]:
    """Return which share of each source's runs intervals of 80 % hold that are made from the others."""
    coverages = dict[str, float]()
    for name in dict.fromkeys(sources):
        mine = sources == name
        shared = fit_shared(logs[~mine], moved[~mine], sources[~mine], noise)
        deviation = np.sqrt(shared**2 * moved[mine] + noise**2)
        coverages[str(name)] = float(np.mean(np.abs(logs[mine]) <= Z_80 * deviation))
    return coverages


def fit_losses(steps: SeriesSteps, p: dict[str, float], shared: float) -> dict[str, float]:
    """Return the deviations of a loss by several devices: a floor, and a share of the loss; the likeliest, of normals.

    Each source counts as the root of its points. Both are held to their usual values (1 % and 15 %).
    """
    logs, (moved, lost) = steps.logs(p), steps.moves(p)
    counts = np.unique(steps.sources[steps.predicted], return_inverse=True, return_counts=True)
    weights = 1 / np.sqrt(counts[2])[counts[1]]

    def loss(x: Array) -> float:
        deviation = np.sqrt(shared**2 * moved + np.exp(2 * x[0]) + np.exp(2 * x[1]) * lost**2)
        penalty = 0.5 * ((x[0] - np.log(0.01)) ** 2 + (x[1] - np.log(0.15)) ** 2)
        return float(np.sum(weights * (0.5 * (logs / deviation) ** 2 + np.log(deviation))) + penalty)

    best = minimize(loss, np.log([0.01, 0.15]), method="Nelder-Mead").x
    return {"floor": float(np.exp(best[0])), "lost": float(np.exp(best[1]))}


def fit_memory(columns: Columns, measured: Array, sources: Sequence[str]) -> dict[str, float]:
    """Return the parameters that explain measured bytes best: residuals of 10 %, parameters held at 40 % of priors."""
    names = list(MEMORY_PRIORS)
    weights = weigh(np.asarray(sources))

    def at(x: Array) -> dict[str, float]:
        return {name: MEMORY_PRIORS[name] * float(np.exp(0.4 * move)) for name, move in zip(names, x, strict=True)}

    def residuals(x: Array) -> Array:
        errors = np.log(memory_parts(columns, at(x))["total"] / measured) / 0.1
        size = HUBER * np.sqrt(2 * (np.sqrt(1 + (errors / HUBER) ** 2) - 1))
        return np.concatenate([weights * np.sign(errors) * size, x])

    best: Any = least_squares(residuals, np.zeros(len(names)), diff_step=np.full(len(names), 1e-3))
    return at(best.x)


def fit_chance(runs: Sequence[dict[str, Any]], p: dict[str, float]) -> dict[str, float]:
    """Return what failures depend on: the filled share of memory, and whether there are more stages than layers."""
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
    """Fit to all runs and to the series that are not held out, and write parameters, intervals and memory."""
    series = fitted_series()
    parameters, left_out = fit([fitted_runs(runs), series]), leave_out(runs, series)
    noise = find_noise(runs.logs(parameters), runs.sources)
    everything = read_table()[0]
    remembered = [run for run in everything if has_memory(run)]
    known = columns_of_runs(remembered), measured_memory(remembered), [run["source"] for run in remembered]
    memory, shared = fit_memory(*known), fit_shared(*left_out, runs.sources, noise)
    answer = {
        "parameters": parameters,
        "deviations": {"shared": shared, "noise": noise, **fit_losses(series.steps, parameters, shared)},
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
    """Print the errors of the rates of series."""
    steps = fit_of_series(series).steps
    assert isinstance(steps, SeriesSteps)
    errors = np.expm1(-steps.logs(p))
    print(f"{title:9}", summarize("series", errors))
    print(f"{title:9}", summarize("series, hard", errors[find_hard(steps)]), flush=True)


def main() -> None:
    """Fit, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--open", action="store_true", help="judge what the lots held out, too")
    parser.add_argument("--write", action="store_true", help="fit to all runs, and write the parameters")
    parser.add_argument("--fitted-only", action="store_true", help="leave no source out")
    options = parser.parse_args()
    rows = [run for run in read_table()[0] if has_time(run)]
    slow, aside = mark_slow(rows), draw_lot(rows)
    sources, measured = np.array([run["source"] for run in rows]), np.array([run["step_s"] for run in rows])
    every = RunSteps(columns_of_runs(rows), measured, sources)
    if options.write:
        write_shipped(every.take(~slow))
        return
    runs, series = every.take(~slow & ~aside), read_series()
    hidden = put_aside() | draw_systems(series)
    seen = [curve for curve in series if curve.system not in hidden]
    p = fit([fitted_runs(runs), fit_of_series(seen)])
    for name, value in p.items():
        shift = np.log(value / PRIORS[name].value) / PRIORS[name].spread
        print(f"{name:30} {value:9.4g} prior {PRIORS[name].value:9.4g} moved {shift:+.1f} sd")
    print_errors("fitted", runs, p)
    print_series("fitted", seen, p)
    if not options.fitted_only:
        logs, moved = leave_out(runs, fit_of_series(seen))
        errors = np.expm1(logs)
        print("left out", summarize("all", errors), f"mean of medians {_mean(errors, runs.sources):.2%}")
        leave_series_out(runs, seen, len({*runs.sources}))
        noise = find_noise(runs.logs(p), runs.sources)
        print(f"shared {fit_shared(logs, moved, runs.sources, noise):.3f} noise {noise:.3f}")
        print("80 % made of others hold", judge_deviations(logs, moved, runs.sources, noise))
    if options.open:
        print_errors("held out", every.take(~slow & aside), p)
        for title, systems in (("by lot", draw_systems(series)), ("always", put_aside())):
            print_series(title, [curve for curve in series if curve.system in systems], p)


def _mean(errors: Array, sources: Array) -> float:
    return float(np.mean([np.median(np.abs(errors[sources == name])) for name in dict.fromkeys(sources)]))


if __name__ == "__main__":
    main()
