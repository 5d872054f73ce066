"""The files of lessons: names, folders, and skeletons filled with a learner's functions."""

import ast
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from collectives.errors import InputError
from course.checks.exercise import Exercise, Shown

FOLDER = Path(__file__).parent
# files that a trial writes
NOTES, STACK = "notes-{}.json", "stack.txt"
CONTENTS, SPANS = "contents-{}.json", "spans-{}.json"  # and that ``--show`` writes
NAMES = (
    "message", "deadlock", "collectives", "ring", "trees", "data_parallel", "hierarchy", "sharding", "tensor_parallel",
    "pipeline", "mesh",
)  # fmt: skip


@dataclass(frozen=True)
class Lesson:
    """A lesson of the course: the file that learners start from, its title, and its checks."""

    number: int

    @property
    def file_name(self) -> str:
        """The name of the lesson's file, in the course and in a learner's folder."""
        return f"{self.number:02}_{NAMES[self.number - 1]}.py"

    @property
    def skeleton(self) -> str:
        """The text of the file that learners start from."""
        return (FOLDER / "lessons" / self.file_name).read_text(encoding="utf-8")

    @property
    def title(self) -> str:
        """The heading of the lesson's first cell."""
        return self.skeleton.split("\n", 2)[1].removeprefix(f"# # {self.number}. ")

    @property
    def checks(self) -> ModuleType:
        """The lesson's check module, with exercises, ``SHOWN`` and the function ``predicted``."""
        return import_module(f"course.checks.{NAMES[self.number - 1]}")

    @property
    def exercises(self) -> list[Exercise]:
        return [value for value in vars(self.checks).values() if isinstance(value, Exercise) and value.name]

    @property
    def shown(self) -> Shown:
        shown: Shown = self.checks.SHOWN
        return shown


LESSONS = tuple(Lesson(number) for number in range(1, len(NAMES) + 1))


def find_lesson(number: int) -> Lesson:
    """Return the lesson with this number. Raise InputError if it does not exist."""
    if not 1 <= number <= len(LESSONS):
        raise InputError(f"lesson {number} does not exist; choose a lesson from 1 to {len(LESSONS)}")
    return LESSONS[number - 1]


def fill(skeleton: str, functions: str) -> str:
    """Return the skeleton with its definitions replaced by those of the same name in ``functions``.

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
    """Return the functions and classes that a Python source defines at its top level, in order."""
    return [node for node in ast.parse(text).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
