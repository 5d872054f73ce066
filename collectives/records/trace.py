"""The record of what happened, simulated or measured alike; every picture, table and figure is made from it.

Times are seconds from the common start. On disk a trace is JSON with a schema version, topology included.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from collectives.errors import InputError
from collectives.records.files import read_record, write_record
from collectives.units import format_time


class Message(NamedTuple):
    """One message: ``begin`` when both halves were posted or sending began, ``end`` when its bytes had arrived.

    >>> Message(src=0, dst=1, step=0, chunk=0, nbytes=64, begin=0.0, end=1e-3).route
    ()
    """

    src: int
    dst: int
    step: int  # of the sender's program on this channel
    chunk: int  # first of its chunks
    nbytes: int
    begin: float
    end: float
    route: tuple[str, ...] = ()  # node names from src to dst; empty where it is not known
    channel: int = 0  # of the sender's and the receiver's programs
    src_waited: float = 0.0  # seconds that the sender's half was posted before the receiver's, where it is known
    dst_waited: float = 0.0  # and the receiver's before the sender's


class Span(NamedTuple):
    """A rank in one phase: ``reduce``, or in a training step ``forward``, ``backward``, ``sync``, ``optimizer``.

    >>> Span(rank=0, name="reduce", step=2, begin=1e-3, end=2e-3).name
    'reduce'
    """

    rank: int
    name: str
    step: int  # of its program, or the training step
    begin: float
    end: float


class TracedLink(NamedTuple):
    """One direction of a link as it was: bytes per second, seconds, and the bytes that crossed it."""

    src: str
    dst: str
    bandwidth: float
    latency: float
    nbytes: float


class Unfinished(NamedTuple):
    """What a rank waited for when nothing more could happen: its peer's half, or a message that never arrived."""

    rank: int
    peer: int
    sends: bool
    step: int
    channel: int
    since: float
    is_under_way: bool


class ProgramFailure(NamedTuple):
    """Where a rank program goes wrong; the trace of such a run ends at that moment.

    >>> ProgramFailure(rank=0, step=1, where="my.py:9", text="its contribution would be counted twice").where
    'my.py:9'
    """

    rank: int
    step: int  # of its program; as many as it has where all of them end and the result is wrong
    where: str  # file and line that yields the step, such as "my.py:9"; empty where it is not known
    text: str


@dataclass(repr=False)
class Trace:
    """What happened in one run: the messages, the spans in which ranks computed, the links, and how long it took.

    >>> Trace("all_reduce/ring", "predicted", world_size=8, elapsed=0.0147)
    <Trace all_reduce/ring: predicted, 8 ranks, 14.7 ms>

    ``facts`` are numbers that belong to the whole: for a collective ``nbytes``, ``time_min_s``, ``time_max_s``; for
    training ``batch_size``, ``single_rank_step_s`` and, where measured, ``test_accuracy`` and ``examples_seen``.
    """

    SCHEMA_VERSION: ClassVar[int] = 2

    title: str  # the algorithm's full name, or "training/ring"
    kind: Literal["predicted", "measured"]
    world_size: int
    elapsed: float  # first rank's start to last rank's end, seconds
    messages: list[Message] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    links: list[TracedLink] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # node of each rank
    facts: dict[str, float] = field(default_factory=dict)
    engine: str = ""  # what simulated it: "simpy" or "compiled"; of a measurement none
    method: str = ""  # how it did: "events", every message simulated, or an exact shortcut, "max-plus" or "quotient"
    failed: dict[int, float] = field(default_factory=dict)  # ranks that failed, and when
    unfinished: list[Unfinished] = field(default_factory=list)  # of a run that never ends
    failure: ProgramFailure | None = None  # of a program that is wrong: what happened up to there is what it shows

    def __repr__(self) -> str:
        ranks = f"{self.world_size} rank{'s' if self.world_size > 1 else ''}"
        messages = f", {len(self.messages)} messages" if self.messages else ""
        end = "" if self.is_complete else ", never finished"
        return f"<Trace {self.title}: {self.kind}, {ranks}{messages}, {format_time(self.elapsed)}{end}>"

    @property
    def is_complete(self) -> bool:
        """Whether all ranks finished; if not, ``elapsed`` is when the last thing happened."""
        return not self.unfinished and not self.failed and self.failure is None

    def bytes_sent(self) -> list[int]:
        """Return the bytes that each rank sent.

        >>> Trace("broadcast/naive", "measured", 2, 1e-3, [Message(0, 1, 0, 0, 64, 0.0, 1e-3)]).bytes_sent()
        [64, 0]
        """
        sent = [0] * self.world_size
        for message in self.messages:
            sent[message.src] += message.nbytes
        return sent

    def write(self, path: Path | str) -> None:
        """Write the trace to ``path`` as JSON, whole or not at all; ``read_trace`` reads it."""
        write_record(path, self)


def read_trace(path: Path | str) -> Trace:
    """Return the trace in a file that ``Trace.write`` wrote.

    Raises InputError that names the file and what is wrong with it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Trace("barrier/naive", "measured", 2, 1.5e-4).write(Path(folder, "barrier.trace.json"))
    ...     read_trace(Path(folder, "barrier.trace.json"))
    <Trace barrier/naive: measured, 2 ranks, 150 us>
    """
    trace = read_record(path, Trace)
    for problem in _problems(trace):
        raise InputError(f"{path}: not a trace: {problem}")
    return trace


def _problems(trace: Trace) -> Iterator[str]:
    """Yield what no run can have left: ranks that do not exist, and times that run backwards."""
    ranks = range(trace.world_size)
    if trace.world_size < 1:
        yield f"world_size is {trace.world_size}"
    if trace.hosts and len(trace.hosts) != trace.world_size:
        yield f"hosts has {len(trace.hosts)} entries for {trace.world_size} ranks"
    for number, message in enumerate(trace.messages):
        if message.src not in ranks or message.dst not in ranks:
            yield f"messages.{number} goes from rank {message.src} to rank {message.dst} of {trace.world_size}"
        if not message.begin <= message.end:
            yield f"messages.{number} ends at {message.end} but begins at {message.begin}"
    if trace.failure is not None and trace.failure.rank not in ranks:
        yield f"failure is of rank {trace.failure.rank} of {trace.world_size}"
    for number, span in enumerate(trace.spans):
        if span.rank not in ranks:
            yield f"spans.{number} is of rank {span.rank} of {trace.world_size}"
        if not span.begin <= span.end:
            yield f"spans.{number} ends at {span.end} but begins at {span.begin}"
