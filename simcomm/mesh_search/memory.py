"""What a device of a mesh keeps: bytes by parts, and how likely they fit."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from simcomm.mesh_search.columns import FRAMEWORKS, RECOMPUTED, Array, Meshes
from simcomm.mesh_search.step import count_parameters, expert_share, local_tokens

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
        return sum((getattr(self, field.name) for field in fields(self)), np.zeros_like(self.weights))


def memory_bytes(meshes: Meshes, p: Mapping[str, float] = MEMORY_PRIORS) -> Memory:
    """Return what the fuller one of the first and the last stage of each training keeps."""
    first, last = (_stage(meshes, p, is_last=is_last) for is_last in (False, True))
    fuller = last.total > first.total
    parts = {
        field.name: np.where(fuller, getattr(last, field.name), getattr(first, field.name)) for field in fields(Memory)
    }
    return Memory(**parts)


def _stage(m: Meshes, p: Mapping[str, float], *, is_last: bool) -> Memory:
    t, tokens = m.tp, local_tokens(m)
    layers = m.last_layers if is_last else m.first_layers
    dense, experts, words = count_parameters(m)
    ends = np.where(m.pp > 1, 1.0, np.where(m.tied > 0, 1.0, 2.0))  # words and head
    held = (layers * dense + ends * words) / t + layers * experts / m.ep
    group = m.dp * m.cp

    # weights of 16 bits with gradients and states of 32; fp16 of Megatron-DeepSpeed keeps gradients in 16
    is_zero3 = m.zero == 3
    group3 = m.shard
    divided = np.where(is_zero3, 1 / group3, np.where(m.zero > 0, 1 / group, 1.0))
    is_whole = is_zero3 & (m.pp > 1)  # gathered once a step
    gathered = (3 * (dense / t + experts / m.ep) + 2 * words / t) * 2
    weights = np.where(
        is_zero3, np.where(is_whole, 2 * held + 2 * held / group3, 2 * held / group3 + gathered), 2 * held
    )
    each = np.where(m.framework == DEEPSPEED, 2.0, 4.0)
    gradients = np.where(
        is_zero3 & ~is_whole, 4 * held / group3, np.where(m.zero == 2, each * held / group, each * held)
    )
    optimizer = 12 * held * divided
    buffers = np.where((group > 1) & ~is_zero3, p["buffers"] * 4 * held, 0.0)

    sequence = np.where(m.sequence_parallel > 0, t, 1.0)
    share = expert_share(m)
    ffn = (1 - share) * m.mlp_matrices * m.ffn + share * 3 * (m.shared_ffn + m.top_k * m.expert_ffn)
    kept = p["act_hidden"] * m.hidden / sequence + p["act_heads"] * (m.heads + m.kv_heads) * m.head_dim / t
    selective = m.recompute == SELECTIVE
    kept = (kept + p["act_ffn"] * ffn / t) * np.where(selective & ~m.is_unfused, p["selective"], 1.0)
    kept = kept + np.where(m.is_unfused & ~selective, 5 * m.seq * m.heads / t, 0.0)
    keeps_gathered = (m.sequence_parallel > 0) & (m.pp == 1) & ~is_megatron(m)
    kept = kept + np.where(keeps_gathered, p["gathered"] * m.hidden, 0.0)
    one = kept
    kept = np.where(m.recompute == FULL, 2 * m.hidden / sequence, kept)
    flying = np.minimum(m.micro_batches, 1.0 if is_last else m.pp)
    flying = np.where(m.interleaved, flying * (1 + (m.pp - 1) / (m.pp * m.vp)), flying)
    flying = np.where((m.pp > 1) & (not is_last), flying * p["in_flight"], flying)
    activations = tokens * kept * layers * flying + np.where(m.recompute == FULL, tokens * one, 0.0)
    has_head = is_last | (m.pp == 1)
    logits = np.where(has_head, p["logits"] * tokens * m.vocab / t, 0.0)
    plain = weights + gradients + optimizer + activations + logits + buffers
    rest = buffers + p["fragments"] * plain + p["context_gb"] * 1e9
    return Memory(weights, gradients, optimizer, activations, logits, rest)
