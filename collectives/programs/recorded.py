"""Use a user's rank program as an ``Algorithm`` by replaying its operations, which a worker process recorded.

Recorded steps are not trusted: this module checks their format, and they are verified like any other program.
"""

import inspect
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from collectives.declaration import Algorithm, first_arguments
from collectives.errors import InputError, ProgramEnded, Undefined
from collectives.programs.sandbox import ProgramFile
from collectives.quoting import make_printable
from collectives.spec import find_spec
from collectives.step import Kind, Operation, Step
from collectives.symbolic_rank import Diverges, ShiftedRank, VectorRank

KINDS = tuple(Kind)
MOST_CACHED = 16_000_000  # operations
Ints = npt.NDArray[np.int32]
Parameters = dict[str, Any]


class RecordedFailure(NamedTuple):
    """An exception of a user's program, recorded in the worker process."""

    at: tuple[int, int, int]  # rank, channel, step; step -1: the program did not start
    answer: dict[str, Any]


def raise_failure(answer: dict[str, Any]) -> NoReturn:
    """Raise the error in a worker's reply: Undefined for an unsupported world size, InputError for other errors."""
    raise (Undefined if answer.get("undefined") is True else InputError)(make_printable(str(answer.get("refused"))))


@dataclass(frozen=True)
class RecordedSteps:
    """The recorded steps of some ranks. Channel c of rank r has ``counts[r][c]`` steps."""

    counts: list[list[int]]
    lines: Ints  # the line of each step; 0: unknown
    ends: Ints  # index after each step's last operation
    numbers: Ints  # [operations, 5]
    symbols: dict[int, Any]  # symbolic numbers by their index
    failures: dict[int, RecordedFailure]  # by rank

    def channels(self, rank: int) -> tuple[Iterator[Step], ...]:
        """Return one iterator for each channel of a rank, over the channel's steps.

        If the program failed, an iterator raises the error when it reaches the failed step. If the program failed
        before its first step, this call raises the error.
        """
        if rank >= len(self.counts):
            raise_failure(next(iter(self.failures.values())).answer)
        if rank in self.failures and self.failures[rank].at[2] < 0:
            raise_failure(self.failures[rank].answer)
        return tuple(self._steps(rank, channel) for channel in range(len(self.counts[rank])))

    def _steps(self, rank: int, channel: int) -> Iterator[Step]:
        first = self.first_step(rank, channel)
        last = first + self.counts[rank][channel]
        begin = int(self.ends[first - 1]) if first else 0
        ends = (self.ends[first:last] - begin).tolist()
        operations = self._operations(begin, begin + ends[-1]) if ends else []
        begin = 0
        for end in ends:
            yield tuple(operations[begin:end])
            begin = end
        if rank in self.failures and self.failures[rank].at[1] == channel:
            raise_failure(self.failures[rank].answer)

    def first_step(self, rank: int, channel: int) -> int:
        return self._first_steps[rank] + sum(self.counts[rank][:channel])

    @cached_property
    def _first_steps(self) -> list[int]:
        return [0, *accumulate(map(sum, self.counts))]

    def _operations(self, begin: int, end: int) -> list[Operation]:
        rows = self.numbers[begin:end].tolist()
        if self.symbols:
            for at, row in enumerate(rows, begin):
                row[:] = [self.symbols.get(5 * at + place, number) for place, number in enumerate(row)]
        return [Operation(KINDS[kind], peer, chunk, count, into) for kind, peer, chunk, count, into in rows]

    def table(self) -> Ints:
        """Return an array with one row per operation: its rank, channel, step, kind, peer, chunk, count and into.

        Raise InputError if the program of a rank failed.
        """
        if self.failures:
            raise InputError("a rank has failed")
        locations = [(rank, channel) for rank, counts in enumerate(self.counts) for channel in range(len(counts))]
        counts = np.array([count for counts in self.counts for count in counts], np.int32)
        steps = np.arange(counts.sum(), dtype=np.int32) - np.repeat(np.cumsum(counts) - counts, counts)
        of_steps = np.column_stack([np.repeat(np.array(locations, np.int32), counts, axis=0), steps])
        of_operations = np.repeat(of_steps, np.diff(self.ends, prepend=0), axis=0)
        return np.column_stack([of_operations, self.numbers]).astype(np.int32, copy=False)

    def line(self, rank: int, channel: int, step: int) -> int:
        """Return the line of the user's file that yields a step, or 0 if unknown."""
        if rank >= len(self.counts) or channel >= len(self.counts[rank]) or step >= self.counts[rank][channel]:
            return 0
        return int(self.lines[self.first_step(rank, channel) + step])


class RecordedProgram:
    """A function that returns the recorded steps of a rank. It replaces the function in the user's file."""

    def __init__(self, file: ProgramFile, name: str, described: dict[str, Any], leading: tuple[str, ...]) -> None:
        self.file, self.name, self.first_line = file, name, int(described["line"])
        self.__name__ = make_printable(str(described["function"]), most=200)
        first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in leading]
        further = [_parameter(parameter) for parameter in described["parameters"]]
        self.__signature__ = inspect.Signature(first + further)
        self._recorded: OrderedDict[Any, RecordedSteps | ProgramEnded] = OrderedDict()
        self.counts: dict[Any, Any] = {}

    def __call__(self, rank: Any, world_size: int, root: Any = 0, **parameters: Any) -> tuple[Iterator[Step], ...]:
        """Return one iterator per channel, over the steps of that channel. ``rank`` is a number or a symbolic rank.

        A symbolic rank represents many ranks. If ``rank`` is a VectorRank, ``root`` can be one too. Raise InputError if
        the program fails. Raise Diverges if a symbolic rank represents ranks that take different branches.
        """
        if isinstance(rank, VectorRank):
            root = tuple(root.values.tolist()) if isinstance(root, VectorRank) else root
            return self._record(world_size, root, parameters, rank.values.tolist()).channels(0)
        if isinstance(rank, ShiftedRank):
            return self._record(world_size, root, parameters, "shifted").channels(0)
        number = int(rank)  # other symbols raise Diverges before all ranks are recorded
        return self._record_all(world_size, root, parameters).channels(number)

    def table(self, world_size: int, root: int = 0, **parameters: Any) -> Ints:
        return self._record_all(world_size, root, parameters).table()

    def find_line(self, at: tuple[int, int, int] | None, world_size: int, root: int, **parameters: Any) -> int | None:
        """Return the line that yields the step ``at``, or the program's first line if ``at`` is None or not found."""
        if at is None:
            return self.first_line
        recorded = self._recorded.get(_key(world_size, root, parameters))
        return (recorded.line(*at) if isinstance(recorded, RecordedSteps) else 0) or self.first_line

    def _record_all(self, world_size: int, root: int, parameters: Parameters) -> RecordedSteps:
        key = _key(world_size, root, parameters)
        if key not in self._recorded:
            self._recorded[key] = self._record(world_size, root, parameters, "all")
            sizes = [len(steps.numbers) for steps in self._recorded.values() if isinstance(steps, RecordedSteps)]
            while len(self._recorded) > 1 and sum(sizes) > MOST_CACHED:
                self._recorded.popitem(last=False)
                sizes.pop(0)
        recorded = self._recorded[key]
        if isinstance(recorded, ProgramEnded):
            raise recorded
        return recorded

    def _record(self, world_size: int, root: Any, parameters: Parameters, ranks: Any) -> RecordedSteps:
        ended = self._recorded.get(key := _key(world_size, root, parameters))
        if isinstance(ended, ProgramEnded):  # the program would end its process again, on any rank
            raise ended
        question = {
            "do": "record", "name": self.name, "parameters": parameters, "world_size": world_size,
            "root": root, "ranks": ranks,
        }  # fmt: skip
        try:
            header, body = self.file.ask(question)
        except ProgramEnded as error:
            self._recorded[key] = error
            raise
        try:
            if "diverges" in header:
                raise Diverges(_differing(header["diverges"], ranks))
            return read_recorded_steps(header, body, ranks, world_size)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise self.file.unreadable(error) from error

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_recorded": OrderedDict(
            (key, steps) for key, steps in self._recorded.items() if isinstance(steps, RecordedSteps)
        )}  # fmt: skip


class RecordedCount:
    """A function for the number of chunks or scratch chunks, which runs in the worker process of the user's file."""

    def __init__(self, program: RecordedProgram, rule: str, accepted: list[str]) -> None:
        self.program, self.rule = program, rule
        parameters = [inspect.Parameter("world_size", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        parameters += [inspect.Parameter(str(name), inspect.Parameter.KEYWORD_ONLY) for name in accepted]
        self.__signature__ = inspect.Signature(parameters)

    def __call__(self, world_size: int, **values: Any) -> Any:
        """Return the number of chunks. Raise InputError if the function fails or does not support the world size."""
        key = (self.rule, *_key(world_size, 0, values))
        if key not in self.program.counts:
            question = {
                "do": "count", "name": self.program.name, "rule": self.rule, "world_size": world_size,
                "parameters": values,
            }  # fmt: skip
            header = self.program.file.ask(question)[0]
            if not isinstance(header.get("count"), int):
                raise_failure(header)
            self.program.counts[key] = header["count"]
        return self.program.counts[key]


def load_recorded(path: Path) -> list[Algorithm]:
    """Return the algorithms that a user's file declares. Their programs run in a worker process.

    Raise InputError if the file does not load, exceeds a limit, or declares an invalid algorithm.
    """
    file = ProgramFile(path)
    try:
        header, _ = file.ask({"do": "load"})
    except ProgramEnded as error:
        raise InputError(f"{path}: {error}") from error
    if "refused" in header:
        raise_failure(header)
    try:
        return [_recorded(file, described) for described in header["algorithms"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise file.unreadable(error) from error


def _recorded(file: ProgramFile, described: dict[str, Any]) -> Algorithm:
    spec, name = find_spec(described["collective"]), str(described["name"])
    if not name.isprintable() or not 0 < len(name) <= 100:
        shown = make_printable(name, most=80)
        raise InputError(
            f"{file.path}: the name of an algorithm must be printable and have at most 100 characters, not {shown!r}"
        )
    program = RecordedProgram(file, f"{spec.name}/{name}", described, first_arguments(spec))
    chunks, scratch = (
        RecordedCount(program, rule, described[rule]) if isinstance(described[rule], list) else described[rule]
        for rule in ("chunks", "scratch")
    )
    return Algorithm(spec, name, program, chunks, scratch, source=file.path)


def read_recorded_steps(header: dict[str, Any], body: bytes, ranks: Any, world_size: int) -> RecordedSteps:
    """Return the steps that a worker's reply contains.

    Raise KeyError, TypeError, ValueError or IndexError if the reply is invalid.
    """
    counts = [[_whole(count) for count in channels] for channels in header["channels"]]
    steps, operations, shifted, vectors = (_whole(header[key]) for key in ("steps", "operations", "shifted", "vectors"))
    width = len(ranks) if isinstance(ranks, list) else 0
    lengths = [8 * steps, 20 * operations, 32 * shifted, 8 * vectors, 8 * vectors * width]
    if len(body) != sum(lengths) or sum(map(sum, counts)) != steps or len(counts) > world_size:
        raise ValueError("inconsistent lengths")
    ends = list(accumulate(lengths))
    parts = [body[end - length : end] for length, end in zip(lengths, ends, strict=True)]
    lines, sizes = np.frombuffer(parts[0], np.int32).reshape(-1, 2).T
    numbers = np.frombuffer(parts[1], np.int32).reshape(-1, 5)
    kinds = numbers[:, 0]
    if (sizes < 0).any() or sizes.sum(dtype=np.int64) != operations or not ((kinds >= 0) & (kinds < len(KINDS))).all():
        raise ValueError("invalid steps or kinds")
    symbols: dict[int, Any] = {}
    for index, shift, base, stride in np.frombuffer(parts[2], np.int64).reshape(-1, 4).tolist():
        symbols[index] = _shifted(shift, base, world_size, stride)
    values = np.frombuffer(parts[4], np.int64).reshape(vectors, width)
    for index, row in zip(np.frombuffer(parts[3], np.int64).tolist(), values, strict=True):
        symbols[index] = VectorRank(row)
    if any(index % 5 == 0 for index in symbols):
        raise ValueError("an invalid kind of operation")
    failures = {failure.at[0]: failure for failure in (_failure(entry, counts) for entry in header["failures"])}
    if len(counts) < (world_size if ranks == "all" else 1) and len(counts) - 1 not in failures:
        raise ValueError("missing ranks")
    return RecordedSteps(counts, lines.copy(), np.cumsum(sizes, dtype=np.int32), numbers, symbols, failures)


def _shifted(shift: int, base: int, world_size: int, stride: int) -> ShiftedRank:
    if not (0 <= shift < world_size and abs(base) < 2**31 and 0 < stride < 2**31):
        raise ValueError("an invalid symbolic rank")
    return ShiftedRank(world_size, base, stride, shift)


def _failure(described: Any, counts: list[list[int]]) -> RecordedFailure:
    rank, channel, step = (_whole(number, at_least=-1) for number in described["at"])
    if not 0 <= rank < len(counts) or (step >= 0 and step != counts[rank][channel]):
        raise ValueError("a failure without a step")
    return RecordedFailure((rank, channel, step), described)


def _differing(values: Any, ranks: Any) -> npt.NDArray[np.int64] | None:
    if values is None:
        return None
    if not isinstance(ranks, list) or len(values) != len(ranks) or len(set(values)) < 2:
        raise ValueError("values that do not divide the ranks")
    return np.array([_whole(value, at_least=-(2**62)) for value in values], np.int64)


def _whole(value: Any, at_least: int = 0) -> int:
    if type(value) is not int or not at_least <= value < 2**62:
        raise ValueError(f"{value!r} is not a valid integer")
    return value


def _key(world_size: int, root: Any, parameters: Parameters) -> tuple[Any, ...]:
    return world_size, root, *sorted(parameters.items())


def _parameter(described: dict[str, Any]) -> inspect.Parameter:
    known = {key: described[key] for key in ("default", "annotation") if key in described}
    return inspect.Parameter(described["name"], inspect.Parameter.KEYWORD_ONLY, **known)
