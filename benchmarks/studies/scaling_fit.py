"""Fit the parameters of a step to published series: ``make fit-scaling`` writes its ``parameters.toml`` again.

The logarithms of predicted rates are fitted to those of measured ones by scipy's least squares. Large residuals count
less (soft L1), and each parameter is held to its prior by a spring. Series on systems that are put aside are not seen.
"""

from collections.abc import Mapping

import numpy as np
from scipy.optimize import least_squares

from benchmarks.studies.nccl_fit import write_parameters
from simcomm.mesh.terms import FILE, Floats, read_parameters
from simcomm.nccl.parameters import Parameters, read_definitions
from simcomm.scaling.columns import Points, make_points, predict_steps
from simcomm.scaling.descriptions import put_aside, read_series

SCALE = 0.06  # in log rate: residuals above count less than their square
SPRING = 3.0  # how much stiffer the springs are than one residual
LARGEST_STEAL = 0.99  # above, backward would stand still


def fit_parameters(
    points: Points,
    start: Mapping[str, float] | None = None,
    *,
    tolerance: float = 1e-4,
    pinned: Mapping[str, float] | None = None,
) -> Parameters:
    """Return the parameters of least cost on these points, sought from ``start`` or from the priors.

    Those that are ``pinned`` keep their values: a term without which the others are fitted.
    """
    definitions = read_definitions(FILE)
    names = tuple(definitions)
    priors = np.log([definitions[name].prior for name in names])
    spreads = np.array([definitions[name].spread for name in names])
    begin = priors if start is None else np.log([start[name] for name in names])
    highest = np.array([np.log(LARGEST_STEAL) if name.startswith("steal") else np.inf for name in names])
    seen = points.predicted
    logs = np.log(points.rate[seen])

    def residuals(found: Floats) -> Floats:
        values = {**dict(zip(names, np.exp(found).tolist(), strict=True)), **(pinned or {})}
        errors = (np.log(predict_steps(points, values)[0][seen]) - logs) / SCALE
        soft = np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + errors**2) - 1))  # soft L1 for these, not for the springs
        stacked: Floats = np.concatenate([soft, SPRING * (found - priors) / spreads])
        return stacked

    bounds = (np.full(len(names), -np.inf), highest)
    best = least_squares(residuals, np.minimum(begin, highest - 1e-3), bounds=bounds, ftol=tolerance, xtol=tolerance)
    return Parameters({**dict(zip(names, np.exp(best.x).tolist(), strict=True)), **(pinned or {})})


def main() -> None:
    """Fit to the project's own series, without those put aside, and write the values."""
    hidden = put_aside()
    fitted = fit_parameters(make_points([one for one in read_series() if one.system not in hidden]))
    write_parameters(fitted, FILE)
    read_parameters.cache_clear()


if __name__ == "__main__":
    main()
