"""Published series predicted by the shipped parameters, point by point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from simcomm.mesh.intervals import COVERAGES, Shares, log_halfwidth
from simcomm.mesh.terms import Floats, read_parameters
from simcomm.scaling.accuracy.baselines import BASELINES
from simcomm.scaling.columns import Mask, Points, make_points, predict_steps, sync_of
from simcomm.scaling.descriptions import Point, Series, put_aside, read_series

HARD = 0.9  # of linear scaling: points below are hard
SYNCS = {"none": "no exchange", "ps": "parameter server"}
INSIDE = {"nvlink": "NVLink", "pcie": "PCIe, peer to peer", "host": "PCIe, host memory"}


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
    return judged_points(
        points, predicted, shares, {share: log_halfwidth(shares, share) for share in COVERAGES}, baselines
    )


def seen_series() -> list[Series]:
    """Return the project's own series that the shipped parameters were fitted to."""
    hidden = put_aside()
    return [one for one in read_series() if one.system not in hidden]


def family_of(series: Series, point: Point) -> str:
    """Return how gradients are exchanged, or over what: families of points that are limited by the same thing."""
    sync = sync_of(series.job.parallelism)
    if sync in SYNCS:
        return SYNCS[sync]
    if point.nodes > 1:
        return "network, up to 12.5 GB/s a node" if series.node.nic_GBps <= 12.5 else "network, faster"
    return INSIDE[series.node.kind]


def judged_points(
    points: Points,
    predicted: Floats,
    shares: Shares,
    halves: Mapping[float, Floats],
    efficiencies: Mapping[str, Floats],
) -> Judged:
    """Return points beside their predictions, half the intervals by coverage, and baselines' efficiencies."""
    rows = points.predicted
    of = [points.series[index] for index in points.of[rows]]
    return Judged(
        source=[one.source for one in of],
        system=[one.system for one in of],
        model=[one.model for one in of],
        family=[family_of(one, point) for one in points.series for point in one.points[1:]],
        gpus=points.cases.gpus[rows],
        samples=(points.cases.gpus * points.cases.batch)[rows],
        measured=points.rate[rows],
        linear=points.linear[rows],
        predicted=predicted[rows],
        shares=shares.take(rows),
        widths={coverage: half[rows] for coverage, half in halves.items()},
        baselines={name: (points.linear * efficiency)[rows] for name, efficiency in efficiencies.items()},
    )
