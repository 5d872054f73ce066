"""The interface through which virtual ranks report failures."""

from typing import Any, Protocol

from virtual.ranks.finding import ProgramFinding
from virtual.ranks.rank import Rank, RankJob


class Diagnoser(Protocol):
    """Diagnoses failures. All methods are called while no rank runs."""

    def hang(self, job: RankJob) -> ProgramFinding:
        """Return the finding for a job in which all ranks wait and nothing can happen any more."""
        ...

    def mismatched_calls(self, collective: Any) -> ProgramFinding:
        """Return the finding for a ``Collective`` that ranks call with different arguments."""
        ...

    def mismatched_message(self, sender: Any, receiver: Any) -> ProgramFinding:
        """Return the finding for two ``PostedHalf``s of a message whose sizes or types differ."""
        ...

    def exception(self, rank: Rank, error: BaseException) -> ProgramFinding:
        """Return the finding for an exception that ended a rank."""
        ...
