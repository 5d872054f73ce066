"""Predict the step of a job on any number of identical hosts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, hypot, inf
from typing import Any, NamedTuple

from collectives.budget import Gigabyte, allowed, more_memory
from collectives.checks import check_number
from collectives.errors import InputError, TooLarge
from collectives.records.model_profile import TransformerShape, parse_transformer
from collectives.training.parallelism import SHARDED, Parallelism
from collectives.units import count, format_size
from planner.beliefs import Z_80, Belief, Slopes, believe, find_slopes, read_shipped
from planner.calls import check_strategy
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
    """Raised if a step needs too much memory. ``needed``, including unusable memory, and ``available`` are in bytes."""

    def __init__(self, message: str, needed: float, available: float) -> None:
        super().__init__(message)
        self.needed, self.available = needed, available


class StepParts(NamedTuple):
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
        return sum(self)

    @property
    def bottleneck(self) -> tuple[str, float]:
        """The largest part except compute and optimizer, with its share; compute, if that share is below 2 %."""
        added = (name for name in self._fields if name not in ADDED_BY_ONE)
        name = max(added, key=lambda each: float(getattr(self, each)))
        share = getattr(self, name) / self.total
        return (name, share) if share >= 0.02 else ("compute", self.compute / self.total)


class Deviations(NamedTuple):
    """The standard deviations of the logarithms of a prediction's rate, efficiency and one-device rate."""

    rate: float
    scaling: float
    alone: float


@dataclass(frozen=True, kw_only=True)
class StepPrediction:
    """The predicted step on a number of devices."""

    job: TrainingJob  # ``job.parallelism`` states the size of every axis
    mesh: str  # its name in the search
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
    def devices(self) -> int:
        return self.parallelism.devices

    @property
    def rate(self) -> float:
        """The samples per second of all devices together."""
        return self.job.batch * self.parallelism.data / self.parts.total

    @property
    def efficiency(self) -> float:
        """The scaling efficiency: the rate, relative to that of ``devices`` independent devices."""
        return self.rate / (self.devices * self.alone)

    def interval(self) -> tuple[float, float]:
        """Return the bounds of the rate in samples/s, which contain it with a probability of 80 %."""
        width = exp(Z_80 * self.deviations.rate)
        return self.rate / width, self.rate * width

    def efficiency_interval(self) -> tuple[float, float]:
        """Return the 80 % bounds of the efficiency. If the predicted efficiency is at most 1, so is the upper bound."""
        width = exp(Z_80 * self.deviations.scaling)
        return self.efficiency / width, max(self.efficiency, min(1.0, self.efficiency * width))

    def parts_intervals(self) -> dict[str, tuple[float, float]]:
        """Return the bounds of each part in seconds.

        For the parts that communication or waiting adds, only the error of their sum is known. So one common factor
        scales their bounds.
        """
        scaling, alone = (exp(Z_80 * deviation) for deviation in self.deviations[1:])
        total, parts = self.parts.total, self.parts._asdict()
        fixed_s = sum(parts[name] for name in ADDED_BY_ONE)
        least, most = max(0.0, total / scaling - fixed_s), total * scaling - fixed_s
        few, many = (least / (total - fixed_s), most / (total - fixed_s)) if total > fixed_s else (0.0, 0.0)
        return {
            name: (value / alone, value * alone) if name in ADDED_BY_ONE else (value * few, value * many)
            for name, value in parts.items()
        }


def is_language(job: TrainingJob) -> bool:
    """Return whether a job's compute time can be computed from the shapes of its model."""
    is_text = job.model.shape is not None and parse_transformer(job.model.model)[0] in KINDS
    return is_text and job.precision in PRECISIONS and job.optimizer in OPTIMIZERS


@dataclass(frozen=True)
class Training:
    """A training job on identical hosts.

    Without ``compute``, the model must be a transformer, and its compute time follows from its shapes.
    """

    job: TrainingJob
    host: Host
    compute: Compute | None = None
    belief: Belief = field(default_factory=believe)
    source: str = SOURCE
    mesh: SearchedMesh = field(default_factory=SearchedMesh)  # set by ``on``

    @cached_property
    def alone(self) -> PredictedMeshes:
        """The prediction for one device that computes the whole batch, regardless of its memory."""
        return predict_jobs([self.alone_row], self.belief)

    @property
    def alone_row(self) -> tuple[MeshJob, SearchedMesh]:
        """The job and the mesh for one device that computes the whole batch."""
        keys = {name: getattr(self.job.parallelism, name) for name in ("experts", "top_k", "recompute")}
        one_device = Parallelism(data=1, microbatches=self.job.parallelism.pieces, **keys)
        return self.mesh_job(one_device), self.mesh_of(one_device)

    def predict(self, devices: int) -> StepPrediction:
        """Return the predicted step on a number of devices.

        Raise InputError if the number of devices or the strategy is not supported, or the batch does not fit into
        memory.
        """
        (prediction,) = predict_steps([self.on(devices)])
        if isinstance(prediction, TooLittleMemory):
            raise prediction
        return prediction

    def on(self, devices: int) -> "Training":
        """Return the training on ``devices`` devices. Raise InputError for an empty batch or an unsupported mesh."""
        check_number("batch_size", self.job.batch, above=0)
        job = self.job.on(devices, self.host.gpus)
        check_strategy(job)
        self._check_pipeline(job)
        return replace(self, job=job, mesh=self.mesh_of(job.parallelism))

    def mesh_job(self, parallelism: Parallelism) -> MeshJob:
        """Convert the job to the input of ``predict_jobs`` for a parallelism."""
        job, compute = self.job, self.compute
        is_sharded_half = compute is not None and job.parallelism.strategy in SHARDED and is_half(job.precision)
        item = 2 if job.parallelism.half_weights or is_sharded_half else 4
        more: dict[str, Any] = {
            "exchange": exchange_of(job.parallelism), "gradient_bytes": job.parallelism.gradient_bytes or item,
            "variable": job.variable_batches, "loader_rate": job.loader_rate or 0.0,
            "loader": job.loader if job.loader in LIMITED_LOADERS else "",
        }  # fmt: skip
        if compute is not None or job.parallelism.bucket_mb != Parallelism.bucket_mb:
            more["bucket_mb"] = job.parallelism.bucket_mb
        if compute is not None:
            more |= {"alone": compute.sample, "update": compute.optimizer}
        is_profile = compute is not None and parallelism.tensor == 1 and not parallelism.experts
        if is_profile:
            more |= {"profile": job.model, "times": compute}
        kind, shape = ("", NO_SHAPE) if is_profile else parse_transformer(job.model.model)
        half = "fp16" if is_half(job.precision) else "float32"
        return MeshJob(
            kind=kind, shape=shape, seq=shape.context, batch=int(job.batch * max(1, parallelism.data)), host=self.host,
            gpus=parallelism.devices, precision=job.precision if job.precision in PRECISIONS else half,
            optimizer=job.optimizer if job.optimizer in OPTIMIZERS else "sgd",
            framework=job.framework if compute is None else "other", experts=parallelism.experts,
            top_k=parallelism.top_k if parallelism.experts else 0, more=more,
        )  # fmt: skip

    def mesh_of(self, parallelism: Parallelism) -> SearchedMesh:
        """Convert a parallelism to a mesh of the search. The naive schedule is 1F1B with one microbatch."""
        schedule = "1f1b" if parallelism.schedule == "naive" else parallelism.schedule
        return SearchedMesh(
            tp=parallelism.tensor, pp=parallelism.pipeline, dp=max(1, parallelism.data), ep=parallelism.expert,
            vp=parallelism.virtual, micro_batch=int(self.job.batch // parallelism.pieces),
            grad_accum=parallelism.pieces, sharding=SHARDINGS[parallelism.strategy], recompute=parallelism.recompute,
            schedule="none" if parallelism.pipeline == 1 else schedule, sequence_parallel=int(parallelism.sequence),
        )  # fmt: skip

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

    def too_large(self, sizes: Mapping[str, float], memory: float) -> TooLittleMemory:
        """Return the error for a batch that does not fit into a device's memory."""
        parts = ", ".join(f"{name} {format_size(sizes[name])}" for name in MEMORY_PARTS if sizes[name] >= 1e6)
        largest = self._largest_batch()
        advice = "`ringlab search` finds meshes that fit, or changes that make the training fit"
        if largest:
            advice = f"up to {count(largest, 'sample')} a device fit"
        elif self.compute is not None:
            parallelism, advice = self.job.parallelism, 'strategy = "fsdp" shards the states over the devices'
            if parallelism.strategy in SHARDED:
                advice = "more devices, or tensor or pipeline above 1, divide the model"
            advice += "" if parallelism.recompute == "full" else '; recompute = "full" saves fewer activations'
        if self.compute is None and sizes["total"] <= memory:
            advice += f'; `ringlab search --fill 1 --mesh "{self.mesh.name}"` predicts it anyway'
        message = (
            f"batch_size {self.job.batch:.0f} does not fit into {self.host.device.name}: it takes "
            f"{format_size(sizes['total'])} of {format_size(memory)}, of which {FILL:.0%} can be used ({parts}); "
            f"{'' if largest else 'not even one sample fits; '}{advice}"
        )
        return TooLittleMemory(message, sizes["total"] / FILL, memory)

    def _largest_batch(self) -> int:
        """Return the largest batch below the job's that fits, with a power of two per microbatch; 0 if none fits."""
        parallelism = self.job.parallelism
        sizes = [2**power for power in range(LARGEST.bit_length()) if 2**power * parallelism.pieces < self.job.batch]
        meshes = [self.mesh._replace(micro_batch=size) for size in sizes]
        fits = predict_meshes(self.mesh_job(parallelism), meshes, self.belief).order.tolist() if meshes else ()
        return sizes[max(fits)] * parallelism.pieces if fits else 0


def predict_steps(meshes: Sequence[Training]) -> list[StepPrediction | TooLittleMemory]:
    """Return the predicted step of each training on its mesh, or TooLittleMemory if it does not fit into memory.

    Trainings with the same belief are predicted together, as rows of the same arrays.
    """
    if len(meshes) > AT_ONCE:
        return [*predict_steps(meshes[:AT_ONCE]), *predict_steps(meshes[AT_ONCE:])]
    predictions = dict[int, StepPrediction | TooLittleMemory]()
    for belief in {id(mesh.belief): mesh.belief for mesh in meshes}.values():
        numbers = [number for number, mesh in enumerate(meshes) if mesh.belief is belief]
        predictions |= zip(numbers, _predict_alike([meshes[number] for number in numbers], belief), strict=True)
    return [predictions[number] for number in range(len(meshes))]


def _predict_alike(meshes: Sequence[Training], belief: Belief) -> Iterator[StepPrediction | TooLittleMemory]:
    """Yield the prediction of each training on its mesh, or TooLittleMemory if the training does not fit."""
    rows = [(mesh.mesh_job(mesh.job.parallelism), mesh.mesh) for mesh in meshes]
    rows += [mesh.alone_row for mesh in meshes]
    predicted, count = predict_jobs(rows, belief), len(meshes)
    logs, slopes = find_slopes(predicted.columns, belief.parameters)
    step, alone = Slopes(logs[:count], slopes[:count]), Slopes(logs[count:], slopes[count:])
    of_shapes = [belief.deviations(each) for each in (step, Slopes(step.logs, step.slopes - alone.slopes), alone)]
    limits, fits = predicted.columns.memory_bytes.tolist(), predicted.fit_into(FILL)
    for row, mesh in enumerate(meshes):
        job, compute = mesh.job, mesh.compute
        memory = {name: float(values[row]) for name, values in predicted.memory.items()}
        if not fits[row]:
            yield mesh.too_large(memory, limits[row])
            continue
        seconds, single = ({name: float(v[at]) for name, v in predicted.parts.items()} for at in (row, count + row))
        rare = ["sync", "copies"]  # with local SGD, the cost of a synchronization is a mean over steps
        if mesh.mesh.dp == job.parallelism.devices:  # others communicate in each step, within layers or between stages
            rare.append("processes")
        joined = seconds | {name: seconds[name] / job.parallelism.sync_every for name in rare}
        joined["tensor"] += joined["context"]
        joined["optimizer"] += joined["fixed"]
        parts = StepParts(*(joined[name] for name in StepParts._fields))
        deviations = Deviations(*(float(values[row]) for values in of_shapes))
        spared = max(0.0, single["optimizer"] - seconds["optimizer"] * mesh.mesh.tp * mesh.mesh.pp)
        if compute is not None:  # the errors of a known compute time and of the scaling are assumed independent
            spared, known, scaling = single["input"], read_shipped().deviations, 0.0
            if job.parallelism.devices > 1:
                lost = 1 - (parts.compute + parts.optimizer) / parts.total  # share of the step that one device avoids
                deviation = replace(belief, noise=known["floor"]).deviations(Slopes(logs[[row]], slopes[[row]]))[0]
                scaling = hypot(deviation, known["lost"] * lost)
            deviations = Deviations(hypot(scaling, compute.spread), scaling, compute.spread)
        yield StepPrediction(
            job=job, mesh=mesh.mesh.name, parts=parts, memory=memory, alone=job.batch / (single["total"] - spared),
            deviations=deviations, chance_to_run=float(predicted.chance[row]) if limits[row] < inf else None,
        )  # fmt: skip
