"""Write the errors of several runs of ``compare --thorough``.

    ringlab compare quickstart --thorough --json one.json   # `make compared` does it three times
    python docs/compare_table.py one.json two.json    # saves the rows for page_writer.py

A row is a collective, a training step, or one of its phases.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from page_writer import RESULTS, Parts, read_results

from benchmarks.accuracy.emulated_rows import PHASES
from collectives.output_files import write_text
from collectives.units import format_size
from realcomm.calibration.calibration import MESSAGE_TURNS

WITHIN = 0.15
Row = dict[str, Any]


def read_runs(files: Sequence[Path], turns: int) -> dict[str, Any]:
    """Return the rows of files of ``ringlab compare --json``, with the machine."""
    runs = [json.loads(file.read_text()) for file in files]
    return {
        "scenario": runs[0]["scenario"],
        "environment": runs[0]["environment"],
        "turns": turns,
        "loads": [run["load"] for run in runs],
        "rows": [row for number, run in enumerate(runs, 1) for row in rows_of(number, run)],
    }


def rows_of(number: int, run: dict[str, Any]) -> Iterator[Row]:
    """Yield the rows of one comparison."""
    for row in run["collectives"]:
        yield {"run": number, "what": f"{row['algorithm']}, {format_size(row['bytes'])}"} | row["time_s"]
    for row in run["training"]:
        for phase in PHASES:
            if row[phase]["error"] is not None:
                yield {"run": number, "what": f"{row['gradient_sync']}: {phase.removesuffix('_s')}"} | row[phase]


def is_covered(row: Row) -> bool:
    """Return whether the measured time is inside the stated interval."""
    return abs(row["measured"] / row["predicted"] - 1) <= (row["uncertainty"] or 0.0)


def summary(rows: Sequence[Row]) -> str:
    """Return the cells of a summary: rows, median and worst error, share within 15 % and inside the interval.

    >>> summary([{"predicted": 1.0, "measured": 0.9, "error": 1 / 9, "uncertainty": 0.1}])
    '1 | 11.1 | 11.1 | 100 | 100'
    """
    errors = [abs(row["error"]) for row in rows]
    shares = (sum(error <= WITHIN for error in errors), sum(map(is_covered, rows)))
    cells = [f"{100 * median(errors):.1f}", f"{100 * max(errors):.1f}", *(f"{100 * n / len(rows):.0f}" for n in shares)]
    return " | ".join([str(len(rows)), *cells])


def table(results: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the tables: errors of each row in every run, and summaries."""
    runs = range(1, len(results["loads"]) + 1)
    headings = " | ".join(f"run {run}: error, %" for run in runs)
    yield f"| row | {headings} | interval, ± % |"
    yield f"| --- |{' ---: |' * (len(runs) + 1)}"
    for row_name in dict.fromkeys(row["what"] for row in results["rows"]):
        rows = [row for row in results["rows"] if row["what"] == row_name]
        stated = ", ".join(f"{100 * (row['uncertainty'] or 0.0):.0f}" for row in rows)
        errors = " | ".join(f"{100 * row['error']:+.1f}" for row in rows)
        yield f"| {row_name} | {errors} | {stated} |"
    yield ""
    yield f"| rows | number | median error, % | worst, % | within {WITHIN:.0%}, % | inside interval, % |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for name, is_training in (("collectives", False), ("trainings", True)):
        yield f"| {name} | {summary([row for row in results['rows'] if (':' in row['what']) == is_training])} |"
    yield f"| all | {summary(results['rows'])} |"
    yield ""
    yield f"Date: {results['environment']['date']}. Calibration and run alternated in {results['turns']} rounds."
    for run, load in zip(runs, results["loads"], strict=True):
        if load is not None:
            yield ""
            yield f"Run {run}: other processes used {load['others']:.0%} of the cores."


PARTS: Parts = {"docs/reports/compare.md": {"compare": lambda: "\n".join(table(read_results("compare"))) + "\n"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--turns", type=int, default=MESSAGE_TURNS, help="of the comparisons, if they are older")
    options = parser.parse_args()
    results = read_runs(options.files, options.turns)
    write_text(RESULTS / "compare.json", json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
