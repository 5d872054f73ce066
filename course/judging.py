"""A learner's file judged: each exercise on virtual ranks, by its result, its bytes, its time, and that it ends."""

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import simcomm
from collectives.errors import InputError, RunFailed
from collectives.quoting import make_printable
from collectives.units import format_size, format_time
from course.checks.exercise import Exercise
from course.files import NOTE, PREDICTIONS, STACK, WAITED, Lesson
from replay.recording import CallKind
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.placement import place_round_robin
from virtual.hosting.host import MORE_TIME, VirtualHost
from virtual.options import VirtualOptions
from virtual.outcome import Finished
from virtual.process.programs import UserProgram

TRIAL_SECONDS = 60.0  # of real time, at most
MOST_TEXT = 2000  # characters of what is said


@dataclass(frozen=True)
class JudgedExercise:
    """What was found of one exercise: ``right``, ``wrong`` or ``to do``; where it is wrong, what, and in which line."""

    exercise: str
    state: str
    world_sizes: tuple[int, ...] = ()  # that passed
    text: str = ""
    line: int = 0
    source: str = ""  # of that line
    elapsed_s: float | None = None  # virtual, on the last world size
    sent_bytes: int | None = None  # by the busiest rank
    read: str = ""  # what to read where it is wrong


@dataclass(frozen=True)
class PredictedNumber:
    """What a learner has predicted, and what it is."""

    name: str
    is_so: float
    said: float | None = None


@dataclass(frozen=True)
class JudgedLesson:
    """A learner's file judged."""

    lesson: int
    file: str
    exercises: tuple[JudgedExercise, ...]
    predictions: tuple[PredictedNumber, ...]

    @property
    def is_right(self) -> bool:
        """Whether all exercises are."""
        return all(one.state == "right" for one in self.exercises)


def judge(lesson: Lesson, path: Path, host: VirtualHost, show: Callable[[str, str], object]) -> JudgedLesson:
    """Try every exercise of a lesson with a learner's file; ``show`` gets what the file prints."""
    found = [judge_exercise(lesson, path, host, show, exercise) for exercise in lesson.checks.EXERCISES]
    judged, said = [one for one, _ in found], {name: value for _, said in found for name, value in said.items()}
    wanted = lesson.checks.PREDICTED
    predictions = tuple(PredictedNumber(name, value, said.get(name)) for name, value in wanted.items())
    return JudgedLesson(lesson.number, str(path), tuple(judged), predictions)


def judge_exercise(
    lesson: Lesson,
    path: Path,
    host: VirtualHost,
    show: Callable[[str, str], object],
    exercise: Exercise,
) -> tuple[JudgedExercise, dict[str, float]]:
    """Try one exercise with a learner's file; return also the numbers that the file predicts."""
    trials = _Trials(lesson, path.resolve(), host, show, exercise)
    return trials.judge(), trials.said


def make_cluster(racks: int, world_size: int) -> Cluster:
    """Return the network of an exercise: 10 Gbit/s and 5 us a link, with racks a trunk that is no wider."""
    if racks:
        hosts = world_size // racks
        return place_round_robin(simcomm.two_level_tree(racks, hosts, "10 Gbit/s", "5 us", oversubscription=hosts))
    return simcomm.star(world_size, "10 Gbit/s", "5 us")


@dataclass
class _Trials:
    """One exercise, tried on one world size after the other until it is wrong; ``said`` are the file's predictions."""

    lesson: Lesson
    path: Path
    host: VirtualHost
    show: Callable[[str, str], object]
    exercise: Exercise
    said: dict[str, float] = field(default_factory=dict)
    waited: Counter[str] = field(default_factory=Counter)  # seconds of all ranks, by the learner's line

    def judge(self) -> JudgedExercise:
        name, passed = self.exercise.name, list[int]()
        elapsed, sent = None, None
        for world_size in self.exercise.world_sizes:
            found, finished = self._try(world_size)
            if finished is not None:
                elapsed, sent = finished.outcome.jobs[0].elapsed, most_sent(finished)
                found = found or next(self._too_much(world_size, finished, elapsed, sent), None)
                found = found or self._too_many(finished)
            if found is not None:
                on = f"on {world_size} rank{'s' * (world_size > 1)}: " if max(self.exercise.world_sizes) > 1 else ""
                line = found.get("line") or self._line_of(name)
                lines = f"{on}{found['text']}"[:MOST_TEXT].splitlines()
                text = "\n".join(map(make_printable, lines))
                state = "to do" if found.get("to_do") else "wrong"
                return JudgedExercise(
                    name,
                    state,
                    tuple(passed),
                    text,
                    line,
                    source=self._source(line),
                    elapsed_s=elapsed,
                    sent_bytes=sent,
                    read=self.exercise.read,
                )
            passed.append(world_size)
        return JudgedExercise(name, "right", tuple(passed), elapsed_s=elapsed, sent_bytes=sent)

    def _try(self, world_size: int) -> tuple[dict[str, Any] | None, Finished | None]:
        """Return what is wrong, if anything, and the run, if it came to an end."""
        with TemporaryDirectory(prefix="ringlab-learn-") as folder:
            asked = (str(self.path), str(self.lesson.number), self.exercise.name, folder)
            program = UserProgram("course.trial", asked, is_module=True)
            options = VirtualOptions(program, world_size, make_cluster(self.exercise.racks, world_size), timing="live")
            try:
                finished = self.host.run(options, timeout=TRIAL_SECONDS, show=self.show)
            except (InputError, RunFailed) as error:
                why = str(error).replace(program.title, "your file").removesuffix(MORE_TIME)
                return self._endless(Path(folder) / STACK, why), None
            notes = Path(folder)
            if (notes / PREDICTIONS).exists():
                self.said.update(json.loads((notes / PREDICTIONS).read_text()))
            self.waited = Counter()
            for rank in range(world_size):
                if (notes / WAITED.format(rank)).exists():
                    self.waited.update(json.loads((notes / WAITED.format(rank)).read_text()))
            for rank in range(world_size):
                if (notes / NOTE.format(rank)).exists():
                    found: dict[str, Any] = json.loads((notes / NOTE.format(rank)).read_text())
                    early = self._mistake(finished, ("never waited", "in flight"))  # why it is wrong
                    return (early | {"text": f"{found['text']}\n{early['text']}"} if early else found), finished
            return self._mistake(finished), finished

    def _endless(self, stack: Path, why: str) -> dict[str, Any]:
        """Return in which line a learner's function was when its seconds were over; else why there is no answer."""
        at = re.search(rf'File "{re.escape(str(self.path))}", line (\d+)', stack.read_text() if stack.exists() else "")
        if at is None:
            return {"text": f"there is no answer: {why}"}
        return {"text": "it does not end: the loop or call in this line goes on and on", "line": int(at[1])}

    def _mistake(self, finished: Finished, kinds: tuple[str, ...] = ()) -> dict[str, Any] | None:
        """Return what the virtual ranks found, of these kinds or any: a deadlock, calls that do not fit, ..."""
        for finding in finished.outcome.findings:
            if kinds and finding.kind not in kinds:
                continue
            lines = [site.line for _, site in finding.where if Path(site.file).resolve() == self.path]
            return {"text": finding.text, "line": (lines or [0])[0]}
        return None

    def _too_much(self, world_size: int, finished: Finished, elapsed: float, sent: int) -> Iterator[dict[str, Any]]:
        """Yield what a right result costs too much of, or too little."""
        exercise = self.exercise
        if exercise.least_bytes is not None and sent < exercise.least_bytes(world_size):
            least = format_size(int(exercise.least_bytes(world_size)))
            yield {
                "text": f"the result is right, but a rank sends {format_size(sent)}, less than {least}: {exercise.hint}"
            }
        if exercise.most_bytes is not None and sent > exercise.most_bytes(world_size):
            most = format_size(int(exercise.most_bytes(world_size)))
            yield {
                "text": f"the result is right, but a rank sends {format_size(sent)} where {most} do: {exercise.hint}",
                "line": self._busiest_line(finished),
            }
        if exercise.most_seconds is not None and elapsed > exercise.most_seconds(world_size):
            most = format_time(exercise.most_seconds(world_size))
            took = f"the result is right, but takes {format_time(elapsed)} where {most} do"
            (line, _), *_ = (*self.waited.most_common(1), ("0", 0.0))
            where = "; in this line ranks wait longest" if line != "0" else ""
            yield {"text": f"{took}: {exercise.hint}{where}", "line": int(line)}

    def _too_many(self, finished: Finished) -> dict[str, Any] | None:
        """Return that a rank calls more all_reduces than are needed, where it does."""
        recording, most = finished.recordings[0], self.exercise.most_all_reduces
        if recording is None or most is None:
            return None
        calls = recording.calls
        count = sum(recording.verbs[verb] == "all_reduce" for verb in calls.verb[calls.rank == 0])
        if count <= most:
            return None
        return {
            "text": f"the result is right, but a rank calls {count} all_reduces where {most} do: {self.exercise.hint}",
            "line": self._busiest_line(finished),
        }

    def _busiest_line(self, finished: Finished) -> int:
        """Return the learner's line that sends the most bytes, 0 where none of the file does."""
        recording = finished.recordings[0]
        if recording is None:
            return 0
        calls, sent = recording.calls, Counter[int]()
        for site, kind, nbytes in zip(calls.site.tolist(), calls.kind.tolist(), calls.nbytes.tolist(), strict=True):
            place = recording.sites[site]
            if kind != CallKind.RECV and Path(place.file).resolve() == self.path:
                sent[place.line] += nbytes
        return sent.most_common(1)[0][0] if sent else 0

    def _line_of(self, name: str) -> int:
        """Return the line in which a learner's function begins, 0 where it is not there."""
        try:
            nodes = ast.parse(self.path.read_bytes()).body
        except SyntaxError:
            return 0
        lines = [node.lineno for node in nodes if getattr(node, "name", None) == name]
        return (lines or [0])[-1]

    def _source(self, line: int) -> str:
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        return make_printable(lines[line - 1].strip()) if 0 < line <= len(lines) else ""


def most_sent(finished: Finished) -> int:
    """Return the bytes that the busiest rank has sent."""
    messages = finished.trace.messages if finished.trace is not None else None
    if messages is None or not len(messages):
        return 0
    return int(np.bincount(messages.src, weights=messages.nbytes).max())
