"""Choose a training recipe, and compare the accuracy of gradient synchronizations and numbers of ranks.

    python benchmarks/training_curves.py [--parts recipes ways ranks] [--add] [--seeds 0 1 2] [--steps N] [-o FILE]

``recipes`` searches the learning rate, schedule and batch size with which ResNet-18 is most accurate after ``EPOCHS``
epochs. It uses a fifth of the training images to compare them, never the held-out images. The other parts use the best
one, ``RECIPE``. ``ways`` trains with each gradient synchronization on two ranks, with the same seed and data, so all
losses should equal those of the ring up to rounding. ``ranks`` trains with the ring on several numbers of ranks and
with several seeds. The global batch stays the same, so only batch norm differs, which uses each rank's own batch.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import Subset

from collectives.catalogue import find_algorithm
from collectives.output_files import write_text
from collectives.records.environment import describe_measurement
from collectives.training.workload import Buckets, ComputePhases, Training
from realcomm.launching.launcher import launch
from realcomm.training import datasets, running
from realcomm.training.datasets import Images, load_images
from realcomm.training.observing import EpochRecord, Observer, StepRecord
from realcomm.training.running import RunningTraining
from realcomm.training.trainer import train_rank

RESULTS = Path(__file__).parent / "results" / "training_curves.json"
PARTS = ("recipes", "ways", "ranks")
EPOCHS = 3
RING = find_algorithm("all_reduce/ring")
WAYS: dict[str, dict[str, Any]] = {
    "ring": {"gradient_sync": RING},
    "naive": {"gradient_sync": find_algorithm("all_reduce/naive")},
    "ddp": {"gradient_sync": None},
    "ring[overlap]": {"gradient_sync": RING, "buckets": Buckets()},
    "ring[hook=ddp]": {"gradient_sync": RING, "buckets": Buckets(hook="ddp")},
}
SAME = 1e-3  # of a loss, relatively: what one way may differ from another by rounding
PUT_ASIDE = 5  # every fifth training image, by which recipes are judged


class Recipe(NamedTuple):
    """The keys that the search chooses."""

    global_batch: int
    learning_rate: float
    schedule: str
    warm_up: int  # steps

    def keys(self, world_size: int) -> dict[str, Any]:
        """Return the keys of a training on this many ranks."""
        named = self._asdict()
        return {"batch_size": named.pop("global_batch") // world_size, **named}


SCHEDULES = (("constant", 0), ("cosine", 6))
RATES = {64: (0.01, 0.02, 0.05, 0.1), 32: (0.01,)}  # by the global batch; the smaller one with the best rate only
RECIPES = [Recipe(batch, rate, *schedule) for batch, rates in RATES.items() for rate in rates for schedule in SCHEDULES]
RECIPE = Recipe(64, 0.01, "cosine", 6)  # the best of them; of equals the one of fewer steps
Row = dict[str, Any]


class Job(NamedTuple):
    """A training within a launch."""

    way: str
    recipe: Recipe
    seed: int
    aside: bool = False  # judge it by training images that are held out


class Curve(Observer):
    """Records the loss of each step and the accuracy of each epoch."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.accuracies: list[float] = []

    def step_done(self, running: RunningTraining, record: StepRecord) -> None:
        self.losses.append(record.loss)

    def epoch_done(self, running: RunningTraining, record: EpochRecord) -> None:
        self.accuracies.append(record.test_accuracy)


def without_held_out(training: Training, train: bool) -> Images:
    """Return the training images without a fifth that is held out, or that fifth. Replaces ``load_images``."""
    images = load_images(training, train=True)
    rows = range(len(images))  # type: ignore[arg-type]
    return Subset(images, [row for row in rows if (row % PUT_ASIDE > 0) == train])


def curves_of(rank: int, world_size: int, jobs: list[Job], steps: int | None) -> list[Row]:
    """Return the losses and accuracies of each job."""
    vars(running)["measure_alone"] = lambda training: ComputePhases(0.0, 0.0, 0.0)  # slow, and not read here
    rows = []
    for job in jobs:
        vars(datasets)["load_images"] = without_held_out if job.aside else load_images
        curve, keys = Curve(), {"epochs": EPOCHS, "seed": job.seed, **job.recipe.keys(world_size)}
        torch.manual_seed(job.seed)
        train_rank(rank, world_size, Training(**WAYS[job.way], **keys), steps, None, [curve])
        rows.append({"way": job.way, "ranks": world_size, **job.recipe._asdict(), "seed": job.seed,
                     "losses": curve.losses, "accuracies": curve.accuracies})  # fmt: skip
    return rows


def furthest(losses: list[float], others: list[float]) -> float:
    """Return the largest relative difference between two curves."""
    return max(abs(loss - other) / abs(other) for loss, other in zip(losses, others, strict=True))


def find_rows(options: argparse.Namespace) -> dict[str, list[Row]]:
    """Train for each part and return its rows."""

    def curves(world_size: int, jobs: list[Job]) -> list[Row]:
        rows: list[Row] = launch(curves_of, world_size, jobs, options.steps, threads=1, timeout=3600.0)[0]
        for row in rows:
            numbers = ", ".join(f"{name} {row[name]}" for name in (*Recipe._fields, "seed"))
            print(f"{row['way']:16} {row['ranks']} ranks, {numbers}: {row['accuracies'][-1]:.1%} right", flush=True)
        return rows

    rows_by_part: dict[str, list[Row]] = {}
    if "recipes" in options.parts:
        asked_for = [RECIPES[number] for number in options.recipe]
        rows_by_part["recipes"] = curves(
            2, [Job("ring", recipe, seed, True) for recipe in asked_for for seed in options.seeds]
        )
    if "ways" in options.parts:
        rows_by_part["ways"] = curves(2, [Job(way, RECIPE, options.seeds[0]) for way in options.way])
    if "ranks" in options.parts:
        rows_by_part["ranks"] = [
            row
            for count in options.ranks
            for row in curves(count, [Job("ring", RECIPE, seed) for seed in options.seeds])
        ]
    return rows_by_part


def identity(row: Row) -> tuple[Any, ...]:
    """Return the keys that identify a row within its part."""
    return tuple(row[name] for name in ("way", "ranks", "seed", *Recipe._fields))


def main() -> None:
    """Read the options, train, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--recipe", nargs="+", type=int, choices=range(len(RECIPES)), default=range(len(RECIPES)),
                        metavar="NUMBER", help=f"of the {len(RECIPES)} in RECIPES, counted from 0")  # fmt: skip
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="divisors of the global batch")
    parser.add_argument("--way", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="the first ones only")
    parser.add_argument("--add", action="store_true", help="keep the other rows that are in the file")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    rows_by_part = find_rows(options)
    before = json.loads(options.output.read_text()) if options.add and options.output.exists() else {}
    parts = {}
    for part in PARTS:
        rows = {identity(row): row for row in [*before.get(part, []), *rows_by_part.get(part, [])]}
        parts[part] = list(rows.values())
    for row in parts["ways"]:
        row["furthest"] = furthest(row["losses"], parts["ways"][0]["losses"])
        print(f"{row['way']:16} {'same' if row['furthest'] < SAME else 'another'} curve ({row['furthest']:.1e})")
    answer = {"kind": "benchmark", "schema_version": 1, "environment": describe_measurement(), "model": "resnet18",
              "dataset": "digits", "epochs": EPOCHS, **parts}  # fmt: skip
    write_text(options.output, json.dumps(answer, allow_nan=False) + "\n")
    print(options.output)


if __name__ == "__main__":
    main()
