"""A step of a language model on described GPUs: by the planner's step, as `search` has it.

Seconds by parts, memory and intervals are those of the strategies, which are fitted to published runs on meshes; what
is sent, and what the streams of a device do, is of the timeline.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from collectives.records.model_profile import is_transformer, parse_transformer
from collectives.training.parallelism import Parallelism
from planner.beliefs import Belief, Slopes, believe, find_slopes
from planner.gpus import PRECISIONS
from planner.hosts import Host
from planner.jobs import LOADERS, OPTIMIZERS
from planner.memory import FILL
from planner.mesh.compute import Compute, at_rate
from planner.mesh.job import TrainingJob
from planner.mesh.memory import DeviceMemory, check_pieces, too_large
from planner.search import FoundMeshes, MeshJob, SearchedMesh, predict_meshes

SHARDINGS = {"ddp": "ddp", "zero1": "zero1", "zero2": "zero2", "zero3": "zero3", "fsdp": "zero3", "hsdp": "hsdp"}
KEPT_AS = SHARDINGS | {"zero_redundancy": "zero1", "data_parallel": "ddp", "parameter_server": "ddp"}
KINDS = ("gpt", "llama")  # whose tokens see those before them
SOURCE = "closed forms fitted to published runs of language models"
LARGEST = 1 << 14  # samples of a device that are tried for what would fit


class RateDeviations(NamedTuple):
    """Standard deviations of logarithms: of the rate, of what scaling loses, of one device's rate."""

    rate: float
    scaling: float
    alone: float


class LanguageStep(NamedTuple):
    """Seconds of a step by the parts that a timeline has, bytes of its memory, one device's rate, and deviations."""

    parts: dict[str, float]
    memory: DeviceMemory
    alone: float  # samples a second of one device
    deviations: RateDeviations
    chance: float  # to run, by the share of memory that is filled


def is_language(job: TrainingJob) -> bool:
    """Return whether the closed forms are of such a model, whatever its strategy.

    >>> from collectives.records.model_profile import find_model_profile
    >>> is_language(TrainingJob(find_model_profile("gpt2"), 8, precision="bf16"))
    True
    """
    is_text = is_transformer(job.model.model) and parse_transformer(job.model.model)[0] in KINDS
    return is_text and job.precision in PRECISIONS and job.optimizer in OPTIMIZERS


def is_expressible(job: TrainingJob) -> bool:
    """Return whether they also have a language model's step: what they have not is a timeline's, at their rate."""
    return job.parallelism.strategy in SHARDINGS and not job.parallelism.half_weights


@dataclass(frozen=True)
class LanguageModel:
    """A job of a language model on hosts of one kind. Raises InputError for microbatches that its batch has not."""

    job: TrainingJob
    host: Host
    belief: Belief = field(default_factory=believe)
    source: str = SOURCE

    def __post_init__(self) -> None:
        check_pieces(self.job)

    @cached_property
    def alone(self) -> FoundMeshes:
        """A step of the whole batch on one device, however much it keeps."""
        pieces = self.job.parallelism.pieces
        mesh = SearchedMesh(micro_batch=int(self.job.batch // pieces), grad_accum=pieces)
        one = replace(self.mesh_job(1, Parallelism()), batch=int(self.job.batch))
        return predict_meshes(one, [mesh._replace(recompute=self.job.parallelism.recompute)], self.belief)

    @property
    def compute(self) -> Compute:
        """How long one device computes on each layer."""
        found = at_rate(self.job.model, self.job.batch / float(self.alone.step_s[0]), self.source)
        return replace(found, spread=float(self.belief.deviations(self._slopes(self.alone))[0]))

    def mesh_job(self, devices: int, parallelism: Parallelism) -> MeshJob:
        """Return what the closed forms are asked."""
        kind, shape = parse_transformer(self.job.model.model)
        job = self.job
        return MeshJob(
            kind=kind, shape=shape, seq=shape.context, batch=int(job.batch) * max(1, parallelism.data), host=self.host,
            gpus=devices, precision=job.precision, optimizer=job.optimizer, framework=job.framework,
            experts=parallelism.experts, top_k=parallelism.top_k if parallelism.experts else 0,
            more=self._more,
        )  # fmt: skip

    @property
    def _more(self) -> dict[str, Any]:
        """The columns of how gradients travel, and of what feeds the training."""
        job, parallelism = self.job, self.job.parallelism
        buckets = {} if parallelism.bucket_mb == Parallelism.bucket_mb else {"bucket_mb": parallelism.bucket_mb}
        return {
            **buckets, "exchange": "overlapped" if parallelism.overlap else "after",
            "gradient_bytes": parallelism.gradient_bytes or 4, "variable": job.variable_batches,
            "loader": job.loader if job.loader in LOADERS else "", "loader_rate": job.loader_rate or 0.0,
        }  # fmt: skip

    def stated(self, devices: int, parallelism: Parallelism) -> FoundMeshes:
        """Return the mesh of a strategy. Raise TooLittleMemory if it does not fit."""
        found = predict_meshes(self.mesh_job(devices, parallelism), [self.mesh(parallelism)], self.belief)
        self._check_fit(found, devices, parallelism)
        return found

    def memory(self, devices: int, parallelism: Parallelism) -> float:
        """Return the bytes that the fullest device of a strategy's mesh keeps."""
        return float(
            predict_meshes(self.mesh_job(devices, parallelism), [self.mesh(parallelism)], self.belief).memory["total"][
                0
            ]
        )

    def of_mesh(self, found: FoundMeshes, number: int) -> LanguageStep:
        """Return the step of one of several meshes."""
        every = self.job.parallelism.sync_every
        parts = {name: float(one[number]) for name, one in found.parts.items() if name != "total"}
        for name in ("sync", "copies"):  # of local SGD, in the mean step
            parts[name] /= every
        alone = {name: float(one[0]) for name, one in self.alone.parts.items()}
        mesh = found.searched[number]  # one device's states are divided as those of the mesh
        alone_s = alone["total"] - max(0.0, alone["optimizer"] - parts["optimizer"] * mesh.tp * mesh.pp)
        parts["sync"] += parts.pop("host")
        parts["tensor"] += parts.pop("context")
        parts["optimizer"] += parts.pop("fixed")
        slopes, one = self._slopes(found, number), self._slopes(self.alone)
        between = Slopes(slopes.logs, slopes.slopes - one.slopes)  # of the efficiency
        deviations = RateDeviations(*(float(self.belief.deviations(each)[0]) for each in (slopes, between, one)))
        chance = float(found.chance[number])
        return LanguageStep(parts, _device_memory(found, number), self.job.batch / alone_s, deviations, chance)

    def mesh(self, parallelism: Parallelism) -> SearchedMesh:
        """Return a mesh as the closed forms have it."""
        pieces = parallelism.pieces
        return SearchedMesh(
            tp=parallelism.tensor,
            pp=parallelism.pipeline,
            dp=max(1, parallelism.data),
            ep=parallelism.expert,
            vp=parallelism.virtual,
            micro_batch=int(self.job.batch // pieces),
            grad_accum=pieces,
            sharding=KEPT_AS[parallelism.strategy],
            recompute=parallelism.recompute,
            schedule=_schedule(parallelism),
            sequence_parallel=int(parallelism.sequence),
        )

    def _slopes(self, found: FoundMeshes, number: int = 0) -> Slopes:
        return find_slopes(found.columns.take(np.array([number])), self.belief.parameters)

    def _check_fit(self, found: FoundMeshes, devices: int, parallelism: Parallelism) -> None:
        if not len(found.order):
            memory, kept = float(found.columns.memory_bytes[0]), _device_memory(found, 0)
            largest = self._largest_batch(devices, parallelism)
            advice = "`ringlab search` finds meshes that do, and what would fit where none does"
            raise too_large(self.job, kept, memory, self.host.device.name, largest, advice, FILL)

    def _largest_batch(self, devices: int, parallelism: Parallelism) -> int:
        """Return the most samples of a device that fit, of powers of two times the microbatches."""
        sizes = [2**power for power in range(LARGEST.bit_length()) if 2**power * parallelism.pieces < self.job.batch]
        meshes = [self.mesh(parallelism)._replace(micro_batch=size) for size in sizes]
        if not meshes:
            return 0
        found = predict_meshes(self.mesh_job(devices, parallelism), meshes, self.belief)
        return sizes[int(max(found.order))] * parallelism.pieces if len(found.order) else 0


def _schedule(parallelism: Parallelism) -> str:
    """Return the schedule by its name in a column; the naive one is 1F1B of one microbatch."""
    return "none" if parallelism.pipeline == 1 else "1f1b" if parallelism.schedule == "naive" else parallelism.schedule


def _device_memory(found: FoundMeshes, number: int) -> DeviceMemory:
    kept = {name: float(one[number]) for name, one in found.memory.items()}
    context = float(found.context_bytes)
    return DeviceMemory(
        parameters=kept["weights"], gradients=kept["gradients"], optimizer=kept["optimizer"],
        activations=kept["activations"] + kept["logits"], buffers=kept["buffers"] + kept["rest"] - context,
        context=context,
    )  # fmt: skip
