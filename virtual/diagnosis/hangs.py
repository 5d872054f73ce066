"""Diagnose why a job stopped; rules for hangs are tried from the most specific to the most general."""

import select
from collections.abc import Callable

from virtual.diagnosis.exits import find_early_exit, find_missing_key, find_missing_ranks, report_exception
from virtual.diagnosis.locations import all_locations, waiting_locations
from virtual.diagnosis.mismatched_calls import report_collective_mismatch
from virtual.diagnosis.unmatched_messages import (
    find_nccl_queue_block,
    find_tag_mismatch,
    find_unmatched_message,
    report_message_mismatch,
)
from virtual.diagnosis.wait_cycles import find_wait_cycle
from virtual.matching.group import VirtualGroup
from virtual.ranks.finding import FindingPlace, ProgramFinding, format_ranks, group_places, say_wait
from virtual.ranks.rank import Rank, RankJob, State

ALL_CREATE = "call new_group for every group on all ranks, including those that are not members"
ALL_EQUAL = "create all groups on all ranks, with the same members in the same order; keep the one you are a member of"


def find_mismatched_groups(job: RankJob) -> ProgramFinding | None:
    """Return a finding for the first group that ranks created with different members."""
    shortest = min((len(rank.made_groups) for rank in job.ranks), default=0)
    for at in range(shortest):
        if len({frozenset(rank.made_groups[at][0]) for rank in job.ranks}) > 1:
            locations, are_own = _creation_sites(job.ranks, at)
            title = (
                "each rank created only its own group" if are_own else "ranks created their groups in different orders"
            )
            return ProgramFinding("new_group", title, locations, ALL_EQUAL)
    return None


def find_missing_groups(job: RankJob) -> ProgramFinding | None:
    """Return a finding for a group that only some ranks created, once all ranks have exited."""
    counts = {rank.number: len(rank.made_groups) for rank in job.ranks}
    fewest = min(counts.values(), default=0)
    without = [number for number, count in counts.items() if count == fewest]
    if len(without) == len(counts):
        return None
    creators = [rank for rank in job.ranks if rank.number not in without]
    locations, _ = _creation_sites(creators, fewest)
    members = creators[0].made_groups[fewest][0]
    same = format_ranks(rank.number for rank in creators if rank.made_groups[fewest][0] == members)
    title = f"{format_ranks(without)} did not create the group of {format_ranks(members)}, which {same} created"
    return ProgramFinding("new_group", title, locations, ALL_CREATE)


def _creation_sites(ranks: list[Rank], at: int) -> tuple[tuple[FindingPlace, ...], bool]:
    made = [(rank.number, *rank.made_groups[at]) for rank in ranks]
    places = group_places(
        (number, f"created a group of {format_ranks(members)}", site) for number, members, site in made
    )
    return places, all(number in members for number, members, _ in made)


GRACE_S = 1.0  # real time that threads get to reach their communication
ADVICE = (
    "join() the thread before its rank waits for the result, or make its calls in the rank's main thread; with "
    "real processes, this program may work"
)


def find_blocked_threads(job: RankJob) -> ProgramFinding | None:
    """Return a finding for ranks whose threads try to communicate while the rank is not waiting for them."""
    if any(rank.thread_lock.has_others for rank in job.ranks):
        select.select([], [], [], GRACE_S)
    blocked = [(rank, rank.thread_lock.refused) for rank in job.ranks if rank.thread_lock.refused is not None]
    if not blocked:
        return None
    title = (
        f"a thread of {format_ranks(rank.number for rank, _ in blocked)} is blocked. On virtual ranks, a thread can "
        "communicate only while its rank waits for it, in join() or on a queue or an event"
    )
    threads = tuple(FindingPlace((rank.number,), "blocked in a thread", site) for rank, site in blocked)
    return ProgramFinding("threads", title, waiting_locations(job.ranks) + threads, ADVICE)


Rule = Callable[[RankJob], ProgramFinding | None]


def diagnose_hang(job: RankJob) -> ProgramFinding:
    """Return the finding of the first rule that explains why the job hangs."""
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
    collectives = [collective for group in groups for collective in group.collectives.values()]
    mismatched = [collective for collective in collectives if collective.is_mismatched]
    return report_collective_mismatch(min(mismatched, key=lambda collective: collective.key)) if mismatched else None


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


class ProgramDiagnoser:
    """Diagnoses why a job stopped: the ranks, their lines, the ranks that each waits for, and a fix."""

    hang = staticmethod(diagnose_hang)
    mismatched_calls = staticmethod(report_collective_mismatch)
    mismatched_message = staticmethod(report_message_mismatch)
    exception = staticmethod(report_exception)
