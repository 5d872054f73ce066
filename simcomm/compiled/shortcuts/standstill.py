"""Find the unfinished operations of a max-plus run that hangs, without listing its messages."""

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

import numpy as np

from collectives.records.trace import Unfinished
from collectives.step import Kind
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.schedule_plan import distances
from simcomm.compiled.shortcuts.max_plus import ChannelRun, MaxPlusRun


class Standstill(NamedTuple):
    """The state of a run that hangs: the time at which it stops, and the unfinished operations."""

    last: float  # end of the last message or computation, in seconds
    unfinished: tuple[Unfinished, ...]


def standstill(inputs: EngineInput, run: MaxPlusRun) -> Standstill | None:
    """Return the time and the unfinished operations of a run that hangs, or None if all ranks finished."""
    if np.isfinite(run.finished).all():
        return None
    waiting = [operation for channel in run.channels for operation in _Waiting(channel, inputs).all()]
    return Standstill(run.last, tuple(sorted(waiting, key=lambda operation: (operation.since, operation))))


class _Waiting:
    def __init__(self, run: ChannelRun, inputs: EngineInput) -> None:
        self.run, self.cyclic, self.itemsize = run, run.schedule, inputs.sizes.itemsize
        self.offsets = inputs.sizes.offsets(self.cyclic.chunks + self.cyclic.scratch)
        self.away, self.step = distances(self.cyclic), np.unique(self.cyclic.step)
        self.first_row = np.searchsorted(self.cyclic.step, self.step)
        self.last_row = np.searchsorted(self.cyclic.step, self.step, side="right")

    def all(self) -> Iterator[Unfinished]:
        for rank in np.flatnonzero(np.isfinite(self.run.halted_since)).tolist():
            step = int(self.run.halted_step[rank])
            for row in range(self.first_row[step], self.last_row[step]):
                if self.cyclic.channel[row] == self.run.channel and self.cyclic.kind[row] < Kind.COPY:
                    yield from self._half(rank, step, row)

    def _half(self, rank: int, step: int, row: int) -> Iterator[Unfinished]:
        """Yield the send or receive that a rank posts in ``row``, unless its message is empty or has arrived."""
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
        last = self.run.halted_step[rank]
        return bool(last > step or (last == step and self.run.halted_since[rank] < inf))

    def _is_stuck(self, src: int, dst: int, row: int, nbytes: float) -> bool:
        """Return whether a message never arrives although both of its ranks have posted it."""
        run, distance = self.run, int(np.searchsorted(self.away, (dst - src) % self.cyclic.world_size))
        if run.halted_step[src] != run.halted_step[dst]:
            return False
        if run.rates is None or not run.rates.change(distance, src):
            return bool(run.rate[distance, src] == 0)
        named = run.index, src, dst, run.channel, int(self.cyclic.step[row]), self._chunk(src, row)
        late = float(run.faults.delay(*named)) if run.faults.messages else 0.0
        start = max(run.halted_since[src], run.halted_since[dst]) + run.delay[distance, src] + late
        return run.rates.arrival(distance, src, float(start), nbytes) == inf

    def _chunk(self, rank: int, row: int) -> int:
        """Return the first chunk that a rank reads, for a send in ``row``, or writes, for a receive."""
        cyclic = self.cyclic
        chunk = cyclic.read if cyclic.kind[row] == Kind.SEND else cyclic.written
        return int(chunk.select(np.array([row])).on(np.array([rank]), cyclic.world_size)[0, 0])
