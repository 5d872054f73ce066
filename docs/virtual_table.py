"""Write the tables of virtual ranks: programs, packages, performance, gloo, and launch times of a GPU."""

from typing import Any

from page_writer import Parts, dated, read_results, table

from collectives.units import format_time


def launches_table(results: dict[str, Any]) -> str:
    """Return one row for each step that ``benchmarks/virtual_launches.py`` carried out."""
    launched = f"{results['launch_s'] * 1e6:g} us per launch, ms: | error:"
    heads = f"model | batch: | measured, ms: | host ahead, ms: | error: | {launched} | held out, ms: | error:"
    return dated(results, table(heads, (_launch_row(row) for row in results["rows"])))


def _launch_row(row: dict[str, Any]) -> list[str]:
    cells = [row["model"], str(row["batch_size"]), f"{row['measured_s'] * 1e3:.1f}"]
    for name in ("ahead_s", "launched_s", "unseen_s"):
        cells += [f"{row[name] * 1e3:.1f}", f"{100 * (row[name] / row['measured_s'] - 1):+.0f} %"]
    return cells


def programs_table(results: dict[str, Any]) -> str:
    """Return one row for each program that ``benchmarks/virtual_programs.py`` carried out."""
    heads = "program | what it uses | ranks: | calls: | virtual time: | CPU time, s: | findings"
    rows = (_program_row(row) for row in results["rows"] if row["part"] == "programs")
    return dated(results, table(heads, rows))


def _program_row(row: dict[str, Any]) -> list[str]:
    ranks = str(row["ranks"] or "its own")
    figures = [f"{row['calls']:,}", format_time(row["virtual_s"]), f"{row['cpu_s']:.2g}"]
    return [f"`{row['name']}`", row["what"], ranks, *figures, ", ".join(row["told"]) or "none"]


def numbers_table(results: dict[str, Any]) -> str:
    """Return one row for each number that ``benchmarks/virtual_programs.py`` measured, with its goal."""
    heads = "quantity | median: | range: | goal"
    rows = (_number_row(row) for row in results["rows"] if row["part"] == "numbers")
    return dated(results, table(heads, rows))


def _number_row(row: dict[str, Any]) -> list[str]:
    spread = f"{row['low']:.3g}, {row['high']:.3g}" if "low" in row else ""
    goal = f"at most {row['at_most']:g}" + (", missed" if row["measured"] > row["at_most"] else "")
    return [row["what"], f"{row['measured']:.3g} {row['unit']}", spread, goal]


def gloo_table(results: dict[str, Any]) -> str:
    """Return one row for each training that ``benchmarks/virtual_on_gloo.py`` ran on real and on virtual ranks."""
    heads = "strategy | model | real ranks, ms: | virtual, ms: | ratio: | range:"
    return dated(results, table(heads, map(_gloo_row, results["rows"])))


def _gloo_row(row: dict[str, Any]) -> list[str]:
    times = [f"{row[name] * 1e3:.1f}" for name in ("real_s", "virtual_s")]
    ratios = [f"{row['ratio']:.2f}", f"{row['ratio_low']:.2f}, {row['ratio_high']:.2f}"]
    return [row["strategy"].upper(), row["model"], *times, *ratios]


def packages_table(results: dict[str, Any]) -> str:
    """Return one row for each program of a package that ``benchmarks/virtual_packages.py`` ran."""
    heads = "package | program | ranks: | virtual ranks | gloo processes"
    return dated(results, table(heads, map(_package_row, results["rows"])))


def _package_row(row: dict[str, Any]) -> list[str]:
    program = " ".join([*row["options"], *row["program"].split()])
    short = program.replace("src/accelerate/test_utils/scripts/", "").replace("-o addopts= -p no:cacheprovider ", "")
    findings = "; ".join(finding.replace("|", "") for finding in row["findings"])
    outcome = "passes" if row["virtual_status"] == 0 else findings or "fails"
    return [row["package"], f"`{short}`", str(row["ranks"] or "its own"), outcome, row["gloo"]]


def small_table(results: dict[str, Any]) -> str:
    """Return one row for each short training that ``benchmarks/virtual_on_gloo.py --small`` ran."""
    heads = "strategy | model | real ranks, ms: | virtual, ms: | ratio: | range: | ratio, earlier calibration:"
    return dated(results, table(heads, ([*_gloo_row(row), f"{row['earlier_ratio']:.2f}"] for row in results["rows"])))


PARTS: Parts = {
    "docs/reports/virtual-ranks.md": {
        "programs": lambda: programs_table(read_results("virtual_programs")),
        "numbers": lambda: numbers_table(read_results("virtual_programs")),
        "gloo": lambda: gloo_table(read_results("virtual_on_gloo")),
        "small": lambda: small_table(read_results("virtual_small_steps")),
        "packages": lambda: packages_table(read_results("virtual_packages")),
        "launches": lambda: launches_table(read_results("virtual_launches")),
    }
}
