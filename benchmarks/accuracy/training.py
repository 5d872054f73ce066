"""Published trainings on many GPUs beside what is predicted of them, point by point, and simpler predictions.

Points are rates of all GPUs, as columns: a row for each, series after series. A point is hard where it was measured
below ``HARD`` of linear scaling.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.accuracy.judging import Judged, Score, score
from collectives.training.parallelism import Parallelism
from simcomm.mesh.intervals import COVERAGES, Shares, log_halfwidth
from simcomm.mesh.terms import LINK_KINDS, Floats
from simcomm.scaling.descriptions import NEVER, Point, Series, put_aside, read_series
from simcomm.scaling.gpu_rates import predict_series

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
SYNCS = ("ddp", "after", "ps", "none")


@dataclass(frozen=True)
class Points:
    """The points of series; ``rate`` is measured, of all GPUs."""

    series: tuple[Series, ...]
    rate: Floats

    @cached_property
    def of(self) -> Rows:
        """Which of the series."""
        return np.repeat(np.arange(len(self.series)), [len(one.points) for one in self.series])

    @cached_property
    def first(self) -> Rows:
        """The row that a row is predicted from: the first of its series."""
        return np.searchsorted(self.of, self.of)

    @cached_property
    def gpus(self) -> Floats:
        """All of them, as many as there are."""
        return floats(point.gpus for one in self.series for point in one.points)

    @cached_property
    def batch(self) -> Floats:
        """Samples of a GPU between two exchanges."""
        return floats(one.job_on(point.gpus).batch for one in self.series for point in one.points)

    @cached_property
    def link(self) -> Rows:
        """What joins the GPUs, in ``LINK_KINDS``."""
        kinds = ("network" if point.nodes > 1 else one.node.kind for one in self.series for point in one.points)
        return np.array([LINK_KINDS.index(kind) for kind in kinds])

    @cached_property
    def exchanged_bytes(self) -> Floats:
        """Bytes of the gradients of a step; 0 of one GPU, and where nothing is exchanged."""
        whole = floats(one.job.model.parameters * (one.job.parallelism.gradient_bytes or 4) for one in self.series)
        exchanges = np.array([sync_of(one.job.parallelism) != "none" for one in self.series])
        return np.asarray(np.where((self.gpus > 1) & exchanges[self.of], whole[self.of], 0.0))

    @property
    def linear(self) -> Floats:
        """The first point's rate times how many times more GPUs there are."""
        found: Floats = self.rate[self.first] * self.gpus / self.gpus[self.first]
        return found

    @property
    def predicted(self) -> Mask:
        """The rows that are predicted, which are not the first of their series."""
        found: Mask = self.first != np.arange(len(self.first))
        return found


def sync_of(form: Parallelism) -> str:
    """Return how the gradients of a mesh of data alone travel, as series are described.

    >>> sync_of(Parallelism()), sync_of(Parallelism(overlap=False)), sync_of(Parallelism(sync_every=NEVER))
    ('ddp', 'after', 'none')
    """
    if form.form == "parameter_server":
        return "ps"
    return "none" if form.sync_every == NEVER else "ddp" if form.overlap else "after"


def floats(values: Iterable[float]) -> Floats:
    """Return numbers as a column."""
    return np.array([*values], dtype=np.float64)


def measured(series: Sequence[Series]) -> Floats:
    """Return the rates of all points."""
    return floats(point.rate for one in series for point in one.points)


HARD = 0.9
SYNC_NAMES = {"none": "no exchange", "ps": "parameter server"}
INSIDE = {"nvlink": "NVLink", "pcie": "PCIe, peer to peer", "host": "PCIe, host memory"}


def judge_frozen(series: Sequence[Series]) -> Judged:
    """Return the points of series by the shipped parameters; baselines are fitted to what those were fitted to."""
    points, own = (Points(tuple(one), measured(one)) for one in (series, seen_series()))
    predicted, shares = points.linear, np.zeros((len(Shares._fields), len(points.rate)))
    for number, one in enumerate(series):
        rows = np.flatnonzero((points.of == number) & points.predicted)
        for row, point, found in zip(rows, one.points[1:], predict_series(one), strict=True):
            predicted[row], shares[:, row] = found.rate * one.more_steps(point.gpus), found.rests_on
    baselines = {name: make(own)(points) for name, make in BASELINES.items()}
    halves = {share: log_halfwidth(Shares(*shares), share) for share in COVERAGES}
    return judged_points(points, predicted, Shares(*shares), halves, baselines)


def seen_series() -> list[Series]:
    """Return the project's own series that the shipped parameters were fitted to."""
    hidden = put_aside()
    return [one for one in read_series() if one.system not in hidden]


def judged_points(
    points: Points,
    predicted: Floats,
    shares: Shares,
    halves: Mapping[float, Floats],
    efficiencies: Mapping[str, Floats],
) -> Judged:
    """Return points beside their predictions, by half the intervals in log rate and by baselines' efficiencies.

    Keys are source, system, model, family, gpus, samples (of a step, on all GPUs), linear (the rate of linear scaling),
    hard, and what each point rests on (``Shares``), by which intervals are wider.
    """
    rows = points.predicted
    of = [points.series[index] for index in points.of[rows]]
    rates = predicted[rows]
    return Judged(
        keys={
            "source": np.array([one.source for one in of]),
            "system": np.array([one.system for one in of]),
            "model": np.array([one.model for one in of]),
            "family": np.array([family_of(one, point) for one in points.series for point in one.points[1:]]),
            "gpus": points.gpus[rows].astype(int),
            "samples": (points.gpus * points.batch)[rows],
            "linear": points.linear[rows],
            "hard": points.rate[rows] < HARD * points.linear[rows],
            **shares.take(rows)._asdict(),
        },
        measured=points.rate[rows],
        predicted=rates,
        low={coverage: rates * np.exp(-half[rows]) for coverage, half in halves.items()},
        high={coverage: rates * np.exp(half[rows]) for coverage, half in halves.items()},
        baselines={name: (points.linear * efficiency)[rows] for name, efficiency in efficiencies.items()},
    )


def family_of(series: Series, point: Point) -> str:
    """Return how gradients are exchanged, or over what: families of points that are limited by the same thing."""
    sync = sync_of(series.job.parallelism)
    if sync in SYNC_NAMES:
        return SYNC_NAMES[sync]
    if point.nodes > 1:
        return "network, up to 12.5 GB/s a node" if series.node.nic_GBps <= 12.5 else "network, faster"
    return INSIDE[series.node.kind]


def score_points(judged: Judged) -> dict[str, Score]:
    """Return the scores of all points and of the hard ones."""
    return {"all": score(judged), "hard": score(judged.take(judged.keys["hard"]))}


def score_by(judged: Judged, key: str) -> dict[str, Score]:
    """Return the scores by "family", "gpus", "source", "system" or "model"; GPU counts rise."""
    return {str(value): score(part) for value, part in sorted(judged.by(key).items())}


def score_baselines(judged: Judged) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the median and the ninetieth percentile of the errors of each baseline, of all points and hard ones."""
    return {
        name: {
            what: {"median": one.median, "p90": one.p90} for what, one in score_points(judged.of_baseline(name)).items()
        }
        for name in judged.baselines
    }


Efficiency = Callable[[Points], Floats]  # of all rows: their share of linear scaling
Baseline = Callable[[Points], Efficiency]  # fitted to points, it predicts others


def linear(_: Points) -> Efficiency:
    """Return that N GPUs are N times as fast."""
    return lambda points: np.ones(len(points.rate))


def one_efficiency(seen: Points) -> Efficiency:
    """Return the median efficiency of each GPU count; of one that was not seen, between its neighbours."""
    rows = seen.predicted
    counts, efficiency = seen.gpus[rows], (seen.rate / seen.linear)[rows]
    known = np.unique(counts)
    medians = [float(np.median(efficiency[counts == count])) for count in known]

    def predict(points: Points) -> Floats:
        found: Floats = np.interp(np.log(points.gpus), np.log(known), medians)
        return found

    return predict


def alpha_beta(seen: Points) -> Efficiency:
    """Return a step of one GPU's time, a latency, and the gradients of a ring by one bandwidth for each kind of link.

    Nothing overlaps. A parameter server and a job without exchange are as they are for the model.
    """
    rows = seen.predicted
    lost = np.log(seen.rate / seen.linear)[rows]

    def residuals(logs: Floats) -> Floats:
        errors = np.log(_ring_efficiency(seen, np.exp(logs)))[rows] - lost
        found: Floats = np.concatenate([np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + (errors / 0.02) ** 2) - 1)),
                                        (logs - PRIORS) / 3])  # fmt: skip
        return found

    fitted = np.exp(least_squares(residuals, PRIORS, ftol=1e-3, xtol=1e-3).x)
    return lambda points: _ring_efficiency(points, fitted)


PRIORS = np.log([100e9, 15e9, 6e9, 10e9, 1e-4])  # bytes/s of LINK_KINDS, and a latency in seconds


def _ring_efficiency(points: Points, values: Floats) -> Floats:
    alone = points.batch * points.gpus / points.linear
    share = 2 * (points.gpus - 1) / points.gpus
    seconds = share * points.exchanged_bytes / values[points.link] + values[-1] * np.log2(points.gpus)
    more = np.where(points.exchanged_bytes > 0, seconds, 0.0)
    start = points.first
    base = np.maximum(alone - more[start] * points.batch / points.batch[start], 0.05 * alone)  # of one GPU alone
    found: Floats = alone / (base + more)
    return np.where(points.predicted, found, 1.0)


BASELINES: dict[str, Baseline] = {
    "linear": linear, "one efficiency per GPU count": one_efficiency, "alpha-beta": alpha_beta,
}  # fmt: skip
