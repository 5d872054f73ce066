"""How far a predicted rate may be off: intervals in log rate that widen with what a prediction rests on.

A step is wrong by parts that are wrong independently: what takes least goes by the floor; what is exchanged by a power
below one, as a small loss is known worse in proportion than a large one, and over a network of which no more is known
than its NICs twice as much; waiting for the slowest by a share of it; loaders as far as they decide; batches of
unequal work. Half an interval is a quantile times the root of their squares. ``SHAPE`` says what the parts are before
any error is seen; published series that were predicted with their source left out, and that are not held out, move it
(``benchmarks/studies/scaling_widths.py``), and those of them that scale badly give the quantiles; ``make fit-scaling``
writes ``intervals.toml``.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from math import log
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectives.errors import InputError
from planner.mesh.terms import Floats

FILE = Path(__file__).parent / "intervals.toml"
COVERAGES = (0.5, 0.8, 0.9)
LOADERS, UNEQUAL = 0.3, 0.8  # spread of what loaders do; of what batches of unequal work cost, as a share of it
# Published nccl-tests reach a share of the NICs' rate that spreads twice as wide as that of links inside a node.
NETWORK = 2.0
# Of log rate, with the spread of the logarithm to which a fit holds it.
SHAPE = {
    "floor": (0.004, 0.2),
    "exchange": (0.22, 1.0),  # times the share of the step that is exchanging, to the power
    "power": (0.6, 0.17),
    "stragglers": (0.67, 0.2),  # times the share of the step that is waiting for the slowest
    "others": (1.0, 0.3),  # what ``LOADERS`` and ``UNEQUAL`` are multiplied by
}


class Shares(NamedTuple):
    """What steps rest on, as shares of them; ``loaders`` is the share of a change of the loaders' rate that is felt.

    ``exchange`` is communication and copies, ``stragglers`` waiting for the slowest of equal work, ``unequal`` for
    batches of unequal work; ``network`` is 1 where nodes exchange, else 0.
    """

    exchange: Floats | float
    stragglers: Floats | float = 0.0
    loaders: Floats | float = 0.0
    unequal: Floats | float = 0.0
    network: Floats | float = 0.0

    def take(self, rows: "NDArray[np.bool_]") -> "Shares":
        """Return some of the rows."""
        return Shares(*(np.broadcast_to(column, rows.shape)[rows] for column in self))


class Widths(NamedTuple):
    """The values of ``SHAPE``, and quantiles of the size of an error in units of what is unsure."""

    shape: Mapping[str, float]
    quantiles: Mapping[float, float]


@cache
def read_widths() -> Widths:
    """Return the widths that are shipped.

    >>> 0 < read_widths().quantiles[0.5] < read_widths().quantiles[0.9]
    True
    """
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return Widths(content["shape"], {float(share): value for share, value in content["quantiles"].items()})


def unsure(shares: Shares, shape: Mapping[str, float] | None = None) -> Floats:
    """Return what is unsure of steps, as a share of their rate, by the shipped shape unless one is given.

    >>> one, several = unsure(Shares(np.array([0.0, 0.5])))
    >>> bool(several > 10 * one > 0)
    True
    """
    values = shape or read_widths().shape
    wider = 1 + (NETWORK - 1) * np.asarray(shares.network)
    exchange = values["exchange"] * wider * np.clip(shares.exchange, 0, 1) ** values["power"]
    stragglers = values["stragglers"] * np.asarray(shares.stragglers)
    loaders, unequal = LOADERS * np.asarray(shares.loaders), UNEQUAL * np.asarray(shares.unequal)
    others = values["others"] ** 2 * (loaders**2 + unequal**2)
    found: Floats = np.sqrt(values["floor"] ** 2 + exchange**2 + stragglers**2 + others)
    return found


def log_halfwidth(shares: Shares, coverage: float, widths: Widths | None = None) -> Floats:
    """Return half the width of the interval of log rate that holds a share ``coverage`` of measurements.

    Raise InputError for a coverage that is no share.

    >>> wide, narrow = log_halfwidth(Shares(np.array([0.5, 0.0])), 0.8)
    >>> bool(wide > 10 * narrow > 0)
    True
    """
    if not 0 < coverage < 1:
        raise InputError(f"coverage = {coverage!r}; give a share between 0 and 1, as 0.8")
    known = widths or read_widths()
    return unsure(shares, known.shape) * quantile(known.quantiles, coverage)


def quantile(quantiles: Mapping[float, float], coverage: float) -> float:
    """Return the quantile, between the known ones by a line in the log of what is left out."""
    left = [-log(1 - share) for share in (0.0, *quantiles)]
    known = [0.0, *quantiles.values()]
    asked = -log(1 - coverage)
    if asked <= left[-1]:
        return float(np.interp(asked, left, known))
    return known[-1] + (asked - left[-1]) * (known[-1] - known[-2]) / (left[-1] - left[-2])
