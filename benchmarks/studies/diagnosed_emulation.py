"""Real runs on clusters emulated here, each with one thing wrong, and what ``ringlab diagnose`` says of their traces.

    python -m benchmarks.studies.diagnosed_emulation [--keep]

Four hosts: all well; one host on a slow link; one cable of six that join each two hosts; and one host whose queue is so
short that it drops packets, which TCP sends again. ``--keep`` writes the traces beside this file, for the tests.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import realcomm
from collectives.records.trace import Trace
from realcomm.emulation.network import EmulatedNetwork
from realcomm.launching.namespaces import HostNamespaces
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.custom import from_links
from simcomm.diagnosis.verdict import diagnose_files

FOLDER = Path(__file__).parent / "diagnosed_runs"
HOSTS = [f"h{number}" for number in range(4)]
RATE, SLOW = "25 Mbit/s", "8 Mbit/s"
SHORT_QUEUE = 6000  # bytes: four frames
NBYTES, REPETITIONS = 1 << 18, 4


class Broken(NamedTuple):
    """A cluster with one thing wrong: its network, the program that runs on it, and what is done to it once built."""

    name: str
    cluster: Cluster
    algorithm: str
    harm: Callable[[EmulatedNetwork], None] = lambda network: None


def star(slow: str | None = None) -> Cluster:
    """Return four hosts at a switch, one of them on a slow link."""
    return from_links([(host, "s0", SLOW if host == slow else RATE, "0 us") for host in HOSTS])


def full_mesh(slow: tuple[str, str]) -> Cluster:
    """Return four hosts with a cable between each two, one of them slow."""
    return from_links([(a, b, SLOW if (a, b) == slow else RATE, "0 us") for a, b in combinations(HOSTS, 2)])


def shorten_queue(network: EmulatedNetwork, rank: int = 2) -> None:
    """Give a host so short a queue that it drops packets, and have the network not refuse the run for it."""
    network.check = lambda: None  # type: ignore[method-assign]
    place = network.namespaces[rank]
    enter = ["nsenter", f"--net={place.files[-1]}"]
    rate = f"rate 25mbit burst 4096 limit {SHORT_QUEUE}"
    subprocess.run([*enter, "tc", "qdisc", "replace", "dev", place.interface, "root", "tbf", *rate.split()], check=True)


BROKEN = (
    Broken("healthy", star(), "all_reduce/ring"),
    Broken("slow-host", star("h3"), "all_reduce/ring"),
    Broken("slow-link", full_mesh(("h1", "h3")), "all_reduce/halving_doubling"),
    Broken("lossy-rank", star(), "all_reduce/ring", shorten_queue),
)


def run_broken(one: Broken) -> tuple[Trace, str]:
    """Return what happened when it ran, and what the hosts' queues say afterwards."""
    with realcomm.emulate(one.cluster) as network:
        one.harm(network)
        trace = realcomm.run(one.algorithm, one.cluster, NBYTES, repetitions=REPETITIONS, timeout=120, network=network)
        return trace, "".join(map(_read_queues, HOSTS, network.namespaces))


def _read_queues(host: str, place: HostNamespaces) -> str:
    """Return what ``tc`` says of a host's queues, with the host's name before each."""
    call = ["nsenter", f"--net={place.files[-1]}", "tc", "-s", "qdisc", "show", "dev", place.interface]
    said = subprocess.run(call, check=True, capture_output=True, text=True).stdout
    return said.replace(f"dev {place.interface}", f"dev {host}:{place.interface}").replace(
        "qdisc tbf 1: root", f"qdisc tbf 1: dev {host} root"
    )


def files_of(one: Broken, folder: Path) -> list[Path]:
    """Return the files of a run."""
    return [folder / f"{one.name}.trace.json", folder / f"{one.name}.queues.txt"]


def judge_runs(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield name, verdict and first cause of each run in a folder."""
    for one in BROKEN:
        found = diagnose_files(files_of(one, folder))
        yield one.name, found.verdict, found.causes[0].text if found.causes else "-"


def main() -> None:
    """Run each, write its trace and print what is said of it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = FOLDER if "--keep" in sys.argv else Path(temporary)
        folder.mkdir(exist_ok=True)
        for one in BROKEN:
            trace, queues = run_broken(one)
            trace_file, queue_file = files_of(one, folder)
            trace.write(trace_file)
            queue_file.write_text(queues, encoding="utf-8")
        for name, verdict, cause in judge_runs(folder):
            print(f"{name:12} {verdict:8} {cause}")


if __name__ == "__main__":
    main()
