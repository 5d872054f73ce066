"""Does it matter how gradients are averaged, or on how many ranks? Losses step by step, and held-out accuracy.

    python benchmarks/training_curves.py [--epochs 3] [--ranks 1 2 4] [--global-batch 64] [--steps N] [-o FILE]

First every way of syncing on two ranks: the same seed and data, so the losses of every step are to be those of the
ring to float tolerance. Then the ring on other numbers of ranks with the global batch kept, where only batch norm,
which sees a rank's own batch, and the order of the images differ.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from collectives.catalogue import find_algorithm
from collectives.output_files import write_text
from collectives.records.environment import describe_environment
from collectives.workload import Buckets, Training
from realcomm.launching.launcher import launch
from realcomm.training import running
from realcomm.training.observing import EpochRecord, Observed, Observer, StepRecord
from realcomm.training.trainer import train_rank

RESULTS = Path(__file__).parent / "results" / "training_curves.json"
RING = find_algorithm("all_reduce/ring")
WAYS: dict[str, dict[str, Any]] = {
    "ring": {"gradient_sync": RING},
    "naive": {"gradient_sync": find_algorithm("all_reduce/naive")},
    "ddp": {"gradient_sync": None},
    "ring[overlap]": {"gradient_sync": RING, "buckets": Buckets()},
    "ring[hook=ddp]": {"gradient_sync": RING, "buckets": Buckets(hook="ddp")},
}
SAME = 1e-3  # of a loss, relatively: what one way may differ from another by rounding
Row = dict[str, Any]


class Curve(Observer):
    """Keeps the loss of each step and the accuracy of each epoch."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.accuracies: list[float] = []

    def step_done(self, running: Observed, record: StepRecord) -> None:
        """Keep the loss."""
        self.losses.append(record.loss)

    def epoch_done(self, running: Observed, record: EpochRecord) -> None:
        """Keep the accuracy."""
        self.accuracies.append(record.test_accuracy)


def curve_of(rank: int, world_size: int, ways: list[str], recipe: dict[str, Any], steps: int | None) -> list[Row]:
    """Return losses and accuracies of each way."""
    running.measure_alone = lambda training: 0.0  # type: ignore[attr-defined]  # it takes long, and nothing here reads it
    rows = []
    for way in ways:
        curve = Curve()
        train_rank(rank, world_size, Training(**WAYS[way], **recipe), steps, None, [curve])
        rows.append({"way": way, "ranks": world_size, "losses": curve.losses, "accuracies": curve.accuracies})
    return rows


def furthest(losses: list[float], others: list[float]) -> float:
    """Return the greatest relative difference of two curves."""
    return max(abs(one - other) / abs(other) for one, other in zip(losses, others, strict=True))


def main() -> None:
    """Read the options, train, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument(
        "--ranks", type=int, nargs="*", default=[1, 2, 4], help="of which the global batch is a multiple"
    )
    parser.add_argument("--global-batch", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--way", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--steps", type=int, help="the first ones only")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    asked = parser.parse_args()
    recipe = {"epochs": asked.epochs, "learning_rate": asked.learning_rate, "model": "resnet18", "stem": "imagenet"}

    def curves(world_size: int, ways: list[str]) -> list[Row]:
        given = {**recipe, "batch_size": asked.global_batch // world_size}
        rows: list[Row] = launch(curve_of, world_size, ways, given, asked.steps, timeout=3600.0)[0]
        return rows

    by_way = curves(2, asked.way)
    for row in by_way:
        row["furthest"] = furthest(row["losses"], by_way[0]["losses"])
        same = "same curve" if row["furthest"] < SAME else "another curve"
        print(
            f"{row['way']:16} 2 ranks  {row['accuracies'][-1]:6.1%} held out, {same} ({row['furthest']:.1e})",
            flush=True,
        )
    by_ranks = [row for count in asked.ranks if count != 2 for row in curves(count, [asked.way[0]])]
    for row in sorted([by_way[0], *by_ranks], key=lambda row: int(row["ranks"])):
        print(f"{row['way']:16} {row['ranks']} ranks  {row['accuracies'][-1]:6.1%} held out", flush=True)
    settings = {**recipe, "global_batch": asked.global_batch}
    answer = {"kind": "benchmark", "schema_version": 1, "environment": describe_environment(), "settings": settings,
              "ways": by_way, "ranks": by_ranks}  # fmt: skip
    write_text(asked.output, json.dumps(answer, indent=1, allow_nan=False) + "\n")
    print(asked.output)


if __name__ == "__main__":
    main()
