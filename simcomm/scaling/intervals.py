"""How far a predicted rate may be off: intervals in log rate that widen with the predicted loss.

The half-width is a quantile times (a floor + a slope x the share of linear scaling that is predicted to be lost), wider
or narrower by what limits the case; all from series that were predicted with their source left out, and without the
systems that are put aside (docs/scaling.md).
"""

from collections.abc import Sequence
from math import log

import numpy as np

from collectives.errors import InputError
from simcomm.scaling.cases import Floats
from simcomm.scaling.families import HOST, NO_EXCHANGE, SERVER, SLOW

FLOOR, SLOPE = 0.01, 0.25
WIDER = {SLOW: 1.85, HOST: 0.8, SERVER: 0.9, NO_EXCHANGE: 0.65}  # times, by family
QUANTILES = {0.5: 0.74, 0.8: 1.75, 0.9: 2.75}  # of the size of an error, in units of floor + slope x loss


def log_halfwidth(efficiency: Floats, coverage: float, families: Sequence[str] = ()) -> Floats:
    """Return half the width of the interval of log rate that holds a share ``coverage`` of measurements.

    ``families`` are those of ``family_of``, one for each. Raise InputError for a coverage that is no share.

    >>> log_halfwidth(np.array([1.0]), 0.5)
    array([0.0074])
    """
    if not 0 < coverage < 1:
        raise InputError(f"coverage = {coverage!r}; give a share between 0 and 1, as 0.8")
    wider = np.array([WIDER.get(family, 1.0) for family in families]) if families else 1.0
    found: Floats = (FLOOR + SLOPE * np.clip(1 - efficiency, 0, 1)) * wider * _quantile(coverage)
    return found


def _quantile(coverage: float) -> float:
    """Return the quantile, between the known ones by a line in the log of what is left out."""
    left = [-log(1 - share) for share in (0.0, *QUANTILES)]
    known = [0.0, *QUANTILES.values()]
    asked = -log(1 - coverage)
    if asked <= left[-1]:
        return float(np.interp(asked, left, known))
    return known[-1] + (asked - left[-1]) * (known[-1] - known[-2]) / (left[-1] - left[-2])
