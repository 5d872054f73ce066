"""The seconds that a device computes for a layer and micro batch: matrices, attention, memory, and its host."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from collectives.training.parallelism import FRAMEWORKS
from planner.gpus import GENERATIONS
from planner.mesh_search.columns import (
    PRECISION_NAMES,
    RECOMPUTED,
    Array,
    Meshes,
    count_parameters,
    expert_share,
    local_tokens,
)

TILE_ROWS, TILE_COLUMNS = 128, 256
MEMORY_SHARE = 0.8  # of the data sheet's memory bandwidth
SCORE_BYTES = 26  # of memory, that the loss moves for a score, forward and back
BACK_BYTES = 1.7  # what backward moves of forward's bytes
SHARP = 6.0  # the power by which a device's time and the host's join
SELECTIVE, FULL = RECOMPUTED.index("selective"), RECOMPUTED.index("full")
FLOAT32 = PRECISION_NAMES.index("float32")
AMPERE = GENERATIONS.index("ampere")
Parameters = Mapping[str, float]  # or, of each, an array with one for each training


def join_times(a: Array, b: Array) -> Array:
    """Return what two take beside each other, of which the longer one counts, smooth."""
    result: Array = (a**SHARP + b**SHARP) ** (1 / SHARP)
    return result


def is_nvidia(m: Meshes) -> Array:
    """Return which trainings run a framework of NVIDIA's, with its kernels, graphs and overlap."""
    return np.isin(m.framework, [FRAMEWORKS.index(name) for name in ("megatron-bridge", "nemo")])


class Rates:
    """What the devices of trainings reach."""

    def __init__(self, meshes: Meshes, p: Parameters) -> None:
        self.meshes, self.p = meshes, p
        limited = np.where(meshes.is_limited, p["power_500w"], 1.0)
        shares = np.choose(meshes.generation, [p[f"gemm_{name}"] for name in GENERATIONS]) * limited
        low = np.choose(meshes.precision, [p.get(f"precision_{name}", 1.0) for name in PRECISION_NAMES])
        self.rate_16 = shares * np.minimum(meshes.matrix_16, meshes.matrix * 2)
        self.rate = shares * low * meshes.matrix
        self.memory = MEMORY_SHARE * meshes.memory_rate
        flash = np.choose(meshes.generation, [p[f"flash_{name}"] for name in GENERATIONS]) * limited
        kernel = np.where(is_nvidia(meshes), p["flash_cudnn"], 1.0)
        triton = (meshes.framework == FRAMEWORKS.index("llm-foundry")) & (meshes.generation == AMPERE)
        kernel = kernel * np.where(triton, p["flash_triton"], 1.0)
        self.flash = flash * kernel * np.minimum(meshes.matrix_16, meshes.matrix)

    def product(self, rows: Array, columns: Array, inner: Array, *, sixteen: bool = False) -> Array:
        """Return the seconds of a product of matrices, zero where it is empty."""
        rate = np.minimum(self.rate_16, self.rate) if sixteen else self.rate
        with np.errstate(divide="ignore", invalid="ignore"):
            share = self._share(rows, columns, inner)
            compute = 2 * rows * columns * inner / (rate * share)
            moved = self.meshes.item_bytes * (rows * columns + rows * inner + columns * inner) / self.memory
            return np.where(rows * columns * inner > 0, np.hypot(compute, moved), 0.0)

    def _share(self, rows: Array, columns: Array, inner: Array) -> Array:
        p = self.p
        tiles = np.ceil(rows / TILE_ROWS) * np.ceil(columns / TILE_COLUMNS)
        waves = tiles / self.meshes.multiprocessors
        wave = (waves / np.maximum(1.0, np.ceil(waves))) ** p["wave"]
        share = wave * rows / (TILE_ROWS * np.ceil(rows / TILE_ROWS)) * inner / (inner + p["inner"])
        odd = self.odd(columns) * self.odd(inner)
        result: Array = share * np.where(self.meshes.precision == FLOAT32, 1.0, odd)  # those are of tensor cores
        return result

    def odd(self, n: Array) -> Array:
        """Return the share of the rate that a dimension leaves which is no multiple of 64."""
        divisor = np.gcd(np.maximum(1, np.floor(n)).astype(np.int64), 64)
        return (divisor / 64) ** self.p["align"] * np.where(divisor < 8, 0.5, 1.0)


@dataclass(frozen=True)
class LayerSeconds:
    """Seconds of one layer and micro batch: forward and backward, with what is computed again; and the head's."""

    forward: Array
    backward: Array
    head: Array


Both = tuple[Array, Array]  # seconds forward, and back


def layer_seconds(m: Meshes, p: Parameters, rates: Rates) -> LayerSeconds:
    """Return what a device computes for one layer and micro batch, no faster than its host launches it."""
    products, attention = _products(m, rates), _attention(m, p, rates)
    moved, unpacked = _moved(m, p, rates), _unpacked(m, p, rates)
    forward = products[0] + attention[0] + moved + unpacked
    backward = products[1] + attention[1] + BACK_BYTES * moved + unpacked
    again = np.select(
        [m.recompute == FULL, (m.recompute == SELECTIVE) & m.is_unfused, m.recompute == SELECTIVE],
        [forward, attention[0], p["selective"] * (products[0] + moved)],
        0.0,
    )
    host = p["host_ms"] * 1e-3 * (1 + p["host_tensor"] * (m.tp > 1)) * np.where(m.recompute == FULL, 4 / 3, 1.0)
    host = host * np.where((m.compiled > 0) | is_nvidia(m), p["graph"], 1.0)
    host = host + expert_share(m) * p["host_expert_ms"] * 1e-3
    device = forward + backward + again
    scaled = join_times(device, host) / device
    return LayerSeconds(forward * scaled, (backward + again) * scaled, _head(m, p, rates))


def _products(m: Meshes, rates: Rates) -> Both:
    t, tokens, share = m.tp, local_tokens(m), expert_share(m)
    qkv, queries = (m.heads + 2 * m.kv_heads) * m.head_dim, m.heads * m.head_dim

    def pair(rows: Array, into: Array, out_of: Array) -> Both:
        """Return the seconds of a product from the hidden width, and of the one back to it."""
        sizes = [(rows, into, m.hidden), (rows, m.hidden, out_of)]
        ahead = sum(rates.product(*size) for size in sizes)
        back = sum(rates.product(a, c, b) for a, b, c in sizes)
        of_weights = sum(rates.product(b, c, a) for a, b, c in sizes)
        if not m.lora.any():
            return np.asarray(ahead), np.asarray(back + of_weights)
        beside = sum(rates.product(a, m.lora, c) + rates.product(a, b, m.lora) for a, b, c in sizes)
        return np.asarray(ahead + beside), np.asarray(back + np.where(m.lora > 0, 2 * beside, of_weights))

    attention = pair(tokens, qkv / t, queries / t)
    dense = pair(tokens, (m.mlp_matrices - 1) * m.ffn / t, m.ffn / t)
    routed = tokens / t * m.top_k * m.ep / np.maximum(m.experts, 1)  # to each expert
    experts = pair(routed, 2 * m.expert_ffn, m.expert_ffn)
    shared = pair(tokens, 2 * m.shared_ffn / t, m.shared_ffn / t)
    forward, back = (
        a + (1 - share) * d + share * (m.experts / m.ep * e + s)
        for a, d, e, s in zip(attention, dense, experts, shared, strict=True)
    )
    return forward, back


def _attention(m: Meshes, p: Parameters, rates: Rates) -> Both:
    """Return attention's seconds; every second layer may look at a window only."""
    tokens = local_tokens(m)
    reach = np.where(m.window > 0, 0.5 * (m.seq + np.minimum(m.seq, 2 * m.window)), m.seq)
    flops = 2 * tokens * reach * m.heads * m.head_dim / m.tp
    flash = flops / rates.flash
    scores = tokens * m.seq * m.heads / m.tp
    unfused = 2 * flops / (m.matrix_16 * p["unfused"] * rates.odd(m.head_dim) ** 2)
    unfused = unfused + scores * p["score_bytes"] / rates.memory
    return np.where(m.is_unfused, unfused, flash), np.where(m.is_unfused, 2 * unfused, 2.5 * flash)


def _moved(m: Meshes, p: Parameters, rates: Rates) -> Array:
    """Return the seconds of forward's operations that memory limits."""
    share = expert_share(m)
    ffn = (1 - share) * m.mlp_matrices * m.ffn + share * 3 * (m.shared_ffn + m.top_k * m.expert_ffn)
    elements = m.hidden / np.where(m.sequence_parallel > 0, m.tp, 1.0) * p["bytes_hidden"]
    elements = elements + (ffn + (m.heads + 2 * m.kv_heads) * m.head_dim) / m.tp * p["bytes_ffn"]
    elements = elements + share * m.top_k * m.hidden / m.tp * p["bytes_expert"]
    result: Array = local_tokens(m) * elements * np.where(m.compiled > 0, p["fused"], 1.0) / rates.memory
    return result


def _unpacked(m: Meshes, p: Parameters, rates: Rates) -> Array:
    """Return the seconds of unpacking frozen weights of a layer that are kept in fewer than 16 bits."""
    whole = count_parameters(m)
    weights = whole.layer / m.tp + whole.experts / m.ep
    is_packed = (m.lora > 0) & (m.frozen_bytes < m.item_bytes)
    return np.where(is_packed, weights * p["unpack_bytes"] / rates.memory, 0.0)


def _head(m: Meshes, p: Parameters, rates: Rates) -> Array:
    """Return the seconds of the head and the loss, forward and back."""
    tokens, words = local_tokens(m), m.vocab / m.tp
    sizes = [(tokens, words, m.hidden), (tokens, m.hidden, words), (words, m.hidden, tokens)]
    products = sum(rates.product(*size, sixteen=True) for size in sizes)
    return np.asarray(p["head"] * products + SCORE_BYTES * tokens * words / rates.memory)
