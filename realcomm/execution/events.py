"""What happened when while a rank executed a program."""

from collections.abc import Iterable
from math import nan
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from collectives.step import Operation
from realcomm.execution.device_clock import device_clock

if TYPE_CHECKING:  # a launcher that receives events need not import torch
    import torch

    from collectives.pipeline.bound_steps import Transfer, Write


EXECUTION = "execution"  # the subject under which a rank tells its ``Account``


class Event(NamedTuple):
    """One operation of one rank, with times in seconds of ``time.perf_counter``, a clock that all local ranks share.

    Sends and receives begin when they were posted and end when this rank saw them complete. The reduction of a
    ``recv_reduce`` is an event of its own, of kind REDUCE. A message that travels in slices is one event; a reduction
    or copy is one event a slice.
    """

    step: int
    operation: Operation
    begin: float
    end: float
    channel: int = 0


class Account(NamedTuple):
    """What a rank has done so far in one execution; ``end`` of what is still under way is nan."""

    number: int  # of the execution by its executor
    elements: int  # of the buffer
    begin: float  # seconds of ``time.perf_counter``, as in events
    events: list[Event]


class EventRecorder:
    """The events of one execution by one rank."""

    def __init__(self, device: "torch.device", number: int, elements: int) -> None:
        """Record events of a rank on ``device`` in its execution ``number``, of ``elements``.

        On a GPU times are those of the current stream, and known when the rank has posted everything.
        """
        self._clock, self._number, self._elements = device_clock(device), number, elements
        self._begin = perf_counter()
        self._messages: dict[tuple[int, int, int], Event] = {}  # by channel, step and position in the step
        self._under_way: dict[int, tuple[int, Transfer[torch.Tensor]]] = {}  # channel and slice, by its identity
        self._local: list[Event] = []

    def now(self) -> float:
        """Return a mark of the device's clock."""
        return self._clock.now()

    def post(self, channel: int, transfers: "Iterable[Transfer[torch.Tensor]]") -> None:
        """Record that slices are about to be posted."""
        now = self.now()
        for transfer in transfers:
            transfer.posted = now
            self._under_way[id(transfer)] = channel, transfer

    def add_message(self, channel: int, transfer: "Transfer[torch.Tensor]") -> None:
        """Record a completed slice; its message lasts from the begin of its first slice to the end of its last."""
        self._under_way.pop(id(transfer), None)
        key = channel, transfer.step, transfer.position
        before = self._messages.get(key)
        begin = transfer.posted if before is None else min(before.begin, transfer.posted)
        self._messages[key] = Event(transfer.step, transfer.operation, begin, self.now(), channel)

    def add_local(self, channel: int, step: int, write: "Write[torch.Tensor]", begin: float) -> None:
        """Record a reduction or copy that lasted from ``begin`` until now."""
        self._local.append(Event(step, write.operation, begin, self.now(), channel))

    def events(self) -> list[Event]:
        """Return messages in the order of the program, then local operations in the order of time.

        On a GPU, wait for the last of them; all messages must have been posted.
        """
        return self._clock.date([self._messages[key] for key in sorted(self._messages)] + self._local)

    def account(self) -> Account:
        """Return what has happened so far, on a CPU; another thread than the one that executes may ask."""
        begun = [
            Event(one.step, one.operation, one.posted, nan, channel) for channel, one in list(self._under_way.values())
        ]
        open_now = {(one.channel, one.step, one.operation) for one in begun}  # slices of it may have come
        done = [*dict(self._messages).values(), *list(self._local)]
        ended = [one for one in done if (one.channel, one.step, one.operation) not in open_now]
        return Account(self._number, self._elements, self._begin, ended + begun)
