"""Compare predictions of published training runs on many GPUs with the measured rates and with baselines.

A point is the rate of all GPUs. Points are rows of columns, series after series. A hard point was measured below
``HARD`` of linear scaling.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

import viz
from benchmarks.accuracy.judging import Floats, Judged, Score, score
from benchmarks.accuracy.nccl_answer import describe_left_out, format_percent
from benchmarks.accuracy.series import OWN_DATA, Point, Series, is_known_precision, read_series
from benchmarks.accuracy.steps import put_aside, steps_of_series
from collectives.checks import check_path
from collectives.errors import InputError, NotKnown
from collectives.quoting import name_some, quote
from collectives.training.parallelism import Parallelism
from collectives.units import count
from planner.beliefs import believe
from planner.hosts import LINKS
from planner.jobs import NEVER
from ringlab.shared.answer import Answer
from ringlab.shared.progress import Progress, computing
from ringlab.table import NOTHING, Part, Sentences, Table

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
SYNCS = ("ddp", "after", "ps", "none")


@dataclass(frozen=True)
class Points:
    """The points of series. ``rate`` has the measured rates of all GPUs."""

    series: tuple[Series, ...]
    rate: Floats

    @cached_property
    def of(self) -> Rows:
        """The index of each point's series."""
        return np.repeat(np.arange(len(self.series)), [len(curve.points) for curve in self.series])

    @cached_property
    def first(self) -> Rows:
        """The row of the first point of each point's series, from which the point is predicted."""
        return np.searchsorted(self.of, self.of)

    @cached_property
    def gpus(self) -> Floats:
        """The number of GPUs."""
        return floats(point.gpus for curve in self.series for point in curve.points)

    @cached_property
    def batch(self) -> Floats:
        """Samples per GPU between two synchronizations."""
        return floats(curve.job_on(point.gpus).batch for curve in self.series for point in curve.points)

    @cached_property
    def link(self) -> Rows:
        """The link between the GPUs, as an index of ``LINKS``."""
        kinds = ("network" if point.nodes > 1 else curve.node.link for curve in self.series for point in curve.points)
        return np.array([LINKS.index(kind) for kind in kinds])

    @cached_property
    def exchanged_bytes(self) -> Floats:
        """Bytes of the gradients per step; 0 for one GPU and for series without synchronization."""
        gradient_bytes = floats(
            curve.job.model.parameters * (curve.job.parallelism.gradient_bytes or 4) for curve in self.series
        )
        exchanges = np.array([sync_of(curve.job.parallelism) != "none" for curve in self.series])
        return np.asarray(np.where((self.gpus > 1) & exchanges[self.of], gradient_bytes[self.of], 0.0))

    @property
    def linear(self) -> Floats:
        """The rate of linear scaling from the first point."""
        linear: Floats = self.rate[self.first] * self.gpus / self.gpus[self.first]
        return linear

    @property
    def predicted(self) -> Mask:
        """A mask of the predicted points, which are all except the first of each series."""
        mask: Mask = self.first != np.arange(len(self.first))
        return mask


def sync_of(parallelism: Parallelism) -> str:
    """Return how data parallelism synchronizes gradients, as a name of ``SYNCS``.

    >>> sync_of(Parallelism()), sync_of(Parallelism(overlap=False)), sync_of(Parallelism(sync_every=NEVER))
    ('ddp', 'after', 'none')
    """
    if parallelism.strategy == "parameter_server":
        return "ps"
    return "none" if parallelism.sync_every == NEVER else "ddp" if parallelism.overlap else "after"


def floats(values: Iterable[float]) -> Floats:
    """Return numbers as an array."""
    return np.array([*values], dtype=np.float64)


def measured(series: Sequence[Series]) -> Floats:
    """Return the measured rates of all points."""
    return floats(point.rate for curve in series for point in curve.points)


HARD, COVERAGES = 0.9, (0.5, 0.8, 0.9)
SYNC_NAMES = {"none": "no sync", "ps": "parameter server"}
INSIDE = {"nvlink": "NVLink", "pcie": "PCIe, peer to peer", "host": "PCIe, host memory"}


def judge_frozen(series: Sequence[Series]) -> Judged:
    """Return the points predicted by the shipped parameters. Baselines are fitted to the series of the shipped fit."""
    points, steps = Points(tuple(series), measured(series)), steps_of_series(series)
    parameters = believe().parameters
    deviations = np.zeros(len(points.rate))
    deviations[points.predicted] = steps.deviations(parameters)
    predicted = np.where(points.predicted, points.rate * steps.measured / steps.seconds(parameters), points.rate)
    baselines = {name: efficiency(points) for name, efficiency in fitted_baselines().items()}
    return judged_points(points, predicted, deviations, baselines)


@cache
def fitted_baselines() -> dict[str, Callable[[Points], Floats]]:
    """Return the baselines of efficiency, fitted to the published series that are not held out."""
    seen = tuple(seen_series())
    points = Points(seen, measured(seen))
    return {name: make(points) for name, make in BASELINES.items()}


def seen_series() -> list[Series]:
    """Return the published series to which the shipped parameters were fitted."""
    hidden = put_aside()
    return [curve for curve in read_series() if curve.system not in hidden]


def judged_points(points: Points, predicted: Floats, deviations: Floats, efficiencies: Mapping[str, Floats]) -> Judged:
    """Return points with their predictions, intervals and baselines.

    ``deviations`` are standard deviations of the logarithms of the rates. Keys are source, system, model, family, gpus,
    samples (per step of all GPUs), linear (the rate of linear scaling) and hard.
    """
    rows = points.predicted
    of = [points.series[index] for index in points.of[rows]]
    rates = predicted[rows]
    halves = {coverage: NormalDist().inv_cdf((1 + coverage) / 2) * deviations[rows] for coverage in COVERAGES}
    return Judged(
        keys={
            "source": np.array([curve.source for curve in of]),
            "system": np.array([curve.system for curve in of]),
            "model": np.array([curve.model for curve in of]),
            "family": np.array([family_of(curve, point) for curve in points.series for point in curve.points[1:]]),
            "gpus": points.gpus[rows].astype(int),
            "samples": (points.gpus * points.batch)[rows],
            "linear": points.linear[rows],
            "hard": points.rate[rows] < HARD * points.linear[rows],
        },
        measured=points.rate[rows],
        predicted=rates,
        low={coverage: rates * np.exp(-half) for coverage, half in halves.items()},
        high={coverage: rates * np.exp(half) for coverage, half in halves.items()},
        baselines={name: (points.linear * efficiency)[rows] for name, efficiency in efficiencies.items()},
    )


def family_of(series: Series, point: Point) -> str:
    """Return the family of a point: points whose scaling is limited by the same link or kind of synchronization."""
    sync = sync_of(series.job.parallelism)
    if sync in SYNC_NAMES:
        return SYNC_NAMES[sync]
    if point.nodes > 1:
        return "network, up to 12.5 GB/s a node" if series.node.nic <= 12.5e9 else "network, faster"
    return INSIDE[series.node.link]


def score_points(judged: Judged) -> dict[str, Score]:
    """Return the scores of all points and of the hard points."""
    return {"all": score(judged), "hard": score(judged.take(judged.keys["hard"]))}


def score_by(judged: Judged, key: str) -> dict[str, Score]:
    """Return the scores by "family", "gpus", "source", "system" or "model", sorted by value."""
    return {str(value): score(part) for value, part in sorted(judged.by(key).items())}


def score_baselines(judged: Judged) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the median and the 90th percentile of each baseline's errors, for all points and for hard points."""
    return {
        name: {
            difficulty: {"median": score.median, "p90": score.p90}
            for difficulty, score in score_points(judged.of_baseline(name)).items()
        }
        for name in judged.baselines
    }


Efficiency = Callable[[Points], Floats]  # returns each row's share of linear scaling
Baseline = Callable[[Points], Efficiency]  # is fitted to points and returns the efficiency of others


def linear(_: Points) -> Efficiency:
    """Return the baseline of linear scaling."""
    return lambda points: np.ones(len(points.rate))


def one_efficiency(seen: Points) -> Efficiency:
    """Return the baseline with the median efficiency of each GPU count, interpolated for other counts."""
    rows = seen.predicted
    counts, efficiency = seen.gpus[rows], (seen.rate / seen.linear)[rows]
    known = np.unique(counts)
    medians = [float(np.median(efficiency[counts == count])) for count in known]

    def predict(points: Points) -> Floats:
        efficiency: Floats = np.interp(np.log(points.gpus), np.log(known), medians)
        return efficiency

    return predict


def alpha_beta(seen: Points) -> Efficiency:
    """Return the baseline that adds a latency and a ring all_reduce to the step of one GPU.

    Each kind of link has one bandwidth. Nothing overlaps. Parameter servers count like other series, and series without
    synchronization scale linearly.
    """
    rows = seen.predicted
    lost = np.log(seen.rate / seen.linear)[rows]

    def residuals(logs: Floats) -> Floats:
        errors = np.log(_ring_efficiency(seen, np.exp(logs)))[rows] - lost
        residuals: Floats = np.concatenate([np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + (errors / 0.02) ** 2) - 1)),
                                        (logs - PRIORS) / 3])  # fmt: skip
        return residuals

    fitted = np.exp(least_squares(residuals, PRIORS, ftol=1e-3, xtol=1e-3).x)
    return lambda points: _ring_efficiency(points, fitted)


PRIORS = np.log([100e9, 15e9, 6e9, 10e9, 1e-4])  # bytes/s of LINKS, and a latency in seconds


def _ring_efficiency(points: Points, values: Floats) -> Floats:
    alone = points.batch * points.gpus / points.linear
    share = 2 * (points.gpus - 1) / points.gpus
    seconds = share * points.exchanged_bytes / values[points.link] + values[-1] * np.log2(points.gpus)
    more = np.where(points.exchanged_bytes > 0, seconds, 0.0)
    start = points.first
    base = np.maximum(alone - more[start] * points.batch / points.batch[start], 0.05 * alone)  # one GPU alone
    efficiency: Floats = alone / (base + more)
    return np.where(points.predicted, efficiency, 1.0)


BASELINES: dict[str, Baseline] = {
    "linear": linear, "one efficiency per GPU count": one_efficiency, "alpha-beta": alpha_beta,
}  # fmt: skip


PANELS = {False: "0.9 of linear and above", True: "hard: below 0.9 of linear"}
# With line breaks, so that a family's name fits into 80 columns.
HEADINGS = ["points", "median", "p90", "within\n15 %", "bias", "in\n50 %", "in\n80 %", "in\n90 %"]

Errors = Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True, repr=False)
class TrainingAccuracy(Answer):
    """Predicted and published rates, point by point, and their scores. Errors are fractions."""

    directory: str
    fit: str  # description of the parameters
    judged: Judged
    series: int
    sources: int
    notes: tuple[str, ...] = ()
    points: dict[str, Score] = field(init=False)
    baselines: Mapping[str, Errors] = field(init=False)

    def __post_init__(self) -> None:
        """Compute the scores."""
        object.__setattr__(self, "points", score_points(self.judged))
        object.__setattr__(self, "baselines", score_baselines(self.judged))

    def by(self, key: str) -> dict[str, Score]:
        """Return the scores by "family", "gpus", "source", "system" or "model"."""
        return score_by(self.judged, key)

    def draw(self, path: Path | str) -> None:
        """Draw predicted against measured step times as .png, .svg or .pdf. Raise InputError for another suffix."""
        judged = self.judged
        dots = []
        for hard, panel in PANELS.items():
            for family, part in sorted(judged.take(judged.keys["hard"] == hard).by("family").items()):
                seconds = [list(part.keys["samples"] / rate) for rate in (part.measured, part.predicted)]
                dots.append(viz.Dots(panel, family, *seconds))
        subtitle = f"{self.series} series, parameters: {self.fit}; grey: off by less than a factor of 1.3"
        title = "A training step on many GPUs: predicted and published"
        viz.write_figure(viz.accuracy_figure(title, subtitle, dots), path)

    def to_dict(self) -> dict[str, Any]:
        """Return scores and baselines as plain JSON. Errors are fractions."""
        return {
            "points": {name: asdict(score) for name, score in self.points.items()},
            "baselines": self.baselines,
            "by": {key: {name: asdict(score) for name, score in self.by(key).items()} for key in ("family", "gpus")},
            "series": self.series,
            "sources": self.sources,
            "fit": self.fit,
        }

    def show(self) -> Iterator[Part]:
        """Yield the errors of all points and of hard points, of baselines, and by family and GPU count."""
        rows = [[name, *_cells(score)] for name, score in self.points.items()]
        yield Table(f"Errors of training runs in {self.directory}", ["", *HEADINGS], rows)
        rows = [
            [name, *(_percent(errors[difficulty][key]) for difficulty in ("all", "hard") for key in ("median", "p90"))]
            for name, errors in self.baselines.items()
        ]
        yield Table("Baselines", ["", "median,\nall", "p90", "median,\nhard", "p90"], rows)
        for key, title in (("family", "family"), ("gpus", "GPUs")):
            rows = [[name, *_cells(score)] for name, score in self.by(key).items()]
            yield Table(f"By {title}", [title, *HEADINGS], rows)
        fit = (
            f"{self.series} series of {count(self.sources, 'source')}; parameters: {self.fit}. "
            "An error is |predicted / measured - 1|; hard: measured below 0.9 of linear."
        )
        yield Sentences([*self.notes, fit])


def _cells(score: Score) -> list[str]:
    shares = (score.within15, score.coverage50, score.coverage80, score.coverage90)
    within, *coverages = [NOTHING if share is None else f"{share:.0%}" for share in shares]
    return [str(score.n), _percent(score.median), _percent(score.p90), within, _percent(score.bias, "+"), *coverages]


def _percent(share: float | None, sign: str = "") -> str:
    return NOTHING if share is None else format_percent(share, sign)


def accuracy_training(
    data: Path | str | None = None, *, only_held_out: bool = False, progress: Progress | None = None
) -> TrainingAccuracy:
    """Predict every series that ``series_described.toml`` in a directory describes. Default: the published series.

    The shipped parameters were fitted to the published series except the held-out systems. ``only_held_out`` evaluates
    only the held-out systems. Raises InputError if no series can be predicted, or both arguments are set.

    >>> accuracy_training(only_held_out=True).points["all"].n
    82
    """
    is_shipped = data is None
    if not is_shipped and only_held_out:
        raise InputError("--held-out applies to the series that Ringlab ships; omit --data or --held-out")
    left_out = list[NotKnown]()
    series = read_series(OWN_DATA if data is None else check_path("data", data), left_out.append)
    if not series:
        raise InputError(f"no series left to predict: {left_out[0]}")
    notes = describe_left_out(left_out, "series")
    if is_shipped:
        hidden = put_aside()
        series = [curve for curve in series if curve.system in hidden or not only_held_out]
        notes.append(f"{count(len(hidden), 'system')} were held out of every fit")
        if not only_held_out:
            notes.append(
                "the parameters are fitted to the other systems; docs/reports/scaling.md has errors of left-out sources"
            )
    alone = sum(len(curve.points) == 1 for curve in series)
    if alone == len(series):
        raise InputError(f"{data}: every series has a single point; at least two are needed")
    if alone:
        notes.append(f"{alone} series have only one point, so nothing is predicted")
    notes += _oddities(series)
    with computing(progress, f"predicting {len(series)} series"):
        judged = judge_frozen(series)
    sources = len({curve.source for curve in series})
    return TrainingAccuracy(
        directory="its own series" if is_shipped else str(data),
        fit="as shipped",
        judged=judged,
        series=len(series),
        sources=sources,
        notes=tuple(notes),
    )


def _oddities(series: Sequence[Series]) -> Iterator[str]:
    before, again = defaultdict[tuple[Point, ...], list[Series]](list), 0
    for curve in series:
        again += curve in before[curve.points]
        before[curve.points].append(curve)
    if again:
        yield f"duplicates among the series, which count again: {again}"
    unknown = sorted({curve.job.precision for curve in series if not is_known_precision(curve.job.precision)})
    if unknown:
        named, is_one = name_some([*map(quote, unknown)]), len(unknown) == 1
        yield f"precision{'' if is_one else 's'} {named} {'is' if is_one else 'are'} unknown and treated as float32"
