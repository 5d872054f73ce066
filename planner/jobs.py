"""The columns that describe trainings: what each is called, what it may be, and what it is unless stated.

A training is a transformer, by its dimensions, or a profile of layers whose seconds on one device are known. Its mesh
has ``dp`` x ``cp`` x ``tp`` x ``pp`` devices; ``dp`` counts replicas without context parallelism. ``micro_batch``
counts the samples of a device at once, ``count`` the micro batches of a step.
"""

from typing import Any

from collectives.training.parallelism import FRAMEWORKS, RECOMPUTED
from planner.gpus import PRECISIONS

DIMENSIONS = (
    "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "mlp_matrices", "vocab", "seq", "tied", "experts",
    "top_k", "expert_ffn", "shared_ffn", "dense_layers", "window",
)  # fmt: skip
ZERO = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "hsdp": 3}  # what is divided: states, gradients, parameters too
EXCHANGES = ("overlapped", "after", "server", "none")  # how replicas exchange gradients
SCHEDULES = ("none", "1f1b", "gpipe", "interleaved", "zero_bubble")
OPTIMIZERS = ("adamw", "adamw8bit", "sgd")
OFFLOADED = ("none", "optimizer", "parameters")  # what the host keeps; with parameters, states too
BITS = {"16": 2.0, "8": 1.0, "4": 0.516}  # bytes of a frozen weight: NF4 has .127 bits of scales (arXiv:2305.14314)
LOADERS = ("", "dali", "decode")  # whose rates are limited
NUMBERS = (
    *DIMENSIONS, "dp", "tp", "cp", "pp", "vp", "ep", "sequence_parallel", "async_tp", "bucket_mb", "gradient_bytes",
    "micro_batch", "count", "compiled", "lora", "alone", "variable", "loader_rate",
)  # fmt: skip
CHOICES = {
    "exchange": EXCHANGES, "framework": FRAMEWORKS, "recompute": RECOMPUTED, "precision": tuple(PRECISIONS),
    "optimizer": OPTIMIZERS, "offload": OFFLOADED, "loader": LOADERS, "schedule": SCHEDULES,
    "attention": ("flash", "unfused"),
}  # fmt: skip
DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(DIMENSIONS, 0),
    "profile": None,
    "alone": 0.0,  # seconds of a sample of a profile on one device that has no others
    "host": None,
    "gpus_used": 0,  # of each host; 0: all
    "gpu_memory": 0.0,  # bytes; 0: the GPU's
    **dict.fromkeys(("dp", "tp", "cp", "pp", "vp", "ep", "micro_batch", "count"), 1),
    "sharding": "ddp",
    "sequence_parallel": 0,
    "async_tp": 0,
    "schedule": "1f1b",
    "recompute": "none",
    "exchange": "overlapped",
    "bucket_mb": 25.0,
    "gradient_bytes": 4.0,  # of an element as it travels
    "precision": "bf16",
    "framework": "other",
    "optimizer": "adamw",
    "attention": "flash",
    "compiled": 0,
    "lora": 0,  # columns of adapters next to frozen weights; 0: all weights are trained
    "frozen_bits": "16",
    "offload": "none",
    "loader": "",
    "loader_rate": 0.0,  # samples/s of a host; 0: by its cores and the loader
    "variable": 0,  # whether batches are of unequal work
}
