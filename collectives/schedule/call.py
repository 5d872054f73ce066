"""Which program a schedule is of: an algorithm for so many ranks and a root, with the chunks that it works on."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from collectives.checks import check_ranks
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.programs.limits import MOST_STEPS
from collectives.step import Step
from collectives.symbolic_rank import VectorRank


@dataclass(frozen=True)
class ProgramCall:
    """An algorithm's program as its ranks call it. Every kind of schedule is one, with the operations besides."""

    algorithm: Algorithm
    world_size: int
    root: int
    chunks: int
    scratch: int

    @property
    def total(self) -> int:
        """Chunks of the buffer and of scratch together."""
        return self.chunks + self.scratch

    def describe(self) -> str:
        """Return ``broadcast/naive, world size 4, root 1``, as messages begin."""
        root = f", root {self.root}" if self.algorithm.spec.rooted else ""
        return f"{self.algorithm.full_name}, world size {self.world_size}{root}"

    def at_line(self, rank: int, channel: int, step: int) -> str:
        """Return `` (line 9 of my.py)`` for the step of a user's program; nothing where it is not known."""
        line = self.algorithm.find_line((rank, channel, step), self.world_size, self.root)
        return f" ({line})" if line else ""

    def run(self, rank: Any) -> tuple[Iterator[Step], ...]:
        """Return the steps of each channel of ``rank``, a number or a symbol for several.

        Raises InputError as ``Algorithm.channels`` does; so do the iterators of a program that does not end.
        """
        channels = self.algorithm.channels(rank, self.world_size, self.root)
        return tuple(_limit_steps(steps) for steps in channels)

    def run_alone(self, rank: int) -> tuple[Iterator[Step], ...]:
        """Return the steps of each channel of ``rank`` as ``run`` does; of a user's file no other rank is recorded."""
        return self.run(VectorRank(np.array([rank])) if self.algorithm.source else rank)


def _limit_steps(steps: Iterator[Step]) -> Iterator[Step]:
    for number, step in enumerate(steps):
        if number == MOST_STEPS:
            raise InputError(f"the program does not end: it yields more than {MOST_STEPS} steps")
        yield step


def make_call(algorithm: Algorithm, world_size: int, root: int = 0) -> ProgramCall:
    """Return the call of ``algorithm`` by ``world_size`` ranks.

    Raises InputError for a world without ranks, a root that is none of them, or a number of chunks that does not give
    every rank a part of its own where the collective needs that.
    """
    check_ranks(world_size, root)
    call = ProgramCall(algorithm, world_size, root, algorithm.chunks(world_size), algorithm.scratch(world_size))
    if algorithm.spec.has_parts and call.chunks % world_size:
        line = algorithm.find_line(None, world_size, root)
        raise InputError(
            f"{call.describe()}: it cuts the buffer into {call.chunks} chunk{'s' * (call.chunks > 1)}; "
            f"{algorithm.spec.name} needs a multiple of {world_size}, as each rank has a part of its own"
            f"{line and f' ({line})'}"
        )
    return call
