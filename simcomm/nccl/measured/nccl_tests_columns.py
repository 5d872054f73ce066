"""Read the columns and cells of an nccl-tests table: plain text, CSV or Markdown, possibly cut off."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import product
from typing import NamedTuple

from collectives.errors import InputError
from simcomm.nccl.measured.nccl_tests_rows import CUT, PrintedRow, Side, collective_of
from simcomm.nccl.measured.tables import PrintedFigure, find_algbw, read_figure
from simcomm.nccl.pasted import ELEMENT_BYTES, ROW_START, FilePlace

MEANINGS = {  # each heading in lower case, without marks and unit, and its quantity
    name: quantity
    for quantity, names in {
        "collective": "collective name operation test",
        "ranks": "ranks nranks gpus ngpus worldsize",
        "nodes": "nodes nnodes hosts",
        "inplace": "inplace",
        "size": "size bytes nbytes buffersize datasize messagesize msgsize message sizebytes",
        "count": "count elements elems",
        "type": "type dtype datatype",
        "redop": "redop op",
        "root": "root",
        "time": "time latency completiontime timeus",
        "cputime": "cputime",
        "algbw": "algbw algorithmbandwidth algorithmbw algbwgbps",
        "busbw": "busbw busbandwidth busbwgbps",
        "wrong": "wrong nwrong errors",
        "error": "error",
    }.items()
    for name in names.split()
}
FIGURES = ("time", "algbw", "busbw")
SIDE = " time algbw busbw wrong"  # columns of a side
OF_SIDE = (*FIGURES, "wrong", "error", "")
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
    """A table column. ``side`` is 0 for out-of-place and 1 for in-place. ``scale`` converts values to us or bytes."""

    quantity: str  # "": unknown
    side: int = 0
    scale: float = 1.0


class Columns(NamedTuple):
    columns: tuple[Column, ...]
    separator: str = ""

    def without(self, *quantities: str) -> "Columns":
        """Return the columns except those of ``quantities``."""
        return self._replace(columns=tuple(column for column in self.columns if column.quantity not in quantities))


@cache
def standard_columns() -> tuple[Columns, ...]:
    """Return the columns of every version of nccl-tests, for tables without a header line."""
    sides = (SIDE * 2, SIDE, (SIDE + " - - - -") * 2)  # with -M four more columns on each side
    headers = product(sides, ("redop root", "redop", "root", ""))
    return tuple(filter(None, (find_columns(f"size count type {call}{figures}") for figures, call in headers)))


def find_columns(text: str) -> Columns | None:
    """Return the columns that a header line names, or None for any other line.

    >>> [column.quantity for column in find_columns("| Size | Time (ms) | busbw (GB/s) |").columns]
    ['size', 'time', 'busbw']
    """
    small = re.sub(r"\s+\(", "(", text.lower().lstrip("# "))  # a unit belongs to the word before
    if not (OF_SIZE.search(small) and OF_FIGURE.search(small)):
        return None
    for separator in SEPARATORS:
        if separator not in text or not (separator or small.startswith("size")):
            continue
        cells = split_cells(small, separator)
        if any(NUMBER.fullmatch(cell) for cell in cells):
            return None
        columns: list[Column] = []
        for cell in cells:
            columns += [_column(cell, columns)] if cell != "timestamp" else []
        quantities = {column.quantity for column in columns}
        if "size" in quantities and {*FIGURES, "cputime"} & quantities and len(columns) > 1:
            return Columns(tuple(columns), separator)
    return None


def _column(cell: str, before: Sequence[Column]) -> Column:
    unit = re.search(r"[(\[_ ]([kmg]i?b|us|µs|ms|s)\b", cell)
    name = re.sub(r"[^a-z]", "", re.sub(r"[(\[].*|_(?:[kmg]i?b|us|ms|s|gbps|bytes)$", "", cell))
    placed = re.match(r"(ip|inplace|oop|outofplace|out)(?=.)", name)
    quantity = MEANINGS.get(name) or MEANINGS.get(name[placed.end() :] if placed else "", "")
    side = next((column.side for column in before[::-1] if column.quantity in FIGURES), 0)
    if placed:
        side = int(placed[1] in ("ip", "inplace")) if quantity else side
    elif quantity in FIGURES:
        side = min(1, sum(column.quantity == quantity for column in before))
    scale = unit[1][:1] if unit and quantity == "size" else unit[1] if unit else ""
    return Column(quantity, side, SCALES.get(scale, 1.0))


def split_cells(text: str, separator: str) -> list[str]:
    """Split a line into cells, without the quotes and markup of CSV and Markdown."""
    cells = text.strip().strip("|").split("|") if separator == "|" else text.split(separator or None)
    return [cell.strip(MARKS) for cell in cells]


def read_cells(place: FilePlace, text: str, columns: Columns | None) -> PrintedRow:
    """Parse a line of an nccl-tests table as a row. If it is cut off, only complete results are returned.

    ``columns`` are those of the header line. Without them, or if they do not fit, the columns of the known versions are
    tried. Raise InputError if the line is not a row.
    """
    text = STAMP.sub("", text)
    anchor = ROW_START.search(text)
    printed = [*_split_printed(text[anchor.start() :])] if anchor else []
    named = [columns] if columns else []
    if columns and not columns.separator:  # some versions print a blank cell
        named += [columns.without(*quantities) for quantities in (("redop",), ("root",), ("redop", "root"))]
    rows = list[PrintedRow]()
    for layouts in (named, standard_columns() if anchor else ()):
        for layout in layouts:
            by_separator = [split_cells(text, layout.separator)] if layout.separator or not anchor else []
            rows += [row for cells in by_separator + printed if (row := _make_row(place, cells, layout, text))]
        if layouts is not named and named:  # another version's row must be complete
            rows = [row for row in rows if not row.is_cut]
        if rows:
            rows.sort(key=lambda row: row.is_cut)
            return next(filter(_is_likely, rows), rows[0])  # consistency is checked later
    raise InputError(
        f"{place}: not a row of nccl-tests: {text.strip()[:60]!r}; paste complete rows without other output, "
        "with a known type and redop"
    )


def _split_printed(text: str) -> Iterator[list[str]]:
    """Yield each possible way to split a row into cells: at spaces or commas, or with commas as decimal points."""
    splits = [split_cells(text.replace("|", " "), "")]
    if "," in text or ";" in text:
        splits.append([cell.strip(MARKS) for cell in re.split(r"[\s,;|]+", text) if cell])
        splits.append(split_cells(re.sub(r"(?<=\d),(?=\d)", ".", re.sub("[|;]", " ", text)), ""))
    for cells in splits:
        ends = [at for at, cell in enumerate(cells, start=1) if cell in WORDS or NUMBER.fullmatch(cell)]
        yield cells[: ends[-1]] if ends else cells


def _make_row(place: FilePlace, cells: list[str], layout: Columns, text: str) -> PrintedRow | None:
    """Return a row from these cells, or None if a cell does not fit its column. Incomplete results are omitted."""
    columns = layout.columns
    sides = [column.side for column in columns if column.quantity in FIGURES]
    is_blank = len(cells) < len(columns) and 1 in sides and BLANK_SIDE.search(text) is not None
    if is_blank:
        columns = tuple(column for column in columns if column.quantity not in OF_SIDE or column.side == 1)
    missing = columns[len(cells) :]
    if len(cells) > len(columns) or (is_blank and missing):
        return None
    complete = [side for side in dict.fromkeys(sides) if side not in {each.side for each in missing if each.quantity}]
    with suppress(InputError):
        return _read_row(place, list(zip(columns, cells, strict=False)), complete, is_cut=bool(missing))
    return None


def _read_row(
    place: FilePlace, read: Sequence[tuple[Column, str]], complete: Sequence[int], *, is_cut: bool
) -> PrintedRow:
    cell_of = {column.quantity: cell for column, cell in read if column.quantity and column.quantity not in FIGURES}
    is_in_place = cell_of.get("inplace", "0").lower() in ("1", "true", "yes")
    sides = [
        _read_side(place, "in place" if side or is_in_place else "", [each for each in read if each[0].side == side])
        for side in complete
    ]
    sides = [side for side in sides if side.time or side.algbw or side.busbw]
    dtype = cell_of.get("type")
    is_reduction = not NUMBER.fullmatch(cell_of.get("redop", ""))
    if not sides or "size" not in cell_of or not is_reduction or (dtype is not None and dtype not in ELEMENT_BYTES):
        raise InputError(f"{place}: a column is missing, or the type or redop is unknown")
    return PrintedRow(
        place,
        read_bytes(place, cell_of["size"], next(column.scale for column, _ in read if column.quantity == "size")),
        tuple(sides),
        count=read_bytes(place, cell_of["count"]) if "count" in cell_of else None,
        dtype=dtype,
        redop=cell_of.get("redop", ""),
        root=_integer(place, cell_of.get("root", "-1")),
        collective=collective_of(cell_of.get("collective", "")),
        ranks=_integer(place, cell_of.get("ranks", "0")),
        nodes=_integer(place, cell_of.get("nodes", "0")),
        is_cut=is_cut,
    )


def _read_side(place: FilePlace, name: str, read: Sequence[tuple[Column, str]]) -> Side:
    cells = {column.quantity: cell for column, cell in read}
    wrong, error = cells.get("wrong", ""), cells.get("error", "")
    if re.fullmatch(r"\d(?:\.\d+)?e[-+]\d+", wrong):  # versions until 2022, without a header line
        wrong, error = "", wrong
    elif not re.fullmatch(r"\d*|N/A", wrong):
        raise InputError(f"{place}: #wrong must be an integer or N/A, not {wrong!r}; {CUT}")
    figures: dict[str, PrintedFigure | None] = dict.fromkeys(FIGURES)
    for column, cell in read:
        if column.quantity in FIGURES and (text := _plain(cell)):
            value, rounding = read_figure(str(place), column.quantity, text)
            scale = column.scale if column.quantity == "time" else 1.0
            figures[column.quantity] = PrintedFigure(value * scale, rounding * scale)
    return Side(name, **figures, wrong=wrong or "N/A", error=error)


def _plain(cell: str) -> str:
    match = re.fullmatch(r"([\d.,eE+-]+)\s*(?:us|µs|GB/s)?", cell)
    text = "" if cell in ("-", "N/A") else match[1] if match else cell
    return text.replace(",", "." if text.count(",") == 1 and "." not in text else "")


def read_bytes(place: FilePlace, text: str, scale: float = 1) -> int:
    """Parse a size such as ``1M`` (2^20, as for ``-b 1M``) and return it in bytes. Raise InputError for other text.

    >>> read_bytes(FilePlace("a.txt", 1), "8 MB"), read_bytes(FilePlace("a.txt", 1), "104,857,600")
    (8388608, 104857600)
    """
    match = SIZE.fullmatch(text.replace(",", "") if THOUSANDS.fullmatch(text.partition(" ")[0]) else text)
    if match is None:
        raise InputError(f"{place}: the size must be an integer of bytes, not {text!r}")
    if scale == 1 and match[1].isdecimal() and not match[2]:
        return int(match[1])
    return round(float(match[1]) * scale * SIZES[match[2].lower()])


def _integer(place: FilePlace, text: str) -> int:
    if not re.fullmatch(r"-1|\d{1,9}", text or "0"):
        raise InputError(f"{place}: {text!r} is not an integer")
    return int(text or "0")


def _is_likely(row: PrintedRow) -> bool:
    """Return whether a row's numbers agree roughly: algbw is 0.5 to 1 times size / time, and busbw at most 2 algbw."""
    for side in row.sides:
        if side.time is not None and side.algbw is not None:
            low, high = find_algbw(row.nbytes, side.time).range
            if not (low / 2 <= side.algbw.range[1] and side.algbw.range[0] <= high * (1 + 1e-9)):
                return False
        if side.algbw is not None and side.busbw is not None and side.busbw.range[0] > 2 * side.algbw.range[1]:
            return False
    return True


def may_be_row(text: str, columns: Columns | None = None) -> bool:
    """Return whether a line may be a row of a table, or a part of one that was cut off or broken by a terminal.

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
