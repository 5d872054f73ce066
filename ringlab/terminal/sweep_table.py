"""The table of ``predict --sweep``: a row a value, a column for each algorithm at each size."""

from rich.console import Console

from ringlab.answers.scenario_sweep import SweepAnswer
from ringlab.terminal.tables import format_or_dash, make_table, time_unit

COLUMNS = 6  # side by side; more are in tables of their own


def show_sweep(answer: SweepAnswer, console: Console) -> None:
    """Print the seconds of everything predicted, by value, and what is fastest where."""
    lines, values = answer.lines(), [point.value for point in answer.points]
    unit, form = time_unit(one for line in lines for one in line.seconds)
    for first in range(0, len(lines), COLUMNS):
        shown = lines[first : first + COLUMNS]
        found = [dict(zip(line.values, line.seconds, strict=True)) for line in shown]
        rows = [[value, *(format_or_dash(column.get(value), form) for column in found)] for value in values]
        headings = [answer.key, *(f"{line.name} ({unit})" for line in shown)]
        console.print(make_table(answer.title if first == 0 else None, headings, rows, words=1))
    if answer.interrupted:
        console.print(f"Stopped: {len(values)} values are predicted.", soft_wrap=True)
