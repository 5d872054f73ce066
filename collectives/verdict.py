"""Prove that an algorithm is correct at many world sizes, and compare its costs with the lower bounds."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

from collectives.costs.bounds import least_sent_share, least_steps
from collectives.declaration import Algorithm
from collectives.errors import InputError, TooLarge, Undefined
from collectives.proof.roots import root_classes
from collectives.proof.verifier import ProofReport, is_bitwise_identical, verify

ORDERS_COMPARED = range(2, 10)  # world sizes at which the reduction orders of a shipped algorithm are compared


@dataclass(frozen=True)
class Costs:
    """The costs of an algorithm at one world size, and the lower bounds for any algorithm of the same collective."""

    world_size: int
    steps: int
    least_steps: int
    steps_ratio: float | None  # steps divided by least_steps; None if least_steps is 0
    ports: int
    messages: int
    sent_share: float  # buffers sent by the busiest rank
    least_sent_share: float
    sent_ratio: float | None
    bitwise_identical: bool  # all ranks reduce in the same order


@dataclass(frozen=True)
class Verdict:
    """The result of ``prove``: a report for each world size that was proved, and the first failure."""

    algorithm: Algorithm
    reports: tuple[ProofReport, ...]
    problem: str | None
    counter_example: dict[str, int] | None  # the smallest world_size and root that fail; rank and step if known
    undefined: dict[int, str]  # world sizes for which the algorithm is not defined, and why
    too_large: dict[int, str]  # world sizes that would take too much memory, and why
    interrupted: bool = False  # larger world sizes were not verified

    @property
    def costs(self) -> list[Costs]:
        return [_costs(self.algorithm, report) for report in self.reports]

    @property
    def wasteful_from(self) -> int | None:
        """The smallest world size at which the busiest rank sends at least twice the lower bound, or None.

        It is always None for barriers.
        """
        wasteful = (cost.world_size for cost in self.costs if (cost.sent_ratio or 0.0) >= 2)
        return None if self.algorithm.spec.repeats else next(wasteful, None)

    @property
    def differs_at(self) -> list[int]:
        """The world sizes at which ranks reduce in different orders, so that their float results can differ."""
        return [report.world_size for report in self.reports if not report.bitwise_identical]

    @property
    def harmless_mistake(self) -> str | None:
        """A mistake that does not affect the result, at the smallest world size that has one. None if there is none."""
        return next((report.harmless_mistake for report in self.reports if report.harmless_mistake), None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm.full_name,
            "correct": bool(self.reports) and self.problem is None and not self.interrupted,
            "problem": self.problem,
            "counter_example": self.counter_example,
            "harmless_mistake": self.harmless_mistake,
            "undefined": sorted(self.undefined),
            "too_large": sorted(self.too_large),
            "world_sizes": [asdict(costs) for costs in self.costs],
        }


def prove(
    algorithm: Algorithm, world_sizes: Iterable[int], on_proved: Callable[[int], None] = lambda done: None
) -> Verdict:
    """Prove an algorithm at each world size and for each root, from the smallest world size to the first failure.

    ``on_proved`` is called after each world size with the sum of the world sizes so far. A world size that takes too
    much memory is skipped. An interrupt ends the proof. TooLarge and KeyboardInterrupt are raised if no world size was
    proved before.

    If the algorithm fails with one rank, the next world size is also tried, because a failure with several ranks is
    easier to understand. This is not done if the program timed out.
    """
    reports: list[ProofReport] = []
    undefined: dict[int, str] = {}
    too_large: dict[int, str] = {}
    alone: tuple[str, dict[str, int]] | None = None  # problem and counter-example with one rank

    def verdict(problem: str | None = None, counter_example: dict[str, int] | None = None, **more: bool) -> Verdict:
        return Verdict(algorithm, tuple(reports), problem, counter_example, undefined, too_large, **more)

    done = 0
    for world_size in sorted(world_sizes):
        root = 0
        try:
            root_reports: list[ProofReport] = []
            for root, *_ in root_classes(algorithm, world_size):
                try:
                    root_reports.append(verify(algorithm, world_size, root))
                except Undefined as why:
                    undefined[world_size] = str(why)
        except TooLarge as why:
            if not reports:
                raise
            too_large[world_size] = str(why)
        except KeyboardInterrupt:
            if not reports:
                raise
            return verdict(interrupted=True)
        except InputError as problem:
            failure = str(problem), _counter_example(problem, world_size, root)
            if world_size > 1 or getattr(problem.__cause__, "is_timeout", False):
                return verdict(*failure)
            alone = failure
        if alone is not None and world_size > 1:
            break
        if root_reports and world_size not in undefined | too_large:
            reports.append(max(root_reports, key=lambda report: (report.sent_share, report.steps)))
        done += world_size
        on_proved(done)
    if alone is not None:
        hint = "".join(f"; it is correct with {report.world_size} ranks" for report in root_reports[:1])
        return verdict(alone[0] + hint, alone[1])
    return verdict()


def differs_from(algorithm: Algorithm) -> int | None:
    """Return the smallest world size, from 2 to 9, at which ranks reduce in different orders. None if there is none."""
    shared = ORDERS_COMPARED if algorithm.spec.is_shared else ()
    return next((p for p in shared if not is_bitwise_identical(algorithm, p)), None)


def _costs(algorithm: Algorithm, report: ProofReport) -> Costs:
    steps = least_steps(report.world_size, max(1, report.ports))
    sent = least_sent_share(algorithm.spec.name, report.world_size)
    proved = {field.name: getattr(report, field.name) for field in fields(Costs) if hasattr(report, field.name)}
    steps_ratio, sent_ratio = (report.steps / steps if steps else None), (report.sent_share / sent if sent else None)
    return Costs(**proved, least_steps=steps, steps_ratio=steps_ratio, least_sent_share=sent, sent_ratio=sent_ratio)


def _counter_example(problem: InputError, world_size: int, root: int) -> dict[str, int]:
    where = {"rank": getattr(problem, "rank", None), "step": getattr(problem, "step", None)}
    return {"world_size": world_size, "root": root, **{key: at for key, at in where.items() if at is not None}}
