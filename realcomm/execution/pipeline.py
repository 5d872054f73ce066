"""In which order one rank posts its messages and waits for them, so that what may overlap does.

Every channel, and every lane of a channel's chunks, is a *chain* of turns: one step after the other. One thread serves
all chains, turn by turn, in an order that is the same kind of order on every rank: by how many turns must have happened
anywhere before this one can complete (its *level*). A rank then only ever waits for what others have posted already or
will post without it, so that no order in which messages arrive can block it.

Two things happen earlier or later than the program says, where nobody can tell by the result: a receive is posted as
soon as its memory is free, which spares a message the way there and back that announces it, and a send is awaited one
turn late unless its chunk is about to change.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import torch

from collectives.declaration import Algorithm
from collectives.proof.completion import Completed, completion_order
from collectives.schedule.schedule import build_schedule
from collectives.step import Step, offset
from realcomm.execution.memory import Memory, PlacedStep, Transfer, placed, staging_elements

AREAS = 2  # of staging for each chain: while one is reduced from, the next is received into
SLICE = 2 << 20  # bytes of a chunk that travel together, at least: less costs more wake-ups than overlap saves ...
LARGEST_SLICE = 16 << 20  # ... and at most, lest staging grow with the buffer (docs/executor.md)
CHAINS = 4  # lanes of a channel that are under way at the same time; each of the others follows one of them


class Place(NamedTuple):
    """Memory that a turn uses: a lane of a chunk, or an area of the chain's staging."""

    kind: str
    lane: int
    number: int


Levels = dict[tuple[int, int, int], int]  # by (rank, channel, step)


@dataclass(slots=True, eq=False)
class Turn:
    """One step of one lane: what is posted when it begins, and awaited when it completes."""

    channel: int
    chain: int  # among all of the rank's
    lane: int
    step: PlacedStep
    first: list[Transfer] = field(default_factory=list)  # receives that are posted before the turn's sends ...
    ahead: list[Transfer] = field(default_factory=list)  # ... and those of later turns, posted after them
    due: list[Transfer] = field(default_factory=list)  # sends, this turn's or the last one's, that must be through
    next: "Turn | None" = None


class Pipeline(NamedTuple):
    """One rank's program, ready to be executed on one buffer."""

    begin: list[Turn]  # the first of each chain
    turns: list[Turn]  # in the order in which they complete


class Arrangement:
    """How one rank works on buffers of ``n`` elements: in how many lanes, in which order, with which memory."""

    def __init__(
        self,
        algorithm: Algorithm,
        rank: int,
        world_size: int,
        root: int,
        n: int,
        dtype: torch.dtype,
        device: torch.device,
        together: bool,
    ) -> None:
        """Where messages are posted ``together``, a step of a channel is one turn, and ends before the next begins."""
        self.programs = tuple(tuple(steps) for steps in algorithm.channels(rank, world_size, root))
        self.chunks = algorithm.chunks(world_size)
        self.lanes = 1 if together else lanes(n // self.chunks * dtype.itemsize)
        self._chains = min(self.lanes, CHAINS)  # of each channel
        self._areas = 1 if together else AREAS
        self._scratch = torch.empty(_scratch_elements(algorithm, n, world_size), dtype=dtype, device=device)
        self._staging = [
            torch.empty(self._areas * staging_elements(program, n, self.chunks, self.lanes), dtype=dtype, device=device)
            for program in self.programs
            for _ in range(self._chains)
        ]
        self._rank = rank
        self._asked = algorithm, world_size, root

    def on(self, buffer: torch.Tensor) -> Pipeline:
        """The turns of all chains, with their slices of ``buffer``."""
        chains = [self._chain(buffer, number) for number in range(len(self._staging))]
        turns = [turn for chain in chains for turn in chain]
        if len(chains) > 1:
            turns.sort(key=self._order())
        return Pipeline([chain[0] for chain in chains if chain], turns)

    def _chain(self, buffer: torch.Tensor, number: int) -> list[Turn]:
        """Turns of every lane that uses this staging, one lane after the other."""
        channel, slot = divmod(number, self._chains)
        program, turns = self.programs[channel], list[Turn]()
        for lane in range(slot, self.lanes, self._chains):
            memory = Memory(buffer, self._scratch, self._staging[number], self.chunks, lane, self.lanes)
            steps = placed(program, memory, self._areas, len(turns))
            turns += [Turn(channel, number, lane, step) for step in steps]
        (_link_ahead if self._areas > 1 else _link)(turns, program)
        return turns

    def _order(self) -> Callable[[Turn], tuple[int, ...]]:
        """By level, each lane so much later than the one before that it begins when its chain is free."""
        level = levels(*self._asked)
        later = -(-max(level.values(), default=0) // self._chains) if self.lanes > self._chains else 0
        return lambda turn: (
            level[self._rank, turn.channel, turn.step.number] + later * turn.lane, turn.channel, turn.lane
        )  # fmt: skip


def lanes(chunk_bytes: int) -> int:
    """In how many slices a chunk travels: as many as are under way at the same time, if they are large enough."""
    return max(1, min(CHAINS, chunk_bytes // SLICE), chunk_bytes // LARGEST_SLICE)


def _scratch_elements(algorithm: Algorithm, n: int, world_size: int) -> int:
    chunks = algorithm.chunks(world_size)
    return offset(chunks + algorithm.scratch(world_size), n, chunks) - n


@lru_cache(maxsize=64)
def levels(algorithm: Algorithm, world_size: int, root: int) -> Levels:
    """For every step of every rank and channel, how many steps at least happen one after the other up to it."""
    schedule = build_schedule(algorithm, world_size, root)
    columns = schedule.rank.tolist(), schedule.channel.tolist(), schedule.step.tolist()
    keys = [Completed(*key) for key in zip(*columns, strict=True)]
    meets: dict[Completed, list[Completed]] = defaultdict(list)
    for key, other in zip(keys, schedule.match.tolist(), strict=True):
        if other >= 0:
            meets[key].append(keys[other])
    found: Levels = {}
    for done in completion_order(schedule):
        before = [(met.rank, met.channel, met.step - 1) for met in (done, *meets[done])]
        found[done] = 1 + max(found.get(key, 0) for key in before)
    return found


def _link(turns: list[Turn], program: tuple[Step, ...]) -> None:
    """The turns of one chain post their own receives and wait for their own sends, and for nothing else."""
    for turn, following in zip(turns, [*turns[1:], None], strict=False):  # there may be none
        turn.next = following
        turn.first, turn.due = turn.step.receives, turn.step.sends


def _link_ahead(turns: list[Turn], program: tuple[Step, ...]) -> None:
    """The turns of one chain know what they post for later ones and which sends they wait for."""
    free: dict[Place, int] = {}  # the first turn with which a receive into a place may be posted
    posted: dict[int, int] = {}  # by peer, with which turn the last receive: those from one peer stay in order
    for at, turn in enumerate(turns):
        turn.next = turns[at + 1] if at + 1 < len(turns) else None
        staging = Place("staging", 0, at % AREAS)
        for receive in turn.step.receives:
            into = [staging] if receive.is_staged else _places(turn.lane, receive.operation.target)
            post = max(at + 1 - AREAS, posted.get(receive.peer, 0), *(free.get(place, 0) for place in into))
            posted[receive.peer] = post
            (turn.first if post == at else turns[post].ahead).append(receive)
        used = [place for op in program[turn.step.number] for place in _places(turn.lane, (*op.source, *op.target))]
        free.update(dict.fromkeys([staging, *used], at + 1))
        _set_due(turn, at, program, free)


def _set_due(turn: Turn, at: int, program: tuple[Step, ...], free: dict[Place, int]) -> None:
    """Each send is awaited with the next turn, unless one of both changes what is sent."""
    changed = {*_written(turn, program), *(_written(turn.next, program) if turn.next else ())}
    for send in turn.step.sends:
        places = _places(turn.lane, send.operation.source)
        late = turn.next is not None and changed.isdisjoint(places)
        (turn.next if turn.next is not None and late else turn).due.append(send)
        free.update(dict.fromkeys(places, at + 1 + late))


def _places(lane: int, chunks: Iterable[int]) -> list[Place]:
    return [Place("chunk", lane, chunk) for chunk in chunks]


def _written(turn: Turn, program: tuple[Step, ...]) -> list[Place]:
    return [place for op in program[turn.step.number] for place in _places(turn.lane, op.target)]
