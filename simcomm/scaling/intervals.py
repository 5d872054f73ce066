"""How far a predicted rate may be off: intervals in log rate that widen with the predicted loss.

The half-width is a quantile times (a floor + a slope x the share of linear scaling that is predicted to be lost), both
from series that were predicted with their source left out (``ringlab accuracy --training``).
"""

from math import log

import numpy as np

from collectives.errors import InputError
from simcomm.scaling.cases import Floats

FLOOR, SLOPE = 0.01, 0.25
QUANTILES = {0.5: 0.76, 0.8: 1.85, 0.9: 2.83}  # of the size of an error, in units of floor + slope x loss


def log_halfwidth(efficiency: Floats, coverage: float) -> Floats:
    """Return half the width of the interval of log rate that holds a share ``coverage`` of measurements.

    Raise InputError for a coverage that is no share.

    >>> log_halfwidth(np.array([1.0]), 0.5)
    array([0.0076])
    """
    if not 0 < coverage < 1:
        raise InputError(f"coverage = {coverage!r}; give a share between 0 and 1, as 0.8")
    found: Floats = (FLOOR + SLOPE * np.clip(1 - efficiency, 0, 1)) * _quantile(coverage)
    return found


def _quantile(coverage: float) -> float:
    """Return the quantile, between the known ones by a line in the log of what is left out."""
    left = [-log(1 - share) for share in (0.0, *QUANTILES)]
    known = [0.0, *QUANTILES.values()]
    asked = -log(1 - coverage)
    if asked <= left[-1]:
        return float(np.interp(asked, left, known))
    return known[-1] + (asked - left[-1]) * (known[-1] - known[-2]) / (left[-1] - left[-2])
