"""Build a schedule directly: run the program of every rank, check it against the rules, and match its messages.

``sound_schedule`` builds the part of a wrong program that can run: the steps of each rank before its first invalid one.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.catalogue import find_algorithm, rebuild_algorithm
from collectives.declaration import Algorithm
from collectives.errors import InputError, ProgramEnded, ProgramError, Undefined, describe_error, line_in, with_line
from collectives.schedule.rules import DIFFERENT_CHUNKS, Keys, first_mismatch, first_violation, match_halves, pair_keys
from collectives.schedule.schedule import OperationColumns, ProgramCall, Schedule, make_call
from collectives.step import LARGEST, Kind, Step, describe_invalid

MOST_STEPS_SHOWN = 10_000  # steps of a program that may never end
Programs = list[list[list[Step]]]  # [rank][channel][step]


def build_schedule(algorithm: str | Algorithm, world_size: int, root: int = 0) -> Schedule:
    """Return the operations of all ranks, with each send matched to its receive. ``algorithm`` can be a name.

    Raise InputError for an unknown algorithm, an invalid world size or root, or an invalid number of chunks. Raise
    ProgramError if a program fails, if an operation breaks a rule (``collectives.schedule.rules``), if a send or a
    receive has no match, or if a send and its receive use different chunks.

    >>> schedule = build_schedule("all_reduce/ring", 3)
    >>> schedule.steps, schedule.messages, str(schedule.operation(0))
    (4, 12, 'send(to rank 1, chunk 2)')
    """
    algorithm = find_algorithm(algorithm)
    call = make_call(algorithm, world_size, root)
    programs, failure = _run_programs(call)
    columns, wrong = columns_of(call, programs)
    schedule = _unmatched(call, programs, columns)
    violation = first_violation(columns, call)
    if violation is not None:
        raise schedule.refuse(violation.at, f": {violation.problem}")
    failure = wrong or failure
    if failure is not None:
        raise failure
    key = pair_keys(columns, world_size, schedule.channels)
    schedule = replace(schedule, match=match_halves(columns.kind, key))
    mismatch = first_mismatch(schedule.columns, call, key)
    if mismatch is not None:
        raise _mismatch_error(schedule, key, mismatch)
    return schedule


def _unmatched(call: ProgramCall, programs: Programs, columns: OperationColumns) -> Schedule:
    steps = tuple(tuple(tuple(program) for program in channels) for channels in programs)
    return Schedule(**vars(call), programs=steps, **columns._asdict())


def _run_programs(call: ProgramCall) -> tuple[Programs, ProgramError | None]:
    """Return the steps of all ranks and None. If a program fails, return the steps before the failure and the error."""
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
        except ProgramEnded as error:
            failure = _program_error(call, len(programs[rank]) > 1, error.at or (rank, channel, 0), str(error))
            failure.__cause__ = error
            return programs, failure
        except Undefined as error:
            raise Undefined(f"{call.describe()}: {error}") from error
        except (Exception, SystemExit) as error:  # sys.exit in a program must not end the command
            at = rank, channel, len(steps)
            failure = _program_error(call, len(programs[rank]) > 1, at, _describe_failure(call, at, error))
            failure.__cause__ = error
            return programs, failure
    return programs, None


def _describe_failure(call: ProgramCall, at: tuple[int, int, int], error: BaseException) -> str:
    file = call.algorithm.file
    if not isinstance(error, InputError):
        return f"the program fails with {describe_error(error, file)}"
    if call.algorithm.source is not None:
        return str(error)
    line = line_in(error, file)
    return with_line(str(error), line, file) if line else f"{error}{call.at_line(*at)}"


def _program_error(call: ProgramCall, names_channel: bool, at: tuple[int, int, int], problem: str) -> ProgramError:
    rank, channel, step = at
    on_channel = f", channel {channel}" if names_channel else ""
    return ProgramError(
        f"{call.describe()}, rank {rank}{on_channel}, step {step}: {problem}", call.world_size, rank, step
    )


def columns_of(call: ProgramCall, programs: Programs) -> tuple[OperationColumns, ProgramError | None]:
    """Return all operations and None. If one is invalid, return the operations before it and the error."""
    locations: list[int] = []  # flat lists are fast
    lengths: list[int] = []
    numbers: list[int] = []
    for rank, channels in enumerate(programs):
        for channel, program in enumerate(channels):
            for number, step in enumerate(program):
                locations += (rank, channel, number)
                lengths.append(len(step))
                for op in step:
                    numbers += op
    location = np.repeat(np.array(locations, np.int32).reshape(-1, 3), lengths, axis=0)
    array, odd = _as_array(numbers)
    failure = None
    if odd is not None:
        index = odd // 5
        name, problem = Kind(numbers[5 * index]).name.lower(), describe_invalid(numbers[odd])
        rank, channel, step = location[index].tolist()
        problem += call.at_line(rank, channel, step)
        failure = _program_error(call, len(programs[rank]) > 1, (rank, channel, step), f"{name}: {problem}")
        array = np.array(numbers[: 5 * index])
    fields = array.astype(np.int32).reshape(-1, 5)
    columns = np.concatenate([location[: len(fields)], fields], axis=1).T.copy()
    return OperationColumns._make([*columns, np.full(len(fields), -1, np.int32)]), failure


def _as_array(numbers: list[int]) -> tuple[npt.NDArray[Any], int | None]:
    """Return the numbers as an array, and the index of the first invalid one. The index is None if all are valid."""
    array = np.zeros(0, np.int64)
    try:
        array = np.array(numbers) if numbers else array
        if array.dtype.kind == "i" and (not numbers or (array.min() >= -LARGEST and array.max() <= LARGEST)):
            return array, None
    except (ValueError, TypeError):  # an entry is not like a number
        pass
    return array, next((index for index, number in enumerate(numbers) if describe_invalid(number)), None)


def _mismatch_error(schedule: Schedule, key: Keys, index: int) -> ProgramError:
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
            f" has no match: rank {src} sends {_messages(sends)} to rank {dst}{where}, which receives {receives} "
            "from it",
        )
    agree = schedule.count[index] == schedule.count[other]
    problem = DIFFERENT_CHUNKS if agree else "both must have the same count"
    number = int((same & is_send)[:index].sum())
    return schedule.refuse(
        index,
        f", message {number} from rank {src} to rank {dst}, matches {schedule.operation(other)} in step "
        f"{schedule.step[other]}{schedule.line(other)}: {problem}",
    )


def _messages(number: int) -> str:
    return {0: "no message", 1: "1 message"}.get(number, f"{number} messages")


def sound_schedule(algorithm: Algorithm, world_size: int, root: int, rank: int, steps: int | None) -> Schedule:
    """Return the operations of each rank before its first invalid one, and at most ``steps`` steps of ``rank``.

    A send and its receive are left unmatched if they differ in the number of chunks. Their steps then never complete.
    """
    call = make_call(algorithm, world_size, root)
    programs = _cut_violations(call, _run_tolerantly(call))
    for program in programs[rank] if steps is not None else []:
        del program[steps:]
    columns, _ = columns_of(call, programs)
    schedule = _unmatched(call, programs, columns)
    match = match_halves(columns.kind, pair_keys(columns, world_size, schedule.channels))
    return replace(schedule, match=np.where((match >= 0) & (columns.count[match] != columns.count), -1, match))


def _run_tolerantly(call: ProgramCall) -> Programs:
    programs: Programs = []
    for rank in range(call.world_size):
        programs.append([])
        with suppress(Exception, SystemExit):  # reported by build_schedule
            for program in call.run(rank):
                programs[-1].append([])
                for step in islice(program, MOST_STEPS_SHOWN):
                    programs[-1][-1].append(step)
    return programs


def _cut_violations(call: ProgramCall, programs: Programs) -> Programs:
    sound = [[list(program) for program in channels] for channels in programs]
    while True:
        columns, odd = columns_of(call, sound)
        violation = first_violation(columns, call)
        if violation is not None:
            rank, channel, step = (int(column[violation.at]) for column in columns[:3])
        elif odd is not None and odd.rank is not None and odd.step is not None:
            rank, channel, step = odd.rank, -1, odd.step
        else:
            return sound
        for program in sound[rank] if channel < 0 else [sound[rank][channel]]:
            del program[step:]


Steps = tuple[tuple[tuple[Step, ...], ...], ...]  # [rank][channel][step]


def _listed_steps(by_root: tuple[Steps, ...], rank: int, world_size: int, root: int = 0) -> tuple[Iterator[Step], ...]:
    return tuple(map(iter, by_root[root][rank]))


def reduce_to_steps(algorithm: Algorithm, world_size: int) -> tuple[Callable[..., Algorithm], tuple[Any, ...]]:
    """Return the value of ``__reduce__`` that pickles an algorithm as its steps for ``world_size`` ranks.

    Raise ProgramError for an invalid program.
    """
    roots = range(world_size if algorithm.spec.rooted else 1)
    listed = partial(_listed_steps, tuple(build_schedule(algorithm, world_size, root).programs for root in roots))
    counts = algorithm.chunks(world_size), algorithm.scratch(world_size)
    fields = algorithm.spec.name, algorithm.name, listed, *counts, dict(algorithm.parameters)
    return rebuild_algorithm, (*fields, None, algorithm.by_model)
