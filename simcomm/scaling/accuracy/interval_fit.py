"""Fit the widths of intervals to errors of predictions that had not seen a source.

The shape has the greatest likelihood of the errors, each held to its prior by a spring; errors have heavy tails, as
Student's t with three degrees of freedom has. A quantile is then that of the errors' sizes in units of what is unsure.
"""

import numpy as np
from scipy.optimize import minimize

from simcomm.scaling.cases import Floats
from simcomm.scaling.intervals import COVERAGES, SHAPE, Shares, Widths, unsure

DEGREES = 3  # of freedom


def fit_widths(errors: Floats, shares: Shares) -> Widths:
    """Return the widths in which errors of log rate lie as often as they should; ``shares`` has a row for each.

    >>> found = fit_widths(np.linspace(-0.1, 0.1, 101), Shares(np.full(101, 0.3)))
    >>> found.quantiles[0.5] < found.quantiles[0.8] < found.quantiles[0.9]
    True
    """
    priors, spreads = np.log([prior for prior, _ in SHAPE.values()]), np.array([by for _, by in SHAPE.values()])
    sizes = np.abs(errors)

    def shape_of(found: Floats) -> dict[str, float]:
        return dict(zip(SHAPE, np.exp(found).tolist(), strict=True))

    def loss(found: Floats) -> float:
        scale = unsure(shares, shape_of(found))
        likely = np.log(scale) + (DEGREES + 1) / 2 * np.log1p((sizes / scale) ** 2 / DEGREES)
        return float(likely.sum() + (((found - priors) / spreads) ** 2).sum() / 2)

    shape = shape_of(minimize(loss, priors, method="L-BFGS-B").x)
    quantiles = np.quantile(sizes / unsure(shares, shape), COVERAGES).tolist()
    return Widths(shape, dict(zip(COVERAGES, quantiles, strict=True)))
