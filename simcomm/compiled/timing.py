"""What a run of the compiled engine finds."""

from typing import NamedTuple

from collectives.records.spans import Spans
from simcomm.compiled.kernel.arrays import Floats, Ints
from simcomm.compiled.shortcuts.max_plus import MaxPlusRun
from simcomm.compiled.shortcuts.waits import Standstill


class MessageTimes(NamedTuple):
    """When each message sent began and ended; seconds and bytes, one entry of each array for each message."""

    src: Ints
    dst: Ints
    channel: Ints
    step: Ints  # of the sender's program
    chunk: Ints  # first of its chunks
    nbytes: Floats
    begin: Floats  # both halves posted; nan where they never were
    end: Floats  # all bytes arrived; nan where they never did


class PostTimes(NamedTuple):
    """When the halves of each message sent were posted, seconds; nan where one never was."""

    src: Floats
    dst: Floats


class Timing(NamedTuple):
    """When the ranks end, and how that was found."""

    elapsed: float  # seconds until the last rank ends
    finished: Floats  # [ranks]: seconds; infinite for a rank that never ends
    messages: int  # how many were sent
    method: str  # "max-plus", "quotient" or "events"
    times: MessageTimes | None = None
    posted: PostTimes | None = None
    reductions: Spans | None = None  # where they do not follow from the times of messages
    failed: frozenset[int] = frozenset()  # ranks that came to the time at which they fail
    standstill: Standstill | None = None  # of a run that never ends, where there are no times of its messages
    by_steps: MaxPlusRun | None = None  # when ranks came to steps, where that was asked for
    error: float | None = None  # seconds by which an approximation may be wrong; None where all is exact
