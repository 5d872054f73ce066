"""Define ``Parallelism``: the parallelism strategy of a training run and its device mesh.

A mesh has ``data`` x ``tensor`` x ``pipeline`` devices. Consecutive devices form a ``tensor`` group, and consecutive
tensor groups form a ``data`` group, as in Megatron-LM. ``strategy`` says what the ``data`` devices do:

* ``ddp``: every device has all parameters. Gradients are averaged in buckets during backward.
* ``parameter_server``: devices fetch the weights from servers before a step, and send gradients to them after backward.
* ``data_parallel``: one process has the parameters and sends them to the others in each step (``nn.DataParallel``).
* ``zero1``, ``zero2``, ``zero3``: ZeRO stages. Stage 1 shards optimizer states. Stage 2 also shards gradients. Stage 3
  also shards parameters (Rajbhandari et al., https://arxiv.org/abs/1910.02054).
* ``zero_redundancy``: torch's ZeroRedundancyOptimizer with DDP. Gradients are averaged as in ``ddp``, and optimizer
  states are sharded as in ``zero1``. Each parameter is broadcast by the device that has its states.
* ``fsdp``: like ``zero3``, one block of the model at a time. ``hsdp``: ``fsdp`` within groups of ``shard`` devices, and
  averages between the groups (Zhao et al., https://arxiv.org/abs/2304.11277).
"""

from dataclasses import dataclass, replace

from collectives.checks import check_bool, check_known, check_number, check_whole_number
from collectives.errors import InputError
from collectives.units import count

STRATEGIES = ("ddp", "data_parallel", "parameter_server", "zero_redundancy", "zero1", "zero2", "zero3", "fsdp", "hsdp")
SHARDED = ("zero3", "fsdp", "hsdp")  # strategies whose parameters are gathered before they are used
REPLICAS = {  # strategies that cannot be combined with other axes, with a description
    "data_parallel": "one process on the devices of a host",
    "parameter_server": "whole replicas that fetch their weights",
}
SCHEDULES = ("1f1b", "gpipe", "interleaved", "naive")
RECOMPUTED = ("none", "selective", "full")
AXES = ("data", "tensor", "pipeline")
FRAMEWORKS = (  # frameworks for language models, as named in published runs
    "other", "nanotron", "llm-foundry", "megatron-deepspeed", "megatron-bridge", "torchtitan", "nemo", "megatron",
)  # fmt: skip
LOADERS = ("synthetic", "dali", "decode", "text")  # loaders of samples


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """The parallelism strategy and the device mesh of a training run. Raise InputError for an invalid combination.

    If ``data`` is 0, ``for_devices`` computes it from the number of devices and the other axes. A pipeline divides a
    batch into ``microbatches`` and runs them in the order of ``schedule``. With ``naive``, the batch is not divided, so
    one stage works at a time. With ``interleaved``, each device has ``virtual`` stages. ``sequence`` also shards the
    activations that tensor parallelism replicates (Korthikanti et al., https://arxiv.org/abs/2205.05198). The
    ``experts`` of each block's MLP are sharded over ``expert`` of the ``data`` devices. ``top_k`` experts process each
    token.

    >>> Parallelism(tensor=4).for_devices(8).data
    2
    """

    strategy: str = "ddp"
    data: int = 0
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    shard: int = 0  # devices per hsdp group; 0: the GPUs of a node
    sequence: bool = False
    schedule: str = "1f1b"
    virtual: int = 1
    microbatches: int = 0  # per batch; 0: the number of stages
    experts: int = 0
    top_k: int = 1
    recompute: str = "none"
    bucket_mb: float | None = None  # MiB; None: the default of DDP or of frameworks for language models
    overlap: bool = True  # synchronize gradients during backward; False: all at once after backward
    sync_every: int = 1  # steps between synchronizations with ddp; above 1: local SGD, which averages weights
    half_weights: bool = False  # 16-bit weights and gradients, with a float32 copy in the optimizer
    gradient_bytes: int = 0  # bytes per gradient element when sent, as compressed by a DDP hook; 0: as computed

    def __post_init__(self) -> None:
        check_known("strategy", self.strategy, STRATEGIES)
        check_known("schedule", self.schedule, SCHEDULES)
        check_known("recompute", self.recompute, RECOMPUTED)
        for name in ("tensor", "pipeline", "expert", "virtual", "top_k", "sync_every"):
            check_whole_number(name, getattr(self, name), at_least=1)
        for name in ("data", "shard", "microbatches", "experts", "gradient_bytes"):
            check_whole_number(name, getattr(self, name), at_least=0)
        if self.bucket_mb is not None:
            check_number("bucket_mb", self.bucket_mb, "MiB", above=0)
        for name in ("sequence", "overlap", "half_weights"):
            check_bool(name, getattr(self, name))
        self._check_together()

    def _check_together(self) -> None:
        if self.virtual > 1 and self.schedule != "interleaved":
            raise InputError(f'virtual ({self.virtual}) requires schedule "interleaved", not {self.schedule}')
        if self.schedule != Parallelism.schedule and self.pipeline == 1:
            raise InputError(f"schedule {self.schedule} requires a pipeline; set pipeline to at least 2")
        if self.schedule == "naive" and self.microbatches > 1:
            raise InputError(f"microbatches must be 1 for the naive schedule, not {self.microbatches}; or use 1f1b")
        if self.sequence and self.tensor == 1:
            raise InputError("sequence requires tensor parallelism; set tensor to at least 2")
        if self.strategy in REPLICAS and max(self.tensor, self.pipeline, self.expert) > 1:
            raise InputError(f"tensor, pipeline and expert must be 1 with strategy {self.strategy}")
        if self.sync_every > 1 and self.strategy != "ddp":
            raise InputError(f"sync_every ({self.sync_every}) requires strategy ddp, not {self.strategy}")
        if self.gradient_bytes > 8:
            raise InputError(f"gradient_bytes must be at most 8, not {self.gradient_bytes}; set 0 for no compression")
        if self.shard and self.strategy != "hsdp":
            raise InputError(f"shard ({self.shard}) only applies to strategy hsdp, not {self.strategy}")
        if self.expert > 1 and self.experts % self.expert + (self.experts == 0):
            raise InputError(f"experts must be a multiple of expert ({self.expert}), not {self.experts}")
        if self.top_k > 1 and not self.experts:
            raise InputError(f"top_k ({self.top_k}) requires experts")
        if self.experts and self.top_k > self.experts:
            raise InputError(f"top_k must be at most the number of experts ({self.experts}), not {self.top_k}")

    @property
    def devices(self) -> int:
        """The number of devices of the mesh, or 0 if ``data`` is not set."""
        return self.data * self.tensor * self.pipeline

    @property
    def pieces(self) -> int:
        """The number of microbatches into which a batch is divided."""
        if self.pipeline == 1:
            return max(1, self.microbatches)
        return 1 if self.schedule == "naive" else self.microbatches or self.pipeline

    @property
    def has_dtensors(self) -> bool:
        """Whether PyTorch's implementation of this strategy has ``DTensor`` parameters."""
        return self.strategy in ("zero2", *SHARDED) or self.tensor > 1

    @property
    def label(self) -> str:
        """A short text with the strategy, and with the name and size of each axis larger than 1.

        >>> Parallelism(strategy="fsdp", data=2, tensor=4).label
        'fsdp 2 x tensor 4'
        """
        axes = [f"tensor {self.tensor}"] if self.tensor > 1 else []
        axes += [f"pipeline {self.pipeline} {self.schedule}"] if self.pipeline > 1 else []
        axes += [f"expert {self.expert}"] if self.expert > 1 else []
        data = [f"{self.strategy} {self.data}".removesuffix(" 0")] if self.data != 1 or not axes else []
        return " x ".join([*data, *axes])

    def for_devices(self, devices: int, node: int | None = None) -> "Parallelism":
        """Return a copy for ``devices`` devices, ``node`` of them per host. Raise InputError if the axes do not fit."""
        check_whole_number("devices", devices, at_least=1)
        model = self.tensor * self.pipeline
        data = self.data or devices // model
        if data * model != devices:
            mesh = f"tensor {self.tensor} x pipeline {self.pipeline}"
            mesh = f"data {self.data} x {mesh}" if self.data else mesh
            advice = f"set axes whose product is {devices}, such as data = {max(1, devices // model)}"
            if devices % model:
                advice = f"set tensor x pipeline to a divisor of {devices}"
            raise InputError(f"parallelism {mesh} does not fit {count(devices, 'device')}; {advice}")
        if data % self.expert:
            raise InputError(f"data ({data}) must be a multiple of expert ({self.expert})")
        shard = self.shard or min(max(1, (node or devices) // self.tensor), data)
        if self.strategy == "hsdp" and data % shard:
            raise InputError(f"data ({data}) must be a multiple of shard ({shard})")
        return replace(self, data=data, shard=shard if self.strategy == "hsdp" else 0)
