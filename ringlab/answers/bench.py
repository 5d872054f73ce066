"""Real collectives in the table of nccl-tests, each with its algorithm and its prediction."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

import simcomm
from collectives.catalogue import find_algorithm, library
from collectives.declaration import AUTO, Algorithm, auto
from collectives.elements import check_op
from collectives.errors import InputError
from collectives.records.calibration import Calibration, cached_calibration
from collectives.records.environment import environment
from collectives.records.files import write_text
from collectives.records.summary import COLLECTIVE, Entry, collective_entry
from collectives.records.trace import Trace
from collectives.request import make_request
from collectives.spec import find_spec
from realcomm.launching.launcher import check_launch
from realcomm.measuring.measurement import Figures, Measurement
from realcomm.measuring.sweep import sweep
from ringlab.answers.sizes import growing
from simcomm.schedules import checked
from simcomm.selection import resolve_auto

USUAL = ("ring", "binomial", "pairwise", "dissemination")  # the first of these that a collective has, unless said
WIDTHS = (12, 12, 9, 8, 5, 20, 10, 8, 8, 7, 10, 7)
NOTHING_SENT = "N/A"  # also where nothing was checked
HEADINGS = (
    ("size", "count", "type", "redop", "root", "algorithm", "time", "algbw", "busbw", "#wrong", "predicted", "error"),
    ("(B)", "(elements)", "", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", ""),
)


@dataclass(frozen=True)
class Question:
    """What to measure: every algorithm at every size, as nccl-tests' options say it."""

    collective: str = "all_reduce"
    algorithms: tuple[str, ...] = ()
    ranks: int = 2
    begin: str = "1K"
    end: str = "16M"
    factor: float = 4.0
    iterations: int = 20
    warmup: int = 5
    check: bool = True
    dtype: str = "float32"
    op: str = "sum"
    root: int = 0

    def measurements(self, calibration: Calibration | None = None) -> list[Measurement]:
        """One for each row, sizes rounded down to what the algorithm can work on.

        ``auto`` is chosen by the calibration. Raises InputError, also where there is none to choose by.
        """
        check_op(self.op, self.dtype)
        algorithms = self._algorithms()
        if calibration is None and any(algorithm.is_auto for algorithm in algorithms):
            raise InputError(
                f"--algorithm {AUTO}: nothing to choose by, as this machine is not calibrated for {self.ranks} ranks "
                f"on gloo; `ringlab calibrate --ranks {self.ranks}` does it (for nccl there is no calibration)"
            )
        sizes = growing(self.begin, self.end, self.factor)
        return [self._plan(algorithm, size, calibration) for size in sizes for algorithm in algorithms]

    def _plan(self, algorithm: Algorithm, nbytes: int, calibration: Calibration | None) -> Measurement:
        request = make_request(algorithm, self.ranks, nbytes, dtype=self.dtype, op=self.op, root=self.root)
        request = resolve_auto(request, simcomm.this_machine(self.ranks), calibration)
        checked(request.algorithm, self.ranks, self.root)
        return Measurement(request, self.warmup, self.iterations, None, self.check)

    def _algorithms(self) -> list[Algorithm]:
        find_spec(self.collective)
        usual = [name for name in USUAL if f"{self.collective}/{name}" in library()][:1]
        names = self.algorithms or usual
        return [auto(self.collective) if name == AUTO else find_algorithm(name, self.collective) for name in names]


@dataclass
class Table:
    """Rows that are shown as soon as they are known."""

    question: Question
    calibration: Calibration | None
    console: Console
    widths: tuple[int, ...] = WIDTHS
    rows: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = False

    def head(self) -> None:
        """The headings are shown."""
        asked = self.question
        self._line(f"# {asked.collective} on {asked.ranks} ranks of this machine, in place", "#")
        for titles in HEADINGS:
            self._line(_aligned(titles, self.widths))

    def add(self, measurement: Measurement, figures: Figures) -> None:
        """One more row is known and shown."""
        self.rows.append(self._row(measurement, figures))
        self._line(_aligned(_cells(self.rows[-1]), self.widths))

    def foot(self) -> None:
        """What it comes to is shown, in nccl-tests' words."""
        wrong = self.wrong
        busbw = [row["busbw_GBps"] for row in self.rows if row["bytes"]]
        told = ("OK" if not wrong else "FAILED") if self.question.check and (busbw or not self.rows) else "not checked"
        lines = [f"# Out of bounds values : {wrong} {told}"]
        lines += [f"# Avg bus bandwidth    : {sum(busbw) / len(busbw):g} GB/s"] if busbw else []
        if self.calibration is None:
            lines.append(f"# No prediction: calibrate with `ringlab calibrate --ranks {self.question.ranks}`")
        self._line(*lines, *(["# Interrupted: the sizes that follow are missing"] if self.interrupted else []))

    @property
    def wrong(self) -> int:
        """Elements of all rows that were not what they must be."""
        return sum(row["wrong"] or 0 for row in self.rows)

    def answer(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "schema_version": 1,
            "kind": "bench",
            "environment": environment(),
            "interrupted": self.interrupted,
            "collectives": self.rows,
        }

    def write(self, json_to: str | None) -> None:
        """The answer is in that file, or for ``-`` on standard output."""
        text = json.dumps(self.answer(), indent=2, allow_nan=False) + "\n"
        if json_to == "-":
            sys.stdout.write(text)
        elif json_to is not None:
            write_text(Path(json_to), text)

    def _row(self, measurement: Measurement, figures: Figures) -> dict[str, Any]:
        asked, request = self.question, measurement.request
        spec = request.algorithm.spec
        predicted = self._predicted(measurement)
        row = {
            **_entry(measurement, asked.ranks, figures),
            "count": request.elements // asked.ranks if spec.has_parts else request.elements,  # as nccl-tests counts
            "dtype": request.dtype,
            "op": request.op if spec.reduces else "none",
            "root": request.root if spec.rooted else -1,
            "wrong": figures.wrong if measurement.check else None,
            "predicted_s": predicted,
            "error": None if predicted is None else (predicted - figures.median_s) / figures.median_s,
        }
        nothing_sent = dict.fromkeys((*COLLECTIVE, "wrong", "predicted_s", "error"))
        return row if request.elements else row | nothing_sent

    def _predicted(self, measurement: Measurement) -> float | None:
        if self.calibration is None:
            return None
        cluster = simcomm.this_machine(self.question.ranks)
        return simcomm.run(measurement.request, cluster, calibration=self.calibration).elapsed

    def _line(self, *lines: str) -> None:
        for line in lines:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def _entry(measurement: Measurement, ranks: int, figures: Figures) -> Entry:
    facts = {
        "nbytes": float(measurement.request.nbytes),
        "time_min_s": figures.least_s,
        "time_max_s": figures.most_s,
    }
    trace = Trace(measurement.request.algorithm.full_name, "measured", ranks, figures.median_s, [], [], facts=facts)
    return collective_entry(trace)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    unknown = "-" if row["bytes"] else NOTHING_SENT

    def of(key: str, form: str, scale: float = 1.0) -> str:
        return unknown if row[key] is None else format(row[key] * scale, form)

    return (
        str(row["bytes"]), str(row["count"]), row["dtype"], row["op"], str(row["root"]), row["algorithm"],
        of("time_s", ".2f", 1e6), of("algbw_GBps", ".2f"), of("busbw_GBps", ".2f"),
        NOTHING_SENT if row["wrong"] is None else str(row["wrong"]), of("predicted_s", ".2f", 1e6), of("error", "+.0%"),
    )  # fmt: skip


def widths_for(measurements: Iterable[Measurement]) -> tuple[int, ...]:
    """Those of the columns, as wide as the longest name of an algorithm needs."""
    place = HEADINGS[0].index("algorithm")
    widest = max((len(measurement.request.algorithm.label) for measurement in measurements), default=0)
    return (*WIDTHS[:place], max(WIDTHS[place], widest), *WIDTHS[place + 1 :])


def _aligned(cells: Iterable[str], widths: tuple[int, ...]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def calibration_for(ranks: int, backend: str) -> Calibration | None:
    """The cached calibration, where a fresh one of this machine and backend is there."""
    try:
        return cached_calibration(ranks) if backend == "gloo" else None
    except InputError:
        return None


def bench(question: Question, backend: str, timeout: float, console: Console) -> Table:
    """The table of all that was measured; after ^C, of what was measured by then.

    Raises InputError for what cannot be asked, and RunFailed.
    """
    check_launch(question.ranks, backend, timeout)
    calibration = calibration_for(question.ranks, backend)
    measurements = question.measurements(calibration)
    table = Table(question, calibration, console, widths_for(measurements))
    table.head()
    try:
        sweep(measurements, question.ranks, table.add, backend=backend, timeout=timeout)
    except KeyboardInterrupt:
        table.interrupted = True
    table.foot()
    return table
