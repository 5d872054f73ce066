"""Record a simulated or measured run as a trace. All plots and tables of runs are made from traces.

Times are seconds since the common start of all ranks. A trace file is JSON with a schema version and the topology.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np

from collectives.checks import MOST_SECONDS, check_printable
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.input_files import FileBytes
from collectives.records import messages as message_columns
from collectives.records import spans as span_columns
from collectives.records.files import read_record, write_content
from collectives.records.messages import Messages
from collectives.records.spans import Spans
from collectives.units import format_size, format_time

LEAST_ELAPSED = 1e-30  # seconds; the shortest time of a run in a trace file, except 0


class LinkRate(NamedTuple):
    """A link's bandwidth in bytes/s from time ``since`` on, for a single message (``alone``) or more (``shared``)."""

    since: float
    alone: float
    shared: float


class TracedLink(NamedTuple):
    """One direction of a link, and the bytes that crossed it.

    >>> rates = (LinkRate(0.0, 1e9, 1e9), LinkRate(2.0, 5e8, 5e8))  # half the bandwidth from 2 s on
    >>> TracedLink("h0", "s0", bandwidth=1e9, latency=1e-6, nbytes=64, rates=rates).could_carry(3.0)
    2500000000.0
    """

    src: str
    dst: str
    bandwidth: float  # nominal bytes per second, without transport and faults
    latency: float
    nbytes: float
    rates: tuple[LinkRate, ...] = ()  # available bandwidth by time; empty: always the nominal bandwidth

    def could_carry(self, seconds: float) -> float:
        """Return the maximum number of payload bytes that the link can carry in the first ``seconds`` of the run."""
        rates = self.rates or (LinkRate(0.0, self.bandwidth, self.bandwidth),)
        ends = [*(rate.since for rate in rates[1:]), seconds]
        periods = zip(rates, ends, strict=True)
        return sum(max(rate[1:]) * (min(end, seconds) - rate.since) for rate, end in periods if rate.since < seconds)


class Unfinished(NamedTuple):
    """A wait that never ends: the peer posts no matching operation, or the message never arrives."""

    rank: int
    peer: int
    sends: bool
    step: int
    channel: int
    since: float
    is_under_way: bool
    chunk: int = 0  # first chunk that is sent or written
    count: int = 1  # type: ignore[assignment]  # hides tuple.count
    collective: int = 0


class ProgramFailure(NamedTuple):
    """An error of a rank program, and its location. The other ranks continue until they need this rank."""

    rank: int
    step: int | None  # counted from 0; None: all programs end, and the result is wrong
    where: str  # file and line that yields the step, such as "my.py:9"; empty if unknown
    text: str
    at: float = 0.0  # seconds; the rank does nothing afterwards
    lands: bool = False  # whether the step completes, with wrong data
    circle: tuple[int, ...] = ()  # the ranks of a deadlock, none of which has failed

    @property
    def ranks(self) -> tuple[int, ...]:
        """The failing rank, or all ranks of a deadlock."""
        return self.circle or (self.rank,)

    @property
    def steps(self) -> int | None:
        """The number of steps that the rank completes, or None if the failure does not stop this rank's program."""
        return None if self.circle or self.step is None else self.step + self.lands


@dataclass(repr=False)
class Trace:
    """The record of one run: messages, spans of other work, links, and elapsed seconds.

    ``messages`` and ``spans`` can be passed as lists of rows. ``facts`` are numbers about the whole run: ``nbytes``,
    ``time_min_s`` and ``time_max_s`` of a collective, or ``batch_size``, ``single_rank_step_s`` and, if measured,
    ``test_accuracy`` and ``examples_seen`` of a training run.

    >>> Trace("all_reduce/ring", "predicted", world_size=8, elapsed=0.0147)
    <Trace all_reduce/ring: predicted, 8 ranks, 14.7 ms>
    """

    SCHEMA_VERSION: ClassVar[int] = 3

    title: str  # the algorithm's full name, or "training/ring"
    kind: Literal["predicted", "measured"]
    world_size: int
    elapsed: float  # seconds from the first rank's start to the last rank's end
    messages: Messages = field(default_factory=lambda: Messages.of(()))
    spans: Spans = field(default_factory=lambda: Spans.of(()))
    links: list[TracedLink] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # the node of each rank
    facts: dict[str, float] = field(default_factory=dict)
    engine: str = ""  # "simpy" or "compiled"; empty for a measured run
    method: str = ""  # "events": every message simulated; or "max-plus", an exact recurrence
    failed: dict[int, float] = field(default_factory=dict)  # seconds of each failure, by rank
    unfinished: list[Unfinished] = field(default_factory=list)  # waits in a hanging run
    failure: ProgramFailure | None = None  # failure of a wrong program; the trace ends at that point
    algorithm: str = ""  # library name of the program; empty for a user's program
    root: int = 0
    chunks: int = 0  # number of chunks of the buffer; 0: unknown
    choice: str = ""  # NCCL's choice: algorithm, protocol and channels
    program: Any = field(default=None, init=False, compare=False)  # the Algorithm, if available; not in files

    def __post_init__(self) -> None:
        check_printable("title", self.title)
        for node in self.nodes:
            check_printable("a node", node)
        messages, spans = cast(Any, self.messages), cast(Any, self.spans)
        self.messages = messages if isinstance(messages, Messages) else Messages.of(messages)
        self.spans = spans if isinstance(spans, Spans) else Spans.of(spans)

    def __repr__(self) -> str:
        ranks = f"{self.world_size} rank{'s' if self.world_size > 1 else ''}"
        messages = f", {len(self.messages)} messages" if len(self.messages) else ""
        end = "" if self.is_complete else ", never finished"
        return f"<Trace {self.title}: {self.kind}, {ranks}{messages}, {format_time(self.elapsed)}{end}>"

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks with the kind, ranks, time, messages and bytes of the run.

        >>> Trace("broadcast/<naive>", "measured", 2, 1.5e-4)._repr_html_()[:32]
        '<table><caption>broadcast/&lt;na'
        """
        end = "" if self.is_complete else ", never finished"
        rows = {"kind": self.kind, "ranks": self.world_size, "took": f"{format_time(self.elapsed)}{end}"}
        rows |= {"messages": f"{len(self.messages):,}", "a rank sends at most": format_size(max(self.bytes_sent()))}
        cells = "".join(f"<tr><th>{key}</th><td>{escape(str(value))}</td></tr>" for key, value in rows.items())
        return f"<table><caption>{escape(self.title)}</caption>{cells}</table>"

    @property
    def is_complete(self) -> bool:
        """Whether all ranks finished. If False, ``elapsed`` is the time of the last event."""
        return not self.unfinished and not self.failed and self.failure is None

    def bytes_sent(self) -> list[int]:
        """Return the number of bytes that each rank sent.

        >>> from collectives import Message
        >>> Trace("broadcast/naive", "measured", 2, 1e-3, [Message(0, 1, 0, 0, 64, 0.0, 1e-3)]).bytes_sent()
        [64, 0]
        """
        sent = np.bincount(self.messages.src, self.messages.nbytes, self.world_size)
        return [int(nbytes) for nbytes in sent.tolist()]

    def of_program(self, program: Algorithm) -> "Trace":
        self.algorithm, self.program = name_in_library(program), program
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the content of a trace file. It can be written as JSON. Long columns are packed."""
        content = {column.name: getattr(self, column.name) for column in fields(Trace) if column.init}
        content |= {"messages": self.messages.to_plain(), "spans": self.spans.to_plain()}
        return {"schema_version": self.SCHEMA_VERSION, **content}

    def write(self, path: Path | str) -> None:
        """Write the trace to ``path`` as JSON, completely or not at all. Use ``read_trace`` to read it."""
        write_content(path, self.to_dict())


def name_in_library(algorithm: Algorithm) -> str:
    """Return the name with which ``find_algorithm`` finds one of Ringlab's own algorithms, or "" for another one."""
    return replace(algorithm, by_model=False).full_name if algorithm.is_builtin else ""


def read_trace(path: Path | str) -> Trace:
    """Read a trace from a file that ``Trace.write`` wrote. Raise InputError if the file is not a valid trace.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Trace("barrier/naive", "measured", 2, 1.5e-4).write(Path(folder, "barrier.trace.json"))
    ...     read_trace(Path(folder, "barrier.trace.json"))
    <Trace barrier/naive: measured, 2 ranks, 150 us>
    """
    trace = read_record(path, Trace, FileBytes.TRACE)
    for problem in _problems(trace):
        raise InputError(f"{path}: not a trace: {problem}")
    return trace


def _problems(trace: Trace) -> Iterator[str]:
    if trace.world_size < 1:
        yield f"world_size must be positive, not {trace.world_size}"
    if trace.elapsed and not LEAST_ELAPSED <= trace.elapsed <= MOST_SECONDS:
        yield f"elapsed must be 0, or {LEAST_ELAPSED:g} to {MOST_SECONDS:g} s, not {trace.elapsed}"
    if trace.hosts and len(trace.hosts) != trace.world_size:
        yield f"hosts must have {trace.world_size} entries, one per rank, not {len(trace.hosts)}"
    if trace.failure is not None and trace.failure.rank not in range(trace.world_size):
        yield f"failure: rank {trace.failure.rank} does not exist; there are {trace.world_size} ranks"
    yield from message_columns.find_problems(trace.messages, trace.world_size)
    yield from span_columns.find_problems(trace.spans, trace.world_size)
