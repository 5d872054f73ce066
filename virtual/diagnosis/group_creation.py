"""Find process groups that were not created identically on all ranks."""

from virtual.ranks.finding import FindingPlace, ProgramFinding, format_ranks
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import CallSite

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
    locations, _ = _creation_sites([rank for rank in job.ranks if rank.number not in without], fewest)
    return ProgramFinding("new_group", f"{format_ranks(without)} did not create this group", locations, ALL_CREATE)


def _creation_sites(ranks: list[Rank], at: int) -> tuple[tuple[FindingPlace, ...], bool]:
    """Return where each group was created and by which ranks, and whether every rank is a member of its group."""
    together: dict[tuple[tuple[int, ...], CallSite], list[int]] = {}
    for rank in ranks:
        together.setdefault(rank.made_groups[at], []).append(rank.number)
    locations = tuple(
        FindingPlace(tuple(numbers), f"created a group of {format_ranks(members)}", site)
        for (members, site), numbers in together.items()
    )
    return locations, all(number in members for (members, _), numbers in together.items() for number in numbers)
