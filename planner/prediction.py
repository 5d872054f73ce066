"""Predict the step of a job on identical hosts, on any number of devices.

The compute time of a language model follows from its shapes. For other models, and for language models of known speed,
the time on one device is given. Both are rows of the same columns, with one step model and one memory model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import exp, hypot, inf
from statistics import NormalDist
from typing import Any, NamedTuple

from collectives.budget import Gigabyte, allowed, more_memory
from collectives.checks import check_number
from collectives.errors import InputError, TooLarge
from collectives.records.model_profile import TransformerShape, is_transformer, parse_transformer
from collectives.training.parallelism import SHARDED, Parallelism
from collectives.units import count, format_size
from planner.beliefs import Belief, Slopes, believe, find_slopes
from planner.calls import Call, check_strategy, gradient_item, stage_calls
from planner.gpus import PRECISIONS
from planner.hosts import Host
from planner.jobs import LIMITED_LOADERS, OPTIMIZERS, TrainingJob, exchange_of, is_half
from planner.memory import FILL
from planner.memory import PARTS as MEMORY_PARTS
from planner.rates import Compute
from planner.search import MeshJob, PredictedMeshes, SearchedMesh, predict_jobs, predict_meshes

SHARDINGS = {
    "ddp": "ddp", "zero1": "zero1", "zero2": "zero2", "zero3": "zero3", "fsdp": "zero3", "hsdp": "hsdp",
    "zero_redundancy": "zero1", "data_parallel": "ddp", "parameter_server": "ddp",
}  # fmt: skip
KINDS = ("gpt", "llama")  # transformers with causal attention
SOURCE = "closed forms fitted to published runs of language models"
NO_SHAPE = TransformerShape(1, 1, 1, 1, 1, 1, 1)  # placeholder for a profile
LARGEST = 1 << 14  # largest batch per device that is tried if a batch does not fit
AT_ONCE = 200  # meshes in the same arrays, which limits the memory of a prediction
ADDED_BY_ONE = ("compute", "optimizer")  # parts that a single device has, too


class TooLittleMemory(InputError):  # noqa: N818 - the finding itself
    """Raised if a training step needs too much memory. ``needed`` and ``available`` are bytes on the fullest device."""

    def __init__(self, message: str, needed: float, available: float) -> None:
        super().__init__(message)
        self.needed, self.available = needed, available


@dataclass(frozen=True)
class StepParts:
    """The seconds of a step by part. Their sum is the step time.

    ``tensor`` and ``expert`` are collectives within layers. ``pipeline`` is the wait for other stages. ``sync`` is the
    exposed synchronization of gradients and parameters, and the compute time lost to overlapped communication.
    ``copies`` are additional passes over gradients. ``processes`` is the wait for the processes of the host's other
    GPUs on its cores. ``stragglers`` is the wait for the slowest device. ``input`` is the wait for batches.
    """

    compute: float
    optimizer: float
    tensor: float = 0.0
    expert: float = 0.0
    pipeline: float = 0.0
    sync: float = 0.0
    copies: float = 0.0
    stragglers: float = 0.0
    input: float = 0.0
    processes: float = 0.0

    @property
    def total(self) -> float:
        """The step time in seconds."""
        return sum(self.as_dict().values())

    @property
    def bottleneck(self) -> tuple[str, float]:
        """The largest part except compute and optimizer, and its share; "compute" if the share is below 2 %.

        >>> StepParts(compute=0.5, optimizer=0.0, sync=0.5).bottleneck
        ('sync', 0.5)
        """
        parts = {name: value for name, value in self.as_dict().items() if name not in ADDED_BY_ONE}
        name = max(parts, key=lambda each: parts[each])
        share = parts[name] / self.total
        return (name, share) if share >= 0.02 else ("compute", self.compute / self.total)

    def as_dict(self) -> dict[str, float]:
        """Return the seconds by part."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


class Deviations(NamedTuple):
    """Uncertainty of a prediction: standard deviations of the logarithms of rate, efficiency and one-device rate."""

    rate: float
    scaling: float
    alone: float


@dataclass(frozen=True, kw_only=True)
class StepPrediction:
    """The predicted step on a number of devices."""

    job: TrainingJob  # ``job.parallelism`` states the size of every axis
    devices: int
    parts: StepParts
    memory: dict[str, float]  # bytes of the fullest device by part, and in total
    alone: float  # samples/s of one device alone
    deviations: Deviations
    chance_to_run: float | None  # follows from the filled share of memory; None if the memory is unknown

    @property
    def parallelism(self) -> Parallelism:
        """The job's parallelism, with the size of every axis."""
        return self.job.parallelism

    @property
    def rate(self) -> float:
        """Samples per second of all devices."""
        return self.job.batch * self.parallelism.data / self.parts.total

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The collectives per step of the device that sends the most bytes."""
        return max(stage_calls(self.job), key=lambda calls: sum(call.sent for call in calls))

    @property
    def sent_bytes(self) -> float:
        """The bytes that the device with the most traffic sends per step."""
        return sum(call.sent for call in self.calls)

    @property
    def efficiency(self) -> float:
        """The rate divided by ``devices`` times the rate of one device alone."""
        return self.rate / (self.devices * self.alone)

    def interval(self, coverage: float = 0.8) -> tuple[float, float]:
        """Return the bounds of the rate."""
        width = exp(_quantile(coverage) * self.deviations.rate)
        return self.rate / width, self.rate * width

    def efficiency_interval(self, coverage: float = 0.8) -> tuple[float, float]:
        """Return the bounds of the efficiency. The upper bound is at most 1, unless the efficiency is above 1."""
        width = exp(_quantile(coverage) * self.deviations.scaling)
        return self.efficiency / width, max(self.efficiency, min(1.0, self.efficiency * width))

    def parts_intervals(self, coverage: float = 0.8) -> dict[str, tuple[float, float]]:
        """Return the bounds of each part in seconds.

        Only the error of the sum is known for the parts that several devices add. The bounds of these parts are scaled
        by the same factor.
        """
        scaling, alone = (exp(_quantile(coverage) * deviation) for deviation in self.deviations[1:])
        total, parts = self.parts.total, self.parts.as_dict()
        fixed_s = sum(parts[name] for name in ADDED_BY_ONE)
        least, most = max(0.0, total / scaling - fixed_s), total * scaling - fixed_s
        few, many = (least / (total - fixed_s), most / (total - fixed_s)) if total > fixed_s else (0.0, 0.0)
        return {
            name: (value / alone, value * alone) if name in ADDED_BY_ONE else (value * few, value * many)
            for name, value in parts.items()
        }


def _quantile(coverage: float) -> float:
    return NormalDist().inv_cdf((1 + coverage) / 2)


def is_language(job: TrainingJob) -> bool:
    """Return whether a job's compute time follows from the shapes of its model.

    >>> from collectives.records.model_profile import find_model_profile
    >>> is_language(TrainingJob(find_model_profile("gpt2"), 8, precision="bf16"))
    True
    """
    is_text = is_transformer(job.model.model) and parse_transformer(job.model.model)[0] in KINDS
    return is_text and job.precision in PRECISIONS and job.optimizer in OPTIMIZERS


@dataclass(frozen=True)
class Training:
    """A job on identical hosts.

    Without ``compute``, the model must be a transformer, and its compute time follows from its shapes.

    >>> from collectives.records.model_profile import find_model_profile
    >>> from planner.hosts import host_of_preset
    >>> from planner.rates import at_rate
    >>> resnet = find_model_profile("resnet50")
    >>> training = Training(TrainingJob(resnet, 256), host_of_preset("dgx-a100"), at_rate(resnet, 2470.0))
    >>> found = training.predict(8)
    >>> 0.5 < found.efficiency < 1, found.interval()[0] < found.rate
    (True, True)
    """

    job: TrainingJob
    host: Host
    compute: Compute | None = None
    belief: Belief = field(default_factory=believe)
    source: str = SOURCE

    @property
    def compute_source(self) -> str:
        """The source of the compute time of one device."""
        if self.compute is not None:
            return self.compute.source
        return f"{self.source}: {self.job.batch / float(self.alone.step_s[0]):.4g} samples/s on one device"

    @cached_property
    def alone(self) -> PredictedMeshes:
        """The predicted step if one device computed the whole batch, regardless of its memory."""
        return predict_jobs([self.alone_row], self.belief)

    @property
    def alone_row(self) -> tuple[MeshJob, SearchedMesh]:
        """The job and the mesh of a step of the whole batch on one device."""
        parallelism = self.job.parallelism
        one_device = Parallelism(
            experts=parallelism.experts, top_k=parallelism.top_k, recompute=parallelism.recompute, data=1
        )
        mesh = self.mesh(one_device)._replace(
            micro_batch=int(self.job.batch // parallelism.pieces), grad_accum=parallelism.pieces
        )
        return replace(self.mesh_job(1, one_device), batch=int(self.job.batch)), mesh

    def predict(self, devices: int) -> StepPrediction:
        """Return the predicted step on a number of devices.

        Raise InputError for an unsupported number of devices, an unsupported strategy, and a batch that does not fit
        into memory.
        """
        (prediction,) = predict_steps([self.on(devices)])
        if isinstance(prediction, TooLittleMemory):
            raise prediction
        return prediction

    def on(self, devices: int) -> "DeviceMesh":
        """Return the training on a mesh of ``devices``. Raise InputError for an empty batch or an unsupported mesh."""
        check_number("batch_size", self.job.batch, above=0)
        job = self.job.on(devices, self.host.gpus)
        check_strategy(job)
        self._check_pipeline(job)
        return DeviceMesh(self, job, self.mesh(job.parallelism), devices)

    def mesh_job(self, devices: int, parallelism: Parallelism) -> MeshJob:
        """Return the job on ``devices`` devices as ``predict_jobs`` takes it."""
        job, is_profile = self.job, self.is_profile(parallelism)
        kind, shape = ("", NO_SHAPE) if is_profile else parse_transformer(job.model.model)
        half = "fp16" if is_half(job.precision) else "float32"
        optimizer = job.optimizer if job.optimizer in OPTIMIZERS else "sgd"
        return MeshJob(
            kind=kind, shape=shape, seq=shape.context, batch=int(job.batch * max(1, parallelism.data)), host=self.host,
            gpus=devices, precision=job.precision if job.precision in PRECISIONS else half, optimizer=optimizer,
            framework=job.framework if self.compute is None else "other", experts=parallelism.experts,
            top_k=parallelism.top_k if parallelism.experts else 0, more=self._more(is_profile, parallelism),
        )  # fmt: skip

    def is_profile(self, parallelism: Parallelism) -> bool:
        """Return whether the model is a profile of layers, and not a transformer with known dimensions."""
        return self.compute is not None and parallelism.tensor == 1 and not parallelism.experts

    def _more(self, is_profile: bool, parallelism: Parallelism) -> dict[str, Any]:
        job, more = self.job, dict[str, Any]()
        is_usual = self.compute is None and job.parallelism.bucket_mb == Parallelism.bucket_mb
        if not is_usual:
            more["bucket_mb"] = job.parallelism.bucket_mb
        if self.compute is not None:
            more |= {"alone": self.compute.sample, "update": self.compute.optimizer}
        if is_profile:
            more |= {"profile": job.model, "times": self.compute}
        known = gradient_item(replace(job, parallelism=parallelism))
        return more | {
            "exchange": exchange_of(job.parallelism),
            "gradient_bytes": known if self.compute is not None else job.parallelism.gradient_bytes or 4,
            "variable": job.variable_batches, "loader_rate": job.loader_rate or 0.0,
            "loader": job.loader if job.loader in LIMITED_LOADERS else "",
        }  # fmt: skip

    def mesh(self, parallelism: Parallelism) -> SearchedMesh:
        """Return a parallelism as a mesh of the search."""
        pieces = parallelism.pieces
        # the naive schedule is 1F1B of one microbatch
        schedule = (
            "none" if parallelism.pipeline == 1 else "1f1b" if parallelism.schedule == "naive" else parallelism.schedule
        )
        return SearchedMesh(
            tp=parallelism.tensor,
            pp=parallelism.pipeline,
            dp=max(1, parallelism.data),
            ep=parallelism.expert,
            vp=parallelism.virtual,
            micro_batch=int(self.job.batch // pieces),
            grad_accum=pieces,
            sharding=SHARDINGS[parallelism.strategy],
            recompute=parallelism.recompute,
            schedule=schedule,
            sequence_parallel=int(parallelism.sequence),
        )

    def _check_pipeline(self, job: TrainingJob) -> None:
        parallelism = job.parallelism
        if self.compute is not None and parallelism.strategy in SHARDED and parallelism.pipeline > 1:
            raise InputError(
                f"strategy {parallelism.strategy} with pipeline = {parallelism.pipeline} gathers parameters for each "
                "microbatch, which is only predicted for language models on described GPUs; use zero1 or pipeline = 1"
            )
        tasks, most = 4 * parallelism.pieces * parallelism.pipeline * parallelism.virtual, allowed(Gigabyte.TASKS)
        if parallelism.pipeline > 1 and tasks > most:
            raise TooLarge(
                f"{parallelism.pieces} microbatches make about {tasks:,} tasks, but at most {most:,} are allowed; use "
                f"fewer, or {more_memory(tasks / most)}"
            )

    def too_large(self, sizes: Mapping[str, float], memory: float, mesh: "DeviceMesh") -> TooLittleMemory:
        """Return the error for a batch that does not fit into a device's memory."""
        devices, parallelism = mesh.devices, mesh.job.parallelism
        parts = ", ".join(f"{name} {format_size(sizes[name])}" for name in MEMORY_PARTS if sizes[name] >= 1e6)
        largest = self._largest_batch(devices, parallelism)
        advice = f"up to {count(largest, 'sample')} a device fit" if largest else _describe_smaller(parallelism)
        if self.compute is None:
            if not largest:
                advice = "`ringlab search` finds meshes that fit, or changes that make the training fit"
            if sizes["total"] <= memory:
                advice += f'; `ringlab search --fill 1 --mesh "{mesh.mesh.name}"` predicts it anyway'
        message = (
            f"batch_size {self.job.batch:.0f} does not fit into {self.host.device.name}: it takes "
            f"{format_size(sizes['total'])} of {format_size(memory)}, of which {FILL:.0%} can be used ({parts}); "
            f"{'' if largest else 'not even one sample fits; '}{advice}"
        )
        return TooLittleMemory(message, sizes["total"] / FILL, memory)

    def _largest_batch(self, devices: int, parallelism: Parallelism) -> int:
        """Return the largest batch that fits: a power of two times the number of microbatches; 0 if none fits."""
        sizes = [2**power for power in range(LARGEST.bit_length()) if 2**power * parallelism.pieces < self.job.batch]
        if not sizes:
            return 0
        meshes: Sequence[SearchedMesh] = [self.mesh(parallelism)._replace(micro_batch=size) for size in sizes]
        predictions = predict_meshes(self.mesh_job(devices, parallelism), meshes, self.belief)
        return sizes[int(max(predictions.order))] * parallelism.pieces if len(predictions.order) else 0


class DeviceMesh(NamedTuple):
    """A training on a device mesh. ``job.parallelism`` states the size of every axis."""

    training: Training
    job: TrainingJob
    mesh: SearchedMesh
    devices: int

    @property
    def row(self) -> tuple[MeshJob, SearchedMesh]:
        """The job and the mesh as ``predict_jobs`` takes them."""
        return self.training.mesh_job(self.devices, self.job.parallelism), self.mesh


def predict_steps(meshes: Sequence[DeviceMesh]) -> list[StepPrediction | TooLittleMemory]:
    """Return the predicted step on each mesh, or the error if it does not fit into memory.

    Trainings with the same belief are predicted together, as rows of the same arrays.
    """
    if len(meshes) > AT_ONCE:
        return [*predict_steps(meshes[:AT_ONCE]), *predict_steps(meshes[AT_ONCE:])]
    predictions = dict[int, StepPrediction | TooLittleMemory]()
    for belief in {id(mesh.training.belief): mesh.training.belief for mesh in meshes}.values():
        numbers = [number for number, mesh in enumerate(meshes) if mesh.training.belief is belief]
        known, count = [meshes[number] for number in numbers], len(numbers)
        predicted = predict_jobs([*(each.row for each in known), *(each.training.alone_row for each in known)], belief)
        slopes = find_slopes(predicted.columns, belief.parameters)
        fits = predicted.fit_into(FILL)
        for place, (number, mesh) in enumerate(zip(numbers, known, strict=True)):
            if fits[place]:
                predictions[number] = _Rows(predicted, slopes, place, count + place).prediction(mesh)
            else:
                sizes = {name: float(values[place]) for name, values in predicted.memory.items()}
                memory = float(predicted.columns.memory_bytes[place])
                predictions[number] = mesh.training.too_large(sizes, memory, mesh)
    return [predictions[number] for number in range(len(meshes))]


class _Rows(NamedTuple):
    """Two rows of a prediction: a step on a mesh, and a step of the same job on a single device."""

    predicted: PredictedMeshes
    slopes: Slopes
    row: int
    alone: int

    def prediction(self, mesh: DeviceMesh) -> StepPrediction:
        predicted, number = self.predicted, self.row
        memory, parts = float(predicted.columns.memory_bytes[number]), self._parts(mesh)
        return StepPrediction(
            job=mesh.job,
            devices=mesh.devices,
            parts=parts,
            memory={name: float(values[number]) for name, values in predicted.memory.items()},
            alone=self._alone_rate(mesh),
            deviations=self._deviations(mesh, parts),
            chance_to_run=float(predicted.chance[number]) if memory < inf else None,
        )

    def _parts(self, mesh: DeviceMesh) -> StepParts:
        """Return the time in seconds of the step by part. With local SGD, they are means over steps."""
        parts = {name: float(values[self.row]) for name, values in self.predicted.parts.items()}
        rare = ["sync", "copies"]
        if mesh.mesh.dp == mesh.devices:  # others communicate in each step: within layers, or between stages
            rare.append("processes")
        for name in rare:
            parts[name] /= mesh.training.job.parallelism.sync_every
        parts["sync"] += parts["host"]
        parts["tensor"] += parts["context"]
        parts["optimizer"] += parts["fixed"]
        return StepParts(**{each.name: parts[each.name] for each in fields(StepParts)})

    def _alone_rate(self, mesh: DeviceMesh) -> float:
        """Return one device's samples/s, without the wait for input or the optimizer work that the mesh saves."""
        batch, parts = mesh.training.job.batch, self.predicted.parts
        total, spared = float(parts["total"][self.alone]), float(parts["input"][self.alone])
        if mesh.training.compute is None:
            updated = float(parts["optimizer"][self.row]) * mesh.mesh.tp * mesh.mesh.pp
            spared = max(0.0, float(parts["optimizer"][self.alone]) - updated)
        return batch / (total - spared)

    def _deviations(self, mesh: DeviceMesh, parts: StepParts) -> Deviations:
        """Return the deviations. The errors of a known compute time and of the scaling are assumed independent."""
        (logs, slopes), belief, compute = self.slopes, self.predicted.belief, mesh.training.compute
        step = Slopes(logs[[self.row]], slopes[[self.row]])
        if compute is not None:
            lost = 1 - (parts.compute + parts.optimizer) / parts.total
            scaling = belief.scaling_deviation(step, lost) if mesh.devices > 1 else 0.0
            return Deviations(hypot(scaling, compute.spread), scaling, compute.spread)
        alone = Slopes(logs[[self.alone]], slopes[[self.alone]])
        efficiency = Slopes(step.logs, step.slopes - alone.slopes)
        return Deviations(*(float(belief.deviations(each)[0]) for each in (step, efficiency, alone)))


def _describe_smaller(parallelism: Parallelism) -> str:
    more = "strategy = \"fsdp\" shards the states over the devices" if parallelism.strategy not in SHARDED else (
        "more devices, or tensor or pipeline above 1, divide the model")  # fmt: skip
    return more if parallelism.recompute == "full" else f'{more}; recompute = "full" saves fewer activations'
