"""The tables of ``predict --devices``: a column a number of devices."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from collectives.units import format_size, format_time
from ringlab.answers.devices import DevicesAnswer
from ringlab.answers.devices_rows import DevicesRow
from ringlab.table import (
    NOTHING,
    format_digits,
    format_or_dash,
    format_whole_percent,
    make_table,
    show_sentences,
)

COLUMNS = 5  # side by side; more are in tables of their own
WITHIN = "  80 % within"
LEAST_S = 5e-7  # of a step, that is worth a line
UNITS = (("h", 3600.0, 7200.0), ("s", 1.0, 1.0), ("ms", 1e-3, 1e-3), ("us", 1e-6, 0.0))  # seconds, and used from
PARTS = {
    "compute": "compute", "optimizer": "optimizer", "tensor": "tensor", "expert": "experts", "pipeline": "pipeline",
    "sync": "sync", "steal": "steal", "copies": "copies", "stragglers": "stragglers", "input": "loading",
    "contention": "shared links", "processes": "processes",
}  # fmt: skip


def show_devices(answer: DevicesAnswer, console: Console, explain: bool = False) -> None:
    """Print rate, step and memory, a column a number of devices; of a what-if the rates, a line a value."""
    console.print(f"{answer.title}: {answer.subject}", soft_wrap=True, markup=False, style="bold")
    if answer.key is not None:
        counts = sorted({row.devices for case in answer.cases for row in case.rows})
        room = console.width - max(len(word) for word in (_heading(answer), *(case.value for case in answer.cases)))
        fit = max(1, room // (len(f"samples/s on {counts[-1]}") + 2)) if counts else 1
        for first in range(0, len(counts), fit):
            console.print(_what_if_table(answer, counts[first : first + fit]))
    else:
        (case,) = answer.cases
        for first in range(0, len(case.rows), COLUMNS):
            shown = case.rows[first : first + COLUMNS]
            headings = ["devices", *(str(row.devices) for row in shown)]
            console.print(make_table(None, headings, _lines(shown), words=1))
    show_sentences(console, [*answer.conclusions, f"Computing: {answer.compute}."], explain=explain, wrap=False)


def _what_if_table(answer: DevicesAnswer, counts: Sequence[int]) -> Table:
    """Return samples a second by value and number of devices, each with its efficiency."""
    rows = []
    for case in answer.cases:
        found = {row.devices: row for row in case.rows}
        cells = [
            NOTHING if row is None else f"{format_digits(row.samples_per_s)} {format_whole_percent(row.efficiency):>5}"
            for row in map(found.get, counts)
        ]
        rows.append([case.value, *cells])
    headings = [_heading(answer), *(f"samples/s on {count}\nefficiency" for count in counts)]
    return make_table(None, headings, rows, words=1)


def _heading(answer: DevicesAnswer) -> str:
    """Return the last word of the key that varies; sentences below say all of it."""
    return str(answer.key).rpartition(".")[2]


def _lines(rows: Sequence[DevicesRow]) -> list[list[str]]:
    """Return the lines of a table: what is nowhere is left out."""
    lines = [
        ["form", *(row.parallelism for row in rows)],
        ["samples/s", *(format_digits(row.samples_per_s) for row in rows)],
        [WITHIN, *(_range(row.interval) for row in rows)],
        ["efficiency", *(format_whole_percent(row.efficiency) for row in rows)],
        [WITHIN, *(_percents(row.efficiency_interval) if row.devices > 1 else NOTHING for row in rows)],
        ["step", *(format_time(row.step_s) for row in rows)],
        [WITHIN, *(_times(row.step_s, row.step_interval) for row in rows)],
    ]
    used = [name for name in PARTS if any(row.parts[name] >= LEAST_S for row in rows)]
    lines += [[f"  {PARTS[name]}", *(_seconds(row.parts[name]) for row in rows)] for name in used]
    lines.append(
        ["sent by a device", *(NOTHING if not row.sent_bytes else format_size(round(row.sent_bytes)) for row in rows)]
    )
    lines.append(["memory of a device", *(format_size(row.memory["total"]) for row in rows)])
    if any(row.epoch_s is not None for row in rows):
        lines.append(["epoch", *(NOTHING if row.epoch_s is None else _hours(row.epoch_s) for row in rows)])
        lines.append([WITHIN, *(_epoch_range(row) for row in rows)])
    if any(row.epoch_cost is not None for row in rows):
        lines.append(["cost of an epoch", *(format_or_dash(row.epoch_cost, _dollars) for row in rows)])
        bounds = [row.epoch_cost_interval for row in rows]
        lines.append([WITHIN, *(NOTHING if one is None else _range(one) for one in bounds)])
    return lines


def _seconds(seconds: float) -> str:
    return NOTHING if seconds < LEAST_S else format_time(seconds)


def _range(bounds: tuple[float, float]) -> str:
    return "..".join(map(format_digits, bounds))


def _percents(bounds: tuple[float, float]) -> str:
    return f"{100 * bounds[0]:.0f}..{format_whole_percent(bounds[1])}"


def _times(value: float, bounds: tuple[float, float]) -> str:
    """Return two times in the unit that the value between them has.

    >>> _times(0.9, (0.58, 1.2)), _times(9000.0, (5747.9, 14103.7))
    ('580..1200 ms', '1.60..3.92 h')
    """
    unit, size = next((unit, size) for unit, size, least in UNITS if value >= least)
    return f"{_range((bounds[0] / size, bounds[1] / size))} {unit}"


def _epoch_range(row: DevicesRow) -> str:
    if row.epoch_s is None or row.epoch_interval is None:
        return NOTHING
    return _times(row.epoch_s, row.epoch_interval)


def _hours(seconds: float) -> str:
    return format_time(seconds) if seconds < 7200 else f"{seconds / 3600:.3g} h"


def _dollars(value: float) -> str:
    return f"${format_digits(value)}"
