"""Limit what a user's file may use: time, memory, processes, steps and channels."""

import os
from typing import NamedTuple

from collectives.errors import InputError
from collectives.units import format_size, parse_size

SECONDS_KEY, MEMORY_KEY = "RINGLAB_PROGRAM_SECONDS", "RINGLAB_PROGRAM_MEMORY"  # environment variables
SECONDS, MEMORY = 20.0, "512 MiB"  # defaults
MOST_ELAPSED = 10  # maximum elapsed time, as a multiple of the limit on CPU time
MOST_PROCESSES = 16  # processes of a file at the same time
MOST_STEPS = 1_000_000  # steps of one rank; a program with more is considered endless
MOST_CHANNELS = 1024  # channels of one rank


class ProgramLimits(NamedTuple):
    """The time and memory limits for loading a user's file, and for recording its program once on all ranks."""

    seconds: float  # CPU time and sleep
    memory: int  # bytes of all processes of the file together

    def describe_seconds(self) -> str:
        return f"{self.seconds:g} s ({SECONDS_KEY}={10 * self.seconds:g} would allow ten times as long)"

    def describe_memory(self) -> str:
        twice = format_size(2 * self.memory)
        return f'{format_size(self.memory)} of memory ({MEMORY_KEY}="{twice}" would allow twice as much)'


def read_limits() -> ProgramLimits:
    """Return the limits that environment variables set, or their defaults. Raise InputError for an invalid value."""
    text = os.environ.get(SECONDS_KEY, str(SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 1e6:
        raise InputError(f"{SECONDS_KEY} must be a positive number of seconds, not {text!r}")
    try:
        memory = parse_size(os.environ.get(MEMORY_KEY, MEMORY))
    except InputError as error:
        raise InputError(f"{MEMORY_KEY}: {error}") from error
    if memory < 64 << 20:
        raise InputError(f"{MEMORY_KEY} must be at least 64 MiB, not {os.environ[MEMORY_KEY]!r}")
    return ProgramLimits(seconds, memory)
