"""What tensor and expert parallelism exchange within the layers of a transformer: the calls of each block."""

from collections.abc import Sequence
from typing import NamedTuple

from collectives.records.model_profile import ModelProfile
from collectives.training.parallelism import Parallelism
from simcomm.mesh.calls import Call, Group
from simcomm.mesh.interconnect import Interconnect
from simcomm.mesh.layers import is_layer

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
    profile: ModelProfile, form: Parallelism, samples: float, item: int, fabric: Interconnect
) -> LayerCollectives:
    """Return what the blocks of a transformer exchange for a microbatch of ``samples``, elements of ``item`` bytes.

    A layer has two all_reduces in forward and two in backward, its words one in forward and its scores one in backward
    (Shoeybi et al., https://arxiv.org/abs/1909.08053, section 3); with sequence parallelism each is an all_gather and a
    reduce_scatter (Korthikanti et al., https://arxiv.org/abs/2205.05198). Its experts have two all_to_alls in each
    (Lepikhin et al., https://arxiv.org/abs/2006.16668).
    """
    calls = [_of_block(profile, number, form, samples, item) for number in range(len(profile.blocks))]
    if form.recompute == "full":
        calls = [one._replace(backward=one.forward + one.backward) for one in calls]

    def seconds(made: Sequence[Call]) -> float:
        return sum(one.times * fabric.seconds(one.collective, one.nbytes, one.group) for one in made)

    forward, backward = (tuple(seconds(part) for part in parts) for parts in zip(*calls, strict=True))
    routed = sum(seconds([call for call in one.all if call.collective == "all_to_all"]) for one in calls)
    whole = sum(forward) + sum(backward)
    return LayerCollectives(tuple(calls), forward, backward, 1 - routed / whole if whole else 1.0)


def _of_block(profile: ModelProfile, number: int, form: Parallelism, samples: float, item: int) -> BlockCalls:
    shape, block = profile.shape, profile.blocks[number]
    if shape is None:
        return BlockCalls()
    tokens = samples * shape.context
    nbytes, group = tokens * shape.width * item, Group(form.tensor)
    into, out = ("all_gather", "reduce_scatter") if form.sequence else ("", "all_reduce")
    if is_layer(profile, block):
        routed = () if form.expert == 1 else (
            Call("all_to_all", nbytes * form.top_k, Group(form.expert, form.tensor), 2),)  # fmt: skip
        divided = () if form.tensor == 1 else tuple(Call(name, nbytes, group, 2) for name in (into, out) if name)
        return BlockCalls(divided + routed, divided + routed)
    if form.tensor == 1:
        return BlockCalls()
    behind = (Call(into, nbytes, group),) if form.sequence else ()
    if block.name == WORDS:
        return BlockCalls((Call(out, nbytes, group),), behind)
    if block.name == HEAD:
        return BlockCalls(behind, (Call(out, nbytes, group),))
    if block.name == LOSS:
        return BlockCalls((Call("all_reduce", tokens * 4, group, LOSS_CALLS),))
    return BlockCalls()
