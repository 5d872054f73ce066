"""Define training jobs and their device meshes, the models of published runs, and the columns of a training run.

A column has one value per training run. The model of a run is a transformer with dimensions, or a profile with a known
compute time. Column ``dp`` is the number of replicas, ``micro_batch`` is the number of samples per replica and
microbatch, and ``count`` is the number of microbatches per step.
"""

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from collectives.errors import InputError
from collectives.quoting import suggest
from collectives.records.model_profile import (
    Layer,
    ModelProfile,
    find_model_profile,
    flops_per_token,
    parse_transformer,
    read_model_profile,
    shipped_model_profiles,
)
from collectives.training.parallelism import FRAMEWORKS, RECOMPUTED, Parallelism
from planner.gpus import PRECISIONS

DIMENSIONS = (
    "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "mlp_matrices", "vocab", "seq", "tied", "experts",
    "top_k", "expert_ffn", "shared_ffn", "dense_layers", "window",
)  # fmt: skip
ZERO = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "hsdp": 3}  # 1 shards states, 2 also gradients, 3 also parameters
EXCHANGES = ("overlapped", "after", "server", "none", "process")  # how replicas exchange gradients
SCHEDULES = ("none", "1f1b", "gpipe", "interleaved", "zero_bubble")
STATE_BYTES = {"adamw": 8, "adamw8bit": 2, "sgd": 4}  # bytes of optimizer states per parameter
OPTIMIZERS = tuple(STATE_BYTES)
BITS = {"16": 2.0, "8": 1.0, "4": 0.516}  # bytes per frozen weight; NF4 adds 0.127 bits of scales (arXiv:2305.14314)
LIMITED_LOADERS = ("dali", "decode")
LOADERS = ("", *LIMITED_LOADERS)
CHOICES = {
    "exchange": EXCHANGES, "framework": FRAMEWORKS, "recompute": RECOMPUTED, "precision": tuple(PRECISIONS),
    "optimizer": OPTIMIZERS, "loader": LOADERS, "schedule": SCHEDULES,
    "attention": ("flash", "unfused"),
}  # fmt: skip
DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(DIMENSIONS, 0),
    "profile": None,
    "times": None,  # ``Compute`` that divides the time among layers; None: in proportion to their work
    "alone": 0.0,  # seconds per sample on one device alone; 0: computed from a transformer's shapes
    "update": 0.0,  # seconds of the optimizer on one device; 0: included in ``alone``
    "host": None,
    "gpus_used": 0,  # per host; 0: all
    "gpu_memory": 0.0,  # bytes; 0: the data sheet's
    **dict.fromkeys(("dp", "tp", "cp", "pp", "vp", "ep", "micro_batch", "count"), 1),
    **dict.fromkeys(("sequence_parallel", "async_tp", "compiled", "shard"), 0),  # shard 0: within a host
    **{name: names[0] for name, names in CHOICES.items()},
    "schedule": "1f1b",
    "sharding": "ddp",
    "bucket_mb": 25.0,
    "gradient_bytes": 4.0,  # bytes per element in messages
    "lora": 0,  # rank of the adapters; 0: all weights are trained
    "frozen_bits": "16",
    "loader_rate": 0.0,  # samples/s of a host; 0: computed from its cores and the loader
    "variable": 0,  # whether batches have unequal work
}

NUMBERS = [name for name, value in DEFAULTS.items() if isinstance(value, int | float)]

NEVER = 10**12  # value of ``sync_every`` for replicas that never synchronize
HALF = ("fp16", "float16", "bf16", "bfloat16", "half", "mixed", "mixed precision", "amp")


def is_half(precision: str) -> bool:
    """Return whether a precision has 16 bits. Unknown names count as 32 bits."""
    return precision.lower() in HALF


SHARDINGS = {  # of a mesh, by the strategy of a parallelism
    "ddp": "ddp", "zero1": "zero1", "zero2": "zero2", "zero3": "zero3", "fsdp": "zero3", "hsdp": "hsdp",
    "zero_redundancy": "zero1", "data_parallel": "ddp", "parameter_server": "ddp",
}  # fmt: skip


class SearchedMesh(NamedTuple):
    """A device mesh with microbatch size, sharding, recomputation and pipeline schedule. Each field is a column."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    dp: int = 1
    ep: int = 1
    vp: int = 1
    micro_batch: int = 1
    grad_accum: int = 1  # micro-batches per step; column ``count``
    sharding: str = "ddp"
    recompute: str = "none"
    schedule: str = "1f1b"
    sequence_parallel: int = 0

    @property
    def name(self) -> str:
        """The name of the mesh, such as ``zero3 8, tp 2, mb 4, full``."""
        axes = [f"{self.sharding} {self.dp}"]
        axes += [f"{name} {size}" for name in ("tp", "cp", "ep", "pp", "vp") if (size := getattr(self, name)) > 1]
        axes += ["no sp"] if self.tp > 1 and not self.sequence_parallel else []
        axes += [self.schedule.replace("_", "-")] if self.schedule in ("gpipe", "zero_bubble") else []
        return ", ".join([*axes, f"mb {self.micro_batch}", *[self.recompute] * (self.recompute != "none")])


@dataclass(frozen=True)
class Job:
    """A model with training options and parallelism. ``batch`` is the number of samples (or tokens) per replica.

    >>> from collectives.records.model_profile import find_model_profile
    >>> Job(find_model_profile("gpt2"), 8, Parallelism(tensor=2)).on(8).mesh.name
    'ddp 4, tp 2, no sp, mb 8'
    """

    model: ModelProfile
    batch: float  # between two synchronizations, in all microbatches together
    parallelism: Parallelism = field(default_factory=Parallelism)
    precision: str = "float32"
    optimizer: str = "sgd"
    loader: str | None = None  # None: loading is never the bottleneck
    loader_rate: float | None = None  # samples/s of a host's loaders; None: computed from its cores and ``loader``
    variable_batches: bool = False  # unequal work, such as sentences of different lengths
    framework: str = "other"
    compiled: bool = False
    lora: int = 0  # rank of the adapters; 0: all weights are trained
    frozen_bits: str = "16"
    with_zero_bubble: bool = False  # whether zero-bubble schedules are searched
    is_global: bool = False  # whether ``batch`` is the number of all replicas together

    @property
    def microbatch(self) -> float:
        """The number of samples (or tokens) per microbatch."""
        return self.batch / self.parallelism.pieces

    @property
    def global_batch(self) -> int:
        """The number of samples per step of all replicas together."""
        return round(self.batch if self.is_global else self.batch * max(1, self.parallelism.data))

    @property
    def mesh(self) -> SearchedMesh:
        """The device mesh that the parallelism describes. The naive schedule counts as 1F1B with one microbatch."""
        parallelism, schedule = self.parallelism, self.parallelism.schedule.replace("naive", "1f1b")
        return SearchedMesh(
            tp=parallelism.tensor, pp=parallelism.pipeline, dp=max(1, parallelism.data), ep=parallelism.expert,
            vp=parallelism.virtual, micro_batch=int(self.batch // parallelism.pieces), grad_accum=parallelism.pieces,
            sharding=SHARDINGS[parallelism.strategy], recompute=parallelism.recompute,
            schedule="none" if parallelism.pipeline == 1 else schedule, sequence_parallel=int(parallelism.sequence),
        )  # fmt: skip

    @property
    def token_flops(self) -> float:
        """The model FLOPs per token of a transformer, without recomputation. Each token passes ``top_k`` experts."""
        kind, shape = parse_transformer(self.model.model)
        shape = shape._replace(hidden=shape.hidden * self.parallelism.top_k)
        return flops_per_token(kind, shape, is_frozen=self.lora > 0)

    @property
    def columns(self) -> dict[str, Any]:
        """The columns that depend on the job's training options, but not on its model, mesh or host."""
        parallelism, half = self.parallelism, "fp16" if is_half(self.precision) else "float32"
        exchanges = {"parameter_server": "server", "data_parallel": "process"}
        exchange = exchanges.get(parallelism.strategy, "overlapped" if parallelism.overlap else "after")
        return {
            "precision": self.precision if self.precision in PRECISIONS else half,
            "optimizer": self.optimizer if self.optimizer in OPTIMIZERS else "sgd",
            "loader": self.loader if self.loader in LIMITED_LOADERS else "", "loader_rate": self.loader_rate or 0.0,
            "variable": self.variable_batches, "framework": self.framework, "compiled": self.compiled,
            "lora": self.lora, "frozen_bits": self.frozen_bits, "shard": parallelism.shard,
            "bucket_mb": parallelism.bucket_mb or DEFAULTS["bucket_mb"],
            "exchange": "none" if parallelism.sync_every >= NEVER else exchange,
            "gradient_bytes": parallelism.gradient_bytes or (2 if parallelism.half_weights else 4),
        }  # fmt: skip

    @property
    def dimensions(self) -> dict[str, Any]:
        """The columns that describe the job's transformer. Raises InputError if the model is not a transformer."""
        (kind, shape), experts = parse_transformer(self.model.model), self.parallelism.experts
        return {
            "layers": shape.layers, "hidden": shape.width, "heads": shape.heads, "kv_heads": shape.kv_heads,
            "head_dim": shape.width // shape.heads, "ffn": shape.hidden, "mlp_matrices": 3 if kind == "llama" else 2,
            "vocab": shape.vocabulary, "tied": int(kind != "llama"), "seq": shape.context, "experts": experts,
            "top_k": self.parallelism.top_k if experts else 0, "expert_ffn": shape.hidden if experts else 0,
        }  # fmt: skip

    def on(self, devices: int, host: int | None = None) -> "Job":
        """Return the job on ``devices`` devices, with ``host`` devices per host. A global batch is split equally.

        Raise InputError if the parallelism or the global batch does not fit this number of devices.
        """
        parallelism = self.parallelism.for_devices(devices, host)
        if not self.is_global:
            return replace(self, parallelism=parallelism)
        if self.batch % (data := parallelism.data):
            raise InputError(
                f"global_batch_size {self.batch:.0f} is not divisible by {data} replicas; use a multiple of {data}"
            )
        return replace(self, parallelism=parallelism, batch=self.batch // data, is_global=False)


OTHERS = Path(__file__).parent / "data" / "models"
EVEN_LAYERS = 100  # layers of a model if only its size is known
PROFILES = {  # shipped profiles by their names in published series
    "ResNet-18": "resnet18", "ResNet-34": "resnet34", "ResNet-50": "resnet50", "ResNet-101": "resnet101",
    "ResNet-152": "resnet152", "ResNeXt-101": "resnext101_32x8d", "VGG16": "vgg16", "VGG-16": "vgg16",
    "AlexNet": "alexnet", "InceptionV3": "inception_v3", "DenseNet-121": "densenet121", "GPT-2": "gpt2",
    "BERT-base": "bert-base-384", "BERT-large": "bert-large-384",
}  # fmt: skip


@cache
def find_model(name: str) -> ModelProfile:
    """Return the profile of a model, by its name in published series or by the name of a shipped profile.

    Raise InputError if the model is unknown.

    >>> find_model("ResNet-50").parameters, find_model("BERT-large-384").sample
    (25557032, '384 tokens')
    """
    others, known = _others(), shipped_model_profiles()
    if name in others:
        return others[name]
    shipped = PROFILES.get(name, name.lower())
    if shipped not in known:
        raise InputError(f"unknown model {name!r}; {suggest(name, [*PROFILES, *others, *known])}")
    return find_model_profile(shipped)


def models() -> dict[str, ModelProfile]:
    """Return the profile of each model in published series, by its published name."""
    return {name: find_model(name) for name in [*PROFILES, *_others()]}


@cache
def _others() -> dict[str, ModelProfile]:
    return {profile.model: profile for profile in map(read_model_profile, sorted(OTHERS.glob("*.json")))}


def even_model(name: str, parameters: int, flops: float = EVEN_LAYERS, written: float = 0.0) -> ModelProfile:
    """Return a profile of equal layers, with ``parameters`` parameters in total.

    The forward pass of one sample takes ``flops`` FLOPs and writes ``written`` elements.
    """
    each = parameters // EVEN_LAYERS
    sizes = [each] * (EVEN_LAYERS - 1) + [parameters - each * (EVEN_LAYERS - 1)]
    work, nbytes = round(flops / EVEN_LAYERS), round(4 * written / EVEN_LAYERS)  # of float32 elements
    layers = (
        Layer(
            name=str(number), kind="Even", block=str(number), tensors=(size,) if size else (), forward_flops=work,
            backward_flops=round(2 * flops / EVEN_LAYERS), read_bytes=nbytes, written_bytes=nbytes,
            backward_bytes=3 * nbytes, saved_bytes=nbytes, output_bytes=nbytes,
        )
        for number, size in enumerate(sizes)
    )  # fmt: skip
    return ModelProfile(name, "1 sample", 4, "its size alone", tuple(layers))


def transformer_model(name: str) -> ModelProfile:
    """Return the profile of a transformer with equal layers. Raise InputError if its dimensions are unknown.

    >>> transformer_model("gpt2").tokens
    1024
    """
    kind, shape = parse_transformer(name)
    parameters = round(flops_per_token(kind, shape._replace(context=0)) / 6)  # of matrices, without attention's FLOPs
    return replace(even_model(name, parameters), sample=f"{shape.context} tokens", shape=shape)
