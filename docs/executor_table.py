"""Write the executor's times next to gloo's."""

from textwrap import fill
from typing import Any

from page_writer import Parts, read_results, table

from collectives.units import format_size

GOAL = (
    "The goal of the ring on 2 and 4 ranks is a ratio of at most 1 for 1 MiB and more, and of at most 1.5 for smaller "
    "sizes."
)


def figures(results: dict[str, Any]) -> str:
    """Return the machine, the time of a step, and a table of size by world size for each algorithm."""
    where, step, rows = results["environment"], results["step"], results["all_reduce"]
    tables = [_table(name, [row for row in rows if row["algorithm"] == name]) for name in _distinct(rows, "algorithm")]
    return "\n".join([
        f"{where['date']}: {where['cpu']}, {where['cores']} cores, {where['system']}, torch {where['torch']}.\n",
        f"A step takes {_us(step['executor_s'])} in the executor and {_us(step['bare_s'])} in a bare loop. The median "
        f"difference of {step['pairs']} pairs is {step['added_s'] * 1e6:+.1f} us\n"
        f"(95 % interval: {step['added_s_low'] * 1e6:+.1f} to {step['added_s_high'] * 1e6:+.1f}).\n",
        fill(f"{GOAL} {_misses(rows)}", 120, break_on_hyphens=False) + "\n",
        *tables,
    ])  # fmt: skip


def _misses(rows: list[dict[str, Any]]) -> str:
    small_rings = [row for row in rows if row["algorithm"] == "ring" and row["ranks"] in (2, 4)]
    goals = [(row, 1.0 if row["bytes"] >= 1 << 20 else 1.5) for row in small_rings]
    missed = [_case(row) for row, goal in goals if row["ratio"] > goal]
    surely = [_case(row) for row, goal in goals if row["ratio_low"] > goal]
    return (
        f"Cases whose median misses the goal: {', '.join(missed) or 'none'}. "
        f"Cases whose whole interval misses the goal: {', '.join(surely) or 'none'}."
    )


def _case(row: dict[str, Any]) -> str:
    return f"{row['ranks']} ranks at {format_size(row['bytes'])}"


def _table(name: str, rows: list[dict[str, Any]]) -> str:
    ranks, cells = _distinct(rows, "ranks"), {(row["bytes"], row["ranks"]): _cells(row) for row in rows}
    heads = [f"`{name}`:", *(f"{p} ranks: ours, gloo: | ratio:" for p in ranks)]
    return table(
        " | ".join(heads),
        [
            [format_size(nbytes), *(cell for p in ranks for cell in cells.get((nbytes, p), ["-", "-"]))]
            for nbytes in _distinct(rows, "bytes")
        ],
    )


def _cells(row: dict[str, Any]) -> list[str]:
    ratio = f"{row['ratio']:.2f} ({row['ratio_low']:.2f} to {row['ratio_high']:.2f})"
    return [f"{_us(row['ours_s'])}, {_us(row['gloo_s'])}", ratio]


def _distinct(rows: list[dict[str, Any]], key: str) -> list[Any]:
    return sorted({row[key] for row in rows}, reverse=key == "algorithm")  # the ring first


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} us"


PARTS: Parts = {"docs/reports/speed.md": {"figures": lambda: figures(read_results("against_gloo"))}}
