"""How much a user's file may take: time, memory, processes, and steps of its programs."""

import os
from typing import NamedTuple

from collectives.errors import InputError
from collectives.units import format_size, parse_size

SECONDS_KEY, MEMORY_KEY = "RINGLAB_PROGRAM_SECONDS", "RINGLAB_PROGRAM_MEMORY"  # in the environment
SECONDS, MEMORY = 20.0, "512 MiB"  # unless the environment says otherwise
MOST_ELAPSED = 10  # times the limit of time may pass while a program waits for a processor
MOST_PROCESSES = 16  # that a file has started and that run at the same time
MOST_STEPS = 1_000_000  # of one rank; a program that yields more is taken to be endless
MOST_CHANNELS = 1024  # of one rank


class ProgramLimits(NamedTuple):
    """Limits for loading a user's file, and for running each of its programs on all ranks.

    >>> ProgramLimits(seconds=10.0, memory=1 << 29).describe_memory()
    '512 MiB of memory (RINGLAB_PROGRAM_MEMORY="1 GiB" would allow twice as much)'
    """

    seconds: float  # of processors, or asleep
    memory: int  # bytes, of all its processes together

    def describe_seconds(self) -> str:
        """Return the limit of time, and how to allow more."""
        return f"{self.seconds:g} s ({SECONDS_KEY}={10 * self.seconds:g} would allow ten times as long)"

    def describe_memory(self) -> str:
        """Return the limit of memory, and how to allow more."""
        twice = format_size(2 * self.memory)
        return f'{format_size(self.memory)} of memory ({MEMORY_KEY}="{twice}" would allow twice as much)'


def read_limits() -> ProgramLimits:
    """Return the limits of the environment variables, or the defaults. Raise InputError for an invalid variable.

    >>> read_limits().seconds > 0
    True
    """
    given = os.environ.get(SECONDS_KEY, str(SECONDS))
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 1e6:
        raise InputError(f"{SECONDS_KEY} is {given!r}; give a number of seconds above 0")
    try:
        memory = parse_size(os.environ.get(MEMORY_KEY, MEMORY))
    except InputError as error:
        raise InputError(f"{MEMORY_KEY}: {error}") from error
    if memory < 64 << 20:
        raise InputError(f"{MEMORY_KEY} is {os.environ[MEMORY_KEY]!r}; a program needs at least 64 MiB")
    return ProgramLimits(seconds, memory)
