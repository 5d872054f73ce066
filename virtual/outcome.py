"""The result of a run on virtual ranks, and its files."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

from collectives.records.files import read_record, write_record
from collectives.records.spans import Span, Spans
from collectives.records.trace import ProgramFailure, Trace, Unfinished, read_trace
from replay.recording import Recording, read_recording
from virtual.ranks.finding import STARTER, ProgramFinding

OUTCOME, TRACE, RECORDING = "outcome.json", "trace.json", "recording-{}.json"


@dataclass(frozen=True)
class RankOutcome:
    """One rank's times, in seconds of virtual time."""

    number: int
    finished: float
    computed: float
    waited: float


@dataclass(frozen=True)
class JobOutcome:
    """The result of ranks that were started together. Without live timing, their times exclude communication."""

    ranks: tuple[RankOutcome, ...]
    finding: ProgramFinding | None = None
    is_recorded: bool = False
    has_group: bool = False  # a rank has created a process group
    has_called: bool = False  # a rank has called a collective or sent a message, even an empty one
    steps: tuple[float, ...] = ()  # times between optimizer steps of all ranks, in seconds

    @property
    def elapsed(self) -> float:
        return max((rank.finished for rank in self.ranks), default=0.0)


@dataclass(frozen=True)
class VirtualOutcome:
    """The result of a program: its jobs and its errors. A program that starts no processes has one job."""

    SCHEMA_VERSION: ClassVar[int] = 1

    title: str
    jobs: tuple[JobOutcome, ...]
    is_live: bool  # with live timing
    findings: tuple[ProgramFinding, ...] = ()
    seconds: float = 0.0  # wall-clock time of the run

    @property
    def status(self) -> int:
        """The exit status: 1 if there are findings, otherwise 0."""
        return int(bool(self.findings))


class Finished(NamedTuple):
    """A run's result, with a Recording for each job that communicated, and a Trace if times were simulated live."""

    outcome: VirtualOutcome
    recordings: tuple[Recording | None, ...]  # by job
    trace: Trace | None

    def write(self, folder: Path) -> None:
        """Write the result to files in ``folder``. The file of the outcome is written last."""
        for number, recording in enumerate(self.recordings):
            if recording is not None:
                recording.write(folder / RECORDING.format(number))
        if self.trace is not None:
            self.trace.write(folder / TRACE)
        write_record(folder / OUTCOME, self.outcome)


def read_finished(folder: Path) -> Finished:
    """Return a result written by ``Finished.write``. Raise InputError if a file is missing or invalid."""
    outcome = read_record(folder / OUTCOME, VirtualOutcome)
    recordings = tuple(
        read_recording(folder / RECORDING.format(number)) if job.is_recorded else None
        for number, job in enumerate(outcome.jobs)
    )
    trace = read_trace(folder / TRACE) if outcome.is_live else None
    return Finished(outcome, recordings, trace)


SHORTEST = 1e-6  # seconds; displayed duration of a run without events


def mark_failure(trace: Trace, finding: ProgramFinding) -> Trace:
    """Return the trace with the finding as its failure. In an empty trace, each blocked rank also gets a span."""
    elapsed = trace.elapsed or SHORTEST
    places = [place for place in finding.places if place.ranks and STARTER not in place.ranks]
    if not places:
        return trace
    waiting = [
        Span(rank, place.what.partition("(")[0], 0, 0.0, elapsed)
        for place in places
        if place.site is not None
        for rank in place.ranks
    ]
    spans = trace.spans if len(trace.messages) or len(trace.spans) else Spans.of(waiting).sorted()
    where = str(places[0].site) if places[0].site is not None else ""
    rank = finding.circle[0] if finding.circle else places[0].ranks[0]
    text = f"deadlock: {finding.title}" if finding.circle else finding.title
    failure = ProgramFailure(rank, None, where, text, elapsed, circle=finding.circle)
    return replace(trace, elapsed=elapsed, spans=spans, failure=failure, unfinished=_waits(finding, spans))


def _waits(finding: ProgramFinding, spans: Spans) -> list[Unfinished]:
    doing = {rank: place.what.partition("(")[0] for place in finding.places for rank in place.ranks}
    last = {span.rank: span for span in spans}
    pairs = zip(finding.circle, (*finding.circle[1:], *finding.circle[:1]), strict=True)
    unfinished = []
    for rank, peer in pairs:
        verb = doing.get(rank, "")
        unfinished.append(Unfinished(rank, peer, verb in ("send", "isend"), 0, 0, _since(last.get(rank), verb), False))
    return unfinished


def _since(last: Span | None, doing: str) -> float:
    """Return when a rank began to wait: at the start of its last span if the span is the wait, else at its end."""
    if last is None:
        return 0.0
    return last.begin if last.name == doing else last.end
