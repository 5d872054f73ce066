"""Writes the tables in docs/engines.md: what was measured of the engines, their methods, growth and waiting."""

import json
from pathlib import Path
from typing import Any

from page_marks import write_between

from collectives.output_files import write_text

PAGE = Path(__file__).with_name("engines.md")
RESULTS = PAGE.parent.parent / "benchmarks" / "results"
PARTS = {"events": "event engine", "reference": "simpy engine", "commands": "whole command"}
METHODS = ("max-plus", "quotient", "events")


def engines_table(found: dict[str, Any]) -> str:
    """Return one row for each thing that ``benchmarks/engine.py`` measured, below a line that says where."""
    lines = [
        f"{_machine(found)} Medians, and from the least to the most.\n",
        "| of the | what | measured | from, to | goal |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    return "\n".join([*lines, *(_engine_row(row) for row in found["rows"])]) + "\n"


def _machine(found: dict[str, Any]) -> str:
    where = found["environment"]
    return f"{where['cpu']}, {where['cores']} cores; Python {where['python']}."


def _engine_row(row: dict[str, Any]) -> str:
    low, high = row["spread"]
    spread = f"{_rounded(low)}, {_rounded(high)}"
    cells = [PARTS[row["part"]], row["name"], _rounded(row["measured"], row["unit"]), spread, _goal(row)]
    return f"| {' | '.join(cells)} |"


def _goal(row: dict[str, Any]) -> str:
    if "at_most" in row:
        return f"at most {_rounded(row['at_most'])}" + (", missed" if row["measured"] > row["at_most"] else "")
    if "at_least" in row:
        return f"at least {_rounded(row['at_least'])}" + (", missed" if row["measured"] < row["at_least"] else "")
    return ""


def _rounded(number: float, unit: str = "") -> str:
    """Return three digits, and the unit."""
    shown = f"{float(f'{number:.3g}'):,.0f}" if number >= 100 else f"{number:.3g}"
    return f"{shown} {unit}".strip()


def methods_table(found: dict[str, Any]) -> str:
    """Return one row for each schedule and cluster of which ``benchmarks/methods.py`` timed the methods."""
    lines = [
        f"{_machine(found)} Seconds.\n",
        "| algorithm | cluster | ranks | messages | build | routes | max-plus | quotient | events |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    return "\n".join([*lines, *(_method_row(row) for row in found["rows"])]) + "\n"


def _method_row(row: dict[str, Any]) -> str:
    cells = [row["algorithm"], row["cluster"], str(row["ranks"]), f"{row['messages']:,}"]
    cells += [f"{row[part]:.2g}" for part in ("build", "routes")]
    for method in METHODS:
        seconds = "" if row[method] is None else f"{row[method]:.2g}"
        cells.append(f"**{seconds}**" if row["taken"] == method else seconds)
    return f"| {' | '.join(cells)} |"


def growth_table(found: dict[str, Any]) -> str:
    """Return one row for each question of which ``benchmarks/growth.py`` timed some sizes, with the exponent fitted."""
    lines = [
        f"{_machine(found)} Seconds of a core.\n",
        "| where | what | ranks | messages | seconds | memory | grows with | goal |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    timed: list[dict[str, Any]] = []
    fits = {(row["part"], row["name"]): row for row in found["rows"] if "exponent" in row}
    for row in (row for row in found["rows"] if "exponent" not in row and row["part"] != "changes"):
        timed = [each for each in timed if (each["part"], each["name"]) != (row["part"], row["name"])] + [row]
    return "\n".join([*lines, *(_growth_row(row, fits.get((row["part"], row["name"]))) for row in timed)]) + "\n"


def _growth_row(row: dict[str, Any], fit: dict[str, Any] | None) -> str:
    grows, goal = "", ""
    if fit is not None:
        grows = f"{fit['over']}^{fit['exponent']:.2f}"
        goal = f"at most {fit['at_most']:g}" + (", missed" if fit["exponent"] > fit["at_most"] else "")
    return f"| {' | '.join([row['part'], row['name'], *_figures(row), grows, goal])} |"


def _figures(row: dict[str, Any]) -> list[str]:
    return [f"{row['ranks']:,}", f"{row['messages']:,}", f"{row['cpu_s']:.2g}", f"{row['megabytes']:.0f} MB"]


WRONG = {
    "fails_at": "a rank fails",
    "slowdown": "a rank is slow",
    "LinkTrouble": "a link goes down",
    "Jitter": "each message late by chance",
}
TRAININGS = {"training": "training, ring", "auto": "training, auto"}


def changes_table(found: dict[str, Any]) -> str:
    """Return one row for each run beside which ``benchmarks/growth.py`` timed one with a change."""
    lines = [
        f"{_machine(found)} Seconds of a core.\n",
        "| what | cluster | what goes wrong | ranks | messages | seconds | memory | goal |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    changes = (row for row in found["rows"] if row["part"] == "changes")
    return "\n".join([*lines, *(_change_row(row) for row in changes)]) + "\n"


def _change_row(row: dict[str, Any]) -> str:
    wrong = next((said for word, said in WRONG.items() if word in row["wrong"]), "")
    most = row["at_most_s"]
    goal = f"at most {most:g}" + (", missed" if row["cpu_s"] > most else "") if most else ""
    what = TRAININGS.get(row["name"], row["name"])
    return f"| {' | '.join([what, row['cluster'].replace('_', ' '), wrong, *_figures(row), goal])} |"


def waiting_table(found: dict[str, Any]) -> str:
    """Return one row for each command that ``benchmarks/waiting.py`` timed."""
    lines = [f"{_machine(found)} Medians.\n", "| what | seconds | of a core | goal |", "| --- | ---: | ---: | --- |"]
    return "\n".join([*lines, *(_waiting_row(row) for row in found["rows"])]) + "\n"


def _waiting_row(row: dict[str, Any]) -> str:
    most = row.get("at_most_s")
    goal = "" if most is None else f"at most {most:g}" + (", missed" if row["wall_s"] > most else "")
    cells = [row["name"], f"{row['wall_s']:.2g}", f"{row['cpu_s']:.2g}", goal]
    return f"| {' | '.join(cells)} |"


def simgrid_table(found: dict[str, Any]) -> str:
    """Return one row for each collective that ``benchmarks/beside_simgrid.py`` timed in SimGrid and here."""
    lines = [
        f"{_machine(found)} SimGrid {found['simgrid']}; medians, seconds of a core.\n",
        "| algorithm | ranks | messages | ours | SimGrid, exact | SimGrid, lazy | times ours | answers differ by |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    return "\n".join([*lines, *(_simgrid_row(row) for row in found["rows"])]) + "\n"


def _simgrid_row(row: dict[str, Any]) -> str:
    solvers = ("full", "lazy")
    cells = [row["algorithm"], f"{row['ranks']:,}", f"{row['messages']:,}"]
    cells += [f"{row[f'{name}_cpu_s']:.2g}" for name in ("ours", *solvers)]
    for each in ("{}_times_ours", "{}_differs"):
        cells.append(", ".join(f"{float(f'{row[each.format(name)]:.2g}'):,g}" for name in solvers))
    return f"| {' | '.join(cells)} |"


TABLES = {
    "simgrid": ("beside_simgrid.json", simgrid_table),
    "measured": ("engine.json", engines_table),
    "methods": ("methods.json", methods_table),
    "growth": ("growth.json", growth_table),
    "changes": ("growth.json", changes_table),
    "waiting": ("waiting.json", waiting_table),
}


def updated(page: str) -> str:
    """Return the page with the tables as they were measured last; of what was not measured it stays as it is."""
    known = {name: of for name, of in TABLES.items() if (RESULTS / of[0]).exists()}
    for name, (results, table) in known.items():
        page = write_between(page, name, table(json.loads((RESULTS / results).read_text(encoding="utf-8"))))
    return page


if __name__ == "__main__":
    write_text(PAGE, updated(PAGE.read_text(encoding="utf-8")))
