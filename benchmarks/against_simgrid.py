"""Compare the CPU time and the results of the event engine with SimGrid's flow model.

    python benchmarks/against_simgrid.py [--repetitions 5] [--fewer 1] [-o FILE]

Both simulate every message of the same collectives on a star, in alternation. SimGrid is the compiled runner of
``tests/simcomm/oracle``. Its time is that of a whole process, with the exact solver (``Full``) and the faster ``Lazy``
solver. Ringlab's time is that of the event engine alone: code is loaded, the schedule is built, and routes are known.
Without SimGrid (Debian: libsimgrid-dev and g++), nothing is measured, and the file is unchanged.
"""

import argparse
import json
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from time import process_time
from typing import Any

from collectives import CollectiveCall, find_algorithm
from collectives.output_files import write_text
from collectives.records.environment import describe_measurement
from simcomm.compiled.engine import by_events
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.schedules import unverified_schedule

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "simcomm"))

from oracle import run_simgrid  # noqa: E402
from oracle.cases import Case, sent  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "against_simgrid.json"
ASKED = {"all_reduce/ring": (32, 64, 128), "all_to_all/pairwise": (32, 64, 128)}  # ranks
NBYTES = 1 << 20
LAZY = {
    "network/optim": "Lazy",
    "network/maxmin-selective-update": "yes",
    "cpu/optim": "Lazy",
    "surf/precision": "1e-12",
}
SOLVERS: dict[str, dict[str, str]] = {"full": {}, "lazy": LAZY}
Row = dict[str, Any]


def case_of(algorithm: str, ranks: int) -> Case:
    """Return a collective on a star with 100 Gbit/s and 1 us."""
    links = [(f"h{rank}", "s0", 12_500_000_000, 1000) for rank in range(ranks)]
    return Case(algorithm, links, [f"h{rank}" for rank in range(ranks)], NBYTES, algorithm=algorithm)


def by_simgrid(runner: Path, case: Case, solver: str) -> tuple[float, float]:
    """Return SimGrid's CPU seconds, and the end of the last message."""
    before = getrusage(RUSAGE_CHILDREN)
    ends = run_simgrid.answered(runner, case, by_factor=False, **SOLVERS[solver]).ends
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, max(ends)


def by_ours(case: Case) -> tuple[float, float]:
    """Return the event engine's CPU seconds, and the end of the last message."""
    algorithm, cluster = find_algorithm(case.algorithm), case.cluster
    assert cluster.transport is not None
    schedule = unverified_schedule(algorithm, cluster.world_size)
    engine_input = EngineInput(CollectiveCall(algorithm, case.nbytes, "uint8"), schedule, cluster, cluster.transport)
    assert engine_input.routes is not None
    begin = process_time()
    trace = by_events(engine_input)
    return process_time() - begin, trace.elapsed


def measure(runner: Path, case: Case, repetitions: int) -> Row:
    """Return the medians and ranges of both and of their ratio, measured in alternation."""
    by_ours(case)  # loads the code
    seconds: dict[str, list[float]] = {"ours": [], **{solver: [] for solver in SOLVERS}}
    ends: dict[str, float] = {}
    for _ in range(repetitions):
        for name in seconds:
            took, ends[name] = by_ours(case) if name == "ours" else by_simgrid(runner, case, name)
            seconds[name].append(took)
    messages = sum(1 for _ in sent(case.schedule, case.nbytes))
    row: Row = {"algorithm": case.algorithm, "ranks": len(case.hosts), "messages": messages}
    for name, each in seconds.items():
        row |= {f"{name}_cpu_s": median(each), f"{name}_spread_s": [min(each), max(each)]}
    for solver in SOLVERS:
        ratios = [theirs / max(mine, 1e-6) for mine, theirs in zip(seconds["ours"], seconds[solver], strict=True)]
        row |= {f"{solver}_times_ours": median(ratios), f"{solver}_differs": abs(ends[solver] / ends["ours"] - 1)}
    return row


def describe(row: Row) -> str:
    """Return a row as a line."""
    times = ", ".join(f"{name} {row[f'{name}_cpu_s']:.3g} s" for name in ("ours", *SOLVERS))
    ratios = ", ".join(
        f"{solver} {row[f'{solver}_times_ours']:.0f} times ours, {row[f'{solver}_differs']:.1e} apart"
        for solver in SOLVERS
    )
    return f"{row['algorithm']}, {row['ranks']} ranks, {row['messages']:,} messages: {times}; {ratios}"


def main() -> None:
    """Measure, print a line a row, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--fewer", type=int, default=1, help="so many times fewer ranks, to try it out")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    if reason := run_simgrid.why_not():
        print(f"left out: {reason}")
        return
    answer: Row = {"schema_version": 1, "kind": "benchmark", "environment": describe_measurement(), "rows": []}
    with run_simgrid.simgrid() as runner:
        answer |= {"simgrid": run_simgrid.version(runner), "settings": run_simgrid.OWN_LATENCIES, "solvers": SOLVERS}
        for algorithm, world_sizes in ASKED.items():
            for ranks in world_sizes:
                row = measure(runner, case_of(algorithm, max(4, ranks // options.fewer)), options.repetitions)
                answer["rows"].append(row)
                print(describe(row), flush=True)
                write_text(options.output, json.dumps(answer, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
