"""Who finds the words for a mistake of the program."""

from typing import Any, Protocol

from virtual.ranks.finding import ProgramFinding
from virtual.ranks.rank import Rank, RankJob


class Judge(Protocol):
    """Who tells what is wrong. All of it is asked while no rank runs."""

    def standstill(self, job: RankJob) -> ProgramFinding:
        """Return what to say of a job whose ranks wait, and nothing can happen any more."""
        ...

    def unlike_calls(self, collective: Any) -> ProgramFinding:
        """Return what to say of a ``Collective`` whose calls are not alike on all ranks that have come."""
        ...

    def unlike_halves(self, sender: Any, receiver: Any) -> ProgramFinding:
        """Return what to say of a message's two ``PostedHalf``s of different sizes or types."""
        ...

    def raised(self, rank: Rank, error: BaseException) -> ProgramFinding:
        """Return what to say of an exception that ended a rank."""
        ...
