"""``ringlab learn``: write a lesson, check it on virtual ranks, show it in the player, grade a class."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, isclose, isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import typer

import simcomm
from collectives.errors import InputError
from collectives.output_files import write_text
from collectives.quoting import quote
from collectives.records.spans import Span, Spans
from collectives.units import format_size, format_time
from course.checks.exercise import times
from course.files import LESSONS, Lesson, find_lesson, lesson_of
from course.grading import can_confine, grade
from course.judging import JudgedExercise, JudgedLesson, PredictedNumber, judge, make_cluster
from course.notebooks import NOTEBOOK, opened
from realcomm.launching.torch_process import check_torch
from ringlab.commands.measuring.record import RecordAnswer, record_program
from ringlab.pictures.held_buffers import find_wrong_end, play_contents
from ringlab.pictures.lesson_spans import RankSpan, read_spans
from ringlab.shared.answer import Answer
from ringlab.shared.options import JsonOpt, with_groups
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.ranges import MOST_CASES
from ringlab.table import Cell, Line, Part, Row, Table
from scenarios import load
from simcomm.cluster.cluster import Cluster
from virtual.hosting.host import Show, VirtualHost, show_on_own
from virtual.options import VirtualOptions
from virtual.outcome import Finished
from virtual.process.programs import UserProgram
from viz.file_types import check_file
from viz.player.page import write_player
from viz.player.runs import PlayedRun

NEAR = 0.05  # relative error of a prediction that counts as right
REAL_SECONDS = 120.0  # of a run on real ranks, at most
PICTURES = {2: "waits", 10: "schedules"}
STATES = {"right": "good", "to do": "fair", "wrong": "poor"}


@dataclass(frozen=True)
class WayOptions:
    """What to do with a lesson instead of writing its file: one of four."""

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
    if (isinstance(answer, CheckedLessons) and not answer.is_right) or (
        isinstance(answer, ShownLesson) and answer.status
    ):
        raise typer.Exit(1)


@dataclass(frozen=True)
class ListedLesson:
    """A lesson in the list."""

    number: int
    title: str
    file: str


@dataclass(frozen=True)
class ListedLessons(Answer):
    """All lessons."""

    kind = "lessons"

    lessons: tuple[ListedLesson, ...]

    def show(self) -> Iterator[Part]:
        rows = [[str(one.number), one.title, one.file] for one in self.lessons]
        yield Table("The course", ["lesson", "", "file"], rows, words=2)
        yield "Start with `ringlab learn 1`, which writes the first lesson here."


@dataclass(frozen=True)
class OpenedLesson(Answer):
    """A lesson's file, as it was written."""

    kind = "lesson"

    lesson: int
    file: str

    def show(self) -> Iterator[Part]:
        yield Line(f"written: {self.file}")
        yield f"Read it, note your predictions, complete the functions, then run `ringlab learn {self.lesson} --check`."


def open_lesson(number: int, file: Path | None = None) -> OpenedLesson:
    """Write a lesson's skeleton. Raises InputError if the file exists."""
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
    left_out: tuple[str, ...] = ()  # files that no lesson has the name of
    is_confined: bool = True  # whether each file saw only its own folder

    @property
    def is_right(self) -> bool:
        """Whether every exercise of every file is right."""
        return all(file.is_right for file in self.files)

    def show(self) -> Iterator[Part]:
        if len(self.files) == 1:
            yield from _show_one(self.files[0])
        else:
            yield self._summarize()
        if self.left_out:
            yield f"Not graded, as no lesson has such a name: {', '.join(self.left_out)}."
        if not self.is_confined:
            yield "This machine allows no namespaces: a file could read other submissions. Grade in a container."

    def _summarize(self) -> Table:
        rows = []
        for file in self.files:
            right = sum(one.state == "right" for one in file.exercises)
            wrong = next((one for one in file.exercises if one.state != "right"), None)
            said = f"{wrong.exercise}: {_first_line(wrong)}" if wrong is not None else ""
            rows.append([file.file, str(file.lesson), f"{right} of {len(file.exercises)}", said])
        return Table("Graded files", ["file", "lesson", "right", "first one that is not"], rows, words=4)


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
            yield Line(f"{one.exercise} is to do: {_place(one)}")
        elif one.state == "wrong":
            where = f", {_place(one)}: {one.source}" if one.line else ""
            yield Line(f"{one.exercise}{where}", "bold", wrap=True)
            for line in one.text.splitlines():
                yield Line(f"  {line}", wrap=True)
            yield Line(f"  To read: {one.read}.", wrap=True)
    said = [one for one in file.predictions if one.said is not None]
    unsaid = [repr(one.name) for one in file.predictions if one.said is None]
    if said and not file.is_right:
        yield "Your predictions are compared once all exercises are right."
    if said and file.is_right:
        rows = [[one.name, f"{one.said:.4g}", f"{one.is_so:.4g}", _compare(one)] for one in said]
        yield Table("Your predictions", ["", "yours", "right", "yours is"], rows, words=1)
        wrong = [f"{number.name}: {number.why}" for number in said if _compare(number) != "right"]
        yield from (Line(text, wrap=True) for text in wrong)
    if unsaid and file.is_right:
        yield Line(f"Write a number into PREDICTIONS for {', '.join(unsaid)}.", wrap=True)


def _place(one: JudgedExercise) -> str:
    return f"code cell {one.cell}, line {one.line}" if one.cell else f"line {one.line}"


def _compare(one: PredictedNumber) -> str:
    """Return in words how a prediction compares with the right value.

    >>> _compare(PredictedNumber("seconds", 2.0, 1.0)), _compare(PredictedNumber("seconds", 2.0, 5.0))
    ('half of that', '2.5 times that')
    >>> _compare(PredictedNumber("ranks that end", 4.0, 0.0))
    'not that'
    """
    ratio = (one.said or 0.0) / one.is_so if one.is_so else inf
    if one.said == one.is_so or isclose(ratio, 1, abs_tol=NEAR):
        return "right"
    return times(ratio, NEAR) or (f"{ratio:.2g} times that" if ratio and isfinite(ratio) else "not that")


def _first_line(one: JudgedExercise) -> str:
    if one.state != "wrong" or not one.text:
        return one.state
    return f"{_place(one)}: " * bool(one.line) + one.text.splitlines()[0]


def check_lesson(number: int, file: Path | None = None) -> CheckedLessons:
    """Check a learner's file. Raises InputError if the file does not exist or is not valid Python."""
    lesson = find_lesson(number)
    mine = _mine(lesson, file)
    with opened(mine) as script:
        try:
            ast.parse(script.path.read_bytes(), str(mine))
        except SyntaxError as error:
            raise InputError(f"{mine}: line {error.lineno}: {error.msg}; nothing was checked") from error
        except ValueError as error:
            raise InputError(f"{mine}: {error}; nothing was checked") from error
        check_torch()
        with VirtualHost() as host:
            judged = judge(lesson, script.path, host, show_on_own)
        exercises = tuple(script.locate(one) for one in judged.exercises)
    return CheckedLessons((replace(judged, file=str(mine), exercises=exercises),))


def grade_folder(folder: Path, number: int | None = None) -> CheckedLessons:
    """Check all lesson files, or those of one lesson, below a folder. Raises InputError if it has none."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a directory")
    found_files = [path for suffix in ("*.py", f"*{NOTEBOOK}") for path in folder.rglob(suffix)]
    files = sorted(path for path in found_files if path.is_file() and not _is_left_out(path, folder))
    lessons = LESSONS if number is None else (find_lesson(number),)
    found = {path: lesson for path in files if (lesson := lesson_of(path)) in lessons}
    if not found:
        which = "a lesson's" if number is None else f"lesson {number}'s"
        raise InputError(f"{folder}: no file is named like {which}, such as {lessons[0].file_name}")
    if len(found) > MOST_CASES:
        raise InputError(f"{folder}: {len(found)} lesson files; the maximum is {MOST_CASES:,}")
    check_torch()
    with VirtualHost() as host:
        judged = tuple(grade(folder, found, host))
    left_out = tuple(str(path.relative_to(folder)) for path in files if lesson_of(path) is None)
    return CheckedLessons(judged, left_out, can_confine())


def _is_left_out(path: Path, folder: Path) -> bool:
    """Return whether a file is a link, or is in a hidden folder such as that of Jupyter's checkpoints."""
    return path.is_symlink() or any(part.startswith(".") for part in path.relative_to(folder).parts)


@dataclass(frozen=True)
class ShownLesson(Answer):
    """A learner's run on virtual ranks, with its player and its still picture."""

    kind = "shown lesson"

    lesson: int
    ranks: int
    elapsed_s: float
    findings: tuple[str, ...]
    player: str
    picture: str = ""
    status: int = 0  # of the program

    def show(self) -> Iterator[Part]:
        yield Line(f"{self.ranks} virtual rank{'s' * (self.ranks > 1)} took {format_time(self.elapsed_s)}")
        for finding in self.findings:
            for line in finding.splitlines():
                yield Line(line)
        for file in filter(None, (self.player, self.picture)):
            yield Line(f"written: {file}")
        if not self.player:
            yield Line("no player: the program sent no message")


def show_lesson(number: int, file: Path | None, on: str | None, output: Path | None) -> ShownLesson:
    """Run a learner's file on virtual ranks; write a player of its messages next to the library's algorithm."""
    lesson = find_lesson(number)
    mine, shown = _mine(lesson, file), lesson.shown
    player = output or mine.with_suffix(".html")
    if player.resolve() == mine.resolve():
        raise InputError(f"{player} is your file; choose another file for the player")
    check_file(player, "a player")
    picture = player.with_suffix(".svg")
    if number in PICTURES:
        check_file(picture, "a still picture")
    cluster = make_cluster(shown.racks, shown.ranks) if on is None else load(on, []).cluster
    ranks = min(shown.ranks, cluster.world_size)
    check_torch()
    with opened(mine) as script, VirtualHost() as host:
        program = None
        if shown.call is not None:  # the program itself prints; its function is then called once more to be shown
            options = VirtualOptions(UserProgram(str(script.path)), ranks, cluster, timing="live")
            program = host.run(options).outcome
        played = play_lesson(lesson, script.path, cluster, host, show_on_own if program is None else _show_nothing)
    if played.runs:
        write_player(f"Lesson {number}: {lesson.title}", played.runs, player, teaches=True)
    has_picture = _draw_picture(number, played, ranks, picture)
    outcome = played.finished.outcome
    findings = tuple(finding.text for finding in (outcome.findings or (program or outcome).findings))
    wrong = find_wrong_end(played.runs[0].buffers) if played.runs else ""
    return ShownLesson(
        number,
        ranks,
        outcome.jobs[0].elapsed,
        (*findings, wrong) if wrong else findings,
        str(player) if played.runs else "",
        str(picture) if has_picture else "",
        max(outcome.status, (program or outcome).status),
    )


def _draw_picture(number: int, played: "PlayedLesson", ranks: int, file: Path) -> bool:
    """Draw the still picture of a lesson into a file; return whether there was anything to draw."""
    deadlock = next((one for one in played.finished.outcome.findings if one.circle), None)
    kind = PICTURES.get(number)
    if (kind == "waits" and deadlock is None) or (kind == "schedules" and not played.spans) or kind is None:
        return False
    from ringlab.pictures.lesson_pictures import draw_schedules, draw_waits  # matplotlib takes long to import

    if deadlock is not None and kind == "waits":
        draw_waits(deadlock, ranks, file)
    else:
        draw_schedules(played.spans, ranks, ("gpipe", "one_f_one_b"), file)
    return True


class PlayedLesson(NamedTuple):
    """A learner's run, the runs to play, and the spans of a pipeline's stages."""

    finished: Finished
    runs: list[PlayedRun]
    spans: list[RankSpan]


def play_lesson(
    lesson: Lesson, file: Path, cluster: Cluster, host: VirtualHost, show: Show = show_on_own
) -> PlayedLesson:
    """Run a learner's file; if it sends messages, return its run and the library's algorithm to play.

    ``show`` receives what the file prints.
    """
    shown, ranks = lesson.shown, min(lesson.shown.ranks, cluster.world_size)
    with TemporaryDirectory(prefix="ringlab-learn-") as folder:
        program = UserProgram(str(file))
        if shown.call is not None or shown.record is not None:
            program = UserProgram("course.showing", (str(file.resolve()), str(lesson.number), folder), is_module=True)
        finished = host.run(VirtualOptions(program, ranks, cluster, timing="live"), show=show)
        spans = read_spans(Path(folder), ranks)
        if finished.trace is None or not len(finished.trace.messages):
            return PlayedLesson(finished, [], spans)
        yours = play_contents("yours", finished.trace, Path(folder), shown)
    if spans:
        rows = [Span(rank, span.name, span.micro_batch, span.begin, span.end) for rank, span in spans]
        yours = replace(yours, trace=replace(yours.trace, spans=Spans.of(rows)))
    runs = [replace(yours, name="yours, wrong") if find_wrong_end(yours.buffers) else yours]
    if shown.reference and ranks == cluster.world_size:
        reference = simcomm.run(shown.reference, cluster, nbytes=shown.nbytes, record=True)
        runs.append(PlayedRun(reference, shown.reference))
    return PlayedLesson(finished, runs, spans)


def _show_nothing(stream: str, text: str) -> None:
    pass


def run_lesson(number: int, file: Path | None, ranks: int) -> RecordAnswer:
    """Run a learner's file on real ranks over gloo, and write the recording next to the file. Raises RunFailed."""
    mine = _mine(find_lesson(number), file)
    with opened(mine) as script:
        return record_program([str(script.path)], ranks, mine.with_suffix(".json"), REAL_SECONDS)


def _mine(lesson: Lesson, file: Path | None) -> Path:
    path = file or Path(lesson.file_name)
    if path.is_dir():
        raise InputError(f"{quote(str(path))} is a directory; pass your file")
    if not path.is_file():
        raise InputError(f"{quote(str(path))}: no such file; `ringlab learn {lesson.number}` writes {lesson.file_name}")
    return path
