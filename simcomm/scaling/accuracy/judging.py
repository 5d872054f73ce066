"""Published series predicted: by the shipped parameters, or each source by a refit that has not seen it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from simcomm.scaling.accuracy.baselines import BASELINES
from simcomm.scaling.accuracy.interval_fit import fit_widths
from simcomm.scaling.cases import Case, Floats
from simcomm.scaling.descriptions import Series, put_aside, read_series
from simcomm.scaling.families import family_of
from simcomm.scaling.fit import fit_parameters
from simcomm.scaling.intervals import COVERAGES, Widths, read_widths, unsure
from simcomm.scaling.parameters import read_parameters
from simcomm.scaling.points import Mask, Points, make_points, predict_steps
from simcomm.scaling.step import StepTimes

Tick = Callable[[int, int, int, str], None]  # (rank, done, total, text)


@dataclass(frozen=True)
class Judged:
    """The predicted points of some series, a row each, beside what was measured; rates of all GPUs."""

    source: list[str]
    system: list[str]
    model: list[str]
    family: list[str]
    gpus: Floats
    samples: Floats  # of a step, on all GPUs
    measured: Floats
    linear: Floats
    predicted: Floats
    unsure: Floats  # what is unsure of each, as a share, by which intervals are wider
    widths: dict[float, Floats]  # half an interval's width in log rate, by its coverage
    baselines: dict[str, Floats] = field(default_factory=dict)

    @property
    def hard(self) -> Mask:
        """The points that were measured below 0.9 of linear."""
        found: Mask = self.measured < 0.9 * self.linear
        return found

    @property
    def errors(self) -> Floats:
        """Signed errors, predicted / measured - 1."""
        return self.predicted / self.measured - 1

    @property
    def sizes(self) -> Floats:
        """Sizes of errors in log rate, in units of what is unsure."""
        found: Floats = np.abs(np.log(self.measured / self.predicted)) / self.unsure
        return found

    def held(self, coverage: float) -> Mask:
        """Return which points lie in their interval; ``coverage`` is one of ``COVERAGES``."""
        found: Mask = np.abs(np.log(self.measured / self.predicted)) <= self.widths[coverage]
        return found

    def take(self, rows: Mask) -> "Judged":
        """Return some of the rows."""

        def texts(column: list[str]) -> list[str]:
            return [one for one, kept in zip(column, rows, strict=True) if kept]

        baselines = {name: column[rows] for name, column in self.baselines.items()}
        widths = {coverage: column[rows] for coverage, column in self.widths.items()}
        return Judged(
            texts(self.source), texts(self.system), texts(self.model), texts(self.family), self.gpus[rows],
            self.samples[rows], self.measured[rows], self.linear[rows], self.predicted[rows], self.unsure[rows],
            widths, baselines,
        )  # fmt: skip


def judge_frozen(series: Sequence[Series]) -> Judged:
    """Return the points of series by the shipped parameters; baselines are fitted to what those were fitted to."""
    points = make_points(series)
    own = make_points(seen_series())
    values = read_parameters()
    predicted, times = predict_steps(points, values)
    baselines = {name: make(own)(points) for name, make in BASELINES.items()}
    families = _families(points)
    widths = [read_widths()] * len(families)
    return _judged(points, predicted, _unsure(points, predicted, times, values), families, widths, baselines)


def seen_series() -> list[Series]:
    """Return the project's own series that the shipped parameters were fitted to."""
    hidden = put_aside()
    return [one for one in read_series() if one.system not in hidden]


def judge_held_out(
    series: Sequence[Series], tick: Tick, key: str = "source", pinned: Mapping[str, float] | None = None
) -> Judged:
    """Return the points of series, each source (or ``system``) by parameters, widths and baselines of the others.

    No fit sees a system that is put aside; none moves a parameter that is ``pinned``.
    """
    points = make_points(series)
    predicted, unsure_of = np.zeros(len(points.rate)), np.ones(len(points.rate))
    baselines = {name: np.ones(len(points.rate)) for name in BASELINES}
    groups = sorted({getattr(one, key) for one in series})
    start, hidden = read_parameters(), np.array([one.system in put_aside() for one in series])
    of = np.array([getattr(one, key) for one in series])
    for done, group in enumerate(groups, 1):
        inside = of == group
        others, own, rows = points.take(~inside & ~hidden), points.take(inside), inside[points.of]
        values = refit(others, start, pinned)
        predicted[rows], times = predict_steps(own, values)
        unsure_of[rows] = _unsure(own, predicted[rows], times, values)
        for name, make in BASELINES.items():
            baselines[name][rows] = make(others)(own)
        tick(0, done, len(groups), group)
    families, seen = _families(points), points.predicted & ~hidden[points.of]
    sizes = np.abs(np.log(points.rate / predicted)) / unsure_of
    widths = {
        group: fit_widths(sizes[rows], [families[row] for row in np.flatnonzero(rows)])
        for group in groups
        for rows in [seen & (of[points.of] != group)]
        if rows.any()
    }
    each = [widths.get(of[index], read_widths()) for index in points.of]
    return _judged(points, predicted, unsure_of, families, each, baselines)


def refit(points: Points, start: Mapping[str, float], pinned: Mapping[str, float] | None = None) -> Mapping[str, float]:
    """Return the parameters fitted to these points alone; ``start`` only says where the search begins."""
    return fit_parameters(points, start, tolerance=1e-3, pinned=pinned)


def _unsure(points: Points, predicted: Floats, times: StepTimes, values: Mapping[str, float]) -> Floats:
    loaders, unequal = times.feels_loaders(values), times.waits_for(points.cases.variable)
    return unsure(predicted / points.linear, loaders, unequal)


def _families(points: Points) -> list[str]:
    of = [points.series[index] for index in points.of]
    counts = zip(of, points.cases.gpus.astype(int), points.cases.nodes.astype(int), strict=True)
    return [family_of(Case(one.job, one.gpu, one.node, int(gpus), int(nodes))) for one, gpus, nodes in counts]


def _judged(
    points: Points,
    predicted: Floats,
    unsure_of: Floats,
    families: Sequence[str],
    widths: Sequence[Widths],
    efficiencies: Mapping[str, Floats],
) -> Judged:
    rows = points.predicted
    of = [points.series[index] for index in points.of[rows]]
    halves = {
        coverage: np.array([
            size * each.quantiles[coverage] * each.wider.get(family, 1.0)
            for size, each, family in zip(unsure_of, widths, families, strict=True)
        ])[rows]
        for coverage in COVERAGES
    }  # fmt: skip
    return Judged(
        [one.source for one in of],
        [one.system for one in of],
        [one.model for one in of],
        [family for family, kept in zip(families, rows, strict=True) if kept],
        points.cases.gpus[rows],
        (points.cases.gpus * points.cases.batch)[rows],
        points.rate[rows],
        points.linear[rows],
        predicted[rows],
        unsure_of[rows],
        halves,
        {name: (points.linear * efficiency)[rows] for name, efficiency in efficiencies.items()},
    )
