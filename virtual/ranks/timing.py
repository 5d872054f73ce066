"""Complete operations without simulating their times. ``virtual.timing.live`` simulates them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virtual.matching.posted import Collective, Posted

Act = Callable[[], object]


class CallTiming:
    """Completes an operation as soon as all its ranks have reached it. A later replay determines the times."""

    has_time = False

    def __init__(self) -> None:
        self._keys = 0

    @property
    def now(self) -> float:
        return 0.0

    def at(self, time: float, act: Act) -> None:
        act()

    def step(self) -> bool:
        return False

    def span(self, rank: int, name: str, begin: float, end: float) -> None:
        """Do nothing. Live timing adds the span to its trace."""

    def new_key(self) -> int:
        self._keys += 1
        return self._keys

    def begin(self, collective: "Collective", call: "Posted") -> None:
        collective.finish_if_complete()

    def send(self, sender: "Posted", receiver: "Posted", arrived: Act) -> None:
        arrived()
