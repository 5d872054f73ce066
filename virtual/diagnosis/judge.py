"""Who is asked when a job has stopped: each question goes to those who know the subject."""

from virtual.diagnosis.endings import tell_exception
from virtual.diagnosis.messages import tell_unlike_halves
from virtual.diagnosis.standstill import tell_standstill
from virtual.diagnosis.unlike_calls import tell_unlike_calls
from virtual.matching.posted import Collective, PostedHalf
from virtual.ranks.finding import ProgramFinding
from virtual.ranks.rank import Rank, RankJob


class ProgramJudge:
    """Tells what stopped a job, with the ranks, their lines, what each waits for and what to change."""

    def standstill(self, job: RankJob) -> ProgramFinding:
        """Return what to say of a job whose ranks wait, and nothing can happen any more."""
        return tell_standstill(job)

    def unlike_calls(self, collective: Collective) -> ProgramFinding:
        """Return what to say of a collective whose calls are not alike on all ranks that have come."""
        return tell_unlike_calls(collective)

    def unlike_halves(self, sender: PostedHalf, receiver: PostedHalf) -> ProgramFinding:
        """Return what to say of a message's two halves of different sizes or types."""
        return tell_unlike_halves(sender, receiver)

    def raised(self, rank: Rank, error: BaseException) -> ProgramFinding:
        """Return what to say of an exception that ended a rank."""
        return tell_exception(rank, error)
