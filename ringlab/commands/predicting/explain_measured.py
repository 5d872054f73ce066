"""``ringlab explain --measured``: compare an nccl-tests or rccl-tests table with Ringlab's NCCL model, size by size."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from collectives.checks import check_path, check_sequence
from collectives.costs.bounds import bus_factor
from collectives.errors import InputError
from collectives.input_files import MEBIBYTE
from collectives.quoting import quote
from collectives.units import count, format_size
from ringlab.shared.answer import Answer, AnswerRecord
from ringlab.shared.machines import check_gpu, parse_keys, show_skipped, system_of_scenario
from ringlab.table import Line, Part, Table, format_interval, format_or_dash, format_ratio, time_unit
from scenarios import LoadedScenario
from simcomm.nccl.clusters import NcclCluster
from simcomm.nccl.descriptions import System, read_keys, with_unit
from simcomm.nccl.machine_files.described_machine import describe_machine
from simcomm.nccl.machine_files.facts import Facts
from simcomm.nccl.machine_files.files import read_facts
from simcomm.nccl.measured.nccl_tests import read_nccl_tests
from simcomm.nccl.measured.nccl_tests_rows import NcclTestsRun
from simcomm.nccl.measured.tables import SizeSeries, find_series
from simcomm.nccl.measured.verdict import ComparedSeries, Finding, Verdict, compare_series
from simcomm.nccl.predict import COLLECTIVES, predict_collective
from simcomm.nccl.settings import NcclSettings

ONE_HOST = 8  # up to this many ranks are assumed to be on one host if the output does not list devices


@dataclass(frozen=True)
class MeasuredSize(AnswerRecord):
    """A measured time and its prediction, in seconds. The prediction is None if the machine is unknown."""

    collective: str
    ranks: int
    bytes: int
    measured: float
    predicted: float | None
    low: float | None
    high: float | None
    busbw_GBps: float | None  # noqa: N815  # the key of the JSON


@dataclass(frozen=True)
class MeasuredSweep(AnswerRecord):
    """The measured sizes of one collective in a run, and the verdict on them."""

    line: int
    collective: str
    nodes: int
    gpus: int
    verdict: Verdict
    sentence: str
    rows: tuple[MeasuredSize, ...]


@dataclass(frozen=True, repr=False)
class MeasuredAnswer(Answer):
    """The result of ``ringlab explain --measured``: nccl-tests tables compared with Ringlab's NCCL model."""

    kind = "measured"

    title: str
    verdict: Verdict
    sentence: str
    tables: tuple[MeasuredSweep, ...]
    notes: tuple[str, ...]
    skipped: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON. ``rows`` has the rows of all tables."""
        content = super().to_dict()
        content["rows"] = [row for table in content["tables"] for row in table.pop("rows")]
        return content

    def show(self) -> Iterator[Part]:
        yield Line(f"{self.title}: {self.sentence}", "bold", wrap=True)
        for table in self.tables:
            if len(self.tables) > 1:
                yield Line(f"line {table.line}, {table.collective}: {table.sentence}", wrap=True)
            unit, form = time_unit(row.measured for row in table.rows)
            rows = [
                [
                    format_size(row.bytes), form(row.measured),
                    format_interval(row.predicted, None if row.low is None else (row.low, row.high or inf), form),
                    format_or_dash(row.predicted and row.measured / row.predicted, format_ratio),
                    format_or_dash(row.busbw_GBps, format_ratio),
                ]
                for row in table.rows
            ]  # fmt: skip
            machine = f" on {count(table.nodes, 'host')} with {count(table.gpus, 'GPU')} each" * (table.nodes > 0)
            times = [f"measured\n({unit})", f"predicted\n({unit}, 80 %)"]
            yield Table(
                f"{table.collective}{machine}", ["size", *times, "measured /\npredicted", "busbw\n(GB/s)"], rows
            )
        yield from (Line(f"note: {note}", wrap=True) for note in self.notes)
        yield from show_skipped(self.skipped)


@dataclass(frozen=True)
class _Described:
    nodes: int
    gpus: int
    system: System | None
    notes: tuple[str, ...] = ()
    missing: str = ""


def explain_measured(
    file: Path | str, scenario: LoadedScenario | None = None, keys: Sequence[str] = ()
) -> MeasuredAnswer:
    """Compare measured times with the NCCL model, on a scenario's cluster or on the machine that the file describes.

    ``file`` is the output of nccl-tests or rccl-tests. Without a scenario, ``keys`` such as ``nic=100 GB/s`` complete
    the description of the machine. The verdict is "unknown" if the description remains incomplete. Raises InputError if
    the file has no usable row, or does not match the scenario or ``keys``.

    >>> explain_measured("all_reduce.txt").verdict  # doctest: +SKIP
    'as expected'
    """
    check_path("file", file)
    values = read_keys("--set", parse_keys(check_sequence("keys", keys, of="texts like 'nodes=2'")))
    if scenario is not None and not isinstance(scenario, LoadedScenario):
        raise InputError(f"scenario must be the result of ringlab.load, not {quote(scenario)}")
    if scenario is not None and values:
        raise InputError("a scenario already describes the machine; override keys of the scenario instead")
    system = None if scenario is None else system_of_scenario(scenario, "--measured")
    settings = scenario.cluster.settings if scenario and isinstance(scenario.cluster, NcclCluster) else NcclSettings()
    collective = scenario.collective.name if scenario and scenario.collective else None
    ranks = system.ranks if system else int(values.get("nodes", 0)) * int(values.get("gpus", 0))
    output = read_nccl_tests(file, collective if collective in COLLECTIVES else None, ranks)
    facts = Facts() if system else read_facts([file])
    tables, notes = list[MeasuredSweep](), dict[str, None]()
    for run in output.runs:
        if run.rows:
            machine = _of_scenario(file, run, system) if system else _describe(facts, run, values)
            series = find_series(run.rows, run.ranks or machine.nodes * machine.gpus)
            tables += [_judge(run, sizes, machine, settings) for sizes in series.values()]
            notes |= dict.fromkeys((*(f"guess: {guess}" for guess in run.guesses), *machine.notes))
            if machine.system and series:
                predicted = predict_collective(machine.system, next(iter(series)), MEBIBYTE, settings=settings)
                notes |= dict.fromkeys(predicted.notes)
    if not tables:
        raise InputError(
            f"{file}: no row can be compared; a row needs a positive size, and a time or (with known ranks) a busbw; "
            "measure larger sizes (-b, -e), or pass for example --set nodes=1 --set gpus=8"
        )
    finding = _conclude(tables)
    skipped = tuple(reason for _, reason in output.skipped)
    return MeasuredAnswer(Path(file).name, finding.verdict, finding.sentence, tuple(tables), tuple(notes), skipped)


def _of_scenario(file: Path | str, run: NcclTestsRun, system: System) -> _Described:
    check_gpu(f"{file}:{run.line}", run, system)
    if run.ranks not in (0, system.ranks) or (run.hosts and run.hosts != system.nodes):
        hosts = f" on {count(run.hosts, 'host')}" if run.hosts else ""
        nodes, left = divmod(run.ranks, system.gpus) if run.ranks else (run.hosts, 0)
        fits = not left and run.hosts in (0, nodes)
        advice = f"pass --set cluster.nodes={nodes}" if fits else "describe the measured machine, or omit the scenario"
        raise InputError(
            f"{file}:{run.line}: measured with {count(run.ranks, 'rank')}{hosts}, but {system.slug} has "
            f"{count(system.nodes, 'host')} with {system.gpus} GPUs each; {advice}"
        )
    return _Described(system.nodes, system.gpus, system)


def _describe(facts: Facts, run: NcclTestsRun, values: Mapping[str, Any]) -> _Described:
    nodes, gpus, notes = _find_shape(facts, run, values)
    if not gpus:
        unknown = f"the number of hosts of the {run.ranks} ranks" if run.ranks else "the number of ranks"
        missing = f"the file does not list devices, so {unknown} is unknown; pass --set nodes=2 --set gpus=8"
        return _Described(0, run.ranks, None, missing=missing)
    procs = {"procs": run.procs} if run.hosts else {}
    version = {"nccl": ".".join(map(str, run.version))} if run.version else {}
    described = describe_machine(facts, {**procs, **version, **values, "nodes": nodes, "gpus": gpus})
    if described.missing:
        return _Described(nodes, gpus, None, tuple(notes), described.missing)
    system = described.system()
    for key, value in described.keys.items():
        if value.why.startswith("guess"):
            notes.append(f"guess: {key} = {with_unit(key, value.value)}, {value.why.removeprefix('guess: ')}")
    joining = ("link", "lanes") if system.link in ("pcie", "bridge") else ("link",)
    usual = [f"{key} = {getattr(system, key)}" for key in joining if system.gpus > 1 and key in system.defaulted]
    notes += [f"guess: {', '.join(usual)}, as is usual for {system.gpu.name}"] if usual else []
    return _Described(nodes, gpus, system, tuple(notes))


def _find_shape(facts: Facts, run: NcclTestsRun, values: Mapping[str, Any]) -> tuple[int, int, list[str]]:
    """Return the number of hosts, the GPUs per host, and a note for each guess. Unknown numbers are 0."""
    known = describe_machine(facts, values).keys
    nodes, gpus = (int(known[key].value) if key in known else 0 for key in ("nodes", "gpus"))
    if nodes * gpus == run.ranks or (not run.ranks and {"nodes", "gpus"} <= values.keys()):
        return nodes, gpus, []
    if run.ranks and "gpus" not in values and "nodes" in values and run.ranks % nodes == 0:
        return nodes, run.ranks // nodes, []
    if run.ranks and "nodes" not in values and "gpus" in values and run.ranks % gpus == 0:
        return run.ranks // gpus, gpus, []
    if run.ranks and {"nodes", "gpus"} & values.keys():
        stated = ", ".join(f"{key} = {values[key]}" for key in ("nodes", "gpus") if key in values)
        raise InputError(
            f"--set: {stated}, but the run in line {run.line} has {count(run.ranks, 'rank')}; "
            "set nodes and gpus whose product is the number of ranks"
        )
    if run.hosts and run.ranks % run.hosts == 0:
        return run.hosts, run.gpus, []
    if not run.hosts and 0 < run.ranks <= ONE_HOST:
        return 1, run.ranks, [f"guess: 1 host with {count(run.ranks, 'GPU')}; no device is listed"]
    return 0, 0, []


def _judge(run: NcclTestsRun, series: SizeSeries, machine: _Described, settings: NcclSettings) -> MeasuredSweep:
    ranks = machine.nodes * machine.gpus or run.ranks
    missing = "one rank sends nothing" if ranks == 1 else machine.missing
    if machine.system is None or missing:
        compared, finding = None, Finding("unknown", f"unknown, as {missing}")
    else:
        compared = compare_series(machine.system, series, settings)
        finding = compared.judge()
    rows = tuple(_rows(series, compared, ranks))
    return MeasuredSweep(run.line, series.collective, machine.nodes, machine.gpus, *finding, rows)


def _rows(series: SizeSeries, compared: ComparedSeries | None, ranks: int) -> Iterator[MeasuredSize]:
    for at, (nbytes, seconds) in enumerate(zip(series.nbytes.tolist(), series.seconds.tolist(), strict=True)):
        known = (compared.predicted, compared.low, compared.high) if compared else ()
        predicted, low, high = (float(each[at]) for each in known) if known else (None, None, None)
        busbw = nbytes / seconds / 1e9 * bus_factor(series.collective, ranks) if ranks else None
        yield MeasuredSize(series.collective, ranks, int(nbytes), seconds, predicted, low, high, busbw)


def _conclude(tables: Sequence[MeasuredSweep]) -> Finding:
    order: tuple[Verdict, ...] = ("slower", "faster", "as expected", "unknown")
    verdict = next(each for each in order if any(table.verdict == each for table in tables))
    matching = [table for table in tables if table.verdict == verdict]
    if len(tables) == 1:
        return Finding(verdict, matching[0].sentence)
    return Finding(
        verdict,
        f"{verdict} in {len(matching)} of {len(tables)} tables; {matching[0].collective}: {matching[0].sentence}",
    )
