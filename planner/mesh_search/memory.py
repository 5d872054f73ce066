"""What a device of a mesh keeps: bytes by parts, and how likely they fit."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from collectives.training.parallelism import FRAMEWORKS
from planner.mesh_search.columns import (
    RECOMPUTED,
    Array,
    Held,
    Meshes,
    count_held,
    count_parameters,
    count_trained,
    count_words,
    data_division,
    expert_share,
    local_tokens,
)

MEMORY_PRIORS = {
    "act_hidden": 9.5,  # bytes an element of the hidden width, layer and token, kept until backward
    "act_heads": 5.7,  # of queries, keys and values
    "act_ffn": 1.42,  # of each matrix of the MLP
    "logits": 11.6,  # bytes a score
    "fragments": 0.07,  # of all else, lost between blocks of the allocator
    "context_gb": 0.84,
    "buffers": 0.52,  # of 4 bytes a parameter, where gradients are reduced
    "in_flight": 1.17,
    "selective": 0.6,  # of what is kept, where torch recomputes every second operation
    "transient": 8.0,  # bytes an element of it that a tensor group gathers at a time
    "gathered": 4.0,  # bytes an element of the hidden width that tensor groups keep gathered, by torch's autograd
}
SELECTIVE = RECOMPUTED.index("selective")
FULL = RECOMPUTED.index("full")
DEEPSPEED = FRAMEWORKS.index("megatron-deepspeed")


def is_megatron(m: Meshes) -> Array:
    """Return which trainings gather a tensor group's inputs again for backward, as Megatron does."""
    return np.isin(m.framework, [k for k, name in enumerate(FRAMEWORKS) if name.startswith(("megatron", "nemo"))])


@dataclass(frozen=True)
class Memory:
    """Bytes of the fullest device, an array a part."""

    weights: Array
    gradients: Array
    optimizer: Array
    activations: Array
    logits: Array
    rest: Array

    @property
    def total(self) -> Array:
        """All of it."""
        return sum((getattr(self, name) for name in PART_NAMES), np.zeros_like(self.weights))


PART_NAMES = tuple(field.name for field in fields(Memory))


def memory_bytes(meshes: Meshes, p: Mapping[str, float] = MEMORY_PRIORS) -> Memory:
    """Return what the fuller one of the first and the last stage of each training keeps."""
    first, last = (_stage(meshes, p, is_last=is_last) for is_last in (False, True))
    fuller = last.total > first.total
    return Memory(*(np.where(fuller, getattr(last, name), getattr(first, name)) for name in PART_NAMES))


def _stage(m: Meshes, p: Mapping[str, float], *, is_last: bool) -> Memory:
    kept, one = _kept(m, p)
    layers = m.last_layers if is_last else m.first_layers
    weights, gradients, optimizer = _states(m, layers)
    trained = count_held(m, count_trained(m), layers).all
    buffers = np.where((m.dp * m.cp > 1) & (m.zero < 3), p["buffers"] * 4 * trained, 0.0)
    activations = local_tokens(m) * kept * layers * _flying(m, p, is_last=is_last)
    activations = activations + np.where(m.recompute == FULL, local_tokens(m) * one, 0.0)
    at_once = p["transient"] * local_tokens(m) * m.hidden
    activations = activations + np.where(m.tp > 1, at_once, 0.0)
    logits = np.where(is_last | (m.pp == 1), p["logits"] * local_tokens(m) * m.vocab / m.tp, 0.0)
    plain = weights + gradients + optimizer + activations + logits + buffers
    rest = buffers + p["fragments"] * plain + p["context_gb"] * 1e9
    return Memory(weights, gradients, optimizer, activations, logits, rest)


def state_bytes(m: Meshes) -> Array:
    """Return the bytes of a trained parameter that an optimizer keeps, with the weight in 32 bits.

    One of 32 bits in place of 16 is that weight itself.
    """
    states = np.array([8.0, 2.0, 4.0])[m.optimizer]  # by OPTIMIZERS; momentum with sgd
    return np.asarray(states + np.where(m.item_bytes > 2, 0.0, 4.0))


def _states(m: Meshes, layers: Array) -> tuple[Array, Array, Array]:
    """Return the bytes of weights, gradients and states of a stage of so many layers.

    Weights are of 16 bits, or of 32 where these compute, with gradients and states of 32; fp16 of Megatron-DeepSpeed
    keeps gradients in 16. What the host keeps is not here: with its states go the gradients, with its parameters all
    but the layers at work.
    """
    whole, by = count_parameters(m), data_division(m)
    held, trained = count_held(m, whole, layers), count_held(m, count_trained(m), layers)
    is_zero3 = m.zero == 3
    is_whole = is_zero3 & (m.pp > 1)  # gathered once a step
    weights = _weights(m, held, trained)
    work = (3 * m.item_bytes * (whole.layer / m.tp + whole.experts / m.ep)) + 2 * m.item_bytes * whole.words / m.tp
    weights = np.where(is_zero3, np.where(is_whole, weights, work) + _weights(m, held, trained, by), weights)
    own = np.where(m.lora > 0, m.item_bytes * trained.all, 0.0)
    weights = np.where(m.offload > 1, np.minimum(weights, work + own), weights)
    each = np.where(m.framework == DEEPSPEED, 2.0, 4.0)
    is_divided = (is_zero3 & ~is_whole) | (m.zero == 2)
    gradients = np.where(is_divided, np.where(is_zero3, 4.0, each) * trained.divided(m, by), each * trained.all)
    is_kept = m.offload == 0
    states = state_bytes(m) * trained.divided(m, by)
    return weights, np.where(is_kept, gradients, 0.0), np.where(is_kept, states, 0.0)


def _weights(m: Meshes, held: Held, trained: Held, by: Array | float = 1.0) -> Array:
    """Return the bytes of weights that ``by`` devices divide; words that are frozen keep their bits, as heads do."""
    divided = held.divided(m, np.asarray(by))
    words = np.where(m.lora > 0, count_words(m) / by, 0.0)
    item = np.where(m.lora > 0, np.minimum(m.frozen_bytes, m.item_bytes), m.item_bytes)
    own = np.where(m.lora > 0, m.item_bytes * trained.divided(m, np.asarray(by)), 0.0)  # of adapters
    result: Array = item * (divided - words) + m.item_bytes * words + own
    return result


def host_bytes(m: Meshes) -> Array:
    """Return what a host keeps of its devices: gradients of 32 bits, states, and the weights that stream from it."""
    by = data_division(m)
    held, trained = (count_held(m, of, m.most_layers) for of in (count_parameters(m), count_trained(m)))
    states = np.where(m.offload > 0, (4 + state_bytes(m)) * trained.divided(m, by), 0.0)
    weights = np.where(m.offload > 1, _weights(m, held, trained, by), 0.0)
    return np.asarray((states + weights) * np.minimum(m.gpus, m.node_gpus))


def _kept(m: Meshes, p: Mapping[str, float]) -> tuple[Array, Array]:
    """Return the bytes a token and layer that are kept until backward, and those of a layer that is not recomputed."""
    t = m.tp
    sequence = np.where(m.sequence_parallel > 0, t, 1.0)
    share = expert_share(m)
    ffn = (1 - share) * m.mlp_matrices * m.ffn + share * 3 * (m.shared_ffn + m.top_k * m.expert_ffn)
    kept = p["act_hidden"] * m.hidden / sequence + p["act_heads"] * (m.heads + m.kv_heads) * m.head_dim / t
    selective = m.recompute == SELECTIVE
    kept = (kept + p["act_ffn"] * ffn / t) * np.where(selective & ~m.is_unfused, p["selective"], 1.0)
    kept = kept * m.item_bytes / 2
    kept = kept + np.where(m.is_unfused & ~selective, 5 * m.seq * m.heads / t, 0.0)
    keeps_gathered = (m.sequence_parallel > 0) & (m.pp == 1) & ~is_megatron(m)
    kept = kept + np.where(keeps_gathered, p["gathered"] * m.hidden, 0.0)
    return np.where(m.recompute == FULL, 2 * m.hidden / sequence, kept), kept


def _flying(m: Meshes, p: Mapping[str, float], *, is_last: bool) -> Array:
    """Return how many micro batches are between their forward and backward on the first or the last stage."""
    flying = np.minimum(m.micro_batches, np.where(m.gpipe, m.micro_batches, 1.0 if is_last else m.pp))
    flying = np.where(m.interleaved, flying * (1 + (m.pp - 1) / (m.pp * m.vp)), flying)
    return np.where((m.pp > 1) & (not is_last), flying * p["in_flight"], flying)
