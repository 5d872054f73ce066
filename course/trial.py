"""The program that each virtual rank runs to check one exercise of a learner's file.

    python -m course.trial FILE LESSON EXERCISE NOTES

Each rank writes its error, its observations and the file's predictions into the folder NOTES.
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

from course.checks.exercise import MEASURED, WrongAnswerError, read_number
from course.files import NOTES, STACK, find_lesson
from course.lines import LineNotes, noting_lines

CPU_SECONDS = 5  # CPU time limit of all ranks of one trial; a solution needs less than two seconds
MEMORY = 2 << 30  # limit in bytes; without the learner's tensors, the ranks need less than one GiB


def main() -> None:
    """Load the learner's file and call the exercise's check; exit with status 1 if the file raises."""
    path, number, name, folder = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    exercises = {exercise.name: exercise for exercise in find_lesson(number).exercises}
    exercise, functions = exercises[name], name.split(", ")
    others = [function for names in exercises for function in names.split(", ") if function not in functions]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        faulthandler.register(signal.SIGXCPU, (folder / STACK).open("w"))  # names the line of an endless loop
    lesson, notes = ModuleType("lesson"), dict[str, Any](error=None, predictions={})
    with noting_lines(str(path), functions, others) as lines:
        try:
            load(path, lesson)
            notes["predictions"] = numbers_in(getattr(lesson, "PREDICTIONS", None))
            missing = [function for function in functions if not hasattr(lesson, function)]
            if missing:
                raise WrongAnswerError(f"{path.name} does not define {missing[0]}; copy it from the lesson")
            exercise.check(lesson)
        except (Exception, SystemExit) as error:
            notes["error"] = describe(error, path, lines)
            if not isinstance(error, WrongAnswerError):
                sys.exit(1)  # after a wrong answer the run continues, to find unmatched messages
        finally:
            notes |= {"waited": lines.waited, "calls": lines.calls, "measured": lesson.__dict__.get(MEASURED, [])}
            (folder / NOTES.format(rank)).write_text(json.dumps(notes))


def load(path: Path, lesson: ModuleType) -> ModuleType:
    """Execute a learner's file as the importable module ``lesson``, not as ``__main__``; return the module."""
    lesson.__file__ = str(path)
    sys.modules["lesson"] = lesson
    exec(compile(path.read_bytes(), str(path), "exec"), lesson.__dict__)
    return lesson


def numbers_in(predictions: Any) -> dict[str, float]:
    """Return the learner's predictions as floats. Predictions that are not numbers are omitted.

    >>> numbers_in({"seconds": 2, "bytes": None})
    {'seconds': 2.0}
    """
    if not isinstance(predictions, dict):
        return {}
    numbers = {str(name): read_number(value) for name, value in predictions.items()}
    return {name: number for name, number in numbers.items() if number is not None}


def describe(error: Exception | SystemExit, path: Path, lines: LineNotes) -> dict[str, Any]:
    """Return the error as a dict with its text and line. The line is 0 if no line of the file caused the error."""
    if isinstance(error, WrongAnswerError) and lines.unwaited:
        call = next(iter(lines.unwaited.values()))
        why = f"nothing waits for dist.{call.name} in this line; call wait() on the handle before you use the tensor"
        return {"text": f"{error}\n{why}", "line": call.line, "is_explained": True}
    if isinstance(error, WrongAnswerError):
        line, done = lines.line_of(error)
        return {"text": f"{error}; {done}" if done else str(error), "line": line}
    lines_of_file = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = (lines_of_file or [0])[-1] or 0
    if isinstance(error, SyntaxError) and error.filename == str(path):
        line = error.lineno or 0
    text = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
    if isinstance(error, SystemExit):
        text = "this line ends the whole program of its rank; return from the function instead"
    elif isinstance(error, MemoryError) or "allocate memory" in str(error) or "bad_alloc" in str(error):
        text = f"out of memory: a check may use {MEMORY >> 30} GiB; allocate less"
    return {"text": text, "line": line, "to_do": isinstance(error, NotImplementedError)}


if __name__ == "__main__":
    main()
