"""How far a predicted rate may be off: intervals in log rate that widen with what a prediction rests on.

The half-width is a quantile times what is unsure of a case, wider or narrower by what limits it. Unsure are the share
of linear scaling that is predicted to be lost, the loaders as far as they decide, and batches of unequal work. The
quantiles and the factors of the families are those of published series that were predicted with their source left out
and that are not put aside: ``simcomm.scaling.accuracy.shipped_widths`` writes ``intervals.toml`` (docs/scaling.md).
"""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from math import log
from pathlib import Path
from typing import NamedTuple

import numpy as np

from collectives.errors import InputError
from simcomm.scaling.cases import Floats

FILE = Path(__file__).parent / "intervals.toml"
FLOOR, SLOPE = 0.004, 0.4  # of log rate: without any loss, and of the share that is lost
LOADERS, UNEQUAL = 0.3, 0.8  # spread of what loaders do; of what batches of unequal work cost, as a share of it
COVERAGES = (0.5, 0.8, 0.9)


class Widths(NamedTuple):
    """Quantiles of the size of an error, in units of what is unsure, and what they are multiplied by in a family."""

    quantiles: Mapping[float, float]
    wider: Mapping[str, float]


@cache
def read_widths() -> Widths:
    """Return the widths that are shipped.

    >>> 0 < read_widths().quantiles[0.5] < read_widths().quantiles[0.9]
    True
    """
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return Widths({float(share): value for share, value in content["quantiles"].items()}, content["wider"])


def unsure(efficiency: Floats, loaders: Floats | float = 0.0, unequal: Floats | float = 0.0) -> Floats:
    """Return what is unsure of cases, as a share of their rate.

    ``loaders`` is the share of a change of the loaders' rate that the step feels, ``unequal`` the share of the step
    that waiting for longer batches takes.

    >>> unsure(np.array([1.0, 0.5]))
    array([0.004, 0.204])
    """
    lost = FLOOR + SLOPE * np.clip(1 - efficiency, 0, 1)
    found: Floats = np.sqrt(lost**2 + (LOADERS * np.asarray(loaders)) ** 2 + (UNEQUAL * np.asarray(unequal)) ** 2)
    return found


def log_halfwidth(
    efficiency: Floats,
    coverage: float,
    families: Sequence[str] = (),
    *,
    loaders: Floats | float = 0.0,
    unequal: Floats | float = 0.0,
    widths: Widths | None = None,
) -> Floats:
    """Return half the width of the interval of log rate that holds a share ``coverage`` of measurements.

    ``families`` are those of ``family_of``, one for each. Raise InputError for a coverage that is no share.

    >>> wide, narrow = log_halfwidth(np.array([0.5, 1.0]), 0.8)
    >>> bool(wide > 10 * narrow > 0)
    True
    """
    if not 0 < coverage < 1:
        raise InputError(f"coverage = {coverage!r}; give a share between 0 and 1, as 0.8")
    known = widths or read_widths()
    wider = np.array([known.wider.get(family, 1.0) for family in families]) if families else 1.0
    found: Floats = unsure(efficiency, loaders, unequal) * wider * _quantile(known.quantiles, coverage)
    return found


def _quantile(quantiles: Mapping[float, float], coverage: float) -> float:
    """Return the quantile, between the known ones by a line in the log of what is left out."""
    left = [-log(1 - share) for share in (0.0, *quantiles)]
    known = [0.0, *quantiles.values()]
    asked = -log(1 - coverage)
    if asked <= left[-1]:
        return float(np.interp(asked, left, known))
    return known[-1] + (asked - left[-1]) * (known[-1] - known[-2]) / (left[-1] - left[-2])
