"""Number the collectives of each group, and reject new ones after a failure.

The number is part of each message's tag, so messages of different collectives are never confused. After a failure,
messages may still be in flight, and peers may still wait for messages. Therefore the group rejects all later
collectives, as NCCL does after an abort. Invalid arguments raise before a collective gets a number, so the group can
still be used.
"""

from itertools import count
from types import TracebackType

import torch
import torch.distributed as dist

from collectives.errors import describe_error
from realcomm.execution.group_memory import keep_for


class CollectiveSequence:
    """Counts the collectives that this rank has called on one group."""

    def __init__(self) -> None:
        self._numbers, self._failed = count(), ""

    def begin(self, name: str) -> "Collective":
        """Number the next collective and return it. Raise DistBackendError if an earlier collective has failed."""
        self.check(name)
        return Collective(self, name, next(self._numbers))

    def check(self, name: str) -> None:
        """Raise DistBackendError, with ``name`` in its message, if an earlier collective has failed."""
        if self._failed:
            raise dist.DistBackendError(
                f"{name}: the group rejects collectives because {self._failed}; destroy the group and create a new one"
            )

    def fail(self, collective: "Collective", error: BaseException) -> None:
        """Record that ``collective`` failed. The error of all later collectives names the first failure."""
        reason = f"its collective {collective.number}, {collective.name}, failed with {describe_error(error, None)}"
        self._failed = self._failed or reason


class Collective:
    """One collective of a group, as a context manager that can be entered once.

    Within the context, torch's inference mode is on, so that the collective can write to inference tensors on any
    thread.
    """

    def __init__(self, sequence: CollectiveSequence, name: str, number: int) -> None:
        self.name, self.number, self._sequence = name, number, sequence
        self._mode = torch.inference_mode()

    def check(self) -> None:
        """Raise DistBackendError if an earlier collective of the group has failed."""
        self._sequence.check(self.name)

    def __enter__(self) -> "Collective":
        self.check()
        self._mode.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._mode.__exit__(kind, error, traceback)
        if error is not None:
            self._sequence.fail(self, error)


def sequence_of(group: dist.ProcessGroup) -> CollectiveSequence:
    """Return the group's CollectiveSequence, which is created on first use."""
    return keep_for(group, "collectives", CollectiveSequence)
