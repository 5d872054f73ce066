"""Nothing can happen any more: what holds it up, asked of one rule after the other, from the plainest on."""

from collections.abc import Callable

from virtual.diagnosis.circles import tell_circle
from virtual.diagnosis.endings import tell_early_end, tell_keys, tell_missing_ranks
from virtual.diagnosis.group_making import tell_unlike_groups
from virtual.diagnosis.messages import tell_lost_message, tell_nccl_order, tell_tags
from virtual.diagnosis.places import state_places
from virtual.diagnosis.threads import tell_threads
from virtual.diagnosis.unlike_calls import tell_unlike_calls
from virtual.matching.group import VirtualGroup
from virtual.ranks.finding import ProgramFinding, say_wait
from virtual.ranks.rank import RankJob, State

Rule = Callable[[RankJob], ProgramFinding | None]


def tell_standstill(job: RankJob) -> ProgramFinding:
    """Return why the ranks of a job wait for ever: by the first rule that knows."""
    for rule in RULES:
        finding = rule(job)
        if finding is not None:
            return finding
    waiting = [rank.number for rank in job.ranks if rank.state is not State.DONE]
    title = f"{say_wait(waiting)}, and nothing can happen any more"
    return ProgramFinding("deadlock", title, state_places(job.ranks))


def tell_unlike(job: RankJob) -> ProgramFinding | None:
    """Tell of a collective to which not all have come, and whose calls so far are not alike."""
    groups: list[VirtualGroup] = list(job.groups.values())
    unlike = [one for group in groups for one in group.collectives.values() if one.is_unlike]
    return tell_unlike_calls(min(unlike, key=lambda one: one.key)) if unlike else None


RULES: tuple[Rule, ...] = (
    tell_threads,
    tell_unlike,
    tell_missing_ranks,
    tell_unlike_groups,
    tell_nccl_order,
    tell_tags,
    tell_lost_message,
    tell_circle,
    tell_early_end,
    tell_keys,
)
