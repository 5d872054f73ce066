"""When a device gets to what it is asked to do, in seconds of ``time.perf_counter``.

A CPU is there when it is asked. A GPU does what is queued on a stream later, in the order of the stream; nobody waits
for it, least of all for the whole device, as what another channel does on it may need messages that are not posted yet.
"""

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:  # a launcher that receives events need not import torch
    import torch


class Timed(Protocol):
    """A named tuple of something that lasted."""

    @property
    def begin(self) -> float: ...

    @property
    def end(self) -> float: ...

    def _replace(self, *, begin: float, end: float) -> Any: ...


T = TypeVar("T", bound=Timed)


class DeviceClock(Protocol):
    """A clock that is read by marks, which grow with the time of the device."""

    def now(self) -> float:
        """Return a mark of when the device has done what it was asked before."""

    def has_passed(self, mark: float) -> bool:
        """Return whether the device has got to a mark."""

    def seconds(self, mark: float) -> float:
        """Return when the device got to a mark, in seconds of ``time.perf_counter``; wait for it if need be."""

    def date(self, events: list[T]) -> list[T]:
        """Return events whose times are marks with their times in seconds."""


class HostClock:
    """The clock of a CPU: marks are seconds.

    >>> clock = HostClock()
    >>> mark = clock.now()
    >>> clock.seconds(mark) == mark
    True
    """

    now = staticmethod(perf_counter)

    def has_passed(self, mark: float) -> bool:
        """Return True."""
        return True

    def seconds(self, mark: float) -> float:
        """Return the mark."""
        return mark

    def date(self, events: list[T]) -> list[T]:
        """Return the events."""
        return events


class StreamClock:
    """The clock of a GPU's current stream: a mark is a CUDA event on it, read when it is asked for.

    Times count from when the clock was made, in the resolution of CUDA's events, half a microsecond in the first
    seconds; a clock of a few steps is exact, one of hours is not.
    """

    def __init__(self, device: "torch.device") -> None:
        """Wait until the current stream of ``device`` has got here, and no longer."""
        self._device = device
        self._events: list[torch.cuda.Event] = []
        self._base = self._record()
        self._base.synchronize()
        self._begin = perf_counter()

    def now(self) -> float:
        """Put a mark on the stream; nobody waits."""
        self._events.append(self._record())
        return len(self._events) - 1

    def has_passed(self, mark: float) -> bool:
        """Return whether the stream has got to a mark."""
        return bool(self._events[int(mark)].query())

    def seconds(self, mark: float) -> float:
        """Return when the stream got to a mark; wait for it if need be."""
        event = self._events[int(mark)]
        event.synchronize()
        return self._begin + float(self._base.elapsed_time(event)) / 1e3

    def date(self, events: list[T]) -> list[T]:
        """Return events with their times in seconds; wait for the last of them."""
        return [one._replace(begin=self.seconds(one.begin), end=self.seconds(one.end)) for one in events]

    def _record(self) -> "torch.cuda.Event":
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event


def seconds_of(call: Callable[[], object], device: "torch.device") -> float:
    """Return how long a device takes for what ``call`` asks of it."""
    clock = device_clock(device)
    begin = clock.now()
    call()
    end = clock.now()
    return clock.seconds(end) - clock.seconds(begin)


def device_clock(device: "torch.device") -> DeviceClock:
    """Return the clock of a device: of its current stream if it is a GPU."""
    return StreamClock(device) if device.type == "cuda" else HostClock()
