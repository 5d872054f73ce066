"""Published tables of healthy machines, as files: how many ``ringlab diagnose`` calls normal.

    python -m benchmarks.studies.diagnosed_healthy

Each system's rows are written as nccl-tests prints them, and read again; what its description says is given as a user
would. Apart are systems that the model's fit has seen, those whose authors the widths of intervals were chosen by, and
those that neither has seen. Left out are systems whose own source says that they are slow.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.accuracy.tables import read_put_aside_tables, read_tables
from benchmarks.studies.nccl_unseen import read_authors
from collectives.costs.bounds import bus_factor
from simcomm.diagnosis.verdict import Diagnosis, diagnose_files
from simcomm.nccl.descriptions import System, put_aside, read_systems
from simcomm.nccl.measured.calibration import write_line
from simcomm.nccl.measured.tables import SizeSeries
from simcomm.nccl.predict import COLLECTIVES

PROGRAMS = {"all_to_all": "alltoall", "send_recv": "sendrecv"}
COLUMNS = "#       size         count      type   redop    root     time   algbw   busbw #wrong"
GROUPS = ("seen by the fit", "by which intervals were chosen", "never seen")


def print_table(system: System, series: SizeSeries) -> str:
    """Return a table as nccl-tests prints it."""
    program = PROGRAMS.get(series.collective, series.collective)
    lines = [f"./build/{program}_perf", "# nThread 1 nGpus 1", "# Using devices"]
    for rank in range(system.ranks):
        host, device = divmod(rank, system.gpus)
        pid = 1 if system.procs == "single" else 1 + device
        place = f"host{host} device {device} [0x{device:02x}]"
        lines.append(f"#  Rank {rank:2} Group  0 Pid {pid} on {place} {system.gpu.name}")
    lines.append(COLUMNS)
    factor = bus_factor(series.collective, system.ranks)
    for nbytes, seconds in zip(series.nbytes.astype(int).tolist(), series.seconds.tolist(), strict=True):
        parts = system.ranks if series.collective in COUNTED else 1
        size = nbytes // parts * parts
        rate = size / seconds / 1e9
        if size:
            lines.append(f"{size} {size // parts} int8 none -1 {seconds * 1e6:.4f} {rate:.5f} {rate * factor:.5f} 0")
    return "\n".join([*lines, "# Out of bounds values : 0 OK", ""])


COUNTED = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")


def healthy_systems() -> Iterator[tuple[str, System, list[SizeSeries]]]:
    """Yield group, system and its collectives of each published system that is not said to be slow."""
    systems, authors, hidden = read_systems(), read_authors(), put_aside()
    tables = {**read_tables(systems), **read_put_aside_tables()}
    for slug, system in systems.items():
        group = GROUPS[2] if slug in hidden else GROUPS[1] if slug in authors else GROUPS[0]
        yield group, system, [*tables[slug].series(system.ranks).values()]


def is_judged(system: System) -> bool:
    """Return whether a system is healthy, as far as its source says, and of GPUs that nccl-tests measured."""
    return not (system.degraded or system.skip or system.gpu.generation == "cpu") and system.harness == "nccl-tests"


def diagnose_series(system: System, series: SizeSeries) -> Diagnosis:
    """Return the diagnosis of a printed table."""
    of_the_table = ("nodes", "gpus", "procs", "harness")
    given = {key: value for key, value in write_line(system).items() if key not in of_the_table}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.txt")
        path.write_text(print_table(system, series), encoding="utf-8")
        return diagnose_files([path], given)


def judge_healthy() -> Iterator[tuple[str, str, str, str, float]]:
    """Yield group, system, collective, verdict and factor of each healthy table."""
    for group, system, collectives in healthy_systems():
        for series in collectives if is_judged(system) else ():
            if series.collective in COLLECTIVES and series.collective != "gather":
                found = diagnose_series(system, series)
                yield group, system.slug, series.collective, found.verdict, found.factor.value if found.factor else 0.0


def main() -> None:
    """Print the tables that are not called normal, and how many are, by group."""
    verdicts: dict[str, Counter[str]] = {group: Counter() for group in GROUPS}
    for group, slug, collective, verdict, factor in judge_healthy():
        verdicts[group][verdict] += 1
        if verdict != "normal":
            print(f"{group}: {slug} {collective}: {verdict}, {factor:.2f} times")
    for group, tally in verdicts.items():
        print(f"{group}: {tally['normal']} of {tally.total()} tables normal ({tally['normal'] / tally.total():.0%})")


if __name__ == "__main__":
    main()
