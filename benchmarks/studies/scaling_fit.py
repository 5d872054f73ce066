"""Fit the parameters of a step to published series: ``make fit-scaling`` writes its ``parameters.toml`` again.

The logarithms of predicted rates are fitted to those of measured ones by scipy's least squares. Large residuals count
less (soft L1), and each parameter is held to its prior by a spring. Series on systems that are held out are not seen.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from benchmarks.accuracy.steps import put_aside
from benchmarks.studies.fitting import Springs, fit_least_squares, soft_l1, write_parameters
from benchmarks.studies.scaling_columns import FittedPoints, make_points, predict_steps
from planner.mesh.terms import FILE, Floats, read_parameters
from planner.scaling.descriptions import read_series
from simcomm.nccl.parameters import Parameters, read_definitions

SCALE = 0.06  # in log rate: residuals above count less than their square
SPRING = 3.0  # how much stiffer the springs are than one residual
LARGEST_SLOWDOWN = 0.99  # above, backward would stand still


def fit_parameters(
    points: FittedPoints,
    start: Mapping[str, float] | None = None,
    *,
    tolerance: float = 1e-4,
    pinned: Mapping[str, float] | None = None,
) -> Parameters:
    """Return the parameters of least cost on these points, sought from ``start`` or from the priors.

    Those that are ``pinned`` keep their values: a term without which the others are fitted.
    """
    springs = Springs.of(read_definitions(FILE), pinned)
    springs = replace(springs, spreads=springs.spreads / SPRING)
    highest = np.array(
        [np.log(LARGEST_SLOWDOWN) if name.startswith("overlap_slowdown") else np.inf for name in springs.names]
    )
    seen = points.predicted
    measured = np.log(points.rate[seen])

    def residuals(logs: Floats) -> Floats:
        found: Floats = (np.log(predict_steps(points, springs.values(logs))[0][seen]) - measured) / SCALE
        return found

    logs, _ = fit_least_squares(
        springs, residuals, springs.start(start), soft_l1, highest=highest, ftol=tolerance, xtol=tolerance
    )
    return springs.values(logs)


def main() -> None:
    """Fit to the project's own series, without those held out, and write the values."""
    hidden = put_aside()
    fitted = fit_parameters(make_points([one for one in read_series() if one.system not in hidden]))
    write_parameters(fitted, FILE)
    read_parameters.cache_clear()


if __name__ == "__main__":
    main()
