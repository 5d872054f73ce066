"""Draw correct programs of every collective, change them at random, and run them on random integers.

A program is data: operations by position, channel and step. A position is a rank counted from the root.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import numpy as np
import oracle_data as oracle
from declared_programs import declared

import simcomm
from collectives import Algorithm, Kind, Operation, Transport
from collectives.spec import SPECS
from collectives.step import Program
from simcomm.reference.engine import Buffer, Simulation

Steps = list[list[Operation]]
Programs = list[list[Steps]]  # [position][channel][step]
MOST = 2**40  # of the numbers that are reduced: sums of different ranks are different numbers
OTHER_KIND = {Kind.RECV: Kind.RECV_REDUCE, Kind.RECV_REDUCE: Kind.RECV, Kind.COPY: Kind.REDUCE, Kind.REDUCE: Kind.COPY}


class Sent(NamedTuple):
    src: int
    dst: int
    chunk: int
    reduces: bool


def draw_program(rng: Random, collective: str, p: int) -> tuple[Programs, int]:
    """Return a random correct program of any collective except all_to_all, and its number of chunks.

    All positions post their messages in the same order. Neighboring messages in this order may share a step.
    """
    chunks = (p if SPECS[collective].has_parts else 1) * rng.randint(1, 2)
    channel_of = [rng.randrange(2) for _ in range(chunks)]
    share = rng.random()
    programs: Programs = [[[] for _ in range(max(channel_of) + 1)] for _ in range(p)]
    rows = [_draw_messages(rng, collective, p, chunk * p // chunks, chunk) for chunk in range(chunks)]
    for src, dst, chunk, reduces in _interleave(rng, rows):
        receive = Kind.RECV_REDUCE if reduces else Kind.RECV
        halves = Operation(Kind.SEND, dst, chunk, 1, -1), Operation(receive, src, chunk, 1, chunk)
        for position, op in zip((src, dst), halves, strict=True):
            steps = programs[position][channel_of[chunk]]
            written = {other.into for other in steps[-1]} if steps else {chunk}
            if chunk not in written and rng.random() < share:
                steps[-1].append(op)
            else:
                steps.append([op])
    return programs, chunks


def _draw_messages(rng: Random, collective: str, p: int, part: int, chunk: int) -> list[Sent]:
    """Return messages, in a valid order, that bring a chunk of a part to each position that needs it."""
    top = part if collective in ("all_gather", "reduce_scatter") else 0
    down = [Sent(parent, child, chunk, False) for parent, child in _draw_tree(rng, p, top)]
    up = [Sent(child, parent, chunk, True) for parent, child in reversed(_draw_tree(rng, p, top))]
    if collective in ("scatter", "gather"):
        between = rng.sample([rank for rank in range(p) if rank not in (0, part)], rng.randint(0, max(0, p - 2)))
        way = [0, *between, part] if part else []
        return [Sent(src, dst, chunk, False) for src, dst in pairwise(way if collective == "scatter" else way[::-1])]
    if collective in ("all_reduce", "barrier"):
        return up + down
    return up if collective in ("reduce", "reduce_scatter") else down


def _draw_tree(rng: Random, p: int, top: int) -> list[tuple[int, int]]:
    """Return the (parent, child) edges of a random tree over all positions, from the top down."""
    inside, outside, edges = [top], [rank for rank in range(p) if rank != top], []
    rng.shuffle(outside)
    for child in outside:
        edges.append((rng.choice(inside), child))
        inside.append(child)
    return edges


def _interleave(rng: Random, rows: Sequence[list[Sent]]) -> Iterator[Sent]:
    waiting = [row[::-1] for row in rows if row]
    while waiting:
        row = rng.choice(waiting)
        yield row.pop()
        waiting = [rest for rest in waiting if rest]


def programs_of(algorithm: Algorithm, p: int, root: int = 0) -> Programs:
    """Return the operations of all ranks of an algorithm, by rank, channel and step."""
    return [[[list(step) for step in program] for program in algorithm.channels(rank, p, root)] for rank in range(p)]


def as_algorithm(
    collective: str, say: Callable[[int, Any], Programs], chunks: int = 1, scratch: int = 0, name: str = "random"
) -> Algorithm:
    """Return the algorithm with the programs that ``say(world_size, root)`` returns. The root can be symbolic."""

    def program(rank: Any, world_size: int, root: Any = 0) -> tuple[Program, ...]:
        programs = say(world_size, root)[(rank - root) % world_size]
        shift = root * (chunks // world_size) if SPECS[collective].has_parts else 0
        return tuple(_turn(steps, world_size, root, shift) for steps in programs)

    def _turn(steps: Steps, world_size: int, root: Any, shift: Any) -> Program:
        for step in steps:
            yield tuple(_turned(op, world_size, root, shift) for op in step)

    def _turned(op: Operation, world_size: int, root: Any, shift: Any) -> Operation:
        peer = op.peer if op.kind.is_local else (op.peer + root) % world_size
        if not SPECS[collective].rooted or not SPECS[collective].has_parts:
            return op._replace(peer=peer)
        chunk = (op.chunk + shift) % chunks if op.chunk < chunks else op.chunk
        return op._replace(peer=peer, chunk=chunk, into=op.into if op.kind is Kind.SEND else chunk)

    def unrooted(rank: Any, world_size: int) -> tuple[Program, ...]:
        return program(rank, world_size)

    function = program if SPECS[collective].rooted else unrooted
    return declared(collective, function, name=name, chunks=chunks, scratch=scratch)


def changed_at(right: Algorithm, p: int, at: int, changed: Programs) -> Algorithm:
    """Return a rooted algorithm with the programs ``changed`` at one root, and those of ``right`` at all others."""

    def program(rank: Any, world_size: int, root: Any) -> tuple[Program, ...]:
        if root == at:
            return tuple(iter([tuple(step) for step in steps]) for steps in changed[rank])
        return right.channels(rank, world_size, root)

    sizes = {"chunks": right.chunks(p), "scratch": right.scratch(p)}
    return declared(right.spec.name, program, name="changed", **sizes)


def change(rng: Random, right: Programs, total: int) -> Programs:
    """Return the programs with up to three random changes to an operation, a step, or both ends of a message.

    ``total`` is the number of chunks, including scratch.
    """
    programs = deepcopy(right)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if any(step for channels in programs for program in channels for step in program):
            _Change(rng, programs, total).make()
    return programs


class _Change:
    def __init__(self, rng: Random, programs: Programs, total: int) -> None:
        self.rng, self.programs = rng, programs
        self.at, self.channel, self.steps, self.step, self.op = rng.choice([
            (at, channel, steps, step, op)
            for at, channels in enumerate(programs) for channel, steps in enumerate(channels)
            for step in steps for op in step
        ])  # fmt: skip
        self.chunk = rng.randrange(max(1, total - self.op.count + 1))
        self.others = [rank for rank in range(len(programs)) if rank != self.at]

    def make(self) -> None:
        peer, kind = self.rng.choice(self.others), OTHER_KIND.get(self.op.kind, self.op.kind)
        of_one: list[Callable[[], None]] = [
            lambda: _put(self.step, self.op),
            lambda: self.step.clear(),
            lambda: _put(self.step, self.op, self.op if self.op.kind.is_local else self.op._replace(peer=peer)),
            lambda: _put(self.step, self.op, self._moved(self.op)),
            lambda: _put(self.step, self.op, self.op._replace(kind=kind)),
            self.join_steps,
            self.change_channel,
        ]
        of_message: list[Callable[[], None]] = [
            lambda: self.replace_ends(lambda op: []),
            lambda: self.replace_ends(lambda op: [op, op]),
            lambda: self.replace_ends(lambda op: [self._moved(op)]),
            lambda: self.add_message(peer),
        ]
        self.rng.choice([*of_one, *of_message, *of_message])()
        for channels in self.programs:
            for program in channels:
                program[:] = [step for step in program if step]

    def join_steps(self) -> None:
        at = _index(self.steps, self.step)
        self.steps[at : at + 2] = [[op for step in self.steps[at : at + 2] for op in step]]

    def change_channel(self) -> None:
        _put(self.step, self.op)
        target = self.rng.choice(self.programs[self.at])
        target.insert(self.rng.randint(0, len(target)), [self.op])

    def replace_ends(self, change: Callable[[Operation], list[Operation]]) -> None:
        """Replace the operation and its match. The second of two operations moves into a step of its own."""
        for steps, step, op in [*self._ends()]:
            new = change(op)
            _put(step, op, *new[:1])
            if len(new) > 1:
                steps.insert(_index(steps, step), [op])

    def add_message(self, to: int) -> None:
        kind = self.rng.choice((Kind.RECV, Kind.RECV_REDUCE))
        if self.channel < len(self.programs[to]):
            for steps, op in (
                (self.steps, Operation(Kind.SEND, to, self.chunk, self.op.count, -1)),
                (self.programs[to][self.channel], Operation(kind, self.at, self.chunk, self.op.count, self.chunk)),
            ):
                steps.insert(self.rng.choice((len(steps), self.rng.randint(0, len(steps)))), [op])

    def _moved(self, op: Operation) -> Operation:
        return op._replace(chunk=self.chunk, into=op.into if op.kind is Kind.SEND else self.chunk)

    def _ends(self) -> Iterator[tuple[Steps, list[Operation], Operation]]:
        yield self.steps, self.step, self.op
        sends = self.op.kind is Kind.SEND
        mine, theirs = self._halves(self.at, self.op.peer), self._halves(self.op.peer, self.at)
        number = next((k for k, (_, op) in enumerate(mine[sends]) if op is self.op), None)
        if number is not None and number < len(theirs[not sends]):
            yield (self.programs[self.op.peer][self.channel], *theirs[not sends][number])

    def _halves(self, at: int, peer: int) -> dict[bool, list[tuple[list[Operation], Operation]]]:
        """Return the sends to a peer (True) and the receives from it (False) of a position on the channel, in order."""
        steps = self.programs[at][self.channel] if at >= 0 and self.channel < len(self.programs[at]) else []
        messages = [(step, op) for step in steps for op in step if op.peer == peer >= 0]
        return {sends: [each for each in messages if (each[1].kind is Kind.SEND) == sends] for sends in (True, False)}


def _index(items: list[Any], item: Any) -> int:
    return next(index for index, candidate in enumerate(items) if candidate is item)


def _put(step: list[Operation], old: Operation, *new: Operation) -> None:
    index = _index(step, old)
    step[index : index + 1] = new


def is_right_when_run(algorithm: Algorithm, p: int, root: int = 0, seed: int = 0) -> bool:
    """Return whether all ranks finish with the correct integers. Undefined memory starts with other integers."""
    collective, chunks, draw = algorithm.spec.name, algorithm.chunks(p), np.random.default_rng(seed)
    uneven = not algorithm.spec.moves and chunks > 1
    n = chunks * (p if collective == "barrier" else 2) + uneven
    start = [draw.integers(-MOST, MOST, n) for _ in range(p)]
    if collective == "barrier":  # a token has a number of each rank, and those of others are 0
        start = [np.where(np.arange(n) % p == rank, np.abs(data) + 1, 0) for rank, data in enumerate(start)]
    buffers = [Buffer(algorithm, p, n, 8, data) for data in start]
    for buffer in buffers:
        assert buffer.data is not None
        buffer.data[n:] = draw.integers(-MOST, MOST, len(buffer.data) - n)
    simulation = Simulation(simcomm.star(p, "10 Gbit/s", "1 us"), Transport())
    operator = "max" if collective == "barrier" else "sum"
    try:
        simulation.run(
            simulation.collective(rank, algorithm.channels(rank, p, root), buffers[rank], operator) for rank in range(p)
        )
    except (ValueError, IndexError):  # what arrives has another length
        return False
    ends = [buffer.data for buffer in buffers if buffer.data is not None]
    collective = "all_reduce" if collective == "barrier" else collective
    return not simulation.unfinished() and all(
        np.array_equal(data[where], wanted)
        for rank, data in enumerate(ends)
        for where, wanted in oracle.expected(collective, operator, start, root, rank)
    )
