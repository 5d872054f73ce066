"""Predict GPU types from profiles of one measured GPU, next to their published rates.

    ringlab profile resnet50 --device cuda --batch-size 128 --precision fp16 -o resnet50.json
    ringlab profile resnet34 --device cuda --batch-size 128 --precision fp16 -o resnet34.json
    python benchmarks/other_gpus.py resnet50.json resnet34.json [-o FILE]

Each type is predicted from the profile's rate and from published rates of all other types, without its own. If a
model has no published rates on one GPU, it only gets predictions.
"""

import argparse
import json
from collections.abc import Sequence
from math import exp
from pathlib import Path
from statistics import NormalDist, median
from typing import NamedTuple

from collectives.output_files import write_text
from collectives.records.model_profile import ModelProfile, read_model_profile
from planner.gpus import find_series_gpu
from planner.jobs import PROFILES, Job, find_model, is_half
from planner.one_gpu import YOURS, Alone, guess_rates, published
from planner.rates import measured_rate, series_gpu


class Row(NamedTuple):
    """A GPU type: predicted samples/s with the 80 % interval, and the median of the published rates."""

    model: str
    measured_on: str
    gpu: str
    predicted: float
    low: float
    high: float
    published: float | None
    error: float | None


def compare(profile: ModelProfile, where: str) -> list[Row]:
    """Return a row for each GPU type with published rates.

    Raise InputError if the profile has no times of a GPU.
    """
    measured, rate = measured_rate(profile, where)
    batch, precision = profile.measured[-1].batch_size, profile.measured[-1].precision
    known = {series_gpu(measured): rate}
    names = [name for name, shipped in PROFILES.items() if shipped == profile.model]
    model = find_model(names[0]) if names else profile
    job = Job(model, float(batch), precision=precision, framework="PyTorch")
    yours = [Alone(job, find_series_gpu(name), YOURS, each) for name, each in known.items()]
    rates: dict[str, list[float]] = {}
    for row in published():
        alike = row.job.model.model == job.model.model and is_half(row.job.precision) == is_half(precision)
        rates.setdefault(row.gpu.name, []).extend([row.rate] if alike else [])
    rows = list[Row]()
    for gpu in sorted(rates.keys() - known.keys()):
        others = [row for row in published() if row.gpu.name != gpu] + yours
        (guess,) = guess_rates(others, [Alone(job, find_series_gpu(gpu), YOURS)])
        stated = median(rates[gpu]) if rates[gpu] else None
        error = None if stated is None else guess.rate / stated - 1
        width = exp(guess.spread * NormalDist().inv_cdf(0.9))
        rows.append(
            Row(profile.model, measured, gpu, guess.rate, guess.rate / width, guess.rate * width, stated, error)
        )
    return rows


def show(rows: Sequence[Row]) -> None:
    """Print the rows, and the median error of those with a published rate."""
    for row in rows:
        beside = "" if row.published is None else f"  published {row.published:7,.0f}  {row.error:+7.1%}"
        print(f"{row.model:10} {row.gpu:14} {row.predicted:7,.0f} ({row.low:,.0f} to {row.high:,.0f}){beside}")
    errors = [abs(row.error) for row in rows if row.error is not None]
    if errors:
        print(f"median error of {len(errors)} types: {median(errors):.1%}")


def main() -> None:
    """Read the options, predict, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="+", type=Path, metavar="PROFILE")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows = [row for file in options.profiles for row in compare(read_model_profile(file), str(file))]
    show(rows)
    if options.output is not None:
        answer = {"kind": "benchmark", "schema_version": 1, "rows": [row._asdict() for row in rows]}
        write_text(options.output, json.dumps(answer, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
