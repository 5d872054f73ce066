"""Fit the Gaussian process of one GPU's rates. ``python -m benchmarks.studies.one_gpu_fit`` writes ``one_gpu.toml``.

Exponents and standard deviations maximize the likelihood of the published rates that are not held out. Priors hold
them. To evaluate a type of GPU, the process is fitted without it. The gradient has a closed form, so a fit takes a
tenth of a second.
"""

import csv
import io
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from benchmarks.accuracy.series import read_series
from benchmarks.accuracy.steps import put_aside
from benchmarks.studies.fitting import Springs, fit_likelihood, write_parameters
from collectives.output_files import write_text
from planner.one_gpu import (
    ANY,
    FILE,
    NEAR,
    PUBLISHED,
    SHARED,
    SHEET,
    Alone,
    Floats,
    RateFeatures,
    make_columns,
    mean_of,
    mean_terms,
    published,
    read_process,
    same_words,
)
from simcomm.nccl.parameters import read_definitions

STEPS = 100


def seen_rates() -> list[Alone]:
    """Return the published rates of one GPU that are not held out."""
    hidden = put_aside()
    return [
        Alone(series.job, series.gpu, series.source, series.points[0].rate)
        for series in read_series()
        if series.points[0].gpus == 1 and series.system not in hidden
    ]


class Likelihood:
    """The negative log-likelihood of rates, up to a constant, and its gradient by the logarithms of the values."""

    def __init__(self, rows: Sequence[Alone]) -> None:
        """Compute the parts that do not depend on the values: shared words, and differences of data sheets."""
        self.columns: RateFeatures = make_columns(rows)
        self.logs: Floats = np.log([row.rate for row in rows])
        self.same = {word: same_words(self.columns, self.columns, word) for word in SHARED}
        self.far = {
            key: (column[:, None] - column[None, :]) ** 2
            for key, column in ((key, self.columns.sheet[key]) for key in SHEET)
        }

    def __call__(self, values: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        """Return the loss, and its derivative by the logarithm of each value."""
        size = len(self.logs)
        distance = sum(self.far[key] / values[f"near_{key}"] ** 2 for key in SHEET)
        closeness = np.exp(-distance / 2)
        near = {name: values[name] ** 2 * closeness * (self.same[word] if word else 1.0) for name, word in NEAR.items()}
        shared = {name: values[name] ** 2 * self.same[name] for name in SHARED}
        covariance = ANY**2 + sum(near.values()) + sum(shared.values()) + values["noise"] ** 2 * np.eye(size)
        factor = cho_factor(covariance, lower=True)
        left = self.logs - mean_of(self.columns, values)
        pulled = cho_solve(factor, left)
        loss = float(left @ pulled / 2 + np.log(np.diag(factor[0])).sum())
        slope = cho_solve(factor, np.eye(size)) - np.outer(pulled, pulled)  # twice the derivative by the covariance
        gradient = {name: float((slope * part).sum()) for name, part in (near | shared).items()}
        gradient["noise"] = values["noise"] ** 2 * float(np.trace(slope))
        nearness = slope * sum(near.values())
        for key in SHEET:
            gradient[f"near_{key}"] = float((nearness * self.far[key]).sum()) / values[f"near_{key}"] ** 2 / 2
        for name, part in mean_terms(self.columns).items():
            gradient[name] = -values[name] * float(pulled @ part)
        return loss, gradient


def fit_process(
    rows: Sequence[Alone],
    start: Mapping[str, float] | None = None,
    *,
    steps: int = STEPS,
    pinned: Mapping[str, float] | None = None,
) -> Mapping[str, float]:
    """Return the values of greatest likelihood, searched from ``start`` or from the priors.

    ``pinned`` values are not fitted.
    """
    springs = Springs.of(read_definitions(FILE), pinned)
    return fit_likelihood(springs, Likelihood(rows), springs.start(start), maxiter=steps)


def rates_table() -> str:
    """Return the published rates of one GPU in the format that the planner reads."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("source", "model", "batch", "precision", "framework", "gpu", "rate"))
    for series in read_series():
        if series.points[0].gpus == 1:
            job = series.job
            rows.writerow((series.source, series.model, f"{job.batch:g}", job.precision, job.framework, series.gpu.name,
                           f"{series.points[0].rate!r}"))  # fmt: skip
    return text.getvalue()


def main() -> None:
    """Write the published rates of one GPU and the values fitted to those that are not held out."""
    write_text(PUBLISHED, rates_table())
    published.cache_clear()
    write_parameters(fit_process(seen_rates()), FILE)
    read_process.cache_clear()


if __name__ == "__main__":
    main()
