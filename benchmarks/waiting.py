"""Measure the wall and CPU seconds of commands, and of a thousand predictions.

    python benchmarks/waiting.py [--repetitions 5] [--parts start cliffs peers calls] [-o FILE]

Each row runs in its own process, so imports and loading machine code count. The thousand predictions are 8 numbers of
hosts, 5 bandwidths, 5 algorithms and 5 sizes on a star: one by one by ``simcomm.run``.
*Cliffs* are commands that were once much slower than similar ones: a ring with unequal chunks, and direct exchanges by
gloo over TCP. *Peers* are the peers of a direct all-to-all in a user's file, computed from their distance or number.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from collectives.output_files import write_text
from collectives.records.environment import describe_measurement

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "waiting.json"
HOSTS = (2, 4, 8, 16, 32, 64, 128, 256)
PREDICTIONS = """if True:
    import sys
    import simcomm
    names = ("ring", "double_tree", "recursive_doubling", "halving_doubling", "naive")
    algorithms, sizes = [f"all_reduce/{name}" for name in names], [1 << 10, 1 << 15, 1 << 20, 1 << 25, 1 << 28]
    hosts = [int(number) for number in sys.argv[2:]]
    stars = [simcomm.star(p, f"{b} Gbit/s", "5 us") for p in hosts for b in (1, 10, 25, 100, 400)]
    ask = {"record": False, "engine": sys.argv[1] if sys.argv[1] != "run" else None}
    found = [simcomm.run(a, c, s, **ask).elapsed for c in stars for a in algorithms for s in sizes]
    assert len(found) == 125 * len(hosts)
"""
PROGRAM = """
from collectives import algorithm, recv, send

@algorithm("all_to_all", name="by_distance")
def by_distance(rank, world_size):
    peers = [((rank + k) % world_size, (rank - k) % world_size) for k in range(1, world_size)]
    yield tuple(operation for to, source in peers for operation in (send(to, to), recv(source, source)))

@algorithm("all_to_all", name="by_number")
def by_number(rank, world_size):
    peers = [peer for peer in range(world_size) if peer != rank]
    yield tuple(operation for peer in peers for operation in (send(peer, peer), recv(peer, peer)))
"""
SCENARIO = """
cluster = {{ topology = "star", hosts = {ranks}, bandwidth = "100 Gbit/s", latency = "1 us", transport = "ideal" }}
collective = {{ name = "all_to_all", algorithms = ["program.py:{name}"], sizes = ["1 MiB"] }}
"""
RING = """
cluster = {{ topology = "star", hosts = {hosts}, bandwidth = "100 Gbit/s", latency = "5 us", transport = "ideal" }}
[training]
model = "resnet50"
dataset = "digits"
gradient_sync = "ring"
compute = {{ forward = "25 ms", backward = "78 ms", optimizer = "7 ms" }}
"""
DIRECT = """
cluster = { topology = "star", hosts = 128, bandwidth = "10 Gbit/s", latency = "5 us", transport = "gloo-tcp" }
collective = { name = "all_reduce", algorithms = ["direct"], sizes = ["64 MiB"] }
"""
WAYS = {
    "compiled": "simcomm.run one by one, the compiled engine",
    "run": "simcomm.run one by one",
}
Row = dict[str, Any]
BYTECODE = TemporaryDirectory(prefix="ringlab-waiting-")


def row(part: str, name: str, arguments: Sequence[str], repetitions: int, **goal: float) -> Row:
    """Return the median wall and CPU seconds of a command with their range, without the first of several runs."""
    wall, cpu = list[float](), list[float]()
    first_counts = repetitions == 1  # the first run fills the caches of the disk
    for number in range(repetitions + (not first_counts)):
        begin, before = perf_counter(), getrusage(RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], cwd=ROOT, env=_environment(), check=True, capture_output=True)
        after = getrusage(RUSAGE_CHILDREN)
        if number or first_counts:
            wall.append(perf_counter() - begin)
            cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    seconds = {"wall_s": median(wall), "wall_spread_s": [min(wall), max(wall)]}
    processor = {"cpu_s": median(cpu), "cpu_spread_s": [min(cpu), max(cpu)]}
    return {"part": part, "name": name, "repetitions": repetitions, **seconds, **processor, **goal}


def _environment() -> dict[str, str]:
    """Return an environment in which Python caches bytecode, as for an installed package."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**variables, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": BYTECODE.name}


def start(options: argparse.Namespace) -> Iterator[Row]:
    """Yield rows of commands that answer at once."""
    for words, goal in ((("--help",), 0.1), (("predict", "star8"), 0.3), (("predict", "faults"), 1.0)):
        yield row("start", f"ringlab {' '.join(words)}", ["-m", "ringlab", *words], options.repetitions, at_most_s=goal)


def cliffs(options: argparse.Namespace) -> Iterator[Row]:
    """Yield rows of commands that were once much slower than similar ones."""
    with TemporaryDirectory(prefix="ringlab-waiting-") as folder:
        for hosts, goal in ((16384, 3.0), (65536, 12.0)):
            scenario = Path(folder, f"{hosts}.toml")
            scenario.write_text(RING.format(hosts=hosts), encoding="utf-8")
            name = f"ringlab predict: ResNet-50 by a ring of {hosts:,} ranks"
            yield row("cliffs", name, ["-m", "ringlab", "predict", str(scenario)], options.repetitions, at_most_s=goal)
        scenario = Path(folder, "direct.toml")
        scenario.write_text(DIRECT, encoding="utf-8")
        calibration = _calibrate(scenario, Path(folder))
        name = "ringlab predict: direct on 128 hosts with TCP terms"
        words = ["predict", str(scenario), "--calibration", str(calibration)]
        yield row("cliffs", name, ["-m", "ringlab", *words], options.repetitions, at_most_s=4.0)


def _calibrate(scenario: Path, folder: Path) -> Path:
    """Calibrate for a scenario, even on a noisy machine; return the calibration's file in the folder."""
    call = [sys.executable, "-m", "ringlab", "calibrate", str(scenario), "--accept-noise"]
    environment = {**_environment(), "XDG_CACHE_HOME": str(folder)}
    subprocess.run(call, cwd=ROOT, env=environment, check=True, capture_output=True)
    (calibration,) = folder.glob("ringlab/calibration-*.json")
    return calibration


def peers(options: argparse.Namespace) -> Iterator[Row]:
    """Yield rows of two programs: one computes its peers from a distance, and one from rank numbers."""
    with TemporaryDirectory(prefix="ringlab-waiting-") as folder:
        Path(folder, "program.py").write_text(PROGRAM, encoding="utf-8")
        for name in ("by_distance", "by_number"):
            scenario = Path(folder, f"{name}.toml")
            scenario.write_text(SCENARIO.format(ranks=options.ranks, name=name), encoding="utf-8")
            called = f"ringlab predict: direct on {options.ranks} ranks, peers {name.replace('_', ' ')}"
            call = ["-m", "ringlab", "predict", str(scenario)]
            yield row("peers", called, call, options.repetitions, at_most_s=0.8)


def calls(options: argparse.Namespace) -> Iterator[Row]:
    """Yield rows of the thousand predictions: 125 for each number of hosts in the options."""
    for way in options.ways:
        name = f"{125 * len(options.hosts):,} predictions: {WAYS[way]}"
        yield row("calls", name, ["-c", PREDICTIONS, way, *map(str, options.hosts)], options.repetitions)


PARTS = {"start": start, "cliffs": cliffs, "peers": peers, "calls": calls}


def main() -> None:
    """Measure, print a line for each row, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="of making the predictions")
    parser.add_argument("--hosts", nargs="+", type=int, default=HOSTS, help="of the stars of the predictions")
    parser.add_argument("--ranks", type=int, default=512, help="of the programs whose peers are told")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    rows = list[Row]()
    for part in options.parts:
        for each in PARTS[part](options):
            rows.append(each)
            goal = f", goal {each['at_most_s']:g} s" if "at_most_s" in each else ""
            print(f"{each['name']}: {each['wall_s']:.3f} s, {each['cpu_s']:.3f} s of a core{goal}", flush=True)
    answer = {"schema_version": 1, "kind": "benchmark", "environment": describe_measurement(), "rows": rows}
    write_text(options.output, json.dumps(answer, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
