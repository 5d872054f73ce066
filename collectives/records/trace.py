"""The record of what happened, simulated or measured alike; every picture, table and figure is made from it.

Times are seconds from the common start. On disk a trace is JSON with a schema version, topology included.
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

LEAST_ELAPSED = 1e-30  # the shortest time other than 0 that a Trace file may give for a run, in seconds


class LinkRate(NamedTuple):
    """Payload rate of a link from a time on, in bytes per second: for one message, and for several together."""

    since: float
    alone: float
    shared: float


class TracedLink(NamedTuple):
    """One direction of a link as it was, and the bytes that crossed it.

    >>> rates = (LinkRate(0.0, 1e9, 1e9), LinkRate(2.0, 5e8, 5e8))  # half as wide from 2 s on
    >>> TracedLink("h0", "s0", bandwidth=1e9, latency=1e-6, nbytes=64, rates=rates).could_carry(3.0)
    2500000000.0
    """

    src: str
    dst: str
    bandwidth: float  # nominal: bytes per second, before transport and faults take their share
    latency: float
    nbytes: float
    rates: tuple[LinkRate, ...] = ()  # what was left of it, by time; empty: the nominal bandwidth all the time

    def could_carry(self, seconds: float) -> float:
        """Return the bytes of payload that it could have carried in the first ``seconds`` of the run."""
        rates = self.rates or (LinkRate(0.0, self.bandwidth, self.bandwidth),)
        ends = [*(rate.since for rate in rates[1:]), seconds]
        each = zip(rates, ends, strict=True)
        return sum(max(rate[1:]) * (min(end, seconds) - rate.since) for rate, end in each if rate.since < seconds)


class Unfinished(NamedTuple):
    """An operation that never completed: a rank that waits for its peer's half, or for a message that never arrived."""

    rank: int
    peer: int
    sends: bool
    step: int
    channel: int
    since: float
    is_under_way: bool
    chunk: int = 0  # first of those it sends, or is written to
    count: int = 1  # type: ignore[assignment]  # a tuple's count is nothing that anyone asks for
    collective: int = 0


class ProgramFailure(NamedTuple):
    """The failure of a rank program; the other ranks continue until they wait for the failed rank.

    >>> ProgramFailure(rank=0, step=1, where="my.py:9", text="its contribution would be counted twice").where
    'my.py:9'
    """

    rank: int
    step: int | None  # of its program, counted from 0; None where all programs end and the result is wrong
    where: str  # file and line that yields the step, such as "my.py:9"; empty where it is not known
    text: str
    at: float = 0.0  # seconds; from then on the rank does nothing
    lands: bool = False  # whether the step takes place, and what arrives in it is wrong
    circle: tuple[int, ...] = ()  # of a deadlock: the ranks that wait for each other, none of which has failed

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that are to be marked: the one that goes wrong, or all of a deadlock."""
        return self.circle or (self.rank,)

    @property
    def steps(self) -> int | None:
        """Number of steps of its program that the rank takes; None: as many as possible."""
        return None if self.circle or self.step is None else self.step + self.lands


@dataclass(repr=False)
class Trace:
    """The record of one run: messages, spans in which ranks computed, links, and the elapsed time.

    >>> Trace("all_reduce/ring", "predicted", world_size=8, elapsed=0.0147)
    <Trace all_reduce/ring: predicted, 8 ranks, 14.7 ms>

    ``messages`` and ``spans`` may be given as rows, and are kept as columns. ``facts`` are numbers that belong to the
    whole: for a collective ``nbytes``, ``time_min_s``, ``time_max_s``; for training ``batch_size``,
    ``single_rank_step_s`` and, where measured, ``test_accuracy`` and ``examples_seen``.
    """

    SCHEMA_VERSION: ClassVar[int] = 3

    title: str  # the algorithm's full name, or "training/ring"
    kind: Literal["predicted", "measured"]
    world_size: int
    elapsed: float  # first rank's start to last rank's end, seconds
    messages: Messages = field(default_factory=lambda: Messages.of(()))
    spans: Spans = field(default_factory=lambda: Spans.of(()))
    links: list[TracedLink] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # node of each rank
    facts: dict[str, float] = field(default_factory=dict)
    engine: str = ""  # what simulated it: "simpy" or "compiled"; of a measurement none
    method: str = ""  # how it did: "events", every message simulated, or the exact shortcut "max-plus"
    failed: dict[int, float] = field(default_factory=dict)  # ranks that failed, and when
    unfinished: list[Unfinished] = field(default_factory=list)  # of a run that never ends
    failure: ProgramFailure | None = None  # of a program that is wrong: what happened up to there is what it shows
    algorithm: str = ""  # by which ``find_algorithm`` finds the program; empty for a user's own
    root: int = 0
    chunks: int = 0  # into which the program cuts the buffer; 0: not known
    choice: str = ""  # of what NCCL does itself: its algorithm, protocol and channels
    program: Any = field(default=None, init=False, compare=False)  # an Algorithm, where it is at hand; in no file

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
        """Return the summary for a notebook: the run, its time, and the largest number of bytes sent by a rank.

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
        """Whether all ranks finished. If not, ``elapsed`` is the time of the last event."""
        return not self.unfinished and not self.failed and self.failure is None

    def bytes_sent(self) -> list[int]:
        """Return the bytes that each rank sent.

        >>> from collectives import Message
        >>> Trace("broadcast/naive", "measured", 2, 1e-3, [Message(0, 1, 0, 0, 64, 0.0, 1e-3)]).bytes_sent()
        [64, 0]
        """
        sent = np.bincount(self.messages.src, self.messages.nbytes, self.world_size)
        return [int(nbytes) for nbytes in sent.tolist()]

    def of_program(self, program: Algorithm) -> "Trace":
        """Keep which program this is a run of: its name where it is in the library, and for pictures itself."""
        self.algorithm, self.program = name_in_library(program), program
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the trace as its file holds it: plain JSON, long columns packed."""
        said = {one.name: getattr(self, one.name) for one in fields(Trace) if one.init}
        said |= {"messages": self.messages.to_plain(), "spans": self.spans.to_plain()}
        return {"schema_version": self.SCHEMA_VERSION, **said}

    def write(self, path: Path | str) -> None:
        """Write the trace to ``path`` as JSON, whole or not at all; ``read_trace`` reads it."""
        write_content(path, self.to_dict())


def name_in_library(algorithm: Algorithm) -> str:
    """Return the name by which ``find_algorithm`` finds an algorithm of the library; empty for a user's own.

    >>> from collectives import find_algorithm
    >>> name_in_library(find_algorithm("broadcast/chain[slices=4]"))
    'broadcast/chain[slices=4]'
    """
    return replace(algorithm, by_model=False).full_name if algorithm.is_builtin else ""


def read_trace(path: Path | str) -> Trace:
    """Return the trace in a file that ``Trace.write`` wrote. Raise InputError with the file and the error.

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
    """Yield the errors of an invalid trace: ranks that do not exist, and times that run backwards."""
    if trace.world_size < 1:
        yield f"world_size is {trace.world_size}"
    if trace.elapsed and not LEAST_ELAPSED <= trace.elapsed <= MOST_SECONDS:
        yield f"elapsed is {trace.elapsed}; give 0, or seconds from {LEAST_ELAPSED:g} to {MOST_SECONDS:g}"
    if trace.hosts and len(trace.hosts) != trace.world_size:
        yield f"hosts has {len(trace.hosts)} entries for {trace.world_size} ranks"
    if trace.failure is not None and trace.failure.rank not in range(trace.world_size):
        yield f"failure is of rank {trace.failure.rank} of {trace.world_size}"
    yield from message_columns.find_problems(trace.messages, trace.world_size)
    yield from span_columns.find_problems(trace.spans, trace.world_size)
