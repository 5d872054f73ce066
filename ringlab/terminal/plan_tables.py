"""The tables of ``plan``: the cheapest choices, the front, and what is said about them."""

from rich.console import Console

from ringlab.answers.planning import PlanAnswer, PlanRow
from ringlab.table import Row, format_digits, make_table, show_sentences
from simcomm.renting.rentals import OLD_AFTER_DAYS

MOST_ROWS = 12
OLD = "†"  # behind a price


def show_plan(answer: PlanAnswer, console: Console, explain: bool = False) -> None:
    """Print the cheapest choices, those of the Pareto front among them, then break-even points and the advice."""
    shown = [row for number, row in enumerate(answer.choices) if number < MOST_ROWS or row.front]
    headings = ["", "machines", "held back by", "hours", "$", "80 %", "$/h"]
    title = f"{answer.title}: {answer.target_samples:,.0f} samples"
    console.print(make_table(title, headings, [_row(row) for row in shown], words=3))
    if answer.does_not_fit:
        console.print(f"the training does not fit on: {', '.join(answer.does_not_fit)}", soft_wrap=True)
    marks = "*: on the Pareto front, nothing else is both sooner and cheaper"
    if any(row.price_is_old for row in shown):
        marks += f"; {OLD}: a price that is older than {OLD_AFTER_DAYS} days, or may be, as its source has no date"
    more = len(answer.choices) - len(shown)
    notes = [*answer.notes, *([f"{more} dearer choices are not shown (--json has all)"] if more else [])]
    points = [f"break-even: {point.text}" for point in answer.break_evens]
    show_sentences(console, [*notes, *points, marks, answer.advice], explain=explain, wrap=False)


def _row(row: PlanRow) -> Row:
    return [
        f"{row.rank}{'*' if row.front else ''}",
        row.label,
        row.bottleneck,
        format_digits(row.hours),
        format_digits(row.cost),
        _range(row.cost_80),
        f"{row.price_per_hour:.2f}{OLD if row.price_is_old else ''}",
    ]


def _range(ends: tuple[float, float]) -> str:
    return " to ".join(format_digits(end) for end in ends)
