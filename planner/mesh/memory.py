"""What one device keeps in memory with each strategy: parameters, gradients, optimizer states, activations, buffers.

Bytes a parameter follow Rajbhandari et al. (ZeRO, https://arxiv.org/abs/1910.02054, section 3), what tensor and
pipeline parallelism leave of activations Korthikanti et al. (https://arxiv.org/abs/2205.05198, section 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import accumulate
from math import inf
from typing import NamedTuple

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import Block, ModelProfile, TransformerShape
from collectives.training.parallelism import SHARDED, Parallelism
from collectives.units import count, format_size
from planner.mesh.job import TrainingJob, is_half
from planner.mesh.layers import count_parameters, device_part, is_layer, is_unit
from planner.pipeline import order_of
from planner.stages import Stage, cut_stages

CONTEXT_BYTES = 1 << 30  # CUDA's context, NCCL's buffers and cuDNN's workspaces; assumed
STATES = {"sgd": 1, "adamw": 2}  # float32 numbers that an optimizer keeps for each parameter, sgd with momentum
WHOLE_STATES = ("ddp", "data_parallel", "parameter_server")  # strategies whose devices all have the optimizer's states


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes that one device keeps at the worst moment of a step."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float  # buckets, gathered blocks, what is sent and received
    context: float = CONTEXT_BYTES

    @property
    def total(self) -> float:
        """Bytes of all."""
        return sum(self.as_dict().values())

    @property
    def states(self) -> float:
        """Bytes of parameters, gradients and optimizer states, which the batch does not change."""
        return self.parameters + self.gradients + self.optimizer

    def as_dict(self) -> dict[str, float]:
        """Return the bytes by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


class StateBytes(NamedTuple):
    """Bytes of each parameter, of its gradient and of what the optimizer keeps of it."""

    parameter: int
    gradient: int
    optimizer: int


def state_bytes(optimizer: str, half_weights: bool = False) -> StateBytes:
    """Return the bytes a parameter takes. With ``half_weights`` the optimizer has the float32 copy.

    >>> state_bytes("adamw"), state_bytes("adamw", half_weights=True)
    (StateBytes(parameter=4, gradient=4, optimizer=8), StateBytes(parameter=2, gradient=2, optimizer=12))
    """
    if optimizer not in STATES:
        raise InputError(f"optimizer {quote(optimizer)} is not known; there are {', '.join(STATES)}")
    return StateBytes(2, 2, 4 + 4 * STATES[optimizer]) if half_weights else StateBytes(4, 4, 4 * STATES[optimizer])


def transformer_activation_bytes(
    shape: TransformerShape, batch: int, *, tensor: int = 1, sequence: bool = False, recompute: str = "none"
) -> float:
    """Return what a layer of a transformer keeps in 16 bits: equations 1 to 6 of Korthikanti et al.

    ``recompute`` is "none", "selective" (attention's scores, as fused kernels do) or "full".

    >>> gpt3 = TransformerShape(96, 12288, 96, 2048, 51200, 96, 49152)
    >>> round(transformer_activation_bytes(gpt3, 1, tensor=8, sequence=True) / 2**20)
    342
    """
    s, h = shape.context, shape.width
    if recompute == "full":
        return 2.0 * s * batch * h / (tensor if sequence else 1)
    scores = 0.0 if recompute == "selective" else 5.0 * shape.heads * s / h
    whole = 10.0 / (tensor if sequence else 1)
    return s * batch * h * (whole + (24.0 + scores) / tensor)


def check_strategy(job: TrainingJob) -> None:
    """Raise InputError for a strategy that the model cannot have, and for a model without parameters."""
    profile, parallelism = job.model, job.parallelism
    if not profile.parameters:
        raise InputError(f"the profile of {quote(profile.model)} has no parameters; give a model that is trained")
    shape = profile.shape
    if shape is None and (parallelism.tensor > 1 or parallelism.experts):
        asked = "tensor" if parallelism.tensor > 1 else "experts"
        raise InputError(
            f"{asked} is of transformers, and the profile of {quote(profile.model)} has no dimensions of one; "
            "take gpt:layers=...,width=... or leave it out"
        )
    if shape is not None and shape.kv_heads % parallelism.tensor:
        raise InputError(f"tensor is {parallelism.tensor} and must divide the {shape.kv_heads} heads of the model")


def check_pieces(job: TrainingJob) -> None:
    """Raise InputError where the batch is not divided by the microbatches."""
    pieces = job.parallelism.pieces
    if pieces > 1 and job.batch % pieces:
        raise InputError(f"batch_size {job.batch} is not divided by {pieces} microbatches; give a multiple of them")


def memory_of(job: TrainingJob) -> list[DeviceMemory]:
    """Return what a device of each stage keeps, the first stage first; the job's mesh is that of its devices.

    Raises InputError where the batch is not divided by the microbatches, and for a strategy that the model cannot have.

    >>> from collectives.records.model_profile import find_model_profile
    >>> found = memory_of(TrainingJob(find_model_profile("resnet50"), 32, Parallelism(data=8)))[0]
    >>> round(found.parameters / 1e6), round(found.activations / 1e9, 2)
    (102, 2.75)
    """
    parallelism = job.parallelism
    check_pieces(job)
    check_strategy(job)
    counter = _Counter(job, device_part(job.model, parallelism))
    stages = cut_stages(counter.profile, parallelism.pipeline * parallelism.virtual)
    return [counter.device(index, stages[index :: parallelism.pipeline]) for index in range(parallelism.pipeline)]


@dataclass(frozen=True)
class _Counter:
    job: TrainingJob
    profile: ModelProfile  # what a device has of the model, all stages together

    @property
    def parallelism(self) -> Parallelism:
        return self.job.parallelism

    @property
    def scale(self) -> float:
        """Bytes of an element over those of the profile's: most of what is kept is in the forward's."""
        return self.job.item / self.profile.item_bytes

    @cached_property
    def each(self) -> StateBytes:
        return state_bytes(self.job.optimizer, self.parallelism.half_weights)

    def device(self, index: int, part: Sequence[Stage]) -> DeviceMemory:
        """Return what a device keeps that has these stages."""
        blocks, parallelism, each = [block for stage in part for block in stage], self.parallelism, self.each
        parameters = count_parameters(self.profile, parallelism, blocks)
        whole, divided = parameters.whole, parameters.divided(parallelism)
        sharded = parallelism.strategy in SHARDED
        return DeviceMemory(
            parameters=each.parameter * (divided if sharded else whole),
            gradients=each.gradient * (divided if sharded or parallelism.strategy == "zero2" else whole),
            optimizer=each.optimizer * (whole if parallelism.strategy in WHOLE_STATES else divided),
            activations=self._activations(index, part, blocks),
            buffers=self._buffers(blocks, whole),
        )

    def _activations(self, index: int, part: Sequence[Stage], blocks: Sequence[Block]) -> float:
        parallelism, kept = self.parallelism, [self._kept(stage) for stage in part]
        if parallelism.pipeline == 1 or parallelism.schedule == "naive":
            held = sum(kept)
        elif parallelism.schedule == "interleaved":
            order = order_of(parallelism.schedule, index, parallelism.pipeline, parallelism.pieces, parallelism.virtual)
            held = max(accumulate((-1 if work.is_backward else 1) * kept[work.chunk] for work in order))
        else:
            held = sum(kept) * (
                parallelism.pieces
                if parallelism.schedule == "gpipe"
                else min(parallelism.pieces, parallelism.pipeline - index)
            )
        if parallelism.recompute == "full":  # the one block that is computed again
            held += max(block.saved_bytes * self._divided(block) for block in blocks) * self.scale
        return self.job.microbatch * held

    def _kept(self, blocks: Sequence[Block]) -> float:
        """Return the bytes that a sample leaves until its backward."""
        if self.parallelism.recompute == "full":  # of each block what it was given, which is as large as what it gives
            return (
                sum(one.output_bytes for one in blocks)
                * self.scale
                / (self.parallelism.tensor if self.parallelism.sequence else 1)
            )
        return sum(block.saved_bytes * self._divided(block) for block in blocks) * self.scale

    def _divided(self, block: Block) -> float:
        """Return what tensor parallelism leaves of a block's activations."""
        shape, parallelism = self.profile.shape, self.parallelism
        if shape is None or parallelism.tensor == 1:
            return 1.0
        if not is_layer(self.profile, block):  # embeddings, and scores of the vocabulary, which is divided
            return 1.0 / parallelism.tensor
        left, whole = (
            transformer_activation_bytes(shape, 1, tensor=t, sequence=s, recompute="selective")
            for t, s in ((parallelism.tensor, parallelism.sequence), (1, False))
        )
        return left / whole

    def _buffers(self, blocks: Sequence[Block], parameters: float) -> float:
        parallelism, each = self.parallelism, self.each
        found, gradients = 0.0, parameters * self.each.gradient
        if parallelism.pipeline > 1:
            found += 2 * max(block.output_bytes for block in blocks) * self.job.microbatch * self.scale
        if is_half(self.job.precision) and not parallelism.half_weights and parallelism.strategy not in SHARDED:
            found += 2 * parameters  # autocast keeps the weights that it has cast
        if parallelism.data == 1:
            return found
        if parallelism.strategy in ("ddp", "zero_redundancy"):
            return found + (0.0 if parallelism.bucket_view else gradients)
        if parallelism.strategy == "data_parallel":  # the first device gathers what all return
            return found + self.job.microbatch * parallelism.data * blocks[-2 if len(blocks) > 1 else -1].output_bytes
        if parallelism.strategy == "parameter_server":  # what the largest layer's sums wait in
            return found + max(block.parameters for block in blocks) * each.gradient
        if parallelism.strategy in SHARDED:
            gathered = sorted((block.parameters for block in blocks if is_unit(self.profile, block)), reverse=True)
            root = sum(block.parameters for block in blocks if not is_unit(self.profile, block))
            return found + (sum(gathered[: 1 + parallelism.prefetch]) + gathered[0] + 2 * root) * self.job.item
        return found + 2 * min(parallelism.bucket_mb * 2**20, gradients)


def check_fit(job: TrainingJob, memory: float | None, where: str) -> list[DeviceMemory]:
    """Return what each stage's device keeps. Raise InputError, with what would fit, where it is more than ``memory``.

    ``where`` is what the message calls a device; a memory of None is not known, and not checked.

    >>> from collectives.records.model_profile import find_model_profile
    >>> found = check_fit(TrainingJob(find_model_profile("resnet50"), 256, Parallelism(data=1)), 24 * 2**30, "it")
    >>> round(found[0].total / 2**30, 1)
    21.8
    """
    found = memory_of(job)
    worst = max(found, key=lambda one: one.total)
    if worst.total <= (memory or inf):
        return found
    assert memory is not None
    raise too_large(job, worst, memory, where, largest_batch(job, memory), _without_batch(job.parallelism))


class TooLittleMemory(InputError):  # noqa: N818 - the finding itself
    """A training step that needs a device of more memory than there is; both in bytes of the fullest device."""

    def __init__(self, message: str, needed: float, available: float) -> None:
        super().__init__(message)
        self.needed, self.available = needed, available


def too_large(
    job: TrainingJob, kept: DeviceMemory, memory: float, where: str, largest: int, otherwise: str, fill: float = 1.0
) -> TooLittleMemory:
    """Return the error for a batch that does not fit into the memory of a device.

    ``largest`` is the largest batch that fits; if it is 0, ``otherwise`` is the advice. ``fill`` is the usable share of
    the memory.
    """
    parts = ", ".join(f"{name} {format_size(value)}" for name, value in kept.as_dict().items() if value >= 1e6)
    advice = f"up to {count(largest, 'sample')} a device fit" if largest else f"not one sample fits: {otherwise}"
    usable = f", of which {fill:.0%} can be used" if fill < 1 else ""
    message = (
        f"batch_size {job.batch:.0f} does not fit into {where}: it takes {format_size(kept.total)} of "
        f"{format_size(memory)}{usable} ({parts}); {advice}"
    )
    return TooLittleMemory(message, kept.total / fill, memory)


def _without_batch(parallelism: Parallelism) -> str:
    """Return what to do where not even one sample fits."""
    more = "strategy = \"fsdp\" divides the states among the devices" if parallelism.strategy not in SHARDED else (
        "more devices, tensor or pipeline above 1 divide the model")  # fmt: skip
    again = "" if parallelism.recompute == "full" else '; recompute = "full" keeps less'
    return f"{more}{again}"


def largest_batch(job: TrainingJob, memory: float) -> int:
    """Return the largest batch of each ``data`` device that fits into ``memory`` bytes, 0 where none does."""
    pieces = job.parallelism.pieces

    def fits(count: int) -> bool:
        return max(one.total for one in memory_of(replace(job, batch=count * pieces))) <= memory

    low, high = 0, 1
    while high < (1 << 24) and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * pieces
