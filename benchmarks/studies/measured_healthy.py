"""Count the verdicts of ``ringlab explain --measured`` on published tables of healthy machines.

    python -m benchmarks.studies.measured_healthy

The rows of each system are written as nccl-tests prints them, and read again. The facts of its description are passed
as a user would pass them. The groups are systems in the training set, systems whose authors were used to choose the
widths of the intervals, and held-out systems. Systems that their own source calls slow are left out.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.accuracy.tables import read_put_aside_tables, read_tables
from benchmarks.studies.nccl_unseen import read_authors
from collectives.costs.bounds import bus_factor
from ringlab.commands.predicting.explain_measured import MeasuredAnswer, explain_measured
from simcomm.nccl.descriptions import System, put_aside, read_systems, with_unit
from simcomm.nccl.measured.calibration import system_line
from simcomm.nccl.measured.nccl_tests_rows import COUNTED_BY_RANK
from simcomm.nccl.measured.tables import SizeSeries
from simcomm.nccl.predict import COLLECTIVES

PROGRAMS = {"all_to_all": "alltoall", "send_recv": "sendrecv"}
COLUMNS = "#       size         count      type   redop    root     time   algbw   busbw #wrong"
GROUPS = ("in the training set", "used to choose the intervals", "held out")


class JudgedTable(NamedTuple):
    """A published table of a system, with its verdict."""

    group: str
    system: str
    collective: str
    verdict: str
    sentence: str


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
        parts = system.ranks if series.collective in COUNTED_BY_RANK else 1
        size = nbytes // parts * parts
        rate = size / seconds / 1e9
        if size:
            lines.append(f"{size} {size // parts} int8 none -1 {seconds * 1e6:.4f} {rate:.5f} {rate * factor:.5f} 0")
    return "\n".join([*lines, "# Out of bounds values : 0 OK", ""])


def is_judged(system: System) -> bool:
    """Return whether a system is healthy according to its source, and has GPUs that nccl-tests measured."""
    return not (system.degraded or system.skip or system.gpu.generation == "cpu") and system.harness == "nccl-tests"


def explain_series(system: System, series: SizeSeries) -> MeasuredAnswer:
    """Return the verdict on a printed table, with the system's own keys."""
    of_the_table = ("nodes", "gpus", "procs", "harness")
    line = {key: with_unit(key, value) for key, value in system_line(system).items() if key not in of_the_table}
    keys = [f"{key}={json.dumps(value)}" for key, value in line.items()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.txt")
        path.write_text(print_table(system, series), encoding="utf-8")
        return explain_measured(path, keys=keys)


def judge_healthy(groups: tuple[str, ...] = GROUPS) -> Iterator[JudgedTable]:
    """Yield the verdict on each healthy table."""
    systems, authors, hidden = read_systems(), read_authors(), put_aside()
    tables = {**read_tables(systems), **read_put_aside_tables()}
    for slug, system in systems.items():
        group = GROUPS[2] if slug in hidden else GROUPS[1] if slug in authors else GROUPS[0]
        if group in groups and is_judged(system):
            for series in tables[slug].series(system.ranks).values():
                if series.collective in COLLECTIVES and series.collective != "gather":
                    explanation = explain_series(system, series)
                    yield JudgedTable(group, slug, series.collective, explanation.verdict, explanation.sentence)


def main() -> None:
    """Print the tables that are not as expected, and their number by group."""
    verdicts: dict[str, Counter[str]] = {group: Counter() for group in GROUPS}
    for judged in judge_healthy():
        verdicts[judged.group][judged.verdict] += 1
        if judged.verdict != "as expected":
            print(f"{judged.group}: {judged.system} {judged.collective}: {judged.sentence}")
    for group, tally in verdicts.items():
        print(f"{group}: {tally['as expected']} of {tally.total()} tables as expected")


if __name__ == "__main__":
    main()
