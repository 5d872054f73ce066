"""What is to be measured of a request, and what a rank finds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from collectives.request import Request
from realcomm.execution.events import Event

FOUND = "found "  # begins the progress text of a worker that has finished a measurement; its figures follow


@dataclass(frozen=True)
class TimedRequest:
    """A request with warm-up and repetitions, as real ranks carry it out."""

    request: Request
    warmup: int
    repetitions: int | None  # None: as many as fit in a second
    inputs: Path | None  # folder of RANK.npy, real data to run the collective on once
    check: bool = True  # whether the result on known inputs is compared with the right one
    total_s: float = 1.0  # of all repetitions, where none are given ...
    least: int = 5  # ... and so many at least


class RankMeasurement(NamedTuple):
    """The result of a measurement on one rank."""

    seconds: list[float]  # of every repetition, first rank's start to last rank's end; the same for all ranks
    begin: float  # of the repetition that took the median time
    events: list[Event]  # of this rank in that repetition
    wrong: int  # elements of this rank that differ from the right result
    data: npt.NDArray[Any] | None  # the result on this rank's input


class RankFigures(NamedTuple):
    """The result of a measurement in short: seconds from first rank's start to last rank's end over its repetitions."""

    median_s: float
    least_s: float
    most_s: float
    wrong: int  # elements of all ranks that differ from the right result
