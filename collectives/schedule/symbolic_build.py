"""Schedules from few runs of a program: most programs say the same on many ranks, and need not be run for each.

A *cyclic* program uses its rank only in ``(rank + c) % world_size``: one run of it, with a ``ShiftedRank``, stands for
all ranks. One that counts in rows and columns of its ranks is run once with a ``GridRank``. Other programs are run for
all ranks at once, with a ``VectorRank``, and where they branch on their rank once for each branch. What cannot be run
so, or would be refused, goes to the plain ``build_schedule``, which says what is wrong.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.declaration import Algorithm
from collectives.grid_rank import GridRank, Shape, WidthNeeded
from collectives.schedule.build import build_schedule
from collectives.schedule.call import ProgramCall, make_call
from collectives.schedule.cyclic import CyclicSchedule, check_cyclic
from collectives.schedule.grid import GridSchedule, check_grid
from collectives.schedule.matching import first_mismatch, match_halves, pair_keys
from collectives.schedule.relative import RelativeSchedule
from collectives.schedule.rules import first_offence
from collectives.schedule.schedule import Schedule
from collectives.schedule.size_check import (
    MOST_OPERATIONS,
    MOST_TABLED,
    allowed,
    check_operations,
    estimate_operations,
)
from collectives.schedule.table import Block, StepTable, columns_by_step, merge_blocks
from collectives.step import Kind, Operation, Step
from collectives.symbolic_rank import LARGEST, Diverges, ShiftedRank, VectorRank

MOST_BRANCHES = 64  # beyond it one run for each rank is as quick
SMALL = 256  # ranks: up to so many, no schedule is too large
TRIED_RANKS = (12, 16)  # world sizes at which is seen whether a program is cyclic

AnySchedule = Schedule | CyclicSchedule | GridSchedule | StepTable


def message_count(schedule: AnySchedule) -> int:
    """Return how many messages a built schedule has, empty ones included.

    >>> from collectives import find_algorithm
    >>> message_count(build_compact(find_algorithm("all_reduce/ring"), 4))
    24
    """
    if isinstance(schedule, RelativeSchedule):
        return schedule.world_size * int((schedule.kind == Kind.SEND).sum())
    columns = schedule.columns if isinstance(schedule, StepTable) else schedule
    return int((columns.kind == Kind.SEND).sum())


def build_compact(algorithm: Algorithm, world_size: int, root: int = 0) -> CyclicSchedule | GridSchedule | StepTable:
    """Return the cyclic schedule if there is one, or that of a grid, else a table of steps.

    Raises what ``build_schedule`` raises.

    >>> from collectives import find_algorithm
    >>> [type(build_compact(find_algorithm(f"all_reduce/{name}"), 4)).__name__ for name in ("ring", "binomial")]
    ['CyclicSchedule', 'StepTable']
    """
    surely = world_size <= SMALL or seems_cyclic(algorithm)  # then one run says all, and none need be asked before
    cyclic = build_cyclic(algorithm, world_size, root) if surely else None
    if cyclic is not None:
        return cyclic
    operations = estimate_operations(algorithm, world_size, root) if world_size > SMALL else 0
    if not surely and operations <= MOST_OPERATIONS:
        cyclic = build_cyclic(algorithm, world_size, root)
        if cyclic is not None:
            return cyclic
    grid = build_grid(algorithm, world_size, root) if world_size > SMALL else None
    if grid is not None:
        return grid
    check_operations(algorithm, world_size, operations, allowed(MOST_TABLED))
    table = build_by_branch(algorithm, world_size, root)
    if table is not None:
        return table
    return build_schedule(algorithm, world_size, root).table()


def build_table(algorithm: Algorithm, world_size: int, root: int = 0) -> StepTable:
    """Return the operations of every rank, matched, step by step. Raises what ``build_schedule`` raises.

    >>> from collectives import find_algorithm
    >>> table = build_table(find_algorithm("broadcast/binomial"), 4)
    >>> table.steps, len(table.columns.kind)
    (2, 6)
    """
    return build_compact(algorithm, world_size, root).table()


def seems_cyclic(algorithm: Algorithm) -> bool:
    """Return whether all ranks say the same relative to their number, in a small world.

    >>> from collectives import find_algorithm
    >>> [seems_cyclic(find_algorithm(f"all_reduce/{name}")) for name in ("ring", "binomial")]
    [True, False]
    """
    return any(build_cyclic(algorithm, world_size) is not None for world_size in TRIED_RANKS)


def build_cyclic(algorithm: Algorithm, world_size: int, root: int = 0) -> CyclicSchedule | None:
    """Return the schedule from one run of the program; None if it is not cyclic or might be refused.

    >>> from collectives import find_algorithm
    >>> ring = build_cyclic(find_algorithm("all_reduce/ring"), 1024)
    >>> ring.steps, len(ring.kind)  # of any one rank
    (2046, 4092)
    """
    try:
        call = make_call(algorithm, world_size, root)
        if world_size < 2:
            return None
        numbers = _run_shifted(call)
    except (Diverges, Exception, SystemExit):  # also of the user's code: what it did is told by build_schedule
        return None
    numbers = numbers[np.lexsort((numbers[:, 1], numbers[:, 0]))].T
    step, channel, kind, count, peer_stride, peer, peer_base = numbers[:7]
    stride, shift, base = (tuple(numbers[[k, k + 3]]) for k in (7, 8, 9))
    local = kind >= Kind.COPY
    strides = sorted({*stride[0].tolist(), *stride[1].tolist()} - {0})
    if not np.where(local, peer_base == -1, (peer_stride == 1) & (peer_base == 0)).all() or len(strides) > 1:
        return None
    return check_cyclic(
        CyclicSchedule(
            algorithm=algorithm,
            world_size=world_size,
            root=root,
            chunks=call.chunks,
            scratch=call.scratch,
            stride=max(strides, default=1),
            channel=channel,
            step=step,
            kind=kind,
            peer=np.where(local, 0, peer),
            count=count,
            is_shifted=(stride[0] > 0, stride[1] > 0),
            shift=shift,
            base=base,
            match=np.full(len(step), -1, np.int32),
        )
    )


def build_grid(algorithm: Algorithm, world_size: int, root: int = 0) -> GridSchedule | None:
    """Return the schedule from one run of a program that counts in rows and columns; None for others.

    >>> from collectives import find_algorithm
    >>> grid = build_grid(find_algorithm("all_reduce/hierarchical"), 65536)
    >>> grid.width, grid.steps, len(grid.kind)  # of any one rank
    (256, 1020, 2040)
    """
    width = 0
    try:
        call = make_call(algorithm, world_size, root)
        try:
            numbers = _run_on_grid(call, Shape(world_size, 0))
        except WidthNeeded as needed:
            width = needed.width
            if width < 2 or world_size % width or world_size == width:
                return None
            numbers = _run_on_grid(call, Shape(world_size, width))
    except (Diverges, WidthNeeded, Exception, SystemExit):  # also of the user's code: build_schedule tells what it did
        return None
    if not width or not len(numbers):
        return None
    numbers = numbers[np.lexsort((numbers[:, 1], numbers[:, 0]))].T
    step, channel, kind, count = numbers[:4]
    peer, chunk, into = numbers[4:9], numbers[9:14], numbers[14:]
    is_plain = (kind < Kind.COPY) & (peer[0] == width) & (peer[1] == 1) & (peer[4] == 0)
    if not is_plain.all() or (into[:, kind != Kind.SEND] != chunk[:, kind != Kind.SEND]).any():
        return None
    nobody = np.full(len(step), -1, np.int32)
    return check_grid(
        GridSchedule(
            algorithm=algorithm,
            world_size=world_size,
            root=root,
            chunks=call.chunks,
            scratch=call.scratch,
            width=width,
            channel=channel,
            step=step,
            kind=kind,
            peer=peer[2] * np.int32(width) + peer[3],
            count=count,
            base=chunk[4],
            strides=(chunk[0], chunk[1]),
            shifts=(chunk[2], chunk[3]),
            match=nobody,
        )
    )


def _run_on_grid(call: ProgramCall, shape: Shape) -> npt.NDArray[np.int32]:
    """Return the numbers of each operation that any one rank of a grid says; [operations, 19]."""
    rank = GridRank(shape, 0, (shape.width, 1), (0, 0))
    rows = [
        (number, channel, int(op.kind), _plain(op.count), *(part for one in of for part in _on_grid(one)))
        for channel, program in enumerate(call.run(rank))
        for number, step in enumerate(program)
        for op in step
        for of in [(op.peer, op.chunk, op.into)]
    ]
    return np.array(rows, dtype=np.int32).reshape(-1, 19)


def _on_grid(number: Any) -> tuple[int, int, int, int, int]:
    """Return strides, shifts and base of a number. Raises TypeError for what is none."""
    if isinstance(number, GridRank):
        shifts = [shift if stride else 0 for stride, shift in zip(number.strides, number.shifts, strict=True)]
        return (*number.strides, shifts[0], shifts[1], number.base)
    return 0, 0, 0, 0, _plain(number)


def _run_shifted(call: ProgramCall) -> npt.NDArray[np.int32]:
    """Return the numbers of each operation that any one rank says, in the order of channels; [operations, 13].

    Raises TypeError or OverflowError for other than 32-bit whole numbers, and whatever the program raises.
    """
    rows = [
        (number, channel, int(op.kind), _plain(op.count), *_number(op.peer), *_number(op.chunk), *_number(op.into))
        for channel, program in enumerate(call.run(ShiftedRank(0, 0, call.world_size)))
        for number, step in enumerate(program)
        for op in step
    ]
    return np.array(rows, dtype=np.int32).reshape(-1, 13)


def _number(number: Any) -> tuple[int, int, int]:
    """Return stride, shift and base of a number; the stride is 0 if it is not shifted. Raises TypeError for others."""
    if isinstance(number, ShiftedRank):
        return number.stride, number.shift, number.base
    if type(number) is int:
        return 0, 0, number
    raise TypeError(number)


def _plain(number: Any) -> int:
    """Return a whole number that is the same on all ranks. Raises TypeError for others."""
    if type(number) is not int:
        raise TypeError(number)
    return number


def build_by_branch(algorithm: Algorithm, world_size: int, root: int = 0) -> StepTable | None:
    """Return the table from one run for all ranks that branch alike; None if that fails or might be refused.

    Of ranks that branch in too many ways each is asked.
    """
    recorded: npt.NDArray[np.int32] | None = None
    blocks: list[Block] = []
    try:
        call = make_call(algorithm, world_size, root)
        try:
            blocks = _run_branches(call)
        except Diverges:
            recorded = algorithm.recorded(world_size, root)
            if recorded is None:
                blocks = [block for rank in range(world_size) for block in _run_branch(call, np.array([rank]))]
    except (Diverges, Exception, SystemExit):  # also of the user's code: what it did is told by build_schedule
        return None
    columns = merge_blocks(blocks) if recorded is None else columns_by_step(recorded)
    if first_offence(columns, call) is not None:
        return None
    key = pair_keys(columns, world_size, int(columns.channel.max(initial=0)) + 1)
    columns = columns._replace(match=match_halves(columns.kind, key))
    if first_mismatch(columns, call, key) is not None:
        return None
    return StepTable(algorithm, world_size, root, call.chunks, call.scratch, columns.in_little_memory())


def _run_branches(call: ProgramCall) -> list[Block]:
    """Return what all ranks say. Raises Diverges when there are too many branches, and whatever the program raises."""
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


def _run_branch(call: ProgramCall, ranks: npt.NDArray[np.int64]) -> list[Block]:
    """Return what some ranks say together, one block a channel. Raises Diverges where they do not say the same."""
    channels = call.run(VectorRank(ranks)) if len(ranks) > 1 else call.run_alone(int(ranks[0]))
    return [_block(channel, program, ranks) for channel, program in enumerate(channels)]


def _block(channel: int, program: Iterator[Step], ranks: npt.NDArray[np.int64]) -> Block:
    """Return what one channel says on some ranks. Raises TypeError or OverflowError for other than 32-bit numbers."""
    steps, operations = list[int](), list[Operation]()
    for number, step in enumerate(program):
        steps += [number] * len(step)
        operations += step
    kinds = np.array([op.kind for op in operations], np.int32)
    peer, chunk = [op.peer for op in operations], [op.chunk for op in operations]
    count, into = [op.count for op in operations], [op.into for op in operations]
    fields = (_field(peer, ranks), _field(chunk, ranks), _field(count, ranks), _field(into, ranks))
    return Block(ranks.astype(np.int32), np.full_like(kinds, channel), np.array(steps, np.int32), kinds, fields)


def _field(numbers: list[Any], ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return a number of each operation on each rank; [operations, ranks]. Raises as ``_block`` does."""
    array = np.array(numbers)
    if array.dtype.kind == "i" and array.min() >= -LARGEST and array.max() <= LARGEST:  # plain ones, in one go
        return np.broadcast_to(array.astype(np.int32)[:, None], (len(numbers), len(ranks)))
    field = np.empty((len(numbers), len(ranks)), np.int32)
    for at, number in enumerate(numbers):
        field[at] = _values(number)
    return field


def _values(number: Any) -> Any:
    """Return a number of an operation for each rank of a branch. Raises TypeError for what is none."""
    if isinstance(number, VectorRank):
        return number.values
    if isinstance(number, int | np.integer) and not isinstance(number, bool):
        return number
    raise TypeError(number)
