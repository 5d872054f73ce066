"""``ringlab predict --devices``: a training on 1, 2, 4 ... N devices.

Rate, efficiency, where a step's seconds go, memory and cost.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

from collectives.declaration import NCCL
from collectives.errors import InputError
from collectives.quoting import cut
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace
from collectives.records.transformer_shapes import flops_per_token, is_transformer, parse_transformer
from collectives.units import count, format_size, format_time
from ringlab.commands.predicting.predict_sweep import parse_sweep
from ringlab.shared.answer import NOT_IN_JSON, Answer
from ringlab.shared.models import find_job, find_source
from ringlab.shared.output import Outputs, check_outputs, deliver
from ringlab.shared.progress import TerminalProgress, Tick, computing
from ringlab.shared.ranges import parse_world_sizes
from ringlab.table import NOTHING, Line, Part, Sentences, Table, format_digits, format_or_dash, format_whole_percent
from scenarios.loader import SpreadTraining, read_spread_training
from simcomm.cluster.hardware_parts import find_part
from simcomm.cluster.presets import machine_entries
from simcomm.mesh.clusters import MeshCluster
from simcomm.mesh.step import StepModel, StepPrediction
from simcomm.mesh_search.columns import PRECISIONS
from simcomm.mesh_search.devices import find_mesh_gpu
from simcomm.nccl.clusters import NcclCluster
from simcomm.scaling.gpu_rates import find_compute

COVERAGE = 0.8
ALIASES = {
    "bandwidth": "cluster.bandwidth", "link": "cluster.bandwidth", "latency": "cluster.latency",
    "batch": "training.batch_size", "bucket": "training.parallelism.bucket_mb", "precision": "training.precision",
    "algorithm": "training.gradient_sync", "form": "training.parallelism.form", "preset": "cluster.preset",
}  # fmt: skip
LINKS = {  # what joins the GPUs of a host, as a what-if calls it: keys of a description
    "nvlink": (), "pcie": ('link="pcie"', "p2p=true"), "host": ('link="pcie"', "p2p=false"),
}  # fmt: skip
COLUMNS = 5  # side by side; more are in tables of their own
WITHIN = "  80 % within"
LEAST_S = 5e-7  # of a step, that is worth a line
UNITS = (("h", 3600.0, 7200.0), ("s", 1.0, 1.0), ("ms", 1e-3, 1e-3), ("us", 1e-6, 0.0))  # seconds, and used from
PARTS = {
    "compute": "compute", "optimizer": "optimizer", "tensor": "tensor", "expert": "experts", "pipeline": "pipeline",
    "sync": "sync", "steal": "steal", "copies": "copies", "stragglers": "stragglers", "input": "loading",
    "contention": "shared links", "processes": "processes",
}  # fmt: skip
MOST_LISTED = 5  # values or numbers of devices in a sentence
NUMBERS = r"(?<![\w.])[0-9][0-9.,]*( [KMGT]?i?B)?"  # with their units, in which reasons may differ
NOTICED = 0.001  # of a step: what sharing links adds is said from here on
WORDS = {
    "sync": "exchanging gradients and parameters", "tensor": "collectives within layers (tensor)",
    "expert": "all_to_alls of experts", "pipeline": "waiting for other stages of the pipeline",
    "input": "loading of samples", "copies": "passes over gradients",
    "processes": "waiting for the other GPUs' processes, which share a host's cores",
    "stragglers": "waiting for the slowest device", "compute": "computing",
    "contention": "links that traffic of a step shares",
}  # fmt: skip
WITHOUT_EFFECT = {
    "training.parallelism.bucket_mb": ": buckets count where gradients travel in them beside backward (`ddp`, `zero1`, "
    "`zero2`, `zero_redundancy` with `overlap`)",
    "training.precision": ": the times of computing are given, and gradients travel in 32 bits unless `half_weights`",
}
OWN_WORK = (
    "What torch itself does for each operation on divided parameters ({form}) is not in the step: processors take "
    "longer by it, and GPUs whose kernels are short (docs/parallelism.md)."
)


def command(scenario: str, overrides: tuple[str, ...], devices: str, what_if: str | None, outputs: Outputs) -> None:
    """Carry out ``ringlab predict --devices``."""
    counts = parse_world_sizes(devices, "--devices", most=65_536)
    json_to, plot, trace, explain = outputs
    if plot is not None:
        import viz  # a table does without what draws

        viz.check_file(plot, "a scaling curve")
    check_outputs(json_to, plot, trace)
    if trace is not None and not may_have_timeline(scenario, counts, *overrides, what_if=what_if):
        raise _no_timeline(trace)
    on = count(counts[0], "device") if len(counts) == 1 else f"{len(counts)} numbers of devices"
    with computing(TerminalProgress(), f"predicting {scenario} on {on}") as tick:
        answer = predict_devices(scenario, counts, *overrides, what_if=what_if, tick=tick)
    writers = [partial(answer.draw, plot)] if plot is not None else []
    if trace is not None:
        writers.append(partial(_write_timeline, answer, trace))
    deliver(answer, json_to, *writers, explain=explain)


def _write_timeline(answer: "DevicesAnswer", path: Path) -> None:
    """Write the last step as a Trace. Raise InputError where it has none."""
    if answer.trace is None:
        raise _no_timeline(path)
    answer.trace.write(path)


def _no_timeline(path: Path) -> InputError:
    return InputError(
        f"--trace {path}: of a mesh with neither a data axis nor a pipeline no timeline is made, as nothing goes on "
        "beside computing; give more devices with --devices, or training.parallelism.pipeline"
    )


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
    links_shared_between: tuple[str, ...]  # on which traffic of a step holds other traffic back
    links_shared_within: dict[str, str]  # by part of the step: on which messages of one collective do
    sent_bytes: float  # in a step, by the device that sends most
    calls: tuple[dict[str, str | float], ...]  # what this device takes part in, and how often
    epoch_s: float | None
    epoch_interval: tuple[float, float] | None
    epoch_cost: float | None
    epoch_cost_interval: tuple[float, float] | None
    tokens_per_s: float | None = None  # of a language model
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

    def __repr__(self) -> str:
        return f"<DevicesAnswer of {self.title!r}>"

    @property
    def subject(self) -> str:
        """The model and the cluster."""
        return f"{self.model} on {self.cluster}"

    def to_dict(self) -> dict[str, Any]:
        """Return what the command writes as JSON."""
        found = super().to_dict()
        conclusions = found.pop("conclusions")
        del found["cases"]
        cases = [
            {
                "value": case.value,
                "rows": [row._asdict() for row in case.rows],
                "refused": [one._asdict() for one in case.refused],
            }
            for case in self.cases
        ]
        if self.key is None:
            return {**found, "rows": cases[0]["rows"], "refused": cases[0]["refused"], "conclusions": conclusions}
        return {**found, "key": found.pop("key"), "cases": cases, "conclusions": conclusions}

    def show(self) -> Iterator[Part]:
        """Yield rate, step and memory, a column a number of devices; of a what-if the rates, a line a value."""
        yield Line(f"{self.title}: {self.subject}", "bold")
        if self.key is not None:
            yield _what_if_table(self.key, self.cases)
        else:
            (case,) = self.cases
            headings = ["devices", *(str(row.devices) for row in case.rows)]
            yield Table(None, headings, _lines(case.rows), most_beside=COLUMNS)
        yield Sentences([*self.conclusions, f"Computing: {self.compute}."])

    def draw(self, path: Path | str) -> None:
        """Write the rates against the devices as .png, .svg or .pdf, a curve a value. Raise InputError."""
        import viz  # a table does without what draws

        curves = [
            viz.Curve(
                case.value or self.model,
                [row.devices for row in case.rows],
                [row.samples_per_s for row in case.rows],
                [row.efficiency for row in case.rows],
            )
            for case in self.cases
            if case.rows
        ]
        viz.draw_scaling(self.title, f"{self.key}: a curve a value" if self.key else self.cluster, curves, path)


def predict_devices(
    scenario: str | Path,
    devices: Sequence[int],
    *overrides: str,
    what_if: str | None = None,
    tick: Tick = lambda *_: None,
) -> DevicesAnswer:
    """Predict a scenario's training on each number of devices; ``what_if`` varies a key, as ``batch=16,32,64``.

    A number of devices that the mesh or their memory refuses is left out with the reason, unless all are.
    ``tick`` is told how many are predicted. Raises InputError.

    >>> found = predict_devices("star8", [1, 8], "training.compute={rate = 300.0}")
    >>> [round(row.efficiency, 2) for row in found.cases[0].rows]
    [1.0, 0.17]
    """
    if not devices:
        raise InputError("devices is empty; give numbers of them, as 1,2,4,8")
    key, values = _parse_what_if(what_if)
    cases, sources, base = list[DevicesCase](), list[str](), read_spread_training(scenario, overrides)
    spread, model, last, divided = base, None, None, list[str]()
    for place, value in enumerate(values):

        def on_row(number: int, before: int = place * len(devices)) -> None:
            tick(0, before + number, len(values) * len(devices), f"predictions, {count(devices[number], 'device')}")

        spread = _read_with(scenario, overrides, key, value)
        model = _step_model(spread, base.training.batch_size)
        case, found = _case(value, spread, model, devices, on_row)
        cases.append(case)
        sources.append(model.compute.source)
        if found is not None and found.parallelism.has_dtensors:
            divided.append(found.parallelism.label)
        last = found or last
    assert model is not None
    if last is None:
        raise InputError(f"{spread.path}: training: {cases[0].refused[-1].reason}")
    said = [OWN_WORK.format(form=divided[-1])] if divided else []
    return DevicesAnswer(
        title=base.title,
        file=str(base.path),
        cluster=base.cluster.title,
        model=model.job.model.model,
        compute=_join_sources(values, sources),
        cases=tuple(cases),
        key=key,
        conclusions=(*said, *conclude(key, cases)),
        trace=_trace(base.title, last),
    )


def _step_model(spread: SpreadTraining, stated_batch: int) -> StepModel:
    """Return what predicts the steps of a training, whose stated phases are of ``stated_batch`` samples.

    Raise InputError where no times of computing are known.
    """
    training = spread.training
    mesh = MeshCluster(spread.cluster, spread.algorithm, frozenset(training.contention))
    try:
        job = find_job(training, spread.folder)
    except InputError as error:
        raise InputError(f"{spread.path}: training: {error}") from error
    try:
        compute = find_compute(job, find_source(training, stated_batch), mesh.gpu)
    except InputError as error:
        raise InputError(f"{spread.path}: training.compute: {error}") from error
    return StepModel(job, compute, mesh.join, mesh.device)


def _join_sources(values: Sequence[str], sources: Sequence[str]) -> str:
    """Return where the times of one device come from, with whose they are where values differ in that.

    >>> _join_sources(["8", "16"], ["stated", "stated"]), _join_sources(["fp16", "bf16"], ["stated", "published"])
    ('stated', 'stated (fp16); published (bf16)')
    """
    whose: dict[str, list[str]] = {}
    for value, source in zip(values, sources, strict=True):
        whose.setdefault(source, []).append(value)
    if len(whose) == 1:
        return sources[0]
    return "; ".join(f"{source} ({', '.join(map(cut, named))})" for source, named in whose.items())


def may_have_timeline(
    scenario: str | Path, devices: Sequence[int], *overrides: str, what_if: str | None = None
) -> bool:
    """Return whether a step on one of the numbers of devices can have a timeline, as a data axis or a pipeline has.

    It is also true where no mesh is of any of these numbers, which ``predict_devices`` says. Raises InputError.

    >>> [may_have_timeline("star8", [most], "training.parallelism={tensor = 4}") for most in (4, 8)]
    [False, True]
    """
    key, values = _parse_what_if(what_if)
    meshes = [_read_with(scenario, overrides, key, value).parallelism for value in values]
    return not all(
        mesh.pipeline == 1 and mesh.tensor in devices and (mesh.data or max(devices) // mesh.tensor) == 1
        for mesh in meshes
    )


def _parse_what_if(text: str | None) -> tuple[str | None, list[str]]:
    """Return the scenario's key and the values that a what-if varies it over; of none no key and one empty value."""
    if text is None:
        return None, [""]
    key, values = parse_sweep(text, "--what-if")
    if key == "link" and {*values} <= LINKS.keys():
        return key, values
    return ALIASES.get(key, key), values


def _read_with(scenario: str | Path, overrides: Sequence[str], key: str | None, value: str) -> SpreadTraining:
    """Return the scenario's training with a value of the key that varies, None where none does.

    The key "link" stands for what joins the GPUs of a host. Raises InputError.
    """
    if key == "link":
        return _read_joined(scenario, overrides, value)
    return read_spread_training(scenario, overrides if key is None else (*overrides, f"{key}={value}"))


def _read_joined(scenario: str | Path, overrides: Sequence[str], link: str) -> SpreadTraining:
    """Return the scenario's training on GPUs that are joined by another link. Raise InputError where no GPUs are."""
    found = read_spread_training(scenario, overrides)
    cluster = _nccl_cluster(found)
    if cluster is None:
        raise InputError(
            f"--what-if link={link}: {found.cluster.title} has no GPUs of a host to join; give bandwidths, as "
            "link=1,10Gbit/s"
        )
    if link == "nvlink" and cluster.system.link == "pcie":
        raise InputError(
            f'--what-if link=nvlink: {found.cluster.title} joins its GPUs by PCIe (link = "pcie"); there are pcie and '
            "host"
        )
    table = "description" if cluster.system.preset in machine_entries() else "system"
    return read_spread_training(scenario, (*overrides, *(f"cluster.{table}.{change}" for change in LINKS[link])))


def _nccl_cluster(spread: SpreadTraining) -> NcclCluster | None:
    """Return the training's cluster, if NCCL joins it."""
    transport = spread.cluster.transport
    return cast(NcclCluster, spread.cluster) if transport is not None and transport.name == NCCL else None


def _case(
    value: str, spread: SpreadTraining, model: StepModel, devices: Sequence[int], on_row: Callable[[int], None]
) -> tuple[DevicesCase, StepPrediction | None]:
    """Return the rows of a value, and the last step that is predicted; ``on_row`` is told the place of each before."""
    rows, refused, last = list[DevicesRow](), list[Refused](), None
    for place, number in enumerate(devices):
        on_row(place)
        try:
            found = model.predict(number)
        except InputError as error:
            refused.append(Refused(number, str(error)))
            continue
        rows.append(_row(found, spread))
        last = found
    return DevicesCase(value, tuple(rows), tuple(refused)), last


def _row(found: StepPrediction, spread: SpreadTraining) -> DevicesRow:
    low, high = found.interval(COVERAGE)
    worst = max(found.memory, key=lambda one: one.total)
    name, share = found.bottleneck
    samples, price = spread.training.epoch, spread.training.price_per_hour
    epoch = None if samples is None else samples / found.rate
    bounds = None if samples is None else (samples / high, samples / low)
    hourly = None if price is None else price * found.devices / 3600
    return DevicesRow(
        devices=found.devices,
        parallelism=found.parallelism.label + (f", {spread.algorithm.label}" if spread.algorithm is not None else ""),
        samples_per_s=found.rate,
        interval=(low, high),
        efficiency=found.efficiency,
        efficiency_interval=found.efficiency_interval(COVERAGE),
        step_s=found.parts.total,
        step_interval=(found.parts.total * found.rate / high, found.parts.total * found.rate / low),
        parts=found.parts.as_dict(),
        parts_intervals=found.parts_intervals(COVERAGE),
        memory={**worst.as_dict(), "total": worst.total},
        bottleneck=name,
        bottleneck_share=share,
        links_shared_between=tuple(map(str, found.shared_between)),
        links_shared_within={part: str(link) for part, link in found.shared_within},
        sent_bytes=found.sent_bytes,
        calls=_calls(found),
        epoch_s=epoch,
        epoch_interval=bounds,
        epoch_cost=None if epoch is None or hourly is None else epoch * hourly,
        epoch_cost_interval=None if bounds is None or hourly is None else (bounds[0] * hourly, bounds[1] * hourly),
        **_of_language(found, spread),
    )


def _of_language(found: StepPrediction, spread: SpreadTraining) -> dict[str, float]:
    """Return the tokens a second of a language model, and of described GPUs the share of their FLOPs that it uses."""
    if not is_transformer(spread.training.model):
        return {}
    kind, shape = parse_transformer(spread.training.model)
    tokens = found.rate * shape.context
    gpu, precision = MeshCluster(spread.cluster).gpu, PRECISIONS.get(spread.training.precision)
    if gpu is None or precision is None or not {"fp16", "memory", "memory_bandwidth"} <= find_part("GPU", gpu).keys():
        return {"tokens_per_s": tokens}
    peak = getattr(find_mesh_gpu(gpu), precision)
    return {"tokens_per_s": tokens, "mfu": tokens * flops_per_token(kind, shape) / (peak * found.devices)}


def _calls(found: StepPrediction) -> tuple[dict[str, str | float], ...]:
    """Return the calls of the device that sends most, those that are alike in one."""
    most = max(found.calls, key=lambda calls: sum(call.sent for call in calls))
    return tuple(
        {"collective": call.collective, "bytes": call.nbytes, "ranks": call.group.size, "times": call.times}
        for call in most
    )


def _trace(title: str, found: StepPrediction) -> Trace | None:
    """Return a step as a Trace with a rank a stage; without a pipeline a rank computes and others communicate."""
    if not found.spans:
        return None
    spans, stages = list[Span](), found.parallelism.pipeline
    streams = [*dict.fromkeys(("compute", "communication", *(stream for _, stream, _, _ in found.spans)))]
    for name, stream, begin, end in found.spans:
        rank = int(stream.rpartition(" ")[2]) if stages > 1 else streams.index(stream)
        spans.append(Span(rank, name, 0, begin, end, collective=0))
    hosts = [f"stage {stage}" for stage in range(stages)] if stages > 1 else streams
    label, elapsed = f"{title}: {found.parallelism.label}", max(span.end for span in spans)
    return Trace(label, "predicted", len(hosts), elapsed, spans=Spans.of(spans).sorted(), nodes=hosts, hosts=hosts)


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
            said.append(f"{on} the step is {last.bottleneck_share:.0%} computing: nothing else holds it back.")
        else:
            gain = 1 / (1 - last.bottleneck_share)
            said.append(
                f"{on} what holds it back is {WORDS[last.bottleneck]}, {last.bottleneck_share:.0%} of the step: "
                f"without it {gain:.2f} times as fast."
            )
        if last.bottleneck in last.links_shared_within:
            said.append(f"{last.links_shared_within[last.bottleneck]}.")
        if last.parts["contention"] >= NOTICED * last.step_s:
            more = last.parts["contention"] / (last.step_s - last.parts["contention"])
            said += [
                f"{where}{link}, which makes the step {more:.1%} longer." for link in last.links_shared_between[:1]
            ]
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
        where = f" with {key} = {_listed(values)}" if key else ""
        on = count(devices[0], "device") if len(devices) == 1 else f"{_listed(devices)} devices"
        whose = ""
        if len(set(reasons_of)) > 1:
            first = f" with {key} = {cut(values[0])}" if len(values) > 1 else ""
            whose = f"; these are the figures of {count(devices[0], 'device')}{first}"
        yield f"Left out, {on}{where}: {reasons_of[0]}{whose}."


def _listed(items: Sequence[object]) -> str:
    """Return items in words, of many how many more there are.

    >>> _listed([1, 2, 4]), _listed(range(20))
    ('1, 2 and 4', '0, 1, 2, 3, 4 and 15 more')
    """
    shown = [cut(str(one)) for one in items[:MOST_LISTED]]
    last = f"{len(items) - MOST_LISTED} more" if len(items) > MOST_LISTED else shown.pop()
    return f"{', '.join(shown)} and {last}" if shown else last


def _what_if_table(key: str, cases: Sequence[DevicesCase]) -> Table:
    """Return samples a second by value and number of devices, each with its efficiency.

    The heading is the last word of the key that varies; sentences below say all of it.
    """
    counts = sorted({row.devices for case in cases for row in case.rows})
    rows = []
    for case in cases:
        found = {row.devices: row for row in case.rows}
        cells = [
            NOTHING if row is None else f"{format_digits(row.samples_per_s)} {format_whole_percent(row.efficiency):>5}"
            for row in map(found.get, counts)
        ]
        rows.append([case.value, *cells])
    headings = [key.rpartition(".")[2], *(f"samples/s on {count}\nefficiency" for count in counts)]
    letters = len(f"samples/s on {counts[-1]}") + 2 if counts else 0
    return Table(None, headings, rows, letters=letters)


def _language_lines(rows: Sequence[DevicesRow]) -> list[list[str]]:
    lines = [
        ["tokens/s", *(format_or_dash(row.tokens_per_s, format_digits) for row in rows)],
        ["MFU", *(format_or_dash(row.mfu, format_whole_percent) for row in rows)],
    ]
    return [line for line in lines if {*line[1:]} != {NOTHING}]


def _lines(rows: Sequence[DevicesRow]) -> list[list[str]]:
    """Return the lines of a table: what is nowhere is left out."""
    lines = [
        ["form", *(row.parallelism for row in rows)],
        ["samples/s", *(format_digits(row.samples_per_s) for row in rows)],
        [WITHIN, *(_range(row.interval) for row in rows)],
        *_language_lines(rows),
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
