"""What is asked of a measurement and what each rank finds: plain records, without torch, for launcher and workers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from collectives.request import Request
from collectives.step import Operation


@dataclass(frozen=True)
class Measurement:
    """One collective to measure."""

    request: Request
    warmup: int
    repetitions: int | None  # None: as many as fit in a second
    inputs: Path | None  # folder of RANK.npy, to be carried once
    check: bool = True  # whether the result is held against what it must be


class Event(NamedTuple):
    """One operation of one rank as it happened, in seconds of ``time.perf_counter``, which all local ranks share.

    Sends and receives begin when they were posted and end when this rank saw them complete. What a ``recv_reduce``
    adds to its chunk is an event of its own, of kind REDUCE. A message that travelled in slices is one event; what was
    reduced or copied slice by slice is several.
    """

    step: int
    operation: Operation
    begin: float
    end: float
    channel: int = 0


class Measured(NamedTuple):
    """What one rank found."""

    seconds: list[float]  # of every repetition, first rank's start to last rank's end; the same for all ranks
    begin: float  # of the repetition that took the median time
    events: list[Event]  # of this rank in that repetition
    wrong: int  # elements of this rank that were not what they must be
    data: npt.NDArray[Any] | None  # what this rank's input became
