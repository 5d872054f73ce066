"""Compare predictions of published runs of language models with their measured time, memory and failures."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import viz
from benchmarks.accuracy.steps import Fitted, RunSteps, fit, fitted_series
from collectives.errors import InputError
from collectives.units import count
from planner.beliefs import Belief, believe, chance_to_run, find_slopes, read_shipped
from planner.columns import Columns
from planner.gpus import RUN_NAMES
from planner.hosts import Array
from planner.memory import FILL, memory_parts
from planner.runs import SHIPPED, columns_of_runs, read_table, why_untimed
from planner.step import step_seconds
from ringlab.shared.answer import Answer
from ringlab.shared.progress import Progress, computing
from ringlab.table import Part, Sentences, Table

CLASSES = ("data", "tensor", "pipeline", "experts")  # the class of a mesh is the last axis that it has
SLOW_S, SLOW_RATIO = 0.25, 1.3  # excess of a slow micro-batch over the fastest similar one
SIZES = (8, 64, 256, 512)  # upper ends of ranges of devices
ALTERNATIVES = 8  # least number of meshes of a job whose choice is evaluated
Tick = Callable[[int, int], object]
FITS = dict[bytes, dict[str, float]]()  # cached fits by the fitted seconds, as a fit takes a minute


class StepErrors(NamedTuple):
    """Statistics of the errors of several runs, and the coverage of their 80 % intervals."""

    n: int
    median: float
    p90: float
    signed: float
    coverage80: float


class ChoiceErrors(NamedTuple):
    """The loss of a rule that chooses meshes: of its first choice, and of the best of three choices."""

    jobs: int
    regret_median: float
    regret_mean: float
    best_of_3_median: float
    best_of_3_mean: float
    rank: float


@dataclass(frozen=True, kw_only=True)
class MeshAccuracy:
    """The accuracy of predicted runs. Shares are fractions."""

    sources: dict[str, StepErrors]
    slow: dict[str, StepErrors]
    all: StepErrors | None
    mean_of_medians: float
    strategies: dict[str, StepErrors]
    gpus: dict[str, StepErrors]
    sizes: dict[str, StepErrors]  # by range of devices
    memory: dict[str, float]
    failed: dict[str, float]
    choice: dict[str, ChoiceErrors]
    refused: dict[str, int]
    points: list[tuple[str, float, float, bool]]  # source, predicted and measured seconds, slow


def judge(
    runs: Sequence[dict[str, Any]], refused: Mapping[str, int] = Counter(), *, leave_one_out: bool = False,
    adapt_to: int = 0, are_chosen: bool = True, tick: Tick = lambda done, total: None,
) -> MeshAccuracy:  # fmt: skip
    """Predict runs and return their accuracy.

    With ``leave_one_out``, each source is predicted by a fit to all other sources. With ``adapt_to``, the prediction is
    adapted to so many of the source's runs: the most informative runs, or evenly spread runs. They are not evaluated.
    """
    timed = [run for run in runs if why_untimed(run) is None]
    measured = np.array([run["step_s"] for run in timed], dtype=float)
    sources = np.array([run["source"] for run in timed], dtype=str)
    columns, slow = columns_of_runs(timed), mark_slow(timed)
    about = JudgedRuns(columns, measured, sources, slow)
    predicted, factor, used, beliefs = about.predict(leave_one_out, adapt_to, are_chosen, tick)
    errors = predicted / measured - 1
    within = np.abs(np.log(predicted / measured)) <= np.log(factor)

    def summarize(chosen: Array) -> StepErrors | None:
        chosen = chosen & used
        if not chosen.any():
            return None
        signed, size = errors[chosen], np.abs(errors[chosen])
        return StepErrors(
            int(chosen.sum()), float(np.median(size)), float(np.quantile(size, 0.9)), float(np.median(signed)),
            float(np.mean(within[chosen])),
        )  # fmt: skip

    def by(labels: Array, among: Array) -> dict[str, StepErrors]:
        summaries = {str(label): summarize((labels == label) & among) for label in dict.fromkeys(labels)}
        return {label: summary for label, summary in summaries.items() if summary is not None}

    of_sources = by(sources, ~slow)
    strategies = np.array(CLASSES)[classify(columns)]
    return MeshAccuracy(
        sources=of_sources,
        slow=by(sources, slow),
        all=summarize(~slow),
        mean_of_medians=float(np.mean([summary.median for summary in of_sources.values()])) if of_sources else 0.0,
        strategies=by(strategies, ~slow),
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
    least, most = next(((a, b) for a, b in zip((1, *SIZES), SIZES, strict=False) if gpus <= b), (SIZES[-1], 0))
    return f"{least + (least > 1)} to {most}" if most else f"more than {least}"


class Predicted(NamedTuple):
    """Predicted seconds and factors of 80 % intervals, a mask of the evaluated runs, and the beliefs by source."""

    seconds: Array
    factors: Array
    used: Array
    beliefs: dict[str, Belief]


def has_memory(run: Mapping[str, Any]) -> bool:
    """Return whether a run states how much memory it used."""
    return run["memory_gb"] is not None


def measured_memory(runs: list[dict[str, Any]]) -> Array:
    """Return the bytes that runs used. Sources that state GB mean GB, and all others mean GiB."""
    return np.array([run["memory_gb"] * (1e9 if run["source"] == "ultrascale" else 2**30) for run in runs])


def mark_slow(runs: list[dict[str, Any]]) -> Array:
    """Return a mask of the runs that lose time in each micro-batch compared with other runs of their cluster.

    The mask depends on measured times only. A run is slow if a micro-batch takes longer per layer than in the fastest
    run of the same model, tensor group and micro-batch, by both ``SLOW_S`` and ``SLOW_RATIO``. Both limits are doubled
    without a pipeline, because the micro-batch's time then includes the synchronization at the end of a step.
    """
    layer_s, keys = [], []
    for run in runs:
        passes = run["grad_accum"] + run["pp"] - 1
        layer_s.append((run["step_s"] or float("nan")) / passes * run["pp"] / run["layers"])
        keys.append((run["source"], run["model"], run["tp"], run["micro_batch"], run["pp"] == 1))
    fastest: dict[Any, float] = defaultdict(lambda: float("inf"))
    for key, seconds in zip(keys, layer_s, strict=True):
        fastest[key] = min(fastest[key], seconds)
    slow = []
    for run, key, seconds in zip(runs, keys, layer_s, strict=True):
        excess = (seconds - fastest[key]) * run["layers"] / run["pp"]
        scale = 2.0 if run["pp"] == 1 else 1.0
        is_excess = excess > scale * SLOW_S and seconds > (1 + scale * (SLOW_RATIO - 1)) * fastest[key]
        slow.append(run["source"] == "ultrascale" and is_excess)
    return np.array(slow, dtype=bool)


def classify(c: Columns) -> Array:
    """Return the class of each run, as an index of ``CLASSES``."""
    is_far = c.tp > c.node_gpus
    return np.select([c.experts > 0, (c.pp > 1) | is_far | (c.cp > 1), c.tp > 1], [3, 2, 1], 0)


@dataclass(frozen=True)
class JudgedRuns:
    """Runs to predict, with their measured times, their sources, and a mask of slow runs."""

    columns: Columns
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
                belief = replace(belief, parameters=self._fit(~mine & ~self.slow))
            if adapt_to:
                seen = self._choose(np.flatnonzero(mine & ~self.slow), belief, adapt_to, are_chosen)
                belief = belief.adapted(self.columns.take(seen), self.measured[seen])
                used[seen] = False
            slopes = find_slopes(self.columns.take(mine), belief.parameters)
            predicted[mine], factor[mine] = np.exp(slopes.logs), belief.factors_of(slopes)
            beliefs[str(name)] = belief
        return Predicted(predicted, factor, used, beliefs)

    def _fit(self, chosen: Array) -> dict[str, float]:
        key = self.measured[chosen].tobytes()
        if key not in FITS:
            steps = RunSteps(self.columns.take(chosen), self.measured[chosen], self.sources[chosen])
            FITS[key] = fit([Fitted.of(steps), fitted_series()])
        return FITS[key]

    def _choose(self, rows: Array, belief: Belief, count: int, are_chosen: bool) -> Array:
        if are_chosen:
            slopes = find_slopes(self.columns.take(rows), belief.parameters)
            return np.asarray(rows[belief.choose_runs(slopes, count)])
        return np.asarray(rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)])


def _judge_memory(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    known = [run for run in runs if has_memory(run)]
    if not known:
        return {}
    predicted = memory_parts(columns_of_runs(known), read_shipped().memory)["total"]
    errors = np.abs(predicted / measured_memory(known) - 1)
    return {"n": len(known), "median": float(np.median(errors)), "p90": float(np.quantile(errors, 0.9))}


def _judge_failures(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    with_failures = {run["source"] for run in runs if run["status"] != "ok"}
    known = [run for run in runs if run["source"] in with_failures]
    failed = np.array([run["status"] != "ok" for run in known], dtype=bool)
    if not failed.any() or failed.all():
        return {}
    columns = columns_of_runs(known)
    risk = 1 - chance_to_run(columns, memory_parts(columns, read_shipped().memory)["total"])
    order = np.argsort(np.argsort(risk))
    count = int(failed.sum())
    auc = (order[failed].sum() - count * (count - 1) / 2) / (count * (len(known) - count))
    return {"n": len(known), "auc": float(auc), "accuracy": float(np.mean((risk > 0.5) == failed))}


def _judge_choices(
    tried: Sequence[dict[str, Any]], slow: Array, beliefs: Mapping[str, Belief]
) -> dict[str, ChoiceErrors]:
    """Runs that failed have a rate of 0. ``slow`` is a mask of the runs that did not fail."""
    measured = np.array([run["step_s"] if why_untimed(run) is None else np.inf for run in tried])
    columns, names = columns_of_runs(tried), np.array([run["source"] for run in tried], dtype=str)
    guessed = np.zeros(len(tried))
    for name in dict.fromkeys(names):
        belief = beliefs.get(str(name)) or believe()
        guessed[names == name] = step_seconds(columns.take(names == name), belief.parameters)
    fits = memory_parts(columns, read_shipped().memory)["total"] <= FILL * columns.memory_bytes
    is_slow = np.concatenate([slow, np.zeros(len(tried) - len(slow), dtype=bool)])
    jobs = defaultdict[str, list[int]](list)
    for number, run in enumerate(tried):
        jobs[run["group"]].append(number)
    chosen = [np.array(rows) for rows in jobs.values() if np.isfinite(measured[rows]).sum() >= ALTERNATIVES]
    if not chosen:
        return {}
    apart = [rows[~is_slow[rows]] for rows in chosen]
    apart = [rows for rows in apart if np.isfinite(measured[rows]).sum() >= ALTERNATIVES]
    is_far = columns.tp > columns.node_gpus
    playbook = is_far * 1e9 + columns.tp * columns.pp * 1e4 - (columns.zero == 1) * 1e3 - columns.micro_batch
    smallest = columns.tp * 1e6 + columns.pp * 1e3 - columns.micro_batch
    rules = {
        "model": _judge_rule(guessed, chosen, measured, fits),
        "model, any memory": _judge_rule(guessed, chosen, measured, np.ones_like(fits)),
        "smallest tensor group": _judge_rule(smallest, chosen, measured, fits),
        "playbook": _judge_rule(playbook, chosen, measured, fits),
    }
    if apart and is_slow.any():
        rules["model, slow mode left out"] = _judge_rule(guessed, apart, measured, fits)
        rules["playbook, slow mode left out"] = _judge_rule(playbook, apart, measured, fits)
    return rules


def _judge_rule(score: Array, jobs: Sequence[Array], measured: Array, fits: Array) -> ChoiceErrors:
    top_regrets, three, ranks = list[float](), list[float](), list[float]()
    for rows in jobs:
        allowed = rows[fits[rows]] if fits[rows].any() else rows
        order = allowed[np.argsort(score[allowed], kind="stable")]
        best = measured[rows].min()
        top_regrets.append(float(1 - best / measured[order[0]]))
        three.append(float(1 - best / measured[order[:3]].min()))
        done = rows[np.isfinite(measured[rows])]
        a, b = np.argsort(np.argsort(score[done])), np.argsort(np.argsort(measured[done]))
        ranks.append(float(np.corrcoef(a, b)[0, 1]))
    return ChoiceErrors(
        len(jobs), float(np.median(top_regrets)), float(np.mean(top_regrets)), float(np.median(three)),
        float(np.mean(three)), float(np.median(ranks)),
    )  # fmt: skip


MOST_ADAPTED = 100


@dataclass(frozen=True, kw_only=True)
class MeshAccuracyAnswer(Answer):
    """The accuracy of predicted runs, with the options of the evaluation."""

    kind = "accuracy_meshes"
    leave_one_out: bool
    adapted_to: int
    found: MeshAccuracy
    unseen: tuple[str, ...] = ()  # sources, frameworks and GPUs without runs in the shipped fit

    def to_dict(self) -> dict[str, Any]:
        """Return errors by source, strategy and GPU, and of memory, failures and choices, as JSON."""
        answer = super().to_dict()
        answer |= {"calibrate": answer.pop("adapted_to"), **answer.pop("found")}
        del answer["points"]
        return answer

    def show(self) -> Iterator[Part]:
        """Yield tables of the errors and of choices, and sentences about memory."""
        accuracy = self.found
        rows = [*_rows(accuracy.sources), *_rows({"all": accuracy.all} if accuracy.all else {})]
        rows += _rows({f"{name}, slow mode": summary for name, summary in accuracy.slow.items()})
        rows += _rows(accuracy.strategies) + _rows(accuracy.gpus) + _rows(accuracy.sizes)
        how = "each source left out of the fit" if self.leave_one_out else "shipped parameters"
        how += f", then adapted to {self.adapted_to} rows of each source" if self.adapted_to else ""
        sections = [
            ("sources", len(accuracy.sources) + bool(accuracy.all)), ("slow mode", len(accuracy.slow)),
            ("strategies", len(accuracy.strategies)), ("GPUs", len(accuracy.gpus)), ("devices", len(accuracy.sizes)),
        ]  # fmt: skip
        headings = ["", "of", "runs", "median\n(%)", "p90\n(%)", "signed\n(%)", "within\n80 % (%)"]
        if rows:
            yield Table(
                f"Errors of published training runs, {how}",
                headings,
                rows,
                words=2,
                sections=[*filter(itemgetter(1), sections)],
            )
        if accuracy.choice:
            headings = [
                "chosen by",
                "jobs",
                "regret\nmedian (%)",
                "mean\n(%)",
                "best of 3\nmedian (%)",
                "mean\n(%)",
                "rank",
            ]
            yield Table("The chosen mesh compared with the best measured mesh", headings, _choices(accuracy.choice))
        yield Sentences([*self._sentences()])

    def _sentences(self) -> Iterator[str]:
        accuracy = self.found
        if self.unseen:
            yield f"The shipped fit has no run of {', '.join(self.unseen)}, so priors predict these runs."
        if accuracy.all or accuracy.slow:
            yield f"The mean of the sources' median errors is {accuracy.mean_of_medians:.1%}."
        else:
            yield "No run in the table has a time."
        if accuracy.memory:
            median, runs = accuracy.memory["median"], accuracy.memory["n"]
            yield f"The median error of the predicted memory is {median:.1%} over {runs:.0f} runs."
        if accuracy.failed:
            figures = f"{accuracy.failed['auc']:.3f}, accuracy {accuracy.failed['accuracy']:.1%}"
            yield f"As a predictor of which runs fail, the predicted memory has an AUC of {figures}."
        if accuracy.refused:
            reasons = "; ".join(f"{reason} ({number})" for reason, number in accuracy.refused.items())
            yield f"{count(sum(accuracy.refused.values()), 'row')} cannot be used: {reasons}."

    def draw(self, path: Path) -> None:
        """Draw predicted against measured seconds of steps."""
        points = self.found.points
        dots = [
            viz.Dots(
                "slow mode" if slow else "steps", source,
                [row[2] for row in points if (row[0], row[3]) == (source, slow)],
                [row[1] for row in points if (row[0], row[3]) == (source, slow)],
            )
            for source, slow in dict.fromkeys((row[0], row[3]) for row in points)
        ]  # fmt: skip
        viz.write_figure(viz.accuracy_figure("Training runs on meshes", "step time (s)", dots), path)


def mesh_accuracy(
    data: Path | None = None,
    *,
    leave_one_out: bool = False,
    calibrate: int = 0,
    are_chosen: bool = True,
    progress: Progress | None = None,
) -> MeshAccuracyAnswer:
    """Return the accuracy of predicted runs: of the shipped runs, or of ``meshes.csv`` in the directory ``data``.

    With ``calibrate``, each source is adapted to so many of its rows: the most informative ones, or evenly spread ones.
    Raises InputError for an invalid table.
    """
    if not 0 <= calibrate <= MOST_ADAPTED:
        raise InputError(f"calibrate must be between 0 and {MOST_ADAPTED}, not {calibrate}")
    path = SHIPPED if data is None else data / "meshes.csv" if data.is_dir() else data
    runs, refused = read_table(path)
    with computing(progress, "predicting runs on meshes"):
        accuracy = judge(runs, refused, leave_one_out=leave_one_out, adapt_to=calibrate, are_chosen=are_chosen)
    unseen = () if data is None else tuple(_unseen(runs))
    return MeshAccuracyAnswer(leave_one_out=leave_one_out, adapted_to=calibrate, found=accuracy, unseen=unseen)


def _unseen(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    fitted = read_table()[0]
    for name in ("source", "framework", "gpu"):
        seen, mine = (dict.fromkeys(RUN_NAMES.get(run[name], run[name]) for run in rows) for rows in (fitted, runs))
        yield from (f"{name} {value}" for value in mine if value not in seen)


def _rows(errors: Mapping[str, StepErrors]) -> list[list[str]]:
    return [
        [name, str(row.n), f"{row.median:.1%}"[:-1], f"{row.p90:.1%}"[:-1], f"{row.signed:+.1%}"[:-1],
         f"{row.coverage80:.0%}"[:-1]]
        for name, row in errors.items()
    ]  # fmt: skip


def _choices(choices: Mapping[str, ChoiceErrors]) -> list[list[str]]:
    return [
        [name, str(row.jobs), *(f"{share:.1%}"[:-1] for share in row[1:5]), f"{row.rank:.2f}"]
        for name, row in choices.items()
    ]  # fmt: skip
