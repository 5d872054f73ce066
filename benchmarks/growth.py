"""Measure how the compiled engine's CPU time grows with ranks and messages, and with changes of a scenario.

    python benchmarks/growth.py [--parts lockstep messages changes] [--only NAME] [--repetitions 3] [-o FILE]
        [--add | --missing] [--seconds N]

Each measurement runs in its own process, which first loads the code with a few ranks. It includes building the
schedule. The result is the minimum CPU time over the repetitions, the elapsed time, and the peak memory. In the part
*lockstep*, all ranks of a symmetric star do the same at the same time, and the exponent is the slope of log CPU time
over log ranks. In *messages*, all latencies differ, and the exponent is over log messages. *Changes* compares runs with
and without a change.

The whole benchmark takes minutes. ``--seconds 90`` starts no measurement after 90 seconds, ``--missing`` measures what
the file lacks, and ``--add`` replaces only the rows that are measured.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from collectives.output_files import write_text
from collectives.records.environment import describe_measurement

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "growth.json"
LOCKSTEP = (
    "all_reduce/ring",
    "all_reduce/recursive_doubling",
    "all_reduce/halving_doubling",
    "all_reduce/double_tree",
    "broadcast/binomial",
)
RANKS = (1024, 4096, 16_384, 65_536)
APART = {  # ranks by algorithm
    "all_reduce/ring": (128, 256, 512, 1024),
    "all_to_all/pairwise": (64, 128, 256),
    "all_to_all/direct": (32, 64, 128),
    "all_reduce/double_tree": (1024, 4096, 16_384),
}
RING, DIRECT, JITTER = "all_reduce/ring", "all_to_all/direct", "Jitter('uniform', 1e-6)"
CHANGES = (  # what, on which cluster, with so many ranks, what goes wrong, and at most how many seconds
    ("training", "star", 512, "", 0.0),
    ("training", "star", 512, "RankFault(3, fails_at=0.2)", 0.5),
    ("training", "star", 512, "LinkFault(('h3', 's0'), 0.0, 0.2)", 0.5),
    ("training", "star", 4096, "RankFault(3, fails_at=0.2)", 5.0),
    ("auto", "star", 512, "", 0.5),
    ("auto", "star", 512, "RankFault(3, slowdown=1.5)", 0.0),
    (RING, "star", 8192, "", 0.0),
    (RING, "star", 8192, "RankFault(3, fails_at=0.005)", 5.0),
    (RING, "star", 8192, JITTER, 0.0),
    (RING, "star", 512, JITTER, 0.0),
    (RING, "star", 256, JITTER, 0.0),
    (DIRECT, "tree", 256, "", 0.0),
    (DIRECT, "tree", 256, JITTER, 0.07),
    (DIRECT, "star", 128, JITTER, 0.02),
    ("all_reduce/hierarchical", "star", 1024, "", 0.3),
    ("all_reduce/hierarchical", "star", 4096, "", 1.5),
)
LEAST_S = 0.01  # below it a time is noise, and counts as so much
MOST_BY_RANKS, MOST_BY_MESSAGES, MOST_MB = 1.2, 1.1, 1000.0
MEASURE = """
import json, resource, sys, time
from dataclasses import replace
from random import Random
import simcomm
from collectives import CollectiveCall, Transport, find_algorithm
from collectives.declaration import auto
from collectives.training.workload import ComputePhases, Training
from ringlab.shared.workload import resolve_training
from simcomm.compiled.engine import by_events, by_shortcut
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.model.faults import Jitter
from simcomm.model.faults import NO_FAULTS, LinkFault, RankFault, Faults
from simcomm.schedules import unverified_schedule
part, name, kind, ranks, wrong = json.loads(sys.argv[1])
faults = eval(wrong) if wrong else None
kinds = {RankFault: "ranks", LinkFault: "links"}
if faults is not None:
    of = kinds.get(type(faults))
    faults = Faults(**{of: (faults,)}) if of else Faults(messages=faults)
def cluster_of(ranks):
    if kind == "star":
        return simcomm.star(ranks, "100 Gbit/s", "1 us")
    found = simcomm.two_level_tree(max(2, ranks // 16), min(16, ranks // 2), "100 Gbit/s", "1 us", 4.0)
    if part != "messages":
        return found
    random, graph = Random(1), found.graph.copy()
    for _, _, link in graph.edges(data=True):
        link["latency"] *= random.uniform(0.5, 1.5)
    return replace(found, graph=graph)
of_training = {"training": find_algorithm("all_reduce/ring"), "auto": auto("all_reduce")}
algorithm = of_training.get(name) or find_algorithm(name)
def run(ranks, cluster):
    if name in of_training:
        asked = resolve_training(Training(algorithm, compute=ComputePhases(0.06, 0.12, 0.005)), cluster, None)
        simcomm.train(asked, cluster, record=False, faults=faults or NO_FAULTS, engine="compiled")
        return 3 * unverified_schedule(asked.gradient_sync, ranks).messages
    if part == "changes":
        simcomm.run(algorithm, cluster, 1 << 26, record=False, faults=faults or NO_FAULTS, engine="compiled")
        return unverified_schedule(algorithm, ranks).messages
    asked = EngineInput(CollectiveCall(algorithm, 1 << 24), unverified_schedule(algorithm, ranks), cluster, Transport())
    return ((by_shortcut(asked) if part == "lockstep" else None) or by_events(asked)).messages
run(32, cluster_of(32))
by_events(EngineInput(CollectiveCall(find_algorithm("all_reduce/ring"), 64),
    unverified_schedule(find_algorithm("all_reduce/ring"), 8), cluster_of(8), Transport()))
cluster = cluster_of(ranks)
wall, cpu = time.perf_counter(), time.process_time()
messages = run(ranks, cluster)
print(json.dumps({"messages": messages, "cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall,
    "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}))
"""
Row = dict[str, Any]


class Case(NamedTuple):
    """One measurement. ``at_most_s`` is the goal in CPU seconds; 0: none."""

    part: str
    name: str
    cluster: str
    ranks: int
    wrong: str = ""
    at_most_s: float = 0.0


def cases(fewer: int) -> Iterator[Case]:
    """Yield all cases, with the numbers of ranks divided by ``fewer``."""
    for name in LOCKSTEP:
        yield from (Case("lockstep", name, "star", max(16, ranks // fewer)) for ranks in RANKS)
    for name, world_sizes in APART.items():
        yield from (Case("messages", name, "tree", max(4, ranks // fewer)) for ranks in world_sizes)
    for name, cluster, ranks, wrong, at_most_s in CHANGES:
        yield Case("changes", name, cluster, max(8, ranks // fewer), wrong, at_most_s)


def measure(case: Case, repetitions: int) -> Row:
    """Return the row of the repetition with the fewest CPU seconds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    call = [sys.executable, "-c", MEASURE, json.dumps(case[:-1])]
    runs = [json.loads(subprocess.check_output(call, env=environment, text=True)) for _ in range(repetitions)]
    best: Row = min(runs, key=lambda run: float(run["cpu_s"]))
    return {**case._asdict(), **best, "most_megabytes": MOST_MB}


def fits(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the slope of log CPU seconds over log ranks, or messages, for each name whose sizes are all measured."""
    by_name: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        by_name.setdefault((row["part"], row["name"]), []).append(row)
    for (part, name), sizes in by_name.items():
        if part == "changes" or len(sizes) < len(RANKS if part == "lockstep" else APART[name]):
            continue
        over, at_most = ("ranks", MOST_BY_RANKS) if part == "lockstep" else ("messages", MOST_BY_MESSAGES)
        seconds = np.maximum([row["cpu_s"] for row in sizes], LEAST_S)
        slope = float(np.polyfit(np.log([row[over] for row in sizes]), np.log(seconds), 1)[0])
        yield {"part": part, "name": name, "exponent": slope, "over": over, "at_most": at_most}


def describe(row: Row) -> str:
    """Return the row as a line, and whether its goal is met."""
    if "exponent" in row:
        verdict = "met" if row["exponent"] <= row["at_most"] else "MISSED"
        return f"{row['part']}: {row['name']}: {row['over']}^{row['exponent']:.2f}: {verdict}, goal {row['at_most']}"
    wrong = f" with {row['wrong']}" if row["wrong"] else ""
    times = f"{row['cpu_s']:.3f} s CPU, {row['wall_s']:.3f} s, {row['megabytes']:.0f} MB"
    goal = f", goal {row['at_most_s']:g} s" if row["at_most_s"] else ""
    return f"{row['part']}: {row['name']}, {row['cluster']}, {row['ranks']:,} ranks{wrong}: {times}{goal}"


def kept_rows(file: Path) -> dict[Case, Row]:
    """Return the measurements of a results file by case; none if it does not exist."""
    if not file.exists():
        return {}
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return {Case(*(row[name] for name in Case._fields)): row for row in rows if "exponent" not in row}


def write(file: Path, rows: Iterable[Row]) -> list[Row]:
    """Write the rows and the fits to them; return the fits."""
    answer: dict[str, Any] = {"schema_version": 1, "kind": "benchmark", "environment": describe_measurement()}
    rows = list(rows)
    fitted = list(fits(rows))
    answer["rows"] = rows + fitted
    write_text(file, json.dumps(answer, indent=2, allow_nan=False) + "\n")
    return fitted


def main() -> None:
    """Measure the selected cases, print a line for each row, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--parts", nargs="+", choices=("lockstep", "messages", "changes"), default=[])
    parser.add_argument("--only", default="", help="only algorithms, or kinds of run, with this in their names")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--fewer", type=int, default=1, help="so many times fewer ranks, to try it out")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin no measurement after so many")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--add", action="store_true", help="keep what the file has beside what is measured now")
    which.add_argument("--missing", action="store_true", help="measure what the file lacks, and keep the rest")
    options = parser.parse_args()
    possible, begun = list(cases(options.fewer)), monotonic()
    rows = kept_rows(options.output) if options.add or options.missing else {}
    todo = [case for case in possible if case.part in (options.parts or [case.part]) and options.only in case.name]
    todo = [case for case in todo if not (options.missing and case in rows)]
    while todo and monotonic() - begun < options.seconds:
        case = todo.pop(0)
        rows[case] = measure(case, options.repetitions)
        print(describe(rows[case]), flush=True)
        fitted = write(options.output, (rows[case] for case in possible if case in rows))
        for row in fitted if not todo else ():
            print(describe(row), flush=True)
    if todo:
        print(f"{len(todo)} measurements are left: go on with --missing", flush=True)


if __name__ == "__main__":
    main()
