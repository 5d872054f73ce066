"""Writes the table of faults in docs/how-to/train.md, from what ``benchmarks/faults.py`` tried last."""

from typing import Any

from page_writer import Parts, read_results, table


def faults() -> str:
    """Return a row for each fault, below a line that says where and when they were tried."""
    found = read_results("faults")
    where = found["environment"]
    said = (
        f"{where['cpu']}, {where['cores']} cores; torch {where['torch']}, Python {where['python']}; {found['date']}. "
        f"Up to {max(row['load'] for row in found['rows']):.0f} other runnable processes.\n\n"
    )
    heads = "tried | found and ended after: | exit status: | said | steps lost: | left behind | goes on"
    return said + table(heads, map(_row, found["rows"]))


def _row(row: dict[str, Any]) -> list[str]:
    seconds = "before it starts" if row["seconds"] is None else f"{row['seconds']:.1f} s"
    if row["timeout"] is not None:
        seconds += f" (timeout {row['timeout']:g} s)"
    said = row["said"].replace("|", "\\|") or "-"
    same = "to the same weights" if row["same_weights"] else "to other weights"
    goes_on = f"from step {row['goes_on_from']} {same}"
    status = "" if row["seconds"] is None else str(row["status"])
    return [row["fault"], seconds, status, said, str(row["lost_steps"]), _left(row), goes_on]


def _left(row: dict[str, Any]) -> str:
    """Return what was left: processes, files elsewhere, and unfinished files beside the checkpoints."""
    words = [f"{row[key]} {word}" for key, word in (("processes", "processes"), ("files", "files")) if row[key]]
    if row["unfinished"]:
        after = "removed when it goes on" if not row["unfinished_after_resuming"] else "which stays"
        words.append(f"an unfinished file, {after}")
    return ", ".join(words) or "nothing"


PARTS: Parts = {"docs/how-to/train.md": {"faults": faults}}
