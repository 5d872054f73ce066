"""The tables and sentences of ``check``."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from ringlab.answers.proofs import CheckAnswer, Costs, Verdict
from ringlab.table import Row, format_or_dash, format_ratio, make_table

FEW = 5  # algorithms
HEADINGS = [
    "steps\n(least)",
    "times\nthe least",
    "messages",
    "buffers sent by\nthe busiest (least)",
    "times\nthe least",
]


def show_check(answer: CheckAnswer, console: Console) -> None:
    """Print what was found: of a few right algorithms the costs at each world size, of many at the largest."""
    verdicts = answer.verdicts
    if len(verdicts) > FEW and any(verdict.problem is None for verdict in verdicts):
        console.print(_largest_table(verdicts))
    for verdict in verdicts:
        if len(verdicts) <= FEW and verdict.reports and verdict.problem is None:
            name = verdict.algorithm.full_name
            console.print(make_table(name, ["ranks", *HEADINGS], _rows_by_size(verdict), words=0))
        console.print(_sentence(verdict), soft_wrap=True)
    if answer.interrupted and not verdicts[-1].interrupted:
        console.print("STOPPED  The algorithms that follow were not tried.")


def _cells(costs: Costs) -> Row:
    return [
        f"{costs.steps} ({costs.least_steps})",
        format_or_dash(costs.steps_ratio, format_ratio),
        str(costs.messages),
        f"{costs.sent_share:.3g} ({costs.least_sent_share:.3g})",
        format_or_dash(costs.sent_ratio, format_ratio),
    ]


def _rows_by_size(verdict: Verdict) -> list[Row]:
    """Return a row for each world size up to 9, then for one in four and the last; the JSON has all."""
    costs = verdict.costs
    shown = [one for one in costs if one.world_size < 10 or one.world_size % 4 == 0 or one is costs[-1]]
    return [[str(one.world_size), *_cells(one)] for one in shown]


def _largest_table(verdicts: Sequence[Verdict]) -> Table:
    largest = [
        (verdict.algorithm.full_name, verdict.costs[-1])
        for verdict in verdicts
        if verdict.problem is None and verdict.reports
    ]
    rows = [[name, str(costs.world_size), *_cells(costs)] for name, costs in largest]
    return make_table("Algorithms", ["algorithm", "ranks", *HEADINGS], rows, words=1)


def _sentence(verdict: Verdict) -> str:
    if verdict.problem is not None:
        return f"WRONG  {verdict.problem}"
    sizes = [report.world_size for report in verdict.reports]
    if verdict.interrupted:
        return f"STOPPED  {verdict.algorithm.full_name}: proved for {_join(sizes)} ranks; more were not tried."
    right = f"RIGHT  {verdict.algorithm.full_name}: proved for {_join(sizes)} ranks"
    if verdict.undefined:
        right += ", undefined for others"
    if verdict.wasteful_from is None:
        return f"{right}."
    return f"{right}. From {verdict.wasteful_from} ranks on its busiest rank sends at least twice what it must."


def _join(sizes: list[int]) -> str:
    """Return the numbers in words: as a range if nothing is missing in it."""
    if len(sizes) > 2 and sizes == list(range(sizes[0], sizes[-1] + 1)):
        return f"{sizes[0]} to {sizes[-1]}"
    return ", ".join(map(str, sizes)) or "no number of"
