"""How many parameters a device of a mesh holds, how many of them are trained, and its tokens."""

from typing import NamedTuple

import numpy as np

from simcomm.mesh_search.columns import Array, Meshes


class ParameterCounts(NamedTuple):
    """Parameters of a layer but its experts, of a layer's experts, and of the words (once)."""

    layer: Array
    experts: Array
    words: Array


def expert_share(m: Meshes) -> Array:
    """Return the share of layers that are experts'."""
    return np.where(m.experts > 0, 1 - m.dense_layers / m.layers, 0.0)


def local_tokens(m: Meshes) -> Array:
    """Return the tokens of a micro batch on a device."""
    result: Array = m.micro_batch * m.seq / m.cp
    return result


def count_parameters(m: Meshes) -> ParameterCounts:
    """Return what a whole model has."""
    qkv, queries = (m.heads + 2 * m.kv_heads) * m.head_dim, m.heads * m.head_dim
    share = expert_share(m)
    mlp = (1 - share) * m.mlp_matrices * m.hidden * m.ffn + share * 3 * m.hidden * m.shared_ffn
    layer = m.hidden * (qkv + queries) + mlp + 2 * m.hidden
    return ParameterCounts(layer, share * m.experts * 3 * m.hidden * m.expert_ffn, m.vocab * m.hidden)


def count_trained(m: Meshes) -> ParameterCounts:
    """Return what of it is trained: all, or adapters of ``lora`` columns beside each matrix, of no words."""
    whole = count_parameters(m)
    qkv, queries = (m.heads + 2 * m.kv_heads) * m.head_dim, m.heads * m.head_dim
    share = expert_share(m)
    mlp = (1 - share) * m.mlp_matrices * (m.hidden + m.ffn) + share * 3 * (m.hidden + m.shared_ffn)
    adapters = m.lora * (2 * m.hidden + qkv + queries + mlp)
    of_experts = m.lora * share * m.experts * 3 * (m.hidden + m.expert_ffn)
    is_adapted = m.lora > 0
    return ParameterCounts(
        np.where(is_adapted, adapters, whole.layer),
        np.where(is_adapted, of_experts, whole.experts),
        np.where(is_adapted, 0.0, whole.words),
    )


class Held(NamedTuple):
    """Parameters of one device before the data axis divides anything: its experts', and all others."""

    dense: Array
    experts: Array

    @property
    def all(self) -> Array:
        """Both."""
        return self.dense + self.experts

    def divided(self, m: Meshes, by: Array) -> Array:
        """Return what is left where ``by`` devices divide them; experts those that have the same ones."""
        result: Array = self.dense / by + self.experts / np.maximum(1.0, by / m.ep)
        return result


def count_held(m: Meshes, of: ParameterCounts, layers: Array) -> Held:
    """Return what of it a device of a stage of so many layers has, the words where there is but one stage twice."""
    return Held((layers * of.layer + _ends(m) * of.words) / m.tp, layers * of.experts / m.ep)


def count_words(m: Meshes) -> Array:
    """Return the parameters of words and head on a device."""
    return _ends(m) * m.vocab * m.hidden / m.tp


def _ends(m: Meshes) -> Array:
    """Return how many of words and head a device has."""
    return np.where(m.pp > 1, 1.0, np.where(m.tied > 0, 1.0, 2.0))


def data_division(m: Meshes) -> Array:
    """Return how many devices divide an optimizer's states."""
    return np.where(m.zero == 3, m.shard, np.where(m.zero > 0, m.dp * m.cp, 1.0))
