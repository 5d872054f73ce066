"""Check each exercise of a learner's file on virtual ranks: its result, calls, bytes and time."""

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import simcomm
from collectives.errors import InputError, RunFailed
from collectives.quoting import make_printable
from collectives.units import format_size, format_time
from course.checks.exercise import Exercise, LearnerCall, Predicted
from course.files import NOTES, STACK, Lesson
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.placement import place_round_robin
from virtual.hosting.host import MORE_TIME, VirtualHost
from virtual.options import VirtualOptions
from virtual.outcome import Finished
from virtual.process.programs import UserProgram

TRIAL_SECONDS = 60.0  # wall-clock limit of a trial that blocks; a loop reaches the limit of CPU time earlier
MOST_TEXT = 2000  # maximum characters of an error
NO_NOTES: dict[str, Any] = {"error": None, "predictions": {}, "waited": {}, "calls": [], "measured": []}


@dataclass(frozen=True)
class JudgedExercise:
    """The result of one exercise: its state (``right``, ``wrong`` or ``to do``), error, line, time and bytes."""

    exercise: str
    state: str
    world_sizes: tuple[int, ...] = ()  # world sizes that passed
    text: str = ""
    line: int = 0
    source: str = ""  # the text of the line
    cell: int = 0  # the code cell that has the line, if the file is a notebook
    elapsed_s: float | None = None  # virtual time of the slowest measured call, on the last world size
    sent_bytes: int | None = None  # by the busiest rank in one measured call
    read: str = ""  # what to read after a wrong answer


@dataclass(frozen=True)
class JudgedLesson:
    """The results of all exercises and predictions in a learner's file."""

    lesson: int
    file: str
    exercises: tuple[JudgedExercise, ...]
    predictions: tuple[Predicted, ...]

    @property
    def is_right(self) -> bool:
        return all(exercise.state == "right" for exercise in self.exercises)


def make_cluster(racks: int, world_size: int) -> Cluster:
    """Return the network of an exercise: a star, or racks joined by a trunk with the bandwidth of one host's link."""
    if racks:
        hosts = world_size // racks
        return place_round_robin(simcomm.two_level_tree(racks, hosts, "10 Gbit/s", "5 us", oversubscription=hosts))
    return simcomm.star(world_size, "10 Gbit/s", "5 us")


class _Trial:
    """A finished run of an exercise, with the calls, measured blocks and waiting times of all ranks."""

    def __init__(self, finished: Finished, folder: Path, world_size: int) -> None:
        self.finished = finished
        files = [folder / NOTES.format(rank) for rank in range(world_size)]
        self.notes = [json.loads(file.read_text()) if file.exists() else NO_NOTES for file in files]
        self.calls = [[LearnerCall(*call) for call in notes["calls"]] for notes in self.notes]
        # begin and end of each block on every rank, for blocks that all ranks have completed
        self.blocks = list(zip(*(notes["measured"] for notes in self.notes), strict=False))
        self.waited = sum((Counter(notes["waited"]) for notes in self.notes), Counter[str]())  # seconds by line

    @property
    def error(self) -> dict[str, Any] | None:
        return next((notes["error"] for notes in self.notes if notes["error"]), None)

    @property
    def elapsed(self) -> float | None:
        """The seconds of the slowest measured block, from the first rank's start to the last rank's end."""
        return max(
            (max(end for _, end in block) - min(begin for begin, _ in block) for block in self.blocks), default=None
        )

    @property
    def most_sent(self) -> int:
        """The maximum bytes that a rank sends in one measured block."""
        messages = self.finished.trace.messages if self.finished.trace is not None else None
        most = 0
        if messages is None or not len(messages):
            return most
        posted = np.where(np.isnan(messages.src_posted), messages.begin, messages.src_posted)
        for block in self.blocks:
            begin, end = np.array(block).T
            inside = (posted >= begin[messages.src] - 1e-12) & (posted < end[messages.src] - 1e-12)
            if inside.any():
                most = max(most, int(np.bincount(messages.src[inside], weights=messages.nbytes[inside]).max()))
        return most

    def busiest_line(self) -> int:
        """Return the line whose sends and collectives have the most bytes, or 0 if there are none."""
        sent = Counter[int]()
        for call in chain.from_iterable(self.calls):
            if call.receiver >= 0 or call.name not in ("recv", "irecv"):
                sent[call.line] += call.nbytes
        return sent.most_common(1)[0][0] if sent else 0


@dataclass
class Judge:
    """Checks the exercises of a lesson in a learner's file. ``show`` receives the file's output."""

    lesson: Lesson
    path: Path
    host: VirtualHost
    show: Callable[[str, str], object] = lambda stream, text: None
    predictions: dict[str, float] = field(default_factory=dict)

    def judge(self) -> JudgedLesson:
        exercises = tuple(self.judge_exercise(exercise) for exercise in self.lesson.exercises)
        predictions = tuple(
            replace(right, name=name, answer=self.predictions.get(name))
            for name, right in self.lesson.checks.predicted().items()
        )
        return JudgedLesson(self.lesson.number, str(self.path), exercises, predictions)

    def judge_exercise(self, exercise: Exercise) -> JudgedExercise:
        """Check one exercise at each world size until a check fails."""
        judged = JudgedExercise(exercise.name, "right")
        for world_size in exercise.world_sizes:
            trial, error = self._try(exercise, world_size)
            if trial is not None:
                judged = replace(judged, elapsed_s=trial.elapsed, sent_bytes=trial.most_sent)
                if error is None or not error.get("to_do"):
                    error = next(_wrong_calls(exercise, trial, world_size), None) or error
                error = error or next(_wrong_cost(exercise, trial, world_size), None)
            if error is not None:
                on = f"on {world_size} rank{'s' * (world_size > 1)}: " if max(exercise.world_sizes) > 1 else ""
                line = error.get("line") or self._line_of(exercise.name)
                text = "\n".join(map(make_printable, f"{on}{error['text']}"[:MOST_TEXT].splitlines()))
                state, source = "to do" if error.get("to_do") else "wrong", self._source(line)
                return replace(judged, state=state, text=text, line=line, source=source, read=exercise.read)
            judged = replace(judged, world_sizes=(*judged.world_sizes, world_size))
        return judged

    def _try(self, exercise: Exercise, world_size: int) -> tuple[_Trial | None, dict[str, Any] | None]:
        """Run the check on virtual ranks. Return the run (None if it failed) and the error (None if correct)."""
        path = self.path.resolve()
        with TemporaryDirectory(prefix="ringlab-learn-") as folder:
            program = UserProgram(
                "course.trial", (str(path), str(self.lesson.number), exercise.name, folder), is_module=True
            )
            options = VirtualOptions(program, world_size, make_cluster(exercise.racks, world_size), timing="live")
            try:
                finished = self.host.run(options, timeout=TRIAL_SECONDS, show=self.show)
            except (InputError, RunFailed) as failure:
                stack = Path(folder, STACK).read_text() if Path(folder, STACK).exists() else ""
                if at := re.search(rf'File "{re.escape(str(path))}", line (\d+)', stack):
                    text = "endless: the loop or call in this line does not end"
                    return None, {"text": text, "line": int(at[1])}
                why = str(failure).replace(program.title, "your file").removesuffix(MORE_TIME)
                return None, {"text": f"no result: {why}"}
            trial = _Trial(finished, Path(folder), world_size)
        self.predictions |= trial.notes[0]["predictions"]
        if (error := trial.error) is None:
            return trial, self._mistake(finished)
        causes = () if error.get("is_explained") else ("missing wait", "buffer in use")
        cause = self._mistake(finished, causes) if causes else None
        return trial, cause | {"text": f"{error['text']}\n{cause['text']}"} if cause else error

    def _mistake(self, finished: Finished, kinds: tuple[str, ...] = ()) -> dict[str, Any] | None:
        for finding in finished.outcome.findings:
            if kinds and finding.kind not in kinds:
                continue
            lines = [place.line for _, place in finding.where if Path(place.file).resolve() == self.path.resolve()]
            return {"text": finding.text, "line": (lines or [0])[0]}
        return None

    def _line_of(self, name: str) -> int:
        try:
            nodes = ast.parse(self.path.read_bytes()).body
        except SyntaxError:
            return 0
        lines = [node.lineno for node in nodes if getattr(node, "name", None) == name]
        return (lines or [0])[-1]

    def _source(self, line: int) -> str:
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        return make_printable(lines[line - 1].strip()) if 0 < line <= len(lines) else ""


def _wrong_calls(exercise: Exercise, trial: _Trial, world_size: int) -> Iterator[dict[str, Any]]:
    allowed, receivers = exercise.calls, exercise.receivers
    for rank, calls in enumerate(trial.calls):
        for call in calls:
            if allowed is not None and call.name not in allowed:
                names = [f"dist.{name}" for name in sorted(allowed)]
                only = f"use only {', '.join(names[:-1])} and {names[-1]}"
                yield {"text": f"dist.{call.name} is not allowed in this exercise; {only}", "line": call.line}
            if receivers is not None and call.receiver >= 0 and call.receiver not in receivers(rank, world_size):
                to = " or ".join(map(str, sorted(receivers(rank, world_size)))) or "none"
                yield {"text": f"rank {rank} sends to rank {call.receiver}, not to {to}", "line": call.line}


def _wrong_cost(exercise: Exercise, trial: _Trial, world_size: int) -> Iterator[dict[str, Any]]:
    elapsed, sent, busy = trial.elapsed or 0.0, trial.most_sent, trial.busiest_line()
    if exercise.least_bytes is not None and sent < exercise.least_bytes(world_size):
        least = format_size(int(exercise.least_bytes(world_size)))
        yield {"text": f"the result is right, but a rank sends {format_size(sent)}, less than {least}: {exercise.hint}"}
    if exercise.most_bytes is not None and sent > exercise.most_bytes(world_size):
        most = format_size(int(exercise.most_bytes(world_size)))
        yield {
            "text": f"the result is right, but a rank sends {format_size(sent)}; {most} is enough: {exercise.hint}",
            "line": busy,
        }
    if exercise.all_reduced is not None:
        wanted = sorted(exercise.all_reduced(world_size))
        got = sorted(call.nbytes for call in trial.calls[0] if call.name == "all_reduce")
        if got != wanted:
            number = f"{len(got)} all_reduces, not {len(wanted)}"
            different = f"all_reduces of {_sizes(got)}, not of {_sizes(wanted)}"
            calls = number if len(got) != len(wanted) else different
            text = f"the result is right, but a rank calls {calls}: {exercise.hint}"
            yield {"text": text, "line": busy}
    if exercise.most_seconds is not None and elapsed > exercise.most_seconds(world_size):
        most = format_time(exercise.most_seconds(world_size))
        slow_text = f"the result is right, but takes {format_time(elapsed)}; {most} is enough"
        (line, _), *_ = (*trial.waited.most_common(1), ("0", 0.0))
        where = "; ranks wait longest in this line" if line != "0" else ""
        yield {"text": f"{slow_text}: {exercise.hint}{where}", "line": int(line)}


def _sizes(nbytes: list[int]) -> str:
    """Format sizes as text, and combine equal sizes.

    >>> _sizes([100, 100, 7])
    '2 x 100 B, 7 B'
    """
    counts = Counter(nbytes)
    return ", ".join(f"{count} x " * (count > 1) + format_size(size) for size, count in counts.items())
