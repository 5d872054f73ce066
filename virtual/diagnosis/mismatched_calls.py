"""Explain a collective whose calls differ between ranks: operation, order, shape, dtype, reduction or root."""

from collections.abc import Callable
from typing import Any, NamedTuple

from virtual.diagnosis.extra_calls import SAME_CALLS, find_extra_call, own_lines
from virtual.diagnosis.locations import all_locations, calls_before, describe
from virtual.matching.posted import Collective, Likeness, PostedCall
from virtual.ranks.finding import FindingPlace, ProgramFinding, format_ranks
from virtual.ranks.sites import CallSite


class Trait(NamedTuple):
    """A property of a call that must be equal on all ranks."""

    kind: str
    title: str
    advice: str
    of: Callable[[Likeness], Any]


ORDER = (
    "call the same collectives in the same order on all ranks; look for `if rank == ...`, for loops of different "
    "lengths, and for conditions that differ between ranks"
)
TRAITS = (
    Trait("collective mismatch", "ranks call different operations", ORDER, lambda like: like.verb),
    Trait(
        "root",
        "ranks pass different roots",
        "pass the same global rank as src or dst on all ranks",
        lambda like: like.root,
    ),
    Trait("operator", "ranks use different reduction operators", "pass the same op on all ranks", lambda like: like.op),
    Trait(
        "dtype",
        "ranks pass tensors of different dtypes",
        "convert to a common dtype first; was one of the tensors created under autocast?",
        lambda like: like.dtype,
    ),
    Trait(
        "shape",
        "ranks pass tensors of different sizes",
        "is the last batch smaller (drop_last=True), or does the size depend on the rank? Gather the sizes first "
        "and pad to the largest",
        lambda like: like.lengths,
    ),
)
SPLITS = Trait(
    "shape",
    "ranks send more or less than their peers expect to receive",
    "output_split_sizes must match the input_split_sizes of the other ranks; exchange the sizes first",
    lambda like: like,
)
DIFFERENT_ORDER = Trait("order", "ranks are at different lines", ORDER, lambda like: like)


def report_collective_mismatch(collective: Collective) -> ProgramFinding:
    """Return a finding that names the first difference and the line of each rank."""
    calls = list(collective.calls.values())
    trait = _first_mismatch(calls)
    group = collective.group
    name = "" if len(group.ranks) == len(group.job.ranks) else f" of the group of {format_ranks(group.ranks)}"
    title, advice = f"{trait.title} in collective {collective.number + 1}{name}", trait.advice
    extra = find_extra_call(group) if trait.kind in ("collective mismatch", "order") else None
    if extra is not None:
        title, advice = f"{title}: {extra.text}", SAME_CALLS
        if extra.number < collective.number:
            title += f", which is collective {extra.number + 1}"
    locations = _call_locations(calls)
    missing = [rank for rank in group.job.ranks if rank.number in collective.missing]
    return ProgramFinding(trait.kind, title, locations + all_locations(missing), advice, time=group.world.calendar.now)


def _first_mismatch(calls: list[PostedCall]) -> Trait:
    """Return the first property that differs, or the order of calls as its likely cause if the lines differ too."""
    trait = next(
        (candidate for candidate in TRAITS if len({candidate.of(call.likeness) for call in calls}) > 1), SPLITS
    )
    lines = {call.callers for call in calls}
    return DIFFERENT_ORDER if trait.kind in ("dtype", "shape", "operator") and len(lines) > 1 else trait


def _call_locations(calls: list[PostedCall]) -> tuple[FindingPlace, ...]:
    lines = own_lines(calls)
    together: dict[tuple[str, CallSite], list[PostedCall]] = {}
    for call in calls:
        together.setdefault((call.what, lines[call]), []).append(call)
    return tuple(
        FindingPlace(
            tuple(sorted(call.rank.number for call in members)),
            describe(members[0]),
            site,
            before=calls_before(members[0].rank, members[0].site),
        )
        for (_, site), members in together.items()
    )
