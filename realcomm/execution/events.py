"""Record the operations of one rank while it executes a program."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from collectives.step import Operation
from realcomm.execution.device_clock import device_clock

if TYPE_CHECKING:  # a launcher that receives events need not import torch
    import torch

    from collectives.pipeline.bound_steps import Transfer, Write


class Event(NamedTuple):
    """One operation of one rank, with times in seconds of ``time.perf_counter``, which all ranks of a host share.

    A send or receive begins when it is posted and ends when this rank sees it complete. The reduction of a
    ``recv_reduce`` is a separate event of kind REDUCE. A message that is sent in several slices is one event.
    Reductions and copies have one event for each slice.
    """

    step: int
    operation: Operation
    begin: float
    end: float
    channel: int = 0


class EventRecorder:
    """Records the events of one execution on one rank."""

    def __init__(self, device: "torch.device") -> None:
        """Record an execution on ``device``.

        On a GPU, times are taken on the current stream. They can be read only after the rank has posted all its work.
        """
        self._clock = device_clock(device)
        self._messages: dict[tuple[int, int, int], Event] = {}  # by channel, step and position in the step
        self._local: list[Event] = []

    def now(self) -> float:
        return self._clock.now()

    def post(self, transfers: "Iterable[Transfer[torch.Tensor]]") -> None:
        """Store the current time as the time at which these slices are posted."""
        now = self.now()
        for transfer in transfers:
            transfer.posted = now

    def add_message(self, channel: int, transfer: "Transfer[torch.Tensor]") -> None:
        """Record a completed slice. A message's event covers its slices, from the first start to the last end."""
        key = channel, transfer.step, transfer.position
        before = self._messages.get(key)
        begin = transfer.posted if before is None else min(before.begin, transfer.posted)
        self._messages[key] = Event(transfer.step, transfer.operation, begin, self.now(), channel)

    def add_local(self, channel: int, step: int, write: "Write[torch.Tensor]", begin: float) -> None:
        """Record a reduction or copy that lasted from ``begin`` until now."""
        self._local.append(Event(step, write.operation, begin, self.now(), channel))

    def events(self) -> list[Event]:
        """Return messages in program order, then local operations in time order.

        On a GPU, wait for the last event. All messages must have been posted.
        """
        return self._clock.date([self._messages[key] for key in sorted(self._messages)] + self._local)
