"""Fit the widths of intervals to errors of predictions that had not seen a source.

The shape has the greatest likelihood of the errors, each held to its prior by a spring; errors have heavy tails, as
Student's t with three degrees of freedom has. A quantile is then that of the errors' sizes in units of what is unsure,
for each source by the shape of the others: a new source will not have moved the shape either. It is the quantile which
the next of so many sizes is below with that probability (Weibull's plotting position), and of the hard points alone
where there are some: a job that scales badly is the one that is asked about, and authors never seen err more than those
left out.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from planner.mesh.intervals import COVERAGES, SHAPE, Shares, Widths, unsure
from planner.mesh.terms import Floats

DEGREES = 3  # of freedom


def fit_widths(errors: Floats, shares: Shares, sources: Sequence[str], hard: NDArray[np.bool_]) -> Widths:
    """Return the widths in which errors of log rate lie as often as they should, also those of a new source.

    ``shares``, ``sources`` and ``hard`` have a row for each error.

    >>> every = np.full(101, True)
    >>> found = fit_widths(np.linspace(-0.1, 0.1, 101), Shares(np.full(101, 0.3)), ["one"] * 101, every)
    >>> found.quantiles[0.5] < found.quantiles[0.8] < found.quantiles[0.9]
    True
    """
    sizes, of = np.abs(errors), np.asarray(sources)
    shape = fit_shape(sizes, shares)
    units = unsure(shares, shape)
    for source in np.unique(of):
        own = of == source
        if not own.all():
            units[own] = unsure(shares.take(own), fit_shape(sizes[~own], shares.take(~own), shape))
    judging = hard if hard.any() else np.ones_like(hard)
    quantiles = np.quantile((sizes / units)[judging], COVERAGES, method="weibull").tolist()
    return Widths(shape, dict(zip(COVERAGES, quantiles, strict=True)))


def fit_shape(sizes: Floats, shares: Shares, start: dict[str, float] | None = None) -> dict[str, float]:
    """Return the values of ``SHAPE`` that are likeliest for errors of these sizes, sought from ``start`` or priors."""
    priors, spreads = np.log([prior for prior, _ in SHAPE.values()]), np.array([by for _, by in SHAPE.values()])

    def shape_of(found: Floats) -> dict[str, float]:
        return dict(zip(SHAPE, np.exp(found).tolist(), strict=True))

    def loss(found: Floats) -> float:
        scale = unsure(shares, shape_of(found))
        likely = np.log(scale) + (DEGREES + 1) / 2 * np.log1p((sizes / scale) ** 2 / DEGREES)
        return float(likely.sum() + (((found - priors) / spreads) ** 2).sum() / 2)

    begin = priors if start is None else np.log([start[name] for name in SHAPE])
    return shape_of(minimize(loss, begin, method="L-BFGS-B").x)
