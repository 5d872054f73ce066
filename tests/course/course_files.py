"""Lesson files with solutions filled in, and with mistakes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from course.files import LESSONS, Lesson, fill

FOLDER = Path(__file__).parent
SOLUTIONS = FOLDER / "course_solutions"
MISTAKE = re.compile(
    r"^= (?P<name>\w+): (?P<exercise>\w[\w, ]*) \| (?P<words>.+?) \| (?P<elsewhere>elsewhere: )?(?P<lines>.+)\n"
    r"(?P<hunks>(?:[-+ @].*\n)+)",
    re.MULTILINE,
)
HUNK = re.compile(r"(?:[- ].*\n)+(?:\+.*\n)*")


def solved(lesson: Lesson, folder: Path, *changes: str) -> Path:
    """Write a lesson's file with its solution, and changed functions."""
    text = lesson.skeleton
    for functions in ((SOLUTIONS / lesson.file_name).read_text(), *changes):
        text = fill(text, functions)
    path = folder / lesson.file_name
    path.write_text(text)
    return path


class Mistake(NamedTuple):
    """A wrong solution of a lesson.

    ``words`` is a pattern of the report. ``lines`` are the lines at fault: the line to change, one that the mistake
    lets happen, or a neighbor of a missing line. A mistake that is reported at another line is ``elsewhere``.
    """

    lesson: Lesson
    name: str
    exercise: str
    words: str
    lines: tuple[str, ...]
    is_elsewhere: bool
    solution: str


def read_mistakes() -> Iterator[Mistake]:
    """Yield the mistakes in ``course_mistakes``.

    There, each mistake is a line ``= name: exercise | words | lines``, and a patch of the lesson's solution. A patch of
    new lines alone replaces functions.
    """
    for lesson in LESSONS:
        solution = (SOLUTIONS / lesson.file_name).read_text()
        for found in MISTAKE.finditer((FOLDER / "course_mistakes" / lesson.file_name).with_suffix(".diff").read_text()):
            lines = tuple(found["lines"].split(" ;; "))
            is_elsewhere, text = found["elsewhere"] is not None, _patched(solution, found["hunks"])
            yield Mistake(lesson, found["name"], found["exercise"], found["words"], lines, is_elsewhere, text)


def _patched(text: str, hunks: str) -> str:
    if set(re.findall("^.", hunks, re.MULTILINE)) == {"+"}:
        return fill(text, re.sub(r"^\+", "", hunks, flags=re.MULTILINE))
    for hunk in HUNK.findall(hunks):
        old, new = ("".join(line[1:] for line in hunk.splitlines(True) if line[0] in kinds) for kinds in ("- ", "+ "))
        assert text.count(old) == 1, f"found {text.count(old)} times:\n{old}"
        text = text.replace(old, new)
    return text
