"""Compare predicted with measured step times of torch's own parallelism strategies on gloo ranks.

    python benchmarks/strategies.py [--ranks 2,4] [--rounds 3] [-o FILE]

``ringlab.compare_strategy`` trains a model with each strategy. All ranks time the parts of a step in alternation with
the training, and ``ringlab/commands/measuring/strategy_job.py`` combines them. No parameter is fitted to whole steps.
*Held out* rows did not influence the method, so they show how reliable the interval is.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from collectives.output_files import write_text
from collectives.records.environment import describe_measurement
from realcomm.calibration.load import watch_load
from ringlab.commands.measuring.strategies import StrategyAnswer, compare_strategy

RESULTS = Path(__file__).parent / "results" / "strategies.json"
LLAMA = "llama:layers=6,width=256,heads=4,context=64,vocabulary=512,hidden=512"
WIDE = "llama:layers=3,width=384,heads=6,context=96,vocabulary=1024,hidden=768"
RESNET = "resnet18"
SCENARIO = """
[cluster]
preset = "this-machine"
world_size = {ranks}
[training]
model = "{model}"
{shape}
global_batch_size = {samples}
optimizer = "adamw"
samples_per_epoch = {epoch}
[training.parallelism]
{strategy}
"""
STEPS = 14


class Case(NamedTuple):
    """A strategy on a number of ranks, as scenario keys."""

    ranks: int
    strategy: str
    model: str = LLAMA
    samples: int = 8

    def run(self, folder: Path) -> StrategyAnswer:
        """Return the step predicted and measured."""
        path = folder / "strategy.toml"
        keys = self.strategy.replace(", ", "\n")
        shape = "image_shape = [3, 64, 64]" if self.model == RESNET else ""
        path.write_text(SCENARIO.format(**self._asdict() | {"strategy": keys}, shape=shape, epoch=STEPS * self.samples))
        return compare_strategy(path)


SEEN = [Case(2, strategy) for strategy in (
    'strategy = "ddp", bucket_mb = 4.0', 'strategy = "fsdp"', "tensor = 2",
    'pipeline = 2, schedule = "gpipe", microbatches = 4',
)] + [Case(4, "pipeline = 4, microbatches = 4")]  # fmt: skip
ASIDE = [Case(2, strategy) for strategy in (
    'strategy = "zero_redundancy"', 'strategy = "zero2"', "tensor = 2, sequence = true",
    'pipeline = 2, schedule = "naive"',
    "pipeline = 2, microbatches = 4",
)] + [Case(2, strategy, WIDE, 12) for strategy in (
    'strategy = "ddp"', 'strategy = "fsdp"', "tensor = 2", "pipeline = 2, microbatches = 6",
)] + [Case(2, strategy, RESNET, 16) for strategy in (
    'strategy = "ddp"', 'strategy = "fsdp"', 'strategy = "zero2"', "pipeline = 2, microbatches = 2",
)] + [Case(4, strategy) for strategy in (
    'strategy = "ddp", bucket_mb = 4.0', 'strategy = "fsdp"', 'strategy = "hsdp", shard = 2', "tensor = 4",
    'strategy = "fsdp", tensor = 2', "pipeline = 2, microbatches = 2",
    'pipeline = 4, schedule = "gpipe", microbatches = 8',
)]  # fmt: skip


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """Return a row with the predicted and measured seconds of a step: the medians over the rounds."""
    with TemporaryDirectory() as folder:
        runs = [case.run(Path(folder)) for _ in range(rounds)]
    steps = [(run.step_s.predicted or 0.0, run.step_s.measured or 0.0) for run in runs]
    insides = [low <= measured <= high for run in runs for low, high in [run.interval_s or (0.0, 0.0)]
               for measured in [run.step_s.measured or 0.0]]  # fmt: skip
    parts, sequence = runs[0].parts_s or {}, " sequence" * ("sequence" in case.strategy)
    return {"model": case.model, "strategy": runs[0].strategy + sequence, "ranks": case.ranks, "samples": case.samples,
            "is_aside": case in ASIDE, "predicted_s": median(predicted for predicted, _ in steps),
            "measured_s": median(measured for _, measured in steps),
            "error": median(predicted / measured for predicted, measured in steps) - 1,
            "inside": sum(insides) / rounds,
            "parts": {name: median((run.parts_s or {}).get(name, 0.0) for run in runs) for name in parts}}  # fmt: skip


def main() -> None:
    """Read the options, measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seen", action="store_true", help="only what is not held out")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    numbers, rows = [int(number) for number in options.ranks.split(",")], list[dict[str, Any]]()
    with watch_load() as watch:
        for case in SEEN if options.seen else [*SEEN, *ASIDE]:
            if case.ranks in numbers:
                rows.append(row := measure(case, options.rounds))
                seconds = f"{1e3 * row['predicted_s']:9.1f} ms{1e3 * row['measured_s']:9.1f} ms{row['error']:8.1%}"
                print(
                    f"{row['model'][:12]:13}{row['strategy']:22}{row['ranks']:3}{seconds}{row['inside']:6.0%}",
                    flush=True,
                )
    load = watch.share_of_others()
    answer = {"kind": "benchmark", "schema_version": 1, "environment": describe_measurement(), "steps": STEPS,
              "rounds": options.rounds, "others": load.others if load else None, "rows": rows}  # fmt: skip
    write_text(options.output, json.dumps(answer, indent=1, allow_nan=False) + "\n")
    print(options.output)


if __name__ == "__main__":
    main()
