"""Renders the results of commands for a terminal and as HTML, and formats numbers.

A result is a sequence of parts: tables, lines, and sentences.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import accumulate
from math import floor, log10
from operator import gt
from textwrap import wrap
from typing import Literal, NamedTuple

import rich.table
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from collectives.quoting import make_printable
from collectives.units import SIZES, TIMES

NOTHING = "-"
MOST_ROWS = 16  # shown rows of a long table
MOST_LETTERS = 5000  # shown characters of one text

Format = Callable[[float], str]
Bounds = tuple[float, float]  # the low and the high end of an interval


class Cell(NamedTuple):
    """A table cell. In HTML, ``kind`` selects its color."""

    text: str
    kind: str = ""  # good, fair or poor


Row = Sequence[str | Cell]


class Line(NamedTuple):
    """A line of text. If ``wrap`` is False, the line may be wider than the terminal."""

    text: str
    style: str = ""  # bold or dim
    wrap: bool = False


class Sentences(NamedTuple):
    """Sentences under a table. An HTML report shows them separately from the tables."""

    said: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Rows under headings. The first ``words`` columns contain text; all other columns contain numbers.

    ``sections`` divides the rows into groups, each with a name and a number of rows. An additional first column shows
    the names. If ``letters``, the width of a column, is positive, a table wider than the terminal is split.
    """

    title: str | None
    headings: Sequence[str]
    rows: Sequence[Row]
    words: int = 1
    sections: Sequence[tuple[str, int]] = ()
    letters: int = 0

    def split(self, width: int) -> Iterator["Table"]:
        """Yield the tables to print in a terminal of ``width`` characters. Each table starts with the first column."""
        step = len(self.headings)
        if self.letters:
            names = max(cell_len(_text(row[0])) for row in (self.headings, *self.rows))
            step = max(1, (width - names) // self.letters)
        for at in range(1, max(2, len(self.headings)), step):
            headings, *rows = ([*row[:1], *row[at : at + step]] for row in (self.headings, *self.rows))
            yield replace(self, title=self.title if at == 1 else None, headings=[*map(_text, headings)], rows=rows)

    def to_rich(self, width: int = 80) -> rich.table.Table:
        """Return the table without its title for a terminal of ``width`` characters."""
        table = rich.table.Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        rows = [[make_printable(_text(cell)) for cell in row] for row in self._named_rows()]
        widths = self._widths(rows, width)
        for index, heading in enumerate(self.headings):
            justify: Literal["left", "right"] = "left" if index < self.words else "right"
            table.add_column(Text(heading), justify=justify, overflow="fold", width=widths[index])
        ends = [*accumulate(number for _, number in self.sections)]
        for (name, number), end in zip(self.sections, ends, strict=True):
            lines = wrap(make_printable(name), widths[0])
            lines[number - 1 :] = [" ".join(lines[number - 1 :])]
            for at, line in enumerate(lines, end - number):
                rows[at][0] = line
        for number, row in enumerate(rows, 1):
            table.add_row(*row, end_section=number in ends)
        return table

    def _widths(self, rows: Sequence[Sequence[str]], width: int) -> list[int]:
        """Return the widths of the columns in a terminal of ``width`` characters.

        To make a wide table fit, first its headings are broken into lines, then cells between words, then cells
        anywhere.
        """
        limits = []
        for heading, *column in zip(self.headings, *rows, strict=True):
            word, cell = (max(map(cell_len, " ".join(texts).split()), default=0) for texts in ([heading], column))
            whole = max(map(cell_len, column), default=0)
            limits.append([max(whole, *map(cell_len, heading.split("\n"))), max(word, whole), max(word, cell), 1])
        if self.letters and limits[0][0] <= width // 3:  # the names stay on one line
            limits[0] = limits[0][:1] * len(limits[0])
        widths = [full_width for full_width, *_ in limits]
        for least in zip(*limits, strict=True):
            while sum(widths) > width - 2 * len(widths) and any(map(gt, widths, least)):
                widths[max(range(len(widths)), key=lambda at: (widths[at] > least[at]) * widths[at])] -= 1
        return widths

    def to_html(self) -> str:
        """Return the table as HTML.

        >>> Table(None, ["rank", "time"], [["0", Cell("1 s", "good")]]).to_html().splitlines()[-2]
        '<tr><td class="name">0</td><td class="good">1 s</td></tr>'
        """
        kinds = ["name" * (at < self.words) for at in range(len(self.headings))]
        head = "".join(
            f"<th{_class(kind)}>{_html(heading)}</th>" for heading, kind in zip(self.headings, kinds, strict=True)
        )
        lines = [f"<h3>{_html(self.title)}</h3>"] if self.title else []
        lines += ['<div class="wide"><table>', f"<thead><tr>{head}</tr></thead>", "<tbody>"]
        lines += [f"<tr>{''.join(map(_html_cell, row, kinds))}</tr>" for row in self._named_rows()]
        return "\n".join([*lines, "</tbody></table></div>"])

    def _named_rows(self) -> Sequence[Row]:
        names = [text for name, number in self.sections for text in (name, *[""] * (number - 1))]
        return [[*names[at : at + 1], *row] for at, row in enumerate(self.rows)]


Part = Table | Line | Sentences | str


def print_parts(parts: Iterable[Part], console: Console) -> None:
    for part in parts:
        if isinstance(part, Table):
            for table in part.split(console.width):
                if table.title:
                    console.print(make_printable(table.title), style="bold")
                console.print(table.to_rich(console.width))
        elif isinstance(part, Sentences):
            for sentence in part.said:
                console.print(make_printable(sentence, most=MOST_LETTERS))
        else:
            line = part if isinstance(part, Line) else Line(part)
            text = make_printable(line.text, most=MOST_LETTERS)
            indent = len(text) - len(text.lstrip()) if line.wrap else 0
            part_text = Padding(text.lstrip(), (0, 0, 0, indent), expand=False) if indent else text
            console.print(part_text, soft_wrap=not line.wrap, style=line.style or None)


def render_html(parts: Iterable[Part]) -> str:
    """Return tables, lines and sentences as HTML."""
    return "\n".join(_html_part(part) for part in parts)


def _html_part(part: Part) -> str:
    if isinstance(part, Table):
        return part.to_html()
    if isinstance(part, Sentences):
        return "\n".join(f"<p>{_html(sentence)}</p>" for sentence in part.said)
    line = part if isinstance(part, Line) else Line(part)
    return f"<p><b>{_html(line.text)}</b></p>" if line.style == "bold" else f"<p>{_html(line.text)}</p>"


def _html(text: str) -> str:
    return escape(make_printable(text, keep="\n", most=len(text))).replace("\n", " ")


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _html_cell(cell: str | Cell, usual: str) -> str:
    text, kind = cell if isinstance(cell, Cell) else Cell(cell)
    return f"<td{_class(kind or usual)}>{_html(text)}</td>"


def _text(cell: str | Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


def format_ratio(ratio: float) -> str:
    """Return a ratio with at most three significant digits."""
    return f"{ratio:.3g}"


def format_digits(value: float) -> str:
    """Return a number with three significant digits and without an exponent.

    >>> format_digits(0.0123456), format_digits(12.3456), format_digits(12345.6)
    ('0.0123', '12.3', '12346')
    """
    places = 2 - floor(log10(abs(value))) if value else 0
    return f"{value:.{max(0, places)}f}"


def format_whole(value: float) -> str:
    """Return a large number, rounded to three significant digits."""
    return f"{float(f'{value:.3g}'):,.0f}"


def time_unit(seconds: Iterable[float | None]) -> tuple[str, Format]:
    """Return the best unit for the times of a column, and a function that formats seconds in this unit.

    >>> unit, form = time_unit([0.000151, 0.752, None])
    >>> unit, form(0.000151), form(0.752)
    ('ms', '0.151', '752')
    """
    known = [log10(value) for value in seconds if value]
    middle = 10 ** ((min(known) + max(known)) / 2) if known else 1e-3
    sizes = {"h": 3600.0} | {unit: float(TIMES[unit]) for unit in ("s", "ms", "us", "ns")}
    unit = next((unit for unit, size in sizes.items() if middle >= (2 * size if unit == "h" else size)), "ns")
    return unit, lambda value: format_digits(value / sizes[unit])


def size_unit(sizes: Iterable[int]) -> tuple[str, Callable[[int], str]]:
    """Return the largest unit in which all sizes are integers, and a function that formats bytes in this unit."""
    every = [*sizes]
    unit = next(unit for unit in ("GiB", "MiB", "KiB", "B") if all(size % int(SIZES[unit]) == 0 for size in every))
    return unit, lambda size: str(size // int(SIZES[unit]))


def format_or_dash(value: float | None, form: Format) -> str:
    """Format a value, or return a dash if it is None."""
    return NOTHING if value is None else form(value)


def format_interval(value: float | None, bounds: Bounds | None, form: Format = format_digits) -> str:
    """Format a value with its interval, or alone if ``bounds`` is None. Return a dash if ``value`` is None."""
    if value is None or bounds is None:
        return format_or_dash(value, form)
    return f"{form(value)} ({form(bounds[0])}-{form(bounds[1])})"
