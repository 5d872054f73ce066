"""Published series predicted: by the shipped parameters, or each source by a refit that has not seen it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from simcomm.scaling.accuracy.baselines import BASELINES
from simcomm.scaling.cases import Case, Floats
from simcomm.scaling.descriptions import Series, put_aside, read_series
from simcomm.scaling.families import family_of
from simcomm.scaling.fit import fit_parameters
from simcomm.scaling.intervals import log_halfwidth
from simcomm.scaling.parameters import read_parameters
from simcomm.scaling.points import Mask, Points, make_points, predict_points

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

    def held(self, coverage: float) -> Mask:
        """Return which points lie in their interval."""
        width = log_halfwidth(self.predicted / self.linear, coverage, self.family)
        found: Mask = np.abs(np.log(self.measured / self.predicted)) <= width
        return found

    def take(self, rows: Mask) -> "Judged":
        """Return some of the rows."""

        def texts(column: list[str]) -> list[str]:
            return [one for one, kept in zip(column, rows, strict=True) if kept]

        baselines = {name: column[rows] for name, column in self.baselines.items()}
        return Judged(
            texts(self.source), texts(self.system), texts(self.model), texts(self.family), self.gpus[rows],
            self.samples[rows], self.measured[rows], self.linear[rows], self.predicted[rows], baselines,
        )  # fmt: skip


def judge_frozen(series: Sequence[Series]) -> Judged:
    """Return the points of series by the shipped parameters; baselines are fitted to what those were fitted to."""
    points = make_points(series)
    own = make_points(seen_series())
    baselines = {name: make(own)(points) for name, make in BASELINES.items()}
    return _judged(points, predict_points(points, read_parameters()), baselines)


def seen_series() -> list[Series]:
    """Return the project's own series that the shipped parameters were fitted to."""
    hidden = put_aside()
    return [one for one in read_series() if one.system not in hidden]


def judge_held_out(series: Sequence[Series], tick: Tick, key: str = "source") -> Judged:
    """Return the points of series, each source (or ``system``) by parameters and baselines fitted to the others.

    No fit sees a system that is put aside.
    """
    points = make_points(series)
    predicted = np.zeros(len(points.rate))
    baselines = {name: np.ones(len(points.rate)) for name in BASELINES}
    groups = sorted({getattr(one, key) for one in series})
    start, hidden = read_parameters(), np.array([one.system in put_aside() for one in series])
    for done, group in enumerate(groups, 1):
        inside = np.array([getattr(one, key) == group for one in series])
        others, own, rows = points.take(~inside & ~hidden), points.take(inside), inside[points.of]
        predicted[rows] = predict_points(own, refit(others, start))
        for name, make in BASELINES.items():
            baselines[name][rows] = make(others)(own)
        tick(0, done, len(groups), group)
    return _judged(points, predicted, baselines)


def refit(points: Points, start: Mapping[str, float]) -> Mapping[str, float]:
    """Return the parameters fitted to these points alone; ``start`` only says where the search begins."""
    return fit_parameters(points, start, tolerance=1e-3)


def _judged(points: Points, predicted: Floats, efficiencies: Mapping[str, Floats]) -> Judged:
    rows = points.predicted
    of = [points.series[index] for index in points.of[rows]]
    pairs = zip(of, points.cases.gpus[rows].astype(int), points.cases.nodes[rows].astype(int), strict=True)
    return Judged(
        [one.source for one in of],
        [one.system for one in of],
        [one.model for one in of],
        [family_of(Case(one.job, one.gpu, one.node, int(gpus), int(nodes))) for one, gpus, nodes in pairs],
        points.cases.gpus[rows],
        (points.cases.gpus * points.cases.batch)[rows],
        points.rate[rows],
        points.linear[rows],
        predicted[rows],
        {name: (points.linear * efficiency)[rows] for name, efficiency in efficiencies.items()},
    )
