"""Measure the errors of NCCL predictions for docs/reports/nccl-systems.md, and the time to predict.

    python benchmarks/nccl_errors.py [--left-out FILE] [-o FILE]

Each system is also predicted by parameters fitted to the others, which takes minutes. Pass FILE, an earlier output, to
reuse that part.
"""

import argparse
import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks.accuracy.nccl_answer import AccuracyAnswer, accuracy, read_judged
from benchmarks.studies.nccl_systems_left_out import refit_without_each
from collectives.output_files import write_text
from collectives.records.environment import describe_environment
from simcomm.nccl.descriptions import OWN_DATA

RESULTS = Path(__file__).parent / "results" / "nccl_errors.json"
ROWS = 3  # of a table that a calibration knows
SHOWN = 6  # choices of these rows


def groups(answer: AccuracyAnswer) -> dict[str, Any]:
    """Return the scores by family and by collective."""
    return {
        key: {
            name: {size_class: asdict(score) for size_class, score in scores.items()}
            for name, scores in answer.by(key).items()
        }
        for key in ("family", "collective")
    }


def without_each() -> dict[str, Any]:
    """Return the errors with each system left out of a fit."""
    systems, tables, _ = read_judged(OWN_DATA)
    folds = refit_without_each(systems, tables, lambda *_: None)
    result = accuracy(calibrate=ROWS, parameters=folds.parameters).to_dict()
    return {**result, "gains": result["gains"][:SHOWN], "stalled": folds.stalled}


def measure(left_out: Path | None) -> dict[str, Any]:
    """Return the errors with the shipped parameters, with each system left out, and after a few known rows."""
    begin, cpu_begin = perf_counter(), process_time()
    shipped = accuracy()
    seconds, cpu_seconds = perf_counter() - begin, process_time() - cpu_begin
    gains = [gain.to_dict() for gain in accuracy(calibrate=ROWS).gains[:SHOWN]]
    others = json.loads(left_out.read_text())["left_out"] if left_out else without_each()
    return {
        "schema_version": 1,
        "kind": "benchmark",
        "date": datetime.now(UTC).date().isoformat(),
        "environment": describe_environment(),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,  # what it takes where nothing else runs
        "shipped": {**shipped.to_dict(), "groups": groups(shipped)},
        "left_out": others,
        "gains": gains,
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--left-out", type=Path, metavar="FILE", help="what this program wrote before")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    write_text(options.output, json.dumps(measure(options.left_out), indent=1) + "\n")


if __name__ == "__main__":
    main()
