"""What a device has of a model: its part of matrices that are divided, its own experts, and its stage of a pipeline.

The profile is that of the dense model. Of experts each layer's MLP is there several times, and a token visits some of
them: one expert is as large as its MLP. What tensor and expert parallelism exchange within layers is here, too.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from collectives.records.model_profile import Block, Layer, ModelProfile
from collectives.training.parallelism import Parallelism
from planner.hosts import Group
from planner.mesh.calls import Call
from planner.mesh.interconnect import Interconnect

WHOLE_KINDS, WHOLE_NAMES = ("LayerNorm", "RMSNorm"), ("positions", "types")  # that tensor parallelism does not divide
BY_ROWS = (".out", ".down")  # matrices divided by rows


class Counts(NamedTuple):
    """Parameters that all devices of the data axis have alike, and those of experts, of which each has its own."""

    shared: float
    expert: float

    @property
    def whole(self) -> float:
        """All of them."""
        return self.shared + self.expert

    def divided(self, parallelism: Parallelism) -> float:
        """Return how many a device holds of what the strategy divides: experts are the same on fewer devices.

        >>> Counts(800.0, 400.0).divided(Parallelism(strategy="zero1", data=8, experts=8, expert=4))
        300.0
        """
        among = (parallelism.shard if parallelism.strategy == "hsdp" else parallelism.data) or 1
        return self.shared / among + self.expert / max(1, parallelism.data // parallelism.expert)


def is_expert(layer: Layer) -> bool:
    """Return whether a layer is a part of an MLP, which experts are copies of."""
    return ".mlp." in f"{layer.name}."


def experts_part(profile: ModelProfile, parallelism: Parallelism) -> ModelProfile:
    """Return what a device has of a transformer whose MLPs are experts: its own of them, and work for ``top_k``.

    >>> from collectives.records.model_profile import find_model_profile
    >>> dense = find_model_profile("gpt2")
    >>> found = experts_part(dense, Parallelism(data=8, experts=16, expert=8, top_k=2))
    >>> round(found.parameters / dense.parameters, 2), round(found.forward_flops / dense.forward_flops, 2)
    (1.46, 1.4)
    """
    if not parallelism.experts:
        return profile
    own, visited = parallelism.experts // parallelism.expert, parallelism.top_k
    worked = ("forward_flops", "backward_flops", "read_bytes", "written_bytes", "backward_bytes", "saved_bytes")
    layers = tuple(
        layer._replace(tensors=layer.tensors * own, **{name: getattr(layer, name) * visited for name in worked})
        if is_expert(layer)
        else layer
        for layer in profile.layers
    )
    return replace(profile, layers=layers)


def visits(profile: ModelProfile, parallelism: Parallelism) -> list[int]:
    """Return how many times the dense model's work of each layer a token takes: ``top_k`` of an MLP with experts."""
    return [parallelism.top_k if parallelism.experts and is_expert(layer) else 1 for layer in profile.layers]


def count_parameters(profile: ModelProfile, parallelism: Parallelism, blocks: Sequence[Block] | None = None) -> Counts:
    """Return the parameters of blocks, or of all; ``profile`` is what a device has.

    Where each device has all experts they are like everything else.
    """
    names = {block.name for block in profile.blocks if blocks is None} | {block.name for block in blocks or ()}
    layers = [layer for layer in profile.layers if layer.block in names]
    whole = float(sum(layer.parameters for layer in layers))
    own = float(sum(layer.parameters for layer in layers if is_expert(layer))) if parallelism.expert > 1 else 0.0
    return Counts(whole - own, own)


def split_tensors(
    layers: Sequence[Layer], parallelism: Parallelism
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the tensors of each layer that all devices have alike, and those of experts; the others have none."""
    own = [parallelism.expert > 1 and is_expert(layer) for layer in layers]
    pairs = [*zip(layers, own, strict=True)]
    return [() if one else layer.tensors for layer, one in pairs], [
        layer.tensors if one else () for layer, one in pairs
    ]


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


WORDS, HEAD, LOSS = "words", "head", "loss"  # blocks of the transformers of ``realcomm.profiling``
LOSS_CALLS = 3  # all_reduces of a number a token: the greatest score, the sum of exponentials, the label's score


class BlockCalls(NamedTuple):
    """The calls of a block for a microbatch; what is recomputed is part of backward."""

    forward: tuple[Call, ...] = ()
    backward: tuple[Call, ...] = ()

    @property
    def all(self) -> tuple[Call, ...]:
        """Both, forward first."""
        return self.forward + self.backward


class LayerCollectives(NamedTuple):
    """The calls of each block, and what they take."""

    calls: tuple[BlockCalls, ...]
    forward: tuple[float, ...]  # seconds of a microbatch, by block
    backward: tuple[float, ...]
    tensor_share: float  # of all these seconds

    def seconds(self, blocks: slice) -> float:
        """Return the seconds of some blocks, forward and backward."""
        return sum(self.forward[blocks]) + sum(self.backward[blocks])


def find_layer_collectives(
    profile: ModelProfile, parallelism: Parallelism, samples: float, item: int, fabric: Interconnect
) -> LayerCollectives:
    """Return what the blocks of a transformer exchange for a microbatch of ``samples``, elements of ``item`` bytes.

    A layer has two all_reduces in forward and two in backward, its words one in forward and its scores one in backward
    (Shoeybi et al., https://arxiv.org/abs/1909.08053, section 3); with sequence parallelism each is an all_gather and a
    reduce_scatter (Korthikanti et al., https://arxiv.org/abs/2205.05198). Its experts have two all_to_alls in each
    (Lepikhin et al., https://arxiv.org/abs/2006.16668).
    """
    calls = [_of_block(profile, number, parallelism, samples, item) for number in range(len(profile.blocks))]
    if parallelism.recompute == "full":
        calls = [one._replace(backward=one.forward + one.backward) for one in calls]

    def seconds(made: Sequence[Call]) -> float:
        return sum(one.times * fabric.seconds(one.collective, one.nbytes, one.group) for one in made)

    forward, backward = (tuple(seconds(part) for part in parts) for parts in zip(*calls, strict=True))
    routed = sum(seconds([call for call in one.all if call.collective == "all_to_all"]) for one in calls)
    whole = sum(forward) + sum(backward)
    return LayerCollectives(tuple(calls), forward, backward, 1 - routed / whole if whole else 1.0)


def _of_block(profile: ModelProfile, number: int, parallelism: Parallelism, samples: float, item: int) -> BlockCalls:
    shape, block = profile.shape, profile.blocks[number]
    if shape is None:
        return BlockCalls()
    tokens = samples * shape.context
    nbytes, group = tokens * shape.width * item, Group(parallelism.tensor)
    into, out = ("all_gather", "reduce_scatter") if parallelism.sequence else ("", "all_reduce")
    if is_layer(profile, block):
        routed = (
            ()
            if parallelism.expert == 1
            else (Call("all_to_all", nbytes * parallelism.top_k, Group(parallelism.expert, parallelism.tensor), 2),)
        )
        divided = () if parallelism.tensor == 1 else tuple(Call(name, nbytes, group, 2) for name in (into, out) if name)
        return BlockCalls(divided + routed, divided + routed)
    if parallelism.tensor == 1:
        return BlockCalls()
    behind = (Call(into, nbytes, group),) if parallelism.sequence else ()
    if block.name == WORDS:
        return BlockCalls((Call(out, nbytes, group),), behind)
    if block.name == HEAD:
        return BlockCalls(behind, (Call(out, nbytes, group),))
    if block.name == LOSS:
        return BlockCalls((Call("all_reduce", tokens * 4, group, LOSS_CALLS),))
    return BlockCalls()
