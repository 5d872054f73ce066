"""List a rank's collectives per step with torch's parallelism classes, and count the bytes of its training states."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import Block, Layer, ModelProfile
from collectives.training.gradients import fill_buckets, gradients_of
from collectives.training.parallelism import SHARDED, Parallelism
from planner.columns import MIB
from planner.hosts import Group
from planner.jobs import DEFAULTS, STATE_BYTES, Job
from planner.pipeline import cut_stages

ITEM = 4  # bytes of float32
WHOLE_KINDS, WHOLE_NAMES = ("LayerNorm", "RMSNorm"), ("positions", "types")  # not divided by tensor parallelism
BY_ROWS = (".out", ".down")  # name endings of matrices that are divided by rows
WORDS, HEAD, LOSS = "words", "head", "loss"  # blocks of the transformers of ``realcomm.profiling``
LOSS_CALLS = 3  # all_reduces of one number per token: maximum, sum of exponentials, the label's logit


class Call(NamedTuple):
    """A collective that a rank calls ``times`` times per step. ``nbytes`` is the size of the whole buffer in bytes."""

    collective: str
    nbytes: float
    group: Group
    times: float = 1


class States(NamedTuple):
    """The bytes of a rank's parameters, gradients and optimizer states."""

    parameters: float
    gradients: float
    optimizer: float


def check_strategy(job: Job) -> None:
    """Raise InputError if the model has no parameters or does not support the tensor size, experts or microbatches."""
    profile, parallelism = job.model, job.parallelism
    if not profile.parameters:
        raise InputError(
            f"the profile of {quote(profile.model)} has no parameters; use a model with trainable parameters"
        )
    shape = profile.shape
    if shape is None and (parallelism.tensor > 1 or parallelism.experts):
        option = "tensor" if parallelism.tensor > 1 else "experts"
        raise InputError(
            f"{option} requires a transformer with known dimensions, not {quote(profile.model)}; "
            f"use gpt:layers=...,width=..., or remove {option}"
        )
    if shape is not None and shape.kv_heads % parallelism.tensor:
        raise InputError(f"the model's KV heads ({shape.kv_heads}) must be a multiple of tensor ({parallelism.tensor})")
    if parallelism.pieces > 1 and job.batch % parallelism.pieces:
        raise InputError(f"batch_size must be a multiple of the {parallelism.pieces} microbatches, not {job.batch}")


def stage_calls(job: Job) -> list[tuple[Call, ...]]:
    """Return the collective calls per step of each pipeline rank. ``job`` must state the size of every axis."""
    parallelism, profile = job.parallelism, device_part(job.model, job.parallelism.tensor)
    stages, calls = cut_stages(profile, parallelism.pipeline * parallelism.virtual), list[list[Call]]()
    for blocks in device_blocks(profile, parallelism):
        within = [call for block in blocks for call in _within(profile, block, job)]
        within = [call._replace(times=call.times * parallelism.pieces) for call in within]
        calls.append([*within, *_exchanged(profile, blocks, parallelism)])
    for number, stage in enumerate(stages[:-1]):
        nbytes = stage[-1].output_bytes * job.microbatch * ITEM / profile.item_bytes
        nbytes /= parallelism.tensor if parallelism.sequence else 1
        message = Call("send_recv", nbytes, Group(2, parallelism.tensor * parallelism.data), parallelism.pieces)
        for neighbor in (number, number + 1):
            calls[neighbor % parallelism.pipeline].append(message)
    return [_merge(of_stage) for of_stage in calls]


def _merge(calls: Iterable[Call]) -> tuple[Call, ...]:
    """Merge identical calls, and omit calls without bytes and calls in groups of one rank."""
    counts: dict[tuple[str, float, Group], float] = {}
    for call in calls:
        if call.group.size > 1 and call.times and call.nbytes:
            counts[call[:3]] = counts.get(call[:3], 0) + call.times
    return tuple(Call(*key, times) for key, times in counts.items())


def stage_states(job: Job) -> list[States]:
    """Return the bytes of each pipeline rank's training states, in float32 as torch's classes store them."""
    parallelism, strategy = job.parallelism, job.parallelism.strategy
    profile, states = device_part(job.model, parallelism.tensor), list[States]()
    for blocks in device_blocks(profile, parallelism):
        parameters = ITEM * float(sum(block.parameters for block in blocks))
        divided = parameters / (parallelism.shard if strategy == "hsdp" else parallelism.data)
        sharded = (strategy in SHARDED, strategy in (*SHARDED, "zero2"), strategy != "ddp")
        weights, gradients, optimizer = (divided if is_sharded else parameters for is_sharded in sharded)
        states.append(States(weights, gradients, STATE_BYTES[job.optimizer] / ITEM * optimizer))
    return states


def device_blocks(profile: ModelProfile, parallelism: Parallelism) -> list[list[Block]]:
    """Return the model blocks of each pipeline rank, which may have several virtual stages."""
    stages = cut_stages(profile, parallelism.pipeline * parallelism.virtual)
    own = (stages[device :: parallelism.pipeline] for device in range(parallelism.pipeline))
    return [[block for stage in part for block in stage] for part in own]


def device_part(profile: ModelProfile, tensor: int) -> ModelProfile:
    """Return the profile of one device's part of the model with tensor parallelism over ``tensor`` devices.

    Norms, positions, and the biases of row-split matrices are replicated on each device of a tensor group (Shoeybi et
    al., https://arxiv.org/abs/1909.08053, section 3).
    """

    def divide(layer: Layer) -> Layer:
        if layer.kind in WHOLE_KINDS or layer.name in WHOLE_NAMES:
            return layer
        count = 1 if layer.name.endswith(BY_ROWS) else len(layer.tensors)  # divided tensors
        divided = tuple(-(-elements // tensor) for elements in layer.tensors[:count])
        return layer._replace(tensors=(*divided, *layer.tensors[count:]))

    return profile if tensor == 1 else replace(profile, layers=tuple(map(divide, profile.layers)))


def is_unit(profile: ModelProfile, block: Block) -> bool:
    """Return whether FSDP gathers a block's parameters separately. All other parameters belong to the root unit.

    In a transformer, each layer is a unit. In other models, each block with parameters is a unit.
    """
    return block.parameters > 0 and (profile.shape is None or _is_layer(profile, block))


def _is_layer(profile: ModelProfile, block: Block) -> bool:
    """Return whether a block is one of a transformer's identical layers."""
    alike = sum((layer.parameters, layer.forward_flops) == (block.parameters, block.forward_flops)
                for layer in profile.blocks)  # fmt: skip
    return profile.shape is not None and block.parameters > 0 and alike >= profile.shape.layers


def _within(profile: ModelProfile, block: Block, job: Job) -> tuple[Call, ...]:
    """Return the tensor-parallel collectives of a block for one microbatch, forward and backward together.

    Sequence parallelism replaces each all_reduce by an all_gather and a reduce_scatter (arXiv:2205.05198).
    """
    parallelism, shape = job.parallelism, profile.shape
    if shape is None or parallelism.tensor == 1:
        return ()
    tokens, group = job.microbatch * shape.context, Group(parallelism.tensor)
    into, out = (("all_gather",), "reduce_scatter") if parallelism.sequence else ((), "all_reduce")
    if block.name == LOSS:
        return (Call("all_reduce", tokens * ITEM, group, LOSS_CALLS),)
    times = 4 if _is_layer(profile, block) else int(block.name in (WORDS, HEAD))  # a layer has two in each pass
    return tuple(Call(name, tokens * shape.width * ITEM, group, times) for name in (*into, out))


def _exchanged(profile: ModelProfile, blocks: Sequence[Block], parallelism: Parallelism) -> list[Call]:
    """Return the collectives that synchronize gradients and parameters between replicas."""
    if parallelism.data == 1:
        return []
    strategy, data = parallelism.strategy, Group(parallelism.data, parallelism.tensor)
    if strategy in SHARDED:
        return _gathered(profile, blocks, parallelism)
    names = {block.name for block in blocks}
    tensors = [layer.tensors for layer in profile.layers if layer.block in names]
    gradients = gradients_of(tensors, [0.0] * len(tensors), ITEM)
    buckets = fill_buckets(gradients, round((parallelism.bucket_mb or DEFAULTS["bucket_mb"]) * MIB))
    collective = "reduce_scatter" if strategy == "zero2" else "all_reduce"
    calls = [Call(collective, bucket.nbytes, data) for bucket in buckets]
    if strategy == "zero2":
        calls.append(Call("all_gather", float(sum(gradient.nbytes for gradient in gradients)), data))
    if strategy == "zero_redundancy":
        calls += [Call("broadcast", gradient.nbytes, data) for gradient in gradients]
    return calls


def _gathered(profile: ModelProfile, blocks: Sequence[Block], parallelism: Parallelism) -> list[Call]:
    """Return the collectives of ZeRO-3, FSDP or HSDP. With HSDP, an all_reduce also averages gradients of replicas."""
    size = parallelism.shard or parallelism.data
    shard, replicas = Group(size, parallelism.tensor), Group(parallelism.data // size, parallelism.tensor * size)
    # units are gathered before forward and before backward, all other parameters once
    units = [(ITEM * float(block.parameters), 2) for block in blocks if is_unit(profile, block)]
    root = ITEM * float(sum(block.parameters for block in blocks if not is_unit(profile, block)))
    calls = list[Call]()
    for nbytes, times in [*units, (root, 1)]:
        calls += [
            Call("all_gather", nbytes, shard, times * parallelism.pieces),
            Call("reduce_scatter", nbytes, shard, parallelism.pieces),
            Call("all_reduce", nbytes / size, replicas, parallelism.pieces),
        ]
    return calls
