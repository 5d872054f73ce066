"""Distribute a transformer's layers to pipeline stages as frameworks do, and cut a profile into stages."""

from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import Block, ModelProfile

Stage = tuple[Block, ...]


@cache
def deal_layers(framework: str, layers: int, pp: int, layer: int, words: int) -> tuple[int, int, int]:
    """Return the number of layers of the fullest, the first and the last of ``pp`` stages.

    ``layer`` and ``words`` are the parameter counts of a layer and of the token embedding.

    nanotron starts a new stage once the stages so far hold more than their even share of all parameters. If ``pp`` does
    not divide the number of layers, Megatron counts the token embedding and the LM head as a layer each, provided that
    ``pp`` then divides the sum. Megatron-DeepSpeed fills all stages but the last ones. Other frameworks distribute the
    layers evenly, with the extra layers first.
    """
    if pp == 1:
        return layers, layers, layers
    if framework == "nanotron":
        counts = _deal_by_parameters(layers, pp, layer, words)
    elif framework.startswith("megatron") and layers % pp and (layers + 2) % pp == 0:
        each = (layers + 2) // pp
        counts = [each - 1, *[each] * (pp - 2), each - 1]
    elif framework == "megatron-deepspeed" and layers % pp:
        each = -(-layers // pp)
        counts = [min(each, max(0, layers - each * k)) for k in range(pp)]
    else:
        counts = [layers // pp + (k < layers % pp) for k in range(pp)]
    return max(counts), counts[0], counts[-1]


def _deal_by_parameters(layers: int, pp: int, layer: int, words: int) -> list[int]:
    total = layers * layer + words
    counts, stage = [0] * pp, 0
    for number in range(1, layers + 1):
        counts[stage] += 1
        if number * layer * pp > total * (stage + 1) and stage < pp - 1:
            stage += 1
    return counts


def cut_stages(profile: ModelProfile, stages: int) -> list[Stage]:
    """Return the blocks of each stage. The cut minimizes the work of the largest stage.

    Raise InputError for more stages than blocks with parameters.

    >>> from collectives.records.model_profile import find_model_profile
    >>> [len(stage) for stage in cut_stages(find_model_profile("gpt2"), 4)]
    [7, 4, 5, 2]
    """
    blocks = profile.blocks
    most = sum(block.parameters > 0 for block in blocks)
    if stages > most:
        raise InputError(
            f"{quote(profile.model)} can be cut into {most} stages at most, not {stages}; use fewer "
            "stages (pipeline x virtual)"
        )
    work = [float(block.forward_flops + block.backward_flops) or 1.0 for block in blocks]
    cuts = _cut_evenly(work, stages)
    return [tuple(blocks[begin:end]) for begin, end in pairwise(cuts)]


def _cut_evenly(work: Sequence[float], stages: int) -> list[int]:
    """Return the cuts of a sequence into ``stages`` parts whose largest sum is minimal, by dynamic programming."""
    until = [0.0, *accumulate(work)]
    count = len(work)
    best: list[float] = until[:]
    chosen: list[list[int]] = []
    for stage in range(2, stages + 1):
        row, cuts = [float("inf")] * (count + 1), [0] * (count + 1)
        for end in range(stage, count + 1):
            for cut in range(end - 1, stage - 2, -1):
                last = until[end] - until[cut]
                greatest = max(best[cut], last)
                if greatest < row[end]:
                    row[end], cuts[end] = greatest, cut
                if last >= row[end]:
                    break
        best, chosen = row, [*chosen, cuts]
    bounds = [count]
    for cuts in reversed(chosen):
        bounds.append(cuts[bounds[-1]])
    return [0, *reversed(bounds)]
