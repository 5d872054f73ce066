"""The course: every solution passes, every mistake is told at its line, and the files are opened, judged and graded."""

import re
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from browser import Player, running_browser
from command_line import Ringlab
from virtual_runs import VirtualRuns

from collectives.errors import InputError
from course.files import FOLDER, LESSONS, Lesson, fill, find_lesson
from course.judging import JudgedExercise, JudgedLesson, PredictedNumber, judge, judge_exercise, make_cluster
from ringlab.commands.learn import CheckedLessons, play_lesson
from ringlab.pictures.held_buffers import find_wrong_end
from ringlab.shared.output import make_console
from ringlab.table import print_parts
from viz.player.buffers import COMPLETE
from viz.player.page import write_player
from viz.player.runs import find_depths

FOR_EACH_LESSON = 1  # of its mistakes, as many are tried each time, and all of them by `make test-all`
MISTAKES = sorted((Path(__file__).parent / "course_mistakes").glob("*/*.py"))
TOLD = re.compile(
    r"# told: (?P<exercise>\w[\w, ]*) \| (?P<words>.+?) \| (?P<elsewhere>elsewhere: )?(?P<lines>.+)$", re.MULTILINE
)


def solved(lesson: Lesson, folder: Path, *changes: Path) -> Path:
    """Write a lesson's file with its solution, and changes to it."""
    text = lesson.skeleton
    for functions in (FOLDER / "solutions" / lesson.file_name, *changes):
        text = fill(text, functions.read_text())
    path = folder / lesson.file_name
    path.write_text(text)
    return path


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.file_name)
def test_the_solution_is_right(lesson: Lesson, virtual: VirtualRuns, tmp_path: Path) -> None:
    found = judge(lesson, solved(lesson, tmp_path), virtual.host, lambda *_: None)
    assert {one.exercise: (one.state, one.text) for one in found.exercises} == {
        one.name: ("right", "") for one in lesson.checks.EXERCISES
    }


@pytest.mark.parametrize(
    "lesson",
    [pytest.param(one, id=one.file_name, marks=[pytest.mark.slow] * (one.number not in (2, 6))) for one in LESSONS],
)
def test_the_skeleton_is_to_be_done(lesson: Lesson, virtual: VirtualRuns, tmp_path: Path) -> None:
    path = tmp_path / lesson.file_name
    path.write_text(lesson.skeleton)
    found = judge(lesson, path, virtual.host, lambda *_: None)
    assert not found.is_right
    for one in found.exercises:
        assert one.state == "to do" or (lesson.number == 2 and one.text.startswith("on 2 ranks: deadlock")), one


@pytest.mark.parametrize(("number", "steps"), [(3, 14), (4, 14), (5, 6)])
def test_a_shown_lesson_has_buffers_that_fill(number: int, steps: int, virtual: VirtualRuns, tmp_path: Path) -> None:
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


def test_a_wrong_sum_is_never_complete_in_its_buffers(virtual: VirtualRuns, tmp_path: Path) -> None:
    lesson, twice = find_lesson(4), tmp_path / "twice.py"
    twice.write_text((FOLDER / "solutions" / lesson.file_name).read_text().replace("+= ", "+= 2 * "))
    file = solved(lesson, tmp_path, twice)
    assert "+= 2 * " in file.read_text()
    _, (yours, _) = play_lesson(lesson, file, make_cluster(0, 8), virtual.host)
    assert yours.buffers is not None and (yours.buffers.value < COMPLETE).all()
    assert yours.name == "yours, wrong"
    told = "WRONG: at the end chunk 0 of rank 0 should hold data of ranks 0-7 and holds data of ranks 0-1, 3-7 "
    assert find_wrong_end(yours.buffers).startswith(told)


@pytest.mark.browser
def test_a_page_that_teaches_says_in_which_line_a_rank_waits(virtual: VirtualRuns, tmp_path: Path) -> None:
    lesson, page = find_lesson(3), tmp_path / "lesson.html"
    file = solved(lesson, tmp_path)
    _, runs = play_lesson(lesson, file, make_cluster(0, 8), virtual.host)
    write_player("Lesson", runs, page, teaches=True)
    with running_browser() as browser, Player(browser, page, "#t=0.2") as player:
        said = re.search(r"Rank 4 waits in line (\d+): rank 0 does not receive yet", player.text("caption"))
        assert said is not None and "send" in file.read_text().splitlines()[int(said[1]) - 1]


def spread() -> Iterator[ParameterSet]:
    """Yield every mistake as a parameter; those beyond a few of each lesson, evenly taken, are slow."""
    for _, group in groupby(MISTAKES, key=lambda file: file.parent):
        files = list(group)
        quick = files[:: -(-len(files) // FOR_EACH_LESSON)]
        for file in files:
            name = f"{file.parent.name}/{file.stem}"
            yield pytest.param(file, id=name, marks=() if file in quick else pytest.mark.slow)


@pytest.mark.parametrize("file", list(spread()))
def test_a_mistake_is_told(file: Path, virtual: VirtualRuns, tmp_path: Path) -> None:
    """Its first line says which exercise is wrong, words of what is told, and which lines are at fault.

    At fault is the line to change, one that it lets happen, or, of what is missing, one that it should stand beside.
    Where another line is told than any of those, ``elsewhere`` says so.
    """
    wanted = TOLD.search(file.read_text())
    assert wanted is not None, "the first line should be: # told: exercise | words | lines"
    lesson = find_lesson(int(file.parent.name))
    exercise = next(one for one in lesson.checks.EXERCISES if one.name == wanted["exercise"])
    wrong, _ = judge_exercise(lesson, solved(lesson, tmp_path, file), virtual.host, lambda *_: None, exercise)
    assert wrong.state == "wrong"
    assert re.search(wanted["words"], wrong.text), wrong.text
    named = [wrong.source, *(line.rpartition("  ")[2] for line in wrong.text.splitlines()[1:])]
    is_at_line = any(line.startswith(tuple(wanted["lines"].split(" ;; "))) for line in named)
    assert is_at_line == (wanted["elsewhere"] is None), wrong.source


def test_four_of_five_mistakes_are_told_at_the_line() -> None:
    told = [TOLD.search(file.read_text()) for file in MISTAKES]
    at_line = sum(one is not None and one["elsewhere"] is None for one in told)
    assert at_line >= 0.8 * len(MISTAKES)


@pytest.mark.parametrize(
    ("text", "told"), [("def f((:\n", "mine.py: line 1: "), ("\0", "mine.py: "), (None, "writes 04_ring.py")]
)
def test_a_file_that_cannot_be_read_is_refused(text: str | None, told: str, ringlab: Ringlab, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    refused = ringlab("learn", 4, tmp_path / "mine.py", "--check")
    assert refused.status == 2 and told in refused.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--check"], "no lesson given; pass its number"),
        (["--real", "2"], "no lesson given; pass its number"),
        (["4", "--check", "--on", "two-racks"], "--on and -o require --show"),
        (["4", ".", "--check"], "'.' is a directory"),
    ],
)
def test_what_learn_refuses(arguments: list[str], told: str, ringlab: Ringlab) -> None:
    refused = ringlab("learn", *arguments)
    assert refused.status == 2 and told in refused.err


def test_a_learners_long_line_is_wrapped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    one = JudgedExercise("ring_all_reduce", "wrong", (1,), "on 2 ranks: no", 37, "requests = " + "left + " * 20)
    print_parts(CheckedLessons((JudgedLesson(4, "mine.py", (one,), ()),)).show(), make_console())
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("ring_all_reduce, line 37: requests") for line in lines) and max(map(len, lines)) <= 80


def test_what_is_wrong_is_told_with_what_to_read(
    virtual: VirtualRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert all(exercise.read for lesson in LESSONS for exercise in lesson.checks.EXERCISES)
    mine = solved(LESSONS[0], tmp_path)
    assert "/ 2" in mine.read_text()
    mine.write_text(mine.read_text().replace("/ 2", "/ 1"))
    found = judge(LESSONS[0], mine, virtual.host, lambda *_: None)
    read = LESSONS[0].checks.EXERCISES[0].read
    assert found.exercises[0].read == read and not found.exercises[1].read
    print_parts(CheckedLessons((found,)).show(), make_console())
    assert f"To read: {read}." in " ".join(capsys.readouterr().out.split())


def test_a_prediction_that_is_no_number_is_told() -> None:
    predictions = PredictedNumber("seconds", 2.0, 2.0), PredictedNumber("bytes", 8.0)
    shown = [*CheckedLessons((JudgedLesson(1, "mine.py", (), predictions),)).show()]
    assert shown[-1] == "No number in PREDICTIONS for 'bytes'."


def test_a_lesson_is_opened_once(ringlab: Ringlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ringlab("learn", 4).status == 0
    assert Path("04_ring.py").read_text() == LESSONS[3].skeleton
    again = ringlab("learn", 4)
    assert again.status == 2 and "04_ring.py already exists" in again.err


def test_there_is_no_lesson_of_another_number() -> None:
    with pytest.raises(InputError, match="there is no lesson 12; lessons are 1 to 11"):
        find_lesson(12)


@pytest.mark.usefixtures("one_server")
def test_a_class_is_graded(tmp_path: Path) -> None:
    from ringlab.commands.learn import grade_folder

    for name in ("ada", "grace"):
        (tmp_path / name).mkdir()
    solved(LESSONS[3], tmp_path / "ada")
    (tmp_path / "grace" / "04_ring.py").write_text(LESSONS[3].skeleton)
    (tmp_path / "grace" / "notes.py").write_text("")
    answer = grade_folder(tmp_path)
    assert [(Path(one.file).parent.name, one.is_right) for one in answer.files] == [("ada", True), ("grace", False)]
    assert answer.left_out == ("grace/notes.py",)
    with pytest.raises(InputError, match="no file is named like lesson 3's, such as 03_collectives"):
        grade_folder(tmp_path, 3)


HOSTILE = """
import os, signal, sys

def ring_all_reduce(tensor):
    sys.exit(0)

def ring_seconds(*of):
    os._exit(0)

def ring_wins_from(*of):
    os.kill(os.getppid(), signal.SIGKILL)
"""


def test_a_file_that_ends_processes_is_wrong_and_stops_no_grading(tmp_path: Path) -> None:
    from ringlab.commands.learn import grade_folder

    texts = {"1/04_file.py": HOSTILE, "2/03_file.py": "", "3/02_file.py": LESSONS[1].skeleton}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    answer = grade_folder(tmp_path)
    hostile, empty, after = answer.files
    assert [(one.state, one.line) for one in hostile.exercises] == [("wrong", 5), ("wrong", 7), ("wrong", 10)]
    exits, ends, kills = (one.text for one in hostile.exercises)
    assert exits.startswith("on 1 rank: this line ends the whole program")
    assert ends == "there is no answer: your file ended its process with status 0, as os._exit does"
    assert kills == "there is no answer: the server that runs programs on virtual ranks was ended by SIGKILL; run again"
    assert [one.text for one in empty.exercises][:2] == [
        "on 2 ranks: 03_file.py has no broadcast any more",
        "on 2 ranks: 03_file.py has no reduce any more",
    ]
    assert "line 0" not in str(list(answer.show()))
    assert [one.state for one in after.exercises] == ["wrong", "wrong", "to do"]


def test_what_a_program_has_started_ends_with_it(virtual: VirtualRuns, tmp_path: Path) -> None:
    program, began = tmp_path / "forks.py", time.monotonic()
    program.write_text("import subprocess\nsubprocess.Popen(['sleep', '100'])")
    virtual(program, 1)
    assert time.monotonic() - began < 50, "its output is not waited for"


def test_a_player_is_written_over_no_lesson(ringlab: Ringlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ringlab("learn", 1)
    for output, words in (
        (["-o", "01_message.py"], "01_message.py is your file"),
        (["-o", "player.txt"], "a player is written as .html"),
        ([], "01_message.html is a directory; name a file to write"),
    ):
        if not output:
            Path("01_message.html").mkdir()
        refused = ringlab("learn", 1, "--show", *output)
        assert refused.status == 2 and words in refused.err
    assert Path("01_message.py").read_text() == LESSONS[0].skeleton


def test_the_pictures_of_data_parallel_and_pipelines_take_the_time_of_their_questions(
    virtual: VirtualRuns, tmp_path: Path
) -> None:
    for number, ranks, said in (
        (6, 4, ("averaged after backward: 72.0 ms", "in buckets of a layer: 48.0 ms", "second step: 48.0 ms")),
        (10, 4, ("gpipe: 0.330 s, kept at most 8", "one_f_one_b: 0.330 s, kept at most 4")),
    ):
        ran = virtual(solved(find_lesson(number), tmp_path), ranks, timing="live")
        lines = ran.lines(0)
        assert all(any(words in line for line in lines) for words in said), ran.out
        assert ran.trace is not None
        assert {"compute"} < {span.name for span in ran.trace.spans}


def test_lessons_name_files_that_a_command_of_theirs_writes() -> None:
    for lesson in LESSONS:
        text = lesson.skeleton
        assert "examples/" not in text, "which an installed package has not"
        for name in re.findall(r"`ringlab \w+ (\w+)\.toml", text):
            assert f"`ringlab init {name.replace('_', '-')}`" in text
