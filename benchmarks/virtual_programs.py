"""Measure the cost of programs on virtual ranks, one program per training technique of torch.

    python benchmarks/virtual_programs.py [--only NAME ...] [-o FILE]

*Programs* are correct programs from ``tests/virtual/virtual_programs``; their CPU time excludes the import of torch.
*Numbers* are costs of single operations, with goals: the difference between runs with many and with few operations.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from statistics import median
from subprocess import run
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from collectives.output_files import write_text
from collectives.records.environment import describe_measurement
from simcomm import star

ABOUT = {"schema_version": 1, "kind": "benchmark"}
RESULTS = Path(__file__).parent / "results" / "virtual_programs.json"
FOLDER = Path(__file__).parent / "virtual_programs"
TESTED = Path(__file__).parent.parent / "tests" / "virtual"
ENVIRONMENT = dict(os.environ)  # saved before torch adds variables
ROUNDS = 3
Row = dict[str, Any]

PROGRAMS = {  # correct programs of tests/virtual/mistake_corpus.py, with their descriptions
    "ddp_plain": "DistributedDataParallel",
    "ddp_cuda": "DistributedDataParallel for CUDA, AMP and a checkpoint",
    "ddp_no_sync": "gradient accumulation with no_sync",
    "ddp_join": "Join with uneven inputs",
    "ddp_comm_hook": "a compressing DDP communication hook",
    "post_local_sgd": "post-local SGD",
    "zero_optimizer": "ZeroRedundancyOptimizer",
    "sync_batch_norm_gpu": "SyncBatchNorm for CUDA",
    "fsdp1": "FullyShardedDataParallel",
    "fsdp2": "fully_shard",
    "hsdp": "hybrid sharding",
    "dcp": "distributed checkpoints",
    "tp_sp": "tensor and sequence parallelism",
    "loss_parallel": "loss_parallel with a sharded vocabulary, and fully_shard",
    "pipeline_1f1b": "a 1F1B pipeline",
    "ring_attention": "ring attention with messages",
    "moe_all_to_all": "mixture of experts with all_to_all",
    "functional": "functional collectives",
    "objects": "object collectives",
    "spawn_argparse": "mp.spawn",
    "elastic_env": "torchrun's environment variables",
}
NUMBERS = {  # of virtual_programs/: ranks, repetitions, operations per repetition, title, unit, options, goal
    "messages.py": (2, (100, 4100), 2, "a send or recv, recorded", "us", {}, 60.0),
    "reductions.py": (64, (2, 22), 1, "an all_reduce of 1 MiB on 64 ranks, recorded", "ms", {}, 20.0),
    "perceptron.py": (
        64,
        (2, 7),
        64,
        "one step of one rank: a perceptron under DDP on 64 ranks",
        "ms",
        {"compute": "model"},
        3.0,
    ),
}
SCALE = {"us": 1e6, "ms": 1e3}


def in_a_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a fork of this process, because a run changes torch. Return its result."""
    context = get_context("fork")
    here, sender = context.Pipe(duplex=False)

    def body() -> None:
        with Path(os.devnull).open("w") as nothing:
            os.dup2(nothing.fileno(), 1), os.dup2(nothing.fileno(), 2)
        sender.send(work(*arguments))
        os._exit(0)  # threads of ranks

    child = context.Process(target=body)
    child.start()
    result = here.recv()
    child.join()
    return result


def run_program(file: Path, arguments: tuple[str, ...], ranks: int, options: dict[str, Any]) -> Row:
    """Run a program. Return its CPU seconds, virtual seconds, memory in bytes, calls and kinds of findings."""
    from virtual.options import VirtualOptions
    from virtual.process.programs import UserProgram
    from virtual.running import VirtualRun

    begin, program = process_time(), UserProgram(str(file), arguments)
    virtual_options = VirtualOptions(program, ranks, star(ranks or 8, "10 Gbit/s", "5 us"), **options)
    finished = VirtualRun(virtual_options).run()
    seconds = process_time() - begin
    kinds = [finding.kind for finding in finished.outcome.findings]
    calls = sum(len(recording.calls) for recording in finished.recordings if recording is not None)
    elapsed = max(job.elapsed for job in finished.outcome.jobs)
    most = getrusage(RUSAGE_SELF).ru_maxrss << 10
    return {"cpu_s": seconds, "told": kinds, "calls": calls, "virtual_s": elapsed, "most_bytes": most}


def measure_program(name: str) -> Row:
    """Return the row of a program."""
    from mistake_corpus import RIGHT

    return {"part": "programs", "name": name, "what": PROGRAMS[name], "ranks": RIGHT[name].ranks, **run_tested(name)}


def run_tested(name: str, **options: Any) -> Row:
    """Run a program of the tests in a process of its own."""
    from mistake_corpus import RIGHT

    program = RIGHT[name]
    with TemporaryDirectory() as folder:
        path = program.write(Path(folder))
        return in_a_process(run_program, path, tuple(program.arguments), program.ranks, program.options | options)


def measure_number(name: str) -> Row:
    """Return the row of one operation: its cost is the median of a few differences."""
    ranks, (few, many), each, title, unit, options, goal = NUMBERS[name]
    costs, most = [], 0
    for _ in range(ROUNDS):
        runs = [
            in_a_process(run_program, FOLDER / name, (str(number),), ranks, {"timing": "recorded", **options})
            for number in (few, many)
        ]
        costs.append((runs[1]["cpu_s"] - runs[0]["cpu_s"]) / (many - few) / each * SCALE[unit])
        most = max(most, runs[1]["most_bytes"])
    low, high = min(costs), max(costs)
    return {"part": "numbers", "name": name, "what": title, "unit": unit, "measured": median(costs), "low": low,
            "high": high, "at_most": goal, "most_bytes": most}  # fmt: skip


def measure_memory(ranks: int = 64) -> Row:
    """Return the row for the memory of ResNet-18 under DDP."""
    result = in_a_process(run_program, FOLDER / "resnet.py", ("2",), ranks, {"timing": "recorded"})
    return {"part": "numbers", "name": "resnet.py", "what": f"memory of ResNet-18 under DDP on {ranks} ranks",
            "unit": "GB", "measured": result["most_bytes"] / 1e9, "at_most": 12.0}  # fmt: skip


def time_process(*arguments: str) -> float:
    """Return the CPU seconds of a Python process with these arguments."""
    before = getrusage(RUSAGE_CHILDREN)
    run([sys.executable, *arguments], capture_output=True, check=True, env=ENVIRONMENT)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_start() -> Row:
    """Return the row for the CPU time of the command with a tiny program, minus the time to import torch."""
    command = ("-m", "ringlab", "virtual", "--ranks", "2", str(FOLDER / "messages.py"), "1")
    seconds = [time_process(*command) - time_process("-c", "import torch") for _ in range(ROUNDS)]
    title = "CPU time of the command with two messages, without importing torch"
    return {"part": "numbers", "name": "start", "what": title, "unit": "s",
            "measured": median(seconds), "low": min(seconds), "high": max(seconds), "at_most": 1.5}  # fmt: skip


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[*PROGRAMS, *NUMBERS, "resnet.py", "start"])
    parser.add_argument("-o", type=Path, default=RESULTS)
    options = parser.parse_args()
    sys.path.insert(0, str(TESTED))
    for module in ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.pipelining", "virtual.running"):
        __import__(module)
    rows = []
    for name in options.only:
        others = {"resnet.py": measure_memory, "start": measure_start}
        row = others[name]() if name in others else (measure_program if name in PROGRAMS else measure_number)(name)
        rows.append(row)
        print(row, flush=True)
    write_text(options.o, json.dumps({**ABOUT, "environment": describe_measurement(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
