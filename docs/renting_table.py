"""Write the output of the example plan."""

from collections.abc import Iterable
from datetime import date
from functools import cache
from io import StringIO
from itertools import chain
from pathlib import Path
from textwrap import wrap

from page_writer import Parts
from rich.console import Console

from ringlab.commands.predicting.plan import plan
from ringlab.table import print_parts

EXAMPLE = Path(__file__).parents[1] / "examples" / "rent_resnet50.toml"
COLUMNS = 100  # of the terminal in the example
WIDTH = 120  # characters of a line
SHOWN = 4  # rows in the guide


@cache
def print_example() -> tuple[str, ...]:
    """Return the output of the example plan, line by line, as the command prints it."""
    with StringIO() as file:
        answer = plan(EXAMPLE, today=date(2026, 9, 1))
        print_parts(answer.show(), Console(file=file, width=COLUMNS))
        lines = [line.rstrip() for line in file.getvalue().splitlines()]
    return tuple(chain.from_iterable(wrap(line, WIDTH) or [""] if len(line) > WIDTH else [line] for line in lines))


def fence(lines: Iterable[str]) -> str:
    """Return a code block."""
    return "\n".join(["```", *lines, "```"]) + "\n"


PARTS: Parts = {
    "docs/how-to/plan-rental.md": {"example": lambda: fence(print_example())},
    "docs/tutorials/rent.md": {"plan": lambda: fence(print_example()[2 : 4 + SHOWN])},
}
