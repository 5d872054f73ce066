"""Findings: errors in a program, with the location of each rank, the ranks that it waits for, and a fix."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from virtual.ranks.sites import CallSite

STARTER = -1  # the program that starts the ranks; it is not a rank itself
MOST_PLACES = 4  # values that differ between ranks and are listed separately
SHOWN_PAIRS = 8  # at most this many waiting pairs are listed


def format_runs(numbers: Iterable[int]) -> str:
    """Return integers as text, such as "0-3, 5": consecutive integers become a range.

    >>> format_runs([0, 1, 2, 5]), format_runs([3]), format_runs([])
    ('0-2, 5', '3', '')
    """
    places = enumerate(sorted(set(numbers)))  # consecutive integers have equal differences to their places
    runs = [[number for _, number in run] for _, run in groupby(places, lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def format_ranks(numbers: Iterable[int]) -> str:
    """Return ranks as text, such as "ranks 0-3, 5".

    >>> format_ranks([0, 1, 2, 5]), format_ranks([3]), format_ranks([STARTER])
    ('ranks 0-2, 5', 'rank 3', 'the program that starts ranks')
    """
    unique_numbers = set(numbers)
    if unique_numbers == {STARTER}:
        return "the program that starts ranks"
    return f"rank{'s' if len(unique_numbers) != 1 else ''} {format_runs(unique_numbers)}"


def say_wait(numbers: Iterable[int]) -> str:
    """Return text such as "rank 3 waits" or "ranks 0-2 wait"."""
    unique_numbers = set(numbers)
    return f"{format_ranks(unique_numbers)} wait{'s' if len(unique_numbers) == 1 else ''}"


@dataclass(frozen=True)
class FindingPlace:
    """Ranks with the same operation or state, their line if it is known, and the ranks that each one waits for."""

    ranks: tuple[int, ...]
    what: str
    site: CallSite | None = None
    awaits: tuple[tuple[int, ...], ...] = ()
    before: tuple[str, ...] = ()  # preceding calls, as text

    @property
    def lines(self) -> list[str]:
        at = f"{self.site}  {self.site.text}".rstrip() if self.site is not None else ""
        lines = [f"  {format_ranks(self.ranks)}{f' at {at}' if at else ''}"]
        description = "; ".join(part for part in (self.what, self._waiting_in_words()) if part)
        lines += [f"      {description}"] if description else []
        if self.before:
            lines.append("      previous calls: " + "; ".join(self.before))
        return lines

    def to_dict(self) -> dict[str, Any]:
        awaits = {str(rank): list(others) for rank, others in zip(self.ranks, self.awaits, strict=False)}
        site = self.site
        where = {"file": site.file, "line": site.line, "text": site.text} if site is not None else {}
        return {"ranks": list(self.ranks), "what": self.what, **where, "awaits": awaits, "before": list(self.before)}

    def _waiting_in_words(self) -> str:
        if not any(self.awaits):
            return ""
        if len(set(self.awaits)) == 1:
            return f"waits for {format_ranks(self.awaits[0])}"
        pairs = [
            f"{rank} for {format_runs(others) or 'any rank'}"
            for rank, others in zip(self.ranks, self.awaits, strict=True)
        ]
        return "waiting: " + ", ".join(pairs[:SHOWN_PAIRS]) + ", ..." * (len(pairs) > SHOWN_PAIRS)


def group_places(entries: Iterable[tuple[int, str, CallSite | None]]) -> tuple[FindingPlace, ...]:
    """Group ranks by text and line. More than ``MOST_PLACES`` texts at the same line become one place."""
    together: dict[tuple[str, CallSite | None], list[int]] = {}
    for number, text, site in entries:
        together.setdefault((text, site), []).append(number)
    if len(together) > MOST_PLACES and len({site for _, site in together}) == 1:
        pairs = [(text, numbers[0]) for (text, _), numbers in together.items()]
        quoted = ", ".join(f"{text} on rank {number}" for text, number in pairs[:2])
        everyone = sorted(number for numbers in together.values() for number in numbers)
        return (FindingPlace(tuple(everyone), f"{quoted}; {len(together)} values in total", next(iter(together))[1]),)
    places = [FindingPlace(tuple(sorted(numbers)), text, site) for (text, site), numbers in together.items()]
    return tuple(sorted(places, key=lambda place: place.ranks))


@dataclass(frozen=True)
class ProgramFinding:
    """An error in the program. Each rank in ``circle`` waits for the next one, and the last for the first."""

    kind: str  # such as "deadlock", "collective mismatch" or "shape"; docs/reference/checks.md lists all kinds
    title: str  # a sentence
    places: tuple[FindingPlace, ...] = ()
    advice: str = ""  # what to change
    circle: tuple[int, ...] = field(default=())
    time: float = 0.0  # virtual time in seconds

    @property
    def text(self) -> str:
        when = f" (at {self.time * 1e3:.3f} ms virtual time)" if self.time else ""
        lines = [f"{self.kind}: {self.title}{when}"]
        lines += [line for place in self.places for line in place.lines]
        if self.circle:
            lines.append("  cycle: " + " -> ".join(map(str, [*self.circle, self.circle[0]])))
        if self.advice:
            lines.append(f"  fix: {self.advice}")
        return "\n".join(lines)

    @property
    def where(self) -> tuple[tuple[int, CallSite], ...]:
        return tuple((rank, place.site) for place in self.places if place.site for rank in place.ranks)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({rank for place in self.places for rank in place.ranks}))

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "title": self.title,
            "ranks": format_runs(self.ranks),
            "places": [place.to_dict() for place in self.places],
            "advice": self.advice,
            "circle": list(self.circle),
            "time": self.time,
            "text": self.text,
        }
