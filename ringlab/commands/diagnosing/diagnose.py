"""``ringlab diagnose``: is it as fast as it should be; if not, what explains it, and what to set or measure next."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer import Argument, Option

import viz
from collectives.costs.bounds import bus_factor
from collectives.units import count
from ringlab.commands.diagnosing.training_found import TrainingFound, find_training
from ringlab.shared.answer import NOT_IN_JSON, Answer, AnswerRecord
from ringlab.shared.clusters import machine_line, parse_keys
from ringlab.shared.options import JsonOpt, with_groups
from ringlab.shared.output import check_outputs, deliver
from ringlab.table import Line, Part, Table, format_ratio
from simcomm.diagnosis.evidence.causes import Cause
from simcomm.diagnosis.evidence.expectation import CLASSES
from simcomm.diagnosis.verdict import Diagnosis, diagnose_files

FilesArg = Annotated[
    list[Path], Argument(metavar="FILE...", help="Logs, tables, topologies, traces; of any known kind.")
]
SystemOpt = Annotated[
    str | None,
    Option("--system", metavar="NAME", help="The machine, where the files do not say it: `ringlab hardware`."),
]
KeysOpt = Annotated[
    list[str] | None, Option("--set", metavar="KEY=VALUE", help="A key of the machine's description, as nic=100.")
]


@dataclass(frozen=True)
class DiagnoseOptions:
    """What the user adds to the files, and where the answer goes."""

    hangs: Annotated[bool, Option("--hangs", help="It stands still: the log just ends.")] = False
    report: Annotated[Path | None, Option(metavar="FILE.html", help="Write a report with pictures.")] = None


@with_groups
def command(
    files: FilesArg,
    *,
    options: DiagnoseOptions,
    system: SystemOpt = None,
    set_keys: KeysOpt = None,
    json_to: JsonOpt = None,
) -> None:
    """Say whether a run is as fast as it should be, from its logs and traces; if not, why, and what to do.

    Exit status 1 where something is wrong.
    """
    if options.report is not None:
        viz.check_file(options.report, "a report")
    check_outputs(json_to, options.report)
    answer = diagnose(files, system=system, keys=set_keys or (), hangs=options.hangs)
    writers = list[Any]()
    if options.report is not None:
        from ringlab.pictures.diagnosis_page import write_diagnosis_page  # a verdict does without what draws

        writers.append(partial(write_diagnosis_page, answer.found, answer, options.report))
    deliver(answer, json_to, *writers)
    if answer.verdict in ("slow", "hang"):
        raise typer.Exit(1)


def given_keys(system: str | None, keys: Sequence[str]) -> dict[str, Any]:
    """Return the keys of a description that a user says by a machine's name and by single keys. Raise InputError."""
    return {**(machine_line(system) if system is not None else {}), **parse_keys(keys)}


@dataclass(frozen=True)
class CauseFound(AnswerRecord):
    """A cause as the answer says it."""

    name: str
    text: str
    evidence: str
    file: str
    line: int
    remedy: str
    gain: float | None

    @classmethod
    def of(cls, cause: Cause) -> "CauseFound":
        """Return what is said of a cause."""
        place = cause.place
        return cls(cause.name, cause.text, cause.evidence, place.file, place.line, cause.remedy, cause.gain)


@dataclass(frozen=True)
class TableFound(AnswerRecord):
    """A collective of a table beside the prediction, by class of sizes: how many times longer, and the interval."""

    file: str
    line: int
    collective: str
    ranks: int
    hosts: int
    sizes: str
    factor: float
    factor_interval: tuple[float, float]
    busbw_GBps: float  # noqa: N815 - as in other answers
    predicted_busbw_GBps: float  # noqa: N815


@dataclass(frozen=True)
class DiagnosisAnswer(Answer):
    """The verdict first, then what explains it, the likeliest first, and what was read and compared."""

    kind: ClassVar[str] = "diagnosis"

    verdict: str
    factor: float | None
    factor_interval: tuple[float, float] | None
    reason: str
    causes: tuple[CauseFound, ...]
    machine: Mapping[str, Any]
    tables: tuple[TableFound, ...]
    training: TrainingFound = field(metadata=NOT_IN_JSON)
    files: tuple[tuple[str, str], ...]
    found: Diagnosis = field(metadata=NOT_IN_JSON)

    def to_dict(self) -> dict[str, Any]:
        found = super().to_dict() | self.training.to_dict()
        found["files"] = [{"file": file, "kind": kind} for file, kind in self.files]
        return found

    def show(self) -> Iterator[Part]:
        """Yield the verdict, the causes with their lines and remedies, and the tables."""
        yield Line(self.found.headline, "bold", wrap=True)
        for number, cause in enumerate(self.causes, start=1):
            gain = (
                f" (without it {cause.gain:.2g} times as fast, by prediction)" if cause.gain and cause.gain > 1 else ""
            )
            yield Line(f"{number}. {cause.text}{gain}", wrap=True)
            where = f"{cause.file}:{cause.line}" if cause.line else cause.file
            shown = f": {cause.evidence}" if cause.evidence and cause.evidence != cause.file else ""
            yield Line(f"   {where}{shown}", "dim", wrap=True)
            yield Line(f"   -> {cause.remedy}", wrap=True)
        yield from self._tables()
        if self.machine:
            said = ", ".join(f"{key} = {value}" for key, value in self.machine.items())
            yield Line(f"The machine: {said}", "dim", wrap=True)
        yield Line("Read: " + "; ".join(f"{file} ({kind})" for file, kind in self.files), "dim", wrap=True)

    def _tables(self) -> Iterator[Part]:
        if self.tables:
            rows = [
                [
                    f"{one.collective}, {count(one.ranks, 'rank')} on {count(one.hosts, 'host')}",
                    one.sizes,
                    format_ratio(one.busbw_GBps),
                    format_ratio(one.predicted_busbw_GBps),
                    format_ratio(one.factor),
                    " to ".join(map(format_ratio, one.factor_interval)),
                ]
                for one in self.tables
            ]
            headings = ["", "sizes", "busbw\n(GB/s)", "should be\n(GB/s)", "times\nlonger", "80 %\ninterval"]
            yield Table("Measured beside what NCCL should need here", headings, rows, words=2)
        yield from self.training.show()


def diagnose(
    files: Sequence[Path | str], *, system: str | None = None, keys: Sequence[str] = (), hangs: bool = False
) -> DiagnosisAnswer:
    """Return what is wrong with a run, from its logs, tables, topologies and traces.

    ``system`` names the machine, and ``keys`` like ``nic=100`` describe it, where the files do not; ``hangs`` says that
    it stands still. Raises InputError for a file that is refused.

    >>> diagnose(["all_reduce.txt", "nccl.log"]).verdict  # doctest: +SKIP
    'slow'
    """
    return make_answer(diagnose_files(files, given_keys(system, keys), hangs=hangs))


def make_answer(found: Diagnosis) -> DiagnosisAnswer:
    """Return the answer that says a diagnosis."""
    factor = found.factor
    return DiagnosisAnswer(
        verdict=found.verdict,
        factor=factor.value if factor else None,
        factor_interval=(factor.low, factor.high) if factor else None,
        reason=found.reason,
        causes=tuple(map(CauseFound.of, found.causes)),
        machine=found.case.machine.line(),
        tables=tuple(_tables(found)),
        training=find_training(found.case),
        files=tuple(found.case.facts.files),
        found=found,
    )


def _tables(found: Diagnosis) -> Iterator[TableFound]:
    """Yield each collective of each table by class of sizes, with the rates at the largest size of the class."""
    for one in found.case.comparisons:
        run, sizes = one.table.run, one.series.nbytes
        factor_of_rate = bus_factor(one.series.collective, run.ranks) / 1e9
        for name, above, most in CLASSES:
            within = [at for at, nbytes in enumerate(sizes.tolist()) if above < nbytes <= most]
            if not within:
                continue
            factor, largest = one.factors()[name], within[-1]
            counted = float(sizes[largest]) * factor_of_rate
            yield TableFound(
                file=one.place.file,
                line=one.place.line,
                collective=one.series.collective,
                ranks=run.ranks,
                hosts=run.hosts,
                sizes=name,
                factor=factor.value,
                factor_interval=(factor.low, factor.high),
                busbw_GBps=counted / float(one.series.seconds[largest]),
                predicted_busbw_GBps=counted / float(one.predicted[largest]),
            )
