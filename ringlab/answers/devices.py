"""``DevicesAnswer``: a training on 1, 2, 4 ... N devices: rate, efficiency, where a step's seconds go, memory, cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from collectives.declaration import NCCL
from collectives.errors import InputError
from collectives.quoting import cut
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace
from collectives.units import count
from ringlab.answers.devices_rows import Case, DevicesRow, Refused
from ringlab.answers.devices_words import OWN_WORK, conclude
from ringlab.answers.scenario_sweep import parse_sweep
from ringlab.shared.answer import SCHEMA_VERSION, Record
from ringlab.shared.models import find_job
from ringlab.shared.progress import Tick
from scenarios.devices_form import SpreadTraining, read_spread_training
from simcomm.mesh.clusters import MeshCluster
from simcomm.mesh.step import StepModel, StepPrediction
from simcomm.scaling.gpu_rates import ComputeSource, find_compute

if TYPE_CHECKING:
    from simcomm.nccl.clusters import NcclCluster

COVERAGE = 0.8
ALIASES = {
    "bandwidth": "cluster.bandwidth", "link": "cluster.bandwidth", "latency": "cluster.latency",
    "batch": "training.batch_size", "bucket": "training.parallelism.bucket_mb", "precision": "training.precision",
    "algorithm": "training.gradient_sync", "form": "training.parallelism.form", "preset": "cluster.preset",
}  # fmt: skip
LINKS = {  # what joins the GPUs of a host, as a what-if calls it: keys of a description
    "nvlink": (), "pcie": ('link="pcie"', "p2p=true"), "host": ('link="pcie"', "p2p=false"),
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class DevicesAnswer(Record):
    """What ``predict --devices`` found."""

    title: str
    file: str
    cluster: str
    model: str
    compute: str  # where the times of one device come from
    cases: tuple[Case, ...]
    key: str | None = None
    conclusions: tuple[str, ...] = ()
    trace: Trace | None = None  # a step on the last number of devices

    def __repr__(self) -> str:
        return f"<DevicesAnswer of {self.title!r}>"

    @property
    def subject(self) -> str:
        """The model and the cluster."""
        return f"{self.model} on {self.cluster}"

    def to_dict(self) -> dict[str, Any]:
        """Return what the command writes as JSON."""
        about = {key: getattr(self, key) for key in ("title", "file", "cluster", "model", "compute")}
        found = {"schema_version": SCHEMA_VERSION, "kind": "devices", **about}
        cases = [
            {"value": case.value, "rows": [row._asdict() for row in case.rows],
             "refused": [one._asdict() for one in case.refused]}
            for case in self.cases
        ]  # fmt: skip
        if self.key is not None:
            return {**found, "key": self.key, "cases": cases, "conclusions": list(self.conclusions)}
        return {
            **found,
            "rows": cases[0]["rows"],
            "refused": cases[0]["refused"],
            "conclusions": list(self.conclusions),
        }

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
    cases, sources, base = list[Case](), list[str](), read_spread_training(scenario, overrides)
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
    answer = DevicesAnswer(
        base.title, str(base.path), base.cluster.title, model.job.model.model, _join_sources(values, sources),
        tuple(cases), key,
    )  # fmt: skip
    said = [OWN_WORK.format(form=divided[-1])] if divided else []
    said += conclude(answer.key, answer.cases)
    return replace(answer, conclusions=tuple(said), trace=_trace(answer.title, last))


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
    from simcomm.cluster.presets import machine_entries

    if link == "nvlink" and cluster.system.link == "pcie":
        raise InputError(
            f'--what-if link=nvlink: {found.cluster.title} joins its GPUs by PCIe (link = "pcie"); there are pcie and '
            "host"
        )
    table = "description" if cluster.system.preset in machine_entries() else "system"
    return read_spread_training(scenario, (*overrides, *(f"cluster.{table}.{change}" for change in LINKS[link])))


def _nccl_cluster(spread: SpreadTraining) -> "NcclCluster | None":
    """Return the training's cluster, if NCCL joins it."""
    transport = spread.cluster.transport
    return cast("NcclCluster", spread.cluster) if transport is not None and transport.name == NCCL else None


def _case(
    value: str, spread: SpreadTraining, model: StepModel, devices: Sequence[int], on_row: Callable[[int], None]
) -> tuple[Case, StepPrediction | None]:
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
    return Case(value, tuple(rows), tuple(refused)), last


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
    )


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
    said = training.compute.source(stated_batch) if training.compute is not None else ComputeSource()
    try:
        compute = find_compute(job, said, mesh.gpu)
    except InputError as error:
        raise InputError(f"{spread.path}: training.compute: {error}") from error
    return StepModel(job, compute, mesh.join, mesh.device)
