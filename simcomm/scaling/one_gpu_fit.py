"""Fit the process of one GPU's rates: ``python -m simcomm.scaling.one_gpu_fit`` writes ``one_gpu.toml`` again.

Exponents and standard deviations have the greatest likelihood of the published rates that are not put aside, each held
to its prior by a spring. A fit without a type of GPU is what judges how well that type is guessed.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from simcomm.nccl.fit import write_parameters
from simcomm.nccl.parameters import Parameters, read_definitions
from simcomm.scaling.cases import Floats
from simcomm.scaling.descriptions import put_aside, read_series
from simcomm.scaling.one_gpu import FILE, Alone, covariance_of, make_columns, mean_of, read_process

STEPS = 40


def seen_rates() -> list[Alone]:
    """Return the published rates of one GPU that are not put aside."""
    hidden = put_aside()
    return [
        Alone(one.job, one.gpu, one.source, one.points[0].rate)
        for one in read_series()
        if one.points[0].gpus == 1 and one.system not in hidden
    ]


def fit_process(
    rows: Sequence[Alone], start: Mapping[str, float] | None = None, *, steps: int = STEPS
) -> dict[str, float]:
    """Return the values of greatest likelihood for some rates, sought from ``start`` or from the priors."""
    definitions = read_definitions(FILE)
    names = tuple(definitions)
    priors = np.log([definitions[name].prior for name in names])
    spreads = np.array([definitions[name].spread for name in names])
    columns, logs = make_columns(rows), np.log([one.rate for one in rows])

    def loss(found: Floats) -> float:
        values = dict(zip(names, np.exp(found).tolist(), strict=True))
        covariance = covariance_of(columns, columns, values) + values["noise"] ** 2 * np.eye(len(rows))
        factor = cho_factor(covariance, lower=True)
        left = logs - mean_of(columns, values)
        springs = (((found - priors) / spreads) ** 2).sum() / 2
        return float(left @ cho_solve(factor, left) / 2 + np.log(np.diag(factor[0])).sum() + springs)

    begin = priors if start is None else np.log([start[name] for name in names])
    best = minimize(loss, begin, method="L-BFGS-B", options={"maxiter": steps, "maxfun": 10**6})
    return dict(zip(names, np.exp(best.x).tolist(), strict=True))


def main() -> None:
    """Fit to the published rates of one GPU, without those put aside, and write the values."""
    write_parameters(Parameters(fit_process(seen_rates())), FILE)
    read_process.cache_clear()


if __name__ == "__main__":
    main()
