"""What ranks wait for in a max-plus run that never ends, for a rank that failed or a link that stays down."""

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

import numpy as np

from collectives.records.trace import Unfinished
from collectives.step import Kind
from simcomm.compiled.planning.cyclic_plan import distances
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.shortcuts.max_plus import ChannelRun, MaxPlusRun


class Standstill(NamedTuple):
    """How a run that never ends came to stand still."""

    last: float  # seconds until the last message or computing ended
    unfinished: tuple[Unfinished, ...]


def standstill(inputs: EngineInput, run: MaxPlusRun) -> Standstill | None:
    """Return how a run came to stand still; None where it ended."""
    if np.isfinite(run.finished).all():
        return None
    waiting = [one for channel in run.channels for one in _Waiting(channel, inputs).all()]
    return Standstill(run.last, tuple(sorted(waiting, key=lambda one: (one.since, one))))


class _Waiting:
    """The halves of messages that ranks wait for at a halt, on one channel."""

    def __init__(self, run: ChannelRun, inputs: EngineInput) -> None:
        self.run, self.cyclic, self.itemsize = run, run.schedule, inputs.sizes.itemsize
        self.offsets = inputs.sizes.offsets(self.cyclic.chunks + self.cyclic.scratch)
        self.away, self.step = distances(self.cyclic), np.unique(self.cyclic.step)
        self.first_row = np.searchsorted(self.cyclic.step, self.step)
        self.last_row = np.searchsorted(self.cyclic.step, self.step, side="right")

    def all(self) -> Iterator[Unfinished]:
        """Yield them all."""
        for rank in np.flatnonzero(np.isfinite(self.run.halted_since)).tolist():
            step = int(self.run.halted_step[rank])
            for row in range(self.first_row[step], self.last_row[step]):
                if self.cyclic.channel[row] == self.run.channel and self.cyclic.kind[row] < Kind.COPY:
                    yield from self._half(rank, step, row)

    def _half(self, rank: int, step: int, row: int) -> Iterator[Unfinished]:
        """Yield the half of a message that a rank posts by a row, unless that message has arrived or is empty."""
        cyclic, sends = self.cyclic, self.cyclic.kind[row] == Kind.SEND
        peer, chunk = (rank + int(cyclic.peer[row])) % cyclic.world_size, self._chunk(rank, row)
        count = int(cyclic.count[row])
        nbytes = float((self.offsets[chunk + count] - self.offsets[chunk]) * self.itemsize)
        if nbytes == 0:
            return
        posted = self._posted(peer, step)
        if posted:
            source = row if sends else int(cyclic.match[row])
            src, dst = (rank, peer) if sends else (peer, rank)
            if not self._is_stuck(src, dst, source, nbytes):
                return
        yield Unfinished(
            rank=rank,
            peer=peer,
            sends=bool(sends),
            step=int(self.step[step]),
            channel=self.run.channel,
            since=float(self.run.halted_since[rank]),
            is_under_way=posted,
            chunk=chunk,
            count=count,
            collective=self.run.index,
        )

    def _posted(self, rank: int, step: int) -> bool:
        """Return whether a rank posted a step."""
        last = self.run.halted_step[rank]
        return bool(last > step or (last == step and self.run.halted_since[rank] < inf))

    def _is_stuck(self, src: int, dst: int, row: int, nbytes: float) -> bool:
        """Return whether a message that both ranks posted never arrives: none does who has passed its step."""
        run, distance = self.run, int(np.searchsorted(self.away, (dst - src) % self.cyclic.world_size))
        if run.halted_step[src] != run.halted_step[dst]:
            return False
        if run.rates is None or not run.rates.change(distance, src):
            return bool(run.rate[distance, src] == 0)
        named = run.index, src, dst, run.channel, int(self.cyclic.step[row]), self._chunk(src, row)
        late = float(run.trouble.delay(*named)) if run.trouble.messages else 0.0
        start = max(run.halted_since[src], run.halted_since[dst]) + run.delay[distance, src] + late
        return run.rates.arrival(distance, src, float(start), nbytes) == inf

    def _chunk(self, rank: int, row: int) -> int:
        """Return the first chunk that a row of a rank sends, or writes where it receives."""
        cyclic = self.cyclic
        chunk = cyclic.read if cyclic.kind[row] == Kind.SEND else cyclic.written
        return int(chunk.select(np.array([row])).on(cyclic.places(np.array([rank])), cyclic.radix)[0, 0])
