"""Compare the step time of each gradient synchronization with torch's DistributedDataParallel.

    python benchmarks/overlap.py [--ranks 2] [--batch-size 32] [--rounds 15] [--way ddp ring ...] [-o FILE]

All variants train in the same processes, one step each in a rotating order, so other load on the machine affects all of
them. All ranks begin a step together, and its time is that of the slowest rank. The ratio to ``ddp`` is the median over
the rounds, with the 95 % bootstrap interval of the median.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from collectives.catalogue import find_algorithm
from collectives.output_files import write_text
from collectives.records.environment import describe_measurement, threads_per_rank
from collectives.training.workload import Buckets, Training
from realcomm.launching.launcher import launch
from realcomm.launching.status import report_progress
from realcomm.training.datasets import Shard
from realcomm.training.models import build_model
from realcomm.training.replica import take_step
from realcomm.training.running import make_replica_and_sync
from realcomm.training.stopwatch import Stopwatch

RESULTS = Path(__file__).parent / "results"
WARM_UP = 3  # rounds that do not count; torch's buckets and ours are filled anew after the first step
DRAWS = 2000
RING = find_algorithm("all_reduce/ring")
WAYS: dict[str, dict[str, Any]] = {
    "ddp": {"gradient_sync": None},
    "ring": {"gradient_sync": RING},
    "ring[overlap]": {"gradient_sync": RING, "buckets": Buckets()},
    "ring[hook=ddp]": {"gradient_sync": RING, "buckets": Buckets(hook="ddp")},
}


def rounds_of(rank: int, world_size: int, names: list[str], batch_size: int, rounds: int) -> list[dict[str, float]]:
    """Return, for each variant, the seconds of a step on the slowest rank by round."""
    running = {}
    for name in names:
        training = Training(batch_size=batch_size, **WAYS[name])
        model = build_model(training, training.seed)
        running[name] = make_replica_and_sync(model, training, rank, world_size), Stopwatch(rank)
    batches = iter(Shard(Training(None, batch_size=batch_size, epochs=1000), rank, world_size))
    rows = []
    for number in range(WARM_UP + rounds):
        images, labels = next(batches)
        seconds = {}
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            (replica, sync), watch = running[name]
            dist.barrier()
            begin = perf_counter()
            take_step(replica, images, labels, sync, watch)
            slowest = torch.tensor([perf_counter() - begin])
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            seconds[name] = slowest.item()
        rows.append(seconds)
        if rank == 0:
            report_progress(number + 1, WARM_UP + rounds, "a step of each way")
    return rows[WARM_UP:]


def summary(name: str, rounds: list[dict[str, float]]) -> dict[str, Any]:
    """Return the median step of a variant, and its ratio to ``ddp`` with an interval."""
    ratios = np.array([seconds[name] / seconds["ddp"] for seconds in rounds])
    draws = np.random.default_rng(0).choice(ratios, (DRAWS, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
    steps = [seconds[name] for seconds in rounds]
    return {"way": name, "step_s": median(steps), "ratio": float(np.median(ratios)), "interval": [low, high]}


def main() -> None:
    """Read the options, measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--way", nargs="+", default=list(WAYS), choices=list(WAYS), help="beside ddp")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "overlap.json", metavar="FILE")
    options = parser.parse_args()
    names = list(dict.fromkeys(["ddp", *options.way]))
    rounds = launch(rounds_of, options.ranks, names, options.batch_size, options.rounds, timeout=600.0)[0]
    rows = [summary(name, rounds) for name in names]
    for row in rows:
        low, high = row["interval"]
        print(f"{row['way']:16} {row['step_s'] * 1e3:8.1f} ms  {row['ratio']:.3f} of ddp ({low:.3f} to {high:.3f})")
    settings = {"ranks": options.ranks, "threads": threads_per_rank(options.ranks), "model": "resnet18",
                "batch_size": options.batch_size, "rounds": options.rounds}  # fmt: skip
    answer = {
        "kind": "benchmark",
        "schema_version": 1,
        "environment": describe_measurement(),
        **settings,
        "steps": rows,
    }
    write_text(options.output, json.dumps(answer, indent=2, allow_nan=False) + "\n")
    print(options.output)


if __name__ == "__main__":
    main()
