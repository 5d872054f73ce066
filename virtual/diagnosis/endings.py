"""Ranks that ended before others were through, that failed, that never came, or that wait for a key nobody sets."""

import re
from difflib import get_close_matches

from virtual.diagnosis.places import awaited, awaited_post, others_of, state_places, waiting_places
from virtual.matching.posted import Posted
from virtual.ranks.finding import FindingPlace, ProgramFinding, format_ranks, say_wait
from virtual.ranks.rank import Rank, RankJob, State

EVEN = (
    "let all ranks make the same number of calls: have as many batches on each (drop_last=True, or Join), decide to "
    "stop together (all_reduce the flag), and keep return, break and `if rank` away from collectives"
)
UNUSED = "have every parameter take part in the loss, remove those that do not, or give find_unused_parameters=True"
OF_A_GPU = re.compile(r"libcuda|CUDA (driver|error)|NVIDIA driver|CUDA_HOME|cpu tensor")  # of Triton's and the driver's
NO_GPU = (
    "kernels of one's own, in CUDA or Triton, and symmetric memory cannot run on virtual ranks, whose GPUs compute on "
    "the CPU: let the program take torch's operators in their place"
)
OUTSIDE = re.compile(r"Global rank (\d+) is not part of group")  # c10d's, of src and dst
BARRIER_KEY = "barrier_key"  # in what c10d calls the keys at which ranks meet
SHOWN_LINES = 6  # of an exception's text


def tell_early_end(job: RankJob) -> ProgramFinding | None:
    """Tell of ranks that have ended while others wait for them in a collective."""
    by_number = {rank.number: rank for rank in job.ranks}
    for rank in job.ranks:
        post = awaited_post(rank)
        ended = [number for number in (post.awaits if post else ()) if by_number[number].state is State.DONE]
        if post is not None and ended:
            return _tell_ended(job, post, ended)
    return None


def _tell_ended(job: RankJob, post: Posted, ended: list[int]) -> ProgramFinding:
    group = post.group
    counts = sorted({group.counts[group.places[number]] for number in ended})
    after = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    there = [rank for rank in job.ranks if rank.waiting is not None]
    title = (
        f"{format_ranks(ended)} ended after {after} collectives of this group, and others are in number "
        f"{group.counts[group.places[post.rank.number]]}"
    )
    places = waiting_places(there) + _ended_places(job, ended)
    return ProgramFinding("early end", title, places, EVEN, time=group.world.calendar.now)


def _ended_places(job: RankJob, ended: list[int]) -> tuple[FindingPlace, ...]:
    """Return the last calls of ranks that have ended."""
    together: dict[tuple[str, ...], list[int]] = {}
    for rank in job.ranks:
        if rank.number in ended:
            last = [f"{did.what} at {did.site}" for did in list(rank.history)[-1:]]
            together.setdefault(tuple(last), []).append(rank.number)
    return tuple(
        FindingPlace(tuple(numbers), "has ended" if len(numbers) == 1 else "have ended", before=last)
        for last, numbers in together.items()
    )


def tell_keys(job: RankJob) -> ProgramFinding | None:
    """Tell of a rank that waits for a key of the store that nobody sets."""
    waiting = [rank for rank in job.ranks if rank.waiting is not None and isinstance(rank.waiting.of, tuple)]
    if not waiting:
        return None
    keys = [str(key) for rank in waiting if rank.waiting is not None for key in rank.waiting.of]
    there = [key for store in job.stores.values() for key in store if BARRIER_KEY not in key]
    close = get_close_matches(keys[0], there, n=1)
    advice = (
        f"was {close[0]!r} meant, which is there?" if close else "set it on some rank before the others wait for it"
    )
    title = f"{say_wait(rank.number for rank in waiting)} for the key {keys[0]!r}, which nobody sets"
    others = [rank for rank in job.ranks if rank not in waiting]
    return ProgramFinding("store key", title, waiting_places(waiting) + state_places(others), advice)


def tell_missing_ranks(job: RankJob) -> ProgramFinding | None:
    """Tell of a world that is larger than the number of ranks that there are."""
    there = {rank.number for rank in job.ranks}
    waiting = [rank for rank in job.ranks if not there.issuperset(awaited(rank))]
    if not waiting:
        return None
    size = max(rank.world_size for rank in waiting)
    title = f"the world is of {size} ranks, and {len(job.ranks)} were started"
    advice = f"start {size} processes, or give world_size={len(job.ranks)}; real ranks wait in init_process_group"
    return ProgramFinding("missing ranks", title, waiting_places(waiting), advice)


def tell_exception(rank: Rank, error: BaseException) -> ProgramFinding:
    """Tell of an exception that ended a rank, and where the others were."""
    said = str(error).strip().splitlines()[:SHOWN_LINES]
    words = "\n      ".join([f"raised {type(error).__name__}" + (f": {said[0]}" if said else ""), *said[1:]])
    place = FindingPlace((rank.number,), words, rank.ended_at)
    others = state_places(others_of(rank.job, [rank.number]))
    if "finished reduction in the prior iteration" in str(error):
        title = f"DDP of rank {rank.number} waits for gradients of parameters that took no part in the loss"
        return ProgramFinding("unused parameters", title + _which_parameters(str(error)), (place, *others), UNUSED)
    title = f"{format_ranks([rank.number])} raised {type(error).__name__}"
    advice = _after_exception(error) if len(rank.job.ranks) > 1 else ""
    return ProgramFinding("exception", title, (place, *others), advice)


def _after_exception(error: BaseException) -> str:
    if "cannot run on virtual ranks" in str(error):
        return ""
    if OF_A_GPU.search(str(error)):
        return NO_GPU
    if outside := OUTSIDE.search(str(error)):
        place = outside[1]
        return (
            f"src, dst and peers are ranks of the world, also in a group: give dist.get_global_rank(group, {place}), "
            f"or group_src={place} or group_dst={place}, if the group's own rank {place} is meant"
        )
    if isinstance(error, FileNotFoundError):
        return "if another rank is to write the file, put a barrier between writing and reading"
    if isinstance(error, NotImplementedError) and not str(error):
        return "write what is still to be done in this line"
    return "on real ranks the others would wait for it until the group's timeout"


def _which_parameters(text: str) -> str:
    found = re.search(r"did not receive grad for rank \d+: ([^\n]+)", text)
    return f": {found[1].strip().rstrip('.')}" if found else ""
