"""The lessons' files: where they are, what they are called, and a skeleton with a learner's functions put in."""

import ast
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from collectives.errors import InputError
from course.checks.exercise import Shown

FOLDER = Path(__file__).parent
# what a trial leaves:
PREDICTIONS, NOTE, WAITED, STACK = "predictions.json", "rank-{}.json", "waited-{}.json", "stack.txt"
CONTENTS = "contents-{}.json"  # and what is shown
NAMES = (
    "message",
    "deadlock",
    "collectives",
    "ring",
    "trees",
    "data_parallel",
    "hierarchy",
    "sharding",
    "tensor_parallel",
    "pipeline",
    "mesh",
)


@dataclass(frozen=True)
class Lesson:
    """A lesson by its number: the skeleton's file, its title, and what judges it."""

    number: int

    @property
    def file_name(self) -> str:
        """The name of its file, in the course and in a learner's folder."""
        return f"{self.number:02}_{NAMES[self.number - 1]}.py"

    @property
    def skeleton(self) -> str:
        """The text of the file that a learner begins with."""
        return (FOLDER / "lessons" / self.file_name).read_text(encoding="utf-8")

    @property
    def title(self) -> str:
        """The heading of its text.

        >>> Lesson(2).title
        'Deadlocks, and how to read them'
        """
        return self.skeleton.split("\n", 2)[1].removeprefix(f"# # {self.number}. ")

    @property
    def checks(self) -> ModuleType:
        """The module with its ``EXERCISES`` and its ``PREDICTED`` numbers."""
        return import_module(f"course.checks.{NAMES[self.number - 1]}")

    @property
    def shown(self) -> Shown:
        """How its file is run to be shown."""
        found: Shown = self.checks.SHOWN
        return found


LESSONS = tuple(Lesson(number) for number in range(1, len(NAMES) + 1))


def find_lesson(number: int) -> Lesson:
    """Return a lesson; raise InputError where there is none of that number."""
    if not 1 <= number <= len(LESSONS):
        raise InputError(f"there is no lesson {number}; lessons are 1 to {len(LESSONS)}")
    return LESSONS[number - 1]


def fill(skeleton: str, functions: str) -> str:
    """Put functions and classes in the place of those of their names; what is new comes before the first of them.

    >>> print(fill("def f():\\n    raise NotImplementedError\\n\\nf()", "def f():\\n    return g()\\n\\ndef g(): ..."))
    def g(): ...
    <BLANKLINE>
    <BLANKLINE>
    def f():
        return g()
    <BLANKLINE>
    f()
    """
    mine = {node.name: ast.get_source_segment(functions, node) or "" for node in named(functions)}
    lines, known = skeleton.splitlines(), named(skeleton)
    for node in reversed(known):
        if node.name in mine:
            lines[node.lineno - 1 : node.end_lineno] = mine.pop(node.name).splitlines()
    first = min(node.lineno for node in known) - 1
    lines[first:first] = "\n\n\n".join([*mine.values(), ""]).splitlines()
    return "\n".join(lines) + ("\n" if skeleton.endswith("\n") else "")


def named(text: str) -> list[ast.FunctionDef | ast.ClassDef]:
    """Return the functions and classes of a file, in their order."""
    return [node for node in ast.parse(text).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]


def lesson_of(path: Path) -> Lesson | None:
    """Return the lesson whose file name a file has, or begins with its number; None where it has none.

    >>> lesson_of(Path("ada/04_ring.py")).title, lesson_of(Path("notes.py"))
    ('The ring, and when it wins', None)
    """
    number = path.name.partition("_")[0]
    return LESSONS[int(number) - 1] if number.isdecimal() and 1 <= int(number) <= len(LESSONS) else None
