"""Answers as tables: human units, errors in per cent, predictions for other clusters in the same table."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from collectives.calibration import Calibration
from collectives.units import format_size, format_time
from ringlab.answer import Answer
from ringlab.checking import Verdict
from ringlab.doctor import Finding

Row = list[str]
Format = Callable[[float], str]
NOTHING = "-"


def show(answer: Answer, console: Console) -> None:
    """Print the tables of an answer and, under them, what it comes to."""
    clusters = [{**answer, "cluster": answer["scenario"]["cluster"]}, *answer.get("what_if", [])]
    for part, title, columns in (("collectives", "Collectives", COLLECTIVES), ("training", "Training step", TRAINING)):
        entries = [(cluster["cluster"], entry) for cluster in clusters for entry in cluster[part]]
        if entries:
            console.print(_entries(title, answer["kind"], columns, entries))
    for sentence in answer["conclusions"]:
        console.print(sentence, markup=False)


COLLECTIVES: tuple[tuple[str, str, Format], ...] = (
    ("time", "time_s", format_time),
    ("busbw GB/s", "busbw_GBps", "{:.3g}".format),
)
TRAINING: tuple[tuple[str, str, Format], ...] = (
    ("step", "step_s", format_time),
    ("sync", "sync_s", format_time),
    ("efficiency", "scaling_efficiency", "{:.0%}".format),
)


def _entries(
    title: str, kind: str, columns: Sequence[tuple[str, str, Format]], entries: list[tuple[str, Any]]
) -> Table:
    headings = ["cluster", "algorithm", *(["size"] if title == "Collectives" else [])]
    words, rows = len(headings), []
    sides = ("predicted", "measured", "error") if kind == "comparison" else ("",)
    headings += [f"{name}\n{side}".strip() for name, _, _ in columns for side in sides]
    for cluster, entry in entries:
        row = [cluster, str(entry.get("algorithm") or entry["gradient_sync"])]
        row += [format_size(entry["bytes"])] if title == "Collectives" else []
        for _, key, form in columns:
            row += _cells(entry[key], form, len(sides))
        rows.append(row)
    return table(title, headings, rows, words)


def _cells(value: Any, form: Format, sides: int) -> Row:
    """One number, or predicted, measured and error; a prediction alone leaves the other two open."""
    if sides == 1:
        return [form(value)]
    beside = value if isinstance(value, dict) else {"predicted": value}
    shown = [NOTHING if beside.get(side) is None else form(beside[side]) for side in ("predicted", "measured")]
    error = beside.get("error")
    return [*shown, NOTHING if error is None else f"{error:+.0%}"]


def table(title: str, headings: Sequence[str], rows: list[Row], words: int) -> Table:
    """A table whose first ``words`` columns are words and the others numbers."""
    shown = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, heading in enumerate(headings):
        shown.add_column(heading, justify="left" if index < words else "right", overflow="fold")
    for row in rows:
        shown.add_row(*row)
    return shown


def show_verdicts(verdicts: list[Verdict], console: Console) -> None:
    """What was found of each algorithm."""
    for verdict in verdicts:
        _show_verdict(verdict, console)


def _show_verdict(verdict: Verdict, console: Console) -> None:
    """What an algorithm costs at each world size, and whether it is right."""
    rows = [
        [
            str(figures["world_size"]),
            f"{figures['steps']} ({figures['least_steps']})",
            str(figures["messages"]),
            f"{figures['sent_share']:.3g} ({figures['least_sent_share']:.3g})",
        ]
        for figures in verdict.as_entry()["world_sizes"]
    ]
    headings = ["ranks", "steps\n(least)", "messages", "buffers sent by\nthe busiest (least)"]
    if rows:
        console.print(table(verdict.algorithm.full_name, headings, rows, words=0))
    console.print(_judgement(verdict), markup=False, soft_wrap=True)


def _judgement(verdict: Verdict) -> str:
    if verdict.problem is not None:
        return f"WRONG  {verdict.problem}"
    sizes = [report.world_size for report in verdict.reports]
    right = f"RIGHT  {verdict.algorithm.full_name}: proved for {sizes[0]} to {sizes[-1]} ranks."
    if verdict.wasteful_from is None:
        return right
    return f"{right} From {verdict.wasteful_from} ranks on its busiest rank sends at least twice what it must."


def show_calibration(calibration: Calibration, file: Path, console: Console) -> None:
    """What was measured, and how well straight lines describe it."""
    lines = (
        ("one way", calibration.one_way),
        ("both ways", calibration.both_ways),
        ("reduction", calibration.reduction),
    )
    rows = [
        [
            name,
            format_time(line.fixed),
            f"{1 / line.per_byte / 1e9:.3g}" if line.per_byte else NOTHING,
            f"{line.worst_residual:.0%}",
        ]
        for name, line in lines
    ]
    title = f"This machine, {calibration.ranks} ranks of {calibration.threads} threads"
    console.print(table(title, ["", "fixed", "GB/s", "worst residual"], rows, words=1))
    compute = [
        [point.model, point.dataset, str(point.batch_size), f"{point.processes} x {point.threads}"]
        + [format_time(getattr(point.phases, name)) for name in ("forward", "backward", "optimizer")]
        + [f"{point.spread:.0%}"]
        for point in calibration.compute
    ]
    if compute:
        headings = ["model", "dataset", "batch", "processes\nx threads", "forward", "backward", "optimizer", "spread"]
        console.print(table("Training step without communication", headings, compute, words=2))
    console.print(f"Kept in {file}; predictions use it for a day.", markup=False)


def show_findings(findings: list[Finding], console: Console) -> None:
    """What works and what is missing."""
    rows = [[finding.subject, "yes" if finding.works else "no", finding.detail] for finding in findings]
    console.print(table("This machine", ["", "works", ""], rows, words=3))
    lacking = [finding.subject for finding in findings if not finding.works]
    console.print(f"Missing: {', '.join(lacking)}." if lacking else "Everything is there.", markup=False)


def show_listing(found: dict[str, list[dict[str, str]]], console: Console) -> None:
    """Algorithms, presets and scenarios with a line about each."""
    for part, entries in found.items():
        rows = [[entry["name"], entry["about"]] for entry in entries]
        console.print(table(part.capitalize(), ["name", "about"], rows, words=2))
    console.print("Use them as `ringlab check NAME` and `ringlab predict NAME`.", markup=False)
