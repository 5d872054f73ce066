"""Posted operations: a rank's part of a collective, a send or a receive."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from virtual.matching.exchanges import Exchange
from virtual.ranks.rank import Rank
from virtual.ranks.sites import CallSite

if TYPE_CHECKING:
    from virtual.matching.group import VirtualGroup


def format_shape(tensor: torch.Tensor) -> str:
    """Return a tensor's shape and dtype as text, such as "[2, 3] float32"."""
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


class Likeness(NamedTuple):
    """The properties of a collective call that must be equal on all ranks."""

    verb: str  # the program's name for it, such as "all_gather_into_tensor"
    lengths: tuple[int, ...]  # element counts that must be equal on all ranks
    dtype: torch.dtype | None
    op: str  # such as "sum"; empty without a reduction
    root: int | None  # global rank


NOTHING, NO_DATA = Likeness("", (), None, "", None), Exchange()  # of a message


@dataclass(eq=False)
class Posted:
    rank: Rank
    group: "VirtualGroup"
    way: str  # "calls" for a collective, "sends" or "receives" for a message
    what: str  # as text, such as "all_reduce([4] float32, sum)"
    site: CallSite
    tensors: Sequence[torch.Tensor]
    is_programs: bool  # whether the program itself called it, rather than a module of torch
    callers: tuple[CallSite, ...]  # the lines of the program that lead to the call, the innermost first
    caller_name: str  # the function that the program called, such as "backward" or "all_gather_object"
    likeness: Likeness = NOTHING  # of a collective, like the next two fields
    exchange: Exchange = NO_DATA
    number: int = 0  # index of the collective in its group
    peer: int | None = None  # of a message, like the next two fields: a group rank, or None for any rank
    tag: int = 0
    source: int | None = None  # group rank that sent a received message
    time: float = 0.0  # when it was posted, seconds
    is_done: bool = False
    call: int | None = None  # number in the recording; None if not recorded
    recorded: int | None = None  # like ``call``, but None once the wait is recorded
    behind: "Posted | None" = None  # an earlier call that NCCL runs first
    error: Exception | None = None  # raised when a rank waits
    when_done: Callable[[], object] | None = None
    contents: Any = None  # contents of the tensors; watchers use this and the next fields
    reduces: Any = None  # the parameters whose gradients it reduces
    is_early: bool = False  # posted during backward
    of_shards: bool = False  # FSDP reduces the gradients of shards
    parts: Any = None  # contributions to the sum that it sends
    clock: Any = None  # vector clock of its rank when it was posted
    learnt: Any = None  # vector clock that its rank merges after the wait

    @property
    def awaits(self) -> tuple[int, ...]:
        """The global ranks that the operation waits for: missing ranks of a collective, or a message's known peer."""
        if self.way != "calls":
            return () if self.peer_in_world is None else (self.peer_in_world,)
        collective = self.group.collectives.get(self.number)
        return () if collective is None else tuple(collective.missing)

    @property
    def is_barrier(self) -> bool:
        return self.way == "calls" and self.exchange.collective == "barrier"

    @property
    def elements(self) -> int:
        """The number of elements in a collective's buffer. A barrier has one element per rank."""
        return len(self.group.ranks) if self.is_barrier else self.exchange.elements

    @property
    def nbytes(self) -> int:
        return self.tensors[0].numel() * self.tensors[0].element_size()

    @property
    def peer_in_world(self) -> int | None:
        """The global rank of a message's peer. It is None for a collective and for a receive from any rank."""
        return None if self.peer is None else self.group.ranks[self.peer]

    def finish(self) -> None:
        """Mark the operation as done, and wake its rank if it can continue."""
        self.is_done = True
        if self.when_done is not None:
            self.when_done()
        self.group.world.progress += 1
        self.group.world.poke(self.rank)


@dataclass(eq=False)
class Collective:
    """The k-th collective of a group, with the calls of the ranks that have reached it so far."""

    group: "VirtualGroup"
    number: int  # in its group
    key: int  # number among all collectives of the run
    calls: dict[int, Posted] = field(default_factory=dict)  # by rank of the group
    is_mismatched: bool = False  # the ranks' calls do not match
    error: Exception | None = None  # raised when a rank waits

    @property
    def is_complete(self) -> bool:
        return len(self.calls) == self.group.expected

    @property
    def missing(self) -> list[int]:
        return [rank for place, rank in enumerate(self.group.ranks) if self.group.present[place] not in self.calls]

    def finish_if_complete(self) -> None:
        if self.is_complete:
            for place in sorted(self.calls):
                self.calls[place].finish()

    def fail(self, error: Exception) -> None:
        """Set the error that every rank raises when it waits for the collective."""
        self.error = error
        for call in self.calls.values():
            call.error = error

    def in_order(self) -> list[Posted]:
        return [self.calls[place] for place in self.group.present]
