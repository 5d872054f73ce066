"""Read what nccl-tests printed, as a table or as JSON (``-J FILE``): strictly, as predictions are fitted to it.

The format is that of https://github.com/NVIDIA/nccl-tests, src/util.cu and, of versions before 2025, src/common.cu;
older versions name neither themselves nor the collective and leave columns out. Out-of-place figures are taken, or
in-place ones where there are no others; both are checked. A row is refused, with its line, where the run found wrong
values, where size does not follow from count and type, algbw from size and time, or busbw from algbw by the factor of
the collective, within the digits that are printed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collectives.errors import InputError
from collectives.input_files import FileBytes, parse_json, read_text
from collectives.quoting import suggest
from simcomm.nccl.measured.nccl_tests_rows import (
    Device,
    NcclTestsRun,
    PrintedRow,
    Side,
    check_groups,
    check_outcome,
    check_row,
    collective_of,
    make_run,
    side_of,
    version_of,
)
from simcomm.nccl.measured.tables import COLLECTIVES, MeasuredRow

PREFIX = re.compile(r"^\[\d+,\d+\]<std(?:out|err)>:\s?")  # of mpirun --tag-output
RANK = re.compile(
    r"#\s+Rank\s+(\d{1,7})\s+(?:Group\s+(\d{1,9})\s+)?Pid\s+(\d{1,12})\s+on\s+(\S+)\s+device\s+\d+\s+\[[^]]*\]\s*(.*)"
)
STARTING = re.compile(r"#\s*Collective test starting:\s*(\S+)")
THREADS = re.compile(r"#\s*nThread\s+(\d+)\s+nGpus\s+(\d+)")
LIBRARY = re.compile(r"nccl-library=(\d{1,9})(?!\d)")
OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(.*)")
NUMBER = re.compile(r"[-+]?\.?\d")
BLANK_SIDE = re.compile(r"\s{30,}")  # of a replayed trace, which runs in place only: 32 spaces for what is left out
DESCRIBING = ("size", "count", "type", "redop", "root")


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table: those that describe the call, and those of each side, out of place and in place."""

    describing: tuple[str, ...]
    sides: tuple[tuple[str, ...], ...]
    after: tuple[str, ...]  # a time stamp, of two words

    def side_name(self, index: int) -> str:
        """Return what a side is called in messages; the first needs no name."""
        return "in place" if index else ""


def read_columns(where: str, names: list[str]) -> TableColumns:
    """Return the columns that a line names. Raise InputError unless each side has time, algbw and busbw."""
    listed = " ".join(names)
    if "cputime" in names:
        raise InputError(
            f"{where}: the column cputime says how long the launch took, not the collective; give a run without -C"
        )
    starts = [index for index, name in enumerate(names) if name == "time"]
    describing = tuple(names[: starts[0]]) if starts else tuple(names)
    after = ("date", "clock") if names[-1] == "timestamp" else ()
    end = len(names) - (1 if after else 0)
    bounds = [*starts, end]
    sides = tuple(tuple(names[begin:stop]) for begin, stop in zip(starts, bounds[1:], strict=True))
    known = describing in (DESCRIBING, DESCRIBING[:3], DESCRIBING[:4], ("size", "count", "type", "root"))
    if not (known and 1 <= len(sides) <= 2 and all(side[:3] == ("time", "algbw", "busbw") for side in sides)):
        raise InputError(
            f"{where}: the columns are {listed}; there must be size, count, type, then redop and root where the "
            "collective has them, and time, algbw and busbw, once or twice"
        )
    return TableColumns(describing, sides, after)


def split_row(where: str, columns: TableColumns, line: str) -> PrintedRow:
    """Return a row by its columns. Raise InputError where there are more or fewer cells."""
    cells = line.split()
    describing = list(columns.describing)
    if "redop" in describing and len(cells) > 3 and NUMBER.match(cells[3]):
        describing.remove("redop")  # left empty where nothing is reduced
    begin, lengths = len(describing), [len(side) for side in columns.sides]
    rest = len(cells) - begin - len(columns.after)
    in_place_only = len(lengths) == 2 and rest == lengths[1] and len(BLANK_SIDE.findall(line)) == 1
    if rest != sum(lengths) and not in_place_only:
        names = " ".join([*describing, *(name for side in columns.sides for name in side), *columns.after])
        raise InputError(f"{where}: {len(cells)} cells; the columns are {names}")
    sides: list[Side] = []
    for index, names_of_side in enumerate(columns.sides):
        if in_place_only and index == 0:
            continue
        figures = dict(zip(names_of_side, cells[begin : begin + len(names_of_side)], strict=True))
        sides.append(side_of(columns.side_name(index), figures))
        begin += len(names_of_side)
    said = dict(zip(describing, cells, strict=False))
    return PrintedRow(said["size"], said["count"], said["type"], said.get("root", "-1"), tuple(sides))


@dataclass
class TableReader:
    """The state of reading a table line by line."""

    path: Path
    asked: str | None
    named: str | None = None
    columns: TableColumns | None = None
    version: tuple[int, int] | None = None
    rows: list[MeasuredRow] = field(default_factory=list)
    devices: dict[int, Device] = field(default_factory=dict)
    first_devices: list[Device] = field(default_factory=list)

    def read_comment(self, where: str, line: str) -> None:
        """Take what a line that begins with # tells of the run."""
        if found := STARTING.match(line):
            self.named, self.columns = collective_of(where, found[1]), None
        if found := LIBRARY.search(line):
            self.version = version_of(int(found[1]))
        if THREADS.match(line):
            self.columns, self.devices = None, {}
        if re.match(r"#\s+Rank\s", line):
            self.read_device(where, line)
        if found := OUT_OF_BOUNDS.match(line):
            words = found[1].split()
            check_outcome(where, words[0] if words[1:] == ["OK"] else found[1].strip())
            self.columns = None
        words = line.lstrip("# ").split()
        if words[:2] == ["size", "count"]:
            self.columns = read_columns(where, words)
            self.check_devices(where)

    def read_device(self, where: str, line: str) -> None:
        """Take a line of the list of devices."""
        found = RANK.match(line)
        if found is None:
            raise InputError(
                f"{where}: {line[:80]!r} names no device; give '# Rank 0 Pid ... on HOST device 0 [...] NAME'"
            )
        device = Device(int(found[1]), int(found[2] or 0), int(found[3]), found[4], found[5].strip())
        if self.devices.setdefault(device.rank, device).host != device.host:
            raise InputError(f"{where}: rank {device.rank} is on another host than before; give one run's output")

    def check_devices(self, where: str) -> None:
        """Raise InputError unless the list of devices is whole, of one group, and that of the table before."""
        if not self.devices:
            raise InputError(f"{where}: a table before the list of devices (# Rank 0 ... on ...): how many ranks?")
        devices = [self.devices[rank] for rank in sorted(self.devices)]
        if [device.rank for device in devices] != list(range(len(devices))):
            listed = ", ".join(str(device.rank) for device in devices)
            raise InputError(f"{where}: the list of devices above is not whole: ranks {listed}")
        check_groups(where, devices)
        self.first_devices = self.first_devices or devices
        if [device.host for device in devices] != [device.host for device in self.first_devices]:
            raise InputError(
                f"{where}: ranks and hosts are others than those of the table before; give one run's output"
            )

    def read_row(self, where: str, line: str) -> None:
        """Take a row of figures."""
        if self.columns is None:
            raise InputError(f"{where}: a row before the line that names the columns (# size count ...)")
        collective = self.named or self.asked or "all_reduce"
        printed = split_row(where, self.columns, line)
        self.rows.append(check_row(where, collective, printed, len(self.devices)))


def read_table(path: Path, text: str, collective: str | None) -> NcclTestsRun:
    """Return the run of a printed table. Raise InputError, also for a line among the rows that is none.

    NCCL's own log may stand among the rows, and anything that is no row before and after the table.
    """
    reader = TableReader(path, collective)
    for number, raw in enumerate(text.splitlines(), start=1):
        line, where = PREFIX.sub("", raw).strip(), f"{path}: line {number}"
        if line.startswith("#"):
            reader.read_comment(where, line)
        elif is_row(line):
            reader.read_row(where, line)
        elif reader.columns is not None and line and "NCCL " not in line:
            raise InputError(
                f"{where}: {line[:60]!r} among the rows is neither a row, nor a comment (#), nor NCCL's log; remove it"
            )
    return make_run(reader.rows, reader.first_devices, len(reader.first_devices), reader.version)


def is_row(line: str) -> bool:
    """Return whether a line is meant as a row: it begins with two numbers, and several words follow."""
    cells = line.split()
    return len(cells) >= 6 and all(NUMBER.match(cell) for cell in cells[:2])


def read_json(path: Path, text: str, collective: str | None) -> NcclTestsRun:
    """Return the run of a file that -J wrote. Raise InputError."""
    try:
        content = parse_json(text, parse_constant=lambda name: name)
    except (ValueError, RecursionError) as error:  # ValueError: also a whole number of thousands of digits
        raise InputError(f"{path}: not JSON: {error}") from error
    config = _get(path, content, "config", dict)
    devices = [_read_device(path, one) for one in _get(path, config, "devices", list)]
    check_groups(path, devices)
    per_process = _get(path, config, "nthreads", int) * _get(path, config, "ngpus", int)
    ranks = len(devices) * per_process
    if not 1 <= ranks <= 1_000_000:
        raise InputError(f"{path}: {len(devices)} devices with {per_process} GPUs each are no ranks")
    arguments = _get(path, content, "args", list)
    named = collective_of(f"{path}: args", str(arguments[0])) if arguments else None
    if "out_of_bounds" in content:
        _check_outcome(path, content)
    rows = _read_results(path, text, _get(path, content, "results", list), named or collective or "all_reduce", ranks)
    version = content.get("nccl_version")
    return make_run(rows, devices, ranks, version_of(version) if isinstance(version, int) else None)


def _check_outcome(path: Path, content: Mapping[str, Any]) -> None:
    outcome = _get(path, content, "out_of_bounds", dict)
    count, okay = _get(path, outcome, "count", int), outcome.get("okay")
    check_outcome(f"{path}: out_of_bounds", str(count) if okay in (True, "true") else f"{count} (okay = {okay!r})")


def _read_results(path: Path, text: str, results: list[Any], collective: str, ranks: int) -> list[MeasuredRow]:
    """Return the rows, each named by its number, and by its line where the file has several."""
    lines = [text.count("\n", 0, match.start()) + 1 for match in re.finditer(r'"size"\s*:', text)]
    rows = []
    for index, result in enumerate(results):
        line = f"line {lines[index]}: " if len(lines) == len(results) else ""
        rows.append(_read_result(f"{path}: {line}result {index + 1}", result, collective, ranks))
    return rows


def _read_device(path: Path, device: object) -> Device:
    keys = (("rank", int), ("group", int), ("pid", int), ("hostname", str), ("device_info", str))
    return Device(*(_get(path, device, key, kind) for key, kind in keys))


def _read_result(where: str, result: object, collective: str, ranks: int) -> MeasuredRow:
    size, count = (_get(where, result, key, int) for key in ("size", "count"))
    dtype, root = (_get(where, result, key, str) for key in ("type", "root"))
    assert isinstance(result, dict)
    sides = [
        _read_side(f"{where}: {key}", key, result[key])
        for key in ("out_of_place", "in_place")
        if result.get(key) is not None
    ]
    if not sides:
        raise InputError(f"{where}: neither out_of_place nor in_place has figures")
    return check_row(where, collective, PrintedRow(str(size), str(count), dtype, root.strip(), tuple(sides)), ranks)


def _read_side(where: str, name: str, body: object) -> Side:
    if isinstance(body, Mapping) and "cpu_time" in body:
        raise InputError(f"{where}: cpu_time says how long the launch took, not the collective; give a run without -C")
    figures = {
        column: _printed(_get(where, body, key, (float, int)))
        for column, key in (("time", "time"), ("algbw", "alg_bw"), ("busbw", "bus_bw"))
    }
    assert isinstance(body, Mapping)
    wrong = body.get("nwrong")
    return side_of(name, {**figures, "#wrong": "N/A" if wrong is None else str(wrong)})


def _printed(value: float) -> str:
    """Return a number as nccl-tests writes it into JSON: with six decimals."""
    return f"{value:.6f}"


def _get(where: object, content: object, key: str, kind: Any) -> Any:
    if not isinstance(content, Mapping) or key not in content:
        raise InputError(f"{where}: {key!r} is missing; give what nccl-tests wrote with -J")
    value = content[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{where}: {key} = {value!r} is not what nccl-tests writes")
    return value


def read_nccl_tests(path: Path | str, collective: str | None = None) -> NcclTestsRun:
    """Return the rows that nccl-tests wrote to a file.

    ``collective`` names what was measured where the output does not, as that of older versions; all_reduce unless said.
    Raises InputError that names file, line, value and what would be accepted.
    """
    path = Path(path)
    if collective is not None and collective not in COLLECTIVES:
        raise InputError(f"collective {collective!r} is not known; {suggest(collective, COLLECTIVES)}")
    text = read_text(path, FileBytes.NCCL_TESTS)
    read = read_json if text.lstrip().startswith("{") else read_table
    run = read(path, text, COLLECTIVES[collective] if collective else None)
    if not run.rows:
        raise InputError(f"{path}: no row of nccl-tests; give the output of all_reduce_perf, or of -J")
    if run.ranks % run.hosts:
        raise InputError(f"{path}: {run.ranks} ranks are not spread evenly over {run.hosts} hosts")
    return run
