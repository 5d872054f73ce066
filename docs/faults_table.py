"""Write the table of faults that ``benchmarks/faults.py`` caused."""

from typing import Any

from page_writer import Parts, read_results, table


def faults() -> str:
    """Return a row for each fault, below the machine and the date."""
    results = read_results("faults")
    where = results["environment"]
    heading = (
        f"Measured on {results['date']}: {where['cpu']}, {where['cores']} cores; torch {where['torch']}, Python "
        f"{where['python']}. The load average was at most {max(row['load'] for row in results['rows']):.0f}.\n\n"
    )
    heads = "fault | detected after: | exit status: | message | steps lost: | left behind | resumes"
    return heading + table(heads, map(_row, results["rows"]))


def _row(row: dict[str, Any]) -> list[str]:
    seconds = "before the start" if row["seconds"] is None else f"{row['seconds']:.1f} s"
    if row["timeout"] is not None:
        seconds += f" (timeout {row['timeout']:g} s)"
    message = row["said"].replace("|", "\\|") or "-"
    same = "with the same weights" if row["same_weights"] else "with other weights"
    goes_on = f"from step {row['goes_on_from']} {same}"
    status = "" if row["seconds"] is None else str(row["status"])
    return [row["fault"], seconds, status, message, str(row["lost_steps"]), _left(row), goes_on]


def _left(row: dict[str, Any]) -> str:
    words = [f"{row[key]} {word}" for key, word in (("processes", "processes"), ("files", "files")) if row[key]]
    if row["unfinished"]:
        after = "removed on resume" if not row["unfinished_after_resuming"] else "never removed"
        words.append(f"an unfinished file, {after}")
    return ", ".join(words) or "nothing"


PARTS: Parts = {"docs/reports/faults.md": {"faults": faults}}
