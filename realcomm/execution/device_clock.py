"""Time work on a device, in seconds of ``time.perf_counter``.

A CPU executes work at once. A GPU executes queued work later, in stream order. These clocks never synchronize the whole
device, because other streams may wait for messages that this rank has not posted yet.
"""

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # a launcher that receives events need not import torch
    import torch

T = TypeVar("T")  # a record with a ``begin`` and an ``end``


class HostClock:
    """The clock of a CPU. ``now`` returns a mark, which on a CPU is a time in seconds.

    >>> clock = HostClock()
    >>> mark = clock.now()
    >>> clock.seconds(mark) == mark
    True
    """

    def now(self) -> float:
        """Return a mark for the instant at which the device has finished all work queued so far."""
        return perf_counter()

    def has_passed(self, mark: float) -> bool:
        """Return whether the device has reached a mark."""
        return True

    def seconds(self, mark: float) -> float:
        """Wait until the device reaches a mark. Return that time in seconds of ``time.perf_counter``."""
        return mark

    def date(self, events: list[T]) -> list[T]:
        """Wait for the last event. Return the events with ``begin`` and ``end`` converted from marks to seconds."""
        return events


class StreamClock(HostClock):
    """The clock of a GPU's current stream. A mark is the index of a CUDA event.

    Times have a resolution of half a microsecond in the first seconds. The resolution becomes coarser over time, so use
    a new clock every few seconds.
    """

    def __init__(self, device: "torch.device") -> None:
        """Wait until the current stream of ``device`` is idle."""
        self._device = device
        self._events: list[torch.cuda.Event] = []
        self._base = self._record()
        self._base.synchronize()
        self._begin = perf_counter()

    def now(self) -> float:
        self._events.append(self._record())
        return len(self._events) - 1

    def has_passed(self, mark: float) -> bool:
        return bool(self._events[int(mark)].query())

    def seconds(self, mark: float) -> float:
        event = self._events[int(mark)]
        event.synchronize()
        return self._begin + float(self._base.elapsed_time(event)) / 1e3

    def date(self, events: list[T]) -> list[T]:
        marked: list[Any] = events
        return [event._replace(begin=self.seconds(event.begin), end=self.seconds(event.end)) for event in marked]

    def _record(self) -> "torch.cuda.Event":
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event


def seconds_of(call: Callable[[], object], device: "torch.device") -> float:
    """Return the device time of ``call`` in seconds."""
    clock = device_clock(device)
    begin = clock.now()
    call()
    end = clock.now()
    return clock.seconds(end) - clock.seconds(begin)


def device_clock(device: "torch.device") -> HostClock:
    """Return the clock of a device: the host's clock for a CPU, and the current stream's clock for a GPU."""
    return StreamClock(device) if device.type == "cuda" else HostClock()
