"""Whether what one rank says makes sense on its own, before any of it is matched."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from collectives.errors import InputError, ProgramError
from collectives.step import Kind, Operation, Step, same_place

OTHER_PLACE = "these are different chunks of the buffer; data keeps its place"
SEND = Kind.SEND


@dataclass(frozen=True)
class RankCheck:
    """Checks the steps of one rank."""

    rank: int
    world_size: int
    chunks: int
    scratch: int
    moves: bool  # data may change its place

    def __call__(self, step: Step) -> None:
        """Raise InputError that names the first operation which makes no sense."""
        for op in step:
            if not self._is_usual(op):
                problem = self._problem(op)
                if problem is not None:
                    raise InputError(f"{op}: {problem}")
        writing = [op for op in step if op.kind is not SEND]
        if len(writing) > 1:
            _check_written_once(writing)

    def _is_usual(self, op: Operation) -> bool:
        """Whether it is a message in order: most operations are, and this is quickly seen."""
        peer, chunk, count = op.peer, op.chunk, op.count
        if not (type(peer) is type(chunk) is type(count) is int) or peer < 0:
            return False
        last = chunk + count
        inside = 0 <= chunk < last and (
            last <= self.chunks or self.chunks <= chunk < last <= self.chunks + self.scratch
        )
        return inside and peer < self.world_size and peer != self.rank

    def _problem(self, op: Operation) -> str | None:
        self._check_numbers(op)
        if op.count < 1:
            return "count must be at least 1"
        if not op.kind.is_local and not 0 <= op.peer < self.world_size:
            return f"there is no rank {op.peer}; ranks are 0..{self.world_size - 1}"
        if op.peer == self.rank:
            return "a rank never sends to itself; use copy or reduce"
        if op.kind.is_local and not (self.moves or same_place(op.chunk, op.into, self.chunks)):
            return OTHER_PLACE
        return self._range_problem(op.source) or self._range_problem(op.target)

    def _check_numbers(self, op: Operation) -> None:
        numbers: tuple[object, ...] = (op.peer, op.chunk, op.count, op.into)  # a user's program may yield anything
        for number in numbers:
            if not isinstance(number, int | np.integer):
                name = op.kind.name.lower()
                raise InputError(
                    f"{name}: {number!r} is no whole number; peers, chunks and counts are (divide with //)"
                )

    def _range_problem(self, chunks: range) -> str | None:
        total = self.chunks + self.scratch
        if chunks and not 0 <= chunks[0] <= chunks[-1] < total:
            outside = chunks[0] if chunks[0] < 0 else chunks[-1]
            scratch = f", the last {self.scratch} of them scratch" if self.scratch else ""
            return f"there is no chunk {outside}; chunks are 0..{total - 1}{scratch}"
        if chunks and chunks[0] < self.chunks <= chunks[-1]:
            return "its chunks begin in the buffer and end in the scratch"
        return None


def _check_written_once(operations: list[Operation]) -> None:
    written: set[int] = set()
    for op in operations:
        target = range(op.into, op.into + op.count)
        if not written.isdisjoint(target):
            raise InputError(f"{op}: chunk {min(written.intersection(target))} is written twice in one step")
        written.update(target)


def check_apart(programs: list[list[Step]], where: str, check: RankCheck) -> None:
    """Raise ProgramError unless the channels of a rank touch different chunks: nothing orders what they do."""
    user: dict[int, int] = {}
    for channel, program in enumerate(programs if len(programs) > 1 else ()):
        for number, step in enumerate(program):
            for op in step:
                for chunk in _touched(op):
                    if user.setdefault(chunk, channel) != channel:
                        raise ProgramError(
                            f"{where}, channel {channel}, step {number}: {op}: chunk {chunk} belongs to channel "
                            f"{user[chunk]}, which uses it too; channels of a rank touch different chunks",
                            check.world_size, check.rank, number,
                        )  # fmt: skip


def _touched(op: Operation) -> Iterable[int]:
    if op.into < 0 or op.into == op.chunk:
        return range(op.chunk, op.chunk + op.count)
    return {*range(op.chunk, op.chunk + op.count), *range(op.into, op.into + op.count)}
