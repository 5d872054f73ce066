"""``ringlab bench``: measure collectives with nccl-tests' options and table, next to their predictions."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import typer
from rich.console import Console

import simcomm
from collectives.call import make_call
from collectives.catalogue import find_algorithm, library
from collectives.checks import check_sequence, check_whole_number
from collectives.declaration import AUTO, auto
from collectives.errors import InputError
from collectives.records.calibration import Calibration
from collectives.records.environment import describe_measurement
from collectives.records.trace import Trace
from collectives.spec import check_op, find_spec
from collectives.units import count
from collectives.variables import is_first_rank
from realcomm.launching.launcher import check_launch
from realcomm.measuring.collective_run import RankFigures, TimedCall, measure_all
from ringlab.session import find_cached
from ringlab.shared.answer import Answer
from ringlab.shared.figures import COLLECTIVE_FIGURES, CollectiveFigures, Number, collective_figures
from ringlab.shared.options import TIMEOUT_S, BackendOpt, JsonOpt, TimeoutOpt, option, with_groups
from ringlab.shared.output import check_outputs, make_console, write_files, write_json
from ringlab.shared.ranges import grow_sizes
from ringlab.shared.signals import INTERRUPTED
from ringlab.table import Part, Table
from simcomm.schedules import verified_schedule
from simcomm.selection import resolve_auto

USUAL = ("ring", "binomial", "pairwise", "dissemination")  # default: the first of these that the collective has
WIDTHS = (12, 12, 9, 8, 5, 20, 10, 8, 8, 7, 10, 7, 10)
NOT_KNOWN = "N/A"  # for an empty buffer, and for results that were not checked
HEADINGS = (  # the last column is only shown with nccl
    ("size", "count", "type", "redop", "root", "algorithm", "time", "algbw", "busbw", "#wrong", "predicted", "error",
     "queued"),
    ("(B)", "(elements)", "", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "", "(us)"),
)  # fmt: skip


@dataclass(frozen=True)
class BenchOptions:
    """The algorithms and sizes that ``ringlab bench`` measures. Sizes and repetitions are set as in nccl-tests."""

    begin: str = option("1K", "-b", "--minbytes", help="Smallest buffer size, such as 8, 32K or 1M.", metavar="SIZE")
    end: str = option("16M", "-e", "--maxbytes", help="Largest buffer size.", metavar="SIZE")
    factor: float = option(4.0, "-f", "--stepfactor", help="Factor between consecutive sizes.")
    iterations: int = option(20, "-n", "--iters", help="Timed iterations per size.", min=1)
    warmup: int = option(5, "-w", "--warmup_iters", help="Warm-up iterations per size, not timed.", min=0)
    check: int = option(
        1, "-c", "--check", help="1: verify the results and count wrong elements. 0: skip verification.", min=0, max=1
    )
    ranks: int = option(2, help="Number of processes on this machine.", min=1, metavar="N")
    collective: str = option("all_reduce", help="Collective to measure, such as all_reduce.", metavar="NAME")
    algorithms: list[str] = option(
        [],
        "--algorithm",
        help=f"Algorithm to measure. Default: the first of {', '.join(USUAL)} that the collective has. Repeatable.",
        metavar="NAME|FILE.py:NAME|auto",
    )
    dtype: str = option("float32", "-d", "--dtype", help="Element type, such as float32.", metavar="TYPE")
    op: str = option("sum", "-o", "--op", help="Reduction: sum, mean, min, max or product.", metavar="OP")
    root: int = option(0, "-r", "--root", help="Root rank of a collective such as broadcast.", min=0, metavar="RANK")


@with_groups
def command(
    *,
    options: BenchOptions,
    backend: BackendOpt = "gloo",
    timeout: TimeoutOpt = TIMEOUT_S,
    json_to: JsonOpt = None,
) -> None:
    """Measure collectives as nccl-tests does, next to the predicted times.

    Press Ctrl-C to stop and keep the results so far.
    """
    benchmark = prepare(options, backend=backend, timeout=timeout)
    check_outputs(json_to)
    console = make_console(quiet=json_to == "-" or not is_first_rank())
    table = BenchTable(benchmark, console, goes_on=json_to is not None)
    table.show_head()
    answer = benchmark.run(table.show_row)
    table.show_foot(answer)
    if is_first_rank():
        write_files(partial(write_json, answer, json_to))
    if answer.interrupted:
        raise typer.Exit(INTERRUPTED)
    if table.error is not None:
        raise table.error
    if answer.wrong:
        raise typer.Exit(1)


@dataclass(frozen=True, kw_only=True)
class BenchRow(CollectiveFigures[Number]):
    """The measurement of one algorithm at one size. Times and rates are None if the buffer has no elements."""

    count: int  # elements, as nccl-tests counts them
    dtype: str
    op: str
    root: int  # -1 if the collective has none, as in nccl-tests
    wrong: int | None  # number of wrong elements; None if the results were not checked
    predicted_s: float | None  # None without a calibration
    error: float | None  # of the prediction, relative to the measured time
    queued_s: float | None = None  # time per call if several calls are queued on GPUs

    def cells(self) -> list[str]:
        """Return the row in the format of nccl-tests."""
        unknown = "-" if self.bytes else NOT_KNOWN

        def show(value: float | None, form: str, scale: float = 1.0) -> str:
            return unknown if value is None else format(value * scale, form)

        return [
            *map(str, (self.bytes, self.count, self.dtype, self.op, self.root, self.algorithm)),
            show(self.time_s, ".2f", 1e6), show(self.algbw_GBps, ".2f"), show(self.busbw_GBps, ".2f"),
            NOT_KNOWN if self.wrong is None else str(self.wrong),
            show(self.predicted_s, ".2f", 1e6), show(self.error, "+.0%"), show(self.queued_s, ".2f", 1e6),
        ]  # fmt: skip


@dataclass(frozen=True, repr=False)
class BenchAnswer(Answer):
    """The result of ``ringlab bench``. After an interrupt, it has the rows that were measured so far."""

    kind = "bench"

    collectives: tuple[BenchRow, ...]
    interrupted: bool
    environment: dict[str, str | int] = field(default_factory=describe_measurement)

    @property
    def wrong(self) -> int:
        """The number of wrong elements in all rows."""
        return sum(row.wrong or 0 for row in self.collectives)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"interrupted": self.interrupted}

    def show(self) -> Iterator[Part]:
        shown = len(WIDTHS) - all(row.queued_s is None for row in self.collectives)
        headings = [f"{name}\n{unit}".strip() for name, unit in zip(*HEADINGS, strict=True)]
        yield Table(None, headings[:shown], [row.cells()[:shown] for row in self.collectives], words=0)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark that is ready to start, with the calibration that predicts its times."""

    options: BenchOptions
    backend: str
    timeout: float  # seconds
    calibration: Calibration | None
    measurements: tuple[TimedCall, ...]

    def run(self, on_row: Callable[[BenchRow], None] | None = None) -> BenchAnswer:
        """Measure all rows, call ``on_row`` with each, and return them. After an interrupt, return the rows so far.

        Raise RunFailed if a rank fails.
        """
        rows: list[BenchRow] = []

        def add(measurement: TimedCall, figures: RankFigures) -> None:
            rows.append(self._row(measurement, figures))
            if on_row is not None:
                on_row(rows[-1])

        interrupted = False
        try:
            measure_all(self.measurements, self.options.ranks, add, backend=self.backend, timeout=self.timeout)
        except KeyboardInterrupt:
            interrupted = True
        return BenchAnswer(tuple(rows), interrupted)

    def _row(self, measurement: TimedCall, figures: RankFigures) -> BenchRow:
        call, ranks, median = measurement.call, self.options.ranks, figures.median_s
        facts = {"nbytes": float(call.nbytes), "time_min_s": figures.least_s, "time_max_s": figures.most_s}
        trace = Trace(call.algorithm.full_name, "measured", ranks, median, facts=facts)
        predicted = None
        if self.calibration is not None:
            predicted = simcomm.run(call, simcomm.this_machine(ranks), calibration=self.calibration).elapsed
        row = BenchRow(
            **vars(collective_figures(trace)),
            count=call.elements // ranks if call.spec.has_parts else call.elements,
            dtype=call.dtype,
            op=call.op if call.spec.reduces else "none",
            root=call.root if call.spec.rooted else -1,
            wrong=figures.wrong if measurement.check else None,
            predicted_s=predicted,
            error=None if predicted is None else (predicted - median) / median,
            queued_s=figures.queued_s,
        )
        nothing_sent: dict[str, Any] = dict.fromkeys((*COLLECTIVE_FIGURES, "wrong", "predicted_s", "error", "queued_s"))
        return row if call.elements else replace(row, **nothing_sent)


def bench(options: BenchOptions | None = None, *, backend: str = "gloo", timeout: float = TIMEOUT_S) -> BenchAnswer:
    """Measure collectives on real processes on this machine, and predict them if a calibration is cached.

    ``timeout`` is in seconds. Raises InputError if an option is invalid, or if an algorithm is ``auto`` and no
    calibration is cached. Raises RunFailed if a rank fails.

    >>> answer = bench(BenchOptions(begin="1K", end="1K", iterations=1))  # doctest: +SKIP
    >>> answer.collectives[0].algorithm, answer.wrong  # doctest: +SKIP
    ('ring', 0)
    """
    chosen = BenchOptions() if options is None else options
    return prepare(chosen, backend=backend, timeout=timeout).run()


def prepare(options: BenchOptions, *, backend: str = "gloo", timeout: float = TIMEOUT_S) -> Benchmark:
    """Check the options, and return a benchmark that is ready to start.

    Raise InputError if an option is invalid, or if an algorithm is ``auto`` and no calibration is cached.
    """
    if not isinstance(options, BenchOptions):
        raise InputError(f"options must be BenchOptions, such as BenchOptions(collective='broadcast'), not {options!r}")
    check_launch(options.ranks, backend, timeout)
    calibration = find_cached(options.ranks, backend)
    return Benchmark(options, backend, timeout, calibration, measurements(options, calibration, backend))


def measurements(
    options: BenchOptions, calibration: Calibration | None = None, backend: str = "gloo"
) -> tuple[TimedCall, ...]:
    """Return a call to measure for each size and algorithm. Sizes are rounded down to whole elements.

    The calibration selects the algorithm for ``auto``. Raises InputError if an option is invalid, or if an algorithm is
    ``auto`` and ``calibration`` is None.
    """
    check_op(options.op, options.dtype)
    check_whole_number("iterations", options.iterations, at_least=1)
    check_whole_number("warmup", options.warmup, at_least=0)
    collective, ranks = find_spec(options.collective).name, options.ranks
    usual = [name for name in USUAL if f"{collective}/{name}" in library()][:1]
    names = check_sequence("algorithms", options.algorithms, of="names") or usual
    algorithms = [auto(collective) if name == AUTO else find_algorithm(name, collective) for name in names]
    if calibration is None and any(not algorithm.is_decided for algorithm in algorithms):
        raise InputError(
            f"--algorithm {AUTO} needs a calibration of this machine for {count(ranks, 'rank')} with {backend}"
            f"; run `ringlab calibrate --ranks {ranks}{'' if backend == 'gloo' else f' --backend {backend}'}`"
        )
    measured = []
    for nbytes in grow_sizes(options.begin, options.end, options.factor):
        for algorithm in algorithms:
            call = make_call(algorithm, ranks, nbytes, dtype=options.dtype)
            call = replace(call, op=options.op, root=options.root)
            call.check(ranks)
            call = resolve_auto(call, simcomm.this_machine(ranks), calibration)
            verified_schedule(call.algorithm, ranks, options.root)
            measured.append(TimedCall(call, options.warmup, options.iterations, None, bool(options.check)))
    return tuple(measured)


class BenchTable:
    """Prints the table in the format of nccl-tests, one row at a time.

    A failure to print raises OSError. If ``goes_on`` is True, it is stored in ``error`` instead, and printing stops.
    """

    def __init__(self, benchmark: Benchmark, console: Console, goes_on: bool = False) -> None:
        self._benchmark, self._console, self._goes_on = benchmark, console, goes_on
        self.error: OSError | None = None
        labels = [len(measurement.call.algorithm.label) for measurement in benchmark.measurements]
        shown = len(WIDTHS) - (benchmark.backend != "nccl")
        self._widths = [*WIDTHS[:5], max(WIDTHS[5], *labels), *WIDTHS[6:shown]]  # fits the longest algorithm name

    def show_head(self) -> None:
        options = self._benchmark.options
        self._print(f"# {options.collective} on {count(options.ranks, 'rank')} of this machine, in place", "#")
        self._print(*map(self._align, HEADINGS))

    def show_row(self, row: BenchRow) -> None:
        self._print(self._align(row.cells()))

    def show_foot(self, answer: BenchAnswer) -> None:
        options, rows = self._benchmark.options, answer.collectives
        busbw = [row.busbw_GBps for row in rows if row.busbw_GBps is not None]
        outcome = ("FAILED" if answer.wrong else "OK") if options.check and busbw else "not checked"
        self._print(f"# Out of bounds values : {answer.wrong} {outcome}")
        if busbw:
            self._print(f"# Avg bus bandwidth    : {sum(busbw) / len(busbw):g} GB/s")
        if self._benchmark.calibration is None:
            self._print(f"# No prediction: calibrate with `ringlab calibrate --ranks {options.ranks}`")
        if answer.interrupted:
            self._print("# Interrupted: later rows are missing")

    def _print(self, *lines: str) -> None:
        try:
            for line in () if self.error else lines:
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        except OSError as error:
            if not self._goes_on:
                raise
            self.error = error

    def _align(self, cells: Iterable[str]) -> str:
        return "  ".join(cell.rjust(width) for cell, width in zip(cells, self._widths, strict=False)).rstrip()
