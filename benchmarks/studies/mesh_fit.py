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
from scipy.optimize import least_squares, minimize
from scipy.stats import norm

from collectives.output_files import write_text
from simcomm.mesh_search.columns import Array, Meshes, to_columns
from simcomm.mesh_search.fit import fit, soften, weigh
from simcomm.mesh_search.memory import MEMORY_PRIORS, memory_bytes
from simcomm.mesh_search.parameters import FITTED, PRIORS
from simcomm.mesh_search.runs import has_memory, has_time, mark_slow, measured_memory, read_table
from simcomm.mesh_search.step import step_seconds
from simcomm.mesh_search.uncertainty import CLASSES, classify

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


def leave_out(meshes: Meshes, measured: Array, sources: Array) -> Array:
    """Return the logarithms of predicted by measured, each source by a fit that has not seen it."""
    logs = np.zeros(len(measured))
    for name in dict.fromkeys(sources):
        mine = sources == name
        p = fit(meshes.take(~mine), measured[~mine], sources[~mine])
        logs[mine] = np.log(step_seconds(meshes.take(mine), p).total / measured[mine])
        print("left out", summarize(name, np.expm1(logs[mine])), flush=True)
    return logs


def half_widths(meshes: Meshes, logs: Array, sources: Array) -> dict[str, float]:
    """Return by class the half width of the logarithm that holds 80 % of errors, sources alike in each class."""
    classes, widths = classify(meshes), dict[str, float]()
    for number, name in enumerate(CLASSES):
        chosen = classes == number
        counts = {source: np.sum(sources[chosen] == source) for source in set(sources[chosen])}
        weights = np.array([1 / counts[source] for source in sources[chosen]])
        order = np.argsort(np.abs(logs[chosen]))
        share = np.cumsum(weights[order]) / weights.sum()
        widths[name] = float(np.abs(logs[chosen])[order][np.searchsorted(share, 0.8)])
    return widths


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
    """Return the share of a GPU's memory above which half of the runs failed, and the logarithm's deviation."""
    known = [run for run in runs if run["source"] == "ultrascale"]
    meshes = to_columns(known)
    fill = np.log(memory_bytes(meshes, p).total / meshes.memory_bytes)
    failed = np.array([run["status"] != "ok" for run in known])

    def loss(x: Array) -> float:
        chance = np.clip(0.04 + 0.95 * norm.cdf((fill - x[0]) / np.exp(x[1])), 1e-9, 1 - 1e-9)
        return -float(np.sum(np.where(failed, np.log(chance), np.log(1 - chance))))

    best = minimize(loss, np.array([-0.1, -2.0]), method="Nelder-Mead").x
    return {"fill": float(np.exp(best[0])), "spread": float(np.exp(best[1]))}


def write_shipped(runs: list[dict[str, Any]], meshes: Meshes, measured: Array, sources: Array) -> None:
    """Fit to all runs, and write parameters, intervals and memory."""
    logs = leave_out(meshes, measured, sources)
    everything = read_table()[0]
    remembered = [run for run in everything if has_memory(run)]
    memory = fit_memory(to_columns(remembered), measured_memory(remembered), [run["source"] for run in remembered])
    found = {
        "parameters": fit(meshes, measured, sources), "half_widths": half_widths(meshes, logs, sources),
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
        logs = leave_out(mine, seconds, names)
        print("left out", summarize("all", np.expm1(logs)), f"mean of medians {_mean(np.expm1(logs), names):.1%}")
        print(half_widths(mine, logs, names))
    if options.open:
        for name in LOT_SOURCES:
            chosen = ~slow & aside & (sources == name)
            print("put aside", summarize(name, step_seconds(meshes.take(chosen), whole).total / measured[chosen] - 1))


def _mean(errors: Array, sources: Array) -> float:
    return float(np.mean([np.median(np.abs(errors[sources == name])) for name in dict.fromkeys(sources)]))


if __name__ == "__main__":
    main()
