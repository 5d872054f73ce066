"""``ringlab diagnose``: is it as fast as it should be; if not, what explains it, and what to set or measure next."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any, ClassVar

import typer
from typer import Argument, Option

from collectives.checks import check_sequence, check_text
from collectives.costs.bounds import bus_factor
from collectives.units import count, format_size, format_time
from ringlab.shared.answer import NOT_IN_JSON, Answer, AnswerRecord
from ringlab.shared.clusters import machine_line, parse_keys
from ringlab.shared.options import JsonOpt, ReportOpt
from ringlab.shared.output import check_outputs, deliver
from ringlab.table import MOST_ROWS, Line, Part, Table, format_or_dash, format_ratio, time_unit
from simcomm.diagnosis.evidence.expectation import CLASSES, DiagnosedCase
from simcomm.diagnosis.evidence.facts import ProfiledCall, RunTrace
from simcomm.diagnosis.evidence.profiled_step import ProfiledStep
from simcomm.diagnosis.rules.training import (
    busbw,
    exposed_sync,
    is_training,
    phase_seconds,
    profiled_instances,
    step_parts,
    step_seconds,
)
from simcomm.diagnosis.verdict import Diagnosis, diagnose_files


@dataclass(frozen=True)
class PartFound(AnswerRecord):
    """A phase or a stream of a step: seconds as the middle of the ranks, with the least and the greatest rank."""

    name: str
    time_s: float
    fastest_rank_s: float
    slowest_rank_s: float
    slowest_rank: int

    @classmethod
    def of(cls, name: str, by_rank: Mapping[int, float]) -> "PartFound":
        """Return what is said of a phase or stream from its seconds by rank."""
        slowest = max(by_rank, key=by_rank.__getitem__)
        return cls(name, median(by_rank.values()), min(by_rank.values()), by_rank[slowest], slowest)


@dataclass(frozen=True)
class PathFound(AnswerRecord):
    """What a rank does on the critical path, in seconds of a step."""

    what: str
    rank: int
    time_s: float


@dataclass(frozen=True)
class CallFound(AnswerRecord):
    """A collective of a size: of its calls the middle, on the rank that waits least in each; None: not known."""

    collective: str
    bytes: int
    calls: int
    time_s: float
    predicted_s: float | None
    busbw_GBps: float  # noqa: N815
    predicted_busbw_GBps: float | None  # noqa: N815
    exposed_s: float


@dataclass(frozen=True)
class TrainingFound(AnswerRecord):
    """A training step; seconds, None where no file tells them."""

    steps: tuple[PartFound, ...] = ()
    step_s: float | None = None
    exposed_s: float | None = None
    step_parts: Mapping[str, float] | None = None
    streams: tuple[PartFound, ...] = ()
    critical_path: tuple[PathFound, ...] = ()
    predicted_step_s: float | None = None
    predicted_step_interval: tuple[float, float] | None = None
    collectives: tuple[CallFound, ...] = ()

    def show(self) -> Iterator[Part]:
        """Yield the tables that a reader sees, none where there is no training."""
        headings = ["middle\n({})", "fastest\n({})", "slowest\n({})", "slowest rank"]
        for title, name, parts in (
            (
                f"A training step of {format_time(self.step_s or 0.0)}, by phase; "
                f"{format_time(self.exposed_s or 0.0)} of sync stand alone",
                "phase",
                self.steps,
            ),
            ("A step on the GPUs, by stream", "stream", self.streams),
        ):
            if parts:
                unit, form = time_unit(one.time_s for one in parts)
                rows = [
                    [one.name, *map(form, (one.time_s, one.fastest_rank_s, one.slowest_rank_s)), str(one.slowest_rank)]
                    for one in parts
                ]
                yield Table(title, [name, *(one.format(unit) for one in headings)], rows)
        if self.step_s and self.step_parts:
            unit, form = time_unit(self.step_parts.values())
            shown = [[name, form(one), f"{one / self.step_s:.0%}"] for name, one in self.step_parts.items() if one > 0]
            yield Table("Where the step goes", ["", f"time\n({unit})", "share"], shown)
        yield from self._path()
        yield from self._collectives()

    def _path(self) -> Iterator[Part]:
        whole = sum(one.time_s for one in self.critical_path)
        if self.critical_path:
            unit, form = time_unit(one.time_s for one in self.critical_path)
            rows = [
                [one.what, str(one.rank), form(one.time_s), f"{one.time_s / whole:.0%}"]
                for one in self.critical_path[:MOST_ROWS]
            ]
            yield Table("The critical path of a step", ["", "rank", f"time\n({unit})", "share"], rows)
        if self.predicted_step_s is not None and self.predicted_step_interval is not None:
            low, high = map(format_time, self.predicted_step_interval)
            yield (
                f"With NCCL as fast as its model says, and without a pause of the GPUs, a step of {format_time(whole)} "
                f"would take {format_time(self.predicted_step_s)} ({low} to {high})."
            )

    def _collectives(self) -> Iterator[Part]:
        if self.collectives:
            unit, form = time_unit(one.time_s for one in self.collectives)
            rows = [
                [
                    one.collective,
                    format_size(one.bytes),
                    str(one.calls),
                    form(one.time_s),
                    format_or_dash(one.predicted_s, form),
                    format_ratio(one.busbw_GBps),
                    format_or_dash(one.predicted_busbw_GBps, format_ratio),
                    form(one.exposed_s),
                ]
                for one in self.collectives
            ]
            headings = ["", "size", "calls", f"each\n({unit})", f"should be\n({unit})", "busbw\n(GB/s)"]
            headings += ["should be\n(GB/s)", f"alone\n({unit})"]
            yield Table("Collectives of the profile, the longest first", headings, rows)


def find_training(case: DiagnosedCase) -> TrainingFound:
    """Return the step of the first trace that has phases, and what profiles say of GPUs and collectives."""
    trace = next((one.trace for one in case.facts.of(RunTrace) if is_training(one.trace)), None)
    found = case.profiled_step or ProfiledStep(0.0, {}, {}, None, {})
    phases = [] if trace is None else [PartFound.of(*one) for one in phase_seconds(trace).items()]
    return TrainingFound(
        steps=tuple(sorted(phases, key=lambda one: -one.time_s)[:MOST_ROWS]),
        step_s=None if trace is None else step_seconds(trace),
        exposed_s=None if trace is None else exposed_sync(trace),
        step_parts={} if trace is None else step_parts(trace),
        streams=tuple(PartFound.of(*one) for one in found.streams.items()),
        critical_path=tuple(PathFound(*key, seconds) for key, seconds in found.path.items()),
        predicted_step_s=found.expected.seconds if found.expected else None,
        predicted_step_interval=(found.expected.low, found.expected.high) if found.expected else None,
        collectives=tuple(sorted(_calls(case), key=lambda one: -one.time_s * one.calls)[:MOST_ROWS]),
    )


def _calls(case: DiagnosedCase) -> Iterator[CallFound]:
    """Yield each collective of each size, beside its prediction where the machine is known."""
    calls: dict[tuple[str, int, int], list[tuple[ProfiledCall, float | None]]] = defaultdict(list)
    for one, due in profiled_instances(case):
        calls[one.name, one.nbytes, one.ranks].append((one, due))
    for (name, nbytes, ranks), same in calls.items():
        dues = [due for _, due in same if due is not None]
        yield CallFound(
            collective=name,
            bytes=nbytes,
            calls=len(same),
            time_s=median(one.end - one.begin for one, _ in same),
            predicted_s=median(dues) if dues else None,
            busbw_GBps=median(busbw(one) for one, _ in same),
            predicted_busbw_GBps=nbytes * bus_factor(name, ranks) / median(dues) / 1e9 if dues else None,
            exposed_s=median(one.exposed for one, _ in same),
        )


FilesArg = Annotated[
    list[Path],
    Argument(metavar="FILE...", help="Logs, benchmark tables, topology files or traces. The format is detected."),
]
SystemOpt = Annotated[
    str | None,
    Option(
        "--system",
        metavar="NAME",
        help="Machine, if the files do not identify it. `ringlab list hardware` lists names.",
    ),
]
KeysOpt = Annotated[
    list[str] | None,
    Option(
        "--set", metavar="KEY=VALUE", help="Override a key of the machine's description, such as nic=100. Repeatable."
    ),
]


def command(
    files: FilesArg,
    hangs: Annotated[bool, Option("--hangs", help="The job hung: the log ends without an error.")] = False,
    report: ReportOpt = None,
    system: SystemOpt = None,
    set_keys: KeysOpt = None,
    json_to: JsonOpt = None,
) -> None:
    """Check from logs and traces whether a run is as fast as it should be, and suggest fixes.

    The exit status is 1 if a problem is found.
    """
    check_outputs(json_to, report)
    answer = diagnose(files, system=system, keys=set_keys or (), hangs=hangs)
    writers = list[Any]()
    if report is not None:
        from ringlab.pictures.report import write_diagnosis_page  # a verdict does without what draws

        writers.append(partial(write_diagnosis_page, answer.found, answer, report))
    deliver(answer, json_to, *writers)
    if answer.verdict in ("slow", "hang"):
        raise typer.Exit(1)


def given_keys(system: str | None, keys: Sequence[str]) -> dict[str, Any]:
    """Return the keys of a description that a user says by a machine's name and by single keys. Raise InputError."""
    named = {} if system is None else machine_line(check_text("system", system, "dgx-h100"))
    return {**named, **parse_keys(check_sequence("keys", keys, of="texts like 'nodes=2'"))}


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
    found = diagnose_files(files, given_keys(system, keys), hangs=hangs)
    factor = found.factor
    return DiagnosisAnswer(
        verdict=found.verdict,
        factor=factor.value if factor else None,
        factor_interval=(factor.low, factor.high) if factor else None,
        reason=found.reason,
        causes=tuple(
            CauseFound(one.name, one.text, one.evidence, *one.place[:2], one.remedy, one.gain) for one in found.causes
        ),
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
