"""Checking algorithms at many world sizes: what is proved, what it costs, or what is wrong."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectives.catalogue import Algorithm, find_algorithm, load_file
from collectives.cost import least_sent_share, least_steps
from collectives.errors import InputError
from collectives.verify import Report, verify


@dataclass(frozen=True)
class Verdict:
    """What was found of one algorithm: reports by world size, up to the first that fails."""

    algorithm: Algorithm
    reports: list[Report]
    problem: str | None

    @property
    def wasteful_from(self) -> int | None:
        """The least world size at which the busiest rank sends at least twice what it must."""
        for report in self.reports:
            least = least_sent_share(self.algorithm.spec.name, report.world_size)
            if least and report.sent_share >= 2 * least:
                return report.world_size
        return None

    def as_entry(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "algorithm": self.algorithm.full_name,
            "correct": self.problem is None,
            "problem": self.problem,
            "world_sizes": [_figures(self.algorithm, report) for report in self.reports],
        }


def _figures(algorithm: Algorithm, report: Report) -> dict[str, float | int]:
    collective, p = algorithm.spec.name, report.world_size
    return {
        "world_size": p,
        "steps": report.steps,
        "least_steps": least_steps(collective, p),
        "messages": report.messages,
        "sent_share": report.sent_share,
        "least_sent_share": least_sent_share(collective, p),
    }


def chosen(reference: str) -> list[Algorithm]:
    """The algorithms that ``FILE.py``, ``FILE.py:NAME`` or ``all_reduce/ring`` names. Raises InputError."""
    if reference.endswith(".py"):
        return load_file(Path(reference))
    return [find_algorithm(reference)]


def check(algorithm: Algorithm, world_sizes: Iterable[int]) -> Verdict:
    """Prove the algorithm at each world size, for every root where it has one; stop at the first failure."""
    reports: list[Report] = []
    for world_size in world_sizes:
        roots = range(world_size) if algorithm.spec.rooted else (0,)
        try:
            found = [verify(algorithm, world_size, root) for root in roots]
        except InputError as problem:
            return Verdict(algorithm, reports, str(problem))
        reports.append(max(found, key=lambda report: (report.sent_share, report.steps)))
    return Verdict(algorithm, reports, None)


def parse_world_sizes(text: str) -> list[int]:
    """``"1-8,16"`` as numbers, in rising order. Raises InputError."""
    sizes: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise InputError(f"--world-sizes {text!r}: {part!r} is neither a number nor a range like 1-8")
        sizes.update(range(int(first), int(last if dash else first) + 1))
    if not sizes or min(sizes) < 1 or max(sizes) > MOST_RANKS:
        raise InputError(f"--world-sizes {text!r}: world sizes from 1 to {MOST_RANKS} can be checked")
    return sorted(sizes)


MOST_RANKS = 256  # a symbolic run of the ring takes p squared steps
