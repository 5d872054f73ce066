"""Simpler predictions of a training's scaling, to see what the step's timeline gains."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import least_squares

from simcomm.mesh.terms import LINK_KINDS, Floats
from simcomm.scaling.columns import NONE, Cases, Mask, Points

Efficiency = Callable[[Points], Floats]  # of all rows: their share of linear scaling
Baseline = Callable[[Points], Efficiency]  # fitted to points, it predicts others


def linear(_: Points) -> Efficiency:
    """Return that N GPUs are N times as fast."""
    return lambda points: np.ones(len(points.rate))


def one_efficiency(seen: Points) -> Efficiency:
    """Return the median efficiency of each GPU count; of one that was not seen, between its neighbours."""
    rows = seen.predicted
    counts, efficiency = seen.cases.gpus[rows], (seen.rate / seen.linear)[rows]
    known = np.unique(counts)
    medians = [float(np.median(efficiency[counts == count])) for count in known]

    def predict(points: Points) -> Floats:
        found: Floats = np.interp(np.log(points.cases.gpus), np.log(known), medians)
        return found

    return predict


def alpha_beta(seen: Points) -> Efficiency:
    """Return a step of one GPU's time, a latency, and the gradients of a ring by one bandwidth for each kind of link.

    Nothing overlaps. A parameter server and a job without exchange are as they are for the model.
    """
    rows = seen.predicted
    lost = np.log(seen.rate / seen.linear)[rows]

    def residuals(logs: Floats) -> Floats:
        errors = np.log(_ring_efficiency(seen, np.exp(logs)))[rows] - lost
        found: Floats = np.concatenate([np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + (errors / 0.02) ** 2) - 1)),
                                        (logs - PRIORS) / 3])  # fmt: skip
        return found

    fitted = np.exp(least_squares(residuals, PRIORS, ftol=1e-3, xtol=1e-3).x)
    return lambda points: _ring_efficiency(points, fitted)


PRIORS = np.log([100e9, 15e9, 6e9, 10e9, 1e-4])  # bytes/s of LINK_KINDS, and a latency in seconds


def _ring_efficiency(points: Points, values: Floats) -> Floats:
    cases = points.cases
    alone = points.cases.batch * cases.gpus / points.linear
    more = _ring_seconds(cases, values)
    start = points.first
    base = np.maximum(alone - more[start] * cases.batch / cases.batch[start], 0.05 * alone)  # of one GPU alone
    found: Floats = alone / (base + more)
    return np.where(points.predicted, found, 1.0)


def _ring_seconds(cases: Cases, values: Floats) -> Floats:
    bandwidth = values[: len(LINK_KINDS)][cases.kind]
    share = 2 * (cases.gpus - 1) / cases.gpus
    seconds = share * cases.gradient_bytes / bandwidth + values[-1] * np.log2(cases.gpus)
    exchanges: Mask = (cases.gpus > 1) & (cases.sync != NONE)
    return np.where(exchanges, seconds, 0.0)


BASELINES: dict[str, Baseline] = {
    "linear": linear, "one efficiency per GPU count": one_efficiency, "alpha-beta": alpha_beta,
}  # fmt: skip
NAMES: Sequence[str] = tuple(BASELINES)
