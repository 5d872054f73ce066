"""Published series predicted: by the shipped parameters, or each source by a refit that has not seen it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from simcomm.scaling.accuracy.baselines import BASELINES
from simcomm.scaling.accuracy.families import family_of
from simcomm.scaling.cases import Floats
from simcomm.scaling.descriptions import Series
from simcomm.scaling.fit import fit_parameters
from simcomm.scaling.intervals import log_halfwidth
from simcomm.scaling.parameters import read_parameters
from simcomm.scaling.points import Points, make_points, predict_points

Tick = Callable[[int, int, int, str], None]  # (rank, done, total, text)


@dataclass(frozen=True)
class Judged:
    """The predicted points of some series, a row each, beside what was measured; rates of all GPUs."""

    source: list[str]
    system: list[str]
    model: list[str]
    family: list[str]
    gpus: Floats
    measured: Floats
    linear: Floats
    predicted: Floats
    baselines: dict[str, Floats] = field(default_factory=dict)

    @property
    def hard(self) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """The points that were measured below 0.9 of linear."""
        found: np.ndarray[tuple[int], np.dtype[np.bool_]] = self.measured < 0.9 * self.linear
        return found

    @property
    def errors(self) -> Floats:
        """Signed errors, predicted / measured - 1."""
        return self.predicted / self.measured - 1

    def held(self, coverage: float) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Return which points lie in their interval."""
        width = log_halfwidth(self.predicted / self.linear, coverage)
        found: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.abs(np.log(self.measured / self.predicted)) <= width
        return found

    def take(self, rows: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> "Judged":
        """Return some of the rows."""
        texts = [[one for one, kept in zip(column, rows, strict=True) if kept]
                 for column in (self.source, self.system, self.model, self.family)]  # fmt: skip
        arrays = [column[rows] for column in (self.gpus, self.measured, self.linear, self.predicted)]
        return Judged(*texts, *arrays, {name: column[rows] for name, column in self.baselines.items()})


def judge_frozen(series: Sequence[Series]) -> Judged:
    """Return the points of others' series by the shipped parameters; baselines are fitted to the project's own."""
    from simcomm.scaling.descriptions import read_series

    points = make_points(series)
    own = make_points(read_series())
    baselines = {name: make(own)(points) for name, make in BASELINES.items()}
    return _judged(points, predict_points(points, read_parameters()), baselines)


def judge_held_out(series: Sequence[Series], tick: Tick, key: str = "source") -> Judged:
    """Return the points of series, each source (or ``system``) by parameters and baselines fitted to the others."""
    points = make_points(series)
    predicted = np.zeros(len(points.rate))
    baselines = {name: np.ones(len(points.rate)) for name in BASELINES}
    groups = sorted({getattr(one, key) for one in series})
    start = read_parameters()
    for done, group in enumerate(groups, 1):
        inside = np.array([getattr(one, key) == group for one in series])
        others, own, rows = points.take(~inside), points.take(inside), inside[points.of]
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
    nodes = points.cases.nodes[rows]
    return Judged(
        [one.source for one in of],
        [one.system for one in of],
        [one.model for one in of],
        [family_of(one, int(count)) for one, count in zip(of, nodes, strict=True)],
        points.cases.gpus[rows],
        points.rate[rows],
        points.linear[rows],
        predicted[rows],
        {name: (points.linear * efficiency)[rows] for name, efficiency in efficiencies.items()},
    )
