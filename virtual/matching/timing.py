"""Finish operations at once, as in a recorded run. ``virtual.timing.live`` simulates their times instead."""

from virtual.matching.posted import Collective, Posted
from virtual.ranks.world import Act, RunCalendar


class CallTiming(RunCalendar):
    """Finishes an operation as soon as all its ranks have arrived. A replay of the recording determines the times."""

    def __init__(self) -> None:
        self._keys = 0

    def new_key(self) -> int:
        """Return a number that identifies a collective of this run."""
        self._keys += 1
        return self._keys

    def begin(self, collective: Collective, call: Posted) -> None:
        """Begin a rank's part of a collective now, and finish the collective if it is complete."""
        collective.finish_if_complete()

    def send(self, sender: Posted, receiver: Posted, arrived: Act) -> None:
        """Deliver a message at once by calling ``arrived``."""
        arrived()
