"""What happened when in one execution: slices of a message become the one message that the program speaks of."""

from time import perf_counter

import torch

from realcomm.execution.memory import Landing, Transfer
from realcomm.measuring.records import Event


class Recording:
    """The events of one rank while it executes a program."""

    def __init__(self, device: torch.device) -> None:
        """A GPU is waited for whenever a time is taken: only then is it true, so a recorded run is slower there."""
        self._device = device
        self._messages: dict[tuple[int, int, int], Event] = {}  # by channel, step and position in the step
        self._local: list[Event] = []

    def now(self) -> float:
        """Seconds of ``time.perf_counter`` when all that was asked for is done."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return perf_counter()

    def message(self, channel: int, transfer: Transfer) -> None:
        """A slice of a message is through; the message lasts from its first slice to its last."""
        key = channel, transfer.step, transfer.position
        before = self._messages.get(key)
        begin = transfer.posted if before is None else min(before.begin, transfer.posted)
        self._messages[key] = Event(transfer.step, transfer.operation, begin, self.now(), channel)

    def local(self, channel: int, step: int, landing: Landing, begin: float) -> None:
        """Something was reduced or copied from ``begin`` until now."""
        self._local.append(Event(step, landing.operation, begin, self.now(), channel))

    def events(self) -> list[Event]:
        """Messages in the order of the program, then local operations in the order of time."""
        return [self._messages[key] for key in sorted(self._messages)] + self._local
