"""Check the numeric environment variables that Ringlab or its libraries read.

They are checked together at the start, because an invalid value would otherwise fail late, or without a message.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from collectives.errors import InputError
from collectives.quoting import quote


@dataclass(frozen=True)
class WholeNumbers:
    """The accepted values of a variable: an integer within bounds, or a comma-separated list of such integers."""

    least: int
    most: int = 1_000_000
    is_list: bool = False

    def accepts(self, text: str) -> bool:
        """Return whether the text is an accepted value.

        >>> WholeNumbers(1).accepts("3"), WholeNumbers(1).accepts("-1"), WholeNumbers(1, is_list=True).accepts("4,2")
        (True, False, True)
        """
        parts = text.split(",") if self.is_list else [text]
        return all(self._is_within(part.strip()) for part in parts)

    def _is_within(self, text: str) -> bool:
        return text.isascii() and text.isdecimal() and len(text) < 20 and self.least <= int(text) <= self.most

    def __str__(self) -> str:
        several = ", or several with commas between" if self.is_list else ""
        return f"a whole number from {self.least} to {self.most}{several}"


VARIABLES = {
    "RANK": WholeNumbers(0),
    "WORLD_SIZE": WholeNumbers(1),
    "LOCAL_RANK": WholeNumbers(0),
    "LOCAL_WORLD_SIZE": WholeNumbers(1),
    "MASTER_PORT": WholeNumbers(0, 65535),
    "COLUMNS": WholeNumbers(1, 10_000),
    "NUMBA_NUM_THREADS": WholeNumbers(1, 1024),
    "OMP_NUM_THREADS": WholeNumbers(1, 1024, is_list=True),
}


def check_variables(environment: Mapping[str, str] = os.environ) -> None:
    """Raise InputError for an environment variable with an invalid value.

    >>> check_variables({"RANK": "x"})
    Traceback (most recent call last):
        ...
    collectives.errors.InputError: the environment variable RANK is 'x'; give a whole number from 0 to 1000000
    """
    for name, accepted in VARIABLES.items():
        value = environment.get(name)
        if value is not None and not accepted.accepts(value):
            raise refused(name, value, f"give {accepted}", environment)
    rank, world_size = environment.get("RANK"), environment.get("WORLD_SIZE")
    if rank is not None and world_size is not None and int(rank) >= int(world_size):
        raise refused("RANK", rank, f"give a number below WORLD_SIZE, which is {world_size}", environment)


def refused(name: str, value: str, ways_out: str, environment: Mapping[str, str] = os.environ) -> InputError:
    """Return the InputError for an environment variable. Its attribute ``rank`` is the rank of this process."""
    error = InputError(f"the environment variable {name} is {quote(value)}; {ways_out}")
    vars(error)["rank"] = environment.get("RANK", "0")
    return error


def is_first_rank() -> bool:
    """Return whether this process may print and write files: it is rank 0, or it was not launched as a rank.

    >>> is_first_rank()
    True
    """
    return not is_launched() or os.environ["RANK"] == "0"


def is_launched() -> bool:
    """Return whether torchrun, or a launcher that sets the same environment variables, started this process as a rank.

    >>> is_launched()
    False
    """
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ
