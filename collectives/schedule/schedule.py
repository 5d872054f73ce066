"""The schedule of an algorithm: the operations of all ranks as arrays, every send beside the receive that it meets."""

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from collectives.errors import ProgramError
from collectives.schedule.call import ProgramCall
from collectives.schedule.table import Ints, OperationColumns, StepTable
from collectives.step import Kind, Operation, Step, offset


@dataclass(frozen=True, repr=False)
class Schedule(ProgramCall):
    """Every operation of every rank: by rank, channel and step. Each array has one entry for each operation."""

    programs: tuple[tuple[tuple[Step, ...], ...], ...]  # [rank][channel][step], as yielded
    rank: Ints
    channel: Ints
    step: Ints
    kind: Ints
    peer: Ints
    chunk: Ints
    count: Ints
    into: Ints
    match: Ints  # index of the operation at the other end; -1 for local ones

    def __repr__(self) -> str:
        return f"<Schedule {self.describe()}: {self.messages} messages>"

    @property
    def steps(self) -> int:
        """Steps of the channel that has most."""
        return max((len(program) for channels in self.programs for program in channels), default=0)

    @property
    def channels(self) -> int:
        """Channels of the rank that has most."""
        return max(map(len, self.programs))

    @property
    def ports(self) -> int:
        """The most ranks that a rank sends to at the same time, or receives from, whichever is more."""
        return max(self._at_once(self.kind == Kind.SEND), self._at_once((self.kind != Kind.SEND) & (self.peer >= 0)))

    def _at_once(self, chosen: npt.NDArray[np.bool_]) -> int:
        """Of the chosen messages the most peers in a step of each channel, over the channels of one rank."""
        shape = (self.world_size, self.channels, self.steps + 1)
        step = np.ravel_multi_index((self.rank[chosen], self.channel[chosen], self.step[chosen]), shape)
        meetings, _ = np.unique(
            step * self.world_size + self.peer[chosen], return_counts=True
        )  # else numpy.ma is imported
        met = meetings // self.world_size
        return int(np.bincount(met, minlength=prod(shape)).reshape(shape).max(axis=2).sum(axis=1).max())

    @property
    def messages(self) -> int:
        """How many messages there are, empty ones included."""
        return int(np.count_nonzero(self.kind == Kind.SEND))

    def elements_sent(self, n: int) -> npt.NDArray[np.int64]:
        """Elements that each rank sends when the buffer holds ``n``; shape [world_size]."""
        sends = self.kind == Kind.SEND
        first, last = self.chunk[sends].astype(np.int64), (self.chunk + self.count)[sends].astype(np.int64)
        sizes = offset(last, n, self.chunks) - offset(first, n, self.chunks)
        return np.bincount(self.rank[sends], weights=sizes, minlength=self.world_size).astype(np.int64)

    @property
    def columns(self) -> OperationColumns:
        """The arrays together."""
        return OperationColumns._make(getattr(self, name) for name in OperationColumns._fields)

    def table(self) -> StepTable:
        """Return the same operations step by step."""
        order = np.lexsort((self.channel, self.rank, self.step))
        position = np.empty(len(order) + 1, np.int32)
        position[order], position[-1] = np.arange(len(order), dtype=np.int32), -1
        columns = OperationColumns._make(column[order] for column in self.columns)
        columns = columns._replace(match=position[columns.match])  # -1 finds the last, which is -1
        return StepTable(self.algorithm, self.world_size, self.root, self.chunks, self.scratch, columns)

    def operation(self, index: int) -> Operation:
        """Return an operation as its program yielded it."""
        numbers = (int(column[index]) for column in (self.peer, self.chunk, self.count, self.into))
        return Operation(Kind(int(self.kind[index])), *numbers)

    def site(self, index: int) -> str:
        """Return where an operation stands: ``all_reduce/ring, world size 4, rank 1, step 2``, and its line."""
        site = f"{self.describe()}, rank {self.rank[index]}{self.on_channel(index)}, step {self.step[index]}"
        return site + self.line(index)

    def line(self, index: int) -> str:
        """Return `` (line 9 of my.py)`` for the step of an operation; nothing where it is not known."""
        return self.at_line(int(self.rank[index]), int(self.channel[index]), int(self.step[index]))

    def on_channel(self, index: int) -> str:
        """Return ``, channel 1``; nothing where there is only one."""
        return f", channel {self.channel[index]}" if self.channels > 1 else ""

    def refuse(self, index: int, problem: str, lands: bool = False) -> ProgramError:
        """Return the error that names an operation and where it stands; ``lands`` is whether it takes place."""
        rank, step = int(self.rank[index]), int(self.step[index])
        return ProgramError(f"{self.site(index)}: {self.operation(index)}{problem}", self.world_size, rank, step, lands)
