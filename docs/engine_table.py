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
    """One row for each thing that was measured, and a line that says where."""
    where = found["environment"]
    lines = [
        f"{where['cpu']}, {where['cores']} cores; Python {where['python']}. Medians, and from the least to the most.\n",
        "| of the | what | measured | from, to | goal |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    return "\n".join([*lines, *(_row(row) for row in found["rows"])]) + "\n"


def _row(row: dict[str, Any]) -> str:
    low, high = row["spread"]
    cells = [PARTS[row["part"]], row["name"], _said(row["measured"], row["unit"]), f"{_said(low)}, {_said(high)}"]
    return f"| {' | '.join([*cells, _goal(row)])} |"


def _goal(row: dict[str, Any]) -> str:
    if "at_most" in row:
        return f"at most {_said(row['at_most'])}" + (", missed" if row["measured"] > row["at_most"] else "")
    if "at_least" in row:
        return f"at least {_said(row['at_least'])}" + (", missed" if row["measured"] < row["at_least"] else "")
    return ""


def _said(number: float, unit: str = "") -> str:
    """Three digits, and the unit."""
    shown = f"{float(f'{number:.3g}'):,.0f}" if number >= 100 else f"{number:.3g}"
    return f"{shown} {unit}".strip()


def updated(page: str) -> str:
    """The page with the table as it was measured last."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(json.loads(MEASURED.read_text(encoding='utf-8')))}{END}{after}"


if __name__ == "__main__":
    write_text(PAGE, updated(PAGE.read_text(encoding="utf-8")))
