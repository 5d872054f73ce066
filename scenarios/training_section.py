"""Define ``[training]``, which describes a training run for all commands.

Each command uses only some of the keys. ``scenarios/loader.py`` rejects keys that ranks cannot run.
"""

from dataclasses import fields
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, model_validator

from collectives.checks import check_known, check_number
from collectives.errors import InputError
from collectives.quoting import quote, suggest
from collectives.records.model_profile import is_transformer, with_sequence
from collectives.removed import KEYS, describe_removed
from collectives.training.gradients import RESNETS
from collectives.training.parallelism import FRAMEWORKS, LOADERS, Parallelism
from collectives.training.recipe import OPTIMIZERS, PRECISIONS
from collectives.training.workload import (
    DATASETS,
    FILES,
    SHAPE,
    TO_TRAIN_ON,
    Buckets,
    ComputePhases,
    is_file_reference,
)
from scenarios.fields import Seconds, Section, as_list, read_reference

OF_DEVICES = (  # keys of a training on many devices
    "parallelism", "samples_per_epoch", "price_per_hour", "loader", "loader_rate",
    "variable_batches", "framework",
)  # fmt: skip
OVERLAPPED = ("ddp", "nccl")  # gradient syncs that overlap with backward


class ComputeSection(Section):
    """``[training.compute]``: compute times, given as phases, a model profile, a rate in samples/s, or a GPU."""

    profile: str | None = Field(None, description='for example "resnet50.json"')
    rate: float | None = Field(None, gt=0, allow_inf_nan=False)
    gpu: str | None = None
    forward: Seconds | None = Field(None, description='for example "12 ms"')
    backward: Seconds | None = Field(None, description='for example "12 ms"')
    optimizer: Seconds | None = Field(None, description='for example "12 ms"')
    loading: Seconds | None = Field(None, description='for example "2 ms"')

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        phases = [self.forward, self.backward, self.optimizer]
        sources = [name for name in ("profile", "rate") if getattr(self, name) is not None]
        sources += ["gpu"] if self.gpu is not None and sources != ["rate"] else []
        sources += ["phases"] if [*phases, self.loading] != [None] * 4 else []
        if len(sources) != 1:
            raise InputError(
                'set exactly one source of compute times: profile = "FILE.json", rate = 500.0 (and the gpu of the '
                'rate, if different), gpu = "RTX 4090", or forward, backward and optimizer'
            )
        if sources == ["phases"]:
            for name in ("forward", "backward", "optimizer"):
                if getattr(self, name) is None:
                    raise InputError(f'{name} is missing; set for example {name} = "12 ms"')
            if not sum(phase or 0.0 for phase in phases):
                raise InputError("all compute times are zero; set at least one positive time")
        return self

    @property
    def phases(self) -> ComputePhases | None:
        """The compute times of a batch if the phases are given, otherwise None."""
        if self.forward is None or self.backward is None or self.optimizer is None:
            return None
        return ComputePhases(self.forward, self.backward, self.optimizer, self.loading or 0.0)


class Sync(NamedTuple):
    """A gradient synchronization: the name and parameters of an algorithm, and its gradient buckets if it has any."""

    name: str
    parameters: dict[str, int | str]
    buckets: Buckets | None


def read_sync(value: object) -> Sync:
    """Return the gradient synchronization that a name or a table describes. Raise InputError if it is invalid.

    >>> read_sync({"name": "ring", "overlap": True, "bucket_mb": 10}).buckets
    Buckets(mb=10.0, hook='own')
    """
    keys = dict(value) if isinstance(value, dict) else {"name": value}
    overlap, hook, mb = (keys.pop(key, None) for key in ("overlap", "hook", "bucket_mb"))
    reference = read_reference(keys if isinstance(value, dict) else value, SYNC)
    if overlap is not None and not isinstance(overlap, bool):
        raise InputError(f"overlap of {reference.name} must be true or false, not {quote(overlap)}")
    is_ddp = reference.name == "ddp"
    if is_ddp and (overlap is not None or hook is not None):
        raise InputError('"ddp" always overlaps; its only key is bucket_mb')
    if hook is not None and overlap:
        raise InputError(f"{reference.name} sets both overlap and hook; remove one of them")
    if mb is not None and not (overlap or hook is not None or is_ddp):
        raise InputError(f'bucket_mb of {reference.name} requires overlap = true or hook = "ddp"')
    size = Buckets.mb if mb is None else float(check_number("bucket_mb", mb, "MiB", above=0))
    if hook is not None:
        return Sync(*reference, Buckets(size, str(hook)))
    return Sync(*reference, Buckets(size) if overlap or (is_ddp and mb is not None) else None)


Syncs = Annotated[list[Annotated[Sync, PlainValidator(read_sync)]], BeforeValidator(as_list)]
SYNC = (
    'a gradient sync is "ring", "ddp", "my.py:name", {name = "ring", parameter = 4}, '
    '{name = "ring", overlap = true, bucket_mb = 25} or {name = "ring", hook = "ddp"}'
)


def check_parallelism(keys: dict[str, Any]) -> dict[str, Any]:
    """Return ``keys``. Raise InputError if they are not valid arguments of ``Parallelism``."""
    known = [field.name for field in fields(Parallelism)]
    for key in keys.keys() - {*known}:
        removed = describe_removed(KEYS, f"training.parallelism.{key}")
        raise InputError(removed or f"unknown key {key}; {suggest(key, known)}")
    Parallelism(**keys)
    return keys


class TrainingSection(Section):
    """``[training]``: a training run. In a run on ranks, missing keys have the defaults of ``Training``."""

    gradient_sync: Syncs | None = Field(None, min_length=1)
    model: str = Field("resnet18", min_length=1)
    sequence: int | None = Field(None, ge=1, le=1 << 22)  # tokens per sample; default: the model's
    parameters: int | None = Field(None, ge=1, le=10**15)  # parameters of a model without a profile
    dataset: str = ""
    image_shape: list[int] = Field([])
    batch_size: int = Field(32, ge=1, le=10**9)
    global_batch_size: int = Field(1, ge=1, description="of all ranks together, in place of batch_size")
    epochs: int = Field(1, ge=1)
    seed: int = Field(0, ge=0, lt=2**32)
    learning_rate: float = Field(1.0, gt=0, allow_inf_nan=False)
    scale_learning_rate: bool | str = False
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: str = ""
    warm_up: int = 0
    accumulate: int = Field(1, ge=1)
    clip_norm: float = 1.0
    sync_every: int = Field(1, ge=1)
    precision: str = "float32"
    sync_batch_norm: bool = False
    broadcast_weights: bool = True
    check_every: int = 0
    data_folder: str = ""
    checkpoints: str = Field("", min_length=1, description='a folder, for example "checkpoints"')
    checkpoint_every: int = Field(1, ge=1)
    download: bool = False
    num_workers: int = Field(0, le=1024)
    prefetch_factor: int = Field(1, le=10**6)
    pin_memory: bool = False
    random_crop: int = Field(0, le=10**4)
    flip: bool = False
    stem: str = ""
    classes: int = 10
    images: int = Field(1, ge=1)
    samples_per_epoch: int | None = Field(None, ge=1, le=10**15)
    price_per_hour: float | None = Field(None, gt=0, le=1e6, allow_inf_nan=False)  # dollars for one device
    loader: str | None = None  # must be one of LOADERS
    loader_rate: float | None = Field(None, gt=0, allow_inf_nan=False)  # samples/s of the data loaders of a host
    variable_batches: bool = False  # compute times differ between batches
    framework: str = FRAMEWORKS[0]  # only for language models
    parallelism: Annotated[dict[str, Any], AfterValidator(check_parallelism)] = Field({})
    compute: ComputeSection | None = None

    @model_validator(mode="before")
    @classmethod
    def _name_sequence(cls, table: object) -> object:
        if not isinstance(table, dict) or type(table.get("sequence")) is not int or table["sequence"] < 1:
            return table
        model = table.get("model", "resnet18")
        if not isinstance(model, str) or not is_transformer(model):
            raise InputError(f"sequence only applies to transformers, and model is {quote(model)}; remove sequence")
        return table | {"model": with_sequence(model, table["sequence"])}

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a sample, or None if the scenario does not define it."""
        return tuple(self.image_shape) or (SHAPE if self.dataset in TO_TRAIN_ON else None)

    @property
    def epoch(self) -> int | None:
        """The number of samples per epoch, or None if the scenario does not define it."""
        images = self.images if "images" in self.model_fields_set else None
        return self.samples_per_epoch or images or TO_TRAIN_ON.get(self.dataset)

    @property
    def mesh(self) -> Parallelism:
        """The ``Parallelism`` that the keys of ``[training]`` describe. Raise InputError for invalid keys."""
        keys = dict(self.parallelism)
        if self.gradient_sync:
            sync = self.gradient_sync[0]
            keys.setdefault("overlap", sync.name in OVERLAPPED or sync.buckets is not None)
            if sync.buckets is not None:
                keys.setdefault("bucket_mb", sync.buckets.mb)
        if self.accumulate > 1:
            keys.setdefault("microbatches", self.accumulate)
        if self.sync_every > 1:
            keys.setdefault("sync_every", self.sync_every)
        return Parallelism(**keys)

    @property
    def why_not_run(self) -> str:
        """The reason why ranks cannot run this training, or an empty string if they can."""
        sources = [
            f"compute.{key}" for key in ("gpu", "profile", "rate") if getattr(self.compute, key, None) is not None
        ]
        for key in [*(key for key in OF_DEVICES if key in self.model_fields_set), *sources]:
            how = "predict it with --devices 1,2,4,8"
            how += ", or run or compare it on ranks of this machine" if key == "parallelism" else ""
            return f"training: {key} only applies to training on many devices; {how}"
        if self.gradient_sync is None and not is_file_reference(self.model) and self.model not in RESNETS:
            return f"training: ranks cannot run {quote(self.model)}; predict it on many devices with --devices 1,2,4,8"
        if self.gradient_sync is None:
            return (
                'training.gradient_sync is missing; set for example gradient_sync = ["ring", "ddp"], or predict the '
                "training on many devices with --devices 1,2,4,8"
            )
        return ""

    def check_run(self) -> list[Sync]:
        """Return the gradient synchronizations to run. Raise InputError if ranks cannot run this training."""
        if self.gradient_sync is None or self.why_not_run:
            raise InputError(self.why_not_run)
        if not is_file_reference(self.model):
            check_known("training.model", self.model, RESNETS, f", {FILES}")
        if self.dataset:
            check_known("training.dataset", self.dataset, DATASETS)
        return self.gradient_sync

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        check_known("precision", self.precision, PRECISIONS)
        check_known("optimizer", self.optimizer, OPTIMIZERS)
        check_known("framework", self.framework, FRAMEWORKS)
        if self.loader is not None:
            check_known("loader", self.loader, LOADERS)
        if {"batch_size", "global_batch_size"} <= self.model_fields_set:
            raise InputError(
                "batch_size (per rank) and global_batch_size (all ranks) are mutually exclusive; remove one"
            )
        if self.sequence is not None and self.compute is not None and self.compute.profile is not None:
            raise InputError(
                "sequence and compute.profile are mutually exclusive; remove sequence, which the profile fixes"
            )
        if "checkpoint_every" in self.model_fields_set and not self.checkpoints:
            raise InputError("checkpoint_every requires checkpoints, the directory to write to")
        return self
