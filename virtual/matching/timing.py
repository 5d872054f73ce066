"""When what ranks have posted is done: what the matching asks of whoever knows."""

from collections.abc import Callable
from typing import Protocol

from virtual.matching.posted import Collective, PostedCall, PostedHalf
from virtual.ranks.world import NoCalendar, RunCalendar

Act = Callable[[], object]


class CallTiming(RunCalendar, Protocol):
    """Virtual time with collectives and messages in it."""

    def new_key(self) -> int:
        """Return a number for a collective that is nobody else's in this run."""
        ...

    def begin(self, collective: Collective, call: PostedCall) -> None:
        """Begin a rank's part of a collective now; finish each call that is done by that."""
        ...

    def send(self, sender: PostedHalf, receiver: PostedHalf, arrived: Act) -> None:
        """Carry a message from now on, and say when it has arrived."""
        ...


class Untimed(NoCalendar):
    """All is done as soon as all whom it needs have come: a run that is recorded, and timed by its replay."""

    def __init__(self) -> None:
        self._keys = 0

    def new_key(self) -> int:
        """Return the next number."""
        self._keys += 1
        return self._keys

    def begin(self, collective: Collective, call: PostedCall) -> None:
        """Finish all parts when the last rank has come."""
        collective.finish_if_complete()

    def send(self, sender: PostedHalf, receiver: PostedHalf, arrived: Act) -> None:
        """Say that it has arrived."""
        arrived()
