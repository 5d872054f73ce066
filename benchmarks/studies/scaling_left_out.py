"""Published series, each source predicted by a refit that has not seen it.

``python -m benchmarks.studies.scaling_left_out`` writes the widths of intervals that are shipped again.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks.accuracy.judging import Judged
from benchmarks.accuracy.steps import put_aside
from benchmarks.accuracy.training import BASELINES, HARD, judged_points, seen_series
from benchmarks.studies.scaling_columns import FittedPoints, make_points, predict_steps
from benchmarks.studies.scaling_fit import fit_parameters
from benchmarks.studies.scaling_widths import fit_widths
from collectives.output_files import write_text
from planner.mesh.intervals import COVERAGES, FILE, Shares, Widths, log_halfwidth, read_widths
from planner.mesh.terms import read_parameters
from planner.scaling.descriptions import Series

Tick = Callable[[int, int, int, str], None]  # (rank, done, total, text)


def judge_held_out(
    series: Sequence[Series], tick: Tick, key: str = "source", pinned: Mapping[str, float] | None = None
) -> Judged:
    """Return the points of series, each source (or ``system``) by parameters, widths and baselines of the others.

    No fit sees a system that is held out; none moves a parameter that is ``pinned``.
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
    return judged_points(points, predicted, shares, halves, baselines)


def refit(
    points: FittedPoints, start: Mapping[str, float], pinned: Mapping[str, float] | None = None
) -> Mapping[str, float]:
    """Return the parameters fitted to these points alone; ``start`` only says where the search begins."""
    return fit_parameters(points, start, tolerance=1e-3, pinned=pinned)


def write_widths(widths: Widths) -> None:
    """Write the widths that are shipped."""
    lines = ["# Widths of intervals: `make fit-scaling` writes them again.", "", "[shape]"]
    lines += [f"{name} = {value:.3g}" for name, value in widths.shape.items()]
    lines += ["", "[quantiles]", *(f'"{share}" = {value:.3g}' for share, value in widths.quantiles.items())]
    write_text(FILE, "\n".join(lines) + "\n")


def main() -> None:
    """Predict the project's own series, each source left out, and write the widths of those not held out."""
    judged = judge_held_out(seen_series(), lambda *_: None)
    errors = np.log(judged.predicted / judged.measured)
    shares = Shares(*(judged.keys[name] for name in Shares._fields))
    write_widths(fit_widths(errors, shares, judged.keys["source"], judged.keys["hard"]))


if __name__ == "__main__":
    main()
