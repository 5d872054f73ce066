"""The calendar of a run: what happens when. A run that is only recorded has none: all happens at once."""

from collections.abc import Callable
from typing import Protocol

Act = Callable[[], object]


class RunCalendar(Protocol):
    """What lets things happen in virtual time."""

    has_time: bool  # whether things happen at times, rather than as soon as all whom they need have come

    @property
    def now(self) -> float:
        """Seconds since the start of the run."""
        ...

    def at(self, time: float, act: Act) -> None:
        """Call ``act`` at a time, or now if that has passed."""
        ...

    def step(self) -> bool:
        """Let the next thing happen. Return whether there was one."""
        ...

    def span(self, rank: int, name: str, begin: float, end: float) -> None:
        """Record what a rank did for a while."""
        ...


class NoCalendar:
    """All happens at once: a rank's clock counts its own computing only."""

    has_time = False
    now = 0.0

    def at(self, time: float, act: Act) -> None:
        """Call ``act`` now."""
        act()

    def step(self) -> bool:
        """Return that there is nothing to come."""
        return False

    def span(self, rank: int, name: str, begin: float, end: float) -> None:
        """Record nothing: times are found by the replay."""
