"""What a program on virtual ranks came to, as a command shows and writes it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from collectives.errors import InputError
from collectives.quoting import make_printable
from collectives.records.recording import Recording
from collectives.records.recording_builder import STEP
from collectives.records.trace import Trace
from collectives.units import count, format_size, format_time
from ringlab.session import Session
from ringlab.shared.answer import NOT_IN_JSON, Answer, AnswerRecord
from ringlab.shared.clusters import with_ranks
from ringlab.table import Line, Part, Row, Table
from simcomm.recorded.figures import mark_figures
from simcomm.recorded.replay import replay
from simcomm.recorded.replayed_run import ReplayedRun
from simcomm.recorded.traces import make_trace
from virtual.options import VirtualOptions
from virtual.outcome import Finished
from virtual.ranks.finding import ProgramFinding

FEW = 16  # ranks that have a row each
MANY_MESSAGES = 2_000_000  # more of which make no Trace


@dataclass(frozen=True)
class VirtualRank(AnswerRecord):
    """One rank's run, in seconds of virtual time."""

    rank: int
    finished_s: float
    computed_s: float
    waited_s: float
    called_bytes: int  # of the buffers and messages of its calls


@dataclass(frozen=True, repr=False)
class VirtualAnswer(Answer):
    """What a program on virtual ranks came to."""

    kind = "virtual"

    program: str
    cluster: str
    ranks: tuple[VirtualRank, ...]
    elapsed_s: float
    timing: str  # "live", "replayed", or "none" of a run that was stopped
    jobs: int
    steps: int = 0  # between the ends of an optimizer's steps
    step_s: float | None = None  # what one takes in the mean
    findings: tuple[ProgramFinding, ...] = ()
    notes: tuple[str, ...] = ()
    real_s: float = 0.0
    recording: Recording | None = field(default=None, metadata=NOT_IN_JSON)
    replayed: ReplayedRun | None = field(default=None, metadata=NOT_IN_JSON)
    live: Trace | None = field(default=None, metadata=NOT_IN_JSON)  # of a run that was timed meanwhile

    @classmethod
    def of(cls, finished: Finished, options: VirtualOptions) -> "VirtualAnswer":
        """Return the answer of a run; one that was only recorded is replayed on the cluster."""
        outcome = finished.outcome
        place = _last_with_ranks(finished)
        job, recording = outcome.jobs[place], finished.recordings[place]
        run = None
        if finished.trace is None and recording is not None:
            run = replay(recording, with_ranks(options.cluster, recording.world_size), options.algorithms)
        steps = job.steps if run is None else _replayed_steps(run)
        return cls(
            program=outcome.title,
            cluster=options.cluster.title,
            ranks=_ranks(job.ranks, run, recording),
            elapsed_s=job.elapsed if run is None else run.elapsed,
            timing="none" if job.finding is not None else "live" if run is None else "replayed",
            jobs=len(outcome.jobs),
            steps=len(steps),
            step_s=fmean(steps) if steps else None,
            findings=outcome.findings,
            notes=() if run is None else tuple(run.carrier.notes),
            real_s=outcome.seconds,
            recording=recording,
            replayed=run,
            live=finished.trace,
        )

    @property
    def trace(self) -> Trace | None:
        """All messages of the run; None where there are none, or too many."""
        if self.replayed is None or len(self.replayed.message_end) > MANY_MESSAGES:
            return self.live
        return make_trace(self.replayed)

    def __repr__(self) -> str:
        end = f", {self.findings[0].kind}" if self.findings else ""
        return (
            f"<VirtualAnswer of {self.program}: {count(len(self.ranks), 'rank')}, {format_time(self.elapsed_s)}{end}>"
        )

    def writers(
        self, trace: Path | None, recording: Path | None, player: Path | None
    ) -> Iterator[Callable[[], object]]:
        """Yield what writes the files that are asked for. Raises InputError for what there is not."""
        if recording is not None:
            yield partial(self._there(self.recording, recording).write, recording)
        if trace is not None:
            yield partial(self._there(self.trace, trace).write, trace)
        if player is not None:
            from ringlab.commands.draw import draw_trace  # imports what draws

            yield partial(draw_trace, self._there(self.trace, player), player, Session())

    def _there(self, found: Any, path: Path) -> Any:
        if found is None:
            why = "the run has gone wrong" if self.findings else "the program made no group, or has too many messages"
            raise InputError(f"{path}: there is nothing to write, as {why}")
        return found

    def show(self) -> Iterator[Part]:
        """Yield when ranks were through, who waited, and what is wrong."""
        if self.timing != "none":
            how = f"on {self.cluster}, " + ("timed while it ran" if self.timing == "live" else "replayed")
            yield Line(f"{self.program}: {format_time(self.elapsed_s)} of virtual time {how}", "bold")
            if self.step_s is not None:
                yield Line(f"a step takes {format_time(self.step_s)} in the mean of {self.steps}")
            yield Table(None, ["", "finished", "computed", "waited", "called"], [*self._rows()])
        for finding in self.findings:
            first, *others = finding.text.splitlines()
            yield Line(make_printable(first), "bold")
            yield from (Line(make_printable(line)) for line in others)

    def _rows(self) -> Iterator[Row]:
        if len(self.ranks) <= FEW:
            for one in self.ranks:
                yield _row(f"rank {one.rank}", one)
            return
        keys = {
            "first through": lambda one: one.finished_s,
            "last through": lambda one: -one.finished_s,
            "waited most": lambda one: -one.waited_s,
            "computed most": lambda one: -one.computed_s,
        }
        for words, key in keys.items():
            one = min(self.ranks, key=key)
            yield _row(f"rank {one.rank}, {words}", one)


def _last_with_ranks(finished: Finished) -> int:
    """Return the number of the last job that communicated, else of the last that has ranks."""
    recorded = [place for place, one in enumerate(finished.recordings) if one is not None]
    ranked = [place for place, job in enumerate(finished.outcome.jobs) if job.ranks]
    return (recorded or ranked or [0])[-1]


def _replayed_steps(run: ReplayedRun) -> list[float]:
    """Return what each step took in a replay, a mean for all."""
    return [one.mean_s for one in mark_figures(run) if one.name == STEP for _ in range(one.number)]


def _ranks(found: Sequence[Any], run: ReplayedRun | None, recording: Recording | None) -> tuple[VirtualRank, ...]:
    called = [0.0] * len(found)
    if recording is not None:
        called = np.bincount(recording.calls.rank, recording.calls.nbytes, len(found)).tolist()
    rows = []
    for place, one in enumerate(found):
        finished = one.finished if run is None else float(run.finished[place])
        waited = one.waited if run is None else max(0.0, finished - one.computed)
        rows.append(VirtualRank(one.number, finished, one.computed, waited, int(called[place])))
    return tuple(rows)


def _row(name: str, one: VirtualRank) -> Row:
    times = [format_time(seconds) for seconds in (one.finished_s, one.computed_s, one.waited_s)]
    return [name, *times, format_size(one.called_bytes)]
