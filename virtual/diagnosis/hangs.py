"""Diagnose a hang by trying one rule after another, from the most specific to the most general."""

from collections.abc import Callable

from virtual.diagnosis.exits import find_early_exit, find_missing_key, find_missing_ranks
from virtual.diagnosis.group_creation import find_mismatched_groups
from virtual.diagnosis.locations import all_locations
from virtual.diagnosis.mismatched_calls import report_collective_mismatch
from virtual.diagnosis.threads import find_blocked_threads
from virtual.diagnosis.unmatched_messages import find_nccl_queue_block, find_tag_mismatch, find_unmatched_message
from virtual.diagnosis.wait_cycles import find_wait_cycle
from virtual.matching.group import VirtualGroup
from virtual.ranks.finding import ProgramFinding, say_wait
from virtual.ranks.rank import RankJob, State

Rule = Callable[[RankJob], ProgramFinding | None]


def diagnose_hang(job: RankJob) -> ProgramFinding:
    """Return why the job hangs, according to the first rule that applies."""
    for rule in RULES:
        finding = rule(job)
        if finding is not None:
            return finding
    waiting = [rank.number for rank in job.ranks if rank.state is not State.DONE]
    title = f"{say_wait(waiting)}, and no rank can continue"
    return ProgramFinding("deadlock", title, all_locations(job.ranks))


def find_collective_mismatch(job: RankJob) -> ProgramFinding | None:
    """Return a finding for an incomplete collective whose calls so far do not match."""
    groups: list[VirtualGroup] = list(job.groups.values())
    mismatched = [collective for group in groups for collective in group.collectives.values() if collective.is_unlike]
    return report_collective_mismatch(min(mismatched, key=lambda one: one.key)) if mismatched else None


RULES: tuple[Rule, ...] = (
    find_blocked_threads,
    find_collective_mismatch,
    find_missing_ranks,
    find_mismatched_groups,
    find_nccl_queue_block,
    find_tag_mismatch,
    find_unmatched_message,
    find_wait_cycle,
    find_early_exit,
    find_missing_key,
)
