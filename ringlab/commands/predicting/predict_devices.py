"""``ringlab predict --devices``: a training on 1, 2, 4 ... N devices.

Rate, efficiency, where a step's seconds go, memory and cost.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from collectives.checks import check_callable, check_sequence
from collectives.declaration import NCCL
from collectives.errors import InputError
from collectives.quoting import cut
from collectives.records.model_profile import flops_per_token, is_transformer, parse_transformer
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace
from collectives.removed import RENAMED_WHAT_IFS, warn_renamed
from collectives.units import count
from planner.gpus import PRECISIONS, find_gpu, is_known
from planner.mesh.clusters import mesh_cluster
from planner.mesh.prediction import StepPrediction
from planner.mesh.step import StepModel
from planner.scaling.gpu_rates import find_compute
from ringlab.commands.predicting.devices_answer import Bill, DevicesAnswer, DevicesCase, DevicesRow, Refused, conclude
from ringlab.commands.predicting.predict_sweep import parse_sweep
from ringlab.shared.failures import refusals_about
from ringlab.shared.models import find_job, find_language_model, find_source
from ringlab.shared.prices import find_price
from ringlab.shared.progress import Tick
from scenarios.loader import SpreadTraining, read_spread_training
from simcomm.cluster.hardware import machine_entries
from simcomm.nccl.clusters import NcclCluster

COVERAGE = 0.8
ALIASES = {
    "bandwidth": "cluster.bandwidth", "link": "cluster.bandwidth", "latency": "cluster.latency",
    "batch": "training.batch_size", "bucket": "training.parallelism.bucket_mb", "precision": "training.precision",
    "algorithm": "training.gradient_sync", "strategy": "training.parallelism.strategy", "preset": "cluster.preset",
    "framework": "training.framework",
}  # fmt: skip
LINKS = {  # what joins the GPUs of a host, as a what-if calls it: keys of a description
    "nvlink": (), "pcie": ('link="pcie"', "p2p=true"), "host": ('link="pcie"', "p2p=false"),
}  # fmt: skip
OWN_WORK = (
    "What torch itself does for each operation on divided parameters ({strategy}) is not in the step: processors take "
    "longer by it, and GPUs whose kernels are short (docs/how-to/predict-n-gpus.md)."
)


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
    if not check_sequence("devices", devices, of="numbers"):
        raise InputError("devices must not be empty; use for example 1,2,4,8")
    check_callable("tick", tick, of="(rank, done, total, text)")
    key, values = _parse_what_if(what_if)
    cases, sources, base = list[DevicesCase](), list[str](), read_spread_training(scenario, overrides)
    prices = dict[str, None]()  # what is said of them
    spread, model, last, divided = base, None, None, list[str]()
    for place, value in enumerate(values):

        def on_row(number: int, before: int = place * len(devices)) -> None:
            tick(0, before + number, len(values) * len(devices), f"predictions, {count(devices[number], 'device')}")

        spread = base if key is None else _read_with(scenario, overrides, base, f"{key}={value}")
        model = _step_model(spread, base.training.batch_size)
        price = find_price(spread, base, devices)
        case, found = _case(value, spread, model, devices, price.dollars, on_row)
        if price.note is not None and any(row.epoch or row.target for row in case.rows):
            prices[price.note] = None
        cases.append(case)
        sources.append(model.compute.source)
        if found is not None and found.parallelism.has_dtensors:
            divided.append(found.parallelism.label)
        last = found or last
    assert model is not None
    if last is None:
        raise InputError(f"{spread.path}: training: {cases[0].refused[-1].reason}")
    said = [OWN_WORK.format(strategy=divided[-1])] if divided else []
    return DevicesAnswer(
        title=base.title,
        file=str(base.path),
        cluster=base.cluster.title,
        model=model.job.model.model,
        compute=_join_sources(values, sources),
        cases=tuple(cases),
        key=key,
        conclusions=(*said, *conclude(key, cases), *prices),
        trace=_trace(base.title, last),
    )


def _step_model(spread: SpreadTraining, stated_batch: int) -> StepModel:
    """Return what predicts the steps of a training, whose stated phases are of ``stated_batch`` samples.

    Raise InputError where no times of computing are known.
    """
    training = spread.training
    mesh = mesh_cluster(spread.cluster, spread.algorithm)
    with refusals_about(f"{spread.path}: training"):
        job = find_job(training, spread.folder)
        language = find_language_model(spread, job)
    if language is not None:
        return StepModel(language.job, language.compute, mesh.join, mesh.device, language)
    with refusals_about(f"{spread.path}: training.compute"):
        compute = find_compute(job, find_source(training, stated_batch), mesh.gpu)
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


def _parse_what_if(text: str | None) -> tuple[str | None, list[str]]:
    """Return the scenario's key and the values that a what-if varies it over; of none no key and one empty value."""
    if text is None:
        return None, [""]
    key, values = parse_sweep(text, "--what-if")
    if key == "link" and {*values} <= LINKS.keys():
        return key, values
    if key in RENAMED_WHAT_IFS:
        warn_renamed("--what-if", key, RENAMED_WHAT_IFS[key])
        key = RENAMED_WHAT_IFS[key]
    return ALIASES.get(key, key), values


def _read_with(scenario: str | Path, overrides: Sequence[str], base: SpreadTraining, change: str) -> SpreadTraining:
    """Return the scenario's training with a changed key; ``link`` stands for what joins the GPUs of a host.

    Raises InputError, also if ``base``, the unchanged training, is not on GPUs that another link can join.
    """
    key, _, link = change.partition("=")
    if key != "link":
        return read_spread_training(scenario, (*overrides, change))
    cluster = _nccl_cluster(base)
    if cluster is None:
        raise InputError(
            f"--what-if {change}: {base.cluster.title} does not describe GPUs within a host; use "
            "bandwidths, such as link=1,10Gbit/s"
        )
    if link == "nvlink" and cluster.system.link == "pcie":
        raise InputError(
            f"--what-if {change}: the GPUs of {base.cluster.title} are connected by PCIe (link = "
            '"pcie"); use pcie or host'
        )
    table = "description" if cluster.system.preset in machine_entries() else "system"
    return read_spread_training(scenario, (*overrides, *(f"cluster.{table}.{change}" for change in LINKS[link])))


def _nccl_cluster(spread: SpreadTraining) -> NcclCluster | None:
    """Return the training's cluster, if NCCL joins it."""
    transport = spread.cluster.transport
    return cast(NcclCluster, spread.cluster) if transport is not None and transport.name == NCCL else None


def _case(
    value: str,
    spread: SpreadTraining,
    model: StepModel,
    devices: Sequence[int],
    price: float | None,
    on_row: Callable[[int], None],
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
        alone = model.job.batch / model.compute.step(model.job.batch)
        rows.append(_row(found, spread, price, alone))
        last = found
    return DevicesCase(value, tuple(rows), tuple(refused)), last


def _row(found: StepPrediction, spread: SpreadTraining, price: float | None, alone: float) -> DevicesRow:
    """Return what is shown of a step; ``alone`` is the rate of one device in samples/s, to which efficiency refers."""
    low, high = found.interval(COVERAGE)
    least, most = found.efficiency_interval(COVERAGE)
    worst = max(found.memory, key=lambda one: one.total)
    name, share = found.bottleneck
    hourly = None if price is None else price * found.devices / 3600
    epoch, target = spread.training.epoch, _find_target(spread)
    return DevicesRow(
        devices=found.devices,
        parallelism=found.parallelism.label + (f", {spread.algorithm.label}" if spread.algorithm is not None else ""),
        samples_per_s=found.rate,
        interval=(low, high),
        efficiency=found.efficiency * found.alone / alone,
        efficiency_interval=(least * found.alone / alone, most * found.alone / alone),
        step_s=found.parts.total,
        step_interval=(found.parts.total * found.rate / high, found.parts.total * found.rate / low),
        parts=found.parts.as_dict(),
        parts_intervals=found.parts_intervals(COVERAGE),
        memory={**worst.as_dict(), "total": worst.total},
        bottleneck=name,
        bottleneck_share=share,
        sent_bytes=found.sent_bytes,
        calls=_calls(found),
        epoch=None if epoch is None else _bill(epoch, found.rate, (low, high), hourly),
        target=None if target is None else _bill(target, found.rate, (low, high), hourly),
        chance_to_run=found.chance_to_run,
        **_of_language(found, spread),
    )


def _find_target(spread: SpreadTraining) -> float | None:
    """Return the samples of the whole training, where ``[plan]`` says how many. Raise InputError."""
    model = spread.training.model
    with refusals_about(f"{spread.path}: plan"):
        return spread.plan.find_samples(parse_transformer(model)[1].context if is_transformer(model) else None)


def _bill(samples: float, rate: float, bounds: tuple[float, float], hourly: float | None) -> Bill:
    """Return time and cost of samples at a rate and between its bounds; ``hourly`` are dollars a second."""
    seconds, interval = samples / rate, (samples / bounds[1], samples / bounds[0])
    if hourly is None:
        return Bill(seconds, interval)
    return Bill(seconds, interval, seconds * hourly, (interval[0] * hourly, interval[1] * hourly))


def _of_language(found: StepPrediction, spread: SpreadTraining) -> dict[str, float]:
    """Return the tokens a second of a language model, and of described GPUs the share of their FLOPs that it uses."""
    if not is_transformer(spread.training.model):
        return {}
    kind, shape = parse_transformer(spread.training.model)
    tokens = found.rate * shape.context
    gpu, precision = mesh_cluster(spread.cluster).gpu, spread.training.precision
    if gpu is None or precision not in PRECISIONS or not is_known(gpu):
        return {"tokens_per_s": tokens}
    peak = find_gpu(gpu).peak(precision)
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
