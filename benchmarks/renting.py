"""How fast a plan of a thousand choices is, and how much the option that is predicted to be the cheapest really costs.

    python benchmarks/renting.py [--choices 1000] [-o FILE]

The plan is asked for in a process of its own, with prices of so many made-up regions; its time is from the call to the
answer, with all cores. The regret is over published series: ``known`` with the rate of one GPU from the series, from
data sheets without published rates of the option's type of GPU or model.
"""

import argparse
import csv
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import ringlab
from benchmarks.studies.renting_chances import Said, judge_chances, pairs_of
from benchmarks.studies.renting_regret import (
    BySheets,
    Option,
    Summary,
    draw_prices,
    gpu_prices,
    job_options,
    scaled_rate,
    summarise,
)
from collectives.output_files import write_text
from collectives.records.environment import cores, describe_environment
from simcomm.renting.rentals import read_rentals
from simcomm.scaling.descriptions import read_series

RESULTS = Path(__file__).parent / "results" / "renting.json"
PRICES = Path(ringlab.__file__).parent.parent / "simcomm" / "renting" / "prices.csv"
RATES = 'plan.known_rates={V100=1156.0, A100=2300.0, A100-80=2470.0, "H100 SXM"=2785.0, "RTX 4090"=1776.0}'
SCENARIO = """
[training]
model = "resnet50"
batch_size = 256
precision = "fp16"
[plan]
target_samples = 1.15e8
"""


def price_file(folder: Path, rows: int) -> Path:
    """Write the snapshot again and again, each time of other regions, until there are so many rows."""
    with PRICES.open(newline="", encoding="utf-8") as file:
        heading, *known = csv.reader(file)
    region = heading.index("Region")
    path = folder / "prices.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(heading)
        for number in range(rows):
            row = list(known[number % len(known)])
            row[region] += f" {number // len(known)}"
            writer.writerow(row)
    return path


def cpu_seconds() -> float:
    """Return the seconds of cores that this process and those it ended have taken."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


def time_plan(choices: int) -> dict[str, Any]:
    """Return how long a plan of at least so many choices takes."""
    with TemporaryDirectory() as folder:
        scenario = Path(folder, "rent.toml")
        scenario.write_text(SCENARIO)
        rows = choices
        ringlab.plan(str(scenario), RATES)  # all code is loaded
        while True:
            prices = price_file(Path(folder), rows)
            begun, before = perf_counter(), cpu_seconds()
            answer = ringlab.plan(str(scenario), RATES, prices=prices)
            seconds, taken = perf_counter() - begun, cpu_seconds() - before
            if len(answer.choices) >= choices:
                break
            rows = rows * choices // len(answer.choices) + 1
    return {"choices": len(answer.choices), "seconds": seconds, "cpu_seconds": taken, "cores": cores()}


def regret() -> dict[str, Any]:
    """Return the regret by the model of a step and by linear scaling, among all options and those on eight GPUs."""
    lowest = gpu_prices(read_rentals())
    prices = draw_prices(lowest)
    found: dict[str, Any] = {}
    for name, gpus in (("all", None), ("eight GPUs", 8)):
        jobs = job_options(read_series(), lowest, gpus)
        ways: dict[str, Callable[[Option], float]] = {
            "known": lambda option: scaled_rate(option, option.alone),
            "known, linear scaling": lambda option: option.alone * option.point.gpus,
            "from data sheets": BySheets(),
            "its peak FLOP/s": lambda option: option.point.gpus * option.series.gpu.tflops(option.series.job.precision),
        }
        found[name] = {way: _plain(summarise(jobs, prices, predict)) for way, predict in ways.items()}
    return found


def chances() -> list[dict[str, float]]:
    """Return how often what was said of two types of GPU came true, by the probability with which it was said."""
    lowest = gpu_prices(read_rentals())
    judged = judge_chances(pairs_of(job_options(read_series(), lowest, 1)), draw_prices(lowest))
    return [_plain(one) for one in judged]


def _plain(found: Summary | Said) -> dict[str, float]:
    return {name: round(value, 5) for name, value in found._asdict().items()}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--choices", type=int, default=1000)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    found = {"environment": describe_environment(), "plan": time_plan(options.choices), "regret": regret()}
    found["chances"] = chances()
    print(json.dumps({key: found[key] for key in ("plan", "regret", "chances")}, indent=2))
    write_text(options.output, json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "agg")
    main()
