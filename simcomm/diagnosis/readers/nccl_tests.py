"""Tables of nccl-tests among other lines: each run is cut out, then read as strictly as a file of its own."""

import re
from collections.abc import Iterator
from pathlib import Path

from collectives.errors import InputError
from simcomm.diagnosis.evidence.facts import Fact, FilePlace, StartedTest, TestTable
from simcomm.diagnosis.readers.lines import LogLine
from simcomm.nccl.measured.nccl_tests import RANK, TableReader, is_row, read_nccl_tests
from simcomm.nccl.measured.nccl_tests_rows import Device, make_run

STARTS = re.compile(r"#\s*(nThread\s|Collective test starting|nccl-tests version|rccl-tests version)")
COLUMNS = re.compile(r"#\s+size\s+count")
ENDS = re.compile(r"#\s*(Avg bus bandwidth|Out of bounds)")
NAMES = re.compile(
    r"(all_reduce|all_gather|reduce_scatter|broadcast|reduce|alltoall|sendrecv|gather|scatter|hypercube)_perf\b"
)
OF_TABLE = re.compile(r"#(?!\s*\[)")


def read(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield a fact for each run in the lines. Raise InputError where a row is wrong."""
    asked = None
    for run in _split(lines):
        named = [found[1] for line in run if not line.text.startswith("#") and (found := NAMES.search(line.text))]
        asked = named[-1] if named else asked
        yield from _read_run(file, run, asked)


def _split(lines: list[LogLine]) -> Iterator[list[LogLine]]:
    """Yield the lines of each run: a new one begins where a run says how it starts, or a rank is on another host."""
    run: list[LogLine] = []
    hosts: dict[str, str] = {}
    has_rows = False
    for line in lines:
        text = line.text.strip()
        found = RANK.match(text)
        is_again = found is not None and hosts.get(found[1], found[4]) != found[4]
        if is_again or ((has_rows or hosts) and STARTS.match(text)):
            yield run
            run, hosts, has_rows = [], {}, False
        if found is not None:
            hosts[found[1]] = found[4]
        has_rows = has_rows or is_row(text)
        run.append(line)
    yield run


def _read_run(file: str, run: list[LogLine], asked: str | None) -> Iterator[Fact]:
    reader = TableReader(Path(file), asked and _known(asked))
    first, numbers, ended = None, list[int](), False
    for line in run:
        text, where = line.text.strip(), f"{file}: line {line.number}"
        if OF_TABLE.match(text):
            if RANK.match(text) or COLUMNS.match(text):
                first = first or line
            ended = ended or ENDS.match(text) is not None
            reader.read_comment(where, text)
        elif is_row(text) and reader.columns is not None:
            reader.read_row(where, text)
            numbers.append(line.number)
    devices: tuple[Device, ...] = tuple(reader.first_devices or reader.devices.values())
    if first is None or not devices:
        return
    place = first.place(file)
    if not reader.rows:
        yield StartedTest(place, devices)
        return
    made = make_run(reader.rows, list(devices), len(devices), reader.version)
    if made.ranks % made.hosts:
        raise InputError(f"{file}: line {place.line}: {made.ranks} ranks are not spread evenly over {made.hosts} hosts")
    yield TestTable(place, made, devices, tuple(numbers), ended)


def _known(name: str) -> str:
    return {"alltoall": "all_to_all", "sendrecv": "send_recv"}.get(name, name)


def read_json_file(path: Path) -> Iterator[Fact]:
    """Yield the run of a file that -J wrote. Raise InputError."""
    run = read_nccl_tests(path)
    devices = tuple(
        Device(rank, 0, rank * run.processes // run.ranks, f"host{rank // run.gpus}", run.gpu_name)
        for rank in range(run.ranks)
    )
    yield TestTable(FilePlace(str(path), 0, ""), run, devices, (0,) * len(run.rows), True)
