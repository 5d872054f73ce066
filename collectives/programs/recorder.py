"""Record the operations of a user's rank program as numbers, inside the worker process.

A step is recorded as its line and its number of operations. An operation is recorded as its five fields. If the program
runs for many ranks at once, a field can be a symbolic number. An operation with any other value is rejected.
"""

from array import array
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import numpy as np

from collectives.budget import Gigabyte, allowed, more_memory
from collectives.declaration import Algorithm
from collectives.errors import InputError, Undefined, describe_error, first_line, line_in, shorten, with_line
from collectives.programs.limits import MOST_CHANNELS, MOST_STEPS, read_limits
from collectives.step import Kind, Step, as_step, describe_invalid, line_reached
from collectives.symbolic_rank import Diverges, ShiftedRank, VectorRank

PLAIN = frozenset({int, Kind})  # types of ordinary numbers
Note = Callable[[int, int, int, int], None]  # called with the rank, channel, step and line of a program


def describe_failure(error: BaseException, file: str, subject: str, line: int | None = None) -> dict[str, Any]:
    """Return the reply for an exception in a user's file: its text, and whether it is an ``Undefined`` error.

    The text begins with ``subject`` if the user's code raised the exception. It names ``line`` if the traceback does
    not contain ``file``.
    """
    if is_about_memory(error):
        text = f"it uses more than {read_limits().describe_memory()}"
    elif isinstance(error, InputError):
        text = first_line(error, most=1000)
    else:
        return {"refused": subject + describe_error(error, file), "undefined": False}
    line = line_in(error, file) or (error.__cause__ and line_in(error.__cause__, file)) or line
    return {"refused": with_line(text, line, file), "undefined": isinstance(error, Undefined)}


def is_about_memory(error: BaseException) -> bool:
    """Return whether an exception means that memory ran out. torch raises RuntimeError instead of MemoryError."""
    cause = error.__cause__ or error
    return isinstance(cause, MemoryError) or "allocate memory" in first_line(cause)


class TooMuch(InputError):  # noqa: N818
    """A user's program exceeds a limit on its channels, steps or operations."""


class Recorder:
    """Runs a user's program on the ranks of one collective call, and records their steps."""

    def __init__(self, algorithm: Algorithm, note: Note) -> None:
        self.algorithm, self.note, self.file = algorithm, note, str(algorithm.source)
        self.begin = algorithm.first_line
        self.most = allowed(Gigabyte.YIELDED)  # operations
        self.channels: list[list[int]] = []  # steps of each channel of each rank
        self.steps, self.numbers = array("i"), array("i")  # line and size of each step; five numbers per operation
        self.shifted, self.vectors, self.values = array("q"), array("q"), list[Any]()
        self.failures: list[dict[str, Any]] = []  # at most one per rank

    def record(self, ranks: Iterable[Any], world_size: int, root: Any) -> None:
        """Run the program of each rank. If it fails, continue with the next rank, unless a limit was exceeded."""
        for number, rank in enumerate(ranks):
            self.channels.append([])
            at = [number, 0, -1]
            program: Any = None
            try:
                self.note(number, 0, 0, self.begin)
                programs = self.algorithm.start(rank, world_size, root)
                if len(programs) > MOST_CHANNELS:
                    raise TooMuch(f"a rank must return at most {MOST_CHANNELS} programs, not {len(programs)}")
                self.channels[-1] = [0] * len(programs)
                for channel, program in enumerate(programs):
                    at[1:] = channel, 0
                    self._run(program, at)
            except Diverges:
                raise
            except BaseException as error:
                line = line_reached(program, self.file) or self.begin
                self.failures.append({"at": at, **describe_failure(error, self.file, "the program fails with ", line)})
                if isinstance(error, MemoryError | TooMuch):
                    return

    def _run(self, program: Any, at: list[int]) -> None:
        rank, channel, step = at
        for yielded in program:
            if step == MOST_STEPS:
                raise TooMuch(f"the program does not end: it yields more than {MOST_STEPS} steps")
            line = line_reached(program, self.file)
            self._add(as_step(yielded), line)
            at[2] = self.channels[-1][channel] = step = step + 1
            self.note(rank, channel, step, line)

    def _add(self, step: Step, line: int) -> None:
        numbers: list[Any] = list(chain.from_iterable(step))
        for op in step:
            if type(op.kind) is not Kind:
                raise InputError(f"{shorten(op)} is not an operation; use send, recv, recv_reduce, copy or reduce")
        if len(self.numbers) + len(numbers) > 5 * self.most:
            raise TooMuch(f"the programs of all ranks yield more than {self.most:,} operations; {more_memory(2)}")
        try:
            if not set(map(type, numbers)) <= PLAIN:
                raise OverflowError
            self.numbers.fromlist(numbers)
        except OverflowError:  # checking each number takes longer
            for op in step:
                for number in op:
                    if not isinstance(number, ShiftedRank | VectorRank) and (problem := describe_invalid(number)):
                        operation = op.kind.name.lower()
                        raise InputError(f"{operation}: {problem}") from None
            self.numbers.extend(self._take_symbol(number, at) for at, number in enumerate(numbers, len(self.numbers)))
        self.steps.extend((line, len(step)))

    def _take_symbol(self, number: Any, index: int) -> int:
        """Return ``number`` as an int. If it is symbolic, record it with its ``index`` and return 0."""
        if isinstance(number, ShiftedRank):
            self.shifted.extend((index, number.shift, number.base, number.stride))
        elif isinstance(number, VectorRank):
            self.vectors.append(index)
            self.values.append(np.asarray(number.values, np.int64))
        else:
            return int(number)
        return 0

    def answer(self) -> tuple[dict[str, Any], bytes]:
        header = {
            "channels": self.channels, "steps": len(self.steps) // 2, "operations": len(self.numbers) // 5,
            "shifted": len(self.shifted) // 4, "vectors": len(self.vectors), "failures": self.failures,
        }  # fmt: skip
        parts = [part.tobytes() for part in (self.steps, self.numbers, self.shifted, self.vectors, *self.values)]
        return header, b"".join(parts)
