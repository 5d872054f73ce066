"""How often it is true that one rental really is cheaper than another, by the probability with which it was said.

Two types of GPU that ran one published job are compared as a plan compares them: from data sheets, without any
published rate of either type or of the job's model, at prices drawn by lot (``regret.py``). Who really was cheaper is
known from the published rates.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from benchmarks.studies.renting_regret import Floats, Option
from simcomm.mesh.intervals import Uncertain, chance_less
from simcomm.scaling.one_gpu import YOURS, Alone, guess_together, published

BINS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)  # of probabilities


class Pair(NamedTuple):
    """Two types of GPU on one job: the ratio of their rates, and that ratio as it is guessed."""

    first: str
    second: str
    ratio: float
    guessed: Uncertain


class Said(NamedTuple):
    """Comparisons whose probability was said to be between ``low`` and ``high``, and the share that came true."""

    low: float
    high: float
    comparisons: int
    said: float  # the mean of the probabilities
    true: float


def pairs_of(jobs: Iterable[Sequence[Option]]) -> Iterator[Pair]:
    """Yield each pair of types of GPU of each job on one GPU, guessed without rates of these types and this model."""
    for options in jobs:
        by_type = {option.series.gpu.name: option for option in reversed(options)}
        for names in combinations(sorted(by_type), 2):
            first, second = (by_type[name] for name in names)
            job = first.series.job
            seen = [one for one in published() if one.job.model != job.model and one.gpu.name not in names]
            asked = [Alone(job, each.series.gpu, YOURS) for each in (first, second)]
            (a, b), covariance = guess_together(seen, asked)
            spread = np.sqrt(max(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1], 0.0))
            guessed = Uncertain(a.rate / b.rate, {"types": float(spread)})
            yield Pair(*names, first.point.rate / second.point.rate, guessed)


def judge_chances(pairs: Iterable[Pair], prices: Mapping[str, Floats]) -> list[Said]:
    """Return for each bin of probabilities how often what was said came true, over all pairs and draws of prices.

    ``prices`` are draws for each type of GPU, in dollars an hour.

    >>> guess = Uncertain(2.0, {"types": 0.1})
    >>> judge_chances([Pair("A", "B", 1.9, guess)], {"A": np.array([1.0]), "B": np.array([1.0])})[-1].true
    1.0
    """
    said, true = list[float](), list[bool]()
    for pair in pairs:
        for dearer in (prices[pair.first] / prices[pair.second]).tolist():
            chance = chance_less(pair.guessed.inverse().times(dearer), Uncertain(1.0))
            said.append(max(chance, 1 - chance))
            true.append((pair.ratio > dearer) == (chance > 0.5))
    chances, right = np.array(said), np.array(true)
    found = []
    for low, high in pairwise(BINS):
        inside = (chances >= low) & (chances < high if high < 1 else chances <= high)
        if inside.any():
            row = Said(low, high, int(inside.sum()), float(chances[inside].mean()), float(right[inside].mean()))
            found.append(row)
    return found
