"""Write the speed tables: engines, methods, growth and commands."""

from typing import Any

from page_writer import Parts, read_results, table

MEASURED = {"events": "event engine", "reference": "simpy engine", "commands": "whole command"}
METHODS = ("max-plus", "events")


def engines_table(results: dict[str, Any]) -> str:
    """Return one row for each measurement of ``benchmarks/engine.py``, below the machine."""
    heads = "part | case | measured: | range: | goal:"
    return f"{_machine(results)} Medians and ranges.\n\n" + table(heads, (_engine_row(row) for row in results["rows"]))


def _machine(results: dict[str, Any]) -> str:
    where = results["environment"]
    return f"{where['date']}: {where['cpu']}, {where['cores']} cores; Python {where['python']}."


def _engine_row(row: dict[str, Any]) -> list[str]:
    low, high = row["spread"]
    spread = f"{_rounded(low)}, {_rounded(high)}"
    cells = [MEASURED[row["part"]], row["name"], _rounded(row["measured"], row["unit"]), spread, _goal(row)]
    return cells


def _goal(row: dict[str, Any]) -> str:
    if "at_most" in row:
        return f"at most {_rounded(row['at_most'])}" + (", missed" if row["measured"] > row["at_most"] else "")
    if "at_least" in row:
        return f"at least {_rounded(row['at_least'])}" + (", missed" if row["measured"] < row["at_least"] else "")
    return ""


def _rounded(number: float, unit: str = "") -> str:
    shown = f"{float(f'{number:.3g}'):,.0f}" if number >= 100 else f"{number:.3g}"
    return f"{shown} {unit}".strip()


def methods_table(results: dict[str, Any]) -> str:
    """Return one row for each schedule and cluster that ``benchmarks/methods.py`` timed."""
    heads = "algorithm | cluster | ranks: | messages: | build: | routes: | max-plus: | events:"
    return f"{_machine(results)} Seconds.\n\n" + table(heads, (_method_row(row) for row in results["rows"]))


def _method_row(row: dict[str, Any]) -> list[str]:
    cells = [row["algorithm"], row["cluster"], str(row["ranks"]), f"{row['messages']:,}"]
    cells += [f"{row[part]:.2g}" for part in ("build", "routes")]
    for method in METHODS:
        seconds = "" if row[method] is None else f"{row[method]:.2g}"
        cells.append(f"**{seconds}**" if row["taken"] == method else seconds)
    return cells


def growth_table(results: dict[str, Any]) -> str:
    """Return the largest timed size of each case, with the fitted exponent of its growth."""
    heads = "part | case | ranks: | messages: | seconds: | memory: | growth | goal"
    timed: list[dict[str, Any]] = []
    fits = {(row["part"], row["name"]): row for row in results["rows"] if "exponent" in row}
    for row in (row for row in results["rows"] if "exponent" not in row and row["part"] != "changes"):
        timed = [each for each in timed if (each["part"], each["name"]) != (row["part"], row["name"])] + [row]
    return f"{_machine(results)} CPU seconds.\n\n" + table(
        heads, (_growth_row(row, fits.get((row["part"], row["name"]))) for row in timed)
    )


def _growth_row(row: dict[str, Any], fit: dict[str, Any] | None) -> list[str]:
    grows, goal = "", ""
    if fit is not None:
        grows = f"{fit['over']}^{fit['exponent']:.2f}"
        goal = f"at most {fit['at_most']:g}" + (", missed" if fit["exponent"] > fit["at_most"] else "")
    return [row["part"], row["name"], *_figures(row), grows, goal]


def _figures(row: dict[str, Any]) -> list[str]:
    return [f"{row['ranks']:,}", f"{row['messages']:,}", f"{row['cpu_s']:.2g}", f"{row['megabytes']:.0f} MB"]


WRONG = {
    "fails_at": "a rank fails",
    "slowdown": "a rank is slow",
    "LinkFault": "a link goes down",
    "Jitter": "random message delays",
}
TRAININGS = {"training": "training, ring", "auto": "training, auto"}


def changes_table(results: dict[str, Any]) -> str:
    """Return one row for each change of a scenario that ``benchmarks/growth.py`` timed."""
    heads = "case | cluster | fault | ranks: | messages: | seconds: | memory: | goal"
    changes = (row for row in results["rows"] if row["part"] == "changes")
    return f"{_machine(results)} CPU seconds.\n\n" + table(heads, (_change_row(row) for row in changes))


def _change_row(row: dict[str, Any]) -> list[str]:
    wrong = next((sentence for word, sentence in WRONG.items() if word in row["wrong"]), "")
    most = row["at_most_s"]
    goal = f"at most {most:g}" + (", missed" if row["cpu_s"] > most else "") if most else ""
    training = TRAININGS.get(row["name"], row["name"])
    return [training, row["cluster"].replace("_", " "), wrong, *_figures(row), goal]


def waiting_table(results: dict[str, Any]) -> str:
    """Return one row for each command that ``benchmarks/waiting.py`` timed."""
    heads = "command | seconds: | CPU seconds: | goal"
    return f"{_machine(results)} Medians.\n\n" + table(heads, (_waiting_row(row) for row in results["rows"]))


def _waiting_row(row: dict[str, Any]) -> list[str]:
    most = row.get("at_most_s")
    goal = "" if most is None else f"at most {most:g}" + (", missed" if row["wall_s"] > most else "")
    cells = [row["name"], f"{row['wall_s']:.2g}", f"{row['cpu_s']:.2g}", goal]
    return cells


def simgrid_table(results: dict[str, Any]) -> str:
    """Return one row for each collective that ``benchmarks/against_simgrid.py`` timed in SimGrid and here."""
    solvers = "Ringlab: | SimGrid, exact: | SimGrid, lazy: | ratio: | difference of answers:"
    heads = f"algorithm | ranks: | messages: | {solvers}"
    return f"{_machine(results)} SimGrid {results['simgrid']}; medians, CPU seconds.\n\n" + table(
        heads, (_simgrid_row(row) for row in results["rows"])
    )


def _simgrid_row(row: dict[str, Any]) -> list[str]:
    solvers = ("full", "lazy")
    cells = [row["algorithm"], f"{row['ranks']:,}", f"{row['messages']:,}"]
    cells += [f"{row[f'{name}_cpu_s']:.2g}" for name in ("ours", *solvers)]
    for each in ("{}_times_ours", "{}_differs"):
        cells.append(", ".join(f"{float(f'{row[each.format(name)]:.2g}'):,g}" for name in solvers))
    return cells


PARTS: Parts = {
    "docs/reports/speed.md": {
        "simgrid": lambda: simgrid_table(read_results("against_simgrid")),
        "measured": lambda: engines_table(read_results("engine")),
        "methods": lambda: methods_table(read_results("methods")),
        "growth": lambda: growth_table(read_results("growth")),
        "changes": lambda: changes_table(read_results("growth")),
        "waiting": lambda: waiting_table(read_results("waiting")),
    }
}
