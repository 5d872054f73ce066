"""How long a model on two processes takes, and pairs of such, beside what its stages predict.

    python benchmarks/parallelism.py [--rounds N] [-o FILE]

Each round is ``ringlab.model_parallel``: each stage is timed by itself, then the steps. The rounds' medians count.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

import ringlab
from collectives.output_files import write_text
from collectives.records.environment import describe_environment
from realcomm.calibration.load import watch_load

RESULTS = Path(__file__).parent / "results" / "parallelism.json"
FIGURES = ("predicted_s", "measured_s", "speed_up", "predicted_speed_up")


def measure(model: str, batch_size: int, steps: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each way to spread the model: the medians over the rounds."""
    found = [ringlab.model_parallel(model, batch_size=batch_size, steps=steps).rows for _ in range(rounds)]
    rows = [
        {"name": same[0].name, "processes": same[0].processes}
        | {name: median(getattr(row, name) for row in same) for name in FIGURES}
        for same in zip(*found, strict=True)
    ]
    return [row | {"error": row["predicted_s"] / row["measured_s"] - 1} for row in rows]


def main() -> None:
    """Read the options, measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    asked = parser.parse_args()
    with watch_load() as watch:
        rows = measure(asked.model, asked.batch_size, asked.steps, asked.rounds)
    for row in rows:
        print(f"{row['name']:18}{1e3 * row['predicted_s']:9.1f} ms{1e3 * row['measured_s']:9.1f} ms{row['error']:8.1%}")
    load = watch.share_of_others()
    answer = {"kind": "benchmark", "schema_version": 1, "environment": describe_environment(), "model": asked.model,
              "batch_size": asked.batch_size, "steps": asked.steps, "rounds": asked.rounds,
              "others": load.others if load else None, "rows": rows}  # fmt: skip
    write_text(asked.output, json.dumps(answer, indent=1, allow_nan=False) + "\n")
    print(asked.output)


if __name__ == "__main__":
    main()
