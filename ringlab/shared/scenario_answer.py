"""``ScenarioAnswer``, the base class of ``Prediction``, ``RunAnswer`` and ``Comparison``, with their JSON and tables.

A table has a section for each cluster, so that what-ifs appear next to the scenario's own results.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, Generic

from collectives.records.environment import describe_measurement
from collectives.records.spans import PHASES
from ringlab.shared.answer import Answer
from ringlab.shared.figures import (
    ClusterFigures,
    CollectiveFigures,
    N,
    Number,
    SideBySide,
    TrainingFigures,
    interval_of,
)
from ringlab.table import (
    NOTHING,
    Bounds,
    Cell,
    Format,
    Line,
    Part,
    Row,
    Sentences,
    Table,
    format_digits,
    format_interval,
    format_or_dash,
    size_unit,
    time_unit,
)

SIDES = ("predicted", "measured")
ERRORS = (("good", 0.10), ("fair", 0.25), ("poor", inf))  # each with its largest error
STEP = ("step", *PHASES)
Entry = CollectiveFigures[Any] | TrainingFigures[Any]
Cluster = ClusterFigures[Any]
Value = float | SideBySide | None


@dataclass(frozen=True, kw_only=True, repr=False)
class ScenarioAnswer(Answer, Generic[N]):
    """The results of a scenario on its own cluster and on the clusters of its what-ifs."""

    kind: ClassVar[str]

    title: str
    file: str
    cluster: str
    collectives: tuple[CollectiveFigures[N], ...]
    training: tuple[TrainingFigures[N], ...]
    what_ifs: tuple[ClusterFigures[Number], ...] = ()
    environment: dict[str, str | int] = field(default_factory=describe_measurement)
    conclusions: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The cluster, or the machine, on which the scenario's own results were predicted or measured."""
        return self.cluster

    @property
    def own(self) -> ClusterFigures[N]:
        return ClusterFigures(
            title=self.cluster, cluster=self.cluster, collectives=self.collectives, training=self.training
        )

    @property
    def clusters(self) -> Sequence[Cluster]:
        return [self.own, *self.what_ifs]

    def to_dict(self) -> dict[str, Any]:
        content = super().to_dict()
        head = {key: content.pop(key) for key in ("schema_version", "kind")}
        scenario = {key: content.pop(key) for key in ("title", "file", "cluster")}
        return {**head, "scenario": scenario, "what_if": content.pop("what_ifs"), **content}

    def show(self) -> Iterator[Part]:
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
        yield Sentences(self.sentences)

    @property
    def sentences(self) -> Sequence[str]:
        return self.conclusions


def _grouped(
    title: str,
    headings: Sequence[str],
    clusters: Sequence[Cluster],
    rows: Callable[[Cluster], Sequence[Row]],
    words: int,
) -> Iterator[Part]:
    sections = [(cluster.title, rows(cluster)) for cluster in clusters]
    every = [row for _, section in sections for row in section]
    yield Line(title, "bold")
    if len(sections) == 1:
        yield Table(None, headings, every, words - 1)
    else:
        yield Table(None, ["cluster", *headings], every, words, [(name, len(section)) for name, section in sections])


def _collectives(clusters: Sequence[Cluster], is_compared: bool) -> Iterator[Part]:
    entries = [entry for cluster in clusters for entry in cluster.collectives]
    unit, form = time_unit(_seconds(entry.time_s for entry in entries))
    size, write_size = size_unit(entry.bytes for entry in entries)
    is_nccl = any(entry.choice for entry in entries)
    rates = () if is_compared else ("algbw", "busbw")[is_nccl:]

    def row(entry: CollectiveFigures[Any]) -> Row:
        return [
            entry.algorithm,
            write_size(entry.bytes),
            *_cells(entry.time_s, form, is_compared, _bounds(entry)),
            *(format_or_dash(getattr(entry, f"{rate}_GBps"), format_digits) for rate in rates),
            *([entry.choice or NOTHING] if is_nccl else ()),
        ]

    headings = ["algorithm", f"size\n({size})", *_headings(unit, is_compared, any(map(_bounds, entries)), "time")]
    headings += [f"{rate}\n(GB/s)" for rate in rates] + ["choice"] * is_nccl
    return _grouped("Collectives", headings, clusters, lambda cluster: [*map(row, cluster.collectives)], words=2)


def _bounds(entry: Entry, name: str = "time") -> Bounds | None:
    if isinstance(entry, CollectiveFigures) and entry.interval_s:
        return entry.interval_s
    return interval_of(_side(getattr(entry, f"{name}_s"), SIDES[0]), (entry.uncertainty or {}).get(f"{name}_s"))


def _training(clusters: Sequence[Cluster]) -> Iterator[Part]:
    shown, unit, form = _phases(clusters)

    def row(entry: TrainingFigures[Any]) -> Row:
        if entry.step_s is None and entry.test_accuracy is not None:  # the training had no step left
            return [entry.gradient_sync, *(NOTHING for _ in shown), NOTHING]
        phases = [_cells(getattr(entry, f"{name}_s"), form)[0] for name in shown]
        return [entry.gradient_sync, *phases, *_cells(entry.scaling_efficiency, _percent)]

    headings = ["sync", *(f"{name}\n({unit})" for name in shown), "scaling\n(%)"]
    return _grouped("Training step", headings, clusters, lambda cluster: [*map(row, cluster.training)], words=2)


def _compared_training(clusters: Sequence[Cluster]) -> Iterator[Part]:
    shown, unit, form = _phases(clusters)
    steps = [entry.step_s for cluster in clusters for entry in cluster.training]
    has_bounds = any(isinstance(step, SideBySide) and step.interval for step in steps)

    def phases(cluster: Cluster) -> list[Row]:
        return [
            [entry.gradient_sync if name == "step" else "", name, *_cells(getattr(entry, f"{name}_s"), form, True)]
            for entry in cluster.training
            for name in shown
        ]

    def efficiency(cluster: Cluster) -> list[Row]:
        return [[entry.gradient_sync, *_cells(entry.scaling_efficiency, _percent, True)] for entry in cluster.training]

    headings = ["sync", "phase", *_headings(unit, True, has_bounds)]
    yield from _grouped("Training step", headings, clusters, phases, words=3)
    headings = ["sync", *_headings("%", True, has_bounds)]
    yield from _grouped("Scaling efficiency", headings, clusters, efficiency, words=2)


def _phases(clusters: Sequence[Cluster]) -> tuple[list[str], str, Format]:
    """Return the phases to show, the unit of their times, and a function that formats the times."""
    entries = [entry for cluster in clusters for entry in cluster.training]
    loads = any(_seconds(entry.loading_s for entry in entries))
    times = time_unit(_seconds(getattr(entry, f"{name}_s") for entry in entries for name in STEP))
    return [name for name in STEP if loads or name != "loading"], *times


def _results(cluster: Cluster) -> Iterator[Part]:
    def row(entry: TrainingFigures[Any]) -> Row:
        exposed = entry.sync_s if entry.exposed_s is None else entry.exposed_s
        samples, sync, step = (_side(value, SIDES[1]) for value in (entry.samples_per_s, exposed, entry.step_s))
        share = sync / step if sync and step else 0.0
        return [
            entry.gradient_sync,
            format_or_dash(samples, format_digits),
            format_or_dash(entry.examples_seen, lambda number: f"{number:,.0f}"),
            format_or_dash(entry.test_accuracy, lambda part: f"{100 * part:.1f}"),
            _percent(share) if share >= 0.001 else NOTHING,
        ]

    headings = ["sync", "throughput\n(samples/s)", "examples\n(all ranks)", "held-out\n(%)"]
    headings.append("communication\n(% of step)")
    return _grouped("Training", headings, [cluster], lambda answer: [*map(row, answer.training)], words=2)


def _with_faults(clusters: Sequence[Cluster]) -> Iterator[Part]:
    shown = [cluster for cluster in clusters if _repeated(cluster)]
    entries = [entry for cluster in shown for entry in _repeated(cluster)]
    unit, form = time_unit(value for entry in entries for value in _quantiles(entry))
    collectives = [entry for entry in entries if isinstance(entry, CollectiveFigures)]
    size, write_size = size_unit(entry.bytes for entry in collectives)

    def row(entry: Entry) -> Row:
        faults = entry.faults
        assert faults is not None
        if isinstance(entry, CollectiveFigures):
            named = [entry.algorithm, write_size(entry.bytes)]
        else:
            named = [f"step with {entry.gradient_sync}", ""]
        runs = f"{faults.repetitions}" + (f" of {faults.asked}" if faults.asked is not None else "")
        return [*named, runs, *(format_or_dash(value, form) for value in _quantiles(entry)), str(faults.never_ended)]

    times = (f"{name}\n({unit})" for name in ("median", "p95", "worst"))
    headings = ["", f"size\n({size})" if collectives else "", "runs", *times, "never end"]
    case = f": {shown[0].title}" if len(shown) == 1 < len(clusters) else ""
    return _grouped(f"Under faults{case}", headings, shown, lambda cluster: [*map(row, _repeated(cluster))], words=2)


def _repeated(cluster: Cluster) -> list[Entry]:
    entries: list[Entry] = [*cluster.collectives, *cluster.training]
    return [entry for entry in entries if entry.faults is not None and entry.faults.repetitions > 1]


def _quantiles(entry: Entry) -> tuple[float | None, ...]:
    distribution = entry.faults.distribution if entry.faults else None
    return (distribution.median_s, distribution.p95_s, distribution.worst_s) if distribution else (None, None, None)


def _side(value: Value, side: str) -> float | None:
    number: float | None = getattr(value, side) if isinstance(value, SideBySide) else value
    return number


def _seconds(values: Iterable[Value]) -> Iterable[float | None]:
    return (_side(value, side) for value in values for side in SIDES)


def _headings(unit: str, is_compared: bool, has_bounds: bool, name: str = "") -> list[str]:
    with_bounds = f"({unit}, 80 %)" if has_bounds else f"({unit})"
    if not is_compared:
        return [f"{name}\n{with_bounds}"]
    return [f"predicted\n{with_bounds}", f"measured\n({unit})", "error\n(%)"]


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"


def _cells(value: Value, form: Format, is_compared: bool = False, bounds: Bounds | None = None) -> list[Cell]:
    if isinstance(value, SideBySide):
        predicted = format_interval(value.predicted, value.interval, form)
        error = Cell(NOTHING)
        if value.error is not None:
            error = Cell(f"{100 * value.error:+.0f}", next(kind for kind, most in ERRORS if abs(value.error) <= most))
        return [Cell(predicted), Cell(format_or_dash(value.measured, form)), error]
    if is_compared:
        return [Cell(format_or_dash(value, form)), Cell(NOTHING), Cell(NOTHING)]
    return [Cell("never" if value is None else format_interval(value, bounds, form))]
