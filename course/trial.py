"""Try one exercise of a lesson with a learner's file: what each virtual rank executes.

    python -m course.trial FILE LESSON EXERCISE NOTES

What a rank has to say of it, it writes into the folder NOTES: ``rank-0.json``; rank 0 its predictions too.
"""

import faulthandler
import json
import resource
import signal
import sys
import traceback
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import torch.distributed as dist

from course.checks.exercise import WrongAnswerError
from course.files import NOTE, PREDICTIONS, STACK, WAITED, find_lesson
from course.lines import LineNotes, noting_lines

CPU_SECONDS, MEMORY = 20, 8 << 30  # of one trial, all its ranks


def main() -> None:
    """Load the learner's file and call the exercise's check; exit with status 1 where it raises."""
    path, number, name, notes = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    exercises = {one.name: one for one in find_lesson(number).checks.EXERCISES}
    exercise, own = exercises[name], name.split(", ")
    others = [one for names in exercises for one in names.split(", ") if one not in own]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        faulthandler.register(signal.SIGXCPU, (notes / STACK).open("w"))  # says in which line a loop never ends
    with noting_lines(str(path), own, others) as lines:
        try:
            lesson = load(path)
            if rank == 0:
                (notes / PREDICTIONS).write_text(json.dumps(numbers_in(getattr(lesson, "PREDICTIONS", None))))
            missing = [one for one in own if not hasattr(lesson, one)]
            if missing:
                raise WrongAnswerError(f"{path.name} has no {missing[0]} any more")
            exercise.check(lesson)
        except (Exception, SystemExit) as error:
            (notes / NOTE.format(rank)).write_text(json.dumps(describe(error, path, lines)))
            if not isinstance(error, WrongAnswerError):
                sys.exit(1)  # else the run goes on, and what nobody waits for is told
        finally:
            (notes / WAITED.format(rank)).write_text(json.dumps(lines.waited))


def load(path: Path) -> ModuleType:
    """Execute a learner's file as a module, not as a program."""
    lesson = ModuleType("lesson")
    lesson.__file__ = str(path)
    sys.modules["lesson"] = lesson
    exec(compile(path.read_bytes(), str(path), "exec"), lesson.__dict__)
    return lesson


def numbers_in(predictions: Any) -> dict[str, float]:
    """Return what a learner has predicted, without what is no number."""
    if not isinstance(predictions, dict):
        return {}
    return {str(name): float(said) for name, said in predictions.items() if isinstance(said, (int, float))}


def describe(error: Exception | SystemExit, path: Path, lines: LineNotes) -> dict[str, Any]:
    """Return what went wrong, in words, and the learner's line, 0 where it is in none."""
    if isinstance(error, WrongAnswerError):
        line, done = lines.line_of(error)
        return {"text": f"{error}; {done}" if done else str(error), "line": line}
    found = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = (found or [0])[-1] or 0
    if isinstance(error, SyntaxError) and error.filename == str(path):
        line = error.lineno or 0
    text = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
    if isinstance(error, SystemExit):
        text = "this line ends the whole program of its rank; a function that is done returns"
    to_do = isinstance(error, NotImplementedError)
    return {"text": text, "line": line, "to_do": to_do}


if __name__ == "__main__":
    main()
