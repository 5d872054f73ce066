"""Compare the speed of two checkouts of Ringlab, in alternation.

    python benchmarks/side_by_side.py --before COMMIT [--after FOLDER] [--parts ...] [--only ...] [--rounds 5] [--add]

``--before`` also accepts the folder of a checkout.

Each round runs every task once in each checkout, in alternating order. *Commands* are whole processes, in CPU seconds.
*Calls* and *ranks* are calls of public functions in a process that is new in each round: the first call, which traces,
proves and routes, and the fastest later call. Calls are in CPU seconds, and ranks in elapsed seconds. The ratio of the
times after and before is the median over the rounds, and its spread is the range. A round that is not measured warms
the caches.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "side_by_side.json"
AT_LEAST_S, AT_MOST = 0.3, 200  # seconds and calls of one piece of work after its first call
ALLOWED = 1.05  # times the seconds of before
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
JITTER = '\n[{}]\nrepetitions = 1\nmessages = {{ distribution = "uniform", mean = "1 us" }}\n'

Seconds = dict[str, float]  # by the name of a piece of work
Call = Callable[[], object]


class Asked(NamedTuple):
    """The selected tasks and their size."""

    fewer: int = 1  # so many times fewer ranks
    only: tuple[str, ...] = ("",)  # pieces whose name has one of these in it

    def has(self, name: str) -> bool:
        """Whether this task is selected."""
        return any(text in name for text in self.only)


def commands(fewer: int) -> Iterator[tuple[str, list[str]]]:
    """Names and arguments of the commands, for the folder that ``write_scenarios`` filled."""
    ranks = 16384 // fewer
    predict = ["-m", "ringlab", "predict"]
    yield "ringlab --help", ["-m", "ringlab", "--help"]
    yield "import simcomm, scenarios", ["-c", "import simcomm, scenarios"]
    yield "import ringlab.cli", ["-c", "import ringlab.cli"]
    yield "predict star8", [*predict, "star8"]
    yield "predict two-racks", [*predict, "two-racks"]
    yield f"predict a ring all-reduce, {1024 // fewer} ranks", [*predict, "small.toml"]
    yield f"predict a ring all-reduce, {ranks} ranks", [*predict, "large.toml"]
    yield f"predict a ring all-reduce, {ranks} ranks, every NIC different", [*predict, "different.toml"]
    yield f"predict a ring all-reduce, {ranks} ranks, jitter", [*predict, "jitter.toml"]
    yield "check the library, 1 to 8 ranks", ["-m", "ringlab", "check", "library", "--ranks", "1-8"]
    yield "animate two-racks", ["-m", "ringlab", "animate", "two-racks", "-o", "two-racks.gif"]


def write_scenarios(folder: Path, fewer: int, checkout: Path) -> None:
    """Write the scenarios that the commands name, with the name that the checkout has for the table of faults."""
    jitter = JITTER.format("trouble" if (checkout / "scenarios" / "trouble.py").exists() else "faults")
    random, large = Random(1), 16384 // fewer
    links = "\n".join(LINK.format(host, random.uniform(50, 150)) for host in range(large))
    small, star = STAR.format(1024 // fewer), STAR.format(large)
    clusters = {"small": small, "large": star, "different": links, "jitter": star}
    for name, cluster in clusters.items():
        text = SCENARIO.format(cluster=cluster) + jitter * (name == "jitter")
        (folder / f"{name}.toml").write_text(text)


def run_commands(checkout: Path, work: Asked) -> Seconds:
    """Return the seconds of every command in one checkout."""
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        write_scenarios(Path(folder), work.fewer, checkout)
        for name, arguments in commands(work.fewer):
            if work.has(name):
                begin = _of_children()
                _python(checkout, arguments, Path(folder))
                seconds[name] = _of_children() - begin
    return seconds


def _of_children() -> float:
    """Return the CPU seconds of all child processes that have exited."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _python(checkout: Path, arguments: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    call = [sys.executable, "-P", *arguments]
    done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{checkout}: {arguments} ended with status {done.returncode}\n{done.stderr}")
    return done.stdout


def calls(fewer: int) -> Iterator[tuple[str, Call]]:
    """Return the names and calls of public functions that old checkouts have as well."""
    import simcomm
    from collectives import ComputePhases, Training, Transport, find_algorithm, verify

    ranks = 1024 // fewer
    random = Random(1)
    transport = Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10)
    few, many = (simcomm.star(p, "100 Gbit/s", "1 us", transport) for p in (max(2, 32 // fewer), ranks))
    latencies = [f"{random.uniform(0.5, 1.5):.3f} us" for _ in range(max(2, 128 // fewer))]
    links = [(f"h{host}", "s0", "100 Gbit/s", latency) for host, latency in enumerate(latencies)]
    apart = simcomm.from_links(links, transport)
    for name in ("all_reduce/ring", "all_to_all/pairwise"):
        yield (
            f"{name}, {few.world_size} ranks on a star, simpy",
            lambda name=name: simcomm.run(name, few, 1 << 26, engine="simpy"),
        )
    for name in ("all_reduce/ring", "all_gather/bidirectional_ring", "all_reduce/double_tree"):
        yield (
            f"{name}, {ranks} ranks on a star, compiled",
            lambda name=name: simcomm.run(name, many, 1 << 26, engine="compiled", record=False),
        )
    for name in ("all_reduce/ring", "all_to_all/pairwise", "all_reduce/halving_doubling"):
        yield (
            f"{name}, {apart.world_size} ranks, every latency different, compiled",
            lambda name=name: simcomm.run(name, apart, 1 << 26, engine="compiled", record=False),
        )
    yield (
        f"all_reduce/ring, {apart.world_size} ranks, every latency different, compiled, with its trace",
        lambda: simcomm.run("all_reduce/ring", apart, 1 << 26, engine="compiled"),
    )
    training = Training(find_algorithm("all_reduce/ring"), compute=ComputePhases(0.1, 0.2, 0.05))
    for engine, cluster in (("simpy", few), ("compiled", apart)):
        yield (
            f"training with all_reduce/ring, {cluster.world_size} ranks, {engine}",
            lambda engine=engine, cluster=cluster: simcomm.train(training, cluster, engine=engine, record=False),
        )
    for name in ("all_reduce/ring", "all_reduce/double_tree", "all_to_all/pairwise", "all_reduce/hierarchical"):
        algorithm = find_algorithm(name)
        yield (
            f"proof of {name}, {ranks // 8 or 2} ranks",
            lambda algorithm=algorithm: verify(algorithm, ranks // 8 or 2),
        )


def run_calls(work: Asked) -> Seconds:
    """Return the seconds of every call in this process: the first call, and the fastest later call."""
    seconds = {}
    for name, call in calls(work.fewer):
        if not work.has(name):
            continue
        times = [_seconds(call, process_time)]
        while sum(times[1:]) < AT_LEAST_S and len(times) <= AT_MOST:
            times.append(_seconds(call, process_time))
        seconds[f"{name}: first call"] = times[0]
        seconds[f"{name}: again"] = min(times[1:])
    return seconds


def _seconds(call: Call, clock: Callable[[], float] = perf_counter) -> float:
    begin = clock()
    call()
    return clock() - begin


def run_ranks(work: Asked) -> Seconds:
    """Return the seconds of collectives on two real ranks of this machine, and of starting the ranks."""
    import realcomm

    realcomm.launch(max, 2)
    starts = [_seconds(lambda: realcomm.launch(max, 2)) for _ in range(3)]
    return {"launch of 2 ranks: again": min(starts), **realcomm.launch(work_of_a_rank, 2, work)[0]}


def work_of_a_rank(rank: int, world_size: int, work: Asked) -> Seconds:
    """Return the seconds of collectives on this rank: the first call, and the fastest later call."""
    import torch

    import realcomm

    small, large = torch.zeros(256), torch.zeros((1 << 20) // work.fewer)
    halves = list(torch.zeros(world_size, 256))
    works: dict[str, Call] = {
        "all_reduce by ring, 1 KiB, 2 ranks": lambda: realcomm.all_reduce(small),
        "all_reduce by ring, 4 MiB, 2 ranks": lambda: realcomm.all_reduce(large),
        "all_reduce by chain in 64 slices, 1 KiB, 2 ranks": lambda: realcomm.all_reduce(
            small, algorithm="chain[slices=64]"
        ),
        "broadcast, 1 KiB, 2 ranks": lambda: realcomm.broadcast(small, 0),
        "all_gather of a list, 1 KiB, 2 ranks": lambda: realcomm.all_gather(halves, small),
        "barrier, 2 ranks": realcomm.barrier,
    }
    seconds = {}
    for name, call in works.items():
        if not work.has(name):
            continue
        times = [_seconds(call) for _ in range(max(30, 300 // work.fewer))]
        seconds[f"{name}: first call"], seconds[f"{name}: again"] = times[0], min(times[1:])
    return seconds


IN_PROCESS = {"calls": run_calls, "ranks": run_ranks}
PARTS = ("commands", *IN_PROCESS)


def run_part(part: str, checkout: Path, work: Asked) -> Seconds:
    """Return the seconds of all tasks of one part in one checkout."""
    if part == "commands":
        return run_commands(checkout, work)
    arguments = [str(Path(__file__).resolve()), "--child", part, "--fewer", str(work.fewer), "--only", *work.only]
    seconds: Seconds = json.loads(_python(checkout, arguments, checkout).splitlines()[-1])
    return seconds


def compare(part: str, before: Path, after: Path, rounds: int, work: Asked) -> list[dict[str, Any]]:
    """Return a row for each task: medians of both, the ratio, and its range over the rounds."""
    pairs_of_rounds: list[tuple[Seconds, Seconds]] = []
    for number in range(rounds + 1):
        if number % 2:
            old = run_part(part, before, work)
            pairs_of_rounds.append((old, run_part(part, after, work)))
        else:
            new = run_part(part, after, work)
            pairs_of_rounds.append((run_part(part, before, work), new))
    rows = []
    for name in pairs_of_rounds[0][0]:
        pairs = [(old[name], new[name]) for old, new in pairs_of_rounds[1:]]
        ratios = [new / old for old, new in pairs]
        rows.append(
            {
                "part": part,
                "name": name,
                "before_s": median(old for old, _ in pairs),
                "after_s": median(new for _, new in pairs),
                "ratio": median(ratios),
                "spread": [min(ratios), max(ratios)],
                "rounds": rounds,
            }
        )
        print(describe(rows[-1]), flush=True)
    return rows


def describe(row: dict[str, Any]) -> str:
    """Return a row as a line of text."""
    low, high = row["spread"]
    times = f"{row['before_s'] * 1e3:10.3f} ms {row['after_s'] * 1e3:10.3f} ms"
    mark = "  SLOWER" if row["ratio"] > ALLOWED else ""
    return f"{times}   {row['ratio']:5.2f} ({low:.2f} to {high:.2f})   {row['part']}: {row['name']}{mark}"


def revision(checkout: Path) -> str:
    """Return the commit of a checkout, or an empty text if it has none."""
    call = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(call, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", help="folder of the checkout to compare with, or a commit of this one")
    parser.add_argument("--after", type=Path, default=ROOT, help="Directory of the other one. Default: this one.")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fewer", type=int, default=1, help="so many times fewer ranks, to try it out")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="only work whose name has one of these")
    parser.add_argument("--add", action="store_true", help="keep what the file has and is not measured again")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--child", choices=IN_PROCESS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    work = Asked(options.fewer, tuple(options.only))
    if options.child:
        print(json.dumps(IN_PROCESS[options.child](work)))
        return
    if options.before is None:
        parser.error("--before FOLDER is needed: the checkout to compare with")
    with checked_out(options.before) as before:
        measure(options, work, before, options.after.resolve())


@contextmanager
def checked_out(place: str) -> Iterator[Path]:
    """Return the folder of a checkout. The folder of a commit is created, and removed after the ``with`` block."""
    if Path(place).is_dir():
        yield Path(place).resolve()
        return
    worktree = ["git", "-C", str(ROOT), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "before")
        subprocess.run([*worktree, "add", "--quiet", "--detach", str(made), place], check=True)
        try:
            yield made
        finally:
            subprocess.run([*worktree, "remove", "--force", str(made)], check=True)


def measure(options: argparse.Namespace, work: Asked, before: Path, after: Path) -> None:
    """Measure all parts in both checkouts, and write the rows."""
    from collectives.output_files import write_text
    from collectives.records.environment import describe_measurement

    answer: dict[str, Any] = {
        "schema_version": 1, "kind": "benchmark", "environment": describe_measurement(),
        "before": revision(before), "after": revision(after),
    }  # fmt: skip
    known = (
        json.loads(options.output.read_text()) if options.add and options.output.exists() else {**answer, "rows": []}
    )
    if any(known[key] != answer[key] for key in answer):
        raise SystemExit(f"{options.output} was measured elsewhere, or of other checkouts; measure it all again")
    rows = {(row["part"], row["name"]): row for row in known["rows"]}
    for part in options.parts:
        measured = compare(part, before, after, options.rounds, work)
        rows |= {(part, row["name"]): row for row in measured}
        answer["rows"] = sorted(rows.values(), key=lambda row: PARTS.index(row["part"]))
        write_text(options.output, json.dumps(answer, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
