"""What is asked for: a training job, as both wings name it, and the element types of buffers."""

from dataclasses import dataclass

from collectives.catalogue import Algorithm
from collectives.errors import InputError

ITEM_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8, "int8": 1, "uint8": 1}
FLOATING = {"float32", "float64", "float16", "bfloat16"}
OPS = ("sum", "mean", "min", "max", "product")

# Trainable parameters with ten classes, as torchvision builds the model; a test holds them against it.
MODEL_PARAMETERS = {"resnet18": 11_181_642}
DATASETS = ("digits", "cifar10")


def item_bytes(dtype: str) -> int:
    """Bytes of one element. Raises InputError for a type that is not known."""
    if dtype not in ITEM_BYTES:
        raise InputError(f"dtype {dtype!r} is not known; there are {', '.join(ITEM_BYTES)}")
    return ITEM_BYTES[dtype]


def check_op(op: str, dtype: str) -> None:
    """Raise InputError unless ``op`` can reduce elements of ``dtype``; mean divides, so it needs a floating type."""
    if op not in OPS:
        raise InputError(f"op {op!r} is not known; there are {', '.join(OPS)}")
    item_bytes(dtype)
    if op == "mean" and dtype not in FLOATING:
        raise InputError(f"op 'mean' needs a floating dtype, not {dtype!r}")


@dataclass(frozen=True)
class ComputePhases:
    """Seconds that one rank computes in a training step, communication apart."""

    forward: float
    backward: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.forward + self.backward + self.optimizer


@dataclass(frozen=True)
class Training:
    """A data-parallel training job. ``gradient_sync`` is an all_reduce algorithm, or None for torch's own DDP."""

    gradient_sync: Algorithm | None
    model: str = "resnet18"
    dataset: str = "digits"
    batch_size: int = 32  # per rank
    epochs: int = 3
    seed: int = 0
    learning_rate: float = 0.002
    scale_learning_rate: bool = False  # multiply it by world_size
    data_folder: str | None = None  # where cifar10 lies
    compute: ComputePhases | None = None  # None: from calibration

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients, as float32."""
        return MODEL_PARAMETERS[self.model] * ITEM_BYTES["float32"]

    @property
    def sync_name(self) -> str:
        return self.gradient_sync.label if self.gradient_sync else "ddp"
