"""Compute the bytes of weights, gradients, optimizer states, activations and other data on the fullest device."""

from collections.abc import Mapping

import numpy as np

from collectives.training.parallelism import FRAMEWORKS
from planner.columns import Columns
from planner.compute import (
    FULL,
    SELECTIVE,
    Held,
    count_ends,
    count_held,
    count_parameters,
    expert_share,
    local_tokens,
)
from planner.hosts import Array
from planner.jobs import SCHEDULES, STATE_BYTES
from planner.step import data_division

FILL = 0.85  # largest usable share of a device's memory; above it, allocators retry, and most published runs failed
GPIPE, INTERLEAVED = SCHEDULES.index("gpipe"), SCHEDULES.index("interleaved")
DEEPSPEED = FRAMEWORKS.index("megatron-deepspeed")
MEGATRON = [place for place, name in enumerate(FRAMEWORKS) if name.startswith(("megatron", "nemo"))]
PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers", "rest")


def memory_parts(c: Columns, q: Mapping[str, float]) -> dict[str, Array]:
    """Return the bytes of each part, and their ``total``, on the fuller device of the first and the last stage."""
    first, last = (_stage_parts(c, q, is_last=is_last) for is_last in (False, True))
    return {name: np.where(last["total"] > first["total"], last[name], first[name]) for name in first}


def _stage_parts(c: Columns, q: Mapping[str, float], *, is_last: bool) -> dict[str, Array]:
    layers = c.last_layers if is_last else c.first_layers
    saved_bytes, layer_bytes = _saved_bytes(c, q)
    weights, gradients, optimizer = _states(c, layers)
    trained = count_held(c, layers, trained=True).all
    buffers = np.where((c.dp * c.cp > 1) & (c.zero < 3), q["buffers"] * 4 * trained, 0.0)
    flying = np.minimum(c.count, np.where(c.schedule == GPIPE, c.count, 1.0 if is_last else c.pp))
    flying = np.where(c.schedule == INTERLEAVED, flying * (1 + (c.pp - 1) / (c.pp * c.vp)), flying)
    flying = np.where((c.pp > 1) & (not is_last), flying * q["in_flight"], flying)
    tokens = local_tokens(c)
    activations = tokens * saved_bytes * layers * flying + np.where(c.recompute == FULL, tokens * layer_bytes, 0.0)
    activations = activations + np.where(c.tp > 1, q["transient"] * tokens * c.hidden, 0.0)
    elements = np.where(c.recompute == FULL, c.written_elements, c.saved_elements)
    of_profile = c.micro_batch * elements * c.item_bytes / c.pp
    activations = np.where(c.is_shaped, activations, of_profile * flying)
    logits = np.where((is_last | (c.pp == 1)) & c.is_shaped, q["logits"] * tokens * c.vocab / c.tp, 0.0)
    plain = weights + gradients + optimizer + activations + logits + buffers
    rest = q["fragments"] * plain + q["context_gb"] * 1e9
    values = (weights, gradients, optimizer, activations, logits, buffers, rest)
    return {**dict(zip(PARTS, values, strict=True)), "total": plain + rest}


def _states(c: Columns, layers: Array) -> tuple[Array, Array, Array]:
    by = data_division(c)
    parameters, trained = count_held(c, layers), count_held(c, layers, trained=True)
    is_zero3 = c.zero == 3
    is_whole = is_zero3 & (c.pp > 1)  # gathered once per step
    weights = _weights(c, parameters, trained)
    unit = np.where(c.is_shaped, count_held(c).all, c.unit_parameters.max(axis=1))
    work = 3 * c.item_bytes * unit + 2 * c.item_bytes * count_parameters(c).words / c.tp
    weights = np.where(is_zero3, np.where(is_whole, weights, work) + _weights(c, parameters, trained, by), weights)
    each = np.where(c.framework == DEEPSPEED, 2.0, 4.0)
    is_divided = (is_zero3 & ~is_whole) | (c.zero == 2)
    gradients = np.where(is_divided, np.where(is_zero3, 4.0, each) * trained.divided(c, by), each * trained.all)
    states = np.array([*STATE_BYTES.values()])[c.optimizer] + np.where(c.item_bytes > 2, 0.0, 4.0)  # a float32 copy
    return weights, gradients, states * trained.divided(c, by)


def _weights(c: Columns, parameters: Held, trained: Held, by: Array | float = 1.0) -> Array:
    """Return the bytes of the weights. With LoRA, the embedding, the LM head and the adapters are not quantized."""
    divided = parameters.divided(c, np.asarray(by))
    if not c.lora.any():
        return np.asarray(c.item_bytes * divided)
    words = np.where(c.lora > 0, count_ends(c) * c.vocab * c.hidden / c.tp / by, 0.0)
    item = np.where(c.lora > 0, np.minimum(c.frozen_bytes, c.item_bytes), c.item_bytes)
    adapter_bytes = np.where(c.lora > 0, c.item_bytes * trained.divided(c, np.asarray(by)), 0.0)
    return np.asarray(item * (divided - words) + c.item_bytes * words + adapter_bytes)


def _saved_bytes(c: Columns, q: Mapping[str, float]) -> tuple[Array, Array]:
    """Return the bytes of saved activations per token and layer. The second value ignores full recomputation."""
    sequence, share, t = np.where(c.sequence_parallel > 0, c.tp, 1.0), expert_share(c), c.tp
    ffn = (1 - share) * c.mlp_matrices * c.ffn + share * 3 * (c.shared_ffn + c.top_k * c.expert_ffn)
    saved_bytes = q["act_hidden"] * c.hidden / sequence + q["act_heads"] * (c.heads + c.kv_heads) * c.head_dim / t
    selective = c.recompute == SELECTIVE
    saved_share = np.where(selective & ~c.is_unfused, q["selective"], 1.0)
    saved_bytes = (saved_bytes + q["act_ffn"] * ffn / t) * saved_share * c.item_bytes / 2
    saved_bytes = saved_bytes + np.where(c.is_unfused & ~selective, 5 * c.seq * c.heads / t, 0.0)
    gathered = (c.sequence_parallel > 0) & (c.pp == 1) & ~np.isin(c.framework, MEGATRON)
    saved_bytes = saved_bytes + np.where(gathered, q["gathered"] * c.hidden, 0.0)
    return np.where(c.recompute == FULL, 2 * c.hidden / sequence, saved_bytes), saved_bytes
