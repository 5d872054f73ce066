"""The model of steps on meshes fitted to runs and held against them: errors of time and memory, and which is chosen."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from simcomm.mesh_search.columns import Array, Meshes, to_columns
from simcomm.mesh_search.memory import memory_bytes
from simcomm.mesh_search.parameters import (
    CLASSES,
    PRIORS,
    Belief,
    believe,
    chance_to_run,
    classify,
    find_slopes,
    read_shipped,
)
from simcomm.mesh_search.runs import has_memory, has_time, mark_slow, measured_memory
from simcomm.mesh_search.step import step_seconds

DEVIATION, HUBER, WEIGHT = 0.06, 2.0, 60.0  # of a residual's logarithm; where it counts linearly; rows of a source


def weigh(sources: Sequence[str] | Array) -> Array:
    """Return the weight of each row's residual, so that a source counts as ``WEIGHT`` rows at most."""
    names, counts = np.unique(np.asarray(sources, dtype=str), return_counts=True)
    of_source = dict(zip(names.tolist(), counts.tolist(), strict=True))
    return np.sqrt([min(1.0, WEIGHT / of_source[str(source)]) for source in sources])


def soften(r: Array) -> Array:
    """Return residuals whose squares grow linearly beyond ``HUBER`` (pseudo-Huber)."""
    result: Array = np.sign(r) * HUBER * np.sqrt(2 * (np.sqrt(1 + (r / HUBER) ** 2) - 1))
    return result


def fit(meshes: Meshes, measured: Array, sources: Sequence[str] | Array) -> dict[str, float]:
    """Return the parameters that explain ``measured`` seconds of steps best.

    Residuals are logarithms, pseudo-Huber beyond two deviations; a source weighs as 60 rows at most. Parameters are
    held by their priors.
    """
    names = list(PRIORS)
    medians = np.log([PRIORS[name].value for name in names])
    spreads = np.array([PRIORS[name].spread for name in names])
    weights = weigh(sources)

    def residuals(x: Array) -> Array:
        p = dict(zip(names, np.exp(medians + x * spreads), strict=True))
        return np.concatenate([weights * soften(np.log(step_seconds(meshes, p).total / measured) / DEVIATION), x])

    start, step = np.zeros(len(names)), np.full(len(names), 1e-3)
    best: Any = least_squares(residuals, start, diff_step=step, max_nfev=20, xtol=1e-4, ftol=1e-4)
    return dict(zip(names, np.exp(medians + best.x * spreads).tolist(), strict=True))


FILL = 0.85  # of the memory that a choice may take
SIZES = (8, 64, 256, 512)  # devices: the largest of a range each
ALTERNATIVES = 8  # of one job, for a choice to be judged
Tick = Callable[[int, int], object]


class StepErrors(NamedTuple):
    """Of several runs: the median and nine in ten of |predicted / measured - 1|, its sign, and what intervals hold."""

    n: int
    median: float
    p90: float
    signed: float
    coverage80: float


class ChoiceErrors(NamedTuple):
    """How a rule chooses among tried meshes: what it loses to the best, and in the best of three tries."""

    jobs: int
    regret_median: float
    regret_mean: float
    best_of_3_median: float
    best_of_3_mean: float
    rank: float


@dataclass(frozen=True, kw_only=True)
class MeshAccuracy:
    """What predictions of runs are worth; shares as fractions."""

    sources: dict[str, StepErrors]
    slow: dict[str, StepErrors]
    all: StepErrors | None
    mean_of_medians: float
    forms: dict[str, StepErrors]
    gpus: dict[str, StepErrors]
    sizes: dict[str, StepErrors]  # by the number of devices
    memory: dict[str, float]
    failed: dict[str, float]
    choice: dict[str, ChoiceErrors]
    refused: dict[str, int]
    points: list[tuple[str, float, float, bool]]  # source, predicted and measured seconds, slow


def judge(
    runs: Sequence[dict[str, Any]], refused: Mapping[str, int] = Counter(), *, leave_one_out: bool = False,
    adapt_to: int = 0, are_chosen: bool = True, tick: Tick = lambda done, whole: None,
) -> MeshAccuracy:  # fmt: skip
    """Predict runs, and compare.

    With ``leave_one_out`` each source is predicted by a fit that has not seen it, with ``adapt_to`` by one that has
    seen so many of its rows, which are not judged: those of which the times tell most, or rows spread over the source.
    """
    timed = [run for run in runs if has_time(run)]
    measured = np.array([run["step_s"] for run in timed], dtype=float)
    sources = np.array([run["source"] for run in timed], dtype=str)
    meshes, slow = to_columns(timed), mark_slow(timed)
    about = JudgedRuns(meshes, measured, sources, slow)
    predicted, factor, used, beliefs = about.predict(leave_one_out, adapt_to, are_chosen, tick)
    errors = predicted / measured - 1
    held = np.abs(np.log(predicted / measured)) <= np.log(factor)

    def summarize(chosen: Array) -> StepErrors | None:
        chosen = chosen & used
        if not chosen.any():
            return None
        found, size = errors[chosen], np.abs(errors[chosen])
        return StepErrors(
            int(chosen.sum()), float(np.median(size)), float(np.quantile(size, 0.9)), float(np.median(found)),
            float(np.mean(held[chosen])),
        )  # fmt: skip

    def by(labels: Array, among: Array) -> dict[str, StepErrors]:
        found = {str(label): summarize((labels == label) & among) for label in dict.fromkeys(labels)}
        return {label: one for label, one in found.items() if one is not None}

    of_sources = by(sources, ~slow)
    forms = np.array(CLASSES)[classify(meshes)]
    return MeshAccuracy(
        sources=of_sources,
        slow=by(sources, slow),
        all=summarize(~slow),
        mean_of_medians=float(np.mean([one.median for one in of_sources.values()])) if of_sources else 0.0,
        forms=by(forms, ~slow),
        gpus=by(np.array([run["gpu"] for run in timed], dtype=str), ~slow),
        sizes=by(np.array([_size(run["gpus"]) for run in timed], dtype=str), ~slow),
        memory=_judge_memory(runs),
        failed=_judge_failures(runs),
        choice=_judge_choices([*timed, *(run for run in runs if run["status"] != "ok")], slow, beliefs),
        refused=dict(refused),
        points=[
            (str(source), float(a), float(b), bool(is_slow))
            for source, a, b, is_slow, is_used in zip(sources, predicted, measured, slow, used, strict=True) if is_used
        ],
    )  # fmt: skip


def _size(gpus: int) -> str:
    """Return a range of numbers of devices."""
    least, most = next(((a, b) for a, b in zip((1, *SIZES), SIZES, strict=False) if gpus <= b), (SIZES[-1], 0))
    return f"{least + (least > 1)} to {most}" if most else f"more than {least}"


class Predicted(NamedTuple):
    """Seconds of runs, the factors that hold 80 %, which runs are judged, and what is believed of each source."""

    seconds: Array
    factors: Array
    used: Array
    beliefs: dict[str, Belief]


@dataclass(frozen=True)
class JudgedRuns:
    """Runs that are predicted: their times, sources, and which are slow."""

    meshes: Meshes
    measured: Array
    sources: Array
    slow: Array

    def predict(self, leave_one_out: bool, adapt_to: int, are_chosen: bool, tick: Tick) -> Predicted:
        """Return the predictions of all runs."""
        predicted, factor = np.zeros(len(self.measured)), np.zeros(len(self.measured))
        used = np.ones(len(self.measured), dtype=bool)
        names, beliefs = list(dict.fromkeys(self.sources)), dict[str, Belief]()
        for number, name in enumerate(names):
            tick(number, len(names))
            mine, belief = self.sources == name, believe()
            if leave_one_out:
                belief = believe(self._fit(~mine & ~self.slow))
            if adapt_to:
                seen = self._choose(np.flatnonzero(mine & ~self.slow), belief, adapt_to, are_chosen)
                belief = belief.adapted(self.meshes.take(seen), self.measured[seen])
                used[seen] = False
            slopes = find_slopes(self.meshes.take(mine), belief.parameters)
            predicted[mine], factor[mine] = np.exp(slopes.logs), belief.factors_of(slopes)
            beliefs[str(name)] = belief
        return Predicted(predicted, factor, used, beliefs)

    def _fit(self, chosen: Array) -> dict[str, float]:
        return fit(self.meshes.take(chosen), self.measured[chosen], self.sources[chosen])

    def _choose(self, rows: Array, belief: Belief, count: int, are_chosen: bool) -> Array:
        """Return rows to be adapted to: those that tell most of all, or rows from the first to the last."""
        if are_chosen:
            slopes = find_slopes(self.meshes.take(rows), belief.parameters)
            return np.asarray(rows[belief.choose_runs(slopes, count)])
        return np.asarray(rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)])


def _judge_memory(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    known = [run for run in runs if has_memory(run)]
    if not known:
        return {}
    found = memory_bytes(to_columns(known), read_shipped().memory).total
    errors = np.abs(found / measured_memory(known) - 1)
    return {"n": len(known), "median": float(np.median(errors)), "p90": float(np.quantile(errors, 0.9))}


def _judge_failures(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return how well predicted memory tells failed runs from finished ones, of sources that tell of both."""
    with_failures = {run["source"] for run in runs if run["status"] != "ok"}
    known = [run for run in runs if run["source"] in with_failures]
    failed = np.array([run["status"] != "ok" for run in known], dtype=bool)
    if not failed.any() or failed.all():
        return {}
    meshes = to_columns(known)
    risk = 1 - chance_to_run(meshes, memory_bytes(meshes, read_shipped().memory).total)
    order = np.argsort(np.argsort(risk))
    count = int(failed.sum())
    auc = (order[failed].sum() - count * (count - 1) / 2) / (count * (len(known) - count))
    return {"n": len(known), "auc": float(auc), "accuracy": float(np.mean((risk > 0.5) == failed))}


def _judge_choices(
    tried: Sequence[dict[str, Any]], slow: Array, beliefs: Mapping[str, Belief]
) -> dict[str, ChoiceErrors]:
    """Return what rules of choosing lose on jobs of which many meshes were tried; those that failed gain nothing.

    ``slow`` says of those that did not whether they were; ``beliefs`` by which parameters each source is predicted.
    """
    measured = np.array([run["step_s"] if has_time(run) else np.inf for run in tried])
    meshes, names = to_columns(tried), np.array([run["source"] for run in tried], dtype=str)
    guessed = np.zeros(len(tried))
    for name in dict.fromkeys(names):
        belief = beliefs.get(str(name)) or believe()
        guessed[names == name] = step_seconds(meshes.take(names == name), belief.parameters).total
    fits = memory_bytes(meshes, read_shipped().memory).total <= FILL * meshes.memory_bytes
    is_slow = np.concatenate([slow, np.zeros(len(tried) - len(slow), dtype=bool)])
    jobs = defaultdict[str, list[int]](list)
    for number, run in enumerate(tried):
        jobs[run["group"]].append(number)
    chosen = [np.array(rows) for rows in jobs.values() if np.isfinite(measured[rows]).sum() >= ALTERNATIVES]
    if not chosen:
        return {}
    apart = [rows[~is_slow[rows]] for rows in chosen]
    apart = [rows for rows in apart if np.isfinite(measured[rows]).sum() >= ALTERNATIVES]
    is_far = meshes.tp > meshes.node_gpus
    playbook = is_far * 1e9 + meshes.tp * meshes.pp * 1e4 - (meshes.zero == 1) * 1e3 - meshes.micro_batch
    smallest = meshes.tp * 1e6 + meshes.pp * 1e3 - meshes.micro_batch
    found = {
        "model": _judge_rule(guessed, chosen, measured, fits),
        "model, any memory": _judge_rule(guessed, chosen, measured, np.ones_like(fits)),
        "smallest tensor group": _judge_rule(smallest, chosen, measured, fits),
        "playbook": _judge_rule(playbook, chosen, measured, fits),
    }
    if apart and is_slow.any():
        found["model, slow mode left out"] = _judge_rule(guessed, apart, measured, fits)
        found["playbook, slow mode left out"] = _judge_rule(playbook, apart, measured, fits)
    return found


def _judge_rule(score: Array, jobs: Sequence[Array], measured: Array, fits: Array) -> ChoiceErrors:
    one, three, ranks = list[float](), list[float](), list[float]()
    for rows in jobs:
        allowed = rows[fits[rows]] if fits[rows].any() else rows
        order = allowed[np.argsort(score[allowed], kind="stable")]
        best = measured[rows].min()
        one.append(float(1 - best / measured[order[0]]))
        three.append(float(1 - best / measured[order[:3]].min()))
        done = rows[np.isfinite(measured[rows])]
        a, b = np.argsort(np.argsort(score[done])), np.argsort(np.argsort(measured[done]))
        ranks.append(float(np.corrcoef(a, b)[0, 1]))
    return ChoiceErrors(
        len(jobs), float(np.median(one)), float(np.mean(one)), float(np.median(three)), float(np.mean(three)),
        float(np.median(ranks)),
    )  # fmt: skip
