"""Dispatch each kind of failure to the module that diagnoses it."""

from virtual.diagnosis.exits import report_exception
from virtual.diagnosis.hangs import diagnose_hang
from virtual.diagnosis.mismatched_calls import report_collective_mismatch
from virtual.diagnosis.unmatched_messages import report_message_mismatch
from virtual.matching.posted import Collective, PostedHalf
from virtual.ranks.finding import ProgramFinding
from virtual.ranks.rank import Rank, RankJob


class ProgramDiagnoser:
    """Diagnoses why a job stopped: the ranks, their lines, what each waits for, and how to fix it."""

    def hang(self, job: RankJob) -> ProgramFinding:
        """Return the finding for a job in which all ranks wait and nothing can happen any more."""
        return diagnose_hang(job)

    def mismatched_calls(self, collective: Collective) -> ProgramFinding:
        """Return the finding for a collective that ranks call with different arguments."""
        return report_collective_mismatch(collective)

    def mismatched_message(self, sender: PostedHalf, receiver: PostedHalf) -> ProgramFinding:
        """Return the finding for a send and a receive whose sizes or types differ."""
        return report_message_mismatch(sender, receiver)

    def exception(self, rank: Rank, error: BaseException) -> ProgramFinding:
        """Return the finding for an exception that ended a rank."""
        return report_exception(rank, error)
