"""What ``ringlab predict --devices`` answers: its rows, its tables and what is concluded of them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import viz
from collectives.errors import InputError
from collectives.quoting import cut, name_some
from collectives.records.trace import Trace
from collectives.units import count, format_size
from planner.beliefs import describe_chance
from ringlab.shared.answer import NOT_IN_JSON, Answer
from ringlab.table import NOTHING, Line, Part, Sentences, Table, format_digits, format_interval, format_or_dash

COLUMNS = 5  # side by side; more are in tables of their own
LETTERS = 20  # of a column, with an interval
WORTH_A_LINE_S = 5e-7  # of a step, that is worth a line
UNITS = (("h", 3600.0, 7200.0), ("s", 1.0, 1.0), ("ms", 1e-3, 1e-3), ("us", 1e-6, 0.0))  # seconds, and used from
PARTS = {
    "compute": "compute",
    "optimizer": "optimizer",
    "tensor": "tensor",
    "expert": "experts",
    "pipeline": "pipeline",
    "sync": "sync",
    "overlap_slowdown": "overlap slowdown",
    "copies": "copies",
    "stragglers": "stragglers",
    "input": "loading",
    "processes": "processes",
}
NUMBERS = r"(?<![\w.])[0-9][0-9.,]*( [KMGT]?i?B)?"  # with their units, in which reasons may differ
NOTICED = 0.001  # above the whole: rounding is not told
WORDS = {
    "sync": "exchanging gradients and parameters", "tensor": "collectives within layers (tensor)",
    "expert": "all_to_alls of experts", "pipeline": "waiting for other stages of the pipeline",
    "input": "loading of samples", "copies": "passes over gradients",
    "processes": "waiting for the other GPUs' processes, which share a host's cores",
    "stragglers": "waiting for the slowest device", "compute": "computing",
}  # fmt: skip
WITHOUT_EFFECT = {
    "training.parallelism.bucket_mb": ": buckets count where gradients travel in them beside backward (`ddp`, `zero1`, "
    "`zero2`, `zero_redundancy` with `overlap`)",
    "training.precision": ": the times of computing are given, and gradients travel in 32 bits unless `half_weights`",
}


class Bill(NamedTuple):
    """What training on a number of samples takes and costs, with intervals that hold 80 %."""

    seconds: float
    interval: tuple[float, float]
    dollars: float | None = None
    dollars_interval: tuple[float, float] | None = None


class DevicesRow(NamedTuple):
    """The training on so many devices; rates are samples a second of all of them. Intervals hold 80 %.

    ``interval`` is that of the rate; that of the efficiency does not depend on the rate of one device.
    """

    devices: int
    parallelism: str
    samples_per_s: float
    interval: tuple[float, float]
    efficiency: float
    efficiency_interval: tuple[float, float]
    step_s: float
    step_interval: tuple[float, float]
    parts: dict[str, float]
    parts_intervals: dict[str, tuple[float, float]]
    memory: dict[str, float]  # bytes of the device that keeps most
    bottleneck: str
    bottleneck_share: float
    sent_bytes: float  # in a step, by the device that sends most
    calls: tuple[dict[str, str | float], ...]  # what this device takes part in, and how often
    epoch: Bill | None
    target: Bill | None  # the whole training, of which the scenario says how long it is
    tokens_per_s: float | None = None  # of a language model
    chance_to_run: float | None = None  # of a language model, by the share of memory that it fills
    mfu: float | None = None  # the share of the FLOPs that the data sheets say, without what is computed again


class Refused(NamedTuple):
    """A number of devices that the training cannot have, and why."""

    devices: int
    reason: str


class DevicesCase(NamedTuple):
    """The scenario with one value of the key that a what-if varies; "" where nothing varies."""

    value: str
    rows: tuple[DevicesRow, ...]
    refused: tuple[Refused, ...]


@dataclass(frozen=True, repr=False)
class DevicesAnswer(Answer):
    """What ``predict --devices`` found."""

    kind: ClassVar[str] = "devices"

    title: str
    file: str
    cluster: str
    model: str
    compute: str  # where the times of one device come from
    cases: tuple[DevicesCase, ...]
    key: str | None = None
    conclusions: tuple[str, ...] = ()
    # A step on the last number of devices.
    trace: Trace | None = field(default=None, compare=False, metadata=NOT_IN_JSON)

    @property
    def subject(self) -> str:
        """The model and the cluster."""
        return f"{self.model} on {self.cluster}"

    def to_dict(self) -> dict[str, Any]:
        """Return what the command writes as JSON."""
        found = super().to_dict()
        if self.key is None:
            (case,) = found.pop("cases")
            found |= {"rows": case["rows"], "refused": case["refused"]}
        return found

    def show(self) -> Iterator[Part]:
        """Yield rate, step and memory, a column a number of devices; of a what-if the rates, a line a value."""
        yield Line(f"{self.title}: {self.subject}", "bold")
        if self.key is not None:
            yield _what_if_table(self.key, self.cases)
        else:
            (case,) = self.cases
            headings = ["devices (80 %)", *(str(row.devices) for row in case.rows)]
            yield Table(None, headings, _lines(case.rows), most_beside=COLUMNS, letters=LETTERS)
        yield Sentences([*self.conclusions, f"Computing: {self.compute}."], wrap=True)

    def timeline(self) -> Trace:
        """Return the last step. Raise InputError where nothing in it overlaps."""
        if self.trace is None:
            raise InputError(
                "--trace: a mesh without a data axis and without a pipeline has no communication "
                "that overlaps compute; use more devices with --devices, or set training.parallelism.pipeline"
            )
        return self.trace

    def draw(self, path: Path | str) -> None:
        """Write the rates against the devices as .png, .svg or .pdf, a curve a value. Raise InputError."""
        curves = [
            viz.Curve(
                f"{self.key.rpartition('.')[2]} = {case.value}" if self.key else self.model,
                [row.devices for row in case.rows],
                [row.samples_per_s for row in case.rows],
                [row.efficiency for row in case.rows],
            )
            for case in self.cases
            if case.rows
        ]
        subtitle = self.subject if self.key else self.cluster
        viz.write_figure(viz.scaling_figure(self.title, subtitle, curves), path)


def conclude(key: str | None, cases: Sequence[DevicesCase]) -> list[str]:
    """Return the sentences below the tables: what holds the training back, and what was left out.

    ``key`` is what a what-if varies, a case a value; None where nothing varies.
    """
    said = list[str]()
    rates = {tuple((row.devices, row.samples_per_s) for row in case.rows) for case in cases}
    same = len(cases) > 1 and len(rates) == 1
    if same:
        said.append(f"what {key} is changes no rate here{WITHOUT_EFFECT.get(key or '', '')}.")
    for case in cases[: 1 if same else None]:
        if not case.rows:
            continue
        last = case.rows[-1]
        where = f"With {key} = {cut(case.value)}, " if key and not same else ""
        on = f"{where}on {last.devices} device{'s' if last.devices > 1 else ''}"
        if last.bottleneck == "compute":
            said.append(f"{on} the step is {last.bottleneck_share:.0%} compute: there is no other bottleneck.")
        else:
            gain = 1 / (1 - last.bottleneck_share)
            said.append(
                f"{on} the bottleneck is {WORDS[last.bottleneck]}, {last.bottleneck_share:.0%} of the step: "
                f"without it {gain:.2f} times as fast."
            )
        if last.efficiency > 1 + NOTICED:
            said.append(f"{on} efficiency is above 100%, as each device updates a share of the parameters only.")
        unsure = describe_chance(on, last.memory["total"], last.chance_to_run)
        if unsure is not None:
            said.append(unsure)
    said[:0] = _left_out(key, cases)  # what is told first is the first to be left to --explain
    return [sentence[0].upper() + sentence[1:] for sentence in said]


def _left_out(key: str | None, cases: Sequence[DevicesCase]) -> Iterator[str]:
    """Yield what was left out, and of reasons that differ in numbers only the first, with whose it is."""
    kinds: dict[tuple[str, tuple[int, ...]], tuple[list[str], list[str]]] = {}
    for case in cases:
        reasons: dict[str, list[Refused]] = {}
        for one in case.refused:
            reasons.setdefault(re.sub(NUMBERS, "", one.reason), []).append(one)
        for kind, refused in reasons.items():
            devices = tuple(one.devices for one in refused)
            reasons_of, values = kinds.setdefault((kind, devices), ([], []))
            reasons_of += [one.reason for one in refused]
            values.append(case.value)
    for (_, devices), (reasons_of, values) in kinds.items():
        where = f" with {key} = {name_some([*map(cut, map(str, values))])}" if key else ""
        on = count(devices[0], "device") if len(devices) == 1 else f"{name_some(devices)} devices"
        whose = ""
        if len(set(reasons_of)) > 1:
            first = f" with {key} = {cut(values[0])}" if len(values) > 1 else ""
            whose = f"; these are the figures of {count(devices[0], 'device')}{first}"
        yield f"Left out, {on}{where}: {reasons_of[0]}{whose}."


def _what_if_table(key: str, cases: Sequence[DevicesCase]) -> Table:
    """Return samples a second by value and number of devices, each with its efficiency.

    The heading is the last word of the key that varies; sentences below say all of it.
    """
    counts = sorted({row.devices for case in cases for row in case.rows})
    rows = []
    for case in cases:
        found = {row.devices: row for row in case.rows}
        cells = [
            NOTHING if row is None else f"{format_digits(row.samples_per_s)} {row.efficiency:>5.0%}"
            for row in map(found.get, counts)
        ]
        rows.append([case.value, *cells])
    headings = [key.rpartition(".")[2], *(f"samples/s on {count}\nefficiency" for count in counts)]
    letters = len(f"samples/s on {counts[-1]}") + 2 if counts else 0
    return Table(None, headings, rows, letters=letters)


def _lines(rows: Sequence[DevicesRow]) -> list[list[str]]:
    """Return the lines of a table: what is nowhere is left out."""
    lines = [
        ["strategy", *(row.parallelism for row in rows)],
        ["samples/s", *(_around(row.samples_per_s, row.interval) for row in rows)],
        ["tokens/s", *(format_or_dash(row.tokens_per_s, format_digits) for row in rows)],
        ["MFU", *(format_or_dash(row.mfu, "{:.0%}".format) for row in rows)],
        ["efficiency", *(_percents(row) for row in rows)],
        _bill_line("step", [Bill(row.step_s, row.step_interval) for row in rows]),
    ]
    lines = [line for line in lines if line[0] not in ("tokens/s", "MFU") or {*line[1:]} != {NOTHING}]
    used = [name for name in PARTS if any(row.parts[name] >= WORTH_A_LINE_S for row in rows)]
    lines += [_time_line(f"  {PARTS[name]}", [row.parts[name] for row in rows]) for name in used]
    lines.append(
        ["sent by a device", *(NOTHING if not row.sent_bytes else format_size(round(row.sent_bytes)) for row in rows)]
    )
    lines.append(["memory of a device", *(format_size(row.memory["total"]) for row in rows)])
    for name, cost, bills in (
        ("epoch", "cost of an epoch", [row.epoch for row in rows]),
        ("training", "cost of training", [row.target for row in rows]),
    ):
        if any(bills):
            lines.append(_bill_line(name, bills))
        if any(bill and bill.dollars is not None for bill in bills):
            lines.append([cost, *map(_dollars, bills)])
    return lines


def _bill_line(name: str, bills: Sequence[Bill | None]) -> list[str]:
    """Return a line of seconds and their intervals in one unit.

    >>> _bill_line("step", [Bill(1.14, (0.9, 1.4)), None])
    ['step', '1.14 (0.900-1.40) s', '-']
    """
    unit, size = _choose_unit([bill.seconds for bill in bills if bill])
    cells = [
        NOTHING
        if bill is None
        else f"{_around(bill.seconds / size, (bill.interval[0] / size, bill.interval[1] / size))} {unit}"
        for bill in bills
    ]
    return [name, *cells]


def _time_line(name: str, seconds: Sequence[float | None]) -> list[str]:
    """Return a line of seconds in one unit.

    >>> _time_line("epoch", [4599.0, 8892.0]), _time_line("step", [1.14, 0.267, None])
    (['epoch', '4599 s', '8892 s'], ['step', '1140 ms', '267 ms', '-'])
    """
    unit, size = _choose_unit([one for one in seconds if one is not None])
    shown = (
        NOTHING if one is None or one < WORTH_A_LINE_S else f"{format_digits(one / size)} {unit}" for one in seconds
    )
    return [name, *shown]


def _choose_unit(seconds: Sequence[float]) -> tuple[str, float]:
    """Return the unit that suits all of some seconds, with its seconds."""
    shown = [one for one in seconds if one >= WORTH_A_LINE_S]
    middle = sqrt(min(shown) * max(shown)) if shown else 0.0
    return next((unit, size) for unit, size, first in UNITS if middle >= first)


def _around(value: float, bounds: tuple[float, float]) -> str:
    return format_interval(format_digits(value), *map(format_digits, bounds))


def _percents(row: DevicesRow) -> str:
    low, high = (f"{100 * bound:.0f}" for bound in row.efficiency_interval)
    return format_interval(f"{row.efficiency:.0%}", low, high) if row.devices > 1 else f"{row.efficiency:.0%}"


def _dollars(bill: Bill | None) -> str:
    if bill is None or bill.dollars is None or bill.dollars_interval is None:
        return NOTHING
    return f"${_around(bill.dollars, bill.dollars_interval)}"
