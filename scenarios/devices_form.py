"""What a scenario says of a training on many devices, ``ringlab predict --devices``: ``[cluster]`` and ``[training]``.

Tables and keys that only other commands need are passed over, so any scenario with a training can be asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.quoting import make_printable, suggest
from collectives.training.parallelism import Parallelism
from collectives.training.recipe import PRECISIONS
from collectives.training.workload import SHAPE, TO_TRAIN_ON, ComputePhases
from scenarios import toml_files
from scenarios.cluster_forms import AnyClusterForm
from scenarios.fields import Seconds, Section, Title, check_known
from scenarios.forms import ScenarioForm, Syncs, TrainingForm
from scenarios.loader import builder_of
from scenarios.messages import read_form
from scenarios.nccl_forms import NcclForm
from simcomm.cluster.cluster import Cluster
from simcomm.mesh.job import LOADERS
from simcomm.mesh.memory import STATES
from simcomm.mesh.shared_links import CONTENTION
from simcomm.scaling.gpu_rates import ComputeSource

LEAST_S = 1e-9  # of the stated phases of a step together
SOURCES = ("profile", "rate", "forward")
OVERLAPPED = ("ddp", "nccl")  # gradient syncs whose gradients travel while backward goes on


class ComputeSourceForm(Section):
    """``[training.compute]``: a profile's file, samples a second of one device, a GPU, or the phases."""

    profile: str | None = Field(None, description='for example "resnet50.json"')
    rate: float | None = Field(None, gt=0, allow_inf_nan=False)
    gpu: str | None = None
    forward: Seconds | None = None
    backward: Seconds | None = None
    optimizer: Seconds | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        given = [name for name in SOURCES if getattr(self, name) is not None]
        given += ["gpu"] if self.gpu is not None and given != ["rate"] else []
        phases = [name for name in ("forward", "backward", "optimizer") if getattr(self, name) is not None]
        if len(given) != 1 or len(phases) not in (0, 3):
            raise InputError(
                'give one source: profile = "FILE.json", rate = 500.0 (and the gpu that it was measured on, where it '
                'is another), gpu = "RTX 4090", or forward, backward and optimizer'
            )
        if self.forward is not None and self.backward is not None and self.forward + self.backward < LEAST_S:
            raise InputError("forward and backward take no time; give phases that take 1 ns together, or more")
        return self

    def source(self, batch: int) -> ComputeSource:
        """Return it, with the stated phases those of a batch of so many samples."""
        phases = None
        if self.forward is not None and self.backward is not None and self.optimizer is not None:
            phases = ComputePhases(self.forward, self.backward, self.optimizer)
        return ComputeSource(self.rate, self.gpu, phases, batch, is_profiled=self.profile is not None)


def check_parallelism(given: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a ``Parallelism``. Raise InputError for an unknown key, or values that cannot be together."""
    known = [one.name for one in fields(Parallelism)]
    for key in given.keys() - {*known}:
        raise InputError(f"{key} is no known key; {suggest(key, known)}")
    Parallelism(**given)
    return given


ParallelismKeys = Annotated[dict[str, Any], AfterValidator(check_parallelism)]


class DevicesTrainingForm(Section):
    """``[training]`` on many devices, described or rented."""

    model: str = Field("resnet18", min_length=1)
    parameters: int | None = Field(None, ge=1, le=10**15)  # of a model of which no more is known
    dataset: str = ""
    image_shape: list[int] = Field([])
    batch_size: int = Field(32, ge=1, le=10**9)
    precision: str = "float32"
    optimizer: str = "sgd"
    epochs: int = Field(1, ge=1)
    images: int | None = Field(None, ge=1)
    samples_per_epoch: int | None = Field(None, ge=1, le=10**15)
    price_per_hour: float | None = Field(None, gt=0, allow_inf_nan=False)  # of one device
    loader: str | None = None  # one of LOADERS
    loader_rate: float | None = Field(None, gt=0, allow_inf_nan=False)  # samples/s that a host's loaders make
    input_bytes: int | None = Field(None, ge=0, le=10**12)  # of a sample as it is copied to a device
    contention: list[str] = Field([*CONTENTION])
    variable_batches: bool = False  # of unequal work
    accumulate: int = Field(1, ge=1)
    sync_every: int = Field(1, ge=1)
    gradient_sync: Syncs | None = None
    parallelism: ParallelismKeys = Field({})
    compute: ComputeSourceForm | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a sample, where the scenario says it."""
        return tuple(self.image_shape) or (SHAPE if self.dataset in TO_TRAIN_ON else None)

    @property
    def epoch(self) -> int | None:
        """The samples of an epoch, where it is said how many there are."""
        return self.samples_per_epoch or self.images or TO_TRAIN_ON.get(self.dataset)

    @property
    def mesh(self) -> Parallelism:
        """The form of parallelism. Raise InputError for values that cannot be together."""
        given = dict(self.parallelism)
        if self.gradient_sync:
            named = self.gradient_sync[0]
            given.setdefault("overlap", named.name in OVERLAPPED or named.buckets is not None)
            if named.buckets is not None:
                given.setdefault("bucket_mb", named.buckets.mb)
        if self.accumulate > 1:
            given.setdefault("microbatches", self.accumulate)
        if self.sync_every > 1:
            given.setdefault("sync_every", self.sync_every)
        return Parallelism(**given)

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if self.loader is not None:
            check_known(self.loader, "loader", LOADERS)
        check_known(self.precision, "precision", PRECISIONS)
        check_known(self.optimizer, "optimizer", tuple(STATES))
        for what in self.contention:
            check_known(what, "contention", CONTENTION)
        return self


class DevicesScenarioForm(Section):
    """A whole file as ``--devices`` reads it."""

    title: Title = ""
    cluster: AnyClusterForm = Field(description='for example [cluster] with preset = "dgx-h100"')
    training: DevicesTrainingForm = Field(description="a [training] table, what is to be predicted")
    nccl: NcclForm | None = None


@dataclass(frozen=True)
class SpreadTraining:
    """A training on many devices, as a scenario says it."""

    title: str
    path: Path
    folder: Path  # of the files that it names
    cluster: Cluster
    training: DevicesTrainingForm
    algorithm: Algorithm | None  # of all_reduce on a simulated network
    parallelism: Parallelism


def read_spread_training(reference: str | Path, overrides: Sequence[str] = ()) -> SpreadTraining:
    """Return the training of a scenario, for many devices. Raise InputError that names file, key and value.

    >>> read_spread_training("star8", ["training.parallelism={form = 'zero2'}"]).parallelism.form
    'zero2'
    """
    path, builder = builder_of(reference, overrides)
    form = read_form(_without_others(toml_files.tables(path, overrides)), builder.where, DevicesScenarioForm)
    training, cluster = form.training, builder.build_cluster(form.cluster, "cluster", form.nccl)
    named = training.gradient_sync[0] if training.gradient_sync else None
    algorithm = None
    if named is not None and named.name not in OVERLAPPED:
        algorithm = builder.find_algorithm(named, "all_reduce", (cluster,), "training.gradient_sync.0")
    with builder.at("training.parallelism"):
        parallelism = training.mesh
    return SpreadTraining(
        title=form.title or make_printable(path.stem),
        path=path,
        folder=builder.folder,
        cluster=cluster,
        training=training,
        algorithm=algorithm,
        parallelism=parallelism,
    )


def _without_others(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the tables without what only other commands read."""
    others = {*ScenarioForm.model_fields, "plan"} - DevicesScenarioForm.model_fields.keys()
    kept = {key: value for key, value in tables.items() if key not in others}
    if isinstance(kept.get("training"), dict):
        foreign = TrainingForm.model_fields.keys() - DevicesTrainingForm.model_fields.keys()
        kept["training"] = {key: value for key, value in kept["training"].items() if key not in foreign}
    return kept
