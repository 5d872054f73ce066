"""Estimate the uncertainty of predicted step times, and adapt the parameters of the step model to a user's runs.

A prediction for a new cluster has two errors. The logarithm of each parameter has the standard deviation ``shared``, in
units of the parameter's prior standard deviation. The logarithm of each step time has an additional standard deviation,
``noise``. Both values were fitted by leave-one-source-out cross-validation.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from collectives.units import format_size
from planner.columns import Columns
from planner.hosts import Array
from planner.step import step_seconds

FITTED = Path(__file__).parent / "data" / "parameters.json"
PRIORS_FILE = FITTED.with_name("priors.toml")
Z_80 = NormalDist().inv_cdf(0.9)  # half-width of the 80 % interval of a normal distribution, in standard deviations
MOVED = 0.02  # step of finite differences, in prior deviations
OUTLYING = 2.0  # deviations beyond which a measured run has a lower weight
ROUNDS = 4  # Gauss-Newton iterations in an adaptation
SURE = 0.9  # probability to run below which the memory usage is reported
normal_cdf = np.vectorize(NormalDist().cdf, otypes=[float])  # importing scipy takes half a second


class Prior(NamedTuple):
    """The prior distribution of a parameter: its median, and the standard deviation of its logarithm."""

    value: float
    spread: float


PRIORS = {name: Prior(*prior) for name, prior in tomllib.loads(PRIORS_FILE.read_text(encoding="utf-8"))["step"].items()}
NAMES = tuple(PRIORS)


class Shipped(NamedTuple):
    """Values fitted to published runs: step and memory parameters, standard deviations, and rates of failed runs."""

    parameters: dict[str, float]
    deviations: dict[str, float]  # shared, noise, and those of a known rate: floor and lost
    memory: dict[str, float]
    chance: dict[str, float]


@cache
def read_shipped() -> Shipped:
    """Return the values that `benchmarks/studies/step_fit.py --write` fitted to published runs."""
    return Shipped(**json.loads(FITTED.read_text(encoding="utf-8")))


class Slopes(NamedTuple):
    """Logarithms of step times, and the change of each per prior standard deviation of each parameter."""

    logs: Array
    slopes: Array  # rows x parameters in the order of NAMES


def find_slopes(columns: Columns, parameters: Mapping[str, float]) -> Slopes:
    """Return the logarithms of training runs' step times, linearized around ``parameters`` by finite differences."""
    count, variants = len(columns), 1 + len(NAMES)
    moved: dict[str, Any] = {}
    for place, name in enumerate(NAMES, start=1):
        moved[name] = np.full(count * variants, parameters[name])
        moved[name][place * count : (place + 1) * count] *= np.exp(MOVED * PRIORS[name].spread)
    logs = np.log(step_seconds(columns.take(np.tile(np.arange(count), variants)), moved)).reshape(variants, count)
    return Slopes(logs[0], (logs[1:] - logs[0]).T / MOVED)


@dataclass(frozen=True)
class Belief:
    """Parameters of the step model, and the covariance of their logarithms in units of prior standard deviations."""

    parameters: Mapping[str, float]
    covariance: Array
    noise: float  # standard deviation of the logarithm of a single step time

    def deviations(self, slopes: Slopes) -> Array:
        """Return the standard deviation of the logarithm of each step time, including run-to-run noise."""
        variances = np.einsum("ik,kl,il->i", slopes.slopes, self.covariance, slopes.slopes)
        return np.asarray(np.sqrt(np.maximum(variances, 0.0) + self.noise**2))

    def factors_of(self, slopes: Slopes) -> Array:
        """Return the upper bound of each step time's 80 % interval, divided by the predicted step time."""
        return np.asarray(np.exp(Z_80 * self.deviations(slopes)))

    def adapted(self, columns: Columns, measured: Array) -> "Belief":
        """Return the posterior after runs whose step times were ``measured`` seconds. Outliers have a lower weight."""
        inverse, spreads = np.linalg.inv(self.covariance), np.array([PRIORS[name].spread for name in NAMES])
        start = np.log([self.parameters[name] for name in NAMES])
        x, parameters, covariance = np.zeros(len(NAMES)), dict(self.parameters), self.covariance
        for _ in range(ROUNDS):
            slopes = find_slopes(columns, parameters)
            left = np.log(measured) - slopes.logs
            weights = 1 / np.sqrt(1 + (left / (OUTLYING * self.noise)) ** 2) / self.noise**2
            weighted = slopes.slopes * weights[:, None]
            covariance = np.linalg.inv(inverse + slopes.slopes.T @ weighted)
            x = covariance @ (weighted.T @ (left + slopes.slopes @ x))
            parameters = dict(zip(NAMES, np.exp(start + x * spreads).tolist(), strict=True))
        return replace(self, parameters=parameters, covariance=covariance)

    def after_runs(self, slopes: Array) -> "Belief":
        """Return the belief after measuring runs with ``slopes`` [runs, parameters]. The parameters stay the same."""
        inverse = np.linalg.inv(self.covariance) + slopes.T @ slopes / self.noise**2
        return replace(self, covariance=np.linalg.inv(inverse))

    def choose_runs(self, slopes: Slopes, count: int) -> list[int]:
        """Return the indices of up to ``count`` runs to measure, chosen greedily to reduce all variances."""
        covariance, chosen = self.covariance, list[int]()
        for _ in range(min(count, len(slopes.logs))):
            moved = slopes.slopes @ covariance
            together = moved @ slopes.slopes.T
            variances = np.diag(together) + self.noise**2
            gains = (together**2).sum(axis=0) / variances
            gains[chosen] = -1.0
            best = int(np.argmax(gains))
            chosen.append(best)
            covariance = covariance - np.outer(moved[best], moved[best]) / variances[best]
        return chosen


@cache
def believe() -> Belief:
    """Return the belief without any of a user's runs: the shipped parameters with their prior covariance."""
    shipped = read_shipped()
    covariance = shipped.deviations["shared"] ** 2 * np.eye(len(NAMES))
    return Belief(shipped.parameters, covariance, shipped.deviations["noise"])


def chance_to_run(columns: Columns, total_bytes: Array) -> Array:
    """Return the probability that each run finishes. Fuller memory and pipeline stages without layers lower it."""
    chance, filled = read_shipped().chance, np.maximum(total_bytes / columns.memory_bytes, 1e-9)
    fits = normal_cdf((np.log(chance["fill"]) - np.log(filled)) / chance["spread"])
    is_empty = columns.is_shaped & (columns.pp >= np.maximum(2, columns.layers))
    return np.asarray(chance["others"] * np.where(is_empty, 1 - chance["empty_stages"], 1.0) * fits)


def describe_chance(where: str, total_bytes: float, chance: float | None) -> str | None:
    """Return a sentence about the chance that a run finishes, or None if ``chance`` is None or at least 90 %."""
    if chance is None or chance >= SURE:
        return None
    return (
        f"{where} each device needs {format_size(total_bytes)}; {chance:.0%} of published runs that filled as much of "
        "their memory finished."
    )
