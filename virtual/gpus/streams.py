"""Events and streams of a rank's device, by the rank's clock."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import torch


class VirtualEvent:
    """An event of a device: it is recorded when the device gets there."""

    now: Callable[[], float]  # when that is, seconds

    def __init__(self, *args: Any, **named: Any) -> None:
        self._time: float | None = None

    def record(self, stream: Any = None) -> None:
        """Take the time."""
        self._time = self.now()

    def elapsed_time(self, other: "VirtualEvent") -> float:
        """Return the milliseconds until another event. Raises RuntimeError for one that was not recorded."""
        if self._time is None or other._time is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (other._time - self._time) * 1e3

    def synchronize(self) -> None:
        """Have the host wait for the device."""
        torch.cuda.synchronize()

    def wait(self, stream: Any = None) -> None:
        """Do nothing: there is one stream."""

    def query(self) -> bool:
        """Return that it has happened."""
        return True


class VirtualStream:
    """A stream of a device: all of a rank are one."""

    device = torch.device("cpu")
    cuda_stream = stream_id = device_index = 0
    device_type = 1
    priority = 0

    def __init__(self, *args: Any, **named: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def wait_stream(self, stream: Any = None) -> None:
        """Do nothing: there is one stream."""

    wait_event = wait_stream

    def synchronize(self) -> None:
        """Have the host wait for the device."""
        torch.cuda.synchronize()

    def is_capturing(self) -> bool:
        """Return that no graph is captured."""
        return False

    def record_event(self, event: VirtualEvent | None = None) -> VirtualEvent:
        """Record an event, a new one unless given."""
        event = event or VirtualEvent()
        event.record()
        return event

    def query(self) -> bool:
        """Return that all is done."""
        return True
