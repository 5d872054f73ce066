"""What a scenario file may say: its keys, their kinds and their bounds, as pydantic models.

Everything that can be judged without building the cluster or looking up an algorithm is judged here.
"""

from typing import Annotated, Any, NamedTuple, Self

from pydantic import BeforeValidator, Field, PlainValidator, ValidationInfo, field_validator, model_validator

from collectives.checks import check_number
from collectives.declaration import NCCL
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.spec import check_op, find_spec, item_bytes
from collectives.training.workload import DATASETS, FILES, MODELS, Buckets, is_file_reference
from collectives.units import format_size
from scenarios.cluster_forms import AnyClusterForm
from scenarios.fields import Algorithms, Seconds, Section, Size, Title, as_list, check_known, read_reference
from scenarios.nccl_forms import NcclForm
from scenarios.trouble import TroubleForm

NEEDS_NCCL = 'it has a meaning for a cluster with transport = "nccl" only'


class CollectiveForm(Section):
    """``[collective]``: algorithms of one collective to compare."""

    name: str = Field(description='for example "all_reduce"')
    dtype: str = "float32"
    op: str = "sum"
    root: int = Field(0, ge=0)
    algorithms: Algorithms = Field(min_length=1, description='for example ["naive", "ring"]')
    sizes: Annotated[list[Size], BeforeValidator(as_list)] = Field(
        min_length=1, description='for example ["64 KiB", "1 MiB"]'
    )

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        return find_spec(name).name

    @field_validator("dtype")
    @classmethod
    def _check_dtype(cls, dtype: str) -> str:
        item_bytes(dtype)
        return dtype

    @field_validator("op")
    @classmethod
    def _check_op(cls, op: str, info: ValidationInfo) -> str:
        check_op(op, info.data.get("dtype", "float32"))
        if "name" in info.data and op != "sum" and not find_spec(info.data["name"]).reduces:
            raise InputError(f"{quote(op)} has no meaning, as {info.data['name']} reduces nothing; leave the key out")
        return op

    @field_validator("root")
    @classmethod
    def _check_root(cls, root: int, info: ValidationInfo) -> int:
        if "name" in info.data and root != 0 and not find_spec(info.data["name"]).rooted:
            raise InputError(f"{root} has no meaning, as {info.data['name']} has no root; leave the key out")
        return root

    @field_validator("sizes")
    @classmethod
    def _check_sizes(cls, sizes: list[int], info: ValidationInfo) -> list[int]:
        dtype = info.data.get("dtype", "uint8")
        for nbytes in sizes:
            if nbytes < item_bytes(dtype):
                raise InputError(
                    f"{format_size(nbytes)} holds no element of {dtype}, which takes {item_bytes(dtype)} B"
                )
        return sizes


class ComputeForm(Section):
    """``[training.compute]``: how long a rank computes in each step."""

    forward: Seconds
    backward: Seconds
    optimizer: Seconds

    @model_validator(mode="after")
    def _check_total(self) -> Self:
        if self.forward + self.backward + self.optimizer <= 0:
            raise InputError("a step that computes for no time has no scaling efficiency; give a time above zero")
        return self


class Sync(NamedTuple):
    """A gradient sync: an algorithm by name and parameters, and the buckets in which gradients travel, if any."""

    name: str
    parameters: dict[str, int | str]
    buckets: Buckets | None


def read_sync(value: object) -> Sync:
    """Return the sync that a value is. Raise InputError for keys and values that it cannot have.

    >>> read_sync({"name": "ring", "overlap": True, "bucket_mb": 10}).buckets
    Buckets(mb=10.0, hook='own')
    """
    given = dict(value) if isinstance(value, dict) else {"name": value}
    overlap, hook, mb = (
        given.pop(key, usual) for key, usual in (("overlap", None), ("hook", None), ("bucket_mb", None))
    )
    reference = read_reference(given if isinstance(value, dict) else value, SYNC)
    if overlap is not None and not isinstance(overlap, bool):
        raise InputError(f"overlap = {quote(overlap)} of {reference.name} should be true or false")
    is_ddp = reference.name == "ddp"
    if is_ddp and (overlap is not None or hook is not None):
        raise InputError('"ddp" overlaps by itself; of its keys only bucket_mb is known')
    if hook is not None and overlap:
        raise InputError(f"{reference.name} has overlap and hook; give one: overlap = true is by our own hooks")
    if mb is not None and not (overlap or hook is not None or is_ddp):
        raise InputError(f'bucket_mb of {reference.name} needs overlap = true or hook = "ddp"')
    size = Buckets.mb if mb is None else float(check_number("bucket_mb", mb, "MiB", above=0))
    if hook is not None:
        return Sync(*reference, Buckets(size, str(hook)))
    return Sync(*reference, Buckets(size) if overlap or (is_ddp and mb is not None) else None)


Syncs = Annotated[list[Annotated[Sync, PlainValidator(read_sync)]], BeforeValidator(as_list)]
SYNC = (
    'a gradient sync is "ring", "ddp", "my.py:name", {name = "ring", parameter = 4}, '
    '{name = "ring", overlap = true, bucket_mb = 25} or {name = "ring", hook = "ddp"}'
)


class TrainingForm(Section):
    """``[training]``: keys that are left out keep the defaults of ``collectives.training.workload.Training``."""

    gradient_sync: Syncs = Field(min_length=1, description='for example ["ring", "ddp"]')
    model: str = ""
    dataset: str = ""
    batch_size: int = Field(1, ge=1)
    global_batch_size: int = Field(1, ge=1, description="of all ranks together, in place of batch_size")
    epochs: int = Field(1, ge=1)
    seed: int = Field(0, ge=0, lt=2**32)
    learning_rate: float = Field(1.0, gt=0, allow_inf_nan=False)
    scale_learning_rate: bool | str = False
    optimizer: str = ""
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: str = ""
    warm_up: int = 0
    accumulate: int = 1
    clip_norm: float = 1.0
    sync_every: int = 1
    precision: str = ""
    sync_batch_norm: bool = False
    broadcast_weights: bool = True
    check_every: int = 0
    inspect_every: int = 0
    data_folder: str = ""
    checkpoints: str = Field("", min_length=1, description='a folder, for example "checkpoints"')
    checkpoint_every: int = Field(1, ge=1)
    download: bool = False
    stem: str = ""
    classes: int = 10
    image_shape: list[int] = Field([])
    images: int = 1
    parameters: int = 1
    compute: ComputeForm | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_keys_of_devices(cls, given: Any) -> Any:
        """Say of keys that only ``--devices`` reads where they belong."""
        table = given if isinstance(given, dict) else {}
        compute = table["compute"] if isinstance(table.get("compute"), dict) else {}
        keys = [key for key in ("parallelism", "samples_per_epoch", "price_per_hour", "loader_rate") if key in table]
        keys += [f"compute.{key}" for key in ("profile", "rate", "gpu") if key in compute]
        for key in keys:
            raise InputError(f"{key} is of trainings on many devices; predict them with --devices 1,2,4,8")
        return given

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        return model if is_file_reference(model) else check_known(model, "model", MODELS, f", {FILES}")

    @field_validator("dataset")
    @classmethod
    def _check_dataset(cls, dataset: str) -> str:
        return check_known(dataset, "dataset", DATASETS)

    @model_validator(mode="after")
    def _check_batch_size(self) -> Self:
        if {"batch_size", "global_batch_size"} <= self.model_fields_set:
            raise InputError("batch_size is per rank and global_batch_size of all ranks together; give one of them")
        return self

    @model_validator(mode="after")
    def _check_checkpoints(self) -> Self:
        if "checkpoint_every" in self.model_fields_set and not self.checkpoints:
            raise InputError("checkpoint_every says how often, and checkpoints is to say in which folder; give it too")
        return self


class WhatIfForm(Section):
    """``[[what_if]]``: another cluster, other trouble, other settings of NCCL, or several of these."""

    title: Title = Field(min_length=1, description='for example "eight hosts on 10 Gbit/s"')
    cluster: AnyClusterForm | None = Field(None, description="a table like [cluster]; the scenario's own unless given")
    trouble: TroubleForm | None = Field(None, description="a table like [trouble]")
    nccl: NcclForm | None = Field(None, description="a table like [nccl]; the scenario's own unless given")

    @model_validator(mode="after")
    def _check_difference(self) -> Self:
        if self.cluster is None and self.trouble is None and self.nccl is None:
            raise InputError(
                "nothing differs from the scenario: give a [what_if.cluster], a [what_if.trouble] or both, "
                "or a [what_if.nccl]"
            )
        return self


class ScenarioForm(Section):
    """A whole file."""

    title: Title = Field("", min_length=1)
    cluster: AnyClusterForm = Field(description='for example [cluster] with preset = "this-machine"')
    collective: CollectiveForm | None = None
    training: TrainingForm | None = None
    trouble: TroubleForm | None = None
    nccl: NcclForm | None = None
    what_if: list[WhatIfForm] = Field([])
    plan: dict[str, Any] = Field({})  # read by a plan only: scenarios/plan_form.py

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        if self.collective is None and self.training is None:
            raise InputError("it asks nothing: add a [collective] or a [training] table")
        return self

    @model_validator(mode="after")
    def _check_nccl(self) -> Self:
        over_nccl = [(other.cluster or self.cluster).transport == NCCL for other in self.what_if]
        if self.nccl is not None and self.cluster.transport != NCCL and True not in over_nccl:
            raise InputError(f"[nccl]: {NEEDS_NCCL}")
        for number, (other, fits) in enumerate(zip(self.what_if, over_nccl, strict=True)):
            if other.nccl is not None and not fits:
                raise InputError(f"what_if.{number}.nccl: {NEEDS_NCCL}")
        return self

    @model_validator(mode="after")
    def _check_trouble(self) -> Self:
        if not self.trouble and not any(other.trouble for other in self.what_if):
            return self
        syncs = [one.name for one in (self.training.gradient_sync if self.training else ())]
        asked = [*syncs, *(one.name for one in (self.collective.algorithms if self.collective else ()))]
        for name, is_asked in ((NCCL, NCCL in asked), ("ddp", "ddp" in syncs)):
            if is_asked:
                raise InputError(f'trouble: "{name}" is predicted as a whole, without messages that trouble could meet')
        return self
