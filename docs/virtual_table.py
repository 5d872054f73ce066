"""Writes the tables in docs/virtual.md: programs and numbers, and steps of a GPU that waits for its host."""

from typing import Any

from page_writer import Parts, read_results, table


def launches_table(found: dict[str, Any]) -> str:
    """Return one row for each step that ``benchmarks/virtual_launches.py`` carried out."""
    launched = f"{found['launch_s'] * 1e6:g} us a launch: | off:"
    heads = f"a step of | batch: | measured, ms: | host ahead, ms: | off: | {launched} | unseen, ms: | off:"
    return table(heads, (_launch_row(row) for row in found["rows"]))


def _launch_row(row: dict[str, Any]) -> list[str]:
    cells = [row["model"], str(row["batch_size"]), f"{row['measured_s'] * 1e3:.1f}"]
    for name in ("ahead_s", "launched_s", "unseen_s"):
        cells += [f"{row[name] * 1e3:.1f}", f"{100 * (row[name] / row['measured_s'] - 1):+.0f} %"]
    return cells


PARTS: Parts = {"docs/virtual.md": {"launches": lambda: launches_table(read_results("virtual_launches"))}}
