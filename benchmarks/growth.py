"""How time grows with ranks and with messages, and what a small change of a scenario costs: CPU seconds and memory.

    python benchmarks/growth.py [--parts lockstep messages changes] [--only NAME] [--repetitions 3] [-o FILE]

Each measurement is a process of its own, which loads the code with a few ranks first and then counts from a schedule
that is not built to its timing: CPU seconds, the least of the repetitions, beside the seconds that passed; and the most
memory that it held. *Lockstep* is a symmetric star, on which all ranks of an algorithm do the same at the same time; an
exponent is the slope of log CPU seconds over log ranks. *Messages*: all links have latencies of their own, so that
nothing happens at the same time; an exponent is over log messages. *Changes* are runs beside the same without them.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from collectives.output_files import write_text
from collectives.records.environment import describe_environment

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "growth.json"
LOCKSTEP = (
    "all_reduce/ring",
    "all_reduce/recursive_doubling",
    "all_reduce/halving_doubling",
    "all_reduce/double_tree",
    "broadcast/binomial",
    "all_reduce/hierarchical",
    "all_reduce/torus",
)
RANKS = (1024, 4096, 16_384, 65_536)
APART = {  # ranks by algorithm
    "all_reduce/ring": (128, 256, 512, 1024),
    "all_to_all/pairwise": (64, 128, 256),
    "all_to_all/direct": (32, 64, 128),
    "all_reduce/double_tree": (1024, 4096, 16_384),
}
CHANGES = (  # what, ranks, and what goes wrong
    ("training", 512, ""),
    ("training", 512, "RankTrouble(3, fails_at=0.2)"),
    ("training", 512, "LinkTrouble(('h3', 's0'), 0.0, 0.2)"),
    ("training", 4096, "RankTrouble(3, fails_at=0.2)"),
    ("collective", 8192, ""),
    ("collective", 8192, "RankTrouble(3, fails_at=0.005)"),
    ("collective", 8192, "Jitter('uniform', 1e-6)"),
)
LEAST_S = 0.01  # below it a time is noise, and counts as so much
MOST_BY_RANKS, MOST_BY_MESSAGES, MOST_MB = 1.2, 1.1, 1000.0
MEASURE = """
import json, resource, sys, time
from dataclasses import replace
from random import Random
import simcomm
from collectives import Request, Transport, find_algorithm
from collectives.workload import ComputePhases, Training
from simcomm.compiled.engine import by_events, simulate
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.model.jitter import Jitter
from simcomm.model.trouble import NO_TROUBLE, LinkTrouble, RankTrouble, Trouble
from simcomm.schedules import unverified_schedule
part, name, ranks, wrong = json.loads(sys.argv[1])
trouble = eval(wrong) if wrong else None
kinds = {RankTrouble: "ranks", LinkTrouble: "links"}
if trouble is not None:
    of = kinds.get(type(trouble))
    trouble = Trouble(**{of: (trouble,)}) if of else Trouble(messages=trouble)
def cluster_of(ranks):
    if part != "messages":
        return simcomm.star(ranks, "100 Gbit/s", "1 us")
    found = simcomm.two_level_tree(max(2, ranks // 16), min(16, ranks // 2), "100 Gbit/s", "1 us", 4.0)
    random, graph = Random(1), found.graph.copy()
    for _, _, link in graph.edges(data=True):
        link["latency"] *= random.uniform(0.5, 1.5)
    return replace(found, graph=graph)
def run(ranks, cluster):
    ring = find_algorithm("all_reduce/ring" if part == "changes" else name)
    if name == "training":
        asked = Training(ring, compute=ComputePhases(0.06, 0.12, 0.005))
        simcomm.train(asked, cluster, record=False, trouble=trouble or NO_TROUBLE, engine="compiled")
        return 3 * 2 * (ranks - 1) * ranks
    if name == "collective":
        simcomm.run(ring, cluster, 1 << 26, record=False, trouble=trouble or NO_TROUBLE, engine="compiled")
        return 2 * (ranks - 1) * ranks
    asked = EngineInput(Request(ring, 1 << 24), unverified_schedule(ring, ranks), cluster, Transport())
    return (by_events if part == "messages" else simulate)(asked).messages
run(32, cluster_of(32))
by_events(EngineInput(Request(find_algorithm("all_reduce/ring"), 64),
    unverified_schedule(find_algorithm("all_reduce/ring"), 8), cluster_of(8), Transport()))
cluster = cluster_of(ranks)
wall, cpu = time.perf_counter(), time.process_time()
messages = run(ranks, cluster)
print(json.dumps({"messages": messages, "cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall,
    "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}))
"""
Row = dict[str, Any]


def measure(part: str, name: str, ranks: int, repetitions: int, wrong: str = "") -> Row:
    """Return the row of the repetition that took the least CPU seconds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    call = [sys.executable, "-c", MEASURE, json.dumps([part, name, ranks, wrong])]
    found = [json.loads(subprocess.check_output(call, env=environment, text=True)) for _ in range(repetitions)]
    best: Row = min(found, key=lambda one: float(one["cpu_s"]))
    row = {"part": part, "name": name, "ranks": ranks, "wrong": wrong, **best, "most_megabytes": MOST_MB}
    return row


def exponent(rows: list[Row], over: str, at_most: float) -> Row:
    """Return the slope of log CPU seconds over the logarithm of a column."""
    seconds = np.maximum([row["cpu_s"] for row in rows], LEAST_S)
    slope = float(np.polyfit(np.log([row[over] for row in rows]), np.log(seconds), 1)[0])
    return {"part": rows[0]["part"], "name": rows[0]["name"], "exponent": slope, "over": over, "at_most": at_most}


def lockstep(repetitions: int, fewer: int, only: str) -> Iterator[Row]:
    for name in (name for name in LOCKSTEP if only in name):
        rows = [measure("lockstep", name, max(16, ranks // fewer), repetitions) for ranks in RANKS]
        yield from rows
        yield exponent(rows, "ranks", MOST_BY_RANKS)


def messages(repetitions: int, fewer: int, only: str) -> Iterator[Row]:
    for name, world_sizes in ((name, ranks) for name, ranks in APART.items() if only in name):
        rows = [measure("messages", name, max(4, ranks // fewer), repetitions) for ranks in world_sizes]
        yield from rows
        yield exponent(rows, "messages", MOST_BY_MESSAGES)


def changes(repetitions: int, fewer: int, only: str) -> Iterator[Row]:
    for name, ranks, wrong in (change for change in CHANGES if only in change[0]):
        yield measure("changes", name, max(8, ranks // fewer), repetitions, wrong)


PARTS = {"lockstep": lockstep, "messages": messages, "changes": changes}


def describe(row: Row) -> str:
    """The row in a line, with whether its goal is met."""
    if "exponent" in row:
        verdict = "met" if row["exponent"] <= row["at_most"] else "MISSED"
        return f"{row['part']}: {row['name']}: {row['over']}^{row['exponent']:.2f}: {verdict}, goal {row['at_most']}"
    wrong = f" with {row['wrong']}" if row["wrong"] else ""
    times = f"{row['cpu_s']:.3f} s CPU, {row['wall_s']:.3f} s, {row['megabytes']:.0f} MB"
    return f"{row['part']}: {row['name']}, {row['ranks']:,} ranks{wrong}: {row['messages']:,} messages: {times}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--only", default="", help="only algorithms, or kinds of run, with this in their names")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--fewer", type=int, default=1, help="so many times fewer ranks, to try it out")
    asked = parser.parse_args()
    answer: dict[str, Any] = {"schema_version": 1, "kind": "benchmark", "environment": describe_environment()}
    rows: dict[str, list[Row]] = {}
    for part in asked.parts:
        rows[part] = []
        for each in PARTS[part](asked.repetitions, asked.fewer, asked.only):
            rows[part].append(each)
            print(describe(each), flush=True)
        answer["rows"] = list(chain.from_iterable(rows.values()))
        write_text(asked.output, json.dumps(answer, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
