"""Read the columns and cells of an nccl-tests table. It may be as printed, CSV or Markdown, and cut off."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

from collectives.errors import InputError
from simcomm.nccl.measured.nccl_tests_rows import CUT, PrintedRow, Side, collective_of, side_of
from simcomm.nccl.measured.tables import find_algbw
from simcomm.nccl.pasted import ELEMENT_BYTES, ROW_START, FilePlace

NAMES = {  # each column's possible headings, in lower case, without marks and unit
    "collective": ("collective", "name", "operation", "test"),
    "ranks": ("ranks", "nranks", "gpus", "ngpus", "worldsize"),
    "nodes": ("nodes", "nnodes", "hosts"),
    "inplace": ("inplace",),
    "size": ("size", "bytes", "nbytes", "buffersize", "datasize", "messagesize", "msgsize", "message", "sizebytes"),
    "count": ("count", "elements", "elems"),
    "type": ("type", "dtype", "datatype"),
    "redop": ("redop", "op"),
    "root": ("root",),
    "time": ("time", "latency", "completiontime", "timeus"),
    "cputime": ("cputime",),
    "algbw": ("algbw", "algorithmbandwidth", "algorithmbw", "algbwgbps"),
    "busbw": ("busbw", "busbandwidth", "busbwgbps"),
    "wrong": ("wrong", "nwrong", "errors"),
    "error": ("error",),
}
MEANINGS = {name: meaning for meaning, names in NAMES.items() for name in names}
FIGURES = ("time", "algbw", "busbw")
SIDES = ("out of place", "in place")
SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SCALES = {"s": 1e6, "ms": 1e3, **SIZES}  # factor of a column's unit, to us or bytes
SIZE = re.compile(r"(\d{1,18}(?:\.\d+)?)\s*([KMG]?)(?:i?B|ytes)?", re.IGNORECASE)
OF_SIZE, OF_FIGURE = re.compile("size|bytes|message"), re.compile("time|latency|bw|bandwidth")
SEPARATORS = ("|", ",", ";", "\t", "")  # "": any whitespace
THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+")
STAMP = re.compile(r"\d{4}-\d\d-\d\d[\s,;|T]+\d\d:\d\d:\d\d[\s,;|]*$")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
MARKS = "\"'`* "
BLANK_SIDE = re.compile(r"\S\s{30,}\S")  # of a replayed trace, which runs in place only: 32 spaces for the other side
WORDS = {*ELEMENT_BYTES, "sum", "prod", "min", "max", "avg", "mulsum", "all", "none", "N/A", "-"}


class Column(NamedTuple):
    """A table's column: its quantity, its side (0: out of place, 1: in place), and the factor to us or bytes."""

    quantity: str  # "": unknown
    side: int = 0
    scale: float = 1.0


@dataclass(frozen=True)
class Columns:
    """The columns of a table, and the separator between its cells."""

    columns: tuple[Column, ...]
    separator: str = ""

    @cached_property
    def sides(self) -> tuple[int, ...]:
        """The sides for which the table has results."""
        return tuple(dict.fromkeys(column.side for column in self.columns if column.quantity in FIGURES))

    def without(self, meaning: str) -> "Columns":
        """Return the columns whose quantity is not ``meaning``."""
        return replace(self, columns=tuple(column for column in self.columns if column.quantity != meaning))

    def of_side(self, side: int) -> "Columns":
        """Return the columns without the other side's results."""
        figures = (*FIGURES, "wrong", "error", "")
        columns = (column for column in self.columns if column.quantity not in figures or column.side == side)
        return replace(self, columns=tuple(columns))


@cache
def standard_columns() -> tuple[Columns, ...]:
    """Return the columns of every version of nccl-tests, for tables without a header line."""
    versions = []
    for sides, each in ((2, 0), (1, 0), (2, 4)):  # with -M four more on each side
        for more in (("redop", "root"), ("redop",), ("root",), ()):
            names = (*FIGURES, "wrong", *[""] * each)
            figures = [Column(meaning, side) for side in range(sides) for meaning in names]
            versions.append(Columns((*(Column(meaning) for meaning in ("size", "count", "type", *more)), *figures)))
    return tuple(versions)


def find_columns(text: str) -> Columns | None:
    """Return the columns that a header line names, or None for any other line.

    >>> [column.quantity for column in find_columns("| Size | Time (ms) | busbw (GB/s) |").columns]
    ['size', 'time', 'busbw']
    """
    small = text.lower()
    if not (OF_SIZE.search(small) and OF_FIGURE.search(small)):
        return None
    for separator in SEPARATORS:
        if separator not in text or not (separator or small.lstrip("# ").startswith("size")):
            continue
        cells = _header_cells(small, separator)
        if any(NUMBER.fullmatch(cell) for cell in cells):
            return None
        columns: list[Column] = []
        for cell in cells:
            columns += [_column(cell, columns)] if cell != "timestamp" else []
        meanings = {column.quantity for column in columns}
        if "size" in meanings and {*FIGURES, "cputime"} & meanings and len(columns) > 1:
            return Columns(tuple(columns), separator)
    return None


def _header_cells(text: str, separator: str) -> list[str]:
    if separator:
        return split_cells(text, separator)
    cells: list[str] = []
    for word in text.lstrip("# ").split():
        if word.startswith("(") and cells:  # the unit of the word before
            cells[-1] += word
        else:
            cells.append(word)
    return cells


def _column(cell: str, before: Sequence[Column]) -> Column:
    unit = re.search(r"[(\[_ ]([kmg]i?b|us|µs|ms|s)\b", cell)
    name = re.sub(r"[^a-z]", "", re.sub(r"[(\[].*|_(?:[kmg]i?b|us|ms|s|gbps|bytes)$", "", cell))
    placed = re.match(r"(ip|inplace|oop|outofplace|out)(?=.)", name)
    meaning = MEANINGS.get(name) or MEANINGS.get(name[placed.end() :] if placed else "", "")
    sides = [column.side for column in before if column.quantity in FIGURES]
    if meaning in FIGURES and placed is None:
        side = min(1, sum(column.quantity == meaning for column in before))
    else:
        side = int(placed[1] in ("ip", "inplace")) if placed and meaning else sides[-1] if sides else 0
    return Column(
        meaning, side, SCALES.get(unit[1][:1] if unit and meaning == "size" else unit[1] if unit else "", 1.0)
    )


def split_cells(text: str, separator: str) -> list[str]:
    """Split a line into cells. Remove the marks of Markdown and CSV."""
    cells = text.strip().strip("|").split("|") if separator == "|" else text.split(separator or None)
    return [cell.strip(MARKS) for cell in cells]


def read_cells(place: FilePlace, text: str, columns: Columns | None) -> PrintedRow:
    """Return the row in a text. If it is cut off, return its complete side. Raise InputError if the text is not a row.

    The columns come from the header line. If there is none, they come from the versions of nccl-tests.
    """
    text = STAMP.sub("", text)
    anchor = ROW_START.search(text)
    as_printed = list(_split_printed(text[anchor.start() :])) if anchor else []
    named = [columns] if columns else []
    if columns and not columns.separator:  # some versions print a blank cell
        named += [columns.without("redop"), columns.without("root"), columns.without("redop").without("root")]
    rows = list[PrintedRow]()
    for known in (named, standard_columns() if anchor else ()):
        readings = [
            (each, cells)
            for each in known
            for cells in ([split_cells(text, each.separator)] if each.separator or not anchor else []) + as_printed
        ]
        rows += [row for each, cells in readings if (row := _read_whole(place, cells, each))]
        if known is named or not named:
            rows += [row for each, cells in readings if (row := _read_cut(place, cells, each, text))]
        if rows:
            break
    if not rows:
        raise InputError(
            f"{place}: {text.strip()[:60]!r} is not a row of nccl-tests: it is cut off or mixed with other "
            "output, or its type or redop is unknown; paste the row as nccl-tests prints it"
        )
    return next(filter(_is_likely, rows), rows[0])  # consistency is checked later


def _split_printed(text: str) -> Iterator[list[str]]:
    """Yield the possible cells of a row as nccl-tests prints it, with any separator, or with decimal commas.

    Words that follow the row are omitted.
    """
    splits = [split_cells(text.replace("|", " "), "")]
    if "," in text or ";" in text:
        splits.append([cell.strip(MARKS) for cell in re.split(r"[\s,;|]+", text) if cell])
        splits.append(split_cells(re.sub(r"(?<=\d),(?=\d)", ".", re.sub("[|;]", " ", text)), ""))
    for cells in splits:
        ends = [at for at, cell in enumerate(cells, start=1) if cell in WORDS or NUMBER.fullmatch(cell)]
        yield cells[: ends[-1]] if ends else cells


def _read_whole(place: FilePlace, cells: list[str], columns: Columns) -> PrintedRow | None:
    if len(cells) != len(columns.columns):
        return None
    try:
        return _make_row(place, list(zip(columns.columns, cells, strict=True)), columns.sides)
    except InputError:
        return None


def _read_cut(place: FilePlace, cells: list[str], columns: Columns, text: str) -> PrintedRow | None:
    if len(cells) >= len(columns.columns):
        return None
    if 1 in columns.sides and BLANK_SIDE.search(text):
        return _read_whole(place, cells, columns.of_side(1))
    missing = {column.side for column in columns.columns[len(cells) :] if column.quantity}
    complete_sides = [side for side in columns.sides if side not in missing]
    try:
        row = _make_row(place, list(zip(columns.columns, cells, strict=False)), complete_sides)
    except InputError:
        return None
    return replace(row, is_cut=True)


def _make_row(place: FilePlace, read: Sequence[tuple[Column, str]], complete_sides: Sequence[int]) -> PrintedRow:
    cell_of = {column.quantity: cell for column, cell in read if column.quantity and column.quantity not in FIGURES}
    sides: list[Side] = []
    for side in complete_sides:
        side_cells = [(column, cell) for column, cell in read if column.side == side]
        figures = {column.quantity: _plain(cell, column.quantity) for column, cell in side_cells}
        wrong = figures.get("wrong", "")
        if re.fullmatch(r"\d(?:\.\d+)?e[-+]\d+", wrong):  # versions until 2022, without a header line
            figures["error"] = figures.pop("wrong")
        elif not re.fullmatch(r"\d*|N/A", wrong):
            raise InputError(f"{place}: {wrong!r} is not a number of wrong values; {CUT}")
        scale = next((column.scale for column, _ in side_cells if column.quantity == "time"), 1.0)
        sides.append(side_of(SIDES[side] if side else "", figures, scale, place))
    if cell_of.get("inplace", "0").lower() in ("1", "true", "yes"):
        sides = [side._replace(name=SIDES[1]) for side in sides]
    sides = [side for side in sides if side.time or side.algbw or side.busbw]
    dtype = cell_of.get("type")
    is_reduction = not NUMBER.fullmatch(cell_of.get("redop", ""))
    if not sides or "size" not in cell_of or not is_reduction or (dtype is not None and dtype not in ELEMENT_BYTES):
        raise InputError(f"{place}: a column is missing, or its type or redop is unknown")
    named = collective_of(cell_of.get("collective", ""))
    return PrintedRow(
        place,
        read_bytes(place, cell_of["size"], next(column.scale for column, _ in read if column.quantity == "size")),
        tuple(sides),
        count=None if "count" not in cell_of else read_bytes(place, cell_of["count"]),
        dtype=dtype,
        redop=cell_of.get("redop", ""),
        root=_whole(place, cell_of.get("root", "-1")),
        collective=named or "",
        ranks=_whole(place, cell_of.get("ranks", "0")),
        nodes=_whole(place, cell_of.get("nodes", "0")),
    )


def _plain(cell: str, meaning: str) -> str:
    if meaning not in FIGURES:
        return cell
    match = re.fullmatch(r"([\d.,eE+-]+)\s*(?:us|µs|GB/s)?", cell)
    text = match[1] if match else cell
    return (
        "" if cell in ("", "-", "N/A") else text.replace(",", "." if text.count(",") == 1 and "." not in text else "")
    )


def read_bytes(place: FilePlace, text: str, scale: float = 1) -> int:
    """Return a size of a table in bytes; 1 MB is 2^20, as for ``-b 1M``. Raise InputError if the text is not a size.

    >>> read_bytes(FilePlace("a.txt", 1), "8 MB"), read_bytes(FilePlace("a.txt", 1), "104,857,600")
    (8388608, 104857600)
    """
    plain = text.replace(",", "") if THOUSANDS.fullmatch(text.partition(" ")[0]) else text
    match = SIZE.fullmatch(plain)
    if match is None:
        raise InputError(f"{place}: the size must be an integer of bytes, not {text!r}")
    if scale == 1 and match[1].isdecimal() and not match[2]:
        return int(match[1])
    return round(float(match[1]) * scale * SIZES[match[2].lower()])


def _whole(place: FilePlace, text: str) -> int:
    if not re.fullmatch(r"-1|\d{1,9}", text or "0"):
        raise InputError(f"{place}: {text!r} is not an integer")
    return int(text or "0")


def _is_likely(row: PrintedRow) -> bool:
    """Return whether algbw is 0.5 to 1 times size / time, and busbw at most 2 algbw, within the printed digits."""
    for side in row.sides:
        if side.time is not None and side.algbw is not None:
            low, high = find_algbw(row.nbytes, side.time).range
            if not (low / 2 <= side.algbw.range[1] and side.algbw.range[0] <= high * (1 + 1e-9)):
                return False
        if side.algbw is not None and side.busbw is not None and side.busbw.range[0] > 2 * side.algbw.range[1]:
            return False
    return True


def may_be_row(text: str, columns: Columns | None = None) -> bool:
    """Return whether a line may be a row, even one that is cut off or broken.

    Such a line has enough cells, or only numbers and words of a row.

    >>> may_be_row("33554432 8388608 float sum"), may_be_row("12 errors in step 3"), may_be_row("step 3 of 8 done")
    (True, False, False)
    """
    if columns and columns.separator and len(split_cells(text, columns.separator)) == len(columns.columns):
        return re.search(r"\d", text) is not None
    cells = [cell.strip(MARKS) for cell in re.split(r"[\s|,;]+", text) if cell.strip(MARKS)]
    numbers = sum(NUMBER.fullmatch(cell) is not None for cell in cells)
    plain = numbers + sum(cell in WORDS for cell in cells)
    begins = len(cells) > 2 and all(cell.isdecimal() for cell in cells[:2])
    return numbers >= 5 or begins or (numbers > 0 and plain == len(cells))
