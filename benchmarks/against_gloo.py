"""Compare Ringlab's all-reduce with gloo's or NCCL's, and the executor with a bare loop of the same calls.

    python benchmarks/against_gloo.py [--ranks 2 4 8] [--sizes 1K 1M] [--algorithm ring] [--repetitions 41] [--add]

With ``--backend nccl``, ranks run on GPUs, and several ranks share a GPU if there are too few. The bare loop uses gloo
only.

The same processes run both in pairs, in alternating order, so other load on the machine affects both. The ratio is
Ringlab's time over the other time: the median over the pairs, with the 95 % bootstrap interval of the median. With
``--add``, rows in the file that are not measured again are kept, if machine, versions and settings are the same.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from collectives.call import CollectiveCall
from collectives.catalogue import find_algorithm
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.output_files import write_text
from collectives.pipeline import pipeline
from collectives.records.environment import describe_measurement, threads_per_rank
from collectives.spec import find_spec
from collectives.step import Program, recv, send
from collectives.units import format_size
from realcomm.execution.executor import TAG, Executor
from realcomm.launching.group import own_device
from realcomm.launching.launcher import launch
from realcomm.measuring.rank_measurement import (
    first_to_last,
    gather_intervals,
    time_together,
    without_garbage_collection,
)
from ringlab.shared.ranges import parse_short_size

SIZES = tuple(str(1024 * 4**k) for k in range(9))  # 1 KiB to 64 MiB
FEWER = 16 << 20  # bytes from which on a third of the repetitions must do
STEPS = 200  # of the bare loop
RESAMPLES = 10_000
RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]
Call = Callable[[], object]


def paired(
    rank: int, world_size: int, algorithm: str, sizes: Sequence[int], repetitions: int
) -> dict[int, tuple[list[float], list[float]]]:
    """Return the seconds of both all-reduces by size and repetition, from the first start to the last end."""
    seconds, device = {}, own_device()
    for nbytes in sizes:
        tensor = torch.zeros(nbytes // 4, device=device)
        call = CollectiveCall(find_algorithm(algorithm, "all_reduce"), tensor.numel())
        executor = Executor(call, rank, world_size, device=device)
        count = repetitions if nbytes < FEWER else repetitions // 3 | 1
        seconds[nbytes] = pairs(partial(executor.run, tensor), partial(dist.all_reduce, tensor), count)
    return seconds


def pairs(ours: Call, theirs: Call, count: int) -> tuple[list[float], list[float]]:
    """Return the seconds of both calls, in pairs with alternating order."""
    intervals: dict[Call, list[tuple[float, float]]] = {ours: [], theirs: []}
    with without_garbage_collection():
        for number in range(count + 3):  # the first three are warm-up
            for call in (ours, theirs) if number % 2 else (theirs, ours):
                intervals[call].append(time_together(call))
    seconds = [[end - begin for begin, end in first_to_last(gather_intervals(mine))[3:]] for mine in intervals.values()]
    return seconds[0], seconds[1]


def ping(rank: int, world_size: int) -> Program:
    """Let both ranks exchange a chunk repeatedly: each sends back what it received."""
    for step in range(STEPS):
        yield send(1 - rank, step % 2), recv(1 - rank, 1 - step % 2)


def stepping(rank: int, world_size: int, repetitions: int) -> tuple[list[float], list[float]]:
    """Return the seconds of a program with many small steps, by the executor and by a bare loop of torch's calls."""
    tensor = torch.zeros(2)
    program = Algorithm(find_spec("all_reduce"), "ping", ping, chunks_rule=2)
    executor = Executor(CollectiveCall(program, tensor.numel()), rank, world_size)
    halves, peer = tensor.chunk(2), 1 - rank

    def bare() -> None:
        for step in range(STEPS):
            receive = dist.irecv(halves[1 - step % 2], peer, tag=TAG)
            sending = dist.isend(halves[step % 2], peer, tag=TAG)
            receive.wait()
            sending.wait()

    return pairs(partial(executor.run, tensor), bare, repetitions)


def ratio(ours: list[float], theirs: list[float], backend: str) -> Row:
    """Return the medians of both in seconds, and of their ratio, with its 95 % bootstrap interval."""
    each = np.array(ours) / np.array(theirs)
    return {
        "ours_s": median(ours), f"{backend}_s": median(theirs), "pairs": len(ours), **_with_interval("ratio", each),
    }  # fmt: skip


def overhead(repetitions: int) -> Row:
    """Return the seconds per step that the executor adds to the bare loop, with the interval over pairs."""
    ours, theirs = launch(stepping, 2, repetitions)[0]
    each = (np.array(ours) - np.array(theirs)) / STEPS
    return {
        "executor_s": median(ours) / STEPS, "bare_s": median(theirs) / STEPS, "pairs": len(ours),
        **_with_interval("added_s", each),
    }  # fmt: skip


def _with_interval(name: str, each: "np.ndarray[Any, Any]") -> dict[str, float]:
    drawn = np.random.default_rng(0).choice(each, (RESAMPLES, len(each)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return {name: float(np.median(each)), f"{name}_low": float(low), f"{name}_high": float(high)}


def all_reduces(algorithm: str, ranks: int, sizes: Sequence[int], repetitions: int, backend: str) -> list[Row]:
    """Return a row for each size."""
    results = launch(paired, ranks, algorithm, sizes, repetitions, backend=backend, timeout=900)[0]
    shared: Row = {"algorithm": algorithm, "ranks": ranks, "threads": threads_per_rank(ranks)}
    rows = [{**shared, "bytes": nbytes, **ratio(ours, theirs, backend)} for nbytes, (ours, theirs) in results.items()]
    for row in rows:
        print(_told(row, backend), flush=True)
    return rows


def _told(row: Row, backend: str) -> str:
    times = f"ours {row['ours_s'] * 1e6:10.0f} us   {backend} {row[f'{backend}_s'] * 1e6:10.0f} us"
    interval = f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"
    case_name = f"{row['algorithm']}, {row['ranks']} ranks {format_size(row['bytes']):>8}"
    return f"{case_name}   {times}   ratio {row['ratio']:.2f} ({interval})"


def _told_step(step: Row) -> str:
    of = {name: f"{step[name] * 1e6:+.1f} us" for name in ("added_s", "added_s_low", "added_s_high")}
    times = f"executor {step['executor_s'] * 1e6:.1f} us, bare loop {step['bare_s'] * 1e6:.1f} us"
    return f"a step: {times}, added {of['added_s']} ({of['added_s_low']} to {of['added_s_high']})"


def settings() -> Row:
    """Return the settings that all rows of a file share."""
    return {
        "schema_version": 1,
        "kind": "benchmark",
        "environment": describe_measurement(),
        "slice_bytes": pipeline.SLICE_BYTES,
        "largest_slice_bytes": pipeline.LARGEST_SLICE_BYTES,
        "chains": pipeline.CHAINS,
    }


def before(path: Path) -> Row:
    """Return the earlier results of a file. Raise InputError if they have other settings."""
    known: Row = json.loads(path.read_text(encoding="utf-8")) if path.exists() else settings()
    for name, value in settings().items():
        if known.get(name) != value:
            raise InputError(f"{path}: {name} is {known.get(name)!r} there and {value!r} here; measure it all again")
    return known


def joined(old: list[Row], new: list[Row]) -> list[Row]:
    """Return all rows in order. A new row replaces an earlier one."""
    by_key = {(row["algorithm"], row["ranks"], row["bytes"]): row for row in [*old, *new]}
    return [by_key[key] for key in sorted(by_key)]


def measure(options: argparse.Namespace) -> None:
    """Measure, and write the file after each result. Raise InputError for unsupported options."""
    answer = before(options.output) if options.add else settings()
    sizes = [parse_short_size(size, "--sizes") for size in options.sizes]
    if options.backend == "gloo" and ("step" not in answer or not options.ranks):
        answer["step"] = overhead(options.repetitions)
        print(_told_step(answer["step"]), flush=True)
        _write(options.output, answer)
    for ranks, algorithm in product(options.ranks, options.algorithm):
        rows = all_reduces(algorithm, ranks, sizes, options.repetitions, options.backend)
        answer["all_reduce"] = joined(answer.get("all_reduce", []), rows)
        _write(options.output, answer)
    print(options.output)


def _write(path: Path, answer: Row) -> None:
    write_text(path, json.dumps(answer, indent=2, allow_nan=False) + "\n")


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4, 8], help="none: only what a step costs")
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="SIZE", help="such as 1024, 32K or 1M")
    parser.add_argument(
        "--algorithm", nargs="+", default=["ring"], metavar="NAME", help="any all_reduce of the library"
    )
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo")
    parser.add_argument("--repetitions", type=int, default=41)
    parser.add_argument("--add", action="store_true", help="keep what the file has and is not measured again")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="Default: a file in benchmarks/results.")
    options = parser.parse_args()
    options.output = options.output or RESULTS / f"against_{options.backend}.json"
    try:
        measure(options)
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
