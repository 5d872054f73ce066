"""Measure the speed of the engines, and compare it with the goals.

    python benchmarks/engine.py [--parts events reference commands] [--repetitions 5] [--fewer 1] [--add] [-o FILE]

A *command* is a whole process with warm caches on disk. Its memory is the peak. The rate of *events* is the number of
messages per second in the compiled event engine alone. The rate of the *simpy engine* is relative to the events per
second of simpy processes that only wait, measured in alternation. For both, code is loaded, the program is traced and
routes are known. Numbers are medians, and the spread is the range.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import simpy

import simcomm
from collectives import CollectiveCall, Transport, find_algorithm
from collectives.output_files import write_text
from collectives.records.environment import describe_measurement
from collectives.schedule.symbolic_build import build_compact
from collectives.step import Kind
from simcomm import Cluster
from simcomm.cluster.topologies import two_level_tree
from simcomm.compiled.engine import run_kernel
from simcomm.compiled.kernel.world import World
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.routes import make_link_records
from simcomm.reference.engine import Buffer, Simulation
from simcomm.schedules import verified_schedule

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "engine.json"
BANDWIDTH, LATENCY = "100 Gbit/s", "1 us"
ELEMENTS = 1 << 24  # of a buffer: 64 MiB
APART = "every latency different"
SCENARIO = """
title = "A ring on a star"
[cluster]
transport = "ideal"
{cluster}
[collective]
name = "all_reduce"
algorithms = ["ring"]
sizes = ["64 MiB"]
"""
STAR = 'topology = "star"\nhosts = {}\nbandwidth = "100 Gbit/s"\nlatency = "1 us"'
LINK = '[[cluster.link]]\nbetween = ["h{}", "s0"]\nbandwidth = "{:.3f} Gbit/s"\nlatency = "1 us"'
JITTER = """
[faults]
repetitions = 1
messages = { distribution = "uniform", mean = "1 us" }
"""
BY_EVENTS = """
import sys, simcomm
from collectives import CollectiveCall, Transport, find_algorithm
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.engine import by_events
from simcomm.schedules import compact_schedule
ranks, ring = int(sys.argv[1]), find_algorithm("all_reduce/ring")
star = simcomm.star(ranks, "100 Gbit/s", "1 us")
print(by_events(EngineInput(CollectiveCall(ring, 1 << 24), compact_schedule(ring, ranks), star, Transport())).elapsed)
"""


Row = dict[str, Any]


def row(part: str, name: str, unit: str, values: list[float], **goal: float) -> Row:
    """Return a measured row: the median, the range, and the goal ``at_most`` or ``at_least``, if any."""
    figures = {"measured": median(values), "spread": [min(values), max(values)]}
    return {"part": part, "name": name, "unit": unit, **figures, **goal}


def command(arguments: list[str], repetitions: int) -> tuple[list[float], float]:
    """Return the seconds of each run of a command with warm caches, and the peak memory in MB."""
    seconds, most = [], 0.0
    for number in range(repetitions + 1):
        begin = perf_counter()
        child = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0, f"{arguments} ended with status {child.returncode}"
        if number:
            seconds.append(perf_counter() - begin)
            most = max(most, usage.ru_maxrss * 1024 / 1e6)
    return seconds, most


def both(name: str, arguments: list[str], repetitions: int, megabytes: float, **goal: float) -> Iterator[Row]:
    """Return the rows of a command's seconds and memory."""
    seconds, most = command(arguments, repetitions)
    yield row("commands", name, "s", seconds, **goal)
    yield row("commands", f"{name}: memory", "MB", [most], at_most=megabytes)


def commands(repetitions: int, fewer: int) -> Iterator[Row]:
    predict, (small, large) = ["-m", "ringlab", "predict"], (1024 // fewer, 16384 // fewer)
    random = Random(1)
    links = "\n".join(LINK.format(host, random.uniform(50, 150)) for host in range(large))
    with tempfile.TemporaryDirectory() as folder:

        def scenario(name: str, cluster: str, faults: str = "") -> str:
            path = Path(folder) / f"{name}.toml"
            path.write_text(SCENARIO.format(cluster=cluster) + faults)
            return str(path)

        ring = "ring all-reduce, {} ranks on a star"
        name = f"predict a {ring}".format
        small_star, large_star = scenario("small", STAR.format(small)), scenario("large", STAR.format(large))
        yield from both(name(small), [*predict, small_star], repetitions, 400.0, at_most=1.0)
        yield from both(name(large), [*predict, large_star], repetitions, 1000.0, at_most=2.0)
        different = [*predict, scenario("different", links)]
        yield from both(f"{name(large)}, every NIC different", different, repetitions, 1000.0, at_most=5.0)
        jittered = [*predict, scenario("jittered", STAR.format(large), JITTER)]
        yield from both(f"{name(large)}, uniform jitter", jittered, repetitions, 1000.0, at_most=5.0)
        by_events = f"simulate a {ring.format(small)}, every message by events"
        yield from both(by_events, ["-c", BY_EVENTS, str(small)], repetitions, 400.0)
    yield row("commands", "predict the scenario star8", "s", command([*predict, "star8"], repetitions)[0], at_most=1.0)
    yield row("commands", "ringlab --help", "s", command(["-m", "ringlab", "--help"], repetitions)[0], at_most=0.3)


def with_latencies(cluster: Cluster) -> Cluster:
    """Return the cluster with a different latency on every link."""
    random, graph = Random(1), cluster.graph.copy()
    for _, _, link in graph.edges(data=True):
        link["latency"] *= random.uniform(0.5, 1.5)
    return replace(cluster, graph=graph)


class Events:
    """One program on one cluster, prepared for the event engine alone, without max-plus."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        algorithm = find_algorithm(name)
        schedule = build_compact(algorithm, cluster.world_size)
        inputs = EngineInput(CollectiveCall(algorithm, ELEMENTS), schedule, cluster, Transport())
        self.plan, self.links = inputs.schedule_plan.plan, make_link_records(inputs.routes, inputs.private)

    def run(self, messages: bool = False) -> World:
        """Run it once."""
        return run_kernel(self.plan, self.links, messages=messages)

    def rates(self, repetitions: int) -> list[float]:
        """Return the messages per second of each run."""
        self.run()
        return [len(self.plan.messages) / _seconds(self.run) for _ in range(repetitions)]

    def share_apart(self) -> float:
        """Return the share of messages that end at a different time from all others."""
        ends = np.sort(self.run(messages=True).end)
        gaps = np.diff(ends, prepend=-1.0, append=np.inf) > 1e-12 * ends[-1]
        return float((gaps[1:] & gaps[:-1]).mean())


def _seconds(call: Callable[[], object]) -> float:
    begin = perf_counter()
    call()
    return perf_counter() - begin


def events(repetitions: int, fewer: int) -> Iterator[Row]:
    star = simcomm.star(1024 // fewer, BANDWIDTH, LATENCY)
    leaves = max(2, 16 // fewer)
    tree = two_level_tree(leaves, 16, BANDWIDTH, LATENCY, 4.0)
    on_star, on_tree = f"{star.world_size} ranks on a star", f"{tree.world_size} ranks on a tree, 4:1"
    cases: tuple[tuple[str, str, Cluster, float, dict[str, float]], ...] = (
        ("all_reduce/ring", f"ring all-reduce, {on_star}", star, 10e6, {"at_least": 2.5e6}),
        ("all_to_all/direct", f"direct all-to-all, {on_tree}", tree, 4e6, {"at_least": 1e6}),
        ("all_to_all/pairwise", f"pairwise all-to-all, {on_tree}", tree, 4e6, {"at_least": 1e6}),
    )
    for name, title, cluster, goal, goal_apart in cases:
        yield row("events", title, "messages/s", Events(name, cluster).rates(repetitions), at_least=goal)
        title, ready = f"{title}, {APART}", Events(name, with_latencies(cluster))
        rates = ready.rates(repetitions)
        yield row("events", title, "messages/s", rates, **goal_apart)
        if name == "all_to_all/direct":
            seconds = [len(ready.plan.messages) / rate for rate in rates]
            yield row("events", f"{title}: whole simulation", "s", seconds, at_most=10.0)
        yield row("events", f"{title}: share of messages with a unique end time", "", [ready.share_apart()])


def bare_rate(processes: int = 64, waits: int = 2000) -> float:
    """Return the events per second of simpy with processes that only wait."""

    def wait(env: simpy.Environment) -> Iterator[simpy.Event]:
        for _ in range(waits):
            yield env.timeout(1.0)

    env = simpy.Environment()
    for _ in range(processes):
        env.process(wait(env))
    return _drained(env)[0]


def _drained(env: simpy.Environment) -> tuple[float, int]:
    """Return the events per second until none is left, and their number. Garbage collection ignores older objects."""
    gc.collect()
    gc.freeze()
    number, begin = 0, perf_counter()
    while env.peek() < float("inf"):
        env.step()
        number += 1
    seconds = perf_counter() - begin
    gc.unfreeze()
    return number / seconds, number


def collective_rate(name: str, cluster: Cluster) -> tuple[float, float]:
    """Return the events and messages per second of the simpy engine."""
    schedule = verified_schedule(find_algorithm(name), cluster.world_size)
    simulation = Simulation(cluster, Transport())
    for rank, programs in enumerate(schedule.programs):
        buffer = Buffer(schedule.algorithm, cluster.world_size, ELEMENTS, 4, None)
        simulation.env.process(simulation.collective(rank, programs, buffer, "sum"))
    sends = schedule.kind == Kind.SEND
    for src, dst in zip(schedule.rank[sends].tolist(), schedule.peer[sends].tolist(), strict=True):
        simulation.network.route(cluster.hosts[src], cluster.hosts[dst])
    rate, number = _drained(simulation.env)
    return rate, rate * len(simulation.messages) / number


def reference(repetitions: int, fewer: int) -> Iterator[Row]:
    """Measure the simpy engine's events per second and simpy's own, in alternation."""
    star = simcomm.star(max(2, 64 // fewer), BANDWIDTH, LATENCY)
    tree = two_level_tree(max(2, 8 // fewer), 8, BANDWIDTH, LATENCY, 4.0)
    ring = ("all_reduce/ring", f"ring all-reduce, {star.world_size} ranks on a star")
    pairwise = ("all_to_all/pairwise", f"pairwise all-to-all, {tree.world_size} ranks on a tree, 4:1")
    bare = []
    for (name, title), cluster in ((ring, star), (pairwise, tree)):
        for case, that in ((cluster, title), (with_latencies(cluster), f"{title}, {APART}")):
            shares, messages = [], []
            for _ in range(repetitions):
                bare.append(bare_rate())
                rate, by_messages = collective_rate(name, case)
                shares.append(rate / bare[-1])
                messages.append(by_messages)
            yield row("reference", f"{that}: events/s relative to bare simpy events", "", shares, at_least=0.25)
            yield row("reference", that, "messages/s", messages)
    yield row("reference", "bare simpy events", "events/s", bare)


PARTS = {"events": events, "reference": reference, "commands": commands}


def describe(row: Row) -> str:
    """Return the row as a line, and whether its goal is met."""
    low, high = row["spread"]
    goal = row.get("at_most", row.get("at_least"))
    is_met = row.get("at_least", low) <= row["measured"] <= row.get("at_most", high)
    verdict = "" if goal is None else f": {'met' if is_met else 'MISSED'}, goal {goal:,.4g}"
    return f"{row['part']}: {row['name']}: {row['measured']:,.4g} {row['unit']} ({low:,.4g} to {high:,.4g}){verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--fewer", type=int, default=1, help="so many times fewer ranks, to try it out: without goals")
    parser.add_argument("--add", action="store_true", help="keep the file's parts that are not measured again")
    options = parser.parse_args()
    answer: dict[str, Any] = {"schema_version": 1, "kind": "benchmark", "environment": describe_measurement()}
    known = (
        json.loads(options.output.read_text()) if options.add and options.output.exists() else {**answer, "rows": []}
    )
    if any(known[key] != answer[key] for key in answer):
        parser.error(f"{options.output} was measured elsewhere, or with other versions; measure it all again")
    rows = {part: [each for each in known["rows"] if each["part"] == part] for part in PARTS}
    for part in options.parts:
        rows[part] = []
        for each in PARTS[part](options.repetitions, options.fewer):
            row = each if options.fewer == 1 else {k: v for k, v in each.items() if not k.startswith("at_")}
            rows[part].append(row)
            print(describe(row), flush=True)
        answer["rows"] = list(chain.from_iterable(rows.values()))
        write_text(options.output, json.dumps(answer, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
