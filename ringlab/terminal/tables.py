"""Answers as tables: human units, errors in per cent, predictions for other clusters in the same table."""

import textwrap
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from collectives.records.calibration import Calibration
from collectives.units import format_size, format_time
from ringlab.answers.doctor import Finding
from ringlab.answers.proofs import Verdict

if TYPE_CHECKING:  # the simulator with it, which not every table needs
    from ringlab.answers.answer import Answer

Row = list[str]
Format = Callable[[float], str]
NOTHING = "-"
CLUSTER_WIDTH = 15  # characters


def show(answer: "Answer", console: Console) -> None:
    """Print the tables of an answer and, under them, what it comes to."""
    clusters = [{**answer, "title": answer["scenario"]["cluster"]}, *answer.get("what_if", [])]
    compared = answer["kind"] == "comparison"
    if any(cluster["collectives"] for cluster in clusters):
        console.print(_collectives(clusters, compared))
    if any(cluster["training"] for cluster in clusters):
        console.print(_phases(clusters) if compared else _training(clusters))
    if troubled := [(cluster["title"], rows) for cluster in clusters if (rows := _troubled(cluster))]:
        console.print(_grouped("Under trouble", ["cluster", "", "size", *DISTRIBUTION], troubled, words=2))
    for sentence in answer["conclusions"]:
        console.print(sentence, markup=False)


def _collectives(clusters: "list[Answer]", compared: bool) -> Table:
    headings = ["cluster", "algorithm", "size", *(SIDES if compared else ["time", "algbw GB/s", "busbw GB/s"])]
    groups = []
    for cluster in clusters:
        rows = []
        for entry in cluster["collectives"]:
            rates = () if compared else ("algbw_GBps", "busbw_GBps")
            rows.append(
                [
                    entry["algorithm"],
                    format_size(entry["bytes"]),
                    *_cells(entry["time_s"], format_time, compared),
                    *(_or_nothing(entry[key], _bandwidth) for key in rates),
                ]
            )
        groups.append((cluster["title"], rows))
    return _grouped("Collectives", headings, groups, words=2)


def _training(clusters: "list[Answer]") -> Table:
    """One row an algorithm: the step by phase."""
    groups = [
        (
            cluster["title"],
            [
                [
                    entry["gradient_sync"],
                    *(_or_nothing(entry[key], form) for _, key, form in PHASES),
                    _or_nothing(entry["scaling_efficiency"], _percent),
                ]
                for entry in cluster["training"]
            ],
        )
        for cluster in clusters
    ]
    return _grouped("Training step", ["cluster", "sync", *(name for name, _, _ in PHASES), "scaling"], groups, words=2)


def _phases(clusters: "list[Answer]") -> Table:
    """One row a phase: predicted, measured, and how far apart."""
    groups = []
    for cluster in clusters:
        rows = []
        for entry in cluster["training"]:
            for name, key, form in (*PHASES, ("scaling efficiency", "scaling_efficiency", _percent)):
                first = entry["gradient_sync"] if name == "step" else ""
                rows.append([first, name, *_cells(entry[key], form, compared=True)])
        groups.append((cluster["title"], rows))
    return _grouped("Training step", ["cluster", "algorithm", "", *SIDES], groups, words=3)


DISTRIBUTION = ["runs", "median", "p95", "worst", "never end"]


def _troubled(cluster: "Answer") -> list[Row]:
    """How the repetitions of each question went, where there were several."""
    rows = []
    for entry in (*cluster["collectives"], *cluster["training"]):
        if entry.get("trouble", {}).get("repetitions", 1) > 1:
            about = entry["trouble"]
            name = entry.get("algorithm") or f"step with {entry['gradient_sync']}"
            size = format_size(entry["bytes"]) if "bytes" in entry else ""
            times = [_or_nothing(about.get(key), format_time) for key in ("median_s", "p95_s", "worst_s")]
            rows.append([name, size, str(about["repetitions"]), *times, str(about["never_ended"])])
    return rows


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _or_nothing(value: float | None, form: Format) -> str:
    return NOTHING if value is None else form(value)


def _bandwidth(gigabytes_per_second: float) -> str:
    return f"{gigabytes_per_second:.3g}"


SIDES = ["predicted", "measured", "error"]
PHASES: tuple[tuple[str, str, Format], ...] = (
    ("step", "step_s", format_time),
    ("forward", "forward_s", format_time),
    ("backward", "backward_s", format_time),
    ("sync", "sync_s", format_time),
    ("optimizer", "optimizer_s", format_time),
)


def _cells(value: Any, form: Format, compared: bool) -> Row:
    """One number, or predicted, measured and error; a prediction alone leaves the other two open."""
    if not compared:
        return ["never" if value is None else form(value)]
    beside = value if isinstance(value, dict) else {"predicted": value}
    shown = [NOTHING if beside.get(side) is None else form(beside[side]) for side in ("predicted", "measured")]
    error = beside.get("error")
    return [*shown, NOTHING if error is None else f"{error:+.0%}"]


def _grouped(title: str, headings: Sequence[str], groups: list[tuple[str, list[Row]]], words: int) -> Table:
    """A table with one section a cluster, whose name runs down beside its rows."""
    shown = table(title, headings, [], words)
    for name, rows in groups:
        lines = textwrap.wrap(name, CLUSTER_WIDTH)
        lines[len(rows) - 1 :] = [" ".join(lines[len(rows) - 1 :])]
        for line, row in zip_longest(lines[: len(rows)], rows, fillvalue=""):
            shown.add_row(*map(escape, (str(line), *row)))
        shown.add_section()
    return shown


def table(title: str, headings: Sequence[str], rows: list[Row], words: int) -> Table:
    """A table whose first ``words`` columns are words and the others numbers."""
    shown = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for index, heading in enumerate(headings):
        shown.add_column(heading, justify="left" if index < words else "right", overflow="fold")
    for row in rows:
        shown.add_row(*map(escape, row))
    return shown


def show_verdicts(verdicts: list[Verdict], console: Console) -> None:
    """What was found of each algorithm; of a few with what they cost at each world size, of many at the largest."""
    if len(verdicts) > FEW:
        console.print(_at_largest(verdicts))
    for verdict in verdicts:
        if len(verdicts) <= FEW and verdict.reports:
            console.print(table(verdict.algorithm.full_name, ["ranks", *COSTS], _by_size(verdict), words=0))
        console.print(_judgement(verdict), markup=False, soft_wrap=True)


FEW = 5  # algorithms
COSTS = ["steps\n(least)", "times\nthe least", "messages", "buffers sent by\nthe busiest (least)", "times\nthe least"]


def _costs(figures: dict[str, Any]) -> Row:
    return [
        f"{figures['steps']} ({figures['least_steps']})",
        _or_nothing(figures["steps_ratio"], _times),
        str(figures["messages"]),
        f"{figures['sent_share']:.3g} ({figures['least_sent_share']:.3g})",
        _or_nothing(figures["sent_ratio"], _times),
    ]


def _times(ratio: float) -> str:
    return f"{ratio:.3g}"


def _by_size(verdict: Verdict) -> list[Row]:
    """A row for each world size up to 9, and then for one in four and the last; the JSON has all."""
    entries = verdict.as_entry()["world_sizes"]
    shown = [e for e in entries if e["world_size"] < 10 or e["world_size"] % 4 == 0 or e is entries[-1]]
    return [[str(figures["world_size"]), *_costs(figures)] for figures in shown]


def _at_largest(verdicts: list[Verdict]) -> Table:
    entries = [(verdict.algorithm.full_name, verdict.as_entry()["world_sizes"]) for verdict in verdicts]
    rows = [[name, str(sizes[-1]["world_size"]), *_costs(sizes[-1])] for name, sizes in entries if sizes]
    return table("Algorithms", ["algorithm", "ranks", *COSTS], rows, words=1)


def _judgement(verdict: Verdict) -> str:
    if verdict.problem is not None:
        return f"WRONG  {verdict.problem}"
    sizes = [report.world_size for report in verdict.reports]
    right = f"RIGHT  {verdict.algorithm.full_name}: proved for {_in_words(sizes)} ranks"
    if verdict.undefined:
        right += ", undefined for others"
    if verdict.wasteful_from is None:
        return f"{right}."
    return f"{right}. From {verdict.wasteful_from} ranks on its busiest rank sends at least twice what it must."


def _in_words(sizes: list[int]) -> str:
    """Which these are, and no others: as a range if nothing is missing in it."""
    if len(sizes) > 2 and sizes == list(range(sizes[0], sizes[-1] + 1)):
        return f"{sizes[0]} to {sizes[-1]}"
    return ", ".join(map(str, sizes)) or "no number of"


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
