"""Fit parameters to measurements of NCCL, of trainings and of single GPUs.

The logarithms of the parameters are fitted. A quadratic penalty, whose width is the prior's spread, keeps each of them
near its prior. Residuals are errors of log time or log rate. Large residuals have less weight, because some systems are
slow for reasons that no description states. Penalties keep their full weight.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, minimize
from threadpoolctl import threadpool_limits

from collectives.output_files import write_text
from simcomm.nccl.parameters import Parameter, Parameters

Floats = NDArray[np.float64]
Loss = Callable[[Floats], NDArray[np.float64]]  # of squares: the loss and its two derivatives, [3, squares]


def cauchy(squares: Floats) -> Floats:
    """Return Cauchy's loss of squares, and its derivatives.

    >>> cauchy(np.array([0.0, 1.0])).round(2).tolist()
    [[0.0, 0.69], [1.0, 0.5], [-1.0, -0.25]]
    """
    slope = 1 / (1 + squares)
    return np.array([np.log1p(squares), slope, -(slope**2)])


def soft_l1(squares: Floats) -> Floats:
    """Return a loss that is quadratic for small residuals and linear for large ones, and its derivatives."""
    root = np.sqrt(1 + squares)
    return np.array([2 * (root - 1), 1 / root, -0.5 / root**3])


@dataclass(frozen=True)
class Springs:
    """The parameters of a fit: their names, and the priors of their logarithms. ``pinned`` parameters do not change."""

    names: tuple[str, ...]
    priors: Floats
    spreads: Floats
    pinned: Mapping[str, float]

    @classmethod
    def of(cls, definitions: Mapping[str, Parameter], pinned: Mapping[str, float] | None = None) -> "Springs":
        """Return the priors of parameters, as their file defines them."""
        priors = np.log([definition.prior for definition in definitions.values()])
        return cls(
            tuple(definitions),
            priors,
            np.array([definition.spread for definition in definitions.values()]),
            pinned or {},
        )

    def start(self, values: Mapping[str, float] | None) -> Floats:
        """Return the logarithms of values; default: of the priors."""
        return self.priors if values is None else np.log([values[name] for name in self.names])

    def values(self, logs: Floats) -> Parameters:
        """Return the parameters of these logarithms."""
        return Parameters({**dict(zip(self.names, np.exp(logs).tolist(), strict=True)), **self.pinned})

    def pull(self, logs: Floats) -> Floats:
        """Return the distance of each parameter from its prior, in spreads."""
        pulls: Floats = (logs - self.priors) / self.spreads
        return pulls


def fit_least_squares(
    springs: Springs,
    residuals: Callable[[Floats], Floats],
    start: Floats,
    loss: Loss,
    *,
    weights: Floats | float = 1.0,
    highest: Floats | float = np.inf,
    slopes: Callable[[Floats], Floats] | None = None,
    **options: Any,
) -> tuple[Floats, float]:
    """Return the logarithms with the smallest cost, starting at ``start``, and the cost.

    ``residuals`` are in units of the loss's scale. ``slopes`` are their derivatives by the logarithms; default: finite
    differences. The cost is the weighted loss of their squares plus the squared distances from the priors.
    """

    def every(logs: Floats) -> Floats:
        return np.concatenate([residuals(logs), springs.pull(logs)])

    def rho(squares: Floats) -> Floats:
        rows = len(squares) - len(springs.names)
        prior_rows = squares[rows:]
        return np.hstack(
            [weights * loss(squares[:rows]), [prior_rows, np.ones(len(prior_rows)), np.zeros(len(prior_rows))]]
        )

    jacobian: Any = "2-point"
    if slopes is not None:

        def jacobian(logs: Floats) -> Floats:
            return np.vstack([slopes(logs), np.diag(1 / springs.spreads)])

    below = np.minimum(start, np.asarray(highest) - 1e-3)
    bounds = (np.full(len(start), -np.inf), np.broadcast_to(highest, start.shape))
    with threadpool_limits(1):  # the decompositions are small: threads wait for each other ten times as long
        best = least_squares(every, below, jac=jacobian, loss=rho, bounds=bounds, **options)
    return np.asarray(best.x), 2 * float(best.cost)


def fit_likelihood(
    springs: Springs,
    loss: Callable[[Parameters], tuple[float, Mapping[str, float]]],
    start: Floats,
    **options: Any,
) -> Parameters:
    """Return the most likely parameters. ``loss`` returns the negative log likelihood and its derivatives by the
    logarithms.
    """

    def held(logs: Floats) -> tuple[float, Floats]:
        unlikely, gradient = loss(springs.values(logs))
        pull = springs.pull(logs)
        slopes = np.array([0.0 if name in springs.pinned else gradient[name] for name in springs.names])
        return unlikely + float((pull**2).sum()) / 2, slopes + pull / springs.spreads

    best = minimize(held, start, jac=True, method="L-BFGS-B", options=options)
    return springs.values(np.asarray(best.x))


def write_parameters(parameters: Mapping[str, float], path: Path) -> None:
    """Write the values into a file of parameters, without changing anything else in it."""
    lines, name = list[str](), ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            name = line.strip("[]").strip('"')
        lines.append(f"value = {parameters[name]:.4g}" if line.startswith("value = ") else line)
    write_text(path, "\n".join(lines) + "\n")
