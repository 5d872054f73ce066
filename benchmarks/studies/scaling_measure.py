"""Predict all published series again, each source left out, and keep the errors that docs/reports/scaling.md shows.

python -m benchmarks.studies.scaling_measure
"""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Any

from benchmarks.accuracy.judging import Judged, score
from benchmarks.accuracy.training import HARD, accuracy_training, score_baselines, score_by, score_points
from benchmarks.studies.one_gpu_left_out import judge_one_gpu
from benchmarks.studies.scaling_columns import make_points
from benchmarks.studies.scaling_left_out import judge_held_out
from benchmarks.studies.scaling_limits import held_if_exact, score_others
from collectives.output_files import write_text
from planner.scaling.descriptions import read_series

RESULTS = Path(__file__).parent.parent / "results" / "scaling.json"


def measure() -> dict[str, Any]:
    """Return the scores of the project's own series, each source left out, and of the systems that are held out."""
    begin, series = process_time(), read_series()
    judged, one_gpu = judge_held_out(series, lambda *_: None), judge_one_gpu(series, refit=True)
    seconds = process_time() - begin
    held_out = {
        "points": {name: asdict(one) for name, one in score_points(judged).items()},
        "baselines": score_baselines(judged),
        "by": {key: {name: asdict(one) for name, one in score_by(judged, key).items()} for key in ("family", "gpus")},
        "one_gpu": {name: asdict(one) for name, one in one_gpu.items()},
        "series": len(series),
        "sources": len({one.source for one in series}),
        "expected_hard": asdict(score(judged.take(judged.predicted < HARD * judged.keys["linear"]))),
        **limits(judged),
    }
    aside = accuracy_training(only_held_out=True).to_dict()
    date = datetime.now(UTC).date().isoformat()
    return {"date": date, "cpu_seconds": round(seconds, 1), "held_out": held_out, "put_aside": aside}


def limits(judged: Judged) -> dict[str, Any]:
    """Return how well hard points can be predicted at best."""
    others = score_others(judged, make_points(read_series()))
    return {
        "same_machine": {name: asdict(one) for name, one in others.items()},
        "hard_if_exact": {f"coverage{share}": held_if_exact(judged, share / 100) for share in (50, 80, 90)},
    }


if __name__ == "__main__":
    write_text(RESULTS, json.dumps(measure(), indent=1) + "\n")
