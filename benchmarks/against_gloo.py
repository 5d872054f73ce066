"""Our ring against gloo's own all_reduce, and the executor against a bare loop of the same calls.

    python benchmarks/against_gloo.py [--ranks 2 4 8] [--repetitions 41] [-o benchmarks/results/against_gloo.json]

Both are run by the same processes in the same minute, in pairs whose order alternates, so that whatever else the
machine does meets both alike. The ratio (ours over gloo's) is the median over the pairs; its interval is the middle
95 % of medians of pairs drawn again with replacement.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from collectives.atomic import write_text
from collectives.catalogue import Algorithm, library
from collectives.environment import environment, threads_per_rank
from collectives.spec import find_spec
from collectives.step import Program, recv, send
from collectives.units import format_size
from realcomm import pipeline
from realcomm.execute import TAG, Executor
from realcomm.launch import launch
from realcomm.timing import all_intervals, first_to_last, together, undisturbed

SIZES = tuple(1024 * 4**k for k in range(9))  # 1 KiB to 64 MiB
FEWER = 16 << 20  # bytes from which on a third of the repetitions must do
STEPS = 200  # of the bare loop
RESAMPLES = 10_000
Call = Callable[[], object]


def paired(rank: int, world_size: int, repetitions: int) -> dict[int, tuple[list[float], list[float]]]:
    """Seconds of our ring and of gloo's all_reduce, by size and repetition, from first start to last end."""
    found = {}
    for nbytes in SIZES:
        tensor = torch.zeros(nbytes // 4)
        executor = Executor(library()["all_reduce/ring"], rank, world_size, tensor.numel())
        count = repetitions if nbytes < FEWER else repetitions // 3 | 1
        found[nbytes] = pairs(partial(executor.run, tensor), partial(dist.all_reduce, tensor), count)
    return found


def pairs(ours: Call, theirs: Call, count: int) -> tuple[list[float], list[float]]:
    """Seconds of both calls, in pairs that begin with the one and the other in turn."""
    intervals: dict[Call, list[tuple[float, float]]] = {ours: [], theirs: []}
    with undisturbed():
        for number in range(count + 3):  # the first three are warm-up
            for call in (ours, theirs) if number % 2 else (theirs, ours):
                intervals[call].append(together(call))
    seconds = [[end - begin for begin, end in first_to_last(all_intervals(mine))[3:]] for mine in intervals.values()]
    return seconds[0], seconds[1]


def ping(rank: int, world_size: int) -> Program:
    """Both ranks exchange a chunk, again and again: what was received is sent back."""
    for step in range(STEPS):
        yield send(1 - rank, step % 2), recv(1 - rank, 1 - step % 2)


def stepping(rank: int, world_size: int, repetitions: int) -> tuple[list[float], list[float]]:
    """Seconds of a program of many small steps by the executor, and of a bare loop of torch's calls."""
    tensor = torch.zeros(2)
    program = Algorithm(find_spec("all_reduce"), "ping", ping, chunks_rule=2)
    executor = Executor(program, rank, world_size, tensor.numel())
    halves, peer = tensor.chunk(2), 1 - rank

    def bare() -> None:
        for step in range(STEPS):
            receive = dist.irecv(halves[1 - step % 2], peer, tag=TAG)
            sending = dist.isend(halves[step % 2], peer, tag=TAG)
            receive.wait()
            sending.wait()

    return pairs(partial(executor.run, tensor), bare, repetitions)


def ratio(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Medians of both in seconds, and of their ratio with its 95 % interval by the bootstrap."""
    each = np.array(ours) / np.array(theirs)
    drawn = np.random.default_rng(0).choice(each, (RESAMPLES, len(each)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return {
        "ours_s": median(ours), "gloo_s": median(theirs), "pairs": len(ours),
        "ratio": float(np.median(each)), "ratio_low": float(low), "ratio_high": float(high),
    }  # fmt: skip


def overhead(repetitions: int) -> dict[str, float]:
    """Seconds a step that the executor takes beyond the bare loop, with the interval of the median over pairs."""
    ours, theirs = launch(stepping, 2, repetitions)[0]
    each = (np.array(ours) - np.array(theirs)) / STEPS
    drawn = np.random.default_rng(0).choice(each, (RESAMPLES, len(each)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return {
        "executor_s": median(ours) / STEPS, "bare_s": median(theirs) / STEPS,
        "added_s": float(np.median(each)), "added_low_s": float(low), "added_high_s": float(high),
    }  # fmt: skip


def all_reduces(ranks: int, repetitions: int) -> list[dict[str, Any]]:
    """One row a size."""
    rows = []
    for nbytes, (ours, theirs) in launch(paired, ranks, repetitions, timeout=900)[0].items():
        rows.append({"ranks": ranks, "threads": threads_per_rank(ranks), "bytes": nbytes, **ratio(ours, theirs)})
        print(_told(rows[-1]), flush=True)
    return rows


def _told(row: dict[str, Any]) -> str:
    times = f"ours {row['ours_s'] * 1e6:10.0f} us   gloo {row['gloo_s'] * 1e6:10.0f} us"
    interval = f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"
    return f"{row['ranks']} ranks {format_size(row['bytes']):>8}   {times}   ratio {row['ratio']:.2f} ({interval})"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--repetitions", type=int, default=41)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "results" / "against_gloo.json")
    asked = parser.parse_args()
    step = overhead(asked.repetitions)
    print(f"a step: executor {step['executor_s'] * 1e6:.1f} us, bare loop {step['bare_s'] * 1e6:.1f} us, ", end="")
    print(
        f"added {step['added_s'] * 1e6:+.1f} us ({step['added_low_s'] * 1e6:+.1f} to {step['added_high_s'] * 1e6:+.1f})"
    )
    answer = {
        "schema_version": 1,
        "kind": "benchmark",
        "environment": environment(),
        "slice_bytes": pipeline.SLICE,
        "step": step,
        "all_reduce": [row for ranks in asked.ranks for row in all_reduces(ranks, asked.repetitions)],
    }
    write_text(asked.output, json.dumps(answer, indent=2, allow_nan=False) + "\n")
    print(asked.output)


if __name__ == "__main__":
    main()
