"""Check the values of numeric environment variables that Ringlab or its libraries read.

The values are checked before any work, because an invalid value would otherwise fail late, or without a message.
"""

import os
from collections.abc import Mapping

from collectives.errors import InputError
from collectives.quoting import quote

MOST = 1_000_000
LIMITS = {  # the least and the largest accepted value of each variable
    "RANK": (0, MOST),
    "WORLD_SIZE": (1, MOST),
    "LOCAL_RANK": (0, MOST),
    "LOCAL_WORLD_SIZE": (1, MOST),
    "MASTER_PORT": (0, 65535),
    "COLUMNS": (1, 10_000),
    "NUMBA_NUM_THREADS": (1, 1024),
    "OMP_NUM_THREADS": (1, 1024),
}
LISTS = {"OMP_NUM_THREADS"}  # variables that accept several values, separated by commas


def check_variables(environment: Mapping[str, str] = os.environ) -> None:
    """Raise InputError for an environment variable with an invalid value.

    >>> check_variables({"RANK": "x"})
    Traceback (most recent call last):
        ...
    collectives.errors.InputError: the environment variable RANK is 'x'; set an integer from 0 to 1000000
    """
    for name, (least, most) in LIMITS.items():
        value = environment.get(name, str(least))
        numbers = [part.strip() for part in value.split(",")] if name in LISTS else [value]
        plain = all(text.isascii() and text.isdecimal() and len(text) < 20 for text in numbers)
        if not plain or not all(least <= int(text) <= most for text in numbers):
            several = ", or several separated by commas" if name in LISTS else ""
            raise refused(name, value, f"set an integer from {least} to {most}{several}", environment)
    rank, world_size = environment.get("RANK"), environment.get("WORLD_SIZE")
    if rank is not None and world_size is not None and int(rank) >= int(world_size):
        raise refused("RANK", rank, f"set a number below WORLD_SIZE ({world_size})", environment)


def refused(name: str, value: str, ways_out: str, environment: Mapping[str, str] = os.environ) -> InputError:
    """Return an InputError about an environment variable, with an attribute ``rank``: the value of RANK, or "0"."""
    error = InputError(f"the environment variable {name} is {quote(value)}; {ways_out}")
    vars(error)["rank"] = environment.get("RANK", "0")
    return error


def is_first_rank() -> bool:
    """Return whether this process may print and write files. This holds for rank 0 and for processes without a rank."""
    return not is_launched() or os.environ["RANK"] == "0"


def is_launched() -> bool:
    """Return whether torchrun, or a launcher that sets the same variables, started this process as a rank."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ
