"""The tables of ``predict``, ``run`` and ``compare``: a section for each cluster, so that what-ifs stand beside."""

import textwrap
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console

from collectives.quoting import make_printable
from ringlab.answers.figures import ClusterFigures, CollectiveFigures, SideBySide, TrainingFigures
from ringlab.answers.prediction import Prediction
from ringlab.answers.scenario_answer import ScenarioAnswer
from ringlab.table import (
    NOTHING,
    Format,
    Row,
    format_digits,
    format_or_dash,
    make_table,
    show_sentences,
    size_unit,
    time_unit,
)

LEAST_WIDTH = 15  # characters of the column of clusters
MOST_EXACT = 0.01  # from here on an uncertainty is shown as whole per cents
LEAST_SHARE = 0.001
SIDES = ("predicted", "measured")
PHASES: tuple[tuple[str, str], ...] = (
    ("step", "step_s"),
    ("forward", "forward_s"),
    ("backward", "backward_s"),
    ("sync", "sync_s"),
    ("optimizer", "optimizer_s"),
)
Clusters = Sequence[ClusterFigures[Any]]
Value = float | SideBySide | None
Groups = list[tuple[str, list[Row]]]  # rows by the name of a cluster


class Heading(NamedTuple):
    """What stands above a column: its name and, in a second line, its unit."""

    name: str
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.name}\n({self.unit})" if self.unit else self.name


def show_scenario_answer(answer: ScenarioAnswer[Any], console: Console, explain: bool = False) -> None:
    """Print the title, the tables of an answer and, under them, its conclusions; with ``explain`` all there are."""
    clusters = [answer.own, *answer.what_ifs]
    is_compared = answer.kind == "comparison"
    show = partial(_print_grouped, console)
    console.print(make_printable(answer.title), style="bold", soft_wrap=True)
    if not answer.what_ifs:
        console.print(make_printable(answer.place), soft_wrap=True)
    console.print()
    if any(cluster.collectives for cluster in clusters):
        show("Collectives", *_collectives_table(clusters, is_compared), words=2)
    if any(cluster.training for cluster in clusters):
        if is_compared:
            show("Training step", *_phases_table(clusters), words=3)
            show("Scaling efficiency", *_efficiency_table(clusters), words=2)
        else:
            show("Training step", *_training_table(clusters), words=2)
    if any(entry.test_accuracy is not None for entry in answer.training):
        show("Training", *_results_table([answer.own]), words=2)
    if any(_repeated(cluster) for cluster in clusters):
        headings, groups = _distributions_table(clusters)
        case = f": {groups[0][0]}" if len(groups) == 1 < len(clusters) else ""
        show(f"Under trouble{case}", headings, groups, words=2)
    limits = answer.limits if isinstance(answer, Prediction) and answer.limits not in answer.explanations else ""
    show_sentences(console, [*answer.conclusions, *filter(None, [limits])], answer.explanations, explain)


def _collectives_table(clusters: Clusters, is_compared: bool) -> tuple[list[Heading], Groups]:
    entries = [entry for cluster in clusters for entry in cluster.collectives]
    of_nccl = any(entry.interval_s for entry in entries)
    unit, form = time_unit(_seconds(entry.time_s for entry in entries))
    size, write_size = size_unit(entry.bytes for entry in entries)
    rates = () if is_compared else ("algbw", "busbw")[of_nccl:]

    def row(entry: CollectiveFigures[Any]) -> Row:
        shown = [getattr(entry, f"{rate}_GBps") for rate in rates]
        time = _cells(entry.time_s, form, is_compared)
        interval = " to ".join(map(form, entry.interval_s)) if entry.interval_s else NOTHING
        more = [interval, entry.choice or NOTHING] if of_nccl else []
        rated = [format_or_dash(one, format_digits) for one in shown]
        return [entry.algorithm, write_size(entry.bytes), *time, *rated, *more]

    headings = [Heading("algorithm"), Heading("size", size), *_headings("time", unit, is_compared)]
    headings += [Heading(rate, "GB/s") for rate in rates]
    headings += [Heading("80 % interval", unit), Heading("choice")] if of_nccl else []
    return headings, [(cluster.title, [row(entry) for entry in cluster.collectives]) for cluster in clusters]


def _training_table(clusters: Clusters) -> tuple[list[Heading], Groups]:
    """Return a row for each algorithm: the step by phase."""
    unit, form = _phase_unit(clusters)

    def row(entry: TrainingFigures[Any]) -> Row:
        if entry.step_s is None and entry.test_accuracy is not None:  # no step was left to train
            return [entry.gradient_sync, *(NOTHING for _ in PHASES), NOTHING]
        phases = [_cells(getattr(entry, key), form, is_compared=False)[0] for _, key in PHASES]
        return [entry.gradient_sync, *phases, *_cells(entry.scaling_efficiency, _percent, is_compared=False)]

    headings = [Heading("sync"), *(Heading(name, unit) for name, _ in PHASES), Heading("scaling", "%")]
    return headings, [(cluster.title, [row(entry) for entry in cluster.training]) for cluster in clusters]


def _phases_table(clusters: Clusters) -> tuple[list[Heading], Groups]:
    """Return a row for each phase: predicted, measured and error."""
    unit, form = _phase_unit(clusters)
    groups: Groups = []
    for cluster in clusters:
        rows: list[Row] = []
        for entry in cluster.training:
            for name, key in PHASES:
                first = entry.gradient_sync if name == "step" else ""
                rows.append([first, name, *_cells(getattr(entry, key), form, is_compared=True)])
        groups.append((cluster.title, rows))
    return [Heading("sync"), Heading("phase"), *_headings("", unit, is_compared=True)], groups


def _efficiency_table(clusters: Clusters) -> tuple[list[Heading], Groups]:
    def row(entry: TrainingFigures[Any]) -> Row:
        return [entry.gradient_sync, *_cells(entry.scaling_efficiency, _percent, is_compared=True)]

    headings = [Heading("sync"), *_headings("", "%", is_compared=True)]
    return headings, [(cluster.title, [row(entry) for entry in cluster.training]) for cluster in clusters]


def _results_table(clusters: Clusters) -> tuple[list[Heading], Groups]:
    """Return what a measured training came to; the share of a step is the time that it waited for communication."""

    def row(entry: TrainingFigures[Any]) -> Row:
        exposed = entry.sync_s if entry.exposed_s is None else entry.exposed_s
        samples, sync, step = (_measured(value) for value in (entry.samples_per_s, exposed, entry.step_s))
        share = sync / step if sync and step else 0.0
        waited = share if share >= LEAST_SHARE else None  # torch's own sync on GPUs has no length
        seen, right = entry.examples_seen, entry.test_accuracy
        return [
            entry.gradient_sync,
            format_or_dash(samples, format_digits),
            format_or_dash(seen, lambda number: f"{number:,.0f}"),
            format_or_dash(right, lambda part: f"{100 * part:.1f}"),
            format_or_dash(waited, _percent),
        ]

    columns = (
        ("throughput", "samples/s"),
        ("examples", "all ranks"),
        ("held-out", "%"),
        ("communication", "% of step"),
    )
    headings = [Heading("sync"), *(Heading(*column) for column in columns)]
    return headings, [(cluster.title, [row(entry) for entry in cluster.training]) for cluster in clusters]


def _measured(value: Value) -> float | None:
    return value.measured if isinstance(value, SideBySide) else value


def _distributions_table(clusters: Clusters) -> tuple[list[Heading], Groups]:
    """Return how the repetitions of each collective and training went, where there were several."""
    repeated = {cluster.title: _repeated(cluster) for cluster in clusters}
    entries = [entry for found in repeated.values() for entry in found]
    unit, form = time_unit(value for entry in entries for value in _quantiles(entry))
    collectives = [entry for entry in entries if isinstance(entry, CollectiveFigures)]
    size, write_size = size_unit(entry.bytes for entry in collectives)

    def row(entry: CollectiveFigures[Any] | TrainingFigures[Any]) -> Row:
        assert entry.trouble is not None
        if isinstance(entry, CollectiveFigures):
            name, written = entry.algorithm, write_size(entry.bytes)
        else:
            name, written = f"step with {entry.gradient_sync}", ""
        times = [format_or_dash(value, form) for value in _quantiles(entry)]
        runs = str(entry.trouble.repetitions)
        runs += f" of {entry.trouble.asked}" if entry.trouble.asked is not None else ""
        return [name, written, runs, *times, str(entry.trouble.never_ended)]

    sized = Heading("size", size) if collectives else Heading("")
    timed = (Heading(name, unit) for name in ("median", "p95", "worst"))
    headings = [Heading(""), sized, Heading("runs"), *timed, Heading("never end")]
    return headings, [(title, [row(entry) for entry in found]) for title, found in repeated.items() if found]


def _repeated(cluster: ClusterFigures[Any]) -> list[CollectiveFigures[Any] | TrainingFigures[Any]]:
    entries: list[CollectiveFigures[Any] | TrainingFigures[Any]] = [*cluster.collectives, *cluster.training]
    return [entry for entry in entries if entry.trouble is not None and entry.trouble.repetitions > 1]


def _quantiles(entry: CollectiveFigures[Any] | TrainingFigures[Any]) -> tuple[float | None, ...]:
    found = entry.trouble.distribution if entry.trouble else None
    return (found.median_s, found.p95_s, found.worst_s) if found else (None, None, None)


def _phase_unit(clusters: Clusters) -> tuple[str, Format]:
    entries = [entry for cluster in clusters for entry in cluster.training]
    return time_unit(_seconds(getattr(entry, key) for entry in entries for _, key in PHASES))


def _seconds(values: Iterable[Value]) -> Iterable[float | None]:
    for value in values:
        yield from (value.predicted, value.measured) if isinstance(value, SideBySide) else (value,)


def _headings(name: str, unit: str, is_compared: bool) -> list[Heading]:
    return [*(Heading(side, unit) for side in SIDES), Heading("error", "%")] if is_compared else [Heading(name, unit)]


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"


def _cells(value: Value, form: Format, is_compared: bool) -> Row:
    """Return one number, or predicted, measured and error; a prediction alone leaves the other two open."""
    if isinstance(value, SideBySide):
        error = NOTHING if value.error is None else f"{100 * value.error:+.0f}" + " ?" * (not value.trusted)
        predicted = format_or_dash(value.predicted, form) + _give_or_take(value.predicted, value.uncertainty)
        return [predicted, format_or_dash(value.measured, form), error]
    if is_compared:
        return [format_or_dash(value, form), NOTHING, NOTHING]
    return ["never" if value is None else form(value)]


def _give_or_take(value: float | None, uncertainty: float | None) -> str:
    """Return how far a prediction may be off: `` ± 6%``; nothing where that is not known."""
    if value is None or uncertainty is None:
        return ""
    return f" ± {100 * uncertainty:.0f}%" if uncertainty >= MOST_EXACT else f" ± {100 * uncertainty:.1f}%"


def _print_grouped(console: Console, title: str, headings: Sequence[Heading], groups: Groups, words: int) -> None:
    """Print a table with a section for each cluster; its name runs down beside its rows where the width asks for it."""
    console.print(make_printable(title), style="bold", soft_wrap=True)  # a table would wrap it at its own width
    if len(groups) == 1:
        console.print(make_table(None, [*map(str, headings)], groups[0][1], words - 1))
        return
    table = make_table(None, ["cluster", *map(str, headings)], [], words)
    rows = [row for _, found in groups for row in found]
    columns = zip(*rows, strict=True)
    width = console.width - sum(_width(heading, column) for heading, column in zip(headings, columns, strict=True)) - 3
    for name, found in groups:
        lines = textwrap.wrap(name, max(LEAST_WIDTH, width))
        lines[len(found) - 1 :] = [" ".join(lines[len(found) - 1 :])]  # the table wraps what is left
        for line, row in zip_longest(lines[: len(found)], found, fillvalue=""):
            table.add_row(*map(make_printable, (str(line), *row)))
        table.add_section()
    console.print(table)


def _width(heading: Heading, column: Iterable[str]) -> int:
    """Return the characters that a column takes, with the space before it."""
    return 2 + max(map(cell_len, (heading.name, f"({heading.unit})", *column)))
