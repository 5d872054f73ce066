"""How long a Trace of two million messages takes to be made, written and read, and what memory it holds.

    python benchmarks/traces.py [--ranks 1024] [--jitter]

A ring all-reduce on a star, on the compiled engine; the simulation itself is not counted.
"""

import argparse
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import simcomm
from collectives import Request, find_algorithm, read_trace
from simcomm.compiled.engine import simulate
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.traces import make_trace
from simcomm.model.jitter import Jitter
from simcomm.model.trouble import Trouble
from simcomm.schedules import unverified_schedule


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--jitter", action="store_true", help="delay each message by a random time of its own")
    arguments = parser.parse_args()
    ring, star = find_algorithm("all_reduce/ring"), simcomm.star(arguments.ranks, "10 Gbit/s", "5 us")
    trouble = Trouble(messages=Jitter("exponential", 1e-6)) if arguments.jitter else Trouble()
    assert star.transport is not None
    schedule = unverified_schedule(ring, arguments.ranks)
    inputs = EngineInput(Request(ring, 16 << 20), schedule, star, star.transport, trouble).with_table()
    timing = simulate(inputs, messages=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ring.trace.json"
        trace = measure("make", lambda: make_trace(inputs, timing, {"nbytes": float(inputs.request.nbytes)}))
        measure("write", lambda: trace.write(file))
        assert measure("read", lambda: read_trace(file)) == trace
        print(f"{len(trace.messages)} messages, {file.stat().st_size / 1e6:.1f} MB on disk")


def measure(what: str, act: Callable[[], Any]) -> Any:
    """Print the seconds that something takes, and in a second run the memory that it holds and needs meanwhile."""
    begin = perf_counter()
    act()
    seconds = perf_counter() - begin
    tracemalloc.start()
    found = act()
    held, most = (nbytes / 1e6 for nbytes in tracemalloc.get_traced_memory())
    tracemalloc.stop()
    print(f"{what}: {seconds:.2f} s, holds {held:.0f} MB, needs {most:.0f} MB meanwhile")
    return found


if __name__ == "__main__":
    main()
