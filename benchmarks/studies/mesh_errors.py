"""Measure the errors of predictions for published runs of language models, for docs/reports/layouts.md.

    python -m benchmarks.studies.mesh_errors [-o benchmarks/results/meshes.json]

Five ways: with the shipped parameters; with each source left out of the fit; and with the source left out, then adapted
to its three or eight most informative rows, or to three evenly spread rows. Jobs that a seeded lot held out before the
structure of the model was chosen (``step_fit.draw_lot``) are predicted by a fit to all other jobs. Takes minutes.
"""

import argparse
import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.meshes import mark_slow, mesh_accuracy
from benchmarks.accuracy.steps import Fitted, RunSteps, fit, fitted_series
from benchmarks.studies.step_fit import LOT_SOURCES, draw_lot
from collectives.output_files import write_text
from collectives.records.environment import describe_environment
from planner.runs import columns_of_runs, read_table, why_untimed

RESULT = Path(__file__).resolve().parent.parent / "results" / "meshes.json"
WAYS: dict[str, dict[str, Any]] = {
    "shipped": {},
    "left_out": {"leave_one_out": True},
    "adapted_3": {"leave_one_out": True, "calibrate": 3},
    "adapted_3_spread": {"leave_one_out": True, "calibrate": 3, "are_chosen": False},
    "adapted_8": {"leave_one_out": True, "calibrate": 8},
}


def judge_lot() -> dict[str, dict[str, float]]:
    """Return the errors of fitted and of held-out jobs, by source."""
    runs = [run for run in read_table()[0] if why_untimed(run) is None]
    measured, sources = np.array([run["step_s"] for run in runs]), np.array([run["source"] for run in runs])
    steps, slow, aside = RunSteps(columns_of_runs(runs), measured, sources), mark_slow(runs), draw_lot(runs)
    used = ~slow & ~aside
    p = fit([Fitted.of(steps.take(used)), fitted_series()])
    scores = {}
    for name in LOT_SOURCES:
        for lot, chosen in (("fitted", used), ("held out", ~slow & aside)):
            mine = chosen & (sources == name)
            errors = np.abs(np.expm1(steps.take(mine).logs(p)))
            scores[f"{name}, {lot}"] = {
                "n": int(mine.sum()), "median": float(np.median(errors)), "p90": float(np.quantile(errors, 0.9)),
            }  # fmt: skip
    return scores


def main() -> None:
    """Measure all ways, and write the results after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULT, metavar="FILE")
    options = parser.parse_args()
    results: dict[str, Any] = {"schema_version": 1, "kind": "benchmark", "date": date.today().isoformat()}
    results |= {"environment": describe_environment(), "lot": judge_lot()}
    for name, way in WAYS.items():
        results[name] = mesh_accuracy(**way).to_dict()
        write_text(options.output, json.dumps(results, indent=1) + "\n")
        print(f"{name}: mean of the sources' medians {results[name]['mean_of_medians']:.1%}", flush=True)


if __name__ == "__main__":
    main()
