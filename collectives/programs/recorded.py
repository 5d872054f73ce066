"""The recorded rank program of a user's file: the operations of its ranks, parsed as numbers.

A transcript is untrusted: it is parsed strictly, and its operations are checked and proved as those in any program.
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
from collectives.errors import InputError, ProgramEnded, Undefined, with_line
from collectives.programs.limits import read_limits
from collectives.programs.sandbox import ProgramFile
from collectives.quoting import make_printable
from collectives.spec import find_spec
from collectives.step import Kind, Operation, Step
from collectives.symbolic_rank import Diverges, ShiftedRank, VectorRank

KINDS = tuple(Kind)
Ints = npt.NDArray[np.int32]
Parameters = dict[str, Any]


class Shown:
    """A value in the user's process, of which only the ``repr`` is known.

    >>> Shown("<object>")
    <object>
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class RecordedFailure(NamedTuple):
    """The failure that ended a transcript: location, kind and message."""

    at: tuple[int, int, int]  # rank, channel, step; the step is -1 where the program did not begin
    how: str
    text: str

    def raise_error(self) -> NoReturn:
        """Raise the program's failure: InputError, or Undefined."""
        raise (Undefined if self.how == "undefined" else InputError)(self.text)


@dataclass(frozen=True)
class Transcript:
    """The steps of some ranks: ``counts[rank][channel]`` steps each, every step its line and its operations."""

    counts: list[list[int]]
    lines: Ints  # of each step; 0 where it is not known
    ends: Ints  # index of the operation after each step's last
    numbers: Ints  # [operations, 5]
    odd: dict[int, Any]  # by index, what stands in place of a number
    failures: dict[int, RecordedFailure]  # by rank

    def channels(self, rank: int) -> tuple[Iterator[Step], ...]:
        """Return the steps of each channel of a rank. Raise the program's failure, now or at its step."""
        if rank >= len(self.counts):
            next(iter(self.failures.values())).raise_error()
        if rank in self.failures and self.failures[rank].at[2] < 0:
            self.failures[rank].raise_error()
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
            self.failures[rank].raise_error()

    def first_step(self, rank: int, channel: int) -> int:
        """Return the index of the first step of a channel."""
        return self._first_steps[rank] + sum(self.counts[rank][:channel])

    @cached_property
    def _first_steps(self) -> list[int]:
        """The index of the first step of each rank."""
        return [0, *accumulate(map(sum, self.counts))]

    def _operations(self, begin: int, end: int) -> list[Operation]:
        """Return some operations in a row."""
        rows = self.numbers[begin:end].tolist()
        if self.odd:
            for at, row in enumerate(rows, begin):
                row[:] = [self.odd.get(5 * at + place, number) for place, number in enumerate(row)]
        return [Operation(KINDS[kind], peer, chunk, count, into) for kind, peer, chunk, count, into in rows]

    def table(self) -> Ints:
        """Return rank, channel and step of every operation, and its five numbers; [operations, 8].

        Raise InputError if a program failed or used a value that is not a number.
        """
        if self.odd or self.failures:
            raise InputError("not every rank says numbers alone")
        locations = [(rank, channel) for rank, counts in enumerate(self.counts) for channel in range(len(counts))]
        counts = np.array([count for counts in self.counts for count in counts], np.int32)
        steps = np.arange(counts.sum(), dtype=np.int32) - np.repeat(np.cumsum(counts) - counts, counts)
        of_steps = np.column_stack([np.repeat(np.array(locations, np.int32), counts, axis=0), steps])
        of_operations = np.repeat(of_steps, np.diff(self.ends, prepend=0), axis=0)
        return np.column_stack([of_operations, self.numbers]).astype(np.int32, copy=False)

    def line(self, rank: int, channel: int, step: int) -> int:
        """Return the line that yields a step; 0 where it is not known."""
        if rank >= len(self.counts) or channel >= len(self.counts[rank]) or step >= self.counts[rank][channel]:
            return 0
        return int(self.lines[self.first_step(rank, channel) + step])


class RecordedProgram:
    """The function of an algorithm of a user's file: a call returns the recorded steps."""

    def __init__(self, file: ProgramFile, name: str, described: dict[str, Any], leading: tuple[str, ...]) -> None:
        """Store the file, the algorithm's full name, the guest's description, and the leading parameters."""
        self.file, self.name, self.first_line = file, name, int(described["line"])
        self.__name__ = make_printable(str(described["function"]), most=200)
        first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in leading]
        own = [_parameter(one) for one in described["parameters"]]
        self.__signature__ = inspect.Signature(first + own)
        self._transcripts: OrderedDict[Any, Transcript | ProgramEnded] = OrderedDict()
        self.counts: dict[Any, Any] = {}

    def __call__(self, rank: Any, world_size: int, root: Any = 0, **parameters: Any) -> tuple[Iterator[Step], ...]:
        """Return the steps of each channel of a rank, a number or a symbol. Raise InputError or Diverges.

        A root may be a symbol if the rank is one: each rank has its own root then.
        """
        if isinstance(rank, VectorRank):
            root = tuple(root.values.tolist()) if isinstance(root, VectorRank) else root
            return self._record(world_size, root, parameters, rank.values.tolist()).channels(0)
        if isinstance(rank, ShiftedRank):
            return self._record(world_size, root, parameters, "shifted").channels(0)
        number = int(rank)  # other symbols raise Diverges, before all ranks are recorded for nothing
        return self._transcript(world_size, root, parameters).channels(number)

    def table(self, world_size: int, root: int = 0, **parameters: Any) -> Ints:
        """Return all operations of all ranks as ``Transcript.table`` does. Raise the program's failure."""
        return self._transcript(world_size, root, parameters).table()

    def find_line(self, at: tuple[int, int, int] | None, world_size: int, root: int, **parameters: Any) -> int | None:
        """Return the line that yields a step of a rank and channel; without one that in which the program begins."""
        if at is None:
            return self.first_line
        transcript = self._transcripts.get(_key(world_size, root, parameters))
        return (transcript.line(*at) if isinstance(transcript, Transcript) else 0) or self.first_line

    def _transcript(self, world_size: int, root: int, parameters: Parameters) -> Transcript:
        """Return the transcript of all ranks, the same one for as long as it is kept."""
        key = _key(world_size, root, parameters)
        if key not in self._transcripts:
            self._transcripts[key] = self._record(world_size, root, parameters, "all")
            kept = [len(one.numbers) for one in self._transcripts.values() if isinstance(one, Transcript)]
            # operations in all transcripts that are kept
            while len(self._transcripts) > 1 and sum(kept) > 16_000_000:
                self._transcripts.popitem(last=False)
                kept.pop(0)
        found = self._transcripts[key]
        if isinstance(found, ProgramEnded):
            raise found
        return found

    def _record(self, world_size: int, root: Any, parameters: Parameters, ranks: Any) -> Transcript:
        ended = self._transcripts.get(key := _key(world_size, root, parameters))
        if isinstance(ended, ProgramEnded):  # whichever rank it is asked for: it would end again
            raise ended
        question = {
            "do": "record", "name": self.name, "parameters": _given(parameters), "world_size": world_size,
            "root": root, "ranks": ranks,
        }  # fmt: skip
        try:
            header, body = self.file.ask(question)
        except ProgramEnded as error:
            self._transcripts[key] = error
            raise
        try:
            if "diverges" in header:
                raise Diverges(_differing(header["diverges"], ranks))
            return read_transcript(header, body, ranks, world_size, self.file)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise self.file.unreadable(error) from error

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without failures, so that another process needs no user file."""
        return self.__dict__ | {"_transcripts": OrderedDict(
            (key, one) for key, one in self._transcripts.items() if isinstance(one, Transcript)
        )}  # fmt: skip


class RecordedCount:
    """The rule of an algorithm of a user's file that says its number of chunks or of scratch chunks."""

    def __init__(self, program: RecordedProgram, rule: str, accepted: list[str]) -> None:
        self.program, self.rule = program, rule
        parameters = [inspect.Parameter("world_size", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        parameters += [inspect.Parameter(str(name), inspect.Parameter.KEYWORD_ONLY) for name in accepted]
        self.__signature__ = inspect.Signature(parameters)

    def __call__(self, world_size: int, **values: Any) -> Any:
        """Return the number for a world size. Raise InputError, and Undefined where there is none."""
        key = (self.rule, *_key(world_size, 0, values))
        if key not in self.program.counts:
            question = {
                "do": "count", "name": self.program.name, "rule": self.rule, "world_size": world_size,
                "parameters": _given(values),
            }  # fmt: skip
            self.program.counts[key] = self._read(self.program.file.ask(question)[0])
        return self.program.counts[key]

    def _read(self, header: dict[str, Any]) -> Any:
        if "count" in header and isinstance(header["count"], int):
            return header["count"]
        if "odd" in header:
            return Shown(make_printable(str(header["odd"])))
        text = make_printable(str(header.get("text")))
        if header.get("how") == "failed":
            raise InputError(f"its number of chunks fails with {text}")
        if isinstance(header.get("line"), int):
            text = with_line(text, header["line"], self.program.file.path)
        raise (Undefined if header.get("how") == "undefined" else InputError)(text)


def load_recorded(path: Path) -> list[Algorithm]:
    """Return algorithms whose programs are recorded in the process that has executed the file."""
    file = ProgramFile(path)
    try:
        header, _ = file.ask({"do": "load"})
    except ProgramEnded as error:
        raise InputError(f"{path}: {error}") from error
    if header.get("memory"):
        raise InputError(f"{path}: it takes more than {read_limits().describe_memory()}")
    if "refused" in header:
        raise InputError(make_printable(str(header["refused"])))
    try:
        return [_recorded(file, described) for described in header["algorithms"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise file.unreadable(error) from error


def _recorded(file: ProgramFile, described: dict[str, Any]) -> Algorithm:
    """Return one of a file's algorithms. Raises InputError for a name that cannot be shown."""
    spec, name = find_spec(described["collective"]), str(described["name"])
    if not name.isprintable() or not 0 < len(name) <= 100:
        shown = make_printable(name, most=80)
        raise InputError(f"{file.path}: the name {shown!r} cannot be shown on a line; give another")
    program = RecordedProgram(file, f"{spec.name}/{name}", described, first_arguments(spec))
    chunks, scratch = (_rule(program, rule, described[rule]) for rule in ("chunks", "scratch"))
    return Algorithm(spec, name, program, chunks, scratch, source=file.path)


def _rule(program: RecordedProgram, rule: str, described: Any) -> Any:
    """Return a chunk rule: a number, None, a function, or the printable text of an invalid value."""
    if isinstance(described, list):
        return RecordedCount(program, rule, described)
    return Shown(make_printable(described)) if isinstance(described, str) else described


def read_transcript(header: dict[str, Any], body: bytes, ranks: Any, world_size: int, file: ProgramFile) -> Transcript:
    """Return the transcript in a guest's answer. Raises KeyError, TypeError, ValueError or IndexError if it is none."""
    counts = [[_whole(count) for count in channels] for channels in header["channels"]]
    steps, operations, shifted, vectors = (_whole(header[key]) for key in ("steps", "operations", "shifted", "vectors"))
    width = len(ranks) if isinstance(ranks, list) else 0
    lengths = [8 * steps, 20 * operations, 32 * shifted, 8 * vectors, 8 * vectors * width]
    if len(body) != sum(lengths) or sum(map(sum, counts)) != steps or len(counts) > world_size:
        raise ValueError("lengths that do not fit together")
    ends = list(accumulate(lengths))
    parts = [body[end - length : end] for length, end in zip(lengths, ends, strict=True)]
    lines, sizes = np.frombuffer(parts[0], np.int32).reshape(-1, 2).T
    numbers = np.frombuffer(parts[1], np.int32).reshape(-1, 5)
    kinds = numbers[:, 0]
    if (sizes < 0).any() or sizes.sum(dtype=np.int64) != operations or not ((kinds >= 0) & (kinds < len(KINDS))).all():
        raise ValueError("steps or kinds that cannot be")
    odd: dict[int, Any] = {_whole(index): _odd(value) for index, value in header["odd"]}
    for index, shift, base, stride in np.frombuffer(parts[2], np.int64).reshape(-1, 4).tolist():
        odd[index] = _shifted(shift, base, world_size, stride)
    values = np.frombuffer(parts[4], np.int64).reshape(vectors, width)
    for index, row in zip(np.frombuffer(parts[3], np.int64).tolist(), values, strict=True):
        odd[index] = VectorRank(row)
    if any(index % 5 == 0 for index in odd):
        raise ValueError("a kind of operation that is none")
    failures = {failure.at[0]: failure for failure in (_failure(one, counts, file) for one in header["failures"])}
    if len(counts) < (world_size if ranks == "all" else 1) and len(counts) - 1 not in failures:
        raise ValueError("ranks of which nothing is said")
    return Transcript(counts, lines.copy(), np.cumsum(sizes, dtype=np.int32), numbers, odd, failures)


def _odd(value: Any) -> Any:
    """Return a large integer unchanged, and any other value as printable text."""
    return value if type(value) is int else Shown(make_printable(str(value)))


def _shifted(shift: int, base: int, world_size: int, stride: int) -> ShiftedRank:
    if not (0 <= shift < world_size and abs(base) < 2**31 and 0 < stride < 2**31):
        raise ValueError("a symbolic rank that cannot be")
    return ShiftedRank(world_size, base, stride, shift)


def _failure(found: Any, counts: list[list[int]], file: ProgramFile) -> RecordedFailure:
    """Return the failure of a rank's program, with the line if it is known."""
    rank, channel, step = (_whole(number, at_least=-1) for number in found["at"])
    if not 0 <= rank < len(counts) or (step >= 0 and step != counts[rank][channel]):
        raise ValueError("a failure where there is no step")
    text = make_printable(str(found["text"]))
    if found["how"] == "memory":
        text = f"it takes more than {read_limits().describe_memory()}"
    if found["how"] == "failed":
        text = f"the program fails with {text}"
    elif found["line"]:
        text = with_line(text, _whole(found["line"]), file.path)
    return RecordedFailure((rank, channel, step), str(found["how"]), text)


def _differing(found: Any, ranks: Any) -> npt.NDArray[np.int64] | None:
    """Return the values that tell the ranks of a branch apart. Raises ValueError if they are not one each."""
    if found is None:
        return None
    if not isinstance(ranks, list) or len(found) != len(ranks) or len(set(found)) < 2:
        raise ValueError("values that tell no ranks apart")
    return np.array([_whole(value, at_least=-(2**62)) for value in found], np.int64)


def _whole(value: Any, at_least: int = 0) -> int:
    if type(value) is not int or not at_least <= value < 2**62:
        raise ValueError(f"{value!r} in place of a whole number")
    return value


def _key(world_size: int, root: Any, parameters: Parameters) -> tuple[Any, ...]:
    return world_size, root, *sorted(_given(parameters).items())


def _given(parameters: Parameters) -> Parameters:
    """Return the parameters without defaults that only the user's process knows."""
    return {key: value for key, value in parameters.items() if not isinstance(value, Shown)}


def _parameter(described: dict[str, Any]) -> inspect.Parameter:
    """Return a parameter of a program as the guest describes it. Raises ValueError for a name that is none."""
    empty = inspect.Parameter.empty
    default = described.get("default", empty)
    if "odd_default" in described:
        default = Shown(make_printable(str(described["odd_default"])))
    annotation = described.get("annotation", empty)
    return inspect.Parameter(described["name"], inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
