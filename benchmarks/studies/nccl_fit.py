"""Fit the parameters of NCCL's model to published tables: ``make fit-nccl`` writes its ``parameters.toml`` again.

The logarithms of predicted times are fitted to those of measured ones. Every system has the same weight in each class
of sizes; large residuals count less (Cauchy's loss), as some systems are slow for reasons that no description tells;
and each parameter is held to its prior by a spring. Gauss-Newton steps with Levenberg's damping, derivatives by
differences of those parameters that a system's time depends on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectives.output_files import write_text
from simcomm.nccl.accuracy.scoring import SIZE_CLASSES, class_mask
from simcomm.nccl.descriptions import System, read_systems
from simcomm.nccl.measured.tables import Series, Table, read_tables
from simcomm.nccl.parameters import FILE, Parameters, RecordingParameters, read_definitions, read_parameters
from simcomm.nccl.predict import COLLECTIVES, predict_seconds

Floats = NDArray[np.float64]
SCALE = 0.24  # of Cauchy's loss, in log time
STEP = 1e-4  # of the differences, in the logarithm of a parameter
LONGEST_STEP = 0.5


@dataclass(frozen=True)
class Observations:
    """The measured series of one system, end to end, and the weight of each row's squared residual."""

    system: System
    series: tuple[Series, ...]
    log_seconds: Floats
    weights: Floats

    def log_predicted(self, values: Parameters) -> Floats:
        """Return the logarithms of the predicted seconds of all rows."""
        times = [predict_seconds(self.system, one.collective, one.nbytes, parameters=values) for one in self.series]
        return np.log(np.concatenate(times))


class Fit(NamedTuple):
    """Fitted parameters, the cost that is left, and whether no step from the start made it less."""

    parameters: Parameters
    cost: float
    is_stalled: bool


def observe(system: System, series: Sequence[Series]) -> Observations | None:
    """Return the series that can be predicted, each class of sizes with the same weight; None where there are none."""
    known = tuple(one for one in series if one.collective in COLLECTIVES)
    if not known:
        return None
    nbytes = np.concatenate([one.nbytes for one in known])
    weights = np.zeros(len(nbytes))
    for size_class in SIZE_CLASSES:
        rows = class_mask(size_class, nbytes)
        weights[rows] = 1 / max(1, rows.sum())
    return Observations(system, known, np.log(np.concatenate([one.seconds for one in known])), weights)


def observe_tables(systems: Mapping[str, System], tables: Mapping[str, Table]) -> list[Observations]:
    """Return what a fit may see: at most twelve rows of each series of systems that are not skipped."""
    found = []
    for slug, table in tables.items():
        if not systems[slug].skip:
            series = [one.evenly() for one in table.series(systems[slug].ranks).values()]
            if (observed := observe(systems[slug], series)) is not None:
                found.append(observed)
    return found


def fit_parameters(
    observations: Sequence[Observations], start: Parameters | None = None, *, tolerance: float = 1e-3, most: int = 25
) -> Fit:
    """Return the parameters of least cost, from ``start`` or the priors; at most so many steps."""
    definitions = read_definitions()
    priors = np.log([definition.prior for definition in definitions.values()])
    spreads = np.array([definition.spread for definition in definitions.values()])
    begin = priors if start is None else np.log([start[name] for name in definitions])
    return _descend(_Problem(tuple(definitions), observations, priors, spreads, SCALE), begin, tolerance, most)


@dataclass(frozen=True)
class _Problem:
    """What is minimised: weighted residuals by Cauchy's loss of a scale, and springs to the priors; logarithms."""

    names: tuple[str, ...]
    observations: Sequence[Observations]
    priors: Floats
    spreads: Floats
    scale: float

    def values(self, logs: Floats) -> Parameters:
        return Parameters(dict(zip(self.names, np.exp(logs).tolist(), strict=True)))

    def residuals(self, logs: Floats) -> list[Floats]:
        values = self.values(logs)
        return [one.log_predicted(values) - one.log_seconds for one in self.observations]

    def cost(self, logs: Floats, residuals: Sequence[Floats]) -> float:
        pairs = zip(self.observations, residuals, strict=True)
        loss = sum(float(np.sum(one.weights * np.log1p((found / self.scale) ** 2))) for one, found in pairs)
        return loss + float(np.sum(((logs - self.priors) / self.spreads) ** 2))

    def normal_equations(
        self, logs: Floats, residuals: Sequence[Floats], depends: Sequence[Sequence[int]]
    ) -> tuple[Floats, Floats]:
        """Return the matrix and the gradient of a Gauss-Newton step."""
        matrix, gradient = np.diag(1 / self.spreads**2), (logs - self.priors) / self.spreads**2
        for one, found, indices in zip(self.observations, residuals, depends, strict=True):
            slopes = np.empty((len(found), len(indices)))
            for column, index in enumerate(indices):
                moved = logs.copy()
                moved[index] += STEP
                slopes[:, column] = (one.log_predicted(self.values(moved)) - found - one.log_seconds) / STEP
            weights = one.weights / (1 + (found / self.scale) ** 2) / self.scale**2
            matrix[np.ix_(indices, indices)] += slopes.T @ (slopes * weights[:, None])
            gradient[list(indices)] += slopes.T @ (weights * found)
        return matrix, gradient

    def dependencies(self, logs: Floats) -> list[list[int]]:
        """Return the parameters that each system's times depend on."""
        found = []
        for one in self.observations:
            recording = RecordingParameters(self.values(logs))
            one.log_predicted(recording)
            found.append([index for index, name in enumerate(self.names) if name in recording.read])
        return found


def _descend(problem: _Problem, logs: Floats, tolerance: float, most: int) -> Fit:
    """Take steps until one gains less than the tolerance; a step that does not gain is damped and tried again."""
    depends, residuals = problem.dependencies(logs), problem.residuals(logs)
    cost, damping, is_stalled = problem.cost(logs, residuals), 1e-2, True
    for _ in range(most):
        matrix, gradient = problem.normal_equations(logs, residuals, depends)
        for _ in range(8):
            step = -np.linalg.solve(matrix + damping * np.diag(np.diag(matrix)), gradient)
            moved = logs + np.clip(step, -LONGEST_STEP, LONGEST_STEP)
            found = problem.residuals(moved)
            if (lower := problem.cost(moved, found)) < cost:
                break
            damping *= 4
        else:
            break
        is_stalled, gained = False, cost - lower
        logs, residuals, cost, damping = moved, found, lower, max(damping / 4, 1e-6)
        if gained < tolerance:
            break
    return Fit(problem.values(logs), cost, is_stalled)


def write_parameters(parameters: Parameters, path: Path = FILE) -> None:
    """Write the values into a ``parameters.toml``, and leave all else there as it is."""
    lines, name = [], ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            name = line.strip("[]").strip('"')
        lines.append(f"value = {parameters[name]:.4g}" if line.startswith("value = ") else line)
    write_text(path, "\n".join(lines) + "\n")


def main() -> None:
    """Fit to the project's own tables, without those put aside, and write the values."""
    systems = read_systems()
    fitted = fit_parameters(observe_tables(systems, read_tables(systems)))
    write_parameters(fitted.parameters)
    read_parameters.cache_clear()


if __name__ == "__main__":
    main()
