"""Scores of predicted points: sizes of errors as fractions, and how often intervals hold."""

from dataclasses import dataclass

import numpy as np

from simcomm.mesh.terms import Floats
from simcomm.scaling.accuracy.judging import Judged

NEAR = 0.15


@dataclass(frozen=True)
class Score:
    """Errors of ``n`` points: |predicted / measured - 1|. None where there is no point."""

    n: int
    median: float | None
    p90: float | None
    within15: float | None
    bias: float | None  # median with its sign
    coverage50: float | None
    coverage80: float | None
    coverage90: float | None


def score(judged: Judged) -> Score:
    """Return the score of points."""
    if not len(judged.measured):
        return Score(
            n=0, median=None, p90=None, within15=None, bias=None, coverage50=None, coverage80=None, coverage90=None
        )
    sizes = np.abs(judged.errors)
    held = [float(judged.held(coverage).mean()) for coverage in (0.5, 0.8, 0.9)]
    return Score(len(sizes), *sizes_of(sizes), float((sizes <= NEAR).mean()), float(np.median(judged.errors)), *held)


def sizes_of(sizes: Floats) -> tuple[float, float]:
    """Return the median and the ninetieth percentile.

    >>> sizes_of(np.array([0.0, 1.0]))
    (0.5, 0.9)
    """
    return float(np.median(sizes)), float(np.quantile(sizes, 0.9))


def score_points(judged: Judged) -> dict[str, Score]:
    """Return the scores of all points and of the hard ones."""
    return {"all": score(judged), "hard": score(judged.take(judged.hard))}


def score_baselines(judged: Judged) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the median and the ninetieth percentile of the errors of each baseline, likewise."""
    found: dict[str, dict[str, dict[str, float | None]]] = {}
    for name, rates in judged.baselines.items():
        sizes = np.abs(rates / judged.measured - 1)
        chosen = {"all": sizes, "hard": sizes[judged.hard]}
        found[name] = {
            what: dict(zip(("median", "p90"), sizes_of(one) if len(one) else (None, None), strict=True))
            for what, one in chosen.items()
        }
    return found


def score_by(judged: Judged, key: str) -> dict[str, Score]:
    """Return the scores by "family", "gpus", "source", "system" or "model"; GPU counts rise."""
    column = judged.gpus.astype(int).tolist() if key == "gpus" else getattr(judged, key)
    return {str(value): score(judged.take(np.array([one == value for one in column]))) for value in sorted(set(column))}
