"""The tables of ``predict``, ``run`` and ``compare``: a section for each cluster, so that what-ifs stand beside."""

import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from rich.console import Console
from rich.table import Table

from collectives.units import format_size, format_time
from ringlab.answers.comparison import Comparison
from ringlab.answers.figures import ClusterFigures, CollectiveFigures, SideBySide, TrainingFigures
from ringlab.answers.scenario_answer import ScenarioAnswer
from ringlab.terminal.plain_text import make_printable
from ringlab.terminal.tables import NOTHING, Format, Row, format_or_dash, format_ratio, format_whole_percent, make_table

CLUSTER_WIDTH = 15  # characters
SIDES = ["predicted", "measured", "error"]
DISTRIBUTION = ["runs", "median", "p95", "worst", "never end"]
PHASES: tuple[tuple[str, str, Format], ...] = (
    ("step", "step_s", format_time),
    ("forward", "forward_s", format_time),
    ("backward", "backward_s", format_time),
    ("sync", "sync_s", format_time),
    ("optimizer", "optimizer_s", format_time),
)
Clusters = Sequence[ClusterFigures[Any]]


def show_scenario_answer(answer: ScenarioAnswer[Any], console: Console) -> None:
    """Print the tables of an answer and, under them, its conclusions."""
    clusters = [answer.own, *answer.what_ifs]
    is_compared = isinstance(answer, Comparison)
    if any(cluster.collectives for cluster in clusters):
        console.print(_collectives_table(clusters, is_compared))
    if any(cluster.training for cluster in clusters):
        console.print(_phases_table(clusters) if is_compared else _training_table(clusters))
    if distributions := [(cluster.title, rows) for cluster in clusters if (rows := _distribution_rows(cluster))]:
        headings = ["cluster", "", "size", *DISTRIBUTION]
        console.print(_make_grouped_table("Under trouble", headings, distributions, words=2))
    for sentence in answer.conclusions:
        console.print(sentence)


def _collectives_table(clusters: Clusters, is_compared: bool) -> Table:
    of_nccl = any(entry.interval_s for cluster in clusters for entry in cluster.collectives)
    measures = ["time", "busbw GB/s", "80 % interval", "choice"] if of_nccl else ["time", "algbw GB/s", "busbw GB/s"]
    headings = ["cluster", "algorithm", "size", *(SIDES if is_compared else measures)]
    groups = []
    for cluster in clusters:
        rows = []
        for entry in cluster.collectives:
            rates = [] if is_compared else [entry.algbw_GBps, entry.busbw_GBps][of_nccl:]
            rows.append(
                [
                    entry.algorithm,
                    format_size(entry.bytes),
                    *_cells(entry.time_s, format_time, is_compared),
                    *(format_or_dash(rate, format_ratio) for rate in rates),
                    *([_interval(entry), entry.choice or NOTHING] if of_nccl else []),
                ]
            )
        groups.append((cluster.title, rows))
    return _make_grouped_table("Collectives", headings, groups, words=2)


def _interval(entry: CollectiveFigures[Any]) -> str:
    return " to ".join(map(format_time, entry.interval_s)) if entry.interval_s else NOTHING


def _training_table(clusters: Clusters) -> Table:
    """Return a row for each algorithm: the step by phase."""
    groups = []
    for cluster in clusters:
        rows = []
        for entry in cluster.training:
            phases = [format_or_dash(getattr(entry, key), form) for _, key, form in PHASES]
            rows.append([entry.gradient_sync, *phases, format_or_dash(entry.scaling_efficiency, format_whole_percent)])
        groups.append((cluster.title, rows))
    headings = ["cluster", "sync", *(name for name, _, _ in PHASES), "scaling"]
    return _make_grouped_table("Training step", headings, groups, words=2)


def _phases_table(clusters: Clusters) -> Table:
    """Return a row for each phase: predicted, measured and error."""
    groups = []
    for cluster in clusters:
        rows = []
        for entry in cluster.training:
            for name, key, form in (*PHASES, ("scaling efficiency", "scaling_efficiency", format_whole_percent)):
                first = entry.gradient_sync if name == "step" else ""
                rows.append([first, name, *_cells(getattr(entry, key), form, is_compared=True)])
        groups.append((cluster.title, rows))
    return _make_grouped_table("Training step", ["cluster", "algorithm", "", *SIDES], groups, words=3)


def _distribution_rows(cluster: ClusterFigures[Any]) -> list[Row]:
    """Return how the repetitions of each collective and training went, where there were several."""
    rows = []
    entries: list[CollectiveFigures[Any] | TrainingFigures[Any]] = [*cluster.collectives, *cluster.training]
    for entry in entries:
        about = entry.trouble
        if about is None or about.repetitions <= 1:
            continue
        if isinstance(entry, CollectiveFigures):
            name, size = entry.algorithm, format_size(entry.bytes)
        else:
            name, size = f"step with {entry.gradient_sync}", ""
        found = about.distribution
        seconds = (found.median_s, found.p95_s, found.worst_s) if found else (None, None, None)
        times = [format_or_dash(value, format_time) for value in seconds]
        rows.append([name, size, str(about.repetitions), *times, str(about.never_ended)])
    return rows


def _cells(value: float | SideBySide | None, form: Format, is_compared: bool) -> Row:
    """Return one number, or predicted, measured and error; a prediction alone leaves the other two open."""
    if isinstance(value, SideBySide):
        error = NOTHING if value.error is None else f"{value.error:+.0%}"
        return [format_or_dash(value.predicted, form), format_or_dash(value.measured, form), error]
    if is_compared:
        return [format_or_dash(value, form), NOTHING, NOTHING]
    return ["never" if value is None else form(value)]


def _make_grouped_table(
    title: str, headings: Sequence[str], groups: Sequence[tuple[str, list[Row]]], words: int
) -> Table:
    """Return a table with one section a cluster, whose name runs down beside its rows."""
    table = make_table(title, headings, [], words)
    for name, rows in groups:
        lines = textwrap.wrap(name, CLUSTER_WIDTH)
        lines[len(rows) - 1 :] = [" ".join(lines[len(rows) - 1 :])]
        for line, row in zip_longest(lines[: len(rows)], rows, fillvalue=""):
            table.add_row(*map(make_printable, (str(line), *row)))
        table.add_section()
    return table
