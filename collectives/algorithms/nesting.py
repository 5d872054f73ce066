"""An algorithm inside another: on a group of ranks and a piece of the buffer, one channel at a time.

Channels use different chunks and exchange no messages, so each channel is an algorithm of its own for the chunks that
it uses. That is how algorithms with different numbers of channels follow one another: each piece of the buffer goes
through one channel of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from collectives.catalogue import find_algorithm
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.step import Operation, Program
from collectives.symbolic_rank import look_up

UNUSED = 1 << 20  # and more: in place of the place of a chunk that a channel does not use


@dataclass(frozen=True)
class Inner:
    """One channel of an algorithm, as an algorithm on the chunks that the channel uses, numbered in their order."""

    algorithm: Algorithm
    world_size: int
    channel: int
    owned: tuple[int, ...]  # chunks of the buffer that the channel uses

    @property
    def chunks(self) -> int:
        """How many chunks of the buffer it uses."""
        return len(self.owned)

    @property
    def buffers(self) -> int:
        """How many times the chunks of the buffer its scratch chunks are, rounded up."""
        return -(-self.algorithm.scratch(self.world_size) // self.algorithm.chunks(self.world_size))

    def run(self, rank: int, ranks: Sequence[int], count: int, first_chunk: int, total: int) -> Program:
        """Yield the steps of rank ``rank`` of a group, the ranks ``ranks`` of the whole world.

        Its k-th chunk is ``count`` chunks from ``first_chunk + k * count`` on, of ``total``; its scratch lies as far
        into the scratch behind those. Raises InputError for chunks of one message that would not be side by side.
        """
        place = self.places
        for step in self.algorithm.channels(rank, self.world_size)[self.channel]:
            yield tuple(self._translate(op, ranks, place, (count, first_chunk, total)) for op in step)

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Where each chunk of the buffer stands among those of the channel; far off if it is not its own."""
        place = {chunk: number for number, chunk in enumerate(self.owned)}
        chunks = self.algorithm.chunks(self.world_size)
        return tuple(place.get(chunk, UNUSED * (chunk + 1)) for chunk in range(chunks))

    def _translate(
        self, op: Operation, ranks: Sequence[int], place: tuple[int, ...], where: tuple[int, int, int]
    ) -> Operation:
        """Return an operation of the algorithm for the whole world; ``where`` are count, first chunk and total."""
        count, first_chunk, total = where

        def there(chunk: Any) -> Any:
            behind, within = divmod(chunk, len(place))
            first, more = look_up(place, within), op.count - 1
            if first >= UNUSED or (more and not self._lie_together(place, within, more)):
                raise InputError(f"{op}: inside another algorithm its chunks are not side by side")
            return behind * total + first_chunk + first * count

        if not op.kind.is_local and not 0 <= op.peer < len(ranks):
            raise InputError(f"{op}: there is no rank {op.peer} in a group of {len(ranks)}")
        peer, into = -1 if op.kind.is_local else ranks[op.peer], -1 if op.into < 0 else there(op.into)
        return Operation(op.kind, peer, there(op.chunk), op.count * count, into)

    @staticmethod
    def _lie_together(place: tuple[int, ...], within: int, more: int) -> bool:
        """Return whether the chunk ``more`` further on is the channel's own and stands ``more`` further on."""
        return bool(within + more < len(place)) and bool(look_up(place, within + more) - look_up(place, within) == more)


@lru_cache(maxsize=1024)
def inner_channels(collective: str, name: str, world_size: int) -> tuple[Inner, ...]:
    """Return the channels of a library algorithm, one ``Inner`` for each.

    Raises InputError for an unknown algorithm, or for channels that do not use equally many chunks of each part.

    >>> [inner.owned for inner in inner_channels("reduce_scatter", "bidirectional_ring", 2)]
    [(0, 2), (1, 3)]
    """
    found = find_algorithm(name, collective)
    chunks = found.chunks(world_size)
    if world_size == 1:  # there are no operations to tell the chunks from
        return (Inner(found, 1, 0, tuple(range(chunks))),)
    touched = [
        {chunk % chunks for step in program for op in step for chunk in range(op.chunk, op.chunk + op.count)}
        for program in found.channels(0, world_size)  # in these collectives every rank touches every chunk
    ]
    inner = tuple(Inner(found, world_size, channel, tuple(sorted(own))) for channel, own in enumerate(touched))
    for one in inner:
        share = one.chunks // world_size
        parts = [chunk * world_size // chunks for chunk in one.owned]
        if found.spec.has_parts and parts != [part for part in range(world_size) for _ in range(share)]:
            raise InputError(
                f"{found.full_name} cannot run inside another algorithm: its channel {one.channel} touches chunks "
                f"{', '.join(map(str, one.owned))} of {chunks}, not equally many of each rank's part"
            )
    return inner
