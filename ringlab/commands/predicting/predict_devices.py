"""``ringlab predict --devices``: predict time, throughput, memory and cost of training on numbers of devices."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import viz
from collectives.checks import check_callable, check_sequence
from collectives.errors import InputError
from collectives.quoting import cut, name_some
from collectives.removed import RENAMED_WHAT_IFS, warn_renamed
from collectives.units import count, format_size
from planner.beliefs import describe_chance
from planner.clusters import check_devices, describe_network
from planner.gpus import PRECISIONS
from planner.prediction import Training
from ringlab.commands.predicting.predict_sweep import full_key, parse_sweep
from ringlab.shared.answer import Answer
from ringlab.shared.failures import refusals_about
from ringlab.shared.machines import find_price
from ringlab.shared.models import find_training
from ringlab.shared.progress import Tick
from ringlab.table import (
    NOTHING,
    Bounds,
    Line,
    Part,
    Sentences,
    Table,
    format_digits,
    format_interval,
    format_or_dash,
    format_whole,
    time_unit,
)
from scenarios.loader import SpreadTraining, read_spread_training

COLUMN = 20  # characters of a value with its interval
WORTH_A_LINE_S = 5e-7  # shorter parts of a step are not shown
NOTICED = 0.001  # an efficiency that exceeds 1 by less is a rounding error
LABELS = {"expert": "experts", "input": "loading"}  # parts that the table names otherwise
WORDS = {
    "sync": "exchanging gradients and parameters", "tensor": "collectives within layers (tensor)",
    "expert": "all_to_alls of experts", "pipeline": "waiting for other stages of the pipeline",
    "input": "data loading", "copies": "passes over gradients",
    "processes": "waiting for the other GPUs' processes, which share a host's cores",
    "stragglers": "waiting for the slowest device", "compute": "computing",
}  # fmt: skip
WITHOUT_EFFECT = {
    "training.parallelism.bucket_mb": ": buckets only matter for `ddp`, `zero1`, `zero2` and `zero_redundancy` with "
    "`overlap`, which send them during backward",
    "training.precision": ": the compute times are stated, and gradients have 32 bits unless `half_weights` is set",
}
OWN_WORK = (
    "The step excludes the host time that torch adds to each operation on sharded parameters ({strategy}). This time "
    "slows CPUs, and GPUs with short kernels."
)
NUMBERS = r"(?<![\w.])[0-9][0-9.,]*( [KMGT]?i?B)?"  # numbers with units; reasons that only differ in them are merged


class Bill(NamedTuple):
    """The time and cost of training on a number of samples, with 80 % intervals."""

    seconds: float
    interval: Bounds
    dollars: float | None = None
    dollars_interval: Bounds | None = None

    @classmethod
    def of(cls, samples: float, rate: float, bounds: Bounds, hourly: float | None) -> "Bill":
        """Return the bill for ``samples`` at ``rate`` samples/s. ``hourly`` is the price of all devices in $/h."""
        seconds, low, high = (samples / each for each in (rate, bounds[1], bounds[0]))
        if hourly is None:
            return cls(seconds, (low, high))
        return cls(seconds, (low, high), seconds * hourly / 3600, (low * hourly / 3600, high * hourly / 3600))


class DevicesRow(NamedTuple):
    """A training step on a number of devices. Rates are sums over all devices; intervals are 80 % intervals."""

    devices: int
    parallelism: str
    samples_per_s: float
    interval: Bounds  # of samples_per_s
    efficiency: float
    efficiency_interval: Bounds  # the error of one device's rate cancels out
    step_s: float
    step_interval: Bounds
    parts: dict[str, float]
    parts_intervals: dict[str, Bounds]
    memory: dict[str, float]  # bytes on the device that uses the most memory
    bottleneck: str
    bottleneck_share: float
    epoch: Bill | None
    target: Bill | None  # the whole training, if the scenario states its length
    tokens_per_s: float | None = None  # of a language model
    chance_to_run: float | None = None  # probability that a language model fits into memory
    mfu: float | None = None  # model FLOPs utilization, without recomputation


class Refused(NamedTuple):
    devices: int
    reason: str


class DevicesCase(NamedTuple):
    """The predictions for one value of the key that ``--what-if`` varies. Without ``--what-if``, the value is ""."""

    value: str
    rows: tuple[DevicesRow, ...]
    refused: tuple[Refused, ...]


@dataclass(frozen=True, repr=False)
class DevicesAnswer(Answer):
    """The result of ``ringlab predict --devices``."""

    kind: ClassVar[str] = "devices"

    title: str
    file: str
    cluster: str
    model: str
    compute: str  # the source of one device's compute times
    cases: tuple[DevicesCase, ...]
    key: str | None = None
    conclusions: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON. Without a what-if, ``rows`` and ``refused`` of the only case replace ``cases``."""
        content = super().to_dict()
        if self.key is None:
            (case,) = content.pop("cases")
            content |= {"rows": case["rows"], "refused": case["refused"]}
        return content

    def show(self) -> Iterator[Part]:
        """Yield a table with a column per number of devices. With ``--what-if``, it has a row per value of the key."""
        yield Line(f"{self.title}: {self.model} on {self.cluster}", "bold")
        if self.key is not None:
            yield _what_if_table(self.key, self.cases)
        else:
            (case,) = self.cases
            headings = ["devices (80 %)", *(str(row.devices) for row in case.rows)]
            yield Table(None, headings, _table_rows(case.rows), letters=COLUMN)
        yield Sentences([*self.conclusions, f"Computing: {self.compute}."])

    def draw(self, path: Path | str) -> None:
        """Plot throughput and efficiency against the number of devices, as .png, .svg or .pdf.

        Raise InputError for any other suffix, or if there are no curves or more than nine.
        """
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
        subtitle = f"{self.model} on {self.cluster}" if self.key else self.cluster
        viz.write_figure(viz.scaling_figure(self.title, subtitle, curves), path)


def predict_devices(
    scenario: str | Path,
    devices: Sequence[int],
    *overrides: str,
    what_if: str | None = None,
    tick: Tick = lambda *_: None,
) -> DevicesAnswer:
    """Predict a scenario's training on each number of devices. ``what_if`` also varies a key, as in ``batch=16,32``.

    The result lists the numbers of devices that the training does not support, with the reasons. ``tick`` receives the
    number of finished predictions. Raises InputError if a value is invalid, or no number of devices is supported.

    >>> answer = predict_devices("star8", [1, 8], "training.compute={rate = 300.0}")
    >>> [round(row.efficiency, 2) for row in answer.cases[0].rows]
    [1.0, 0.17]
    """
    if not check_sequence("devices", devices, of="numbers"):
        raise InputError("devices must not be empty; for example, use 1,2,4,8")
    check_callable("tick", tick, of="(rank, done, total, text)")
    key, values = (None, [""]) if what_if is None else parse_sweep(what_if, "--what-if")
    if key in RENAMED_WHAT_IFS:
        warn_renamed("--what-if", key, RENAMED_WHAT_IFS[key])
    key = None if key is None else full_key("predict", RENAMED_WHAT_IFS.get(key, key))
    base = read_spread_training(scenario, overrides)
    cases, trainings, sharded = list[DevicesCase](), list[Training](), ""
    networks, price_notes = dict[str, None](), dict[str, None]()
    for number, value in enumerate(values):
        spread = base if key is None else read_spread_training(scenario, (*overrides, f"{key}={value}"))
        training = find_training(spread, base.training.batch_size)
        price = find_price(spread, base, devices)
        rows, refused = list[DevicesRow](), list[Refused]()
        for place, each in enumerate(devices):
            done, total = number * len(devices) + place, len(values) * len(devices)
            tick(0, done, total, f"predictions, {count(each, 'device')}")
            try:
                rows.append(_predict_row(each, spread, training, price.bill(each)))
            except InputError as error:
                refused.append(Refused(each, str(error)))
        if price.note is not None and any(row.epoch or row.target for row in rows):
            price_notes[price.note] = None
        if rows and training.job.parallelism.has_dtensors:
            sharded = OWN_WORK.format(strategy=rows[-1].parallelism)
        cases.append(DevicesCase(value, tuple(rows), tuple(refused)))
        trainings.append(training)
        networks |= dict.fromkeys(describe_network(spread.cluster))
    if not any(case.rows for case in cases):
        reason = cases[0].refused[-1].reason
        raise InputError(f"{base.path}: training: {reason}")
    return DevicesAnswer(
        title=base.title,
        file=str(base.path),
        cluster=base.cluster.title,
        model=trainings[-1].job.model.model,
        compute=_join_sources(values, trainings),
        cases=tuple(cases),
        key=key,
        conclusions=(*filter(None, [sharded]), *_conclude(key, cases), *networks, *price_notes),
    )


def _join_sources(values: Sequence[str], trainings: Sequence[Training]) -> str:
    """Return the sources of the compute times as text. If they differ, each is followed by its what-if values."""
    values_of: dict[str, list[str]] = {}
    for value, each in zip(values, trainings, strict=True):
        source = each.compute.source if each.compute is not None else each.source
        if each.compute is None:
            source += f": {each.rate_alone:.4g} samples/s on one device"
        values_of.setdefault(source, []).append(value)
    if len(values_of) == 1:
        return next(iter(values_of))
    return "; ".join(f"{source} ({', '.join(map(cut, named))})" for source, named in values_of.items())


def _predict_row(devices: int, spread: SpreadTraining, training: Training, hourly: float | None) -> DevicesRow:
    """Predict the step on ``devices`` devices at ``hourly`` dollars per hour for all devices."""
    check_devices(spread.cluster, devices)
    step, alone = training.predict(devices), training.rate_alone
    bounds, shares = step.interval(), step.efficiency_interval()
    shape, epoch, tokens_per_s, mfu = training.job.model.shape, spread.training.epoch, None, None
    context = None if shape is None else shape.context
    with refusals_about(f"{spread.path}: plan"):
        target = spread.plan.find_samples(context)
    if context is not None:
        tokens_per_s = step.rate * context
        host, precision = training.host, training.job.precision
        if isinstance(host.gpu, str) and precision in PRECISIONS:
            mfu = tokens_per_s * training.job.token_flops / (host.device.peak(precision) * devices)
    return DevicesRow(
        devices=devices,
        parallelism=", ".join(each.label for each in (step.job.parallelism, spread.algorithm) if each is not None),
        samples_per_s=step.rate,
        interval=bounds,
        efficiency=step.efficiency * step.alone / alone,
        efficiency_interval=(shares[0] * step.alone / alone, shares[1] * step.alone / alone),
        step_s=step.parts.total,
        step_interval=(step.parts.total * step.rate / bounds[1], step.parts.total * step.rate / bounds[0]),
        parts=step.parts._asdict(),
        parts_intervals=step.parts_intervals(),
        memory=step.memory,
        bottleneck=step.parts.bottleneck[0],
        bottleneck_share=step.parts.bottleneck[1],
        epoch=None if epoch is None else Bill.of(epoch, step.rate, bounds, hourly),
        target=None if target is None else Bill.of(target, step.rate, bounds, hourly),
        tokens_per_s=tokens_per_s,
        chance_to_run=step.chance_to_run,
        mfu=mfu,
    )


def _conclude(key: str | None, cases: Sequence[DevicesCase]) -> list[str]:
    sentences = [*_describe_refused(key, cases)]
    rates = {tuple((row.devices, row.samples_per_s) for row in case.rows) for case in cases}
    is_equal = len(cases) > 1 and len(rates) == 1
    if is_equal:
        sentences.append(f"The value of {key} does not change the throughput{WITHOUT_EFFECT.get(key or '', '')}.")
    for case in cases[: 1 if is_equal else None]:
        if not case.rows:
            continue
        last = case.rows[-1]
        where = f"with {key} = {cut(case.value)}, " if key and not is_equal else ""
        on = f"{where}on {count(last.devices, 'device')}"
        if last.bottleneck == "compute":
            sentences.append(f"{on}, compute takes {last.bottleneck_share:.0%} of the step and is the bottleneck.")
        else:
            gain = 1 / (1 - last.bottleneck_share)
            sentences.append(
                f"{on}, the bottleneck is {WORDS[last.bottleneck]}: {last.bottleneck_share:.0%} of the step. "
                f"Without it, a step would be {gain:.2f} times as fast."
            )
        if above := [row.devices for row in case.rows if row.efficiency > 1 + NOTICED]:
            sentences.append(
                f"{where}on {name_some(above)} devices, the efficiency exceeds 100%: each device updates only its "
                "shard of the parameters, but a single device updates all of them."
            )
        sentences += filter(None, [describe_chance(on, last.memory["total"], last.chance_to_run)])
    return [sentence[0].upper() + sentence[1:] for sentence in sentences]


def _describe_refused(key: str | None, cases: Sequence[DevicesCase]) -> Iterator[str]:
    """Yield a sentence for each reason why predictions are missing. Reasons that differ only in numbers are merged."""
    kinds: dict[tuple[str, tuple[int, ...]], tuple[list[str], list[str]]] = {}
    for case in cases:
        by_reason: dict[str, list[Refused]] = {}
        for each in case.refused:
            by_reason.setdefault(re.sub(NUMBERS, "", each.reason), []).append(each)
        for reason, refused in by_reason.items():
            reasons, values = kinds.setdefault((reason, tuple(each.devices for each in refused)), ([], []))
            reasons += [each.reason for each in refused]
            values.append(case.value)
    for (_, devices), (reasons, values) in kinds.items():
        where = f" with {key} = {name_some([*map(cut, values)])}" if key else ""
        on = count(devices[0], "device") if len(devices) == 1 else f"{name_some(devices)} devices"
        whose = ""
        if len(set(reasons)) > 1:
            first = f" with {key} = {cut(values[0])}" if len(values) > 1 else ""
            whose = f"; the numbers are those of {count(devices[0], 'device')}{first}"
        yield f"no prediction for {on}{where}: {reasons[0]}{whose}."


def _what_if_table(key: str, cases: Sequence[DevicesCase]) -> Table:
    counts = sorted({row.devices for case in cases for row in case.rows})
    rows = []
    for case in cases:
        row_of = {row.devices: row for row in case.rows}
        cells = [
            NOTHING if row is None else f"{format_digits(row.samples_per_s)} {row.efficiency:>5.0%}"
            for row in map(row_of.get, counts)
        ]
        rows.append([case.value, *cells])
    headings = [key.rpartition(".")[2], *(f"samples/s on {devices}\nefficiency" for devices in counts)]
    return Table(None, headings, rows, letters=len(f"samples/s on {counts[-1]}") + 2 if counts else 0)


def _table_rows(rows: Sequence[DevicesRow]) -> list[list[str]]:
    lines = [
        ["strategy", *(row.parallelism for row in rows)],
        ["samples/s", *(format_interval(row.samples_per_s, row.interval) for row in rows)],
        ["tokens/s", *(format_or_dash(row.tokens_per_s, format_whole) for row in rows)],
        ["MFU", *(format_or_dash(row.mfu, "{:.0%}".format) for row in rows)],
        ["efficiency", *map(_format_efficiency, rows)],
        _time_row("step", [row.step_s for row in rows], [row.step_interval for row in rows]),
        *(_time_row(f"  {LABELS.get(name, name)}", [row.parts[name] for row in rows]) for name in rows[0].parts),
        ["memory of a device", *(format_size(row.memory["total"]) for row in rows)],
    ]
    for name, cost, bills in (
        ("epoch", "cost of an epoch", [row.epoch for row in rows]),
        ("training", "cost of training", [row.target for row in rows]),
    ):
        lines.append(
            _time_row(name, [bill and bill.seconds for bill in bills], [bill and bill.interval for bill in bills])
        )
        dollars = [format_interval(bill and bill.dollars, bill and bill.dollars_interval) for bill in bills]
        lines.append([cost, *(cell if cell == NOTHING else f"${cell}" for cell in dollars)])
    return [line for line in lines if {*line[1:]} != {NOTHING}]


def _time_row(name: str, seconds: Sequence[float | None], bounds: Sequence[Bounds | None] = ()) -> list[str]:
    """Return a table row of times in one unit, with their intervals. Times under 0.5 us are shown as a dash."""
    shown = [each if each and each >= WORTH_A_LINE_S else None for each in seconds]
    unit, form = time_unit(shown)
    cells = [each and f"{format_interval(each, limits, form)} {unit}" for each, limits in zip_longest(shown, bounds)]
    return [name, *(cell or NOTHING for cell in cells)]


def _format_efficiency(row: DevicesRow) -> str:
    if row.devices == 1:
        return f"{row.efficiency:.0%}"
    low, high = (f"{100 * bound:.0f}" for bound in row.efficiency_interval)
    return f"{row.efficiency:.0%} ({low}-{high})"
