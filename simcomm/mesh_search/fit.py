"""Fit parameters to runs of many sources, held by their priors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from simcomm.mesh_search.columns import Array, Meshes
from simcomm.mesh_search.parameters import PRIORS
from simcomm.mesh_search.step import step_seconds

DEVIATION, HUBER, WEIGHT = 0.06, 2.0, 60.0  # of a residual's logarithm; where it counts linearly; rows of a source


def weigh(sources: Sequence[str] | Array) -> Array:
    """Return the weight of each row's residual, so that a source counts as ``WEIGHT`` rows at most."""
    names, counts = np.unique(np.asarray(sources, dtype=str), return_counts=True)
    of_source = dict(zip(names.tolist(), counts.tolist(), strict=True))
    return np.sqrt([min(1.0, WEIGHT / of_source[str(source)]) for source in sources])


def soften(r: Array) -> Array:
    """Return residuals whose squares grow linearly beyond ``HUBER`` (pseudo-Huber)."""
    result: Array = np.sign(r) * HUBER * np.sqrt(2 * (np.sqrt(1 + (r / HUBER) ** 2) - 1))
    return result


def fit(meshes: Meshes, measured: Array, sources: Sequence[str] | Array) -> dict[str, float]:
    """Return the parameters that explain ``measured`` seconds of steps best.

    Residuals are logarithms, pseudo-Huber beyond two deviations; a source weighs as 60 rows at most. Parameters are
    held by their priors.
    """
    names = list(PRIORS)
    medians = np.log([PRIORS[name].value for name in names])
    spreads = np.array([PRIORS[name].spread for name in names])
    weights = weigh(sources)

    def residuals(x: Array) -> Array:
        p = dict(zip(names, np.exp(medians + x * spreads), strict=True))
        return np.concatenate([weights * soften(np.log(step_seconds(meshes, p).total / measured) / DEVIATION), x])

    start, step = np.zeros(len(names)), np.full(len(names), 1e-3)
    best: Any = least_squares(residuals, start, diff_step=step, max_nfev=20, xtol=1e-4, ftol=1e-4)
    return dict(zip(names, np.exp(medians + best.x * spreads).tolist(), strict=True))
