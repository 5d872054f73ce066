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
from simcomm.scaling.intervals import COVERAGES, Shares, log_halfwidth, read_widths
from simcomm.scaling.parameters import read_parameters
from simcomm.scaling.points import Mask, Points, make_points, predict_steps

HARD = 0.9  # of linear scaling: points below are hard
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
    shares: Shares  # what each rests on, by which intervals are wider
    widths: dict[float, Floats]  # half an interval's width in log rate, by its coverage
    baselines: dict[str, Floats] = field(default_factory=dict)

    @property
    def hard(self) -> Mask:
        """The points that were measured below ``HARD`` of linear."""
        found: Mask = self.measured < HARD * self.linear
        return found

    @property
    def errors(self) -> Floats:
        """Signed errors, predicted / measured - 1."""
        return self.predicted / self.measured - 1

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
            source=texts(self.source),
            system=texts(self.system),
            model=texts(self.model),
            family=texts(self.family),
            gpus=self.gpus[rows],
            samples=self.samples[rows],
            measured=self.measured[rows],
            linear=self.linear[rows],
            predicted=self.predicted[rows],
            shares=self.shares.take(rows),
            widths=widths,
            baselines=baselines,
        )


def judge_frozen(series: Sequence[Series]) -> Judged:
    """Return the points of series by the shipped parameters; baselines are fitted to what those were fitted to."""
    points = make_points(series)
    own = make_points(seen_series())
    values = read_parameters()
    predicted, times = predict_steps(points, values)
    baselines = {name: make(own)(points) for name, make in BASELINES.items()}
    shares = times.shares(points.cases, values)
    return _judged(points, predicted, shares, {share: log_halfwidth(shares, share) for share in COVERAGES}, baselines)


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
    predicted, columns = np.zeros(len(points.rate)), np.zeros((len(Shares._fields), len(points.rate)))
    baselines = {name: np.ones(len(points.rate)) for name in BASELINES}
    groups = sorted({getattr(one, key) for one in series})
    start, hidden = read_parameters(), np.array([one.system in put_aside() for one in series])
    of = np.array([getattr(one, key) for one in series])
    for done, group in enumerate(groups, 1):
        inside = of == group
        others, own, rows = points.take(~inside & ~hidden), points.take(inside), inside[points.of]
        values = refit(others, start, pinned)
        predicted[rows], times = predict_steps(own, values)
        columns[:, rows] = times.shares(own.cases, values)
        for name, make in BASELINES.items():
            baselines[name][rows] = make(others)(own)
        tick(0, done, len(groups), group)
    hard = points.rate < HARD * points.linear
    seen, shares = points.predicted & ~hidden[points.of], Shares(*columns)
    halves = {coverage: np.zeros(len(points.rate)) for coverage in COVERAGES}
    for group in groups:
        inside = of[points.of] == group
        rows = seen & ~inside
        errors = np.log(predicted[rows] / points.rate[rows])
        known = (errors, shares.take(rows), of[points.of][rows], hard[rows])
        widths = fit_widths(*known) if rows.any() else read_widths()
        for coverage in COVERAGES:
            halves[coverage][inside] = log_halfwidth(shares.take(inside), coverage, widths)
    return _judged(points, predicted, shares, halves, baselines)


def refit(points: Points, start: Mapping[str, float], pinned: Mapping[str, float] | None = None) -> Mapping[str, float]:
    """Return the parameters fitted to these points alone; ``start`` only says where the search begins."""
    return fit_parameters(points, start, tolerance=1e-3, pinned=pinned)


def _families(points: Points) -> list[str]:
    of = [points.series[index] for index in points.of]
    counts = zip(of, points.cases.gpus.astype(int), points.cases.nodes.astype(int), strict=True)
    return [family_of(Case(one.job, one.gpu, one.node, int(gpus), int(nodes))) for one, gpus, nodes in counts]


def _judged(
    points: Points,
    predicted: Floats,
    shares: Shares,
    halves: Mapping[float, Floats],
    efficiencies: Mapping[str, Floats],
) -> Judged:
    rows = points.predicted
    of = [points.series[index] for index in points.of[rows]]
    return Judged(
        source=[one.source for one in of],
        system=[one.system for one in of],
        model=[one.model for one in of],
        family=[family for family, kept in zip(_families(points), rows, strict=True) if kept],
        gpus=points.cases.gpus[rows],
        samples=(points.cases.gpus * points.cases.batch)[rows],
        measured=points.rate[rows],
        linear=points.linear[rows],
        predicted=predicted[rows],
        shares=shares.take(rows),
        widths={coverage: half[rows] for coverage, half in halves.items()},
        baselines={name: (points.linear * efficiency)[rows] for name, efficiency in efficiencies.items()},
    )
