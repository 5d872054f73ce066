"""Tracing that does not ask every rank: most programs say the same on many ranks, relative to their own number.

A *cyclic* program uses its rank only in ``(rank + c) % world_size`` and is traced from one rank that is not said.
Other programs are traced for all ranks at once, and where ranks part company for each party at once. What cannot be
traced so, or would be refused, goes to the plain ``build_schedule``, which explains what is wrong.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.declaration import Algorithm
from collectives.schedule.cyclic import CyclicSchedule, proved
from collectives.schedule.schedule import MOST_STEPS, Schedule, build_schedule
from collectives.schedule.symbolic_rank import Diverges, Lanes, Shift
from collectives.schedule.table import Block, StepTable, ends_agree, is_sound, matched, merged, step_table
from collectives.step import Kind, Step

MOST_PARTIES = 64  # beyond it asking every rank is as quick


def build_cyclic(algorithm: Algorithm, world_size: int, root: int = 0) -> CyclicSchedule | None:
    """The program from one run of it, or None where it is not cyclic, has several channels or might be refused."""
    p = world_size
    chunks, scratch = algorithm.chunks(p), algorithm.scratch(p)
    if p < 2 or not 0 <= root < p or (algorithm.spec.has_parts and chunks % p):
        return None
    try:
        (program,) = algorithm.channels(Shift(0, 0, p), p, root)  # type: ignore[arg-type]
        rows = [
            (number, int(op.kind), *_place(op.peer), op.count, *_place(op.chunk), *_place(op.into))
            for number, step in _limited(program)
            for op in step
        ]
        numbers = np.array(rows, dtype=np.int32).reshape(-1, 12).T
    except (Diverges, Exception, SystemExit):
        return None
    step, kind, peer_turns, peer, peer_plus, count = numbers[:6]
    turns, turn, plus = (tuple(numbers[[k, k + 3]]) for k in (6, 7, 8))
    local = kind >= Kind.COPY
    if not np.where(local, peer_plus == -1, (peer_turns == 1) & (peer_plus == 0)).all():
        return None
    return proved(
        CyclicSchedule(
            algorithm, p, root, chunks, scratch, step, kind, np.where(local, 0, peer), count,
            tuple(part == 1 for part in turns), turn, plus, np.full(len(step), -1, np.int32),
        )
    )  # fmt: skip


def _limited(steps: Iterator[Step]) -> Iterator[tuple[int, Step]]:
    for number, step in enumerate(steps):
        if number == MOST_STEPS:
            raise OverflowError("the program does not end")
        yield number, step


def _place(number: Any) -> tuple[int, int, int]:
    """Whether a number turns with the rank, by how much, and what is added. Raises TypeError for what is none."""
    if isinstance(number, Shift):
        return 1, number.turn, number.plus
    if type(number) is int:
        return 0, 0, number
    raise TypeError(number)


def build_table(algorithm: Algorithm, world_size: int, root: int = 0) -> StepTable:
    """The program of every rank, matched, by the quickest way there is. Raises what ``build_schedule`` raises."""
    cyclic = build_cyclic(algorithm, world_size, root)
    if cyclic is not None:
        return cyclic.table()
    return build_by_parties(algorithm, world_size, root) or step_table(build_schedule(algorithm, world_size, root))


def build_by_parties(algorithm: Algorithm, world_size: int, root: int = 0) -> StepTable | None:
    """From one run for each party of ranks that take the same turns; None where that fails or might be refused."""
    chunks, scratch = algorithm.chunks(world_size), algorithm.scratch(world_size)
    if not 0 <= root < world_size or (algorithm.spec.has_parts and chunks % world_size):
        return None
    try:
        columns = merged(_blocks(algorithm, world_size, root))
    except (Diverges, Exception, SystemExit):
        return None
    paired = matched(columns, world_size)
    if paired is None:
        return None
    table = StepTable(algorithm, world_size, root, chunks, scratch, paired)
    return table if is_sound(table) and ends_agree(table) else None


def _blocks(algorithm: Algorithm, world_size: int, root: int) -> list[Block]:
    """What each party says. Raises Diverges when there are too many, and whatever the program raises."""
    parties, blocks = [np.arange(world_size, dtype=np.int64)], []
    runs = 0
    while parties:
        party, runs = parties.pop(), runs + 1
        try:
            blocks += _blocks_of(algorithm, party, world_size, root)
        except Diverges as split:
            values = np.zeros(0) if split.values is None else np.unique(split.values)
            if runs + len(parties) + len(values) > MOST_PARTIES:
                raise
            parties.extend(party[split.values == value] for value in values)
    return blocks


def _blocks_of(algorithm: Algorithm, party: npt.NDArray[np.int64], world_size: int, root: int) -> list[Block]:
    """What some ranks say together, one block a channel. Raises Diverges where they do not say the same."""
    rank: Any = Lanes(party) if len(party) > 1 else int(party[0])
    programs = enumerate(algorithm.channels(rank, world_size, root))
    return [_block(channel, program, party) for channel, program in programs]


def _block(channel: int, program: Iterator[Step], party: npt.NDArray[np.int64]) -> Block:
    rows = [
        (channel, number, int(op.kind), op.peer, op.chunk, op.count, op.into)
        for number, step in _limited(program)
        for op in step
    ]
    same = np.array([row[:3] for row in rows], dtype=np.int32).reshape(-1, 3).T
    fields = [np.empty((len(rows), len(party)), np.int32) for _ in range(4)]
    for at, row in enumerate(rows):
        for field, number in zip(fields, row[3:], strict=True):
            field[at] = _column(number)
    return Block._make([party.astype(np.int32), *same, tuple(fields)])


def _column(number: Any) -> Any:
    """A number of an operation for each rank of a party. Raises TypeError for what is none."""
    if isinstance(number, Lanes):
        return number.values
    if isinstance(number, int | np.integer) and not isinstance(number, bool):
        return number
    raise TypeError(number)


def as_table(traced: Schedule | CyclicSchedule | StepTable) -> StepTable:
    """Whatever was traced, step by step."""
    if isinstance(traced, Schedule):
        return step_table(traced)
    return traced.table() if isinstance(traced, CyclicSchedule) else traced
