"""The table of ``bench``, in the words and columns of nccl-tests; rows are shown as soon as they are known."""

from collections.abc import Iterable

from rich.console import Console

from collectives.units import count
from ringlab.answers.benchmark import BenchAnswer, Benchmark, BenchRow

WIDTHS = (12, 12, 9, 8, 5, 20, 10, 8, 8, 7, 10, 7)
NOT_KNOWN = "N/A"  # nothing was sent, or nothing checked
HEADINGS = (
    ("size", "count", "type", "redop", "root", "algorithm", "time", "algbw", "busbw", "#wrong", "predicted", "error"),
    ("(B)", "(elements)", "", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", ""),
)


class BenchTable:
    """What ``bench`` shows, row by row."""

    def __init__(self, benchmark: Benchmark, console: Console) -> None:
        self._benchmark, self._console = benchmark, console
        self._widths = _widths(measurement.request.algorithm.label for measurement in benchmark.measurements)

    def show_head(self) -> None:
        """Print the headings."""
        options = self._benchmark.options
        emulated = self._benchmark.emulated
        place = f"of this machine on {emulated.title}, emulated" if emulated else "of this machine"
        self._print(f"# {options.collective} on {count(options.ranks, 'rank')} {place}, in place", "#")
        self._print(*(_align(titles, self._widths) for titles in HEADINGS))

    def show_row(self, row: BenchRow) -> None:
        """Print one more row."""
        self._print(_align(_cells(row), self._widths))

    def show_foot(self, answer: BenchAnswer) -> None:
        """Print what it comes to, in nccl-tests' words."""
        options, rows = self._benchmark.options, answer.collectives
        busbw = [row.busbw_GBps for row in rows if row.busbw_GBps is not None]
        outcome = ("FAILED" if answer.wrong else "OK") if options.check and busbw else "not checked"
        self._print(f"# Out of bounds values : {answer.wrong} {outcome}")
        if busbw:
            self._print(f"# Avg bus bandwidth    : {sum(busbw) / len(busbw):g} GB/s")
        if self._benchmark.emulated is not None:
            self._print("# No prediction: `ringlab compare --emulate` has one")
        elif self._benchmark.calibration is None:
            self._print(f"# No prediction: calibrate with `ringlab calibrate --ranks {options.ranks}`")
        if answer.interrupted:
            self._print("# Interrupted: the sizes that follow are missing")

    def _print(self, *lines: str) -> None:
        for line in lines:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _cells(row: BenchRow) -> tuple[str, ...]:
    unknown = "-" if row.bytes else NOT_KNOWN

    def show(value: float | None, form: str, scale: float = 1.0) -> str:
        return unknown if value is None else format(value * scale, form)

    return (
        str(row.bytes), str(row.count), row.dtype, row.op, str(row.root), row.algorithm,
        show(row.time_s, ".2f", 1e6), show(row.algbw_GBps, ".2f"), show(row.busbw_GBps, ".2f"),
        NOT_KNOWN if row.wrong is None else str(row.wrong), show(row.predicted_s, ".2f", 1e6), show(row.error, "+.0%"),
    )  # fmt: skip


def _widths(labels: Iterable[str]) -> tuple[int, ...]:
    """Return the widths of the columns, with room for the longest name of an algorithm."""
    column = HEADINGS[0].index("algorithm")
    widest = max(map(len, labels), default=0)
    return (*WIDTHS[:column], max(WIDTHS[column], widest), *WIDTHS[column + 1 :])


def _align(cells: Iterable[str], widths: tuple[int, ...]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
