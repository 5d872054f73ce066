"""Groups that not all ranks made, or not with the same lists in the same order."""

from virtual.ranks.finding import FindingPlace, ProgramFinding, format_ranks
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import CallSite

ALL_MAKE = "call new_group for every group on all ranks of the world, also on those that are not in it"
ALL_ALIKE = "make all groups on all ranks, with the same lists in the same order, and keep the one that a rank is in"


def tell_unlike_groups(job: RankJob) -> ProgramFinding | None:
    """Tell of the first group that ranks made with other lists."""
    shortest = min((len(rank.made_groups) for rank in job.ranks), default=0)
    for at in range(shortest):
        if len({frozenset(rank.made_groups[at][0]) for rank in job.ranks}) > 1:
            places, own = _places(job.ranks, at)
            title = "each rank made only the group that it is in" if own else "ranks made their groups in another order"
            return ProgramFinding("new_group", title, places, ALL_ALIKE)
    return None


def tell_missing_groups(job: RankJob) -> ProgramFinding | None:
    """Tell of a group that only some ranks made, when all have ended."""
    counts = {rank.number: len(rank.made_groups) for rank in job.ranks}
    fewest = min(counts.values(), default=0)
    late = [number for number, count in counts.items() if count == fewest]
    if len(late) == len(counts):
        return None
    places, _ = _places([rank for rank in job.ranks if rank.number not in late], fewest)
    return ProgramFinding("new_group", f"{format_ranks(late)} did not make this group", places, ALL_MAKE)


def _places(ranks: list[Rank], at: int) -> tuple[tuple[FindingPlace, ...], bool]:
    """Return who made which group at which line, and whether each made one that it is in."""
    together: dict[tuple[tuple[int, ...], CallSite], list[int]] = {}
    for rank in ranks:
        together.setdefault(rank.made_groups[at], []).append(rank.number)
    places = tuple(
        FindingPlace(tuple(numbers), f"made a group of {format_ranks(members)}", site)
        for (members, site), numbers in together.items()
    )
    return places, all(number in members for (members, _), numbers in together.items() for number in numbers)
