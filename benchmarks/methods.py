"""Measure the seconds of each method of the compiled engine, max-plus and events, by schedule and cluster.

    python benchmarks/methods.py [--ranks 1024 4096] [--repetitions 3] [-o FILE]

The minimum over the repetitions counts. All code is loaded, the schedule is built and the routes are known. Building
the schedule and finding the routes are timed separately. A method that does not apply, or that exceeds the memory
limit, has no time.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import simcomm
from collectives import CollectiveCall, Transport, find_algorithm, library
from collectives.budget import Gigabyte
from collectives.errors import TooLarge
from collectives.output_files import write_text
from collectives.records.environment import describe_measurement
from collectives.schedule.symbolic_build import AnySchedule, build_compact, build_symmetric
from collectives.schedule.symmetric import SymmetricSchedule
from simcomm import Cluster
from simcomm.cluster.placement import place_round_robin
from simcomm.compiled.engine import Timing, by_events, by_max_plus
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.schedule_plan import cyclic_pairs

RESULTS = Path(__file__).parent / "results" / "methods.json"
BANDWIDTH, LATENCY = "100 Gbit/s", "1 us"
ELEMENTS = 1 << 24  # of a buffer: 64 MiB
MOST = Gigabyte.MESSAGES  # pairs, beyond which routes are not looked for
LONG = 0.5  # seconds
MOST_ASKED = 1024  # ranks for schedules that are not cyclic
NAMES = (
    "all_reduce/ring",
    "all_reduce/bidirectional_ring",
    "all_reduce/direct",
    "all_reduce/halving_doubling",
    "all_reduce/recursive_doubling",
    "all_reduce/hierarchical",
    "all_reduce/torus",
    "all_reduce/double_tree",
    "all_to_all/direct",
    "all_to_all/pairwise",
    "barrier/dissemination",
)
METHODS: dict[str, Callable[[EngineInput], Timing | None]] = {"max-plus": by_max_plus, "events": by_events}
Row = dict[str, Any]


def clusters(ranks: int) -> Iterator[tuple[str, Cluster]]:
    """Yield clusters with this many hosts, by name."""
    yield "star", simcomm.star(ranks, BANDWIDTH, LATENCY)
    tree = simcomm.two_level_tree(ranks // 16, 16, BANDWIDTH, LATENCY, 4.0)
    yield "tree 4:1", tree
    yield "tree 4:1, round robin", place_round_robin(tree)
    for ports in (ports for ports in range(2, 100, 2) if ports**3 // 4 == ranks):
        yield "fat tree", simcomm.fat_tree(ports, BANDWIDTH, LATENCY)


def seconds(call: Callable[[], object]) -> float:
    """Return the duration of a call."""
    begin = perf_counter()
    call()
    return perf_counter() - begin


def build(name: str, ranks: int) -> AnySchedule | None:
    """Return the schedule, or None if building it or finding its routes would take minutes."""
    algorithm = find_algorithm(name)
    schedule: AnySchedule | None = build_symmetric(algorithm, ranks)
    schedule = schedule or (build_compact(algorithm, ranks).table() if ranks <= MOST_ASKED else None)
    if isinstance(schedule, SymmetricSchedule) and len(cyclic_pairs(schedule).src) > MOST:
        return None
    return schedule


def measure(name: str, schedule: AnySchedule, where: str, cluster: Cluster, repetitions: int) -> Row:
    """Return the seconds of both methods on one cluster, and the method that the engine picks."""
    problem = EngineInput(CollectiveCall(find_algorithm(name), ELEMENTS), schedule, cluster, Transport())

    def ready() -> EngineInput:
        """Return the input with nothing worked out but its pairs and routes."""
        fresh = replace(problem)
        fresh.derived.update((name, problem.derived[name]) for name in ("pairs", "found_routes"))
        return fresh

    row: Row = {"algorithm": name, "cluster": where, "ranks": cluster.world_size, "messages": problem.posted}
    row["routes"] = seconds(lambda: problem.routes)
    for method, call in METHODS.items():
        row[method] = least_seconds(call, ready, repetitions)
    row["taken"] = next((method for method in METHODS if row[method] is not None), "none: it is refused for its size")
    return row


def least_seconds(
    call: Callable[[EngineInput], Timing | None], ready: Callable[[], EngineInput], repetitions: int
) -> float | None:
    """Return the minimum time of a method, timed once if it is slow; None if it does not apply or is rejected."""
    times = list[float]()
    while len(times) < repetitions and (not times or times[-1] < LONG):
        problem = ready()
        begin = perf_counter()
        try:
            applies = call(problem) is not None
        except TooLarge:
            applies = False
        times.append(perf_counter() - begin)
        if not applies:
            return None
    return min(times)


def load_code() -> None:
    """Call both methods once, so that their code is compiled and loaded."""
    schedule = build("all_reduce/ring", 16)
    assert schedule is not None
    for _, cluster in clusters(16):
        graph = cluster.graph.copy()
        graph.edges["h0", "s0"]["latency"] *= 2
        for each in (cluster, replace(cluster, graph=graph)):
            measure("all_reduce/ring", schedule, "", each, 1)


def rows(ranks: int, repetitions: int) -> Iterator[Row]:
    """Yield the rows of all schedules on all clusters."""
    for name in NAMES:
        if name not in library():
            continue
        begin = perf_counter()
        schedule = build(name, ranks)
        built = perf_counter() - begin
        for where, cluster in clusters(ranks) if schedule is not None else ():
            assert schedule is not None
            yield {**measure(name, schedule, where, cluster, repetitions), "build": built}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--ranks", nargs="+", type=int, default=[1024, 4096])
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    answer: dict[str, Any] = {
        "schema_version": 1,
        "kind": "benchmark",
        "environment": describe_measurement(),
        "rows": [],
    }
    load_code()
    for ranks in options.ranks:
        for row in rows(ranks, options.repetitions):
            answer["rows"].append(row)
            print(json.dumps(row), flush=True)
    write_text(options.output, json.dumps(answer, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
