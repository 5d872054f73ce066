"""Published trainings on meshes, predicted by the closed forms of `ringlab search`: tables, picture and JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import viz
from benchmarks.accuracy.meshes import ChoiceErrors, MeshAccuracy, StepErrors, judge
from collectives.errors import InputError
from collectives.units import count
from ringlab.shared.answer import Answer
from ringlab.shared.progress import Progress, computing
from ringlab.table import Part, Sentences, Table
from simcomm.mesh_search.runs import SHIPPED, gpu_name, read_table

MOST_ADAPTED = 100


@dataclass(frozen=True, kw_only=True)
class MeshAccuracyAnswer(Answer):
    """How far predictions of runs on meshes are off, and what was asked."""

    kind = "accuracy_meshes"
    leave_one_out: bool
    adapted_to: int
    found: MeshAccuracy
    unseen: tuple[str, ...] = ()  # sources, frameworks and GPUs of which the shipped fit has no run

    def to_dict(self) -> dict[str, Any]:
        """Return errors by source, form and GPU, of memory, failures and choices, as JSON."""
        answer = super().to_dict()
        answer |= {"calibrate": answer.pop("adapted_to"), **answer.pop("found")}
        del answer["points"]
        return answer

    def show(self) -> Iterator[Part]:
        """Yield a table of errors, one of choices, and what memory tells."""
        found = self.found
        rows = [*_rows(found.sources), *_rows({"all": found.all} if found.all else {})]
        rows += _rows({f"{name}, slow mode": one for name, one in found.slow.items()})
        rows += _rows(found.forms) + _rows(found.gpus) + _rows(found.sizes)
        how = "each source left out of the fit" if self.leave_one_out else "by the shipped fit"
        how += f", adapted to {self.adapted_to} rows of each" if self.adapted_to else ""
        sections = [
            ("sources", len(found.sources) + bool(found.all)), ("slow mode", len(found.slow)),
            ("forms", len(found.forms)), ("GPUs", len(found.gpus)), ("devices", len(found.sizes)),
        ]  # fmt: skip
        headings = ["", "of", "runs", "median\n(%)", "9 in 10\n(%)", "signed\n(%)", "within\n80 % (%)"]
        if rows:
            yield Table(
                f"Published trainings on meshes, {how}",
                headings,
                rows,
                words=2,
                sections=[*filter(itemgetter(1), sections)],
            )
        if found.choice:
            headings = [
                "chosen by",
                "jobs",
                "regret\nmedian (%)",
                "mean\n(%)",
                "best of 3\nmedian (%)",
                "mean\n(%)",
                "rank",
            ]
            yield Table("The mesh that is chosen, against the best that was tried", headings, _choices(found.choice))
        yield Sentences([*self._sentences()], wrap=True)

    def _sentences(self) -> Iterator[str]:
        found = self.found
        if self.unseen:
            yield f"The shipped fit has no run of {', '.join(self.unseen)}: these are predicted by priors."
        if found.all or found.slow:
            yield f"The mean of the sources' medians is {found.mean_of_medians:.1%}."
        else:
            yield "No run of the table has a time."
        if found.memory:
            yield f"Memory is off by {found.memory['median']:.1%} in the median of {found.memory['n']:.0f} runs."
        if found.failed:
            told = f"{found.failed['auc']:.3f}, accuracy {found.failed['accuracy']:.1%}"
            yield f"Failed runs are told from finished ones by memory with an AUC of {told}."
        if found.refused:
            reasons = "; ".join(f"{reason} ({number})" for reason, number in found.refused.items())
            yield f"{count(sum(found.refused.values()), 'row')} cannot be expressed: {reasons}."

    def draw(self, path: Path) -> None:
        """Draw predicted against measured seconds of steps."""
        points = self.found.points
        dots = [
            viz.Dots(
                "slow mode" if slow else "steps", source,
                [row[2] for row in points if (row[0], row[3]) == (source, slow)],
                [row[1] for row in points if (row[0], row[3]) == (source, slow)],
            )
            for source, slow in dict.fromkeys((row[0], row[3]) for row in points)
        ]  # fmt: skip
        viz.write_figure(viz.accuracy_figure("Trainings on meshes", "seconds of a step", dots), path)


def mesh_accuracy(
    data: Path | None = None,
    *,
    leave_one_out: bool = False,
    calibrate: int = 0,
    are_chosen: bool = True,
    progress: Progress | None = None,
) -> MeshAccuracyAnswer:
    """Return how far predictions of runs are off: the shipped ones, or those of ``meshes.csv`` in ``data``.

    With ``calibrate`` each source is adapted to so many of its rows: those that tell most, or spread over the source.
    Raises InputError for a table that cannot be read, or has no run with a time.
    """
    if not 0 <= calibrate <= MOST_ADAPTED:
        raise InputError(f"calibrate must be between 0 and {MOST_ADAPTED}, not {calibrate}")
    path = SHIPPED if data is None else data / "meshes.csv" if data.is_dir() else data
    runs, refused = read_table(path)
    with computing(progress, "predicting runs on meshes"):
        found = judge(runs, refused, leave_one_out=leave_one_out, adapt_to=calibrate, are_chosen=are_chosen)
    unseen = () if data is None else tuple(_unseen(runs))
    return MeshAccuracyAnswer(leave_one_out=leave_one_out, adapted_to=calibrate, found=found, unseen=unseen)


def _unseen(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what of runs the shipped ones have not."""
    fitted = read_table()[0]
    for name in ("source", "framework", "gpu"):
        known = {gpu_name(run[name]) for run in fitted}
        yield from (f"{name} {one}" for one in dict.fromkeys(gpu_name(run[name]) for run in runs) if one not in known)


def _rows(errors: Mapping[str, StepErrors]) -> list[list[str]]:
    return [
        [name, str(row.n), f"{row.median:.1%}"[:-1], f"{row.p90:.1%}"[:-1], f"{row.signed:+.1%}"[:-1],
         f"{row.coverage80:.0%}"[:-1]]
        for name, row in errors.items()
    ]  # fmt: skip


def _choices(choices: Mapping[str, ChoiceErrors]) -> list[list[str]]:
    return [
        [name, str(row.jobs), *(f"{share:.1%}"[:-1] for share in row[1:5]), f"{row.rank:.2f}"]
        for name, row in choices.items()
    ]  # fmt: skip
