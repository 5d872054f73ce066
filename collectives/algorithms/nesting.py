"""Run a library algorithm inside another one: on a group of ranks and on a piece of the buffer, one channel at a time.

The channels of an algorithm use different chunks and exchange no messages. Each channel is therefore an algorithm for
the chunks that it uses. This allows algorithms with different numbers of channels to run in sequence: each piece of the
buffer runs through one channel of each algorithm.
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

UNUSED = 1 << 20  # smallest position of chunks that a channel does not use


@dataclass(frozen=True)
class Inner:
    """One channel of an algorithm, treated as an algorithm of its own. Its chunks are renumbered from 0."""

    algorithm: Algorithm
    world_size: int
    channel: int
    owned: tuple[int, ...]  # the chunks of the buffer that the channel uses

    @property
    def chunks(self) -> int:
        """The number of chunks of the buffer that the channel uses."""
        return len(self.owned)

    @property
    def buffers(self) -> int:
        """The size of the scratch in whole buffers, rounded up."""
        return -(-self.algorithm.scratch(self.world_size) // self.algorithm.chunks(self.world_size))

    def run(self, rank: int, ranks: Sequence[int], count: int, first_chunk: int, total: int) -> Program:
        """Yield the steps of one rank of a group. ``ranks`` are the global ranks of the group.

        Chunk k of the channel is mapped to the ``count`` chunks from ``first_chunk + k * count`` in a buffer of
        ``total`` chunks. Scratch chunks are mapped in the same way within the scratch. Raise InputError if the chunks
        of an operation would not be contiguous, or if its peer is not in the group.
        """
        for step in self.algorithm.channels(rank, self.world_size)[self.channel]:
            yield tuple(self._translate(op, ranks, (count, first_chunk, total)) for op in step)

    @cached_property
    def _positions(self) -> tuple[int, ...]:
        """The position of each buffer chunk among the channel's chunks. It is at least UNUSED for an unused chunk."""
        position = {chunk: number for number, chunk in enumerate(self.owned)}
        chunks = self.algorithm.chunks(self.world_size)
        return tuple(position.get(chunk, UNUSED * (chunk + 1)) for chunk in range(chunks))

    def _translate(self, op: Operation, ranks: Sequence[int], piece: tuple[int, int, int]) -> Operation:
        count, first_chunk, total = piece

        def translate(chunk: Any) -> Any:
            buffer, within = divmod(chunk, len(self._positions))
            first, last = look_up(self._positions, within), within + op.count - 1
            is_together = last == within or (
                last < len(self._positions) and look_up(self._positions, last) - first == last - within
            )
            if first >= UNUSED or not is_together:
                raise InputError(f"{op}: the chunks are not contiguous if the algorithm runs inside another one")
            return buffer * total + first_chunk + first * count

        if not op.kind.is_local and not 0 <= op.peer < len(ranks):
            raise InputError(f"{op}: rank {op.peer} does not exist in a group of {len(ranks)}")
        peer, into = -1 if op.kind.is_local else ranks[op.peer], -1 if op.into < 0 else translate(op.into)
        return Operation(op.kind, peer, translate(op.chunk), op.count * count, into)


@lru_cache(maxsize=1024)
def inner_channels(collective: str, name: str, world_size: int) -> tuple[Inner, ...]:
    """Return the channels of a library algorithm, each as an ``Inner``. Raise InputError for an unknown algorithm.

    Also raise InputError if a channel does not use the same number of chunks of each rank's part.

    >>> [inner.owned for inner in inner_channels("reduce_scatter", "bidirectional_ring", 2)]
    [(0, 2), (1, 3)]
    """
    algorithm = find_algorithm(name, collective)
    chunks = algorithm.chunks(world_size)
    if world_size == 1:  # no operation shows which chunks are used
        return (Inner(algorithm, 1, 0, tuple(range(chunks))),)
    used = [
        {chunk % chunks for step in program for op in step for chunk in range(op.chunk, op.chunk + op.count)}
        for program in algorithm.channels(0, world_size)  # in these collectives, rank 0 uses every chunk
    ]
    inner = tuple(Inner(algorithm, world_size, number, tuple(sorted(channels))) for number, channels in enumerate(used))
    for channel in inner:
        share = channel.chunks // world_size
        parts = [chunk * world_size // chunks for chunk in channel.owned]
        if algorithm.spec.has_parts and parts != [part for part in range(world_size) for _ in range(share)]:
            raise InputError(
                f"{algorithm.full_name} cannot run inside another algorithm: channel {channel.channel} "
                f"uses chunks {', '.join(map(str, channel.owned))} of {chunks}; each channel must use "
                "the same number of chunks from every rank's part, in order"
            )
    return inner
