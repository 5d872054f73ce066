"""Tables as all commands draw them, and how a number stands in a cell."""

from collections.abc import Callable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from ringlab.terminal.plain_text import make_printable

Row = list[str]
Format = Callable[[float], str]
NOTHING = "-"


def make_table(title: str, headings: Sequence[str], rows: Sequence[Row], words: int) -> Table:
    """Return a table whose first ``words`` columns are words and the others numbers."""
    table = Table(
        title=make_printable(title),
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


def format_or_dash(value: float | None, form: Format) -> str:
    """Return the value as ``form`` writes it, or a dash for None.

    >>> format_or_dash(None, format_ratio)
    '-'
    """
    return NOTHING if value is None else form(value)
