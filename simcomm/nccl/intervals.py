"""Intervals: how far a prediction may be off, by what is known of the system.

The logarithm of measured / predicted is taken as Student's t with two degrees of freedom, whose tails are far heavier
than a normal distribution's. Its width was chosen on systems that were left out together with their authors' others, by
what a description tells: one node or several, whether a like system (the same network and link) was checked, whether
the NICs' rate was guessed.
"""

from functools import cache, lru_cache
from math import log, sqrt

import numpy as np

from collectives.errors import InputError
from simcomm.nccl.channels import Floats
from simcomm.nccl.communicator import Communicator
from simcomm.nccl.descriptions import System, read_systems
from simcomm.nccl.tables import put_aside

SIZES = (2.0**13, 2.0**20, 2.0**27)  # bytes, in the middle of the small, the middle and the large class
# Half-widths of 80 % in log time at these sizes: about what systems needed that were left out
# with their authors' others (docs/nccl.md).
ONE_NODE = (0.27, 0.28, 0.32)
SEVERAL = (0.33, 0.40, 0.37)
UNCHECKED = 1.2  # times, where no like system was checked
GUESSED = 1.15  # where the NICs' rate was guessed
DEGRADED = 1.4  # where the source says that the system is slower than it should be


def is_checked(system: System) -> bool:
    """Return whether the fit saw another system with the same network and the same link inside.

    >>> from simcomm.nccl.descriptions import describe_preset
    >>> is_checked(describe_preset("dgx-h100", 1, 8))
    True
    """
    return any(slug != system.slug for slug in _checked().get(_kind(system), ()))


def _kind(system: System) -> tuple[str | None, str]:
    return system.net if system.nodes > 1 else None, system.link


@cache
def _checked() -> dict[tuple[str | None, str], list[str]]:
    """Return the slugs of the project's own systems that fits see, by network and link."""
    hidden, kinds = put_aside(), dict[tuple[str | None, str], list[str]]()
    for slug, system in read_systems().items():
        if slug not in hidden and not system.skip:
            kinds.setdefault(_kind(system), []).append(slug)
    return kinds


@lru_cache(maxsize=64)
def _stretch(coverage: float) -> float:
    """Return how much wider an interval of a coverage is than one of 80 %."""
    if not 0 < coverage < 1:
        raise InputError(f"coverage = {coverage!r}; give a share between 0 and 1, as 0.8")
    return _quantile(coverage) / _quantile(0.8)


def _quantile(coverage: float) -> float:
    """Return the number between whose minus and plus Student's t with two degrees lies with this probability."""
    return coverage * sqrt(2 / (1 - coverage**2))


def log_halfwidth(comm: Communicator, sizes: Floats, *, has_like: bool = True, coverage: float = 0.8) -> Floats:
    """Return half the width of the interval of log time that holds a share ``coverage`` of measurements.

    Raise InputError for a coverage that is no share.
    """
    widths = ONE_NODE if comm.nodes == 1 else SEVERAL
    wider = (1.0 if has_like else UNCHECKED) * (GUESSED if comm.nic_is_guessed else 1.0)
    wider *= DEGRADED if comm.degraded else 1.0
    base = np.interp(np.log(sizes), [log(size) for size in SIZES], widths)
    result: Floats = base * wider * _stretch(coverage)
    return result
