"""Ranks that stand still because threads that they have started may not communicate beside them."""

import select

from virtual.diagnosis.places import waiting_places
from virtual.ranks.finding import FindingPlace, ProgramFinding, say_wait
from virtual.ranks.rank import RankJob

GRACE_S = 1.0  # of real time, for threads to come to what they communicate
ADVICE = (
    "join() the thread before its rank waits for what it does, or make its calls in the rank's own thread; on real "
    "ranks this may run"
)


def tell_threads(job: RankJob) -> ProgramFinding | None:
    """Tell of ranks that wait while threads of theirs would communicate, which they may only while joined."""
    if any(rank.thread_lock.has_others for rank in job.ranks):
        select.select([], [], [], GRACE_S)
    kept = [(rank, rank.thread_lock.refused) for rank in job.ranks if rank.thread_lock.refused is not None]
    if not kept:
        return None
    title = (
        f"{say_wait(rank.number for rank, _ in kept)} for what threads are to do, which on virtual ranks communicate "
        "only while their rank waits for them: in join(), or for a queue or an event"
    )
    threads = tuple(FindingPlace((rank.number,), "is to go on in a thread", site) for rank, site in kept)
    return ProgramFinding("threads", title, waiting_places(job.ranks) + threads, ADVICE)
