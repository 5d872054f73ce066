"""What experts make of a transformer: each layer's MLP is there several times, and a token visits some of them.

The profile is that of the dense model: one expert is as large as its MLP.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from collectives.parallelism import Parallelism
from collectives.records.model_profile import Block, Layer, ModelProfile
from simcomm.parallelism.compute import Compute


class Counts(NamedTuple):
    """Parameters that all devices of the data axis have alike, and those of experts, of which each has its own."""

    shared: float
    expert: float

    @property
    def whole(self) -> float:
        """All of them."""
        return self.shared + self.expert

    def divided(self, form: Parallelism) -> float:
        """Return how many a device holds of what the form divides: experts are the same on fewer devices.

        >>> Counts(800.0, 400.0).divided(Parallelism(form="zero1", data=8, experts=8, expert=4))
        300.0
        """
        among = (form.shard if form.form == "hsdp" else form.data) or 1
        return self.shared / among + self.expert / max(1, form.data // form.expert)


def is_expert(layer: Layer) -> bool:
    """Return whether a layer is a part of an MLP, which experts are copies of."""
    return ".mlp." in f"{layer.name}."


def experts_part(profile: ModelProfile, form: Parallelism) -> ModelProfile:
    """Return what a device has of a transformer whose MLPs are experts: its own of them, and work for ``top_k``.

    >>> from collectives.records.model_profile import find_model_profile
    >>> dense = find_model_profile("gpt2")
    >>> found = experts_part(dense, Parallelism(data=8, experts=16, expert=8, top_k=2))
    >>> round(found.parameters / dense.parameters, 2), round(found.forward_flops / dense.forward_flops, 2)
    (1.46, 1.4)
    """
    if not form.experts:
        return profile
    own, visited = form.experts // form.expert, form.top_k
    worked = ("forward_flops", "backward_flops", "read_bytes", "written_bytes", "backward_bytes", "saved_bytes")
    layers = tuple(
        layer._replace(tensors=layer.tensors * own, **{name: getattr(layer, name) * visited for name in worked})
        if is_expert(layer)
        else layer
        for layer in profile.layers
    )
    return replace(profile, layers=layers)


def with_experts(compute: Compute, form: Parallelism) -> Compute:
    """Return the times of a model each of whose tokens visits ``top_k`` experts, by those of the dense model."""
    if not form.experts:
        return compute
    visits = [form.top_k if is_expert(layer) else 1 for layer in compute.profile.layers]
    forward, backward = (
        tuple(seconds * times for seconds, times in zip(layers, visits, strict=True))
        for layers in (compute.forward, compute.backward)
    )
    return replace(compute, forward=forward, backward=backward)


def count_parameters(profile: ModelProfile, form: Parallelism, blocks: Sequence[Block] | None = None) -> Counts:
    """Return the parameters of blocks, or of all; ``profile`` is what a device has.

    Where each device has all experts they are like everything else.
    """
    names = {block.name for block in profile.blocks if blocks is None} | {block.name for block in blocks or ()}
    layers = [layer for layer in profile.layers if layer.block in names]
    whole = float(sum(layer.parameters for layer in layers))
    own = float(sum(layer.parameters for layer in layers if is_expert(layer))) if form.expert > 1 else 0.0
    return Counts(whole - own, own)


def split_tensors(layers: Sequence[Layer], form: Parallelism) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the tensors of each layer that all devices have alike, and those of experts; the others have none."""
    own = [form.expert > 1 and is_expert(layer) for layer in layers]
    pairs = [*zip(layers, own, strict=True)]
    return [() if one else layer.tensors for layer, one in pairs], [
        layer.tensors if one else () for layer, one in pairs
    ]
