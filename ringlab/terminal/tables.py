"""Tables as all commands draw them, and how a number stands in a cell."""

from collections.abc import Callable, Iterable, Sequence
from math import floor, log10

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from collectives.quoting import make_printable
from collectives.units import SIZES, TIMES
from ringlab.answers.sentences import keep_few
from ringlab.terminal.console import MOST_LETTERS

Row = list[str]
Format = Callable[[float], str]
NOTHING = "-"


def make_table(title: str | None, headings: Sequence[str], rows: Sequence[Row], words: int) -> Table:
    """Return a table whose first ``words`` columns are words and the others numbers."""
    table = Table(
        title=title and make_printable(title),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for index, heading in enumerate(headings):
        table.add_column(Text(heading), justify="left" if index < words else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(make_printable, row))
    return table


def show_sentences(
    console: Console, sentences: Sequence[str], more: Sequence[str] = (), explain: bool = False, *, wrap: bool = True
) -> None:
    """Print the sentences under a table: a few and how many more there are, or all; a line each unless they wrap."""
    few, hidden = keep_few(sentences, more)
    for sentence in (*sentences, *more) if explain else few:
        console.print(make_printable(sentence, most=MOST_LETTERS), soft_wrap=not wrap)
    if hidden and not explain:
        console.print(f"--explain says more ({len(hidden)}).", style="dim")


def format_whole_percent(share: float) -> str:
    """Return a share as a percentage without decimals.

    >>> format_whole_percent(0.64)
    '64%'
    """
    return f"{share:.0%}"


def format_ratio(ratio: float) -> str:
    """Return a ratio with three significant digits.

    >>> format_ratio(1.23456)
    '1.23'
    """
    return f"{ratio:.3g}"


def format_digits(value: float) -> str:
    """Return a number with three significant digits and no exponent, so that a column of them can be compared.

    >>> format_digits(0.0123456), format_digits(12.3456), format_digits(12345.6)
    ('0.0123', '12.3', '12346')
    """
    places = 2 - floor(log10(abs(value))) if value else 0
    return f"{value:.{max(0, places)}f}"


def time_unit(seconds: Iterable[float | None]) -> tuple[str, Format]:
    """Return the unit that suits a whole column of seconds, and how to write one of them in it.

    >>> unit, form = time_unit([0.000151, 0.752, None])
    >>> unit, form(0.000151), form(0.752)
    ('ms', '0.151', '752')
    """
    known = [log10(value) for value in seconds if value]
    middle = 10 ** ((min(known) + max(known)) / 2) if known else 1e-3
    unit = next((unit for unit in ("s", "ms", "us") if middle >= float(TIMES[unit])), "ns")
    return unit, lambda value: format_digits(value / float(TIMES[unit]))


def size_unit(sizes: Iterable[int]) -> tuple[str, Callable[[int], str]]:
    """Return the largest unit in which all sizes are whole numbers, and how to write one in it.

    >>> unit, form = size_unit([65536, 1 << 20])
    >>> unit, form(1 << 20)
    ('KiB', '1024')
    """
    every = [*sizes]
    unit = next(unit for unit in ("GiB", "MiB", "KiB", "B") if all(size % int(SIZES[unit]) == 0 for size in every))
    return unit, lambda size: str(size // int(SIZES[unit]))


def format_or_dash(value: float | None, form: Format) -> str:
    """Return the value as ``form`` writes it, or a dash for None.

    >>> format_or_dash(None, format_ratio)
    '-'
    """
    return NOTHING if value is None else form(value)
