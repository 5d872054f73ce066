"""Find ranks that hang because threads they started are not allowed to communicate."""

import select

from virtual.diagnosis.locations import waiting_locations
from virtual.ranks.finding import FindingPlace, ProgramFinding, say_wait
from virtual.ranks.rank import RankJob

GRACE_S = 1.0  # real time that threads get to reach their communication
ADVICE = (
    "join() the thread before its rank waits for the result, or make its calls in the rank's main thread; on real "
    "ranks this program may run"
)


def find_blocked_threads(job: RankJob) -> ProgramFinding | None:
    """Return a finding for ranks whose threads try to communicate while the rank is not waiting for them."""
    if any(rank.thread_lock.has_others for rank in job.ranks):
        select.select([], [], [], GRACE_S)
    blocked = [(rank, rank.thread_lock.refused) for rank in job.ranks if rank.thread_lock.refused is not None]
    if not blocked:
        return None
    title = (
        f"{say_wait(rank.number for rank, _ in blocked)} for its threads. On virtual ranks, a thread can communicate "
        "only while its rank waits for it, in join() or on a queue or an event"
    )
    threads = tuple(FindingPlace((rank.number,), "blocked in a thread", site) for rank, site in blocked)
    return ProgramFinding("threads", title, waiting_locations(job.ranks) + threads, ADVICE)
