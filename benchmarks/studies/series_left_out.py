"""Predict all published series, each source by a fit to the others, for docs/reports/scaling.md.

    python -m benchmarks.studies.series_left_out

Every fit also uses the published runs of language models, and none uses a held-out system. Takes minutes.
"""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.judging import Judged, score
from benchmarks.accuracy.meshes import mark_slow
from benchmarks.accuracy.series import Series, read_series
from benchmarks.accuracy.steps import Fitted, RunSteps, fit, fit_of_series, put_aside, steps_of_series
from benchmarks.accuracy.training import (
    BASELINES,
    HARD,
    Points,
    accuracy_training,
    judged_points,
    measured,
    score_baselines,
    score_by,
    score_points,
)
from benchmarks.studies.one_gpu_left_out import judge_one_gpu
from collectives.output_files import write_text
from planner.runs import columns_of_runs, read_table, why_untimed

RESULTS = Path(__file__).parent.parent / "results" / "scaling.json"
FOLDS = 7  # groups of sources; each fit leaves one group out


def judge_left_out(series: list[Series]) -> Judged:
    """Return the points of series. Each source is predicted by parameters and baselines fitted to the others."""
    rows = [run for run in read_table()[0] if why_untimed(run) is None]
    fast = [run for run, slow in zip(rows, mark_slow(rows), strict=True) if not slow]
    seconds, names = np.array([run["step_s"] for run in fast]), np.array([run["source"] for run in fast])
    runs = Fitted.of(RunSteps(columns_of_runs(fast), seconds, names))
    points, sources, hidden = (
        Points(tuple(series), measured(series)),
        sorted({curve.source for curve in series}),
        put_aside(),
    )
    predicted, deviations = points.linear, np.zeros(len(points.rate))
    baselines = {name: np.ones(len(points.rate)) for name in BASELINES}
    for fold in range(FOLDS):
        left = np.array([curve.source in sources[fold::FOLDS] for curve in series])
        others = [curve for curve, out in zip(series, left, strict=True) if not out and curve.system not in hidden]
        inner = [curve for curve, out in zip(series, left, strict=True) if out]
        parameters, steps, inside = fit([runs, fit_of_series(others)]), steps_of_series(inner), left[points.of]
        is_predicted = inside & points.predicted
        predicted[is_predicted] = (points.rate[inside] * steps.measured / steps.seconds(parameters))[steps.predicted]
        deviations[is_predicted] = steps.deviations(parameters)
        seen, mine = (Points(tuple(some), measured(some)) for some in (others, inner))
        for name, make in BASELINES.items():
            baselines[name][inside] = make(seen)(mine)
        print(f"fold {fold + 1} of {FOLDS}", flush=True)
    return judged_points(points, predicted, deviations, baselines)


def measure() -> dict[str, Any]:
    """Return the scores of all series, each source left out, and the scores of the held-out systems."""
    series = read_series()
    judged, one_gpu = judge_left_out(series), judge_one_gpu(series, refit=True)
    held_out = {
        "points": {name: asdict(score) for name, score in score_points(judged).items()},
        "baselines": score_baselines(judged),
        "by": {
            key: {name: asdict(score) for name, score in score_by(judged, key).items()}
            for key in ("family", "gpus", "source")
        },
        "one_gpu": {name: asdict(score) for name, score in one_gpu.items()},
        "series": len(series),
        "sources": len({curve.source for curve in series}),
        "expected_hard": asdict(score(judged.take(judged.predicted < HARD * judged.keys["linear"]))),
    }
    aside = accuracy_training(only_held_out=True).to_dict()
    return {"date": datetime.now(UTC).date().isoformat(), "held_out": held_out, "put_aside": aside}


if __name__ == "__main__":
    write_text(RESULTS, json.dumps(measure(), indent=1) + "\n")
