"""Measure the time and memory to make, write and read a Trace of two million messages.

    python benchmarks/traces.py [--ranks 1024] [--jitter] [-o FILE]

The run is a ring all-reduce on a star with the compiled engine. The simulation itself is not counted.
"""

import argparse
import json
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import simcomm
from collectives import CollectiveCall, find_algorithm, read_trace
from collectives.output_files import write_text
from collectives.records.environment import describe_measurement
from simcomm.compiled.engine import one_by_one
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.traces import make_trace
from simcomm.model.faults import Faults, Jitter
from simcomm.schedules import unverified_schedule

RESULTS = Path(__file__).parent / "results" / "traces.json"


def main() -> None:
    """Measure, print a line for each row, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--jitter", action="store_true", help="delay each message by a random time of its own")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    answer = {
        "schema_version": 1,
        "kind": "benchmark",
        "environment": describe_measurement(),
        "ranks": options.ranks,
        "jitter": options.jitter,
        **measure_ring(options.ranks, options.jitter),
    }
    write_text(options.output, json.dumps(answer, indent=2, allow_nan=False) + "\n")


def measure_ring(ranks: int, jitter: bool) -> dict[str, Any]:
    """Return the messages of a ring all-reduce, its file's bytes, and a row each for making, writing and reading it."""
    ring, star = find_algorithm("all_reduce/ring"), simcomm.star(ranks, "10 Gbit/s", "5 us")
    faults = Faults(messages=Jitter("exponential", 1e-6)) if jitter else Faults()
    assert star.transport is not None
    schedule = unverified_schedule(ring, ranks)
    inputs = EngineInput(CollectiveCall(ring, 16 << 20), schedule, star, star.transport, faults).with_table()
    timing = one_by_one(inputs, messages=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ring.trace.json"
        trace, make = measure("make", lambda: make_trace(inputs, timing, {"nbytes": float(inputs.call.nbytes)}))
        _, write = measure("write", lambda: trace.write(file))
        copy, read = measure("read", lambda: read_trace(file))
        assert copy == trace
        nbytes = file.stat().st_size
    print(f"{len(trace.messages)} messages, {nbytes / 1e6:.1f} MB on disk")
    return {"messages": len(trace.messages), "file_bytes": nbytes, "rows": [make, write, read]}


def measure(title: str, act: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """Return the result of ``act`` and a row: its seconds, and the final and peak bytes of a second run."""
    begin = perf_counter()
    act()
    seconds = perf_counter() - begin
    tracemalloc.start()
    result = act()
    memory, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{title}: {seconds:.2f} s, holds {memory / 1e6:.0f} MB, needs {most / 1e6:.0f} MB meanwhile")
    return result, {"name": title, "seconds": seconds, "held_bytes": memory, "needed_bytes": most}


if __name__ == "__main__":
    main()
