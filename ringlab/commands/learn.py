"""``ringlab learn``: copy, check and animate the lessons of the course."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, isclose, isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

import simcomm
from collectives.errors import InputError
from collectives.output_files import write_text
from collectives.quoting import quote
from collectives.units import count, format_size, format_time
from course.checks.exercise import Predicted, times
from course.files import LESSONS, Lesson, find_lesson
from course.judging import Judge, JudgedExercise, JudgedLesson, make_cluster
from course.notebooks import opened
from realcomm.launching.torch_process import check_torch
from ringlab.pictures.lesson_runs import find_wrong_end, play_contents, read_spans
from ringlab.shared.answer import Answer
from ringlab.shared.options import JsonOpt, output_option
from ringlab.shared.output import check_outputs, deliver, make_console
from ringlab.table import Cell, Line, Part, Row, Table, print_parts
from scenarios import load
from simcomm.cluster.cluster import Cluster
from virtual.hosting.host import Show, VirtualHost, show_on_own
from virtual.options import VirtualOptions
from virtual.outcome import Finished
from virtual.process.programs import UserProgram
from viz.file_types import check_file
from viz.player.page import write_player
from viz.player.runs import PlayedRun

NEAR = 0.05  # largest relative error of a prediction that counts as right
STATES = {"right": "good", "to do": "fair", "wrong": "poor"}


def command(
    number: Annotated[
        int | None, typer.Argument(metavar="[LESSON]", help="Lesson number, 1 to 11. Default: list all lessons.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Your file. Default: the lesson's file in the current directory."),
    ] = None,
    *,
    is_checked: Annotated[bool, typer.Option("--check", help="Check your file on virtual ranks.")] = False,
    is_shown: Annotated[
        bool, typer.Option("--show", help="Run your file and write a player that animates its messages.")
    ] = False,
    on: Annotated[
        str | None,
        typer.Option(metavar="SCENARIO", help="With --show: scenario whose cluster is used. Default: the lesson's."),
    ] = None,
    output: Annotated[
        Path | None, output_option("With --show: output file. Default: your file's name with .html.")
    ] = None,
    json_to: JsonOpt = None,
) -> None:
    """Learn collectives and distributed training in eleven lessons. Without a number, list them.

    A lesson is a torch.distributed program with functions for you to complete. `ringlab learn 4` copies lesson 4 to the
    current directory.
    """
    if is_checked and is_shown:
        raise InputError("--check and --show are mutually exclusive")
    if number is None and (is_checked or is_shown):
        raise InputError("no lesson given; pass a lesson number, as in `ringlab learn 4 --check`")
    if (on is not None or output is not None) and not is_shown:
        raise InputError("--on and -o require --show")
    if json_to is not None and not is_checked:
        raise InputError("--json requires --check")
    check_outputs(json_to, output)
    status, parts = 0, list[Part]()
    if number is None:
        rows = [[str(lesson.number), lesson.title, lesson.file_name] for lesson in LESSONS]
        parts = [Table("The course", ["lesson", "", "file"], rows, words=2)]
        parts.append("Start with `ringlab learn 1`, which writes the first lesson here.")
    elif is_checked:
        answer = check_lesson(number, file)
        deliver(answer, json_to)
        status = int(not answer.files[0].is_right)
    elif is_shown:
        status, parts = _show_lesson(number, file, on, output)
    else:
        parts = _open_lesson(number, file)
    print_parts(parts, make_console())
    if status:
        raise typer.Exit(1)


def _open_lesson(number: int, file: Path | None) -> list[Part]:
    lesson = find_lesson(number)
    target = file or Path(lesson.file_name)
    if target.exists():
        raise InputError(f"{target} already exists; choose another file, or --check it")
    write_text(target, lesson.skeleton)
    return [
        Line(f"written: {target}"),
        "Read it, note your predictions, and complete the functions.",
        f"Then run `ringlab learn {lesson.number} --check`.",
    ]


@dataclass(frozen=True)
class CheckedLessons(Answer):
    """The verdict on a checked lesson file."""

    kind = "checked lessons"

    files: tuple[JudgedLesson]

    def show(self) -> Iterator[Part]:
        (file,) = self.files
        rows: list[Row] = []
        for each in file.exercises:
            passed = ", ".join(map(str, each.world_sizes)) or "-"
            elapsed = format_time(each.elapsed_s) if each.elapsed_s else "-"
            sent = format_size(each.sent_bytes) if each.sent_bytes else "-"
            rows.append([each.exercise, Cell(each.state, STATES[each.state]), passed, elapsed, sent])
        headings = ["is", "right with\nworld_size", "virtual time\nwith the last", "sent by a rank\nwith the last"]
        yield Table(f"Lesson {file.lesson}: {find_lesson(file.lesson).title}", ["exercise", *headings], rows, words=1)
        for each in file.exercises:
            if each.state == "to do":
                yield Line(f"{each.exercise} is not implemented yet: {_place(each)}")
            elif each.state == "wrong":
                where = f", {_place(each)}: {each.source}" if each.line else ""
                yield Line(f"{each.exercise}{where}", "bold", wrap=True)
                for line in each.text.splitlines():
                    yield Line(f"  {line}", wrap=True)
                yield Line(f"  Read {each.read}.", wrap=True)
        predicted = [each for each in file.predictions if each.answer is not None]
        unanswered = [repr(each.name) for each in file.predictions if each.answer is None]
        if predicted and not file.is_right:
            yield "Your predictions are checked once all exercises are right."
        if predicted and file.is_right:
            rows = [[each.name, f"{each.answer:.4g}", f"{each.right:.4g}", _compare(each)] for each in predicted]
            yield Table("Your predictions", ["", "yours", "right", "yours is"], rows, words=1)
            wrong = [f"{number.name}: {number.why}" for number in predicted if _compare(number) != "right"]
            yield from (Line(text, wrap=True) for text in wrong)
        if unanswered and file.is_right:
            yield Line(f"Write your predictions of {', '.join(unanswered)} into PREDICTIONS.", wrap=True)


def _place(exercise: JudgedExercise) -> str:
    return f"code cell {exercise.cell}, line {exercise.line}" if exercise.cell else f"line {exercise.line}"


def _compare(number: Predicted) -> str:
    """Compare a predicted number with the correct one. Return "right", a ratio such as "half of that", or "not that".

    >>> _compare(Predicted(2.0, answer=1.0)), _compare(Predicted(2.0, answer=5.0))
    ('half of that', '2.5 times that')
    >>> _compare(Predicted(4.0, name="ranks that end", answer=0.0))
    'not that'
    """
    ratio = (number.answer or 0.0) / number.right if number.right else inf
    if number.answer == number.right or isclose(ratio, 1, abs_tol=NEAR):
        return "right"
    return times(ratio, NEAR) or (f"{ratio:.2g} times that" if ratio and isfinite(ratio) else "not that")


def check_lesson(number: int, file: Path | None = None) -> CheckedLessons:
    """Check a lesson file on virtual ranks. Raise InputError if the file is missing or not valid Python."""
    lesson = find_lesson(number)
    mine = _mine(lesson, file)
    with opened(mine) as script:
        try:
            ast.parse(script.path.read_bytes(), str(mine))
        except (SyntaxError, ValueError) as error:
            problem = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else error
            raise InputError(f"{mine}: not valid Python: {problem}") from error
        check_torch()
        with VirtualHost() as host:
            judged = Judge(lesson, script.path, host, show_on_own).judge()
        exercises = tuple(script.locate(exercise) for exercise in judged.exercises)
    return CheckedLessons((replace(judged, file=str(mine), exercises=exercises),))


def _show_lesson(number: int, file: Path | None, on: str | None, output: Path | None) -> tuple[int, list[Part]]:
    lesson = find_lesson(number)
    mine, shown = _mine(lesson, file), lesson.shown
    player = output or mine.with_suffix(".html")
    if player.resolve() == mine.resolve():
        raise InputError(f"{player} is your file; choose another file for the player")
    check_file(player, "a player")
    cluster = make_cluster(shown.racks, shown.ranks) if on is None else load(on, []).cluster
    ranks = min(shown.ranks, cluster.world_size)
    check_torch()
    with opened(mine) as script, VirtualHost() as host:
        program = None
        if shown.call is not None:  # the whole program runs and prints; then only its function runs for the player
            options = VirtualOptions(UserProgram(str(script.path)), ranks, cluster, timing="live")
            program = host.run(options).outcome
        finished, runs = play_lesson(
            lesson, script.path, cluster, host, show_on_own if program is None else lambda *_: None
        )
    if runs:
        write_player(f"Lesson {number}: {lesson.title}", runs, player, teaches=True)
    outcome = finished.outcome
    findings = [finding.text for finding in outcome.findings or (program or outcome).findings]
    wrong = find_wrong_end(runs[0].buffers) if runs else ""
    status = max(outcome.status, (program or outcome).status)
    ended = "stopped after" if status else "took"
    lines = [f"{count(ranks, 'virtual rank')} {ended} {format_time(outcome.jobs[0].elapsed)}"]
    lines += [line for text in (*findings, wrong) for line in text.splitlines()]
    lines.append(f"written: {player}" if runs else "no player: the program sent no message")
    return status, [*map(Line, lines)]


def play_lesson(
    lesson: Lesson, file: Path, cluster: Cluster, host: VirtualHost, show: Show = show_on_own
) -> tuple[Finished, list[PlayedRun]]:
    """Run a lesson file on virtual ranks. Return the result, and the runs that the player shows.

    The first run is the file's own. The second is the lesson's reference algorithm, unless ``cluster`` has more ranks
    than the lesson. If no message was sent, no run is returned. ``show`` receives the program's output.
    """
    shown, ranks = lesson.shown, min(lesson.shown.ranks, cluster.world_size)
    with TemporaryDirectory(prefix="ringlab-learn-") as folder:
        program = UserProgram(str(file))
        if shown.call is not None or shown.record is not None:
            program = UserProgram("course.showing", (str(file.resolve()), str(lesson.number), folder), is_module=True)
        finished = host.run(VirtualOptions(program, ranks, cluster, timing="live"), show=show)
        if finished.trace is None or not len(finished.trace.messages):
            return finished, []
        yours = play_contents("yours", finished.trace, Path(folder), shown)
        if shown.record is not None:
            yours = replace(yours, trace=replace(yours.trace, spans=read_spans(Path(folder), ranks)))
    runs = [replace(yours, name="yours, wrong") if find_wrong_end(yours.buffers) else yours]
    if shown.reference and ranks == cluster.world_size:
        reference = simcomm.run(shown.reference, cluster, nbytes=shown.nbytes, record=True)
        runs.append(PlayedRun(reference, shown.reference))
    return finished, runs


def _mine(lesson: Lesson, file: Path | None) -> Path:
    path = file or Path(lesson.file_name)
    if path.is_dir():
        raise InputError(f"{quote(str(path))} is a directory; pass your file")
    if not path.is_file():
        raise InputError(f"{quote(str(path))}: no such file; `ringlab learn {lesson.number}` writes {lesson.file_name}")
    return path
