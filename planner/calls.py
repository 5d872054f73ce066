"""List the collectives that a device of each pipeline stage calls per training step, and the states that it stores.

The collectives and states are those of torch's own parallelism classes. A profile describes the dense model. With
experts, each layer has several MLPs, and a token visits ``top_k`` of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import Block, Layer, ModelProfile
from collectives.training.gradients import BUCKET_BYTES, FIRST_BYTES, fill_buckets, gradients_of
from collectives.training.parallelism import SHARDED, Parallelism
from planner.hosts import SHARES, Group
from planner.jobs import STATE_BYTES, TrainingJob
from planner.profiles import MIB
from planner.stages import Stage, cut_stages

WHOLE_KINDS, WHOLE_NAMES = ("LayerNorm", "RMSNorm"), ("positions", "types")  # not divided by tensor parallelism
BY_ROWS = (".out", ".down")  # name endings of matrices that are divided by rows
WORDS, HEAD, LOSS = "words", "head", "loss"  # blocks of the transformers of ``realcomm.profiling``
LOSS_CALLS = 3  # all_reduces of one number per token: maximum, sum of exponentials, the label's logit


class Call(NamedTuple):
    """A collective that a device calls ``times`` per step. ``nbytes`` is the size of the whole buffer.

    With local SGD, ``times`` is the mean over steps.
    """

    collective: str
    nbytes: float
    group: Group
    times: float = 1

    @property
    def sent(self) -> float:
        """Bytes that the device sends, with bandwidth-optimal algorithms."""
        return self.times * self.nbytes * SHARES[self.collective](self.group.size)


def join_calls(calls: Iterable[Call]) -> tuple[Call, ...]:
    """Merge identical calls. Calls without bytes and calls in groups of one device are omitted.

    >>> join_calls([Call("all_reduce", 8.0, Group(2)), Call("all_reduce", 8.0, Group(2), 3)])
    (Call(collective='all_reduce', nbytes=8.0, group=Group(size=2, stride=1), times=4),)
    """
    counts: dict[tuple[str, float, Group], float] = {}
    for call in calls:
        if call.group.size > 1 and call.times and call.nbytes:
            counts[call[:3]] = counts.get(call[:3], 0) + call.times
    return tuple(Call(*key, times) for key, times in counts.items())


class States(NamedTuple):
    """The memory usage of a device's training states, in bytes."""

    parameters: float
    gradients: float
    optimizer: float


class Counts(NamedTuple):
    """Parameter counts of a device: ``shared`` with all devices of the data axis, and ``expert`` in its own experts."""

    shared: float
    expert: float

    def divided(self, parallelism: Parallelism) -> float:
        """Return the parameters per device after sharding.

        Experts are sharded only among devices that have the same experts.
        """
        among = (parallelism.shard if parallelism.strategy == "hsdp" else parallelism.data) or 1
        return self.shared / among + self.expert / max(1, parallelism.data // parallelism.expert)


def check_strategy(job: TrainingJob) -> None:
    """Raise InputError if the model has no parameters, microbatches are unequal, or the strategy is not supported."""
    profile, parallelism = job.model, job.parallelism
    if not profile.parameters:
        raise InputError(
            f"the profile of {quote(profile.model)} has no parameters; use a model with trainable parameters"
        )
    shape = profile.shape
    if shape is None and (parallelism.tensor > 1 or parallelism.experts):
        option = "tensor" if parallelism.tensor > 1 else "experts"
        raise InputError(
            f"{option} requires a transformer, and the profile of {quote(profile.model)} has no dimensions; "
            "use gpt:layers=...,width=..., or remove the key"
        )
    if shape is not None and shape.kv_heads % parallelism.tensor:
        raise InputError(f"tensor must divide the {shape.kv_heads} heads of the model, not {parallelism.tensor}")
    if parallelism.pieces > 1 and job.batch % parallelism.pieces:
        raise InputError(f"batch_size must be a multiple of the {parallelism.pieces} microbatches, not {job.batch}")


def stage_calls(job: TrainingJob) -> list[tuple[Call, ...]]:
    """Return the collectives of a device of each stage per step. ``job.parallelism`` states the size of every axis."""
    parallelism, profile = job.parallelism, device_part(job.model, job.parallelism)
    stages, first = cut_stages(profile, parallelism.pipeline * parallelism.virtual), 0
    calls: list[list[Call]] = [[] for _ in range(parallelism.pipeline)]
    for number, stage in enumerate(stages):
        device_calls = calls[number % parallelism.pipeline]
        for place in range(first, first + len(stage)):
            device_calls += [
                call._replace(times=call.times * parallelism.pieces) for call in _within(profile, place, job)
            ]
        first += len(stage)
        if number + 1 < len(stages):
            nbytes = stage[-1].output_bytes * job.microbatch * job.item / profile.item_bytes
            nbytes /= parallelism.tensor if parallelism.sequence else 1
            message = Call("send_recv", nbytes, Group(2, parallelism.tensor * parallelism.data), parallelism.pieces)
            device_calls.append(message)
            calls[(number + 1) % parallelism.pipeline].append(message)
    for number, device_calls in enumerate(calls):
        blocks = [block for stage in stages[number :: parallelism.pipeline] for block in stage]
        device_calls += [
            call._replace(times=call.times / parallelism.sync_every) for call in _exchanged(profile, blocks, job)
        ]
    return [join_calls(device_calls) for device_calls in calls]


def stage_states(job: TrainingJob) -> list[States]:
    """Return the sizes of the states on one device of each stage, in float32 as torch's classes store them."""
    parallelism, profile = job.parallelism, device_part(job.model, job.parallelism)
    stages, states = cut_stages(profile, parallelism.pipeline * parallelism.virtual), list[States]()
    for number in range(parallelism.pipeline):
        blocks = [block for stage in stages[number :: parallelism.pipeline] for block in stage]
        counts = count_parameters(profile, parallelism, blocks)
        total, divided, is_sharded = sum(counts), counts.divided(parallelism), parallelism.strategy in SHARDED
        optimizer = total if parallelism.strategy in ("ddp", "data_parallel", "parameter_server") else divided
        states.append(
            States(
                4 * (divided if is_sharded else total),
                4 * (divided if is_sharded or parallelism.strategy == "zero2" else total),
                STATE_BYTES[job.optimizer] * optimizer,
            )
        )
    return states


def device_part(profile: ModelProfile, parallelism: Parallelism) -> ModelProfile:
    """Return the part of a model on one device: its own experts, and its share of the matrices.

    Norms, positions, and the biases of row-split matrices are complete on each device of a tensor group (Shoeybi et
    al., https://arxiv.org/abs/1909.08053, section 3).

    >>> from collectives.records.model_profile import find_model_profile
    >>> gpt = find_model_profile("gpt2")
    >>> round(device_part(gpt, Parallelism(tensor=4)).parameters / gpt.parameters, 3)
    0.255
    """
    layers = profile.layers
    if parallelism.experts:
        local_experts = parallelism.experts // parallelism.expert
        layers = tuple(
            layer._replace(tensors=layer.tensors * local_experts) if is_expert(layer) else layer for layer in layers
        )
    if parallelism.tensor > 1:
        layers = tuple(_divide(layer, parallelism.tensor) for layer in layers)
    return replace(profile, layers=layers)


def _divide(layer: Layer, tensor: int) -> Layer:
    if layer.kind in WHOLE_KINDS or layer.name in WHOLE_NAMES:
        return layer
    divided = tuple(-(-elements // tensor) for elements in layer.tensors)
    if layer.name.endswith(BY_ROWS) and layer.tensors:
        divided = (divided[0], *layer.tensors[1:])
    return layer._replace(tensors=divided)


def is_expert(layer: Layer) -> bool:
    """Return whether a layer belongs to the MLP that exists once per expert."""
    return ".mlp." in f"{layer.name}."


def is_unit(profile: ModelProfile, block: Block) -> bool:
    """Return whether a block's parameters are gathered separately. The root gathers all other parameters once per step.

    Units are the layers of a transformer, as torch's ``fully_shard`` is commonly used. Other models have one unit per
    block with parameters.
    """
    return block.parameters > 0 and (profile.shape is None or is_layer(profile, block))


def is_layer(profile: ModelProfile, block: Block) -> bool:
    """Return whether a block is one of a transformer's identical layers."""
    alike = sum((layer.parameters, layer.forward_flops) == (block.parameters, block.forward_flops)
                for layer in profile.blocks)  # fmt: skip
    return profile.shape is not None and block.parameters > 0 and alike >= profile.shape.layers


def count_parameters(profile: ModelProfile, parallelism: Parallelism, blocks: Sequence[Block]) -> Counts:
    """Return the numbers of parameters in some blocks of ``profile``, which is a device's part of a model."""
    names = {block.name for block in blocks}
    layers = [layer for layer in profile.layers if layer.block in names]
    total = float(sum(layer.parameters for layer in layers))
    experts = float(sum(layer.parameters for layer in layers if is_expert(layer))) if parallelism.expert > 1 else 0.0
    return Counts(total - experts, experts)


def _within(profile: ModelProfile, number: int, job: TrainingJob) -> tuple[Call, ...]:
    """Return the collectives within a block for one microbatch, forward and backward.

    A layer has two all_reduces in forward and two in backward. The token embedding has one in forward, and the LM head
    one in backward. Sequence parallelism replaces each by an all_gather and a reduce_scatter (Korthikanti et al.,
    https://arxiv.org/abs/2205.05198). Experts have two all_to_alls in each pass (Lepikhin et al.,
    https://arxiv.org/abs/2006.16668). Recomputation repeats the collectives of forward.
    """
    parallelism, shape, block = job.parallelism, profile.shape, profile.blocks[number]
    if shape is None or max(parallelism.tensor, parallelism.expert) == 1:
        return ()
    tokens = job.microbatch * shape.context
    nbytes, group = tokens * shape.width * job.item, Group(parallelism.tensor)
    into, out = ("all_gather", "reduce_scatter") if parallelism.sequence else ("", "all_reduce")
    behind, out_of = (Call(into, nbytes, group),) if parallelism.sequence else (), (Call(out, nbytes, group),)
    ahead, back = tuple[Call, ...](), tuple[Call, ...]()
    if is_layer(profile, block):
        routed = (Call("all_to_all", nbytes * parallelism.top_k, Group(parallelism.expert, parallelism.tensor), 2),)
        ahead = back = tuple(Call(name, nbytes, group, 2) for name in (into, out) if name) + routed
    elif block.name == WORDS:
        ahead, back = out_of, behind
    elif block.name == HEAD:
        ahead, back = behind, out_of
    elif block.name == LOSS:
        ahead = (Call("all_reduce", tokens * 4, group, LOSS_CALLS),)
    return ahead * (2 if parallelism.recompute == "full" else 1) + back


def _exchanged(profile: ModelProfile, blocks: Stage | Sequence[Block], job: TrainingJob) -> list[Call]:
    parallelism = job.parallelism
    if parallelism.data == 1:
        return []
    is_sharded, weight = parallelism.strategy in SHARDED, weight_item(job)
    gradient = gradient_item(job)
    data_group, experts = (
        Group(parallelism.data, parallelism.tensor),
        Group(parallelism.data // parallelism.expert, parallelism.tensor * parallelism.expert),
    )
    if is_sharded:
        return _gathered(profile, blocks, job, experts)
    names = {block.name for block in blocks}
    layers, calls = [layer for layer in profile.layers if layer.block in names], list[Call]()
    counts = count_parameters(profile, parallelism, blocks)
    if parallelism.strategy in ("data_parallel", "parameter_server"):
        return [Call("broadcast", weight * sum(counts), data_group), Call("reduce", gradient * sum(counts), data_group)]
    are_experts = [parallelism.expert > 1 and is_expert(layer) for layer in layers]
    size, is_divided = round(parallelism.bucket_mb * MIB), parallelism.strategy in ("zero1", "zero2")
    for expert, group, parameters in ((False, data_group, counts.shared), (True, experts, counts.expert)):
        tensors = [layer.tensors if of == expert else () for layer, of in zip(layers, are_experts, strict=True)]
        gradients = gradients_of(tensors, [0.0] * len(layers), gradient)
        buckets = fill_buckets(gradients, size, FIRST_BYTES if size == BUCKET_BYTES else size)
        sizes = [bucket.nbytes for bucket in buckets]
        sizes = sizes if parallelism.overlap or not sizes else [sum(sizes)]
        calls += [Call("reduce_scatter" if is_divided else "all_reduce", nbytes, group) for nbytes in sizes]
        if is_divided:
            calls.append(Call("all_gather", weight * parameters, group))
        if parallelism.strategy == "zero_redundancy":
            calls += [Call("broadcast", tensor.nbytes, group) for tensor in gradients]
    return calls


def _gathered(profile: ModelProfile, blocks: Sequence[Block], job: TrainingJob, experts: Group) -> list[Call]:
    """Return the collectives of ZeRO-3, FSDP and HSDP.

    Each unit's parameters are gathered before forward and before backward, and its gradients are scattered after
    backward. HSDP then averages the gradients between its groups. The root's parameters are gathered once and kept.
    """
    parallelism, weight, gradient = job.parallelism, weight_item(job), gradient_item(job)
    size = parallelism.shard or parallelism.data
    shard, replicas = Group(size, parallelism.tensor), Group(parallelism.data // size, parallelism.tensor * size)
    calls = list[Call]()
    units = [(count_parameters(profile, parallelism, [block]), 2) for block in blocks if is_unit(profile, block)]
    root = count_parameters(profile, parallelism, [block for block in blocks if not is_unit(profile, block)])
    for counts, times in [*units, (root, 1)]:
        calls += [
            Call("all_gather", weight * counts.shared, shard, times),
            Call("reduce_scatter", gradient * counts.shared, shard),
            Call("all_reduce", gradient * counts.shared / size, replicas),
            Call("all_gather", weight * counts.expert, experts, times),
            Call("reduce_scatter", gradient * counts.expert, experts),
        ]
    return [call._replace(times=call.times * parallelism.pieces) for call in calls]


def weight_item(job: TrainingJob) -> int:
    """Return the bytes of a parameter in a collective."""
    parallelism = job.parallelism
    return job.item if parallelism.strategy in SHARDED else 2 if parallelism.half_weights else 4


def gradient_item(job: TrainingJob) -> int:
    """Return the bytes of a gradient element in a collective."""
    parallelism = job.parallelism
    if parallelism.gradient_bytes:
        return parallelism.gradient_bytes
    return 2 if parallelism.half_weights or (parallelism.strategy in SHARDED and job.item == 2) else 4
