"""Grading: each file sees its own folder only, and has limits of time and memory."""

import json
import os
from pathlib import Path

import pytest
from course_files import SOLUTIONS, solved

from collectives.errors import InputError
from course.files import LESSONS
from course.grading import can_confine
from ringlab.commands.learn import CheckedLessons, grade_folder
from virtual.hosting.confinement import Confinement

confined = pytest.mark.skipif(not can_confine(), reason="this machine allows no user namespaces")


@pytest.mark.usefixtures("one_server")
def test_grading_covers_every_file_of_a_class(tmp_path: Path) -> None:
    for name in ("ada", "grace"):
        (tmp_path / name).mkdir()
    solved(LESSONS[3], tmp_path / "ada")
    (tmp_path / "grace" / "04_ring.py").write_text(LESSONS[3].skeleton)
    (tmp_path / "grace" / "notes.py").write_text("")
    answer = grade_folder(tmp_path)
    assert [(Path(file.file).parent.name, file.is_right) for file in answer.files] == [("ada", True), ("grace", False)]
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


def test_file_that_ends_its_own_process_is_graded_wrong(tmp_path: Path) -> None:
    texts = {"1/04_file.py": HOSTILE, "2/03_file.py": "", "3/02_file.py": LESSONS[1].skeleton}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    answer = grade_folder(tmp_path)
    hostile, empty, after = answer.files
    lines = [(exercise.state, exercise.line) for exercise in hostile.exercises]
    assert lines == [("wrong", 5), ("wrong", 7), ("wrong", 10)]
    exits, ends, kills = (exercise.text for exercise in hostile.exercises)
    assert exits.startswith("on 1 rank: this line ends the whole program")
    assert ends == "no result: your file ended its process with status 0, as os._exit does"
    assert kills == "no result: the server that runs programs on virtual ranks was ended by SIGKILL; run again"
    assert [exercise.text for exercise in empty.exercises][:2] == [
        "on 1 rank: 03_file.py does not define broadcast; copy it from the lesson",
        "on 1 rank: 03_file.py does not define reduce; copy it from the lesson",
    ]
    assert "line 0" not in str(list(answer.show()))
    assert [exercise.state for exercise in after.exercises] == ["wrong", "wrong", "to do"]


def grade_texts(folder: Path, **texts: str) -> CheckedLessons:
    """Grade lesson 4 of learners by name."""
    for name, text in texts.items():
        (folder / name).mkdir()
        (folder / name / "04_ring.py").write_text(text)
    return grade_folder(folder, 4)


READS = """
from pathlib import Path
exec(compile(Path({neighbor!r}).read_text(), "neighbor", "exec"))
"""
WRITES = """
import os, tempfile
from pathlib import Path

def ring_all_reduce(tensor):
    Path(tempfile.gettempdir(), "log").write_text("here it may write")
    Path({folder!r}, "log").write_text("here not")

def ring_seconds(p, nbytes, alpha, beta):
    Path("log").write_text("nor next to its own file")

def ring_wins_from(p, alpha, beta):
    return helper.answer
import helper
"""


@confined
@pytest.mark.usefixtures("one_server")
def test_file_cannot_read_its_neighbors_or_the_solution(tmp_path: Path) -> None:
    ada = tmp_path / "ada"
    ada.mkdir()
    solved(LESSONS[3], ada)
    sources = {"bob": ada / "04_ring.py", "eve": SOLUTIONS / "04_ring.py"}
    assert all(source.exists() for source in sources.values())
    right, *thieves = grade_texts(
        tmp_path, **{name: READS.format(neighbor=str(path)) for name, path in sources.items()}
    ).files
    assert right.is_right
    for thief in thieves:
        assert [exercise.state for exercise in thief.exercises] == ["wrong"] * 3
        assert "No such file or directory" in thief.exercises[0].text


@confined
@pytest.mark.usefixtures("one_server")
def test_file_writes_only_into_its_scratch_folder(tmp_path: Path) -> None:
    ada, before = tmp_path / "ada", sorted(tmp_path.rglob("*"))
    ada.mkdir()
    (ada / "helper.py").write_text("answer = 0.0")
    (ada / "04_ring.py").write_text(WRITES.format(folder=str(tmp_path)))
    (judged,) = grade_folder(tmp_path, 4).files
    texts = [exercise.text for exercise in judged.exercises]
    assert "Read-only file system" in texts[0] and str(tmp_path / "log") in texts[0]
    assert "Read-only file system" in texts[1]
    assert "must be 9375, not 0" in texts[2], "a module next to the file is imported"
    assert before == [] and sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [
        "04_ring.py",
        "helper.py",
    ]


MEMORY = """
import torch

def ring_all_reduce(tensor):
    kept = []
    while True:
        kept.append(torch.zeros(1 << 28))

def ring_seconds(p, nbytes, alpha, beta):
    return len(bytearray(1 << 36))
"""


@pytest.mark.usefixtures("one_server")
def test_out_of_memory_error_states_the_limit(tmp_path: Path) -> None:
    (judged,) = grade_texts(tmp_path, ada=MEMORY).files
    sources = "kept.append(torch.zeros(1 << 28))", "return len(bytearray(1 << 36))"
    for exercise, source in zip(judged.exercises, sources, strict=False):
        assert (
            exercise.text.endswith("out of memory: a check may use 2 GiB; allocate less") and exercise.source == source
        )


ENDLESS = """
def ring_all_reduce(tensor):
    while True:
        tensor = tensor
"""


@pytest.mark.slow
@pytest.mark.usefixtures("one_server")
def test_endless_loop_is_named_with_its_line(tmp_path: Path) -> None:
    begin = os.times()
    endless = grade_texts(tmp_path, ada=ENDLESS).files[0].exercises[0]
    assert endless.text == "on 1 rank: endless: the loop or call in this line does not end"
    assert endless.source in ("while True:", "tensor = tensor")
    assert os.times().children_user - begin.children_user < 10, "seconds of CPU time"


@pytest.mark.usefixtures("one_server")
def test_notebooks_are_graded(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": (SOLUTIONS / "01_message.py").read_text()}]
    for name, text in (("ada", json.dumps({"cells": cells})), ("bob", "{}")):
        (tmp_path / name / ".ipynb_checkpoints").mkdir(parents=True)
        for folder in (tmp_path / name, tmp_path / name / ".ipynb_checkpoints"):
            (folder / "01_message.ipynb").write_text(text)
    ada, bob = grade_folder(tmp_path).files
    assert ada.is_right and ada.file == str(tmp_path / "ada" / "01_message.ipynb")
    assert {exercise.state for exercise in bob.exercises} == {"wrong"} and "cannot be read" in bob.exercises[0].text


def test_grading_without_namespaces_suggests_a_container() -> None:
    words = [str(part) for part in CheckedLessons((), (), is_confined=False).show()]
    assert any("Grade in a container" in line for line in words)


def test_confinement_reports_that_namespaces_are_not_allowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse() -> None:
        raise PermissionError

    monkeypatch.setattr("virtual.hosting.confinement._unshare", refuse)
    assert not Confinement(str(tmp_path), str(tmp_path)).enter()
