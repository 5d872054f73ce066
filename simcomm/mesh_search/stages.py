"""How frameworks deal the layers of a model to the stages of a pipeline."""

from functools import cache


@cache
def deal_layers(
    framework: str, layers: int, pp: int, vp: int, hidden: int, heads: int, kv_heads: int, head_dim: int, ffn: int,
    mlp_matrices: int, vocab: int, tied: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Return the layers of the fullest stage, of the first and of the last.

    nanotron fills a stage until the parameters so far pass its share of all, words not counted; Megatron counts words
    and head as a layer each where layers do not divide; others deal as evenly as they can, the first ones more.
    """
    if pp == 1:
        return layers, layers, layers
    if framework == "nanotron":
        counts = _deal_by_parameters(layers, pp, hidden, heads, kv_heads, head_dim, ffn, mlp_matrices, vocab)
    elif framework.startswith("megatron") and layers % pp and (layers + 2) % pp == 0:
        each = (layers + 2) // pp
        counts = [each - 1, *[each] * (pp - 2), each - 1]
    elif framework == "megatron-deepspeed" and layers % pp:
        each = -(-layers // pp)
        counts = [min(each, max(0, layers - each * k)) for k in range(pp)]
    else:
        counts = [layers // pp + (k < layers % pp) for k in range(pp)]
    return max(counts), counts[0], counts[-1]


def _deal_by_parameters(
    layers: int, pp: int, hidden: int, heads: int, kv_heads: int, head_dim: int, ffn: int, mlp_matrices: int, vocab: int
) -> list[int]:
    """Deal as nanotron does: a stage ends with the block whose running sum passes its share; words cost nothing."""
    layer = hidden * head_dim * (2 * heads + 2 * kv_heads) + mlp_matrices * hidden * ffn
    whole = layers * layer + vocab * hidden
    counts, stage = [0] * pp, 0
    for number in range(1, layers + 1):
        counts[stage] += 1
        if number * layer * pp > whole * (stage + 1) and stage < pp - 1:
            stage += 1
    return counts
