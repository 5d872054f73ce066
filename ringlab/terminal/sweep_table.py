"""The table of ``predict --sweep``: a row a value, a column for each algorithm at each size."""

from rich.console import Console

from collectives.units import count
from ringlab.answers.scenario_sweep import SweepAnswer
from ringlab.table import format_or_dash, make_table, time_unit

COLUMNS = 6  # side by side; more are in tables of their own
COLUMN_WIDTH = 11  # letters that a column of numbers takes


def show_sweep(answer: SweepAnswer, console: Console) -> None:
    """Print the seconds of everything predicted, by value, and what is fastest where."""
    lines, values = answer.lines(), [point.value for point in answer.points]
    unit, form = time_unit(one for line in lines for one in line.seconds)
    widest = max(len(text) for text in (answer.key, *values))
    columns = max(1, min(COLUMNS, (console.width - widest) // COLUMN_WIDTH))
    for first in range(0, len(lines), columns):
        shown = lines[first : first + columns]
        found = [dict(zip(line.values, line.seconds, strict=True)) for line in shown]
        rows = [[value, *(format_or_dash(column.get(value), form) for column in found)] for value in values]
        headings = [answer.key, *(f"{line.name} ({unit})" for line in shown)]
        table = make_table(answer.title if first == 0 else None, headings, rows, words=1)
        table.columns[0].no_wrap = widest <= console.width // 3  # a value is read in one line
        console.print(table)
    if answer.interrupted:
        console.print(f"Stopped: {count(len(values), 'value')} predicted.", soft_wrap=True)
