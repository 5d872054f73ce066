"""``ringlab check``: prove algorithms at many world sizes and show their costs, or report the first error."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from collectives.catalogue import find_algorithm, library, load_file
from collectives.checks import check_text, check_whole_number
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.verdict import Costs, Verdict, prove
from ringlab.shared.answer import Answer
from ringlab.shared.options import JsonOpt
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import Progress, TerminalProgress, computing, keeping
from ringlab.shared.ranges import format_world_sizes, parse_world_sizes
from ringlab.table import Line, Part, Row, Table, format_or_dash, format_ratio

FEW = 5  # up to this many algorithms, the costs at each world size are shown
TIMES = "times\nthe least"
HEADINGS = ("steps\n(least)", TIMES, "messages", "buffers sent by\nthe busiest (least)", TIMES)


def command(
    algorithms: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py[:NAME]|COLLECTIVE/NAME|library",
            help="Algorithm to check: a Python file, a built-in name, or `library` for all built-in algorithms.",
        ),
    ],
    ranks: Annotated[str, typer.Option(metavar="LIST", help="World sizes to check, such as 1-8,16.")] = "1-33",
    json_to: JsonOpt = None,
) -> None:
    """Verify an algorithm at many world sizes, and compare its cost with the lower bound.

    Press Ctrl-C to stop and keep the results so far.

    Exit status: 0 if correct, 1 if incorrect, 2 if undefined for all world sizes.
    """
    check_outputs(json_to)
    answer = check(algorithms, ranks, progress=TerminalProgress())
    deliver(answer, json_to)
    if not answer.is_correct:
        raise typer.Exit(1 if answer.wrong else 2)


@dataclass(frozen=True, repr=False)
class CheckAnswer(Answer):
    """The result of ``ringlab check``."""

    kind = "check"

    verdicts: tuple[Verdict, ...]
    interrupted: bool = False

    @property
    def wrong(self) -> int:
        """The number of incorrect algorithms."""
        return sum(verdict.problem is not None for verdict in self.verdicts)

    @property
    def undefined(self) -> int:
        """The number of algorithms that are not defined for any of the world sizes."""
        return sum(verdict.problem is None and not verdict.reports for verdict in self.verdicts)

    @property
    def is_correct(self) -> bool:
        """Whether each algorithm is defined for at least one of the world sizes, and none has an error."""
        return not self.wrong and not self.undefined

    def __repr__(self) -> str:
        right = len(self.verdicts) - self.wrong - self.undefined
        undefined = f", {self.undefined} undefined" if self.undefined else ""
        interrupted = ", interrupted" if self.interrupted else ""
        return f"<CheckAnswer: {right} proved, {self.wrong} wrong{undefined}{interrupted}>"

    def to_dict(self) -> dict[str, Any]:
        content = super().to_dict()
        return {"algorithms" if key == "verdicts" else key: value for key, value in content.items()}

    def show(self) -> Iterator[Part]:
        right = [verdict for verdict in self.verdicts if verdict.problem is None]
        is_short = len(self.verdicts) <= FEW
        if right and not is_short:
            largest = [(verdict.algorithm.full_name, costs) for verdict in right for costs in verdict.costs[-1:]]
            rows = [[name, str(costs.world_size), *_cells(costs)] for name, costs in largest]
            yield Table("Algorithms", ["algorithm", "ranks", *HEADINGS], rows)
        for verdict in self.verdicts:
            if is_short and verdict.reports and verdict.problem is None:
                last = verdict.reports[-1].world_size
                sizes = [(costs.world_size, costs) for costs in verdict.costs]
                shown = [(size, costs) for size, costs in sizes if size < 10 or size % 4 == 0 or size == last]
                rows = [[str(size), *_cells(costs)] for size, costs in shown]
                yield Table(verdict.algorithm.full_name, ["ranks", *HEADINGS], rows, words=0)
            yield from map(Line, _sentences(verdict))
        if self.interrupted and not self.verdicts[-1].interrupted:
            yield "STOPPED  Later algorithms were not checked."


def check(
    algorithms: str | Algorithm, world_sizes: str | Iterable[int] = "1-33", *, progress: Progress | None = None
) -> CheckAnswer:
    """Prove that algorithms are correct at each world size, or report their first errors.

    ``algorithms`` is an Algorithm, ``all_reduce/ring``, ``FILE.py``, ``FILE.py:NAME``, or ``library`` for all built-in
    algorithms. ``world_sizes`` are integers, or a string such as ``1-8,16``. If interrupted, the verdicts so far are
    returned. Raises InputError if an argument is invalid, and KeyboardInterrupt if there is no verdict yet.

    >>> check("all_reduce/ring", "1-4")
    <CheckAnswer: 1 proved, 0 wrong>
    """
    sizes = parse_world_sizes(world_sizes) if isinstance(world_sizes, str) else _check_world_sizes(world_sizes)
    verdicts: list[Verdict] = []
    with computing(progress, f"proving {algorithms}") as tick, keeping(verdicts) as interruption:
        checked = find_algorithms(algorithms)
        total = len(checked) * sum(sizes)  # larger world sizes take longer
        for number, algorithm in enumerate(checked):

            def tell(done: int, before: int = number * sum(sizes), name: str = algorithm.full_name) -> None:
                tick(0, before + done, total, f"ranks, {name}")

            tell(0)
            verdicts.append(prove(algorithm, sizes, tell))
            if verdicts[-1].interrupted:
                break
    return CheckAnswer(tuple(verdicts), interruption.came or verdicts[-1].interrupted)


def find_algorithms(reference: str | Algorithm) -> list[Algorithm]:
    """Return the algorithms that ``reference`` selects, as in ``check``. Raise InputError if it is invalid."""
    if isinstance(reference, Algorithm):
        return [reference]
    check_text("algorithms", reference, "all_reduce/ring")
    if reference == "library":
        return list(library().values())
    if reference.endswith(".py"):
        return load_file(Path(reference))
    return [find_algorithm(reference)]


def _check_world_sizes(world_sizes: object) -> list[int]:
    if not isinstance(world_sizes, Iterable):
        raise InputError(f"world_sizes must be a list of integers or a string like '1-8,16', not {world_sizes!r}")
    return sorted({check_whole_number("a world size", size, at_least=1) for size in world_sizes})


def _cells(costs: Costs) -> Row:
    return [
        f"{costs.steps} ({costs.least_steps})",
        format_or_dash(costs.steps_ratio, format_ratio),
        str(costs.messages),
        f"{costs.sent_share:.3g} ({costs.least_sent_share:.3g})",
        format_or_dash(costs.sent_ratio, format_ratio),
    ]


def _sentences(verdict: Verdict) -> Iterator[str]:
    name = verdict.algorithm.full_name
    if verdict.problem is not None:
        yield f"WRONG  {verdict.problem}"
        return
    sizes = _ranks([report.world_size for report in verdict.reports])
    roots = " and every root" if verdict.algorithm.spec.rooted else ""
    undefined = f" Not defined for {_ranks(sorted(verdict.undefined))}." if verdict.undefined else ""
    if verdict.interrupted:
        yield f"STOPPED  {name}: proved for {sizes}{roots}. Larger world sizes were not checked.{undefined}"
    elif not verdict.reports:
        why = next(iter(verdict.undefined.values()))
        yield f"UNDEFINED  {why}.{undefined}"
    else:
        large = f" {_ranks(sorted(verdict.too_large))} take too much memory." if verdict.too_large else ""
        start = verdict.wasteful_from
        waste = f" From {start} ranks on, its busiest rank sends at least twice the minimum." if start else ""
        yield f"RIGHT  {name}: proved for {sizes}{roots}.{undefined}{large}{waste}"
    if verdict.differs_at:
        yield (
            f"WARNING  {name}: with {_ranks(verdict.differs_at)}, the ranks reduce in different orders. "
            "Sums of floats differ between ranks in their last bits."
        )
    if verdict.harmless_mistake is not None:
        yield f"WARNING  {verdict.harmless_mistake}. No result depends on it."


def _ranks(world_sizes: list[int]) -> str:
    return f"{format_world_sizes(world_sizes)} rank{'s' * (world_sizes != [1])}"
