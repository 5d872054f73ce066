"""Fit the widths of intervals to errors of predictions that had not seen a source.

A family with few points is held to all: of n points, its factor counts n / (n + 30).
"""

from collections.abc import Sequence

import numpy as np

from simcomm.scaling.cases import Floats
from simcomm.scaling.intervals import COVERAGES, Widths

HELD_TO_ALL = 30  # points: as much as all points together count in the factor of a family
FEWEST = 5  # points of a family for a factor of its own


def fit_widths(sizes: Floats, families: Sequence[str]) -> Widths:
    """Return the widths in which errors lie as often as they should; ``sizes`` are in units of what is unsure.

    >>> fit_widths(np.linspace(0.0, 1.0, 101), ["NVLink"] * 101).quantiles[0.8]
    0.8
    """
    column = np.array(families)
    everywhere = np.quantile(sizes, COVERAGES)
    wider = {}
    for family in sorted(set(families)):
        rows = column == family
        if rows.sum() >= FEWEST:
            apart = float(np.mean(np.log(np.quantile(sizes[rows], COVERAGES) / everywhere)))
            wider[family] = float(np.exp(apart * rows.sum() / (rows.sum() + HELD_TO_ALL)))
    left = sizes / np.array([wider.get(family, 1.0) for family in families])
    quantiles = np.quantile(left, COVERAGES).tolist()
    return Widths(dict(zip(COVERAGES, quantiles, strict=True)), wider)
