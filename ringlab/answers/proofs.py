"""Checking algorithms at many world sizes: what is proved, what it costs, or the shortest counter-example."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collectives.catalogue import find_algorithm, library, load_file
from collectives.costs.bounds import least_sent_share, least_steps
from collectives.declaration import Algorithm
from collectives.errors import InputError, Undefined
from collectives.proof.verifier import Report, verify


@dataclass(frozen=True)
class Verdict:
    """What was found of one algorithm: reports by world size, up to the first that fails."""

    algorithm: Algorithm
    reports: list[Report]
    problem: str | None
    counter_example: dict[str, int] | None = None  # the smallest world_size and root that fail; rank and step if known
    undefined: dict[int, str] = field(
        default_factory=dict
    )  # world sizes for which the algorithm does not exist, and why

    @property
    def wasteful_from(self) -> int | None:
        """The least world size at which the busiest rank sends twice what it must or more; tokens do not count."""
        for report in self.reports:
            least = least_sent_share(self.algorithm.spec.name, report.world_size)
            if least and report.sent_share >= 2 * least and not self.algorithm.spec.repeats:
                return report.world_size
        return None

    def as_entry(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "algorithm": self.algorithm.full_name,
            "correct": self.problem is None,
            "problem": self.problem,
            "counter_example": self.counter_example,
            "undefined": sorted(self.undefined),
            "world_sizes": [_figures(self.algorithm, report) for report in self.reports],
        }


def _figures(algorithm: Algorithm, report: Report) -> dict[str, float | int | None]:
    """Of one world size what it takes, the least that any could, and how many times that it is."""
    p = report.world_size
    steps, sent = least_steps(p, max(1, report.ports)), least_sent_share(algorithm.spec.name, p)
    return {
        "world_size": p,
        "steps": report.steps,
        "least_steps": steps,
        "steps_ratio": report.steps / steps if steps else None,
        "ports": report.ports,
        "messages": report.messages,
        "sent_share": report.sent_share,
        "least_sent_share": sent,
        "sent_ratio": report.sent_share / sent if sent else None,
    }


def chosen(reference: str) -> list[Algorithm]:
    """The algorithms that ``FILE.py``, ``FILE.py:NAME``, ``all_reduce/ring`` or ``library``, all of ours, names.

    Raises InputError.
    """
    if reference == "library":
        return list(library().values())
    if reference.endswith(".py"):
        return load_file(Path(reference))
    return [find_algorithm(reference)]


def roots(algorithm: Algorithm, world_size: int) -> list[int]:
    """The roots to try: every one up to nine ranks, beyond that the first two, the middle one and the last."""
    if not algorithm.spec.rooted:
        return [0]
    return list(range(world_size)) if world_size <= EVERY_ROOT_UP_TO else [0, 1, world_size // 2, world_size - 1]


def check(algorithm: Algorithm, world_sizes: Iterable[int]) -> Verdict:
    """Prove the algorithm at each world size, for several roots where it has one; stop at the first failure."""
    reports: list[Report] = []
    undefined: dict[int, str] = {}
    for world_size in sorted(world_sizes):
        found: list[Report] = []
        for root in roots(algorithm, world_size):
            try:
                found.append(verify(algorithm, world_size, root))
            except Undefined as why:
                undefined[world_size] = str(why)
                break
            except InputError as problem:
                example = _example(problem, world_size, root)
                return Verdict(algorithm, reports, str(problem), example, undefined)
        if found:
            reports.append(max(found, key=lambda report: (report.sent_share, report.steps)))
    nowhere = None if reports or not undefined else next(iter(undefined.values()))
    return Verdict(algorithm, reports, nowhere, None, undefined)


def _example(problem: InputError, world_size: int, root: int) -> dict[str, int]:
    where = {"rank": getattr(problem, "rank", None), "step": getattr(problem, "step", None)}
    return {"world_size": world_size, "root": root, **{key: at for key, at in where.items() if at is not None}}


def parse_world_sizes(text: str) -> list[int]:
    """``"1-8,16"`` as numbers, in rising order. Raises InputError."""
    return parse_numbers(text, "--world-sizes", MOST_RANKS)


def parse_numbers(text: str, option: str, most: int) -> list[int]:
    """Numbers of ranks from 1 to ``most``, as ``"1-8,16"``, in rising order. Raises InputError."""
    sizes: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise InputError(f"{option} {text!r}: {part!r} is neither a number nor a range like 1-8")
        if dash and int(last) < int(first):
            raise InputError(f"{option} {text!r}: {part.strip()} runs backwards; write {last}-{first}")
        if int(last if dash else first) > most:
            raise InputError(f"{option} {text!r}: world sizes from 1 to {most} are accepted")
        sizes.update(range(int(first), int(last if dash else first) + 1))
    if not sizes or min(sizes) < 1:
        raise InputError(f"{option} {text!r}: world sizes from 1 to {most} are accepted")
    return sorted(sizes)


EVERY_ROOT_UP_TO = 9  # ranks
MOST_RANKS = 256  # a symbolic run of the ring takes p squared steps
