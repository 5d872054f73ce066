"""Fit the parameters of a step on a mesh to published runs, and judge them by sources that a fit has not seen.

    python -m benchmarks.studies.mesh_fit            fit to what no lot put aside; print errors, fitted and left out
    python -m benchmarks.studies.mesh_fit --open     the same, and what the lot put aside
    python -m benchmarks.studies.mesh_fit --write    fit to all runs, and write what is shipped

Runs of a slow mode (``mark_slow``) are never fitted.
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

from benchmarks.accuracy.meshes import fit, has_memory, mark_slow, measured_memory, soften, weigh
from collectives.output_files import write_text
from planner.mesh_search.columns import Array, Meshes, to_columns
from planner.mesh_search.memory import MEMORY_PRIORS, memory_bytes
from planner.mesh_search.parameters import FITTED, PRIORS, Z_80, find_slopes
from planner.mesh_search.runs import has_time, read_table
from planner.mesh_search.step import step_seconds

LOT_SEED, LOT_SOURCES = 20261126, ("ultrascale", "llm-foundry")


def draw_lot(runs: Sequence[dict[str, Any]]) -> Array:
    """Return which runs are put aside: a third of the jobs of two sources."""
    aside = set[str]()
    for source in LOT_SOURCES:
        jobs = sorted({run["group"] for run in runs if run["source"] == source})
        aside |= set(random.Random(f"{LOT_SEED} {source}").sample(jobs, round(len(jobs) / 3)))
    return np.array([run["group"] in aside for run in runs])


def summarize(name: str, errors: Array) -> str:
    """Return a line of errors."""
    median, ninety = np.median(np.abs(errors)), np.quantile(np.abs(errors), 0.9)
    return f"{name:18} {len(errors):5} median {median:6.1%} p90 {ninety:6.1%} signed {np.median(errors):+6.1%}"


def leave_out(meshes: Meshes, measured: Array, sources: Array) -> tuple[Array, Array]:
    """Return the logarithms of predicted by measured, each source by a fit that has not seen it, and what moves them.

    That is the sum of the squares of what a prior's deviation of each parameter adds to the logarithm.
    """
    logs, moved = np.zeros(len(measured)), np.zeros(len(measured))
    for name in dict.fromkeys(sources):
        mine = sources == name
        p = fit(meshes.take(~mine), measured[~mine], sources[~mine])
        slopes = find_slopes(meshes.take(mine), p)
        logs[mine], moved[mine] = slopes.logs - np.log(measured[mine]), (slopes.slopes**2).sum(axis=1)
        print("left out", summarize(name, np.expm1(logs[mine])), flush=True)
    return logs, moved


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
    held = dict[str, float]()
    for name in dict.fromkeys(sources):
        mine = sources == name
        shared = fit_shared(logs[~mine], moved[~mine], sources[~mine], noise)
        deviation = np.sqrt(shared**2 * moved[mine] + noise**2)
        held[str(name)] = float(np.mean(np.abs(logs[mine]) <= Z_80 * deviation))
    return held


def fit_memory(meshes: Meshes, measured: Array, sources: Sequence[str]) -> dict[str, float]:
    """Return the parameters that explain measured bytes best: residuals of 10 %, parameters held at 40 % of priors."""
    names = list(MEMORY_PRIORS)
    weights = weigh(sources)

    def at(x: Array) -> dict[str, float]:
        return {name: MEMORY_PRIORS[name] * float(np.exp(0.4 * move)) for name, move in zip(names, x, strict=True)}

    def residuals(x: Array) -> Array:
        return np.concatenate([weights * soften(np.log(memory_bytes(meshes, at(x)).total / measured) / 0.1), x])

    best: Any = least_squares(residuals, np.zeros(len(names)), diff_step=np.full(len(names), 1e-3))
    return at(best.x)


def fit_chance(runs: Sequence[dict[str, Any]], p: dict[str, float]) -> dict[str, float]:
    """Return what failures depend on: the filled share of memory, and whether there are more stages than layers."""
    known = [run for run in runs if run["source"] == "ultrascale"]
    meshes = to_columns(known)
    fill = np.log(memory_bytes(meshes, p).total / meshes.memory_bytes)
    failed = np.array([run["status"] != "ok" for run in known])
    has_empty = meshes.pp >= np.maximum(2, meshes.layers)

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


def write_shipped(runs: list[dict[str, Any]], meshes: Meshes, measured: Array, sources: Array) -> None:
    """Fit to all runs, and write parameters, intervals and memory."""
    parameters, left_out = fit(meshes, measured, sources), leave_out(meshes, measured, sources)
    noise = find_noise(np.log(step_seconds(meshes, parameters).total / measured), sources)
    everything = read_table()[0]
    remembered = [run for run in everything if has_memory(run)]
    memory = fit_memory(to_columns(remembered), measured_memory(remembered), [run["source"] for run in remembered])
    found = {
        "parameters": parameters,
        "deviations": {"shared": fit_shared(*left_out, sources, noise), "noise": noise},
        "memory": memory, "chance": fit_chance(everything, memory),
    }  # fmt: skip
    write_text(FITTED, json.dumps(found, indent=1) + "\n")


def main() -> None:
    """Fit, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--open", action="store_true", help="judge what the lot put aside, too")
    parser.add_argument("--write", action="store_true", help="fit to all runs, and write the parameters")
    parser.add_argument("--fitted-only", action="store_true", help="leave no source out")
    options = parser.parse_args()
    runs = [run for run in read_table()[0] if has_time(run)]
    measured = np.array([run["step_s"] for run in runs])
    sources = np.array([run["source"] for run in runs])
    meshes, slow, aside = to_columns(runs), mark_slow(runs), draw_lot(runs)
    if options.write:
        write_shipped(runs, meshes.take(~slow), measured[~slow], sources[~slow])
        return
    used = ~slow & ~aside
    mine, seconds, names = meshes.take(used), measured[used], sources[used]
    whole = fit(mine, seconds, names)
    for name, value in whole.items():
        shift = np.log(value / PRIORS[name].value) / PRIORS[name].spread
        print(f"{name:30} {value:9.4g} prior {PRIORS[name].value:9.4g} moved {shift:+.1f} sd")
    errors = step_seconds(mine, whole).total / seconds - 1
    for name in dict.fromkeys(names):
        print("fitted  ", summarize(name, errors[names == name]))
    print("fitted  ", summarize("all", errors), f"mean of medians {_mean(errors, names):.1%}", flush=True)
    if not options.fitted_only:
        logs, moved = leave_out(mine, seconds, names)
        print("left out", summarize("all", np.expm1(logs)), f"mean of medians {_mean(np.expm1(logs), names):.1%}")
        noise = find_noise(np.log1p(errors), names)
        print(f"shared {fit_shared(logs, moved, names, noise):.3f} noise {noise:.3f}")
        print("80 % made of others hold", judge_deviations(logs, moved, names, noise))
    if options.open:
        for name in LOT_SOURCES:
            chosen = ~slow & aside & (sources == name)
            print("put aside", summarize(name, step_seconds(meshes.take(chosen), whole).total / measured[chosen] - 1))


def _mean(errors: Array, sources: Array) -> float:
    return float(np.mean([np.median(np.abs(errors[sources == name])) for name in dict.fromkeys(sources)]))


if __name__ == "__main__":
    main()
