"""Read the output of nccl-tests and rccl-tests: plain text as printed or pasted, CSV or Markdown.

The format is defined in https://github.com/NVIDIA/nccl-tests, src/util.cu, and before 2025 in src/common.cu. Older
versions print fewer columns, and neither their name nor the collective. Out-of-place results are used or, if they are
missing, in-place results. A row is skipped if it is cut off, if the run found wrong values, or if its numbers are
inconsistent. Each skipped row is reported with its line and the reason.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from collectives.budget import Gigabyte, check_read
from collectives.errors import InputError
from collectives.input_files import FileBytes
from collectives.quoting import suggest
from collectives.units import count
from simcomm.nccl.measured.nccl_tests_columns import Columns, find_columns, may_be_row, read_cells
from simcomm.nccl.measured.nccl_tests_rows import (
    CUT,
    NOT_IT,
    Call,
    NcclTestsRun,
    PrintedRow,
    check_row,
    collective_of,
    find_call,
)
from simcomm.nccl.measured.tables import COLLECTIVES, MeasuredRow
from simcomm.nccl.pasted import ROW_START, FilePlace, PastedLine, number_lines, read_pasted

RANK = re.compile(
    r"Rank\s+(\d{1,7})\s+(?:Group\s+(\d{1,9})\s+)?Pid\s+(\d{1,12})\s+on\s+(\S+)\s+device\s+\d+\s+\[[^]]*\]\s*([^`]*)"
)
NAME_END = re.compile(r"(?!.*(?:version|NCCL|Rank))[\w.()\[\] -]{1,40}", re.IGNORECASE)
STARTING = re.compile(r"Collective test starting:\s*(\S+)")
THREADS = re.compile(r"nThread:?\s+(\d{1,4})\s+nGpus:?\s+(\d{1,4})")
LIBRARY = re.compile(r"nccl-library=(\d{1,9})(?!\d)")
VERSION = re.compile(r"\b[NR]CCL version (?:: )?(\d{1,2})\.(\d{1,3})\.\d+")
OUT_OF_BOUNDS = re.compile(r"Out of bounds values\s*:\s*([^`]*)")
ENDS = re.compile(r"Avg bus bandwidth|Collective test concluded|Out of bounds values")
PROGRAM = re.compile(r"\b([a-z_]{4,20}_perf)(?:_\w+)?\b")
HEADING = re.compile(
    r"\b(all[-_ ]?(?:reduce|gather|to[-_ ]?all)|reduce[-_ ]?scatter|send[-_ ]?recv|broadcast|reduce|gather|scatter)"
    r"(?![a-z])",
    re.IGNORECASE,
)
OF_NCCL = re.compile(
    r"(?:\[\d+\]\s*)?(?:[A-Za-z][\w.-]*:\d+:\d+\s+)?(?:\[\d+\]\s+)?(?:\S+\.\w+:\d+\s+)?"
    r"NCCL (?:INFO|WARN|TRACE)\b.*"
)
OF_LAUNCH = "contains launch times, not those of the collective; run nccl-tests without -C"
MOST_HEADING = 120  # characters of a line that can name the collective below it
MOST_PIECES = 3  # lines into which a terminal can break a row
MOST_BETWEEN = 200  # lines of other output between two pieces of a row


class Device(NamedTuple):
    """A rank in the device list that nccl-tests prints, with its process, host and GPU."""

    rank: int
    group: int
    pid: int
    host: str
    name: str


@dataclass(frozen=True)
class NcclTestsOutput:
    """The contents of an output file: its runs, which may have no rows, and the reason for each skipped row."""

    file: str
    runs: tuple[NcclTestsRun, ...]
    skipped: tuple[tuple[int, str], ...]

    def as_one_run(self) -> NcclTestsRun:
        """Combine the runs with rows into one. Raise InputError if their numbers of ranks or hosts differ."""
        first, *others = (run for run in self.runs if run.rows)
        for run in others:
            if (run.ranks, run.hosts) != (first.ranks, first.hosts):
                size, other = (f"{count(each.ranks, 'rank')} on {count(each.hosts, 'host')}" for each in (run, first))
                place = FilePlace(self.file, run.line)
                raise InputError(f"{place}: this run has {size}, but the first run has {other}; keep one run")
        return replace(first, rows=tuple(row for run in (first, *others) for row in run.rows))


@dataclass
class _Reader:
    file: str
    lines: Sequence[PastedLine]
    ranks: int  # from the caller; 0: unknown
    collective: str  # from the caller; "": unknown
    runs: list[NcclTestsRun] = field(default_factory=list)
    skipped: list[tuple[int, str]] = field(default_factory=list)
    # state of the current table
    columns: Columns | None = None
    printed: list[PrintedRow] = field(default_factory=list)
    # state of the current run
    devices: dict[int, Device] = field(default_factory=dict)
    apart: set[str] = field(default_factory=set)  # hosts that list the same rank
    is_cut: bool = False  # whether the end of the device list is missing
    first: int = 0
    named: str = ""
    hint: str = ""
    in_process: int = 1
    version: tuple[int, int] | None = None
    rows: list[MeasuredRow] = field(default_factory=list)
    guesses: list[str] = field(default_factory=list)
    counted: tuple[int, int] = (0, 0)  # ranks and nodes of the rows, without a device list

    def read(self) -> NcclTestsOutput:
        begins = [ROW_START.search(line.text) is not None for line in self.lines]
        at = 0
        while at < len(self.lines):
            text = self.lines[at].text
            is_among = self.columns is not None or self.printed or begins[at + 1 : at + 2] == [True]
            if begins[at] or (is_among and text[:1] != "#" and may_be_row(text, self.columns)):
                at = self.read_row(at)
            else:
                if "NCCL INFO" not in text and "NCCL WARN" not in text:
                    self.read_other(at, text)
                at += 1
        self.end_run()
        return NcclTestsOutput(self.file, tuple(self.runs), tuple(sorted(self.skipped)))

    def place(self, at: int) -> FilePlace:
        return self.lines[at].place(self.file)

    def skip(self, line: int, reason: str) -> None:
        self.skipped.append((line, reason))
        check_read(self.file, len(self.skipped), Gigabyte.ENTRIES, "broken rows")

    def read_other(self, at: int, text: str) -> None:
        if match := STARTING.search(text):
            self.end_run()
            self.named = collective_of(match[1])
        elif (match := PROGRAM.search(text)) or (
            (match := HEADING.search(text)) and len(text) <= MOST_HEADING and self.columns is None
        ):
            self.hint = collective_of(match[1]) or self.hint
        if match := THREADS.search(text):
            if self.rows or self.printed or self.devices:
                named = self.named
                self.end_run()
                self.named = named
            self.in_process = max(1, int(match[1]) * int(match[2]))
        if match := LIBRARY.search(text):
            code = int(match[1])  # four digits until 2.8
            self.version = (code // 1000, code // 100 % 10) if code < 10_000 else (code // 10_000, code // 100 % 100)
        elif match := VERSION.search(text):
            self.version = self.version or (int(match[1]), int(match[2]))
        if "Rank" in text and (match := self.find_device(at)):
            self.read_device(at, match)
        elif (columns := self.find_columns(at)) is not None:
            self.end_table()
            self.columns = columns
        if match := OUT_OF_BOUNDS.search(text):
            self.check_outcome(at, match[1].strip())
        if ENDS.search(text):
            self.end_table()

    def find_columns(self, at: int) -> Columns | None:
        """Return the columns of a header line, which a terminal may have broken into several lines."""
        columns = find_columns(self.lines[at].text)
        if columns is None or columns.separator:
            return columns
        joined = (find_columns(text.replace("# ", "")) for _, text in self._joined(at, self.lines[at].text))
        whole = (each for each in joined if each and all(column.quantity for column in each.columns))
        return next(whole, columns)

    def find_device(self, at: int) -> "re.Match[str] | None":
        """Return the match of a device line, which a terminal may have broken into two lines."""
        text, after = self.lines[at].text, self.lines[at + 1].text if at + 1 < len(self.lines) else ""
        match = RANK.search(text)
        is_name = NAME_END.fullmatch(after) and not HEADING.search(after)
        if not is_name if match else after.startswith("#"):
            return match
        between = " " if text[-1:].isalpha() and after[:1].isalpha() else ""
        return RANK.search(text + between + after) or RANK.search(text + after) or match

    def read_device(self, at: int, match: "re.Match[str]") -> None:
        """Add a device to the run. If rows have followed since another process listed this rank, start a new run."""
        device = Device(int(match[1]), int(match[2] or 0), int(match[3]), match[4], match[5].strip())
        known = self.devices.get(device.rank)
        if known is not None and (known.host, known.pid) != (device.host, device.pid):
            if not (self.rows or self.printed):
                self.apart |= {known.host, device.host}
                return
            self.end_run()
        self.first = self.first or self.lines[at].number
        self.devices.setdefault(device.rank, device)

    def check_outcome(self, at: int, outcome: str) -> None:
        words = outcome.split()
        wrong = words[0] if words[1:] == ["OK"] else outcome
        if not re.fullmatch(r"0*", wrong):
            reason = f"{self.place(at)}: {wrong} values out of bounds, by nccl-tests' own check; {NOT_IT}"
            for row in self.printed:
                self.skip(row.place.line, reason)
            self.printed = []

    def read_row(self, at: int) -> int:
        """Read the row that starts at a line, joining broken pieces. Return the number of the next line."""
        place, text = self.place(at), self.lines[at].text
        anchor = ROW_START.search(text)
        before = text[: anchor.start()].strip() if anchor else ""
        row_text = OF_NCCL.sub("", text[len(before) :].lstrip() if anchor else text)
        reason, row = "", None
        try:
            row = read_cells(place, row_text, self.columns)
        except InputError as error:
            reason = str(error)
        if row is None or row.is_cut:
            for next_at, longer in self._joined(at, row_text, before):
                try:
                    joined = read_cells(place, longer, self.columns)
                except InputError:
                    continue
                if not joined.is_cut and all(side.wrong in ("N/A", "0") for side in joined.sides):
                    self.take(joined)
                    return next_at
        is_last = not any(ROW_START.search(line.text) for line in self.lines[at + 1 : at + 1 + MOST_BETWEEN])
        if row is None or (row.is_cut and is_last and not (self.printed and self.printed[-1].is_cut)):
            if row is not None or anchor or may_be_row(text, self.columns):
                self.skip(place.line, reason or f"{place}: {CUT}")
        else:
            self.take(row)
        return at + 1

    def take(self, row: PrintedRow) -> None:
        if self.columns is not None and any(column.quantity == "cputime" for column in self.columns.columns):
            self.skip(row.place.line, f"{row.place}: the column cputime {OF_LAUNCH}")
            return
        self.first = self.first or row.place.line
        self.printed.append(row)
        check_read(self.file, len(self.printed) + len(self.rows), Gigabyte.ENTRIES, "rows")

    def _joined(self, at: int, text: str, before: str = "") -> Iterator[tuple[int, str]]:
        """Yield each way to join the pieces of a broken row: the number of the next line, and the joined text."""
        pieces, next_at = 1, at + 1
        joined = [text]
        while next_at < len(self.lines) and pieces < MOST_PIECES and next_at - at < MOST_BETWEEN:
            piece = self.lines[next_at].text
            if piece.startswith("#") or ROW_START.search(piece) or ENDS.search(piece) or find_columns(piece):
                return
            next_at += 1
            piece = OF_NCCL.sub("", piece.removeprefix(before) if before else piece)
            if piece.strip():
                pieces += 1
                joined = [each + between + piece for each in joined for between in ("", " ")]
                yield from ((next_at, each) for each in joined)

    def end_table(self) -> None:
        printed, self.printed, self.columns = self.printed, [], None
        groups: dict[tuple[str, int, int], list[PrintedRow]] = {}
        for row in printed:
            groups.setdefault((row.collective, row.ranks, row.nodes), []).append(row)
        for (named, ranks, nodes), rows in groups.items():
            out_of_place = [row for row in rows if not row.sides[0].name]
            self._take_table(out_of_place or rows, named, ranks, nodes)

    def _take_table(self, rows: list[PrintedRow], named: str, ranks: int, nodes: int) -> None:
        named = self.named or named
        name = Path(self.file).stem.replace(".", " ").replace("_perf", "")
        hints = [self.collective, self.hint, *(collective_of(match[1]) for match in HEADING.finditer(name))]
        listed = len(self.listed())
        call = find_call(rows, named, hints, listed or ranks or self.ranks, self.in_process)
        checked, broken = _check_rows(rows, call)
        if listed and not checked:
            call = find_call(rows, named, hints, ranks or self.ranks, self.in_process)
            without, others = _check_rows(rows, call)
            if without:  # the list of devices is cut off
                checked, broken, self.is_cut = without, others, True
        for line, reason in broken:
            self.skip(line, reason)
        if self.rows and not self.devices and (call.ranks, nodes) != self.counted:
            self._keep_run()
        self.first = self.first or rows[0].place.line
        self.counted = call.ranks, nodes
        self.rows += checked
        self.guesses += [guess for guess in call.guesses if guess not in self.guesses] if checked else []

    def listed(self) -> list[Device]:
        devices = [self.devices[rank] for rank in sorted(self.devices)]
        is_whole = [device.rank for device in devices] == list(range(len(devices)))
        is_one_group = len({device.group for device in devices}) == 1
        return devices if is_whole and is_one_group and not self.is_cut else []

    def _keep_run(self) -> None:
        devices, known = self.listed(), list(self.devices.values())
        ranks, nodes = (len(devices), len({device.host for device in devices})) if devices else self.counted
        guesses = list(self.guesses)
        if known and not devices:
            guesses.append(
                f"line {self.first}: the list of devices is incomplete, or describes several groups of ranks"
            )
        if self.apart:
            hosts = ", ".join(sorted(self.apart))
            guesses.append(
                f"line {self.first}: several processes (hosts {hosts}) have rank 0; Ringlab assumes that each ran alone"
            )
        run = NcclTestsRun(
            tuple(self.rows), ranks, nodes, max(1, len({(device.host, device.pid) for device in devices})),
            known[0].name if known else "", self.version, self.first, tuple(guesses),
        )  # fmt: skip
        if run.rows or devices:
            self.runs.append(run)
        self.rows, self.guesses, self.counted, self.first = [], [], (0, 0), 0

    def end_run(self) -> None:
        self.end_table()
        self._keep_run()
        self.devices, self.apart, self.is_cut, self.named, self.in_process = {}, set(), False, "", 1


def _check_rows(rows: Sequence[PrintedRow], call: Call) -> tuple[list[MeasuredRow], list[tuple[int, str]]]:
    checked, broken = list[MeasuredRow](), list[tuple[int, str]]()
    for row in rows:
        try:
            checked.append(check_row(row, call.collective, call.ranks))
        except InputError as error:
            broken.append((row.place.line, str(error)))
    return checked, broken


def read_table(file: str, lines: Sequence[PastedLine], collective: str = "", ranks: int = 0) -> NcclTestsOutput:
    """Return the runs in a text. ``collective`` and ``ranks`` are used if the text does not state them."""
    return _Reader(file, lines, ranks, collective).read()


def read_nccl_tests(path: Path | str, collective: str | None = None, ranks: int = 0) -> NcclTestsOutput:
    """Return the runs in an output file of nccl-tests or rccl-tests. Raise InputError if no row can be used.

    ``collective`` is used if the output does not name it, and ``ranks`` if it lists no devices.
    """
    path = Path(path)
    if collective is not None and collective not in COLLECTIVES:
        raise InputError(f"unknown collective {collective!r}; {suggest(collective, COLLECTIVES)}")
    operation, text = COLLECTIVES[collective] if collective else "", read_pasted(path, FileBytes.NCCL_TESTS)
    if text.lstrip().startswith("{"):
        raise InputError(f"{path}: JSON of nccl-tests -J is not supported; save the table that nccl-tests prints")
    output = read_table(str(path), number_lines(text), operation, ranks)
    if not any(run.rows for run in output.runs):
        if output.skipped:
            raise InputError(output.skipped[0][1])
        raise InputError(f"{path}: no row of nccl-tests or rccl-tests; use the output of all_reduce_perf")
    return output
