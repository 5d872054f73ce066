"""Compute a device's compute time from the shapes of a transformer's layers, or from a known time per sample."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from collectives.training.parallelism import FRAMEWORKS, RECOMPUTED
from planner.columns import Columns
from planner.gpus import GENERATIONS, PRECISIONS
from planner.hosts import Array

Parameters = Mapping[str, Any]  # each is a float, or an array with one value per training run
TILE_ROWS, TILE_COLUMNS = 128, 256
MEMORY_SHARE = 0.8  # share of the data sheet's memory bandwidth that is reached
SCORE_BYTES = 26  # memory traffic of the loss per logit, forward and backward
BACK_BYTES = 1.7  # memory traffic of backward relative to forward
SHARP = 6.0  # exponent of the smooth maximum of the device's and the host's time
SELECTIVE, FULL, FLOAT32 = RECOMPUTED.index("selective"), RECOMPUTED.index("full"), [*PRECISIONS].index("float32")
NVIDIA = [FRAMEWORKS.index(name) for name in ("megatron-bridge", "nemo")]


def join_times(a: Array, b: Array) -> Array:
    """Return the seconds of two parallel activities that take ``a`` and ``b`` seconds: a smooth maximum."""
    return np.asarray((a**SHARP + b**SHARP) ** (1 / SHARP))


def expert_share(c: Columns) -> Array:
    """Return the share of layers that have experts."""
    return np.where(c.experts > 0, 1 - c.dense_layers / c.layers, 0.0)


def local_tokens(c: Columns) -> Array:
    """Return the number of tokens of a microbatch on one device."""
    return np.asarray(c.micro_batch * c.seq / c.cp)


class Counts(NamedTuple):
    """The parameter counts of a layer without its experts, of the experts of a layer, and of the token embedding."""

    layer: Array
    experts: Array
    words: Array


def count_parameters(c: Columns, *, trained: bool = False) -> Counts:
    """Return the numbers of parameters before sharding. All layers of a profile count as one layer.

    If ``trained`` is True, count only trained parameters. LoRA trains only its adapters.
    """
    qkv, queries, share = (c.heads + 2 * c.kv_heads) * c.head_dim, c.heads * c.head_dim, expert_share(c)
    mlp = (1 - share) * c.mlp_matrices * c.hidden * c.ffn + share * 3 * c.hidden * c.shared_ffn
    counts = Counts(
        np.where(c.is_shaped, c.hidden * (qkv + queries) + mlp + 2 * c.hidden, c.parameters),
        share * c.experts * 3 * c.hidden * c.expert_ffn, np.where(c.is_shaped, c.vocab * c.hidden, 0.0),
    )  # fmt: skip
    if not trained or not c.lora.any():
        return counts
    mlp = (1 - share) * c.mlp_matrices * (c.hidden + c.ffn) + share * 3 * (c.hidden + c.shared_ffn)
    adapters = c.lora * (2 * c.hidden + qkv + queries + mlp)
    of_experts = c.lora * share * c.experts * 3 * (c.hidden + c.expert_ffn)
    adapted = (adapters, of_experts, np.zeros(len(c)))
    return Counts(*(np.where(c.lora > 0, a, b) for a, b in zip(adapted, counts, strict=True)))


class Held(NamedTuple):
    """Numbers of parameters that one device stores outside and inside experts, before sharding over the data axis."""

    dense: Array
    experts: Array

    @property
    def all(self) -> Array:
        return self.dense + self.experts

    def divided(self, c: Columns, by: Array) -> Array:
        """Return the number of parameters per device after sharding over ``by`` devices.

        Experts are sharded only over devices that have the same experts.
        """
        return np.asarray(self.dense / by + self.experts / np.maximum(1.0, by / c.ep))


def count_ends(c: Columns) -> Array:
    """Return the number of embedding-sized matrices on a device: 2 for embedding and untied LM head, otherwise 1."""
    return np.where(c.pp > 1, 1.0, np.where(c.tied > 0, 1.0, 2.0))


def count_held(c: Columns, layers: Array | None = None, *, trained: bool = False) -> Held:
    """Return the number of parameters on a device with ``layers`` layers, or of one layer if ``layers`` is None.

    With ``layers``, the result includes the token embedding or the LM head. Without a pipeline, it includes both.
    """
    counts = count_parameters(c, trained=trained)
    if layers is None:
        return Held(counts.layer / c.tp, counts.experts / c.ep)
    return Held((layers * counts.layer + count_ends(c) * counts.words) / c.tp, layers * counts.experts / c.ep)


def count_whole(c: Columns) -> Array:
    """Return the number of parameters of a model outside its experts, including the token embedding and the LM head."""
    counts = count_parameters(c)
    words = np.where(c.tied > 0, 1.0, 2.0) * counts.words
    return np.where(c.is_shaped, c.layers * counts.layer + words, c.parameters)


class Rates:
    """The FLOP/s and the memory bandwidth in bytes/s that the devices of each training run reach."""

    def __init__(self, c: Columns, p: Parameters) -> None:
        self.c, self.p = c, p
        limited = np.where(c.is_limited, p["power_500w"], 1.0) * np.where(c.is_unseen_gpu, p["unseen_gpu"], 1.0)
        shares = np.choose(c.generation, [p[f"gemm_{name}"] for name in GENERATIONS]) * limited
        low = np.choose(c.precision, [p.get(f"precision_{name}", 1.0) for name in PRECISIONS])  # factor of the rate
        self.rate_16 = shares * np.minimum(c.matrix_16, c.peak * 2)
        self.rate, self.memory = shares * low * c.peak, MEMORY_SHARE * c.memory_rate
        flash = np.choose(c.generation, [p[f"flash_{name}"] for name in GENERATIONS]) * limited
        kernel = np.where(np.isin(c.framework, NVIDIA), p["flash_cudnn"], 1.0)
        triton = (c.framework == FRAMEWORKS.index("llm-foundry")) & (c.generation == GENERATIONS.index("ampere"))
        self.flash = flash * kernel * np.where(triton, p["flash_triton"], 1.0) * np.minimum(c.matrix_16, c.peak)

    def product(self, rows: Array, columns: Array, inner: Array, *, sixteen: bool = False) -> Array:
        """Return a matrix product's seconds, or 0 if it is empty. ``sixteen`` limits the rate to that of 16 bits."""
        rate = np.minimum(self.rate_16, self.rate) if sixteen else self.rate
        with np.errstate(divide="ignore", invalid="ignore"):
            tiles = np.ceil(rows / TILE_ROWS) * np.ceil(columns / TILE_COLUMNS)
            waves = tiles / self.c.multiprocessors
            share = (waves / np.maximum(1.0, np.ceil(waves))) ** self.p["wave"]
            share = share * rows / (TILE_ROWS * np.ceil(rows / TILE_ROWS)) * inner / (inner + self.p["inner"])
            share = share * np.where(self.c.precision == FLOAT32, 1.0, self.odd(columns) * self.odd(inner))
            compute = 2 * rows * columns * inner / (rate * share)
            moved = self.c.item_bytes * (rows * columns + rows * inner + columns * inner) / self.memory
            return np.where(rows * columns * inner > 0, np.hypot(compute, moved), 0.0)

    def odd(self, n: Array) -> Array:
        """Return the share of the rate reached with a dimension of size ``n``. It is 1 for multiples of 64."""
        divisor = np.gcd(np.maximum(1, np.floor(n)).astype(np.int64), 64)
        return np.asarray((divisor / 64) ** self.p["align"] * np.where(divisor < 8, 0.5, 1.0))


class UnitSeconds(NamedTuple):
    """Seconds per microbatch: forward and backward (with recomputation) of each FSDP unit, and the LM head."""

    forward: Array  # training runs x units
    backward: Array
    head: Array


def unit_seconds(c: Columns, p: Parameters, rates: Rates) -> UnitSeconds:
    """Return each unit's compute time in seconds per microbatch. A profile's known time is divided among its units."""
    layer, is_known = _layer(c, p, rates), c.is_shaped & (c.alone > 0)
    if is_known.any():
        layer = tuple(np.where(is_known, *pair) for pair in zip(_known_layer(c), layer, strict=True))
    sample = (c.alone * c.micro_batch)[:, None]
    forward, backward = sample * c.unit_forward, sample * c.unit_backward
    backward = backward + np.where(c.recompute == FULL, 1.0, 0.0)[:, None] * forward
    for units, of_layer in zip((forward, backward), layer, strict=False):
        units[:, 0] = np.where(c.is_shaped, of_layer, units[:, 0])
    return UnitSeconds(forward, backward, np.where(c.is_shaped, layer[2], 0.0))


def _known_layer(c: Columns) -> tuple[Array, ...]:
    """Return the forward and backward seconds of a layer and the seconds of the LM head, from a known time per sample.

    The time is divided in proportion to FLOPs. Without recomputation, backward takes twice as long as forward.
    """
    queries, mlp = c.heads * c.head_dim, c.mlp_matrices * c.hidden * c.ffn
    attention = c.hidden * (2 * queries + 2 * c.kv_heads * c.head_dim) + c.seq * queries
    multiplications = c.layers * (attention + mlp) + c.vocab * c.hidden
    second = c.alone * c.micro_batch / c.cp / multiplications  # seconds per multiplication and token
    forward = (attention + np.where(c.experts > 0, c.top_k, 1.0) * mlp) / c.tp * second / 3
    again = np.where(c.recompute == FULL, forward, 0.0)
    return forward, 2 * forward + again, c.vocab * c.hidden / c.tp * second


def _layer(c: Columns, p: Parameters, rates: Rates) -> tuple[Array, ...]:
    """Return the forward and backward seconds of a layer, and the seconds of the LM head."""
    products, attention, moved = _products(c, rates), _attention(c, p, rates), _memory_seconds(c, p, rates)
    unpacked = count_held(c).all * p["unpack_bytes"] / rates.memory  # quantized weights
    unpacked = np.where((c.lora > 0) & (c.frozen_bytes < c.item_bytes), unpacked, 0.0)
    forward = products[0] + attention[0] + moved + unpacked
    backward = products[1] + attention[1] + BACK_BYTES * moved + unpacked
    again = np.select(
        [c.recompute == FULL, (c.recompute == SELECTIVE) & c.is_unfused, c.recompute == SELECTIVE],
        [forward, attention[0], p["selective"] * (products[0] + moved)], 0.0,
    )  # fmt: skip
    host = p["host_ms"] * 1e-3 * (1 + p["host_tensor"] * (c.tp > 1)) * np.where(c.recompute == FULL, 4 / 3, 1.0)
    host = host * np.where((c.compiled > 0) | np.isin(c.framework, NVIDIA), p["graph"], 1.0)
    host = host + expert_share(c) * p["host_expert_ms"] * 1e-3
    device = np.maximum(forward + backward + again, 1e-12)
    scaled = join_times(device, host) / device
    tokens, words = local_tokens(c), c.vocab / c.tp
    sizes = [(tokens, words, c.hidden), (tokens, c.hidden, words), (words, c.hidden, tokens)]
    head = p["head"] * sum(rates.product(*size, sixteen=True) for size in sizes)
    return forward * scaled, (backward + again) * scaled, head + SCORE_BYTES * tokens * words / rates.memory


def _products(c: Columns, rates: Rates) -> tuple[Array, Array]:
    t, tokens, share = c.tp, local_tokens(c), expert_share(c)
    qkv, queries = (c.heads + 2 * c.kv_heads) * c.head_dim, c.heads * c.head_dim

    def pair(rows: Array, into: Array, out_of: Array) -> tuple[Array, Array]:
        sizes = [(rows, into, c.hidden), (rows, c.hidden, out_of)]
        ahead = np.asarray(sum(rates.product(*size) for size in sizes))
        back = np.asarray(sum(rates.product(a, d, b) for a, b, d in sizes))
        of_weights = sum(rates.product(b, d, a) for a, b, d in sizes)
        if not c.lora.any():
            return ahead, back + of_weights
        beside = sum(rates.product(a, c.lora, d) + rates.product(a, b, c.lora) for a, b, d in sizes)
        return ahead + beside, back + np.where(c.lora > 0, 2 * beside, of_weights)

    parts = [pair(tokens, qkv / t, queries / t), pair(tokens, (c.mlp_matrices - 1) * c.ffn / t, c.ffn / t)]
    if not c.experts.any():
        return parts[0][0] + parts[1][0], parts[0][1] + parts[1][1]
    routed = tokens / t * c.top_k * c.ep / np.maximum(c.experts, 1)
    parts += [pair(routed, 2 * c.expert_ffn, c.expert_ffn), pair(tokens, 2 * c.shared_ffn / t, c.shared_ffn / t)]
    forward, back = (
        a + (1 - share) * d + share * (c.experts / c.ep * e + s) for a, d, e, s in zip(*parts, strict=True)
    )
    return forward, back


def _attention(c: Columns, p: Parameters, rates: Rates) -> tuple[Array, Array]:
    """Return the forward and backward seconds of attention. If the model has a window, half of the layers use it."""
    tokens = local_tokens(c)
    reach = np.where(c.window > 0, 0.5 * (c.seq + np.minimum(c.seq, 2 * c.window)), c.seq)
    flops = 2 * tokens * reach * c.heads * c.head_dim / c.tp
    flash = flops / rates.flash
    if not c.is_unfused.any():
        return flash, 2.5 * flash
    unfused = 2 * flops / (c.matrix_16 * p["unfused"] * rates.odd(c.head_dim) ** 2)
    unfused = unfused + tokens * c.seq * c.heads / c.tp * p["score_bytes"] / rates.memory
    return np.where(c.is_unfused, unfused, flash), np.where(c.is_unfused, 2 * unfused, 2.5 * flash)


def _memory_seconds(c: Columns, p: Parameters, rates: Rates) -> Array:
    share = expert_share(c)
    ffn = (1 - share) * c.mlp_matrices * c.ffn + share * 3 * (c.shared_ffn + c.top_k * c.expert_ffn)
    elements = c.hidden / np.where(c.sequence_parallel > 0, c.tp, 1.0) * p["bytes_hidden"]
    elements = elements + (ffn + (c.heads + 2 * c.kv_heads) * c.head_dim) / c.tp * p["bytes_ffn"]
    elements = elements + share * c.top_k * c.hidden / c.tp * p["bytes_expert"]
    return np.asarray(local_tokens(c) * elements * np.where(c.compiled > 0, p["fused"], 1.0) / rates.memory)
