"""Simulate a case with SimGrid's flow model CM02, which shares links max-min fairly."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import networkx as nx
from oracle.cases import Case, sent

from collectives import Kind
from collectives.schedule.schedule import Schedule
from collectives.step import extent

SOURCE = Path(__file__).with_name("simgrid_runner.cpp")
TIMEOUT_S = 300.0

# Each setting switches off a part of SimGrid's default model that is not compared.
PLAIN = {
    "network/model": "CM02",
    "network/optim": "Full",  # Lazy is not exact
    "network/maxmin-selective-update": "no",
    "network/TCP-gamma": "0",  # no bound by a TCP window
    "network/weight-S": "0",  # no penalty for routes over slow links
    "network/crosstraffic": "0",  # no acknowledgments that take 5 % of the reverse path
    "network/bandwidth-factor": "1",
    # SimGrid merges events this close, in seconds. Its default of 1e-9 is as long as the shortest message.
    "surf/precision": "1e-20",
    "cpu/optim": "Full",  # Lazy sleeps forever if the precision is below the clock's last bit
}
# The solver takes a sum of weights below maxmin/precision for zero. Weights are 1 / latency in the first form, where
# rounding leaves up to 1e-6, and 1 in the second, where sums are exact. Without its slower flows, a link has at least
# 1 / (flows + 1) of its bandwidth left, so no rate comes near the threshold, which is relative there.
OWN_LATENCIES = PLAIN | {"network/latency-factor": "1", "maxmin/precision": "1e-5"}
BY_FACTOR = PLAIN | {"maxmin/precision": "1e-12"}  # latencies come from a call-back, which excludes a fixed factor


@contextmanager
def simgrid() -> Iterator[Path]:
    """Within the context, return the compiled runner. Raise CalledProcessError with the compiler's output."""
    with tempfile.TemporaryDirectory(prefix="ringlab-simgrid-") as folder:
        runner = Path(folder) / "simgrid_runner"
        command = ["g++", "-std=c++17", "-O1", str(SOURCE), "-o", str(runner), "-lsimgrid"]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
        yield runner


def why_not() -> str:
    """Return the reason why SimGrid cannot be used, or an empty string."""
    if shutil.which("g++") is None:
        return "there is no g++"
    probe = ["g++", "-E", "-x", "c++", "-include", "simgrid/version.h", "/dev/null"]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=TIMEOUT_S)
    return "" if done.returncode == 0 else "there is no SimGrid to compile with (libsimgrid-dev)"


def version(runner: Path) -> str:
    text = subprocess.run([str(runner), "--version"], capture_output=True, text=True, timeout=TIMEOUT_S).stdout
    match = re.search(r"version (\d+(?:\.\d+)+)", text)
    assert match, f"SimGrid does not tell its version: {text!r}"
    return match[1]


def answered(runner: Path, case: Case, by_factor: bool, **more: str) -> Case:
    """Return the case with SimGrid's times. Raise RuntimeError with SimGrid's output if it fails.

    With ``by_factor``, a callback sets the latency of each route. Otherwise latencies belong to links; then SimGrid
    shares links equally only if all routes have the same latency. ``more`` are additional settings.
    """
    settings = (BY_FACTOR if by_factor else OWN_LATENCIES) | more
    command = [str(runner), *(f"--cfg={key}:{value}" for key, value in settings.items()), "--log=root.thres:warning"]
    done = subprocess.run(command, input=_text(case, by_factor), capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{case}: SimGrid failed with status {done.returncode}: {done.stderr[:2000]}")
    ends = dict(line.split() for line in done.stdout.splitlines())
    return replace(case, ends=[float(ends[str(number)]) for number in range(len(ends))])


def has_equal_latencies(case: Case) -> bool:
    """Return whether all used routes have the same latency, so that plain CM02 shares links equally."""
    nanoseconds = {edge: latency for a, b, _, latency in case.links for edge in ((a, b), (b, a))}
    return len({sum(nanoseconds[edge] for edge in route) for route in _routes(case).values()}) <= 1


def _routes(case: Case) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return the links between hosts that exchange messages. Raise ValueError if several routes are possible."""
    graph: nx.Graph[str] = nx.Graph([(a, b) for a, b, _, _ in case.links])
    routes = {}
    for message in sent(case.schedule, case.nbytes):
        pair = case.hosts[message.place[0]], case.hosts[message.place[1]]
        if pair not in routes:
            (path,) = nx.all_shortest_paths(graph, *pair)
            routes[pair] = list(pairwise(path))
    return routes


def _text(case: Case, by_factor: bool) -> str:
    directions = {edge: (rate, f"{ns}e-9") for a, b, rate, ns in case.links for edge in ((a, b), (b, a))}
    number = {edge: i for i, edge in enumerate(directions)}
    lines = [f"{by_factor:d}", f"{len(directions)}", *(f"{rate} {latency}" for rate, latency in directions.values())]
    routes = _routes(case)
    lines.append(f"{len(routes)}")
    for (src, dst), route in routes.items():
        lines.append(f"{src} {dst} {len(route)} " + " ".join(str(number[edge]) for edge in route))
    actors = _actors(case)
    lines.append(f"{len(actors)}")
    for rank, steps in actors:
        lines.append(f"{case.hosts[rank]} {len(steps)}")
        lines += [f"{len(step.operations)} {' '.join(step.operations)} {step.busy_s!r}" for step in steps]
    return "\n".join(lines) + "\n"


@dataclass
class _Step:
    operations: list[str]
    busy_s: float


def _actors(case: Case) -> list[tuple[int, list[_Step]]]:
    """Return the rank and the steps of each actor, one per channel. An actor reduces and copies after its messages."""
    schedule = case.schedule
    channels = list(zip(schedule.rank.tolist(), schedule.channel.tolist(), strict=True))
    number = {channel: i for i, channel in enumerate(sorted(set(channels)))}
    actors: list[tuple[int, list[_Step]]] = [(rank, []) for rank, _ in number]
    words = _words(schedule, case.nbytes, number)
    for index, channel in enumerate(channels):
        steps = actors[number[channel]][1]
        while len(steps) <= schedule.step[index]:
            steps.append(_Step([], 0.0))
        step = steps[schedule.step[index]]
        step.operations += words.get(index, [])
        if schedule.kind[index] not in (Kind.SEND, Kind.RECV):
            size = extent(int(schedule.into[index]), int(schedule.count[index]), case.nbytes, schedule.chunks)
            step.busy_s += case.gamma * size
    return actors


def _words(schedule: Schedule, nbytes: int, number: dict[tuple[int, int], int]) -> dict[int, list[str]]:
    """Return the runner's words for the operations that move data. ``number`` is the number of each actor."""
    words: dict[int, list[str]] = {}
    for message, (place, size, send, receive) in enumerate(sent(schedule, nbytes)):
        src, dst, channel, *_ = place
        words[send] = [f"s {number[dst, channel]} {size} {message}"]
        words[receive] = [f"r {number[src, channel]} {size} {message}"]
    return words
