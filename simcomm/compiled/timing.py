"""What a run of the compiled engine tells."""

from typing import NamedTuple

from simcomm.compiled.wires import Floats, Ints


class MessageTimes(NamedTuple):
    """Every message that travelled, by its sender's step; one entry of each array for each; seconds and bytes."""

    src: Ints
    dst: Ints
    channel: Ints
    step: Ints  # of the sender's program
    chunk: Ints  # first of its chunks
    nbytes: Floats
    begin: Floats  # both halves posted
    end: Floats  # all bytes arrived


class Timing(NamedTuple):
    """When it was all done."""

    elapsed: float  # seconds
    finished: Floats  # [ranks]: seconds
    messages: int  # that travelled
    way: str  # how it was found: "max-plus", "quotient" or "events"
    times: MessageTimes | None = None
