"""Writes the table in docs/engines.md: what `make bench` measured of the engines, beside the goals."""

import json
from pathlib import Path
from typing import Any

from collectives.records.files import write_text

PAGE = Path(__file__).with_name("engines.md")
MEASURED = PAGE.parent.parent / "benchmarks" / "results" / "engine.json"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
PARTS = {"events": "event engine", "reference": "simpy engine", "commands": "whole command"}


def table(found: dict[str, Any]) -> str:
    """Return a line that says where it was measured, and a table with a row per measurement."""
    where = found["environment"]
    lines = [
        f"{where['cpu']}, {where['cores']} cores; Python {where['python']}. Medians, and from the least to the most.\n",
        "| of the | what | measured | from, to | goal |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    return "\n".join([*lines, *(_row(row) for row in found["rows"])]) + "\n"


def _row(row: dict[str, Any]) -> str:
    low, high = row["spread"]
    cells = [PARTS[row["part"]], row["name"], _format(row["measured"], row["unit"]), f"{_format(low)}, {_format(high)}"]
    return f"| {' | '.join([*cells, _goal(row)])} |"


def _goal(row: dict[str, Any]) -> str:
    if "at_most" in row:
        return f"at most {_format(row['at_most'])}" + (", missed" if row["measured"] > row["at_most"] else "")
    if "at_least" in row:
        return f"at least {_format(row['at_least'])}" + (", missed" if row["measured"] < row["at_least"] else "")
    return ""


def _format(number: float, unit: str = "") -> str:
    """Return a number with three significant digits, and its unit."""
    shown = f"{float(f'{number:.3g}'):,.0f}" if number >= 100 else f"{number:.3g}"
    return f"{shown} {unit}".strip()


def updated(page: str) -> str:
    """Return the page with the table that was measured last."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(json.loads(MEASURED.read_text(encoding='utf-8')))}{END}{after}"


if __name__ == "__main__":
    write_text(PAGE, updated(PAGE.read_text(encoding="utf-8")))
