"""``DevicesAnswer``: a training on 1, 2, 4 ... N devices: rate, efficiency, where a step's seconds go, memory, cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from collectives.declaration import NCCL
from collectives.errors import InputError
from collectives.quoting import cut
from collectives.records.model_profile import (
    ModelProfile,
)
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace
from collectives.units import count
from collectives.workload import ComputePhases
from ringlab.answers.devices_rows import Case, DevicesRow, Refused
from ringlab.answers.devices_words import OWN_WORK, conclude
from ringlab.answers.scenario_sweep import parse_sweep
from ringlab.shared.answer import SCHEMA_VERSION, Record
from ringlab.shared.models import find_profile
from ringlab.shared.progress import Tick
from scenarios.devices_form import SpreadTraining, read_spread_training
from simcomm.parallelism.compute import MEASURED_SPREAD, Compute, as_measured, at_rate, measured_rate
from simcomm.parallelism.interconnect import Interconnect, NcclInterconnect, SimulatedInterconnect
from simcomm.parallelism.step import StepModel, StepPrediction

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
PUBLISHED = {  # models of which published trainings say the rate of one GPU, as these call them
    "alexnet": "AlexNet", "inception_v3": "InceptionV3", "resnet50": "ResNet-50", "resnet101": "ResNet-101",
    "resnet152": "ResNet-152", "vgg16": "VGG16", "bert-base-128": "BERT-base-128", "bert-base-384": "BERT-base-384",
    "bert-large-128": "BERT-large-128", "bert-large-384": "BERT-large-384",
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
        model = _step_model(spread, base.batch_size)
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
        base.title, str(base.path), base.cluster.title, model.profile.model, _join_sources(values, sources),
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
            found = model.predict(spread.parallelism, number, spread.batch_size)
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
    samples, price = spread.samples_per_epoch, spread.price_per_hour
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
    cluster = _nccl_cluster(spread)
    gpu = None if cluster is None else _gpu_of(cluster)
    try:
        profile = find_profile(spread, spread.folder)
    except InputError as error:
        raise InputError(f"{spread.path}: training: {error}") from error
    compute = _compute(spread, profile, gpu, stated_batch)
    if cluster is None:
        return StepModel(
            compute,
            lambda count: _simulated(spread, count),
            optimizer=spread.optimizer,
            precision=spread.precision,
            loader_rate=spread.loader_rate or 0.0,
        )
    memory, bandwidth = None, 0.0
    if gpu is not None:
        from simcomm.cluster.hardware_parts import find_part, memory_bytes

        figures = find_part("GPU", gpu)
        memory = memory_bytes(gpu)
        if "memory_bandwidth" in figures:
            bandwidth = float(figures["memory_bandwidth"].value.split()[0]) * 1e9
    return StepModel(
        compute, lambda count: _of_nccl(spread, cluster, count), memory=memory, device=gpu or "a device",
        loader_rate=spread.loader_rate or 0.0, memory_bandwidth=bandwidth, input_bytes=spread.input_bytes,
        optimizer=spread.optimizer, precision=spread.precision, variable_batches=spread.variable_batches,
        cores=_cores(cluster),
    )  # fmt: skip


def _cores(cluster: "NcclCluster") -> int:
    """Return the cores of a host of a NCCL cluster: of a machine of the catalogue also those of GPUs not used."""
    from simcomm.cluster.presets import machine_entries
    from simcomm.nccl.catalogue import gpus_of_host
    from simcomm.scaling.descriptions import CORES

    system = cluster.system
    return CORES * (gpus_of_host(system.preset) if system.preset in machine_entries() else system.gpus)


def _gpu_of(cluster: "NcclCluster") -> str | None:
    """Return the name of a NCCL cluster's GPU in the catalogue, with its memory where a preset says it."""
    from simcomm.cluster.hardware_parts import parts
    from simcomm.cluster.presets import machine_entries

    system = cluster.system
    name = str(machine_entries()[system.preset]["gpu"]) if system.preset in machine_entries() else system.gpu.name
    return name if name in parts("GPU") else None


def _compute(spread: SpreadTraining, profile: ModelProfile, gpu: str | None, stated_batch: int) -> Compute:
    """Return the computing by what is known best: measured here, measured on another GPU, published."""
    source, phases = spread.compute, spread.phases
    if source is not None and source.rate is not None:
        if source.gpu is None or gpu is None or source.gpu == gpu:
            return at_rate(profile, source.rate)
        return _by_law(spread, profile, gpu, {source.gpu: source.rate})
    if phases is not None:
        return _of_phases(profile, phases, stated_batch)
    if source is not None and source.profile is not None and profile.measured:
        return as_measured(profile) if gpu is None else _measured_for(spread, profile, gpu)
    named = (source.gpu if source is not None else None) or gpu
    if named is None:
        raise InputError(
            f"{spread.path}: training.compute: nothing says how fast a device computes; give "
            'compute = {profile = "FILE.json"} with times (ringlab profile), {rate = 500.0} or {gpu = "RTX 4090"}'
        )
    return _by_law(spread, profile, named, {})


def _measured_for(spread: SpreadTraining, profile: ModelProfile, gpu: str) -> Compute:
    """Return a profile's times for a GPU; those of another type say by their rate what this one does."""
    from simcomm.nccl.catalogue import find_gpu

    measured, rate = measured_rate(profile, f"{spread.path}: training.compute.profile")
    return as_measured(profile) if measured == find_gpu(gpu).name else _by_law(spread, profile, gpu, {measured: rate})


def _by_law(spread: SpreadTraining, profile: ModelProfile, gpu: str, known: dict[str, float]) -> Compute:
    """Return the computing at the rate of a GPU that follows from ``known`` ones of others, or from published ones.

    How types of GPUs compare is known from published rates (``simcomm/scaling/one_gpu.py``).
    """
    from simcomm.renting.one_gpu import OneGpu
    from simcomm.scaling.descriptions import Job
    from simcomm.scaling.models import find_model

    like = PUBLISHED.get(profile.model)
    job = Job(find_model(like) if like else profile, spread.batch_size, spread.precision)
    try:
        found = OneGpu(job, known, [gpu], "gpu").rate(gpu)
    except InputError as error:
        raise InputError(f"{spread.path}: training.compute: {error}") from error
    if known:
        ((other, rate),) = known.items()
        source = f"{rate:.4g} samples/s on one {other}, and how {gpu} compares in published rates"
    else:
        source = f"published rates of {like} on one GPU" if like else "published rates of other models on one GPU"
    return replace(at_rate(profile, found.median, source), spread=found.spread)


def _of_phases(profile: ModelProfile, phases: ComputePhases, batch_size: int) -> Compute:
    """Return the stated phases of a batch, divided among the layers by their work."""
    ahead, back = (
        tuple(seconds / batch_size * each / sum(work) for each in work)
        for seconds, work in ((phases.forward, profile.work(False)), (phases.backward, profile.work(True)))
    )
    return Compute(profile, ahead, back, phases.optimizer, f"stated for batches of {batch_size}", MEASURED_SPREAD)


def _simulated(spread: SpreadTraining, count: int) -> Interconnect:
    cluster = spread.cluster
    if count > cluster.world_size:
        raise InputError(
            f"{cluster.title} has {cluster.world_size} devices; for {count} give a larger one, as --set cluster.hosts="
            f"{count}"
        )
    return SimulatedInterconnect(cluster, spread.algorithm)


def _of_nccl(spread: SpreadTraining, cluster: "NcclCluster", count: int) -> NcclInterconnect:
    """Return what joins so many GPUs of a NCCL cluster, with what shares a host's links. Raise InputError."""
    system = cluster.system
    if count <= system.gpus:
        return NcclInterconnect(replace(system, nodes=1, gpus=count), cluster.settings, spread.contention)
    if count % system.gpus:
        raise InputError(f"{count} devices do not fill hosts of {system.gpus}; give a multiple of {system.gpus}")
    nodes = count // system.gpus
    if nodes > system.nodes and (system.net is None or not system.nic):
        raise InputError(
            f"{cluster.title} has {system.ranks} devices and no network is known; for {count} set cluster.nodes"
        )
    return NcclInterconnect(replace(system, nodes=nodes), cluster.settings, spread.contention)
