"""The schedule of an algorithm: the operations of all ranks as arrays, every send beside the receive that it meets."""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.catalogue import as_algorithm
from collectives.declaration import Algorithm
from collectives.errors import InputError, ProgramError, Undefined, describe_error
from collectives.schedule.call import ProgramCall, make_call
from collectives.schedule.matching import Keys, first_mismatch, match_halves, pair_keys
from collectives.schedule.rules import DIFFERENT_CHUNKS, first_offence
from collectives.schedule.table import Columns, Ints, StepTable
from collectives.step import Kind, Operation, Step, offset

LARGEST = 2**30  # number in an operation: sums of two fit into 32 bits
Programs = list[list[list[Step]]]  # [rank][channel][step]


@dataclass(frozen=True, repr=False)
class Schedule(ProgramCall):
    """Every operation of every rank: by rank, channel and step. Each array has one entry for each operation."""

    programs: tuple[tuple[tuple[Step, ...], ...], ...]  # [rank][channel][step], as yielded
    rank: Ints
    channel: Ints
    step: Ints
    kind: Ints
    peer: Ints
    chunk: Ints
    count: Ints
    into: Ints
    match: Ints  # index of the operation at the other end; -1 for local ones

    def __repr__(self) -> str:
        return f"<Schedule {self.describe()}: {self.messages} messages>"

    @property
    def steps(self) -> int:
        """Steps of the channel that has most."""
        return max((len(program) for channels in self.programs for program in channels), default=0)

    @property
    def channels(self) -> int:
        """Channels of the rank that has most."""
        return max(map(len, self.programs))

    @property
    def ports(self) -> int:
        """The most ranks that a rank sends to at the same time, or receives from, whichever is more."""
        return max(self._at_once(self.kind == Kind.SEND), self._at_once((self.kind != Kind.SEND) & (self.peer >= 0)))

    def _at_once(self, chosen: npt.NDArray[np.bool_]) -> int:
        """Of the chosen messages the most peers in a step of each channel, over the channels of one rank."""
        shape = (self.world_size, self.channels, self.steps + 1)
        step = np.ravel_multi_index((self.rank[chosen], self.channel[chosen], self.step[chosen]), shape)
        met = np.unique(step * self.world_size + self.peer[chosen]) // self.world_size
        return int(np.bincount(met, minlength=prod(shape)).reshape(shape).max(axis=2).sum(axis=1).max())

    @property
    def messages(self) -> int:
        """How many messages there are, empty ones included."""
        return int(np.count_nonzero(self.kind == Kind.SEND))

    def elements_sent(self, n: int) -> npt.NDArray[np.int64]:
        """Elements that each rank sends when the buffer holds ``n``; shape [world_size]."""
        sends = self.kind == Kind.SEND
        first, last = self.chunk[sends].astype(np.int64), (self.chunk + self.count)[sends].astype(np.int64)
        sizes = offset(last, n, self.chunks) - offset(first, n, self.chunks)
        return np.bincount(self.rank[sends], weights=sizes, minlength=self.world_size).astype(np.int64)

    @property
    def columns(self) -> Columns:
        """The arrays together."""
        return Columns._make(getattr(self, name) for name in Columns._fields)

    def table(self) -> StepTable:
        """Return the same operations step by step."""
        order = np.lexsort((self.channel, self.rank, self.step))
        position = np.empty(len(order) + 1, np.int32)
        position[order], position[-1] = np.arange(len(order), dtype=np.int32), -1
        columns = Columns._make(column[order] for column in self.columns)
        columns = columns._replace(match=position[columns.match])  # -1 finds the last, which is -1
        return StepTable(self.algorithm, self.world_size, self.root, self.chunks, self.scratch, columns)

    def operation(self, index: int) -> Operation:
        """Return an operation as its program yielded it."""
        numbers = (int(column[index]) for column in (self.peer, self.chunk, self.count, self.into))
        return Operation(Kind(int(self.kind[index])), *numbers)

    def site(self, index: int) -> str:
        """Return where an operation stands: ``all_reduce/ring, world size 4, rank 1, step 2``."""
        return f"{self.describe()}, rank {self.rank[index]}{self.on_channel(index)}, step {self.step[index]}"

    def on_channel(self, index: int) -> str:
        """Return ``, channel 1``; nothing where there is only one."""
        return f", channel {self.channel[index]}" if self.channels > 1 else ""

    def refuse(self, index: int, problem: str) -> ProgramError:
        """Return the error that names an operation and where it stands."""
        rank, step = int(self.rank[index]), int(self.step[index])
        return ProgramError(f"{self.site(index)}: {self.operation(index)}{problem}", self.world_size, rank, step)


def build_schedule(algorithm: str | Algorithm, world_size: int, root: int = 0) -> Schedule:
    """Return what the program of every rank says, its messages matched; the algorithm may be given by name.

    Raises InputError for an algorithm that is not there and for a call that ``make_call`` refuses, and ProgramError for
    a program that fails, an operation that breaks a rule (``collectives.schedule.rules``), a message with one end only,
    or two ends that disagree.

    >>> schedule = build_schedule("all_reduce/ring", 3)
    >>> schedule.steps, schedule.messages, str(schedule.operation(0))
    (4, 12, 'send(to rank 1, chunk 2)')
    """
    algorithm = as_algorithm(algorithm)
    call = make_call(algorithm, world_size, root)
    programs, failure = _run_programs(call)
    columns, wrong = _columns(call, programs)
    schedule = Schedule(
        algorithm, world_size, root, call.chunks, call.scratch,
        tuple(tuple(tuple(program) for program in channels) for channels in programs), *columns,
    )  # fmt: skip
    offence = first_offence(columns, call)
    if offence is not None:
        raise schedule.refuse(offence.at, f": {offence.problem}")
    failure = wrong or failure
    if failure is not None:
        raise failure
    key = pair_keys(columns, world_size, schedule.channels)
    schedule = replace(schedule, match=match_halves(columns.kind, key))
    mismatch = first_mismatch(schedule.columns, call, key)
    if mismatch is not None:
        raise _mismatch_error(schedule, key, mismatch)
    return schedule


def _run_programs(call: ProgramCall) -> tuple[Programs, ProgramError | None]:
    """Return the steps of all ranks. A program that fails is the last one, as far as it came, and the error is why."""
    programs: Programs = []
    for rank in range(call.world_size):
        channel, steps = 0, list[Step]()
        programs.append([steps])
        try:
            running = call.run(rank)
            programs[rank] = [[] for _ in running]
            for channel, (program, steps) in enumerate(zip(running, programs[rank], strict=True)):  # noqa: B007
                for step in program:
                    steps.append(step)
        except Undefined as error:
            raise Undefined(f"{call.describe()}: {error}") from error
        except (Exception, SystemExit) as error:  # a program that calls sys.exit ends itself, not the command
            what = str(error) if isinstance(error, InputError) else _failure(error, call.algorithm)
            failure = _program_error(call, programs, (rank, channel, len(steps)), what)
            failure.__cause__ = error
            return programs, failure
    return programs, None


def _failure(error: BaseException, algorithm: Algorithm) -> str:
    return f"the program fails with {describe_error(error, algorithm.source)}"


def _program_error(call: ProgramCall, programs: Programs, at: tuple[int, int, int], what: str) -> ProgramError:
    """Return the error of a rank, channel and step."""
    rank, channel, step = at
    on_channel = f", channel {channel}" if len(programs[rank]) > 1 else ""
    return ProgramError(f"{call.describe()}, rank {rank}{on_channel}, step {step}: {what}", call.world_size, rank, step)


def _columns(call: ProgramCall, programs: Programs) -> tuple[Columns, ProgramError | None]:
    """Return all operations, unmatched. If one has what is no whole number, those before it, and the error for it."""
    sites: list[int] = []  # flat lists are quick
    lengths: list[int] = []
    numbers: list[int] = []
    for rank, channels in enumerate(programs):
        for channel, program in enumerate(channels):
            for number, step in enumerate(program):
                sites += (rank, channel, number)
                lengths.append(len(step))
                for op in step:
                    numbers += (op.kind, op.peer, op.chunk, op.count, op.into)
    site = np.repeat(np.array(sites, np.int32).reshape(-1, 3), lengths, axis=0)
    array, odd = _as_array(numbers)
    failure = None
    if odd is not None:
        index = odd // 5
        name, what = Kind(numbers[5 * index]).name.lower(), _describe_odd(numbers[odd])
        rank, channel, step = site[index].tolist()
        failure = _program_error(call, programs, (rank, channel, step), f"{name}: {what}")
        array = np.array(numbers[: 5 * index])
    fields = array.astype(np.int32).reshape(-1, 5)
    columns = np.concatenate([site[: len(fields)], fields], axis=1).T.copy()
    return Columns._make([*columns, np.full(len(fields), -1, np.int32)]), failure


def _as_array(numbers: list[int]) -> tuple[npt.NDArray[Any], int | None]:
    """Return the numbers as an array, and the index of the first that is none or too large for its use, if any."""
    array = np.zeros(0, np.int64)
    try:
        array = np.array(numbers) if numbers else array
        if array.dtype.kind == "i" and (not numbers or (array.min() >= -LARGEST and array.max() <= LARGEST)):
            return array, None
    except (ValueError, TypeError):  # something is not even like a number
        pass
    return array, next((index for index, number in enumerate(numbers) if not _is_usual(number)), None)


def _is_usual(number: object) -> bool:
    return isinstance(number, int | np.integer) and bool(-LARGEST <= number <= LARGEST)


def _describe_odd(number: object) -> str:
    if isinstance(number, int | np.integer):
        return f"{number} is larger than any peer, chunk or count can be"
    return f"{number!r} is no whole number; peers, chunks and counts are (divide with //)"


def _mismatch_error(schedule: Schedule, key: Keys, index: int) -> ProgramError:
    """Return the error for a message with one end only, or with ends that disagree."""
    same, is_send = key == key[index], schedule.kind == Kind.SEND
    sends, receives = (int((same & ends & (schedule.peer >= 0)).sum()) for ends in (is_send, ~is_send))
    src, dst = int(schedule.rank[index]), int(schedule.peer[index])
    if not is_send[index]:
        src, dst = dst, src
    other = int(schedule.match[index])
    if other < 0:
        where = schedule.on_channel(index).replace(",", " on")
        return schedule.refuse(
            index,
            f" meets nothing: rank {src} sends {_messages(sends)} to rank {dst}{where}, which receives {receives} "
            "from it",
        )
    agree = schedule.count[index] == schedule.count[other]
    problem = DIFFERENT_CHUNKS if agree else "they disagree on how many chunks travel"
    number = int((same & is_send)[:index].sum())
    return schedule.refuse(
        index,
        f", message {number} of rank {src} to rank {dst}, meets in its step {schedule.step[other]} "
        f"{schedule.operation(other)}: {problem}",
    )


def _messages(number: int) -> str:
    return {0: "no message", 1: "1 message"}.get(number, f"{number} messages")
