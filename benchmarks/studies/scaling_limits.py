"""How well scaling can be predicted at best: what frameworks differ by on one machine, and what is luck."""

from dataclasses import replace

import numpy as np

from benchmarks.accuracy.judging import Judged, Score, score
from benchmarks.accuracy.training import HARD
from benchmarks.studies.scaling_columns import FittedPoints
from planner.mesh.job import is_half
from planner.mesh.terms import Floats
from planner.scaling.one_gpu import framework_of

LIKE = 1.5  # batches of one job differ by this factor at most
FEWEST = 2  # other series that say what a job does on a machine


def other_frameworks(points: FittedPoints) -> Floats:
    """Return the rates by other frameworks' scaling of the same job on the same machine, a row for each predicted one.

    It is the median of at least two series of the same model, precision, GPUs and nodes, with about the same batch; not
    a number where there are fewer.
    """
    rows = np.flatnonzero(points.predicted)
    efficiency, batch = points.rate / points.linear, points.cases.batch
    jobs = [_job(points, int(row)) for row in rows]
    frameworks = [framework_of(points.series[points.of[row]].job.framework) for row in rows]
    found = np.full(len(rows), np.nan)
    for index, row in enumerate(rows):
        others = [
            efficiency[other]
            for job, framework, other in zip(jobs, frameworks, rows, strict=True)
            if job == jobs[index] and framework != frameworks[index]
            and 1 / LIKE <= batch[other] / batch[row] <= LIKE
        ]  # fmt: skip
        if len(others) >= FEWEST:
            found[index] = points.linear[row] * np.median(others)
    return found


def _job(points: FittedPoints, row: int) -> tuple[object, ...]:
    one = points.series[points.of[row]]
    first = one.points[0].gpus
    return one.system, one.model, is_half(one.job.precision), first, points.cases.gpus[row], points.cases.nodes[row]


def score_others(judged: Judged, points: FittedPoints) -> dict[str, Score]:
    """Return the scores of other frameworks on the same machine and of the model, of the hard points where both are."""
    rates = other_frameworks(points)
    rows = judged.keys["hard"] & ~np.isnan(rates)
    chosen = judged.take(rows)
    by_others = replace(chosen, predicted=rates[rows])
    return {"others": score(by_others), "model": score(chosen)}


def held_if_exact(judged: Judged, coverage: float) -> float:
    """Return the share of hard points that intervals would hold if each error were a draw of all, in units of its own.

    A point that was measured to be hard was unlucky too, so that this is less than what they hold of all points.
    """
    half = _half(judged, 0.8)
    drawn = np.log(judged.measured / judged.predicted) / half
    drawn = np.concatenate([drawn, -drawn])
    errors = drawn[None, :] * half[:, None]
    hard = judged.predicted[:, None] * np.exp(errors) < HARD * judged.keys["linear"][:, None]
    held = np.abs(errors) <= _half(judged, coverage)[:, None]
    return float(held[hard].mean())


def _half(judged: Judged, coverage: float) -> Floats:
    """Return half the width of each interval, in log rate."""
    half: Floats = np.log(judged.high[coverage] / judged.predicted)
    return half
