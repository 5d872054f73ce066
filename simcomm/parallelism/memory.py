"""What one device keeps in memory in each form: parameters, gradients, optimizer states, activations, buffers.

Bytes a parameter follow Rajbhandari et al. (ZeRO, https://arxiv.org/abs/1910.02054, section 3), what tensor and
pipeline parallelism leave of activations Korthikanti et al. (https://arxiv.org/abs/2205.05198, section 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import NamedTuple

from collectives.checks import check_whole_number
from collectives.errors import InputError
from collectives.parallelism import SHARDED, Parallelism
from collectives.quoting import quote
from collectives.records.model_profile import Block, Layer, ModelProfile, TransformerShape
from collectives.units import format_size
from simcomm.cluster.hardware_parts import memory_bytes
from simcomm.parallelism.experts import count_parameters, experts_part
from simcomm.parallelism.pipeline import order_of
from simcomm.parallelism.stages import Stage, cut_stages

CONTEXT_BYTES = 1 << 30  # CUDA's context, NCCL's buffers and cuDNN's workspaces; assumed
STATES = {"sgd": 1, "adamw": 2}  # float32 numbers that an optimizer keeps for each parameter, sgd with momentum
WHOLE_STATES = ("ddp", "data_parallel", "parameter_server")  # forms whose devices all have the optimizer's states
MOST_BATCH = 1 << 24
WHOLE_KINDS, WHOLE_NAMES = ("LayerNorm", "RMSNorm"), ("positions", "types")  # that tensor parallelism does not divide
BY_ROWS = (".out", ".down")  # matrices divided by rows


@dataclass(frozen=True)
class Memory:
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


def memory_of(
    profile: ModelProfile,
    parallelism: Parallelism,
    batch_size: int,
    *,
    optimizer: str = "sgd",
    precision: str = "float32",
) -> list[Memory]:
    """Return what a device of each stage keeps, the first stage first; ``parallelism`` is for its devices.

    ``batch_size`` are the samples of each of the ``data`` devices in a step. Raises InputError where the batch is not
    divided by the microbatches, and for a form that the model cannot have.

    >>> from collectives.records.model_profile import find_model_profile
    >>> found = memory_of(find_model_profile("resnet50"), Parallelism(data=8), 32)[0]
    >>> round(found.parameters / 1e6), round(found.activations / 1e9, 2)
    (102, 2.75)
    """
    check_whole_number("batch_size", batch_size, at_least=1)
    pieces = parallelism.pieces
    if batch_size % pieces:
        raise InputError(f"batch_size {batch_size} is not divided by {pieces} microbatches; give a multiple of them")
    check_form(profile, parallelism)
    profile, virtual = device_part(profile, parallelism), parallelism.virtual
    stages = cut_stages(profile, parallelism.pipeline * virtual)
    parts = [[*stages[index :: parallelism.pipeline]] for index in range(parallelism.pipeline)]
    counter = _Counter(profile, parallelism, batch_size // pieces, optimizer, precision)
    return [counter.device(index, part) for index, part in enumerate(parts)]


def check_form(profile: ModelProfile, parallelism: Parallelism) -> None:
    """Raise InputError for a form that the model cannot have, and for a model without parameters."""
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


@dataclass(frozen=True)
class _Counter:
    profile: ModelProfile
    form: Parallelism
    microbatch: int  # samples
    optimizer: str
    precision: str

    def device(self, index: int, part: Sequence[Stage]) -> Memory:
        """Return what a device keeps that has these stages."""
        blocks = [block for stage in part for block in stage]
        each, form = state_bytes(self.optimizer, self.form.half_weights), self.form
        parameters = count_parameters(self.profile, form, blocks)
        whole, divided = parameters.whole, parameters.divided(form)
        sharded = form.form in SHARDED
        kept = each.parameter * (divided if sharded else whole)
        gradients = each.gradient * (divided if sharded or form.form == "zero2" else whole)
        states = each.optimizer * (whole if form.form in WHOLE_STATES else divided)
        return Memory(kept, gradients, states, self._activations(index, part), self._buffers(index, part, whole))

    def _activations(self, index: int, part: Sequence[Stage]) -> float:
        form = self.form
        blocks, kept = [block for stage in part for block in stage], [self._kept(stage) for stage in part]
        if form.pipeline == 1 or form.schedule == "naive":
            held = sum(kept)
        elif form.schedule == "interleaved":
            held = self._most_held(index, kept)
        else:
            held = sum(kept) * (form.pieces if form.schedule == "gpipe" else min(form.pieces, form.pipeline - index))
        return self.microbatch * held + self._recomputed(blocks)

    def _most_held(self, index: int, kept: Sequence[float]) -> float:
        """Return the most that is held at once in a schedule, where a sample leaves so many bytes in each stage."""
        form = self.form
        order = order_of(form.schedule, index, form.pipeline, form.pieces, form.virtual)
        return max(accumulate((-1 if work.is_backward else 1) * kept[work.chunk] for work in order))

    def _kept(self, blocks: Sequence[Block]) -> float:
        """Return the bytes that a sample leaves until its backward."""
        if self.form.recompute == "full":
            given = [block.output_bytes for block in blocks]  # of each block what it was given, which is as large
            return sum(given) * self._scale() / (self.form.tensor if self.form.sequence else 1)
        return sum(block.saved_bytes * self._divided(block) for block in blocks) * self._scale()

    def _recomputed(self, blocks: Sequence[Block]) -> float:
        """Return the bytes of the one block that is computed again."""
        if self.form.recompute != "full":
            return 0.0
        return max(block.saved_bytes * self._divided(block) for block in blocks) * self._scale() * self.microbatch

    def _divided(self, block: Block) -> float:
        """Return what tensor parallelism leaves of a block's activations."""
        shape, form = self.profile.shape, self.form
        if shape is None or form.tensor == 1:
            return 1.0
        if not is_layer(self.profile, block):  # embeddings, and scores of the vocabulary, which is divided
            return 1.0 / form.tensor
        left, whole = (
            transformer_activation_bytes(shape, 1, tensor=t, sequence=s, recompute="selective")
            for t, s in ((form.tensor, form.sequence), (1, False))
        )
        return left / whole

    def _scale(self) -> float:
        """Return the bytes of an element over those of the profile's: most of what is kept is in the forward's."""
        half = self.precision != "float32" or self.form.half_weights
        return (2 if half else 4) / self.profile.item_bytes

    def _buffers(self, index: int, part: Sequence[Stage], parameters: float) -> float:
        form, each = self.form, state_bytes(self.optimizer, self.form.half_weights)
        blocks = [block for stage in part for block in stage]
        found = 0.0
        if form.pipeline > 1:
            found += 2 * max(block.output_bytes for block in blocks) * self.microbatch * self._scale()
        if self.precision != "float32" and not form.half_weights:
            found += 0.0 if form.form in SHARDED else 2 * parameters  # autocast keeps the weights that it has cast
        if form.data == 1:
            return found
        bucket = min(form.bucket_mb * 2**20, parameters * each.gradient)
        if form.form == "ddp":
            return found + (0.0 if form.bucket_view else parameters * each.gradient)
        if form.form == "data_parallel":  # the first device gathers what all return
            return found + self.microbatch * form.data * blocks[-2 if len(blocks) > 1 else -1].output_bytes
        if form.form in SHARDED:
            gathered = sorted((block.parameters for block in blocks if is_unit(self.profile, block)), reverse=True)
            root = sum(block.parameters for block in blocks if not is_unit(self.profile, block))
            item = 2 if self.precision != "float32" or form.half_weights else each.parameter
            return found + (sum(gathered[: 1 + form.prefetch]) + gathered[0] + 2 * root) * item
        if form.form == "parameter_server":  # what the largest layer's sums wait in
            return found + max(block.parameters for block in blocks) * each.gradient
        if form.form == "zero_redundancy":
            return found + (0.0 if form.bucket_view else parameters * each.gradient)
        return found + 2 * bucket


def device_part(profile: ModelProfile, parallelism: Parallelism) -> ModelProfile:
    """Return what a device has of a model: its part of matrices that are divided, and its own experts."""
    return tensor_part(experts_part(profile, parallelism), parallelism.tensor)


def tensor_part(profile: ModelProfile, tensor: int) -> ModelProfile:
    """Return what a device of a tensor group has of a transformer's parameters; all else of the profile is the same.

    Matrices and what columns add are divided (Shoeybi et al., https://arxiv.org/abs/1909.08053, section 3): norms,
    positions, and what is added behind rows, are whole on each. Layers are named as ``realcomm.profiling`` names them.

    >>> from collectives.records.model_profile import find_model_profile
    >>> round(tensor_part(find_model_profile("gpt2"), 4).parameters / find_model_profile("gpt2").parameters, 3)
    0.255
    """
    if tensor == 1:
        return profile
    return replace(profile, layers=tuple(_divide(layer, tensor) for layer in profile.layers))


def _divide(layer: Layer, tensor: int) -> Layer:
    if layer.kind in WHOLE_KINDS or layer.name in WHOLE_NAMES:
        return layer
    divided = tuple(-(-elements // tensor) for elements in layer.tensors)
    if layer.name.endswith(BY_ROWS) and layer.tensors:
        divided = (divided[0], *layer.tensors[1:])
    return layer._replace(tensors=divided)


def is_unit(profile: ModelProfile, block: Block) -> bool:
    """Return whether a block's parameters are gathered by themselves; else with the root's, once for a whole step.

    Of a transformer its layers are, as torch's ``fully_shard`` is used; of other models all blocks with parameters.
    """
    return block.parameters > 0 and (profile.shape is None or is_layer(profile, block))


def is_layer(profile: ModelProfile, block: Block) -> bool:
    """Return whether a block is one of a transformer's layers: those that are there ``layers`` times."""
    alike = sum((one.parameters, one.forward_flops) == (block.parameters, block.forward_flops)
                for one in profile.blocks)  # fmt: skip
    return profile.shape is not None and block.parameters > 0 and alike >= profile.shape.layers


def gpu_memory(gpu: str) -> float:
    """Return the bytes of a GPU's memory. Raise InputError for what is not known.

    >>> gpu_memory("RTX 4090") / 2**30
    24.0
    """
    found = memory_bytes(gpu)
    if found is None:
        raise InputError(f"the catalogue does not say how much memory {gpu} has; name it with its size")
    return found


def check_fit(
    profile: ModelProfile,
    parallelism: Parallelism,
    batch_size: int,
    memory: float,
    where: str,
    *,
    optimizer: str = "sgd",
    precision: str = "float32",
) -> list[Memory]:
    """Return what each stage's device keeps. Raise InputError, with what would fit, where it is more than ``memory``.

    ``where`` is what the message calls a device.

    >>> from collectives.records.model_profile import find_model_profile
    >>> found = check_fit(find_model_profile("resnet50"), Parallelism(data=1), 256, gpu_memory("RTX 4090"), "it")
    >>> round(found[0].total / 2**30, 1)
    21.8
    """
    found = memory_of(profile, parallelism, batch_size, optimizer=optimizer, precision=precision)
    worst = max(found, key=lambda one: one.total)
    if worst.total <= memory:
        return found
    parts = ", ".join(f"{name} {format_size(value)}" for name, value in worst.as_dict().items() if value >= 1e6)
    largest = largest_batch(profile, parallelism, memory, optimizer=optimizer, precision=precision)
    advice = f"up to {largest} samples a device fit" if largest else _without_batch(parallelism)
    raise InputError(
        f"batch_size {batch_size} does not fit into {where}: it takes {format_size(worst.total)} of "
        f"{format_size(memory)} ({parts}); {advice}"
    )


def _without_batch(parallelism: Parallelism) -> str:
    """Return what to do where not even one sample fits."""
    more = "form = \"fsdp\" divides the states among the devices" if parallelism.form not in SHARDED else (
        "more devices, tensor or pipeline above 1 divide the model")  # fmt: skip
    again = "" if parallelism.recompute == "full" else '; recompute = "full" keeps less'
    return f"not one sample fits: {more}{again}"


def largest_batch(
    profile: ModelProfile,
    parallelism: Parallelism,
    memory: float,
    *,
    optimizer: str = "sgd",
    precision: str = "float32",
) -> int:
    """Return the largest batch of each ``data`` device that fits into ``memory`` bytes, 0 where none does."""
    pieces = parallelism.pieces

    def fits(count: int) -> bool:
        found = memory_of(profile, parallelism, count * pieces, optimizer=optimizer, precision=precision)
        return max(one.total for one in found) <= memory

    low, high = 0, 1
    while high < MOST_BATCH and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * pieces
