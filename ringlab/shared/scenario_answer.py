"""What the answers about a scenario share, ``Prediction``, ``RunAnswer`` and ``Comparison``: their JSON and tables.

A table has a section for each cluster, so that what-ifs stand beside.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, Generic

from collectives.records.environment import describe_measurement
from collectives.records.spans import PHASES
from collectives.units import format_size, format_time
from ringlab.shared.answer import Answer
from ringlab.shared.figures import ClusterFigures, CollectiveFigures, N, Number, SideBySide, TrainingFigures
from ringlab.table import (
    NOTHING,
    Cell,
    Format,
    Line,
    Part,
    Row,
    Sentences,
    Table,
    format_digits,
    format_or_dash,
    size_unit,
    time_unit,
)

SIDES = ("predicted", "measured")
ERRORS = (("good", 0.10), ("fair", 0.25), ("poor", inf))  # up to so much
STEP = ("step", *PHASES)
Entry = CollectiveFigures[Any] | TrainingFigures[Any]
Clusters = Sequence[ClusterFigures[Any]]
Rows = Callable[[ClusterFigures[Any]], Sequence[Row]]
Value = float | SideBySide | None


@dataclass(frozen=True, kw_only=True, repr=False)
class ScenarioAnswer(Answer, Generic[N]):
    """What a command found about a scenario."""

    kind: ClassVar[str]

    title: str  # of the scenario
    file: str
    cluster: str
    collectives: tuple[CollectiveFigures[N], ...]
    training: tuple[TrainingFigures[N], ...]
    what_ifs: tuple[ClusterFigures[Number], ...] = ()
    environment: dict[str, str | int] = field(default_factory=describe_measurement)
    conclusions: tuple[str, ...] = ()  # a few sentences
    explanations: tuple[str, ...] = ()  # further ones
    interrupted: bool = False  # rows are missing then

    @property
    def place(self) -> str:
        """Where the scenario's own figures are from."""
        return self.cluster

    @property
    def own(self) -> ClusterFigures[N]:
        """The figures of the scenario's own cluster, under the cluster's title."""
        return ClusterFigures(
            title=self.cluster, cluster=self.cluster, collectives=self.collectives, training=self.training
        )

    @property
    def clusters(self) -> Clusters:
        """The figures of the scenario's own cluster and of its what-ifs."""
        return [self.own, *self.what_ifs]

    def to_dict(self) -> dict[str, Any]:
        """Return what the command writes as JSON."""
        found = super().to_dict()
        head = {key: found.pop(key) for key in ("schema_version", "kind")}
        about = {key: found.pop(key) for key in ("title", "file", "cluster")}
        return {**head, "scenario": about, "what_if": found.pop("what_ifs"), **found}

    def show(self) -> Iterator[Part]:
        """Yield the title, the tables and, under them, the conclusions."""
        yield Line(self.title, "bold")
        if not self.what_ifs:
            yield self.place
        yield ""
        clusters, is_compared = self.clusters, self.kind == "comparison"
        if any(cluster.collectives for cluster in clusters):
            yield from _collectives(clusters, is_compared)
        if any(cluster.training for cluster in clusters):
            yield from (_compared_training if is_compared else _training)(clusters)
        if any(entry.test_accuracy is not None for entry in self.training):
            yield from _results(self.own)
        if any(_repeated(cluster) for cluster in clusters):
            yield from _with_faults(clusters)
        yield Sentences(self.sentences, self.explanations, wrap=True)

    @property
    def sentences(self) -> Sequence[str]:
        """What stands under the tables before the explanations."""
        return self.conclusions

    def show_what_ifs(self) -> Table | None:
        """Return a row for each what-if: its step, or its collective at the largest size, and how many times as long.

        Of several algorithms it is the quickest of the answer's own. None without what-ifs or without times.
        """
        own, *others = (_predicted_seconds(cluster) for cluster in self.clusters)
        if not others or not own:
            return None
        chosen = min(own, key=lambda name: own[name])
        rows = [["as it is", format_time(own[chosen]), NOTHING]]
        for cluster, times in zip(self.what_ifs, others, strict=True):
            then = times.get(chosen)
            factor = f"{then / own[chosen]:.3g} times" if then else NOTHING
            rows.append([cluster.title, format_time(then) if then else "never ends", factor])
        return Table(None, [f"with {', '.join(chosen)}", "step" if self.training else "time", "as long"], rows)


def _predicted_seconds(cluster: ClusterFigures[Any]) -> dict[tuple[str, ...], float]:
    """Return what each training, or each collective at the largest size, takes by the prediction, by its name."""
    largest = max((one.bytes for one in cluster.collectives), default=0)
    found: list[tuple[tuple[str, ...], Value]] = [((one.gradient_sync,), one.step_s) for one in cluster.training]
    found = found or [
        ((one.algorithm, format_size(largest)), one.time_s) for one in cluster.collectives if one.bytes == largest
    ]
    return {name: seconds for name, value in found if (seconds := _side(value, SIDES[0]))}


def _grouped(
    title: str,
    headings: Sequence[str],
    clusters: Clusters,
    rows: Callable[[ClusterFigures[Any]], Sequence[Row]],
    words: int,
) -> Iterator[Part]:
    """Yield a title, which a table would wrap at its own width, and a table with a section for each cluster."""
    found = [(cluster.title, rows(cluster)) for cluster in clusters]
    yield Line(title, "bold")
    every = [row for _, some in found for row in some]
    if len(found) == 1:
        yield Table(None, headings, every, words - 1)
    else:
        yield Table(None, ["cluster", *headings], every, words, [(name, len(some)) for name, some in found])


def _collectives(clusters: Clusters, is_compared: bool) -> Iterator[Part]:
    entries = [entry for cluster in clusters for entry in cluster.collectives]
    of_nccl = any(entry.interval_s for entry in entries)
    unit, form = time_unit(_seconds(entry.time_s for entry in entries))
    size, write_size = size_unit(entry.bytes for entry in entries)
    rates = () if is_compared else ("algbw", "busbw")[of_nccl:]

    def row(entry: CollectiveFigures[Any], rivals: Sequence[CollectiveFigures[Any]]) -> Row:
        interval = " to ".join(map(form, entry.interval_s)) if entry.interval_s else NOTHING
        return [
            entry.algorithm,
            write_size(entry.bytes),
            *_timed(entry, rivals, form, is_compared),
            *(format_or_dash(getattr(entry, f"{rate}_GBps"), format_digits) for rate in rates),
            *([interval, entry.choice or NOTHING] if of_nccl else ()),
        ]

    def rows(cluster: ClusterFigures[Any]) -> list[Row]:
        return [row(entry, cluster.collectives) for entry in cluster.collectives]

    headings = ["algorithm", f"size\n({size})", *_headings("time", unit, is_compared)]
    headings += [f"{rate}\n(GB/s)" for rate in rates]
    headings += [f"80 % interval\n({unit})", "choice"] if of_nccl else []
    return _grouped("Collectives", headings, clusters, rows, words=2)


def _timed(
    entry: CollectiveFigures[Any], rivals: Sequence[CollectiveFigures[Any]], form: Format, is_compared: bool
) -> list[Cell]:
    """Return the cells of a time; on a page with its range, and a bar: its share of the slowest in the same case."""
    case = [one for one in rivals if (one.world_size, one.bytes) == (entry.world_size, entry.bytes)]
    cells = _cells(entry.time_s, form, is_compared)
    for index, side in enumerate(SIDES if is_compared else SIDES[:1]):
        own, low, high = (_side(value, side) for value in (entry.time_s, entry.time_min_s, entry.time_max_s))
        slowest = max(_side(one.time_s, side) or 0.0 for one in case)
        note = f"{form(low)} to {form(high)}" if low is not None and high is not None and low < high else ""
        share = own / slowest if own and slowest and len(case) > 1 else 0.0
        cells[index] = cells[index]._replace(note=note, share=share)
    return cells


def _training(clusters: Clusters) -> Iterator[Part]:
    """Yield a row for each algorithm: the step by phase."""
    unit, form = _phase_unit(clusters)
    shown = _shown_phases(clusters)

    def row(entry: TrainingFigures[Any]) -> Row:
        if entry.step_s is None and entry.test_accuracy is not None:  # no step was left to train
            return [entry.gradient_sync, *(NOTHING for _ in shown), NOTHING]
        phases = [_cells(_phase(entry, name), form, is_compared=False)[0] for name in shown]
        return [entry.gradient_sync, *phases, *_cells(entry.scaling_efficiency, _percent, is_compared=False)]

    headings = ["sync", *(f"{name}\n({unit})" for name in shown), "scaling\n(%)"]
    return _grouped("Training step", headings, clusters, lambda cluster: [*map(row, cluster.training)], words=2)


def _compared_training(clusters: Clusters) -> Iterator[Part]:
    """Yield a row for each phase: predicted, measured and error; and the efficiency so."""
    unit, form = _phase_unit(clusters)
    shown = _shown_phases(clusters)

    def phases(cluster: ClusterFigures[Any]) -> list[Row]:
        return [
            [entry.gradient_sync if name == "step" else "", name, *_cells(_phase(entry, name), form, is_compared=True)]
            for entry in cluster.training
            for name in shown
        ]

    def efficiency(cluster: ClusterFigures[Any]) -> list[Row]:
        return [
            [entry.gradient_sync, *_cells(entry.scaling_efficiency, _percent, is_compared=True)]
            for entry in cluster.training
        ]

    yield from _grouped("Training step", ["sync", "phase", *_headings("", unit, True)], clusters, phases, words=3)
    yield from _grouped("Scaling efficiency", ["sync", *_headings("", "%", True)], clusters, efficiency, words=2)


def _results(cluster: ClusterFigures[Any]) -> Iterator[Part]:
    """Yield what a measured training came to; the share of a step is the time that it waited for communication."""

    def row(entry: TrainingFigures[Any]) -> Row:
        exposed = entry.sync_s if entry.exposed_s is None else entry.exposed_s
        samples, sync, step = (_measured(value) for value in (entry.samples_per_s, exposed, entry.step_s))
        share = sync / step if sync and step else 0.0
        waited = share if share >= 0.001 else None
        return [
            entry.gradient_sync,
            format_or_dash(samples, format_digits),
            format_or_dash(entry.examples_seen, lambda number: f"{number:,.0f}"),
            format_or_dash(entry.test_accuracy, lambda part: f"{100 * part:.1f}"),
            format_or_dash(waited, _percent),
        ]

    headings = [
        "sync",
        "throughput\n(samples/s)",
        "examples\n(all ranks)",
        "held-out\n(%)",
        "communication\n(% of step)",
    ]
    return _grouped("Training", headings, [cluster], lambda one: [*map(row, one.training)], words=2)


def _with_faults(clusters: Clusters) -> Iterator[Part]:
    """Yield how the repetitions of each collective and training went, where there were several."""
    shown = [cluster for cluster in clusters if _repeated(cluster)]
    entries = [entry for cluster in shown for entry in _repeated(cluster)]
    unit, form = time_unit(value for entry in entries for value in _quantiles(entry))
    collectives = [entry for entry in entries if isinstance(entry, CollectiveFigures)]
    size, write_size = size_unit(entry.bytes for entry in collectives)

    def row(entry: Entry) -> Row:
        assert entry.faults is not None
        if isinstance(entry, CollectiveFigures):
            name, written = entry.algorithm, write_size(entry.bytes)
        else:
            name, written = f"step with {entry.gradient_sync}", ""
        runs = str(entry.faults.repetitions)
        runs += f" of {entry.faults.asked}" if entry.faults.asked is not None else ""
        times = [format_or_dash(value, form) for value in _quantiles(entry)]
        return [name, written, runs, *times, str(entry.faults.never_ended)]

    timed = (f"{name}\n({unit})" for name in ("median", "p95", "worst"))
    headings = ["", f"size\n({size})" if collectives else "", "runs", *timed, "never end"]
    case = f": {shown[0].title}" if len(shown) == 1 < len(clusters) else ""
    rows = lambda cluster: [*map(row, _repeated(cluster))]  # noqa: E731
    return _grouped(f"Under faults{case}", headings, shown, rows, words=2)


def _repeated(cluster: ClusterFigures[Any]) -> list[Entry]:
    entries: list[Entry] = [*cluster.collectives, *cluster.training]
    return [entry for entry in entries if entry.faults is not None and entry.faults.repetitions > 1]


def _quantiles(entry: Entry) -> tuple[float | None, ...]:
    found = entry.faults.distribution if entry.faults else None
    return (found.median_s, found.p95_s, found.worst_s) if found else (None, None, None)


def _phase(entry: TrainingFigures[Any], name: str) -> Value:
    value: Value = getattr(entry, f"{name}_s")
    return value


def _shown_phases(clusters: Clusters) -> list[str]:
    """Return the step and its phases; loading where it takes time, which on a described cluster nobody has said."""
    entries = [entry for cluster in clusters for entry in cluster.training]
    loads = any(_seconds(entry.loading_s for entry in entries))
    return [name for name in STEP if loads or name != "loading"]


def _phase_unit(clusters: Clusters) -> tuple[str, Format]:
    entries = [entry for cluster in clusters for entry in cluster.training]
    return time_unit(_seconds(_phase(entry, name) for entry in entries for name in STEP))


def _side(value: Value, side: str) -> float | None:
    """Return the predicted or the measured half of a value, or the value itself where it is one number."""
    found: float | None = getattr(value, side) if isinstance(value, SideBySide) else value
    return found


def _measured(value: Value) -> float | None:
    return _side(value, "measured")


def _seconds(values: Iterable[Value]) -> Iterable[float | None]:
    for value in values:
        yield from (value.predicted, value.measured) if isinstance(value, SideBySide) else (value,)


def _headings(name: str, unit: str, is_compared: bool) -> list[str]:
    return [*(f"{side}\n({unit})" for side in SIDES), "error\n(%)"] if is_compared else [f"{name}\n({unit})"]


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"


def _cells(value: Value, form: Format, is_compared: bool) -> list[Cell]:
    """Return one number, or predicted, measured and error; a prediction alone leaves the other two open."""
    if isinstance(value, SideBySide):
        predicted = format_or_dash(value.predicted, form) + _give_or_take(value.predicted, value.uncertainty)
        return [Cell(predicted), Cell(format_or_dash(value.measured, form)), _error(value.error, value.trusted)]
    if is_compared:
        return [Cell(format_or_dash(value, form)), Cell(NOTHING), Cell(NOTHING)]
    return [Cell("never" if value is None else form(value))]


def _error(error: float | None, is_trusted: bool) -> Cell:
    """Return the cell of a prediction's error: good, fair or poor, unless the machine was busy."""
    if error is None:
        return Cell(NOTHING)
    return Cell(f"{100 * error:+.0f}", next(kind for kind, most in ERRORS if abs(error) <= most) if is_trusted else "")


def _give_or_take(value: float | None, uncertainty: float | None) -> str:
    """Return how far a prediction may be off: `` ± 6%``; nothing where that is not known."""
    if value is None or uncertainty is None:
        return ""
    return f" ± {100 * uncertainty:.0f}%" if uncertainty >= 0.01 else f" ± {100 * uncertainty:.1f}%"
