"""The result of a run on virtual ranks, and the files that pass it to the process that started the run."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from collectives.records.files import read_record, write_record
from collectives.records.trace import Trace, read_trace
from replay.recording import Recording, read_recording
from virtual.ranks.finding import ProgramFinding

OUTCOME, TRACE, RECORDING = "outcome.json", "trace.json", "recording-{}.json"


@dataclass(frozen=True)
class RankOutcome:
    """One rank's times, in seconds of virtual time."""

    number: int
    finished: float
    computed: float
    waited: float


@dataclass(frozen=True, repr=False)
class JobOutcome:
    """The result of ranks that were started together. In a recorded run, times only include compute until a replay."""

    ranks: tuple[RankOutcome, ...]
    finding: ProgramFinding | None = None
    is_recorded: bool = False
    has_group: bool = False  # a rank has created a process group
    has_called: bool = False  # a rank has called a collective or sent a message, even an empty one
    steps: tuple[float, ...] = ()  # times between optimizer steps of all ranks, in seconds

    @property
    def elapsed(self) -> float:
        """The time when the last rank ended, in seconds."""
        return max((rank.finished for rank in self.ranks), default=0.0)

    def __repr__(self) -> str:
        end = f", {self.finding.kind}" if self.finding is not None else ""
        return f"<JobOutcome: {len(self.ranks)} ranks, {self.elapsed:.6g} s{end}>"


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
        """Write the result into files of a folder, the outcome last."""
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
