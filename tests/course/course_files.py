"""Lesson files with solutions filled in."""

from pathlib import Path

from course.files import Lesson, fill

SOLUTIONS = Path(__file__).parent / "course_solutions"


def solved(lesson: Lesson, folder: Path, *changes: Path) -> Path:
    """Write a lesson's file with its solution, and changes to it."""
    text = lesson.skeleton
    for functions in (SOLUTIONS / lesson.file_name, *changes):
        text = fill(text, functions.read_text())
    path = folder / lesson.file_name
    path.write_text(text)
    return path
