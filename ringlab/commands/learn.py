"""``ringlab learn``: the lessons of the course: opened, judged on virtual ranks, shown in the player, graded."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

import simcomm
from collectives.errors import InputError
from collectives.output_files import write_text
from collectives.quoting import quote
from collectives.units import format_size, format_time
from course.checks.exercise import times
from course.files import LESSONS, Lesson, find_lesson, lesson_of
from course.judging import JudgedExercise, JudgedLesson, PredictedNumber, judge, make_cluster
from realcomm.launching.torch_process import check_torch
from ringlab.commands.measuring.record import RecordAnswer, record_program
from ringlab.pictures.held_buffers import find_wrong_end, play_contents
from ringlab.shared.answer import Answer
from ringlab.shared.options import JsonOpt, with_groups
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.ranges import MOST_CASES
from ringlab.table import Cell, Line, Part, Row, Table
from scenarios import load
from simcomm.cluster.cluster import Cluster
from virtual.hosting.host import VirtualHost, show_on_own
from virtual.options import VirtualOptions
from virtual.outcome import Finished
from virtual.process.programs import UserProgram
from viz.file_types import check_file
from viz.player.page import write_player
from viz.player.runs import PlayedRun

NEAR = 0.05  # a prediction is right within
REAL_SECONDS = 120.0  # at most, of a run on real ranks
STATES = {"right": "good", "to do": "fair", "wrong": "poor"}


@dataclass(frozen=True)
class WayOptions:
    """What is done with a lesson in place of opening it: one of four ways."""

    is_checked: Annotated[bool, typer.Option("--check", help="Check your file on virtual ranks.")] = False
    is_shown: Annotated[
        bool, typer.Option("--show", help="Run your file and write a player that animates its messages.")
    ] = False
    real: Annotated[int | None, typer.Option(min=2, metavar="N", help="Run your file on N real ranks over gloo.")] = (
        None
    )
    grade: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Check all lesson files in FOLDER and its subfolders.")
    ] = None

    def __post_init__(self) -> None:
        if sum((self.is_checked, self.is_shown, self.real is not None, self.grade is not None)) > 1:
            raise InputError("--check, --show, --real and --grade are mutually exclusive")


@with_groups
def command(
    number: Annotated[
        int | None, typer.Argument(metavar="[LESSON]", help="Lesson number, 1 to 11. Default: list all lessons.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Your file. Default: the lesson's file in the current directory."),
    ] = None,
    *,
    way: WayOptions,
    on: Annotated[str | None, typer.Option(metavar="SCENARIO", help="Cluster to use with --show.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Player file to write with --show.")
    ] = None,
    json_to: JsonOpt = None,
) -> None:
    """Learn collectives and distributed training in eleven lessons. Without a number, list them.

    A lesson is a torch.distributed program with functions for you to complete. `ringlab learn 4` copies lesson 4 to the
    current directory.
    """
    if number is None and (way.is_checked or way.is_shown or way.real is not None):
        raise InputError("no lesson given; pass its number, such as `ringlab learn 4 --check`")
    if (on is not None or output is not None) and not way.is_shown:
        raise InputError("--on and -o require --show")
    check_outputs(json_to, output)
    if way.grade is not None:
        answer: Answer = grade_folder(way.grade, number)
    elif number is None:
        answer = ListedLessons(tuple(ListedLesson(one.number, one.title, one.file_name) for one in LESSONS))
    elif way.is_checked:
        answer = check_lesson(number, file)
    elif way.real is not None:
        answer = run_lesson(number, file, way.real)
    elif way.is_shown:
        answer = show_lesson(number, file, on, output)
    else:
        answer = open_lesson(number, file)
    deliver(answer, json_to)
    if isinstance(answer, CheckedLessons) and not answer.is_right:
        raise typer.Exit(1)


@dataclass(frozen=True)
class ListedLesson:
    """A lesson of the list."""

    number: int
    title: str
    file: str


@dataclass(frozen=True)
class ListedLessons(Answer):
    """What lessons there are."""

    kind = "lessons"

    lessons: tuple[ListedLesson, ...]

    def show(self) -> Iterator[Part]:
        rows = [[str(one.number), one.title, one.file] for one in self.lessons]
        yield Table("The course", ["lesson", "", "file"], rows, words=2)
        yield "`ringlab learn 1` writes the first one here; then --check and --show."


@dataclass(frozen=True)
class OpenedLesson(Answer):
    """A lesson's file, written to begin with."""

    kind = "lesson"

    lesson: int
    file: str

    def show(self) -> Iterator[Part]:
        yield Line(f"written: {self.file}")
        yield f"Read it, predict, write the functions; then `ringlab learn {self.lesson} --check`."


def open_lesson(number: int, file: Path | None = None) -> OpenedLesson:
    """Write a lesson's skeleton. Raises InputError for a file that is there already."""
    lesson = find_lesson(number)
    target = file or Path(lesson.file_name)
    if target.exists():
        raise InputError(f"{target} already exists; choose another file, or --check it")
    write_text(target, lesson.skeleton)
    return OpenedLesson(number, str(target))


@dataclass(frozen=True)
class CheckedLessons(Answer):
    """Learners' files, judged."""

    kind = "checked lessons"

    files: tuple[JudgedLesson, ...]
    left_out: tuple[str, ...] = ()  # files that are no lesson's

    @property
    def is_right(self) -> bool:
        """Whether everything is."""
        return all(file.is_right for file in self.files)

    def show(self) -> Iterator[Part]:
        if len(self.files) == 1:
            yield from _show_one(self.files[0])
            return
        rows = []
        for file in self.files:
            right = sum(one.state == "right" for one in file.exercises)
            wrong = next((one for one in file.exercises if one.state != "right"), None)
            said = f"{wrong.exercise}: {_first_line(wrong)}" if wrong is not None else ""
            rows.append([file.file, str(file.lesson), f"{right} of {len(file.exercises)}", said])
        yield Table("Lessons, judged", ["file", "lesson", "right", "the first that is not"], rows, words=4)
        if self.left_out:
            yield f"No lesson by their names: {', '.join(self.left_out)}."


def _show_one(file: JudgedLesson) -> Iterator[Part]:
    rows: list[Row] = []
    for one in file.exercises:
        passed = ", ".join(map(str, one.world_sizes)) or "-"
        took = format_time(one.elapsed_s) if one.elapsed_s else "-"
        sent = format_size(one.sent_bytes) if one.sent_bytes else "-"
        rows.append([one.exercise, Cell(one.state, STATES[one.state]), passed, took, sent])
    headings = ["exercise", "is", "right with\nworld_size", "virtual time", "sent by a rank"]
    yield Table(f"Lesson {file.lesson}: {find_lesson(file.lesson).title}", headings, rows, words=1)
    for one in file.exercises:
        if one.state == "to do":
            yield Line(f"{one.exercise} is to do: line {one.line}")
        elif one.state == "wrong":
            where = f", line {one.line}: {one.source}" if one.line else ""
            yield Line(f"{one.exercise}{where}", "bold", wrap=True)
            for line in one.text.splitlines():
                yield Line(f"  {line}", wrap=True)
            yield Line(f"  To read: {one.read}.", wrap=True)
    said = [one for one in file.predictions if one.said is not None]
    unsaid = [repr(one.name) for one in file.predictions if one.said is None]
    if said and not file.is_right:
        yield "Your predictions will stand beside what is so when all exercises are right."
    if said and file.is_right:
        beside = [[one.name, f"{one.said:.4g}", f"{one.is_so:.4g}", _off(one)] for one in said]
        yield Table("Your predictions", ["", "predicted", "is", "predicted is"], beside, words=1)
    if unsaid and file.is_right:
        yield f"No number in PREDICTIONS for {', '.join(unsaid)}."


def _off(one: PredictedNumber) -> str:
    """Return how a prediction compares with what is so.

    >>> _off(PredictedNumber("seconds", 2.0, 1.0)), _off(PredictedNumber("seconds", 2.0, 5.0))
    ('half of that', '2.5 times that')
    >>> _off(PredictedNumber("ranks that end", 4.0, 0.0))
    'not that'
    """
    ratio = (one.said or 0.0) / one.is_so if one.is_so else inf
    if one.said == one.is_so or abs(ratio - 1) <= NEAR:
        return "right"
    return times(ratio, NEAR) or (f"{ratio:.2g} times that" if ratio and isfinite(ratio) else "not that")


def _first_line(one: JudgedExercise) -> str:
    if one.state != "wrong" or not one.text:
        return one.state
    return f"line {one.line}: " * bool(one.line) + one.text.splitlines()[0]


def check_lesson(number: int, file: Path | None = None) -> CheckedLessons:
    """Judge a learner's file. Raises InputError for one that is not there."""
    lesson = find_lesson(number)
    mine = _mine(lesson, file)
    try:
        ast.parse(mine.read_bytes(), str(mine))
    except SyntaxError as error:
        raise InputError(f"{mine}: line {error.lineno}: {error.msg}; nothing was checked") from error
    except ValueError as error:
        raise InputError(f"{mine}: {error}; nothing was checked") from error
    check_torch()
    with VirtualHost() as host:
        return CheckedLessons((judge(lesson, mine, host, show_on_own),))


def grade_folder(folder: Path, number: int | None = None) -> CheckedLessons:
    """Judge all files of lessons, or of one, in a folder and those in it. Raises InputError where there is none."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a directory")
    files = sorted(path for path in folder.rglob("*.py") if path.is_file())
    lessons = LESSONS if number is None else (find_lesson(number),)
    found = {path: lesson for path in files if (lesson := lesson_of(path)) in lessons}
    if not found:
        which = "a lesson's" if number is None else f"lesson {number}'s"
        raise InputError(f"{folder}: no file is named like {which}, such as {lessons[0].file_name}")
    if len(found) > MOST_CASES:
        raise InputError(f"{folder}: {len(found)} lesson files; the maximum is {MOST_CASES:,}")
    check_torch()
    with VirtualHost() as host:
        judged = tuple(judge(lesson, path, host, lambda *printed: None) for path, lesson in found.items())
    return CheckedLessons(judged, tuple(str(path.relative_to(folder)) for path in files if lesson_of(path) is None))


@dataclass(frozen=True)
class ShownLesson(Answer):
    """A learner's run on virtual ranks, and its player."""

    kind = "shown lesson"

    lesson: int
    ranks: int
    elapsed_s: float
    findings: tuple[str, ...]
    player: str

    def show(self) -> Iterator[Part]:
        yield Line(f"{self.ranks} virtual rank{'s' * (self.ranks > 1)} took {format_time(self.elapsed_s)}")
        for finding in self.findings:
            for line in finding.splitlines():
                yield Line(line)
        if self.player:
            yield Line(f"written: {self.player}")
        else:
            yield Line("no message was simulated, so that there is no player")


def show_lesson(number: int, file: Path | None, on: str | None, output: Path | None) -> ShownLesson:
    """Run a learner's file on virtual ranks and write a player of its messages, beside the library's algorithm."""
    lesson = find_lesson(number)
    mine, shown = _mine(lesson, file), lesson.shown
    player = output or mine.with_suffix(".html")
    if player.resolve() == mine.resolve():
        raise InputError(f"{player} is your file; choose another file for the player")
    check_file(player, "a player")
    cluster = make_cluster(shown.racks, shown.ranks) if on is None else load(on, []).cluster
    check_torch()
    with VirtualHost() as host:
        finished, runs = play_lesson(lesson, mine, cluster, host)
    if runs:
        write_player(f"Lesson {number}: {lesson.title}", runs, player, teaches=True)
    outcome, ranks = finished.outcome, min(shown.ranks, cluster.world_size)
    findings = tuple(finding.text for finding in outcome.findings)
    wrong = find_wrong_end(runs[0].buffers) if runs else ""
    findings += (wrong,) if wrong else ()
    return ShownLesson(number, ranks, outcome.jobs[0].elapsed, findings, str(player) if runs else "")


def play_lesson(lesson: Lesson, file: Path, cluster: Cluster, host: VirtualHost) -> tuple[Finished, list[PlayedRun]]:
    """Return how a learner's file ran and, where it sent anything, what to play: it, and the algorithm beside it."""
    shown, ranks = lesson.shown, min(lesson.shown.ranks, cluster.world_size)
    with TemporaryDirectory(prefix="ringlab-learn-") as folder:
        program = UserProgram(str(file))
        if shown.call is not None:
            program = UserProgram("course.showing", (str(file.resolve()), str(lesson.number), folder), is_module=True)
        finished = host.run(VirtualOptions(program, ranks, cluster, timing="live"))
        if finished.trace is None or not len(finished.trace.messages):
            return finished, []
        yours = play_contents("yours", finished.trace, Path(folder), shown)
        runs = [replace(yours, name="yours, wrong") if find_wrong_end(yours.buffers) else yours]
    if shown.reference and ranks == cluster.world_size:
        reference = simcomm.run(shown.reference, cluster, nbytes=shown.nbytes, record=True)
        runs.append(PlayedRun(reference, shown.reference))
    return finished, runs


def run_lesson(number: int, file: Path | None, ranks: int) -> RecordAnswer:
    """Run a learner's file on real ranks over gloo; the recording stands beside it. Raises RunFailed."""
    mine = _mine(find_lesson(number), file)
    return record_program([str(mine)], ranks, mine.with_suffix(".json"), REAL_SECONDS)


def _mine(lesson: Lesson, file: Path | None) -> Path:
    path = file or Path(lesson.file_name)
    if path.is_dir():
        raise InputError(f"{quote(str(path))} is a directory; specify your file in it")
    if not path.is_file():
        raise InputError(f"{quote(str(path))}: no such file; `ringlab learn {lesson.number}` writes {lesson.file_name}")
    return path
