"""``CheckAnswer``: algorithms proved at many world sizes with what they cost, or the smallest counter-example."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from collectives.catalogue import find_algorithm, library, load_file
from collectives.checks import check_text, check_whole_number
from collectives.costs.bounds import least_sent_share, least_steps
from collectives.declaration import Algorithm
from collectives.errors import InputError, TooLarge, Undefined
from collectives.proof.verifier import ProofReport, verify
from ringlab.shared.answer import SCHEMA_VERSION, Record, to_plain
from ringlab.shared.progress import Progress, Tick, computing
from ringlab.shared.ranges import parse_world_sizes

EVERY_ROOT_UP_TO = 9  # ranks


@dataclass(frozen=True)
class Costs(Record):
    """What an algorithm costs at one world size, beside the least that any of its collective could."""

    world_size: int
    steps: int
    least_steps: int
    steps_ratio: float | None  # times the least; None where nothing is needed
    ports: int
    messages: int
    sent_share: float  # buffers sent by the busiest rank
    least_sent_share: float
    sent_ratio: float | None


@dataclass(frozen=True)
class Verdict(Record):
    """What was found of one algorithm: reports by world size, up to the first that fails."""

    algorithm: Algorithm
    reports: tuple[ProofReport, ...]
    problem: str | None
    counter_example: dict[str, int] | None  # the smallest world_size and root that fail; rank and step if known
    undefined: dict[int, str]  # world sizes for which the algorithm does not exist, and why
    interrupted: bool = False  # the larger world sizes were not tried

    @property
    def costs(self) -> list[Costs]:
        """The costs at each world size that was proved."""
        return [_costs(self.algorithm, report) for report in self.reports]

    @property
    def wasteful_from(self) -> int | None:
        """The least world size at which the busiest rank sends twice what it must or more; tokens do not count."""
        for report in self.reports:
            least = least_sent_share(self.algorithm.spec.name, report.world_size)
            if least and report.sent_share >= 2 * least and not self.algorithm.spec.repeats:
                return report.world_size
        return None

    def to_dict(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm.full_name,
            "correct": self.problem is None and not self.interrupted,
            "problem": self.problem,
            "counter_example": self.counter_example,
            "undefined": sorted(self.undefined),
            "world_sizes": to_plain(self.costs),
        }


@dataclass(frozen=True)
class CheckAnswer(Record):
    """What ``check`` found, for each algorithm."""

    verdicts: tuple[Verdict, ...]
    interrupted: bool = False  # algorithms or world sizes are missing then

    @property
    def is_correct(self) -> bool:
        """Whether all of them are proved."""
        return not any(verdict.problem for verdict in self.verdicts)

    def __repr__(self) -> str:
        wrong = sum(verdict.problem is not None for verdict in self.verdicts)
        return f"<CheckAnswer: {len(self.verdicts) - wrong} proved, {wrong} wrong{', interrupted' * self.interrupted}>"

    def to_dict(self) -> dict[str, Any]:
        found = {"schema_version": SCHEMA_VERSION, "kind": "check", "algorithms": to_plain(self.verdicts)}
        return found | ({"interrupted": True} if self.interrupted else {})


def check(
    algorithms: str, world_sizes: str | Iterable[int] = "1-33", *, progress: Progress | None = None
) -> CheckAnswer:
    """Prove algorithms right at each world size, or find what is wrong; an interrupt ends it and keeps what is done.

    ``algorithms`` is ``all_reduce/ring``, ``FILE.py``, ``FILE.py:NAME``, or ``library`` for all of ours;
    ``world_sizes`` whole numbers, or a list of them like ``1-8,16``. Raises InputError for what cannot be found, and
    for world sizes that are none, and KeyboardInterrupt where nothing is done yet.

    >>> check("all_reduce/ring", "1-4")
    <CheckAnswer: 1 proved, 0 wrong>
    """
    sizes = parse_world_sizes(world_sizes) if isinstance(world_sizes, str) else _check_world_sizes(world_sizes)
    verdicts: list[Verdict] = []
    with computing(progress, f"proving {algorithms}") as tick:
        found = find_algorithms(algorithms)
        total = len(found) * sum(sizes)  # larger world sizes take longer
        try:
            for number, algorithm in enumerate(found):
                on_proved = partial(_tell, tick, total, number * sum(sizes), algorithm.full_name)
                on_proved(0)
                verdicts.append(prove(algorithm, sizes, on_proved))
                if verdicts[-1].interrupted:
                    break
        except KeyboardInterrupt:
            if not verdicts:
                raise
            return CheckAnswer(tuple(verdicts), interrupted=True)
    return CheckAnswer(tuple(verdicts), verdicts[-1].interrupted)


def _tell(tick: Tick, total: int, before: int, name: str, done: int) -> None:
    tick(0, before + done, total, f"ranks, {name}")


def _check_world_sizes(world_sizes: object) -> list[int]:
    if not isinstance(world_sizes, Iterable):
        raise InputError(f"world_sizes is {world_sizes!r}; give a list of whole numbers, or a text like '1-8,16'")
    return sorted({check_whole_number("a world size", one, at_least=1) for one in world_sizes})


def find_algorithms(reference: str) -> list[Algorithm]:
    """Return the algorithms that a reference names, as ``check`` reads it. Raises InputError."""
    check_text("algorithms", reference, "all_reduce/ring")
    if reference == "library":
        return list(library().values())
    if reference.endswith(".py"):
        return load_file(Path(reference))
    return [find_algorithm(reference)]


def roots_to_try(algorithm: Algorithm, world_size: int) -> list[int]:
    """Return every root up to nine ranks, beyond that the first two, the middle one and the last."""
    if not algorithm.spec.rooted:
        return [0]
    return list(range(world_size)) if world_size <= EVERY_ROOT_UP_TO else [0, 1, world_size // 2, world_size - 1]


def prove(
    algorithm: Algorithm, world_sizes: Iterable[int], on_proved: Callable[[int], None] = lambda done: None
) -> Verdict:
    """Prove the algorithm at each world size, for several roots where it has one; stop at the first failure.

    ``on_proved`` is called with the sum of the world sizes that are done. An interrupt ends it where some are. Raises
    TooLarge where the first world size has too many chunks; larger ones that have are left out.

    What fails with one rank is told of the next world size if it fails there too, where there is more to see;
    not where it took too long, as it would again.
    """
    reports: list[ProofReport] = []
    undefined: dict[int, str] = {}
    alone: tuple[str, dict[str, int]] | None = None  # problem and counter-example with one rank
    done = 0
    for world_size in sorted(world_sizes):
        found: list[ProofReport] = []
        for root in roots_to_try(algorithm, world_size):
            try:
                found.append(verify(algorithm, world_size, root))
            except (Undefined, TooLarge) as why:
                if isinstance(why, TooLarge) and not reports:
                    raise
                undefined[world_size] = str(why)
                break
            except KeyboardInterrupt:
                if not reports:
                    raise
                return Verdict(algorithm, tuple(reports), None, None, undefined, interrupted=True)
            except InputError as problem:
                failure = str(problem), _counter_example(problem, world_size, root)
                if world_size > 1 or getattr(problem.__cause__, "is_timeout", False):
                    return Verdict(algorithm, tuple(reports), *failure, undefined)
                alone = failure
        if alone is not None and world_size > 1:
            break
        if found:
            reports.append(max(found, key=lambda report: (report.sent_share, report.steps)))
        done += world_size
        on_proved(done)
    if alone is not None:
        hint = "".join(f"; with {report.world_size} ranks it is right" for report in found[:1])
        return Verdict(algorithm, (), alone[0] + hint, alone[1], undefined)
    nowhere = None if reports or not undefined else next(iter(undefined.values()))
    return Verdict(algorithm, tuple(reports), nowhere, None, undefined)


def _costs(algorithm: Algorithm, report: ProofReport) -> Costs:
    steps = least_steps(report.world_size, max(1, report.ports))
    sent = least_sent_share(algorithm.spec.name, report.world_size)
    return Costs(
        world_size=report.world_size,
        steps=report.steps,
        least_steps=steps,
        steps_ratio=report.steps / steps if steps else None,
        ports=report.ports,
        messages=report.messages,
        sent_share=report.sent_share,
        least_sent_share=sent,
        sent_ratio=report.sent_share / sent if sent else None,
    )


def _counter_example(problem: InputError, world_size: int, root: int) -> dict[str, int]:
    where = {"rank": getattr(problem, "rank", None), "step": getattr(problem, "step", None)}
    return {"world_size": world_size, "root": root, **{key: at for key, at in where.items() if at is not None}}
