"""A model cut into stages of consecutive blocks, of as equal work as can be."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import Block, ModelProfile

Stage = tuple[Block, ...]


def cut_stages(profile: ModelProfile, stages: int) -> list[Stage]:
    """Return the blocks of each stage: the greatest work of a stage is as small as it can be.

    Raises InputError for more stages than blocks with parameters.

    >>> from collectives.records.model_profile import find_model_profile
    >>> [len(stage) for stage in cut_stages(find_model_profile("gpt2"), 4)]
    [7, 4, 5, 2]
    """
    blocks = profile.blocks
    most = sum(block.parameters > 0 for block in blocks)
    if stages > most:
        raise InputError(
            f"{stages} stages of {quote(profile.model)}, which can be cut into {most} at most; give fewer "
            "(pipeline x virtual)"
        )
    work = [float(block.forward_flops + block.backward_flops) or 1.0 for block in blocks]
    cuts = _cut_evenly(work, stages)
    return [tuple(blocks[begin:end]) for begin, end in pairwise(cuts)]


def _cut_evenly(work: Sequence[float], stages: int) -> list[int]:
    """Return where to cut a sequence into ``stages`` runs whose greatest sum is least, by dynamic programming."""
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
    found = [count]
    for cuts in reversed(chosen):
        found.append(cuts[found[-1]])
    return [0, *reversed(found)]
