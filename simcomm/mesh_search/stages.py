"""How frameworks deal the layers of a model to the stages of a pipeline."""

from functools import cache
from typing import NamedTuple


class LayerSizes(NamedTuple):
    """The dimensions that say how many parameters a layer and the words have."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    mlp_matrices: int
    vocab: int

    @property
    def layer(self) -> int:
        """Parameters of a layer."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + self.mlp_matrices * self.hidden * self.ffn


@cache
def deal_layers(framework: str, layers: int, pp: int, sizes: LayerSizes) -> tuple[int, int, int]:
    """Return the layers of the fullest of ``pp`` stages, of the first and of the last.

    nanotron fills a stage until the parameters so far pass its share of all, words not counted; Megatron counts words
    and head as a layer each where layers do not divide; others deal as evenly as they can, the first ones more.
    """
    if pp == 1:
        return layers, layers, layers
    if framework == "nanotron":
        counts = _deal_by_parameters(layers, pp, sizes)
    elif framework.startswith("megatron") and layers % pp and (layers + 2) % pp == 0:
        each = (layers + 2) // pp
        counts = [each - 1, *[each] * (pp - 2), each - 1]
    elif framework == "megatron-deepspeed" and layers % pp:
        each = -(-layers // pp)
        counts = [min(each, max(0, layers - each * k)) for k in range(pp)]
    else:
        counts = [layers // pp + (k < layers % pp) for k in range(pp)]
    return max(counts), counts[0], counts[-1]


def _deal_by_parameters(layers: int, pp: int, sizes: LayerSizes) -> list[int]:
    """Deal as nanotron does: a stage ends with the block whose running sum passes its share; words cost nothing."""
    layer = sizes.layer
    whole = layers * layer + sizes.vocab * sizes.hidden
    counts, stage = [0] * pp, 0
    for number in range(1, layers + 1):
        counts[stage] += 1
        if number * layer * pp > whole * (stage + 1) and stage < pp - 1:
            stage += 1
    return counts
