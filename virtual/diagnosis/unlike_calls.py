"""A collective whose calls are not alike on all ranks: other verbs, an other order, shapes, types, operators, roots."""

from collections.abc import Callable
from typing import Any, NamedTuple

from virtual.diagnosis.places import describe, history_before, state_places
from virtual.matching.posted import Collective, Likeness, PostedCall
from virtual.ranks.finding import FindingPlace, ProgramFinding, format_ranks
from virtual.ranks.sites import CallSite


class Trait(NamedTuple):
    """Something that must be the same on all ranks."""

    kind: str
    title: str
    advice: str
    of: Callable[[Likeness], Any]


ORDER = (
    "call the same collectives in the same order on all ranks; is one of these under `if rank == ...`, in a loop that "
    "is shorter on some ranks, or in a branch that each rank takes by itself?"
)
TRAITS = (
    Trait("verb", "not all ranks call the same", ORDER, lambda like: like.verb),
    Trait(
        "root",
        "not all ranks name the same root",
        "give the same rank of the world as src or dst on all ranks",
        lambda like: like.root,
    ),
    Trait(
        "operator", "not all ranks reduce by the same operator", "give the same op on all ranks", lambda like: like.op
    ),
    Trait(
        "dtype",
        "the tensors are not of one type on all ranks",
        "convert to one type before; is one of them in another precision, or made under autocast?",
        lambda like: like.dtype,
    ),
    Trait(
        "shape",
        "the tensors are not of one size on all ranks",
        "a last batch that is smaller (drop_last=True), or a size that depends on the rank? Gather the sizes first and "
        "pad to the longest",
        lambda like: like.lengths,
    ),
)
SPLITS = Trait(
    "shape",
    "what ranks send each other is not what the others have room for",
    "give each rank as output_split_sizes what the others have as input_split_sizes for it: exchange the sizes first",
    lambda like: like,
)
SWAPPED = Trait("order", "not all ranks are at the same line", ORDER, lambda like: like)


def tell_unlike_calls(collective: Collective) -> ProgramFinding:
    """Tell in what the calls of a collective differ, and where each rank makes its own."""
    calls = list(collective.calls.values())
    trait = _first_unlike(calls)
    group = collective.group
    name = "" if len(group.ranks) == len(group.job.ranks) else f" of the group of {format_ranks(group.ranks)}"
    title = f"{trait.title} in collective {collective.number + 1}{name}"
    places = _places(calls)
    missing = [rank for rank in group.job.ranks if rank.number in collective.missing]
    return ProgramFinding(
        trait.kind, title, places + state_places(missing), trait.advice, time=group.world.calendar.now
    )


def _first_unlike(calls: list[PostedCall]) -> Trait:
    """Return the first trait that is not the same for all; where lines differ too, they are in another order."""
    trait = next((one for one in TRAITS if len({one.of(call.likeness) for call in calls}) > 1), SPLITS)
    lines = {call.site for call in calls}
    return SWAPPED if trait.kind in ("dtype", "shape", "operator") and len(lines) > 1 else trait


def _places(calls: list[PostedCall]) -> tuple[FindingPlace, ...]:
    together: dict[tuple[str, CallSite], list[PostedCall]] = {}
    for call in calls:
        together.setdefault((call.what, call.site), []).append(call)
    return tuple(
        FindingPlace(
            tuple(sorted(call.rank.number for call in members)),
            describe(members[0]),
            members[0].site,
            before=history_before(members[0].rank, members[0].site),
        )
        for members in together.values()
    )
