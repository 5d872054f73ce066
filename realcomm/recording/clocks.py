"""The clock of a recorded rank: the host's or, where NCCL carries calls, that of the device's stream of computing."""

import time
from collections.abc import Sequence
from typing import Any

import torch


class HostTimer:
    """Seconds of the host."""

    def now(self) -> Any:
        """Return this moment."""
        return time.perf_counter()

    def seconds(self, moments: Sequence[tuple[Any, Any]]) -> list[float]:
        """Return the seconds between each two moments."""
        return [after - before for before, after in moments]


class StreamTimer(HostTimer):
    """Events of the stream that is current when the clock is made, in which a program computes."""

    def __init__(self) -> None:
        self.stream = torch.cuda.current_stream()

    def now(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record(self.stream)
        return event

    def seconds(self, moments: Sequence[tuple[Any, Any]]) -> list[float]:
        torch.cuda.synchronize()
        return [before.elapsed_time(after) / 1e3 for before, after in moments]
