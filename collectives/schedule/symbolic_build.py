"""Build a schedule from a few runs of a program, each of which represents many ranks.

A *symmetric* program uses its rank only in expressions such as ``(rank + c) % world_size``. One run with a
``ShiftedRank`` represents all ranks. Other programs run once for all ranks, with a ``VectorRank``, or once per branch
if they branch on the rank. If this is not possible, or if a program is invalid, ``build_schedule`` runs the program of
every rank and reports the errors.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.declaration import Algorithm
from collectives.schedule.build import build_schedule
from collectives.schedule.rules import first_mismatch, first_violation, match_halves, pair_keys
from collectives.schedule.schedule import (
    OperationBlock,
    ProgramCall,
    Schedule,
    StepTable,
    columns_by_step,
    make_call,
    merge_blocks,
)
from collectives.schedule.size_check import MOST_OPERATIONS, check_operations, estimate_operations
from collectives.schedule.symmetric import ShiftedNumbers, SymmetricSchedule, match_symmetric
from collectives.step import Kind, Operation, Step
from collectives.symbolic_rank import LARGEST, Diverges, ShiftedRank, VectorRank

MOST_BRANCHES = 64  # beyond it, one run per rank is as fast
SMALL = 256  # number of ranks up to which no schedule is too large
TRIED_RANKS = (12, 16)  # world sizes at which a program is tested for symmetry

AnySchedule = Schedule | SymmetricSchedule | StepTable


def build_compact(algorithm: Algorithm, world_size: int, root: int = 0) -> SymmetricSchedule | StepTable:
    """Return a SymmetricSchedule if possible, otherwise a StepTable. Raise ProgramError for an invalid program.

    >>> from collectives import find_algorithm
    >>> [type(build_compact(find_algorithm(f"all_reduce/{name}"), 4)).__name__ for name in ("ring", "binomial")]
    ['SymmetricSchedule', 'StepTable']
    """
    surely = world_size <= SMALL or seems_cyclic(algorithm)  # a single run suffices, so no estimate is needed
    if surely or estimate_operations(algorithm, world_size, root) <= MOST_OPERATIONS:
        symmetric = build_symmetric(algorithm, world_size, root)
        if symmetric is not None:
            return symmetric
    if world_size > SMALL:
        check_operations(algorithm, world_size, root)
    table = build_by_branch(algorithm, world_size, root)
    if table is not None:
        return table
    return build_schedule(algorithm, world_size, root).table()


def seems_cyclic(algorithm: Algorithm) -> bool:
    """Return whether the program is symmetric at one or more of the world sizes in ``TRIED_RANKS``."""
    return any(build_symmetric(algorithm, world_size) is not None for world_size in TRIED_RANKS)


def build_symmetric(algorithm: Algorithm, world_size: int, root: int = 0) -> SymmetricSchedule | None:
    """Return the schedule from one run with a symbolic rank, or None if the program is not symmetric or is invalid."""
    try:
        call = make_call(algorithm, world_size, root)
        if world_size < 2:
            return None
        numbers = _run_shifted(call)
    except (Diverges, Exception, SystemExit):  # errors of the user's code are reported by build_schedule
        return None
    numbers = numbers[np.lexsort((numbers[:, 1], numbers[:, 0]))].T
    step, channel, kind, count = numbers[:4]
    peer, read, written = (ShiftedNumbers(*three) for three in np.split(numbers[4:], 3))
    local = kind >= Kind.COPY
    if not np.where(local, peer.base == -1, (peer.base == 0) & (peer.stride == 1)).all():
        return None
    return match_symmetric(
        SymmetricSchedule(
            **vars(call),
            channel=channel,
            step=step,
            kind=kind,
            peer=np.where(local, 0, peer.shift),
            count=count,
            read=read,
            written=written,
            match=np.full(len(step), -1, np.int32),
        )
    )


def _run_shifted(call: ProgramCall) -> npt.NDArray[np.int32]:
    """Run the program once with a symbolic rank. Return its operations as an array; shape [operations, 13].

    A row has the step, channel, kind and count, and three numbers each for peer, chunk and into. Raise TypeError or
    OverflowError for a number that is not a 32-bit integer, and any exception that the program raises.
    """
    rows = [
        (number, channel, int(op.kind), _plain(op.count), *_shifted(op.peer), *_shifted(op.chunk), *_shifted(op.into))
        for channel, program in enumerate(call.run(ShiftedRank(call.world_size)))
        for number, step in enumerate(program)
        for op in step
    ]
    return np.array(rows, dtype=np.int32).reshape(-1, 13)


def _shifted(number: Any) -> tuple[int, int, int]:
    return (number.base, number.stride, number.shift) if isinstance(number, ShiftedRank) else (_plain(number), 0, 0)


def _plain(number: Any) -> int:
    if type(number) is not int:
        raise TypeError(number)
    return number


def build_by_branch(algorithm: Algorithm, world_size: int, root: int = 0) -> StepTable | None:
    """Return a StepTable from one run per branch, or None if a run fails or the program could be invalid.

    If the ranks take too many branches, the program runs once per rank.
    """
    recorded: npt.NDArray[np.int32] | None = None
    blocks: list[OperationBlock] = []
    try:
        call = make_call(algorithm, world_size, root)
        try:
            blocks = _run_branches(call)
        except Diverges:
            recorded = algorithm.recorded(world_size, root)
            if recorded is None:
                blocks = [block for rank in range(world_size) for block in _run_branch(call, np.array([rank]))]
    except (Diverges, Exception, SystemExit):  # errors of the user's code are reported by build_schedule
        return None
    columns = merge_blocks(blocks) if recorded is None else columns_by_step(recorded)
    if first_violation(columns, call) is not None:
        return None
    key = pair_keys(columns, world_size, int(columns.channel.max(initial=0)) + 1)
    columns = columns._replace(match=match_halves(columns.kind, key))
    if first_mismatch(columns, call, key) is not None:
        return None
    return StepTable(**vars(call), columns=columns)


def _run_branches(call: ProgramCall) -> list[OperationBlock]:
    waiting, blocks = [np.arange(call.world_size, dtype=np.int64)], []
    runs = 0
    while waiting:
        ranks, runs = waiting.pop(), runs + 1
        try:
            blocks += _run_branch(call, ranks)
        except Diverges as split:
            values = np.zeros(0) if split.values is None else np.unique(split.values)
            if runs + len(waiting) + len(values) > MOST_BRANCHES:
                raise
            waiting.extend(ranks[split.values == value] for value in values)
    return blocks


def _run_branch(call: ProgramCall, ranks: npt.NDArray[np.int64]) -> list[OperationBlock]:
    channels = call.run(VectorRank(ranks)) if len(ranks) > 1 else call.run_alone(int(ranks[0]))
    return [block_of(channel, program, ranks) for channel, program in enumerate(channels)]


def block_of(channel: int, program: Iterator[Step], ranks: npt.NDArray[np.int64]) -> OperationBlock:
    """Return the operations of one channel on some ranks. Raise TypeError or OverflowError for an invalid number."""
    steps, operations = list[int](), list[Operation]()
    for number, step in enumerate(program):
        steps += [number] * len(step)
        operations += step
    kinds = np.array([op.kind for op in operations], np.int32)
    peer, chunk = [op.peer for op in operations], [op.chunk for op in operations]
    count, into = [op.count for op in operations], [op.into for op in operations]
    fields = (_field(peer, ranks), _field(chunk, ranks), _field(count, ranks), _field(into, ranks))
    return OperationBlock(
        ranks.astype(np.int32), np.full_like(kinds, channel), np.array(steps, np.int32), kinds, fields
    )


def _field(numbers: list[Any], ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the values of one field of all operations on each rank; shape [operations, ranks]."""
    array = np.array(numbers)
    if array.dtype.kind == "i" and array.min() >= -LARGEST and array.max() <= LARGEST:  # only plain numbers
        return np.broadcast_to(array.astype(np.int32)[:, None], (len(numbers), len(ranks)))
    field = np.empty((len(numbers), len(ranks)), np.int32)
    for at, number in enumerate(numbers):
        field[at] = _values(number)
    return field


def _values(number: Any) -> Any:
    if isinstance(number, VectorRank):
        return number.values
    if isinstance(number, int | np.integer) and not isinstance(number, bool):
        return number
    raise TypeError(number)
