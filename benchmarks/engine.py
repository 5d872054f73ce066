"""How fast the engines are: every goal beside what was measured here.

    python benchmarks/engine.py [-o benchmarks/results/engine.json] [--repetitions 5]

A *command* is a whole process, from its start to its answer, once the caches on disk are warm; its memory is the most
that it held. An *engine* rate is messages through the event engine alone, by the second, with its code loaded and the
program traced. Numbers are medians; the spread beside them goes from the best to the worst.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

import simpy
from rich.console import Console
from rich.table import Table

import simcomm
from collectives import Transport, find_algorithm
from collectives.atomic import write_text
from collectives.environment import environment
from collectives.step import Kind
from collectives.tracing import trace_cyclic, trace_table
from simcomm import Cluster
from simcomm.builders import two_level_tree
from simcomm.compiled.question import Question
from simcomm.compiled.wires import wired
from simcomm.compiled_engine import simulate
from simcomm.programs import checked
from simcomm.simpy_engine import Buffer, Simulation

ROOT = Path(__file__).parent.parent
ELEMENTS = 1 << 24  # of a buffer: 64 MiB
RING = """
title = "A ring on a star"
[cluster]
topology = "star"
hosts = {hosts}
bandwidth = "100 Gbit/s"
latency = "1 us"
transport = "ideal"
[collective]
name = "all_reduce"
algorithms = ["ring"]
sizes = ["64 MiB"]
"""
DIFFERENT = """
import sys
from random import Random
import simcomm
from simcomm.jitter import Jitter
from simcomm.trouble import NONE, Trouble
random, cluster = Random(1), simcomm.star(16384, "100 Gbit/s", "1 us")
trouble = NONE
if sys.argv[1] == "nic":
    for _, _, link in cluster.graph.edges(data=True):
        link["bandwidth"] *= random.uniform(0.5, 1.5)
else:
    trouble = Trouble(messages=Jitter("uniform", 1e-6), seed=1)
trace = simcomm.run("all_reduce/ring", cluster, 1 << 26, trouble=trouble, engine="compiled", record=False)
print(trace.elapsed, trace.way)
"""


@dataclass(frozen=True)
class Row:
    """One thing that was measured: the median and its spread, and what it should be at most, or at least."""

    name: str
    unit: str
    measured: float
    best: float
    worst: float
    goal: float
    at_most: bool

    @property
    def is_met(self) -> bool:
        return self.measured <= self.goal if self.at_most else self.measured >= self.goal


def at_most(name: str, unit: str, goal: float, values: list[float]) -> Row:
    return Row(name, unit, median(values), min(values), max(values), goal, True)


def at_least(name: str, unit: str, goal: float, values: list[float]) -> Row:
    return Row(name, unit, median(values), max(values), min(values), goal, False)


def command(arguments: list[str], repetitions: int) -> tuple[list[float], float]:
    """Seconds of each run of a command after one that warms the caches, and the most MB that one held."""
    seconds, most = [], 0.0
    for number in range(repetitions + 1):
        begin = perf_counter()
        child = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0, f"{arguments} ended with status {child.returncode}"
        if number:
            seconds.append(perf_counter() - begin)
            most = max(most, usage.ru_maxrss * 1024 / 1e6)
    return seconds, most


def commands(repetitions: int) -> Iterator[Row]:
    ringlab = [sys.executable, "-m", "ringlab"]
    with tempfile.TemporaryDirectory() as folder:
        for hosts, goal, megabytes in ((1024, 1.0, 400.0), (16384, 2.0, 1000.0)):
            path = Path(folder) / f"ring{hosts}.toml"
            path.write_text(RING.format(hosts=hosts))
            seconds, most = command([*ringlab, "predict", str(path)], repetitions)
            yield at_most(f"predict a ring all-reduce, {hosts} ranks on a star", "s", goal, seconds)
            yield at_most(f"predict a ring all-reduce, {hosts} ranks on a star: memory", "MB", megabytes, [most])
        path = Path(folder) / "ring1024.toml"
        by_events = [*ringlab, "predict", str(path), "--trace", str(Path(folder) / "small.trace.json")]
        small = [*by_events[:4], "--set", "cluster.hosts=8", "--engine", "compiled", *by_events[4:]]
        seconds, _ = command(small, repetitions)
        yield at_most("predict 8 ranks by events, with a trace: loads the machine code", "s", 2.0, seconds)
    for name, what in (("nic", "every NIC different"), ("jitter", "every message jittered")):
        seconds, most = command([sys.executable, "-c", DIFFERENT, name], repetitions)
        yield at_most(f"simulate a ring all-reduce, 16384 ranks, {what}", "s", 5.0, seconds)
        yield at_most(f"simulate a ring all-reduce, 16384 ranks, {what}: memory", "MB", 1000.0, [most])
    seconds, _ = command([*ringlab, "predict", "star8"], repetitions)
    yield at_most("predict the scenario star8", "s", 1.0, seconds)
    seconds, _ = command([*ringlab, "--help"], repetitions)
    yield at_most("ringlab --help", "s", 0.3, seconds)


def with_latencies(cluster: Cluster) -> Cluster:
    """The same with another latency on every link, so that no two messages meet."""
    random, graph = Random(1), cluster.graph.copy()
    for _, _, link in graph.edges(data=True):
        link["latency"] *= random.uniform(0.5, 1.5)
    return replace(cluster, graph=graph)


def event_rates(name: str, cluster: Cluster, repetitions: int) -> list[float]:
    """Messages a second through the event engine alone, short cuts or not."""
    algorithm = find_algorithm(name)
    program = trace_cyclic(algorithm, cluster.world_size) or trace_table(algorithm, cluster.world_size)
    question = Question(program, cluster, Transport(), ELEMENTS, 4)
    plan, wires = question.demand.plan, wired(question.routes, question.private)
    simulate(plan, wires)
    return [len(plan.messages) / _seconds(lambda: simulate(plan, wires)) for _ in range(repetitions)]


def _seconds(call: Callable[[], object]) -> float:
    begin = perf_counter()
    call()
    return perf_counter() - begin


def engines(repetitions: int) -> Iterator[Row]:
    star, tree = simcomm.star(1024, "100 Gbit/s", "1 us"), two_level_tree(16, 16, "100 Gbit/s", "1 us", 4.0)
    apart = "every latency different"
    rates = event_rates("all_reduce/ring", star, repetitions)
    yield at_least("events: ring all-reduce, 1024 ranks on a star", "messages/s", 10e6, rates)
    rates = event_rates("all_reduce/ring", with_latencies(star), repetitions)
    yield at_least(f"events: ring all-reduce, 1024 ranks on a star, {apart}", "messages/s", 2.5e6, rates)
    for name, said in (("naive", "direct"), ("pairwise", "pairwise")):
        rates = event_rates(f"all_to_all/{name}", tree, 4 * repetitions)
        yield at_least(f"events: {said} all-to-all, 256 ranks on a tree, 4:1", "messages/s", 4e6, rates)
    rates = event_rates("all_to_all/pairwise", with_latencies(tree), repetitions)
    yield at_least(f"events: pairwise all-to-all, 256 ranks on a tree, 4:1, {apart}", "messages/s", 1e6, rates)
    seconds = [256 * 255 / rate for rate in event_rates("all_to_all/naive", with_latencies(tree), 2)]
    yield at_most(f"events: direct all-to-all, 256 ranks on a tree, 4:1, {apart}", "s", 10.0, seconds)


def bare_rate(processes: int = 64, turns: int = 2000) -> float:
    """Events a second of simpy with processes that do nothing but wait."""

    def wait(env: simpy.Environment) -> Iterator[simpy.Event]:
        for _ in range(turns):
            yield env.timeout(1.0)

    env = simpy.Environment()
    for _ in range(processes):
        env.process(wait(env))
    return _drained(env)[0]


def _drained(env: simpy.Environment) -> tuple[float, int]:
    """Events a second until none is left, and how many there were; the collector looks at what the run makes only."""
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
    """Events and messages a second of the simpy engine."""
    schedule = checked(find_algorithm(name), cluster.world_size)
    simulation = Simulation(cluster, Transport())
    for rank, programs in enumerate(schedule.programs):
        buffer = Buffer(schedule.algorithm, cluster.world_size, ELEMENTS, 4, None)
        simulation.env.process(simulation.collective(rank, programs, buffer, "sum"))
    sends = schedule.kind == Kind.SEND
    for src, dst in zip(schedule.rank[sends].tolist(), schedule.peer[sends].tolist(), strict=True):
        simulation.network.way(cluster.hosts[src], cluster.hosts[dst])
    rate, number = _drained(simulation.env)
    return rate, rate * len(simulation.messages) / number


def reference(repetitions: int) -> Iterator[Row]:
    """The simpy engine's events beside simpy's own, in turns."""
    cases = (
        ("ring all-reduce, 64 ranks on a star", "all_reduce/ring", simcomm.star(64, "100 Gbit/s", "1 us")),
        (
            "pairwise all-to-all, 64 ranks on a tree, 4:1",
            "all_to_all/pairwise",
            two_level_tree(8, 8, "100 Gbit/s", "1 us", 4.0),
        ),
    )
    for said, name, cluster in cases:
        shares, messages, bare = [], [], []
        for _ in range(repetitions):
            bare.append(bare_rate())
            events, rate = collective_rate(name, cluster)
            shares.append(events / bare[-1])
            messages.append(rate)
        yield at_least(f"simpy engine: {said}: its events a second by simpy's own", "", 0.25, shares)
        yield at_least(f"simpy engine: {said}", "messages/s", 0.0, messages)
    yield at_least("simpy's own bare events", "events/s", 0.0, bare)


def show(rows: list[Row]) -> None:
    table = Table("what", "goal", "measured", "best to worst", "", title="The engines")
    for row in rows:
        sign, nothing = ("<=" if row.at_most else ">="), row.goal == 0
        goal = "" if nothing else f"{sign} {row.goal:,.4g} {row.unit}"
        verdict = "" if nothing else "met" if row.is_met else "missed"
        table.add_row(row.name, goal, f"{row.measured:,.4g}", f"{row.best:,.4g} to {row.worst:,.4g}", verdict)
    Console(width=150).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks" / "results" / "engine.json")
    parser.add_argument("--repetitions", type=int, default=5)
    asked = parser.parse_args()
    parts = (engines, reference, commands)
    rows = [row for part in parts for row in part(asked.repetitions)]
    answer = {"schema_version": 1, "kind": "benchmark", "environment": environment(), "rows": [asdict(r) for r in rows]}
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    write_text(asked.output, json.dumps(answer, indent=2) + "\n")
    show(rows)


if __name__ == "__main__":
    main()
