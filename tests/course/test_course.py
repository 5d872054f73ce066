"""The course: solutions pass, mistakes are reported at their lines, lessons are written, checked and shown."""

import ast
import json
import re
import time
from collections import Counter
from math import isfinite
from pathlib import Path

import pytest
from browser import Player, running_browser
from command_line import Ringlab
from course_files import SOLUTIONS, Mistake, read_mistakes, solved
from virtual_runs import VirtualRuns

from course.checks.exercise import Predicted
from course.files import LESSONS, Lesson, find_lesson
from course.judging import Judge, JudgedExercise, JudgedLesson, make_cluster
from ringlab.commands.learn import CheckedLessons, check_lesson, play_lesson
from ringlab.pictures.lesson_runs import find_wrong_end
from ringlab.shared.output import make_console
from ringlab.table import Line, print_parts
from viz.player.buffers import COMPLETE
from viz.player.page import write_player
from viz.player.runs import find_depths

MISTAKES = [*read_mistakes()]
RIGHT = sorted((Path(__file__).parent / "course_right").glob("*/*.py"))
QUICK_MISTAKES = {  # next to the first of each lesson
    "torchs_all_reduce", "to_the_left", "torch_chunk", "stale_from_the_second_step",
}  # fmt: skip
QUICK_SOLUTIONS = {"bisection", "one_flat_buffer"}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.file_name)
def test_lesson_solution_passes_every_exercise(lesson: Lesson, virtual: VirtualRuns, tmp_path: Path) -> None:
    answer = Judge(lesson, solved(lesson, tmp_path), virtual.host).judge()
    assert {exercise.exercise: (exercise.state, exercise.text) for exercise in answer.exercises} == {
        exercise.name: ("right", "") for exercise in lesson.exercises
    }


@pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(lesson, id=lesson.file_name, marks=[pytest.mark.slow] * (lesson.number not in (2, 6)))
        for lesson in LESSONS
    ],
)
def test_unedited_skeleton_is_reported_as_to_do(lesson: Lesson, virtual: VirtualRuns, tmp_path: Path) -> None:
    path = tmp_path / lesson.file_name
    path.write_text(lesson.skeleton)
    answer = Judge(lesson, path, virtual.host).judge()
    assert not answer.is_right
    for exercise in answer.exercises:
        assert exercise.state == "to do" or (lesson.number == 2 and exercise.text.startswith("on 2 ranks: deadlock")), (
            exercise
        )


@pytest.mark.parametrize(("number", "steps"), [(3, 14), (4, 14), (5, 6)])
def test_lesson_player_fills_all_buffers(number: int, steps: int, virtual: VirtualRuns, tmp_path: Path) -> None:
    lesson = find_lesson(number)
    cluster = make_cluster(lesson.shown.racks, lesson.shown.ranks)
    finished, (yours, reference) = play_lesson(lesson, solved(lesson, tmp_path), cluster, virtual.host)
    assert not finished.outcome.findings and find_wrong_end(yours.buffers) == ""
    assert yours.trace.elapsed == pytest.approx(reference.trace.elapsed)
    buffers, messages = yours.buffers, yours.trace.messages
    assert buffers is not None
    assert buffers.start.reshape(8, 8).tolist() == [[1 << rank] * 8 for rank in range(8)], "each holds its own"
    last = dict(zip(buffers.cell.tolist(), buffers.value.tolist(), strict=True))
    assert last == dict.fromkeys(range(64), COMPLETE | 255), "all hold the sum of all"
    assert int(find_depths(messages).max()) + 1 == steps
    assert len(buffers.carried) == messages.count.sum() and (buffers.carried > 0).all()
    assert messages.reduces.any() and not messages.reduces.all(), "some are added, and the whole is passed on"


def test_player_marks_a_wrong_sum_as_incomplete(virtual: VirtualRuns, tmp_path: Path) -> None:
    lesson = find_lesson(4)
    file = solved(lesson, tmp_path, (SOLUTIONS / lesson.file_name).read_text().replace("+= ", "+= 2 * "))
    assert "+= 2 * " in file.read_text()
    _, (yours, _) = play_lesson(lesson, file, make_cluster(0, 8), virtual.host)
    assert yours.buffers is not None and (yours.buffers.value < COMPLETE).all()
    assert yours.name == "yours, wrong"
    message = "WRONG: at the end, chunk 0 of rank 0 must hold data of ranks 0-7, but holds data of ranks 0-1, 3-7 "
    assert find_wrong_end(yours.buffers).startswith(message)


@pytest.mark.browser
def test_lesson_player_names_the_blocked_line(virtual: VirtualRuns, tmp_path: Path) -> None:
    lesson, page = find_lesson(3), tmp_path / "lesson.html"
    file = solved(lesson, tmp_path)
    _, runs = play_lesson(lesson, file, make_cluster(0, 8), virtual.host)
    write_player("Lesson", runs, page, teaches=True)
    with running_browser() as browser, Player(browser, page, "#t=0.2") as player:
        match = re.search(r"Rank 4 waits in line (\d+): rank 0 does not receive yet", player.text("caption"))
        assert match is not None and "send" in file.read_text().splitlines()[int(match[1]) - 1]


FIRST = {mistake.lesson: mistake for mistake in reversed(MISTAKES)}


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(
            mistake,
            id=f"{mistake.lesson.number}-{mistake.name}",
            marks=[pytest.mark.slow] * (mistake not in FIRST.values() and mistake.name not in QUICK_MISTAKES),
        )
        for mistake in MISTAKES
    ],
)
def test_lesson_mistake_is_reported_at_its_line(mistake: Mistake, virtual: VirtualRuns, tmp_path: Path) -> None:
    lesson = mistake.lesson
    exercise = next(exercise for exercise in lesson.exercises if exercise.name == mistake.exercise)
    file = solved(lesson, tmp_path, mistake.solution)
    wrong = Judge(lesson, file, virtual.host).judge_exercise(exercise)
    assert wrong.state == "wrong"
    assert re.search(mistake.words, wrong.text), wrong.text
    named = [wrong.source, *(line.rpartition("  ")[2] for line in wrong.text.splitlines()[1:])]
    assert any(line.startswith(mistake.lines) for line in named) != mistake.is_elsewhere, (wrong.source, wrong.text)


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(
            file,
            id=f"{file.parent.name}-{file.stem}",
            marks=[pytest.mark.slow] * (file.stem not in QUICK_SOLUTIONS),
        )
        for file in RIGHT
    ],
)
def test_alternative_solution_is_graded_right(file: Path, virtual: VirtualRuns, tmp_path: Path) -> None:
    lesson = find_lesson(int(file.parent.name))
    answer = Judge(lesson, solved(lesson, tmp_path, file.read_text()), virtual.host).judge()
    assert {exercise.exercise: exercise.text for exercise in answer.exercises if exercise.state != "right"} == {}


def test_each_lesson_has_ten_test_mistakes_and_four_solutions() -> None:
    mistakes = Counter(mistake.lesson for mistake in MISTAKES)
    solutions = Counter(find_lesson(int(file.parent.name)) for file in RIGHT)
    assert all(mistakes[lesson] >= 10 and solutions[lesson] >= 4 for lesson in LESSONS)
    assert sum(not mistake.is_elsewhere for mistake in MISTAKES) >= 0.8 * len(MISTAKES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--check"], "no lesson given; pass a lesson number"),
        (["4", "--check", "--show"], "--check and --show are mutually exclusive"),
        (["4", "--check", "--on", "two-racks"], "--on and -o require --show"),
        (["4", ".", "--check"], "'.' is a directory"),
        (["4", "syntax.py", "--check"], "syntax.py: not valid Python: line 1: "),
        (["4", "nul.py", "--check"], "nul.py: "),
        (["4", "mine.py", "--check"], "writes 04_ring.py"),
        (["12"], "lesson 12 does not exist; choose a lesson from 1 to 11"),
    ],
)
def test_learn_rejects_a_bad_option_or_file(
    arguments: list[str], message: str, ringlab: Ringlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("syntax.py").write_text("def f((:\n")
    Path("nul.py").write_text("\0")
    rejected = ringlab("learn", *arguments)
    assert rejected.status == 2 and message in rejected.err


def test_learn_wraps_a_long_source_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    exercise = JudgedExercise("ring_all_reduce", "wrong", (1,), "on 2 ranks: no", 37, "requests = " + "left + " * 20)
    print_parts(CheckedLessons((JudgedLesson(4, "mine.py", (exercise,), ()),)).show(), make_console())
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("ring_all_reduce, line 37: requests") for line in lines) and max(map(len, lines)) <= 80


def test_learn_recommends_reading_after_a_wrong_exercise(
    virtual: VirtualRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert all(exercise.read for lesson in LESSONS for exercise in lesson.exercises)
    mine = solved(LESSONS[0], tmp_path)
    assert "/ 2" in mine.read_text()
    mine.write_text(mine.read_text().replace("/ 2", "/ 1"))
    answer = Judge(LESSONS[0], mine, virtual.host).judge()
    read = LESSONS[0].exercises[0].read
    assert answer.exercises[0].read == read and not answer.exercises[1].read
    print_parts(CheckedLessons((answer,)).show(), make_console())
    assert f"Read {read}." in " ".join(capsys.readouterr().out.split())


def test_learn_check_explains_wrong_and_missing_predictions() -> None:
    right, wrong = Predicted(2.0, "Not shown.", "seconds", 2.0), Predicted(8.0, "Two each.", "bytes", 4.0)
    predictions = right, wrong, Predicted(1.0, "", "steps")
    shown = CheckedLessons((JudgedLesson(1, "mine.py", (), predictions),)).show()
    lines = [part.text for part in shown if isinstance(part, Line)]
    assert lines == ["bytes: Two each.", "Write your predictions of 'steps' into PREDICTIONS."]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.file_name)
def test_lesson_predictions_have_an_answer_and_an_explanation(lesson: Lesson) -> None:
    match = re.search(r"^PREDICTIONS = (\{.*?\})", lesson.skeleton, re.MULTILINE | re.DOTALL)
    assert match is not None
    predicted = lesson.checks.predicted()
    assert list(ast.literal_eval(match[1])) == list(predicted)
    for prediction in predicted.values():
        assert isfinite(prediction.right) and prediction.why.endswith(".") and 5 < len(prediction.why.split()) <= 25


def test_learn_does_not_overwrite_a_lesson(ringlab: Ringlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ringlab("learn", 4).status == 0
    assert Path("04_ring.py").read_text() == LESSONS[3].skeleton
    again = ringlab("learn", 4)
    assert again.status == 2 and "04_ring.py already exists" in again.err


def test_program_end_does_not_wait_for_child_processes(virtual: VirtualRuns, tmp_path: Path) -> None:
    program, began = tmp_path / "forks.py", time.monotonic()
    program.write_text("import subprocess\nsubprocess.Popen(['sleep', '100'])")
    virtual(program, 1)
    assert time.monotonic() - began < 50, "its output is not waited for"


def test_learn_show_keeps_the_lesson_file(ringlab: Ringlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ringlab("learn", 1)
    for output, words in (
        (["-o", "01_message.py"], "01_message.py is your file"),
        (["-o", "player.txt"], "a player is written as .html"),
        ([], "01_message.html is a directory; pass the name of a file to write"),
    ):
        if not output:
            Path("01_message.html").mkdir()
        rejected = ringlab("learn", 1, "--show", *output)
        assert rejected.status == 2 and words in rejected.err
    assert Path("01_message.py").read_text() == LESSONS[0].skeleton


def test_lesson_solution_prints_the_expected_times(virtual: VirtualRuns, tmp_path: Path) -> None:
    for number, ranks, expected in (
        (6, 4, ("averaged after backward: 72.0 ms", "in buckets of a layer: 48.0 ms", "second step: 48.0 ms")),
        (10, 4, ("gpipe: 0.330 s, kept at most 8", "one_f_one_b: 0.330 s, kept at most 4")),
    ):
        ran = virtual(solved(find_lesson(number), tmp_path), ranks, timing="live")
        lines = ran.lines(0)
        assert all(any(words in line for line in lines) for words in expected), ran.out
        assert ran.trace is not None
        assert {"compute"} < {span.name for span in ran.trace.spans}


def test_lessons_name_only_files_that_init_writes() -> None:
    for lesson in LESSONS:
        text = lesson.skeleton
        assert "examples/" not in text, "which an installed package has not"
        for name in re.findall(r"`ringlab \w+ (\w+)\.toml", text):
            assert f"`ringlab init {name.replace('_', '-')}`" in text


@pytest.mark.usefixtures("one_server")
def test_learn_show_names_the_cycle_of_a_deadlock(ringlab: Ringlab, tmp_path: Path) -> None:
    mine, text = tmp_path / "02_deadlock.py", LESSONS[1].skeleton.replace("    exchange(mine, other, rank ^ 1)\n", "")
    mine.write_text(text)
    line = 1 + text.splitlines().index("    dist.send(mine, (rank + 1) % world_size)")
    shown = ringlab("learn", 2, mine, "--show")
    assert shown.status == 1, "as the program's"
    assert "no player: the program sent no message" in shown.out and f"02_deadlock.py:{line}" in shown.out


def test_player_shows_every_pass_of_a_pipeline_lesson(virtual: VirtualRuns, tmp_path: Path) -> None:
    _, (yours,) = play_lesson(find_lesson(10), solved(find_lesson(10), tmp_path), make_cluster(0, 4), virtual.host)
    spans = Counter((span.rank, span.name, span.step) for span in yours.trace.spans)
    assert spans == {
        (rank, name, batch): 2 for rank in range(4) for name in ("forward", "backward") for batch in range(8)
    }, "one in each schedule"


@pytest.mark.usefixtures("one_server")
def test_learn_show_prints_the_program_output(ringlab: Ringlab, tmp_path: Path) -> None:
    shown = ringlab("learn", 3, solved(find_lesson(3), tmp_path), "--show")
    assert shown.status == 0 and "[rank 7] the sum is right" in shown.out


@pytest.mark.usefixtures("one_server")
def test_notebook_error_names_the_code_cell_and_line(ringlab: Ringlab, tmp_path: Path) -> None:
    functions = (SOLUTIONS / "01_message.py").read_text().replace("/ 2", "/ 1")
    cells = [
        {"cell_type": "markdown", "source": ["# A lesson"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "!pip install jupytext"]},
        {"cell_type": "code", "source": functions.splitlines(keepends=True)},
    ]
    (tmp_path / "01_message.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    checked = ringlab("learn", 1, tmp_path / "01_message.ipynb", "--check")
    line = functions.splitlines().index("    return (time.perf_counter() - start) / 1") + 1
    assert checked.status == 1 and f"measure, code cell 2, line {line}: return" in checked.out
    assert "probably the whole round trip" in checked.out
    (tmp_path / "01_message.ipynb").write_text("{}")
    rejected = ringlab("learn", 1, tmp_path / "01_message.ipynb", "--check")
    assert rejected.status == 2 and "cannot be read as a notebook" in rejected.err


ENDS = """
import os, signal, sys

def ring_all_reduce(tensor):
    sys.exit(0)

def ring_seconds(*of):
    os._exit(0)

def ring_wins_from(*of):
    os.kill(os.getppid(), signal.SIGKILL)
"""
MEMORY = """
import torch

def ring_all_reduce(tensor):
    kept = []
    while True:
        kept.append(torch.zeros(1 << 28))

def ring_seconds(p, nbytes, alpha, beta):
    return len(bytearray(1 << 36))
"""
ENDLESS = """
def ring_all_reduce(tensor):
    while True:
        tensor = tensor
"""
OUT_OF_MEMORY = "out of memory: a check may use 2 GiB; allocate less"


@pytest.mark.usefixtures("one_server")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            ENDS,
            [
                (5, "on 1 rank: this line ends the whole program"),
                (7, "no result: your file exited with status 0 through os._exit or similar"),
                (10, "no result: the server that runs programs on virtual ranks was ended by SIGKILL; run again"),
            ],
        ),
        ("", [(0, "on 1 rank: 04_ring.py does not define ring_all_reduce; copy it from the lesson")]),
        (MEMORY, [(7, f"on 1 rank: {OUT_OF_MEMORY}"), (10, OUT_OF_MEMORY)]),
        pytest.param(
            ENDLESS, [(3, "on 1 rank: endless: the loop or call in this line does not end")], marks=pytest.mark.slow
        ),
    ],
    ids=["ends", "empty", "memory", "endless"],
)
def test_hostile_lesson_file_is_graded_wrong(text: str, expected: list[tuple[int, str]], tmp_path: Path) -> None:
    file = tmp_path / "04_ring.py"
    file.write_text(text)
    answer = check_lesson(4, file)
    results = [(exercise.line, exercise.text) for exercise in answer.files[0].exercises]
    for (line, error), (expected_line, expected_error) in zip(results, expected, strict=False):
        assert line in (expected_line, expected_line + (text == ENDLESS)) and error.startswith(expected_error)
    assert not answer.files[0].is_right and "line 0" not in str(list(answer.show()))
