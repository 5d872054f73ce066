"""Predict a training step on any number of identical hosts: its time, its memory usage and their uncertainty."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, hypot, inf
from typing import Any, NamedTuple

import numpy as np

from collectives.budget import Gigabyte, allowed, more_memory
from collectives.checks import check_number
from collectives.errors import InputError, TooLarge
from collectives.records.model_profile import parse_transformer
from collectives.training.parallelism import REPLICAS, SHARDED, Parallelism
from collectives.units import count, format_size
from planner.beliefs import Z_80, Belief, Slopes, believe, chance_to_run, find_slopes, read_shipped
from planner.calls import check_strategy
from planner.columns import Columns, make_columns
from planner.gpus import PRECISIONS
from planner.hosts import Array, Host
from planner.jobs import DEFAULTS, OPTIMIZERS, Job, SearchedMesh, is_half
from planner.memory import FILL, memory_parts
from planner.memory import PARTS as MEMORY_PARTS
from planner.rates import Compute
from planner.runs import RUN_BUCKETS_MB
from planner.step import step_parts

KINDS = ("gpt", "llama")  # transformers with causal attention
SOURCE = "closed forms fitted to published runs of language models"
LARGEST = 1 << 14  # largest batch per device that is tried if a batch does not fit
AT_ONCE = 200  # meshes in the same arrays, which limits the memory of a prediction
ADDED_BY_ONE = ("compute", "optimizer")  # parts that a single device has, too


class TooLittleMemory(InputError):  # noqa: N818 - the finding itself
    """Raised if a step does not fit into memory. ``needed`` is the device memory that would suffice, in bytes."""

    def __init__(self, message: str, needed: float, available: float) -> None:
        super().__init__(message)
        self.needed, self.available = needed, available


class StepParts(NamedTuple):
    """The seconds of a training step by part. Their sum is the step time.

    ``tensor`` and ``expert`` are exposed collectives within layers. ``pipeline`` is the wait for other stages. ``sync``
    is the exposed synchronization of gradients and parameters, and the compute time lost to overlapped communication.
    ``copies`` are additional passes over gradients. ``processes`` is the wait for CPU cores that the processes of the
    host's other GPUs use. ``stragglers`` is the wait for the slowest device. ``input`` is the wait for batches.
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
        """The largest part except compute and optimizer, and its share of the step time.

        If this share is below 2 %, the bottleneck is compute.
        """
        added = (name for name in self._fields if name not in ADDED_BY_ONE)
        name = max(added, key=lambda each: float(getattr(self, each)))
        share = getattr(self, name) / self.total
        return (name, share) if share >= 0.02 else ("compute", self.compute / self.total)


class Deviations(NamedTuple):
    """Standard deviations of the logarithms of the predicted rate, scaling efficiency and one-device rate."""

    rate: float
    scaling: float
    alone: float


@dataclass(frozen=True, kw_only=True)
class StepPrediction:
    """The predicted training step on a number of devices."""

    job: Job  # ``job.parallelism`` states the size of every axis
    mesh: str  # its name in the search
    parts: StepParts
    memory: dict[str, float]  # bytes of the fullest device by part, and in total
    alone: float  # samples/s of one device alone
    deviations: Deviations
    chance_to_run: float | None  # follows from the filled share of memory; None if the memory is unknown

    @property
    def devices(self) -> int:
        return self.job.parallelism.devices

    @property
    def rate(self) -> float:
        """The samples per second of all devices together."""
        return self.job.batch * self.job.parallelism.data / self.parts.total

    @property
    def efficiency(self) -> float:
        """The scaling efficiency: the rate, divided by ``devices`` times the rate of one device alone."""
        return self.rate / (self.devices * self.alone)

    def interval(self) -> tuple[float, float]:
        """Return the bounds of the rate's 80 % interval, in samples/s."""
        width = exp(Z_80 * self.deviations.rate)
        return self.rate / width, self.rate * width

    def efficiency_interval(self) -> tuple[float, float]:
        """Return the efficiency's 80 % interval. Its upper bound is at most 1, or the prediction if that is larger."""
        width = exp(Z_80 * self.deviations.scaling)
        return self.efficiency / width, max(self.efficiency, min(1.0, self.efficiency * width))

    def parts_intervals(self) -> dict[str, tuple[float, float]]:
        """Return the bounds of each part's 80 % interval, in seconds.

        Compute and optimizer have the error of the one-device rate. For the other parts, only the error of their sum is
        known, so all of them have the same relative bounds.
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


def is_language(job: Job) -> bool:
    """Return whether a job's compute time can be computed from the dimensions of its model."""
    is_text = job.model.shape is not None and parse_transformer(job.model.model)[0] in KINDS
    return is_text and job.precision in PRECISIONS and job.optimizer in OPTIMIZERS


@dataclass(frozen=True, kw_only=True)
class PredictedMeshes:
    """Predictions for several device meshes, as arrays with one value per mesh."""

    columns: Columns
    parts: Mapping[str, Array]  # seconds of a step by part, and in total
    memory: Mapping[str, Array]  # bytes of the fullest device by part, and in total
    chance: Array  # probability that the run does not fail

    @property
    def step_s(self) -> Array:
        return self.parts["total"]

    def fit_into(self, fill: float) -> Array:
        """Return a boolean mask of the meshes that use at most the share ``fill`` of a device's memory."""
        return np.asarray(self.memory["total"] <= fill * self.columns.memory_bytes)


@dataclass(frozen=True)
class Training:
    """A training job on identical hosts, with the known compute times of one device and the step model's parameters.

    Without ``compute``, the model must be a transformer, and its compute time follows from its dimensions.
    """

    job: Job
    host: Host
    compute: Compute | None = None
    belief: Belief = field(default_factory=believe)
    source: str = SOURCE
    mesh: SearchedMesh = field(default_factory=SearchedMesh)  # set by ``on``

    @property
    def alone(self) -> "Training":
        """The same training on one device, which computes the whole batch of a replica."""
        keys = {name: getattr(self.job.parallelism, name) for name in ("experts", "top_k", "recompute")}
        one_device = Parallelism(data=1, microbatches=self.job.parallelism.pieces, **keys)
        job = replace(self.job, parallelism=one_device)
        return replace(self, job=job, mesh=job.mesh)

    @cached_property
    def rate_alone(self) -> float:
        """The samples/s of one device that computes the whole batch of a replica. Its memory is not checked."""
        return self.job.batch / float(predict_trainings([self.alone]).step_s[0])

    @property
    def table(self) -> dict[str, Any]:
        """The columns of a training run that do not depend on its mesh."""
        job, parallelism, compute = self.job, self.job.parallelism, self.compute
        table = job.columns | {"host": self.host}
        if compute is None:
            return table | {"bucket_mb": parallelism.bucket_mb or RUN_BUCKETS_MB} | job.dimensions
        table |= {"alone": compute.sample, "update": compute.optimizer, "framework": "other"}
        if parallelism.strategy in SHARDED and is_half(job.precision):
            table["gradient_bytes"] = parallelism.gradient_bytes or 2
        is_profile = parallelism.tensor == 1 and not parallelism.experts
        return table | ({"profile": job.model, "times": compute} if is_profile else job.dimensions)

    def predict(self, devices: int) -> StepPrediction:
        """Return the predicted step on ``devices`` devices.

        Raise InputError if the number or strategy is not supported, and TooLittleMemory if the batch does not fit.
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
        return replace(self, job=job, mesh=job.mesh)

    def _check_pipeline(self, job: Job) -> None:
        parallelism = job.parallelism
        if self.compute is not None and parallelism.strategy in SHARDED and parallelism.pipeline > 1:
            raise InputError(
                f"strategy {parallelism.strategy} with pipeline = {parallelism.pipeline} gathers parameters for each "
                "microbatch, which is only predicted for language models on described GPUs; use zero1 or pipeline = 1"
            )
        tasks, most = 4 * parallelism.pieces * parallelism.pipeline * parallelism.virtual, allowed(Gigabyte.TASKS)
        if parallelism.pipeline > 1 and tasks > most:
            raise TooLarge(
                f"{parallelism.pieces} microbatches need about {tasks:,} pipeline tasks; the limit is {most:,}; "
                f"use fewer microbatches, or {more_memory(tasks / most)}"
            )

    def too_large(self, sizes: Mapping[str, float], memory: float) -> TooLittleMemory:
        """Return the error for a batch that needs ``sizes`` bytes by part on a device with ``memory`` bytes."""
        parts = ", ".join(f"{name} {format_size(sizes[name])}" for name in MEMORY_PARTS if sizes[name] >= 1e6)
        parallelism, largest = self.job.parallelism, self._largest_batch()
        advice = "`ringlab search` finds meshes that fit, or changes that make the training fit"
        if largest:
            advice = f"up to {count(largest, 'sample')} a device fit"
        elif self.compute is not None:
            advice = 'strategy = "fsdp" shards the states over the devices'
            if parallelism.strategy in SHARDED:
                advice = "use more devices, or set tensor or pipeline above 1 to split the model"
            advice += "" if parallelism.recompute == "full" else '; recompute = "full" saves fewer activations'
        is_listed = parallelism.strategy not in REPLICAS and parallelism.sync_every == 1  # by search
        if self.compute is None and sizes["total"] <= memory and is_listed:
            on = f"--devices {parallelism.devices} --batch {self.job.global_batch}"
            advice += f'; `ringlab search {on} --fill 1 --mesh "{self.mesh.name}"` predicts it anyway'
        message = (
            f"batch_size {self.job.batch:.0f} does not fit into {self.host.device.name}: it needs "
            f"{format_size(sizes['total'])}, but only {FILL:.0%} of {format_size(memory)} can be used ({parts}); "
            f"{'' if largest else 'not even one sample fits; '}{advice}"
        )
        return TooLittleMemory(message, sizes["total"] / FILL, memory)

    def _largest_batch(self) -> int:
        """Return the largest smaller batch that fits, or 0. Only powers of two are tried as microbatch sizes."""
        parallelism = self.job.parallelism
        sizes = [2**power for power in range(LARGEST.bit_length()) if 2**power * parallelism.pieces < self.job.batch]
        meshes = [self.mesh._replace(micro_batch=size) for size in sizes]
        fits = predict_table(self.table, meshes, self.belief).fit_into(FILL) if meshes else np.zeros(1, dtype=bool)
        return sizes[int(np.flatnonzero(fits)[-1])] * parallelism.pieces if fits.any() else 0


def predict_trainings(trainings: Sequence[Training]) -> PredictedMeshes:
    """Predict each training on its own mesh. The ``belief`` of the first training is used for all.

    If the first host has a simulated network, collective times of all trainings come from that network. Otherwise, they
    come from each host's curves of time over size. Raise InputError if a GPU is not in the catalog.
    """
    tables = [training.table for training in trainings]
    names = {name for table in tables for name in table}
    table = {name: [each.get(name, DEFAULTS[name]) for each in tables] for name in names}
    return predict_table(table, [training.mesh for training in trainings], trainings[0].belief)


def predict_table(table: Mapping[str, Any], meshes: Sequence[SearchedMesh], belief: Belief) -> PredictedMeshes:
    """Predict each mesh. ``table`` has the other columns: a value for all meshes, or a list with one per mesh."""
    columns: dict[str, Any] = dict(zip(SearchedMesh._fields, map(list, zip(*meshes, strict=True)), strict=True))
    c = make_columns({**table, **columns, "count": columns.pop("grad_accum")}, len(meshes))
    parts, memory = step_parts(c, belief.parameters), memory_parts(c, read_shipped().memory)
    return PredictedMeshes(columns=c, parts=parts, memory=memory, chance=chance_to_run(c, memory["total"]))


def predict_steps(meshes: Sequence[Training]) -> list[StepPrediction | TooLittleMemory]:
    """Return the predicted step of each training on its mesh, or TooLittleMemory if it does not fit into memory.

    Trainings with the same ``belief`` are predicted together, because array operations on many runs are fast.
    """
    if len(meshes) > AT_ONCE:
        return [*predict_steps(meshes[:AT_ONCE]), *predict_steps(meshes[AT_ONCE:])]
    predictions = dict[int, StepPrediction | TooLittleMemory]()
    for belief in {id(mesh.belief): mesh.belief for mesh in meshes}.values():
        numbers = [number for number, mesh in enumerate(meshes) if mesh.belief is belief]
        predictions |= zip(numbers, _predict_alike([meshes[number] for number in numbers], belief), strict=True)
    return [predictions[number] for number in range(len(meshes))]


def _predict_alike(meshes: Sequence[Training], belief: Belief) -> Iterator[StepPrediction | TooLittleMemory]:
    predicted, count = predict_trainings([*meshes, *(mesh.alone for mesh in meshes)]), len(meshes)
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
