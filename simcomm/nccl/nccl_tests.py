"""Read what nccl-tests printed, as a table or as JSON (``-J FILE``): strictly, as predictions are fitted to it.

The format is that of https://github.com/NVIDIA/nccl-tests, src/util.cu; older versions name neither themselves nor the
collective and leave columns out. Out-of-place figures are taken, or in-place ones where there are no others. A row is
refused, with its line, where the run found wrong values, where algbw does not follow from size and time, or busbw from
algbw by the factor of the collective, within the digits that are printed.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from collectives.costs.bounds import bus_factor
from collectives.errors import InputError
from collectives.input_files import read_text
from collectives.suggestions import suggest
from simcomm.nccl.printed_figures import algbw_follows, busbw_follows, read_figure
from simcomm.nccl.tables import COLLECTIVES, Row

MOST_BYTES = 100_000_000  # of a file: a thousand times what a sweep prints
PREFIX = re.compile(r"^\[\d+,\d+\]<std(?:out|err)>:\s?")  # of mpirun --tag-output
RANK = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+(\d+)\s+on\s+(\S+)\s+device\s+\d+\s+\[[^]]*\]\s*(.*)")
STARTING = re.compile(r"#\s*Collective test starting:\s*(\S+)")
THREADS = re.compile(r"#\s*nThread\s+(\d+)\s+nGpus\s+(\d+)")
LIBRARY = re.compile(r"nccl-library=(\d+)")
FIGURES = ("time", "algbw", "busbw")


@dataclass(frozen=True)
class NcclTestsRun:
    """What a run measured, and on what: ranks over hosts, and the GPU as the driver names it."""

    rows: tuple[Row, ...]
    ranks: int
    hosts: int
    processes: int
    gpu_name: str  # "" where the output does not say
    version: tuple[int, int] | None  # of the NCCL that ran

    @property
    def gpus(self) -> int:
        """Ranks of each host."""
        return self.ranks // self.hosts


class Device(NamedTuple):
    """A process's host and GPU, as the list of devices gives them."""

    rank: int
    pid: int
    host: str
    name: str


def read_nccl_tests(path: Path | str, collective: str | None = None) -> NcclTestsRun:
    """Return the rows that nccl-tests wrote to a file.

    ``collective`` names what was measured where the output does not, as that of older versions; all_reduce unless said.
    Raises InputError that names file, line, value and what would be accepted.
    """
    path = Path(path)
    if collective is not None and collective not in COLLECTIVES:
        raise InputError(f"collective {collective!r} is not known; {suggest(collective, COLLECTIVES)}")
    text = read_text(path, MOST_BYTES)
    read = _read_json if text.lstrip().startswith("{") else _read_table
    run = read(path, text, COLLECTIVES[collective] if collective else None)
    if not run.rows:
        raise InputError(f"{path}: no row of nccl-tests; give the output of all_reduce_perf, or of -J")
    if run.ranks % run.hosts:
        raise InputError(f"{path}: {run.ranks} ranks are not spread evenly over {run.hosts} hosts")
    return run


@dataclass
class _TableReader:
    """The state of reading a table line by line."""

    path: Path
    asked: str | None
    named: str | None = None
    columns: tuple[str, ...] | None = None
    version: tuple[int, int] | None = None
    threads: int = 0  # GPUs of each process
    rows: list[Row] | None = None

    def __post_init__(self) -> None:
        """Start without rows and devices."""
        self.rows = []
        self.devices: dict[int, Device] = {}

    def read_comment(self, where: str, line: str) -> None:
        """Take what a line that begins with # tells of the run."""
        if found := STARTING.match(line):
            self.named = _collective_of(where, found[1])
            self.columns = None
        if found := LIBRARY.search(line):
            self.version = _version_of(int(found[1]))
        if found := THREADS.match(line):
            self.threads = int(found[1]) * int(found[2])
            self.columns = None
        if found := RANK.match(line):
            device = Device(int(found[1]), int(found[2]), found[3], found[4].strip())
            if self.devices.setdefault(device.rank, device).host != device.host:
                raise InputError(f"{where}: rank {device.rank} is on another host than before; give one run's output")
        words = line.lstrip("# ").split()
        if words[:2] == ["size", "count"]:
            self.columns = tuple(words)
            if self.columns.count("time") + self.columns.count("cputime") == 0 or "busbw" not in self.columns:
                raise InputError(f"{where}: columns {' '.join(words)}; there must be time, algbw and busbw")
            if sorted(self.devices) != list(range(len(self.devices))):
                listed = ", ".join(map(str, sorted(self.devices)))
                raise InputError(f"{where}: the list of devices above is not whole: ranks {listed}")

    def read_row(self, where: str, line: str) -> None:
        """Take a row of figures."""
        if self.columns is None:
            raise InputError(f"{where}: a row before the line that names the columns (# size count ...)")
        if not self.devices:
            raise InputError(f"{where}: a row before the list of devices (# Rank 0 ... on ...): how many ranks?")
        cells, collective = line.split(), self.named or self.asked or "all_reduce"
        if len(cells) < len(self.columns):
            raise InputError(f"{where}: {len(cells)} cells; the columns are {' '.join(self.columns)}")
        first = next(index for index, name in enumerate(self.columns) if name in ("time", "cputime"))
        texts = dict(zip(FIGURES, cells[first : first + 3], strict=True))
        wrong = cells[first + 3] if len(self.columns) > first + 3 else "N/A"
        assert self.rows is not None
        self.rows.append(_check_row(where, collective, cells[0], texts, wrong, len(self.devices)))


def _read_table(path: Path, text: str, collective: str | None) -> NcclTestsRun:
    reader = _TableReader(path, collective)
    for number, raw in enumerate(text.splitlines(), start=1):
        line, where = PREFIX.sub("", raw).strip(), f"{path}: line {number}"
        if line.startswith("#"):
            reader.read_comment(where, line)
        elif line[:1].isdigit() and "NCCL" not in line:
            reader.read_row(where, line)
    ranks = len(reader.devices)
    return _make_run(reader.rows or [], list(reader.devices.values()), ranks, reader.version)


def _make_run(rows: list[Row], devices: list[Device], ranks: int, version: tuple[int, int] | None) -> NcclTestsRun:
    hosts = len({device.host for device in devices})
    processes = len({(device.host, device.pid) for device in devices})
    return NcclTestsRun(tuple(rows), ranks, max(1, hosts), processes, devices[0].name if devices else "", version)


def _read_json(path: Path, text: str, collective: str | None) -> NcclTestsRun:
    try:
        content = json.loads(text, parse_constant=lambda name: name)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    config = _get(path, content, "config", dict)
    devices = [_read_device(path, one) for one in _get(path, config, "devices", list)]
    per_process = _get(path, config, "nthreads", int) * _get(path, config, "ngpus", int)
    ranks = len(devices) * per_process  # of each process only the first device is listed
    if not 1 <= ranks <= 1_000_000:
        raise InputError(f"{path}: {len(devices)} devices with {per_process} GPUs each are no ranks")
    arguments = _get(path, content, "args", list)
    named = _collective_of(f"{path}: args", str(arguments[0])) if arguments else None
    version = content.get("nccl_version")
    lines = [text.count("\n", 0, match.start()) + 1 for match in re.finditer(r'"size"\s*:', text)]
    rows = []
    for index, result in enumerate(_get(path, content, "results", list)):
        where = f"{path}: line {lines[index]}" if index < len(lines) else f"{path}: result {index + 1}"
        rows.append(_read_result(where, result, named or collective or "all_reduce", ranks))
    return _make_run(rows, devices, ranks, _version_of(version) if isinstance(version, int) else None)


def _read_device(path: Path, device: object) -> Device:
    values = [_get(path, device, key, kind) for key, kind in
              (("rank", int), ("pid", int), ("hostname", str), ("device_info", str))]  # fmt: skip
    return Device(*values)


def _read_result(where: str, result: object, collective: str, ranks: int) -> Row:
    size = _get(where, result, "size", int)
    assert isinstance(result, dict)
    body = result.get("out_of_place") or result.get("in_place")
    if not isinstance(body, dict):
        raise InputError(f"{where}: neither out_of_place nor in_place has figures")
    keys = {"time": "cpu_time" if "cpu_time" in body else "time", "algbw": "alg_bw", "busbw": "bus_bw"}
    texts = {name: _printed(_get(where, body, key, (float, int))) for name, key in keys.items()}
    wrong = body.get("nwrong")
    return _check_row(where, collective, str(size), texts, "N/A" if wrong is None else str(wrong), ranks)


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


def _collective_of(where: str, program: str) -> str:
    """Return the collective of a program's name, as ``./build/all_reduce_perf_mpi``."""
    name = re.sub(r"_perf(_\w+)?$", "", program.rpartition("/")[2])
    if name not in COLLECTIVES:
        raise InputError(f"{where}: {program!r} measures none of {', '.join(COLLECTIVES)}")
    return COLLECTIVES[name]


def _version_of(code: int) -> tuple[int, int]:
    """Return the version of NCCL's code: 2.8.4 is 2804, 2.28.9 is 22809."""
    return (code // 1000, code // 100 % 10) if code < 10_000 else (code // 10_000, code // 100 % 100)


def _check_row(where: str, collective: str, size: str, texts: Mapping[str, str], wrong: str, ranks: int) -> Row:
    """Return a row whose figures follow from each other. Raise InputError where they do not."""
    if not (size.isascii() and size.isdigit() and len(size) <= 18):
        raise InputError(f"{where}: size {size!r}; give a whole number of bytes")
    time, algbw, busbw = (read_figure(where, name, texts[name]) for name in FIGURES)
    if wrong != "N/A" and read_figure(where, "#wrong", wrong).value:
        raise InputError(f"{where}: {wrong} wrong values; what was measured is not the collective")
    if time.value <= 0:
        raise InputError(f"{where}: time {texts['time']}; a collective takes time")
    factor, nbytes = bus_factor(collective, ranks), int(size)
    if not algbw_follows(nbytes, time, algbw):
        raise InputError(f"{where}: algbw {texts['algbw']} does not follow from {size} bytes in {texts['time']} us")
    if not busbw_follows(factor, algbw, busbw):
        raise InputError(
            f"{where}: busbw {texts['busbw']} does not follow from algbw {texts['algbw']}: for {collective} of {ranks} "
            f"ranks it is {factor:.4g} times as much; for another collective give --collective"
        )
    return Row(collective, nbytes, time.value / 1e6, algbw.value, busbw.value)
