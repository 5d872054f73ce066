"""Grade a class: check every lesson file in a folder, isolated from the other learners' files."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import course
import virtual.hosting.confinement
from collectives.errors import InputError
from course.files import Lesson
from course.judging import Judge, JudgedExercise, JudgedLesson
from course.notebooks import opened
from virtual.hosting.confinement import Confinement
from virtual.hosting.host import VirtualHost

_NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "*venv*", "node_modules")


@cache
def can_confine() -> bool:
    """Return whether this machine can run a program with a read-only view of the file system."""
    module = str(virtual.hosting.confinement.__file__)
    return subprocess.run([sys.executable, "-I", module], capture_output=True).returncode == 0


def grade(root: Path, files: Mapping[Path, Lesson], host: VirtualHost) -> Iterator[JudgedLesson]:
    """Yield the result of each lesson file below ``root``. A file sees only a copy of its own folder."""
    hidden = tuple(map(str, find_hidden(root, files)))
    for path, lesson in files.items():
        try:
            with copied(root, path, hidden) as (copy, confinement), opened(copy) as script:
                judged = Judge(lesson, script.path, host, confinement=confinement).judge()
                judged = replace(judged, exercises=tuple(map(script.locate, judged.exercises)))
        except InputError as error:
            wrong = tuple(JudgedExercise(exercise.name, "wrong", text=str(error)) for exercise in lesson.exercises)
            judged = JudgedLesson(lesson.number, str(path), wrong, ())
        yield replace(judged, file=str(path))


def find_hidden(root: Path, files: Mapping[Path, Lesson]) -> list[Path]:
    """Return the paths to hide: the solutions of a checkout, and the learners' files and folders in ``root``."""
    root = root.resolve()
    needed = [Path(folder).resolve() for folder in (sys.prefix, gettempdir(), *course.__path__)]
    hidden = dict[Path, None]()
    for path in (file.resolve() for file in files):
        if not path.is_relative_to(root):  # a symlink out of the class's folder
            hidden[path] = None
            continue
        entry = root / path.relative_to(root).parts[0]
        hidden[path if any(folder.is_relative_to(entry) for folder in needed) else entry] = None
    tests = [Path(folder).parent / "tests" / "course" for folder in course.__path__]  # in a checkout
    return [*hidden, *filter(Path.exists, tests)]


@contextmanager
def copied(root: Path, path: Path, hidden: tuple[str, ...]) -> Iterator[tuple[Path, Confinement]]:
    """Yield a temporary copy of a submission, and its Confinement. Copy the whole folder unless that is ``root``."""
    with TemporaryDirectory(prefix="ringlab-grade-") as base:
        folder, scratch = Path(base, "submission"), Path(base, "scratch")
        scratch.mkdir()
        if path.parent.resolve() == root.resolve():
            folder.mkdir()
            shutil.copy(path, folder)
        else:
            shutil.copytree(path.parent, folder, ignore=_not_copied)
        yield folder / path.name, Confinement(str(folder), str(scratch), hidden)


def _not_copied(folder: str, names: list[str]) -> set[str]:
    """Return the names to skip: symlinks, which may lead to other submissions, and installed packages."""
    return {name for name in names if Path(folder, name).is_symlink()} | _NOT_COPIED(folder, names)
