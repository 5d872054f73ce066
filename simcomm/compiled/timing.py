"""What a run of the compiled engine tells."""

from typing import NamedTuple

from simcomm.compiled.routes import Floats, Ints


class MessageTimes(NamedTuple):
    """Every message that travelled, by its sender's step; one entry of each array for each; seconds and bytes."""

    src: Ints
    dst: Ints
    channel: Ints
    step: Ints  # of the sender's program
    chunk: Ints  # first of its chunks
    nbytes: Floats
    begin: Floats  # both halves posted; nan where they never were
    end: Floats  # all bytes arrived; nan where they never did


class Posted(NamedTuple):
    """When the halves of every message were posted, seconds; nan where one never was."""

    src: Floats
    dst: Floats


class Timing(NamedTuple):
    """When it was all done."""

    elapsed: float  # seconds
    finished: Floats  # [ranks]: seconds; infinite for a rank that never is
    messages: int  # that travelled
    method: str  # how it was found: "max-plus", "quotient" or "events"
    times: MessageTimes | None = None
    posted: Posted | None = None
    failed: frozenset[int] = frozenset()  # ranks that came to the time at which they fail
