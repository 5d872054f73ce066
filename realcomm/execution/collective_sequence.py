"""The collectives of a group in the order of the calls: their numbers, and the failure that ends them.

The number of a collective is in the tag of each of its messages, so no rank takes a message of one for that of another.
A collective that fails may leave messages on the way, or peers that wait for its own. Its group then refuses all later
ones, as NCCL's communicator does after an abort. An error in the arguments raises before a collective has a number. It
leaves the group as it was, so that the call can be repeated.
"""

from itertools import count
from types import TracebackType

import torch
import torch.distributed as dist

from collectives.errors import describe_error
from realcomm.execution.group_memory import keep_for


class CollectiveSequence:
    """The collectives that this rank has called on one group."""

    def __init__(self) -> None:
        self._numbers, self._failed = count(), ""

    def begin(self, name: str) -> "Collective":
        """Return the next collective. Raise DistBackendError if an earlier one has failed."""
        self.check(name)
        return Collective(self, name, next(self._numbers))

    def check(self, name: str) -> None:
        """Raise DistBackendError, for a collective called ``name``, if an earlier one has failed."""
        if self._failed:
            raise dist.DistBackendError(
                f"{name}: the group refuses collectives since {self._failed}; destroy the group and create a new one"
            )

    def fail(self, collective: "Collective", error: BaseException) -> None:
        """Refuse all later collectives; the first failure is the reason."""
        reason = f"its collective {collective.number}, {collective.name}, failed with {describe_error(error, None)}"
        self._failed = self._failed or reason


class Collective:
    """One collective of a group. It happens inside this context, once.

    The context is in inference mode, which may write to any tensor: to one made there and to any other. So a thread
    that carries a collective out need not know the mode of the caller.
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
    """Return the collectives of a group, the same each time."""
    return keep_for(group, "collectives", CollectiveSequence)
