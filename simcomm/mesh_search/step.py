"""The seconds of a training step on a mesh, by parts."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from simcomm.mesh_search.columns import FRAMEWORKS, PRECISION_NAMES, RECOMPUTED, Array, Meshes
from simcomm.mesh_search.devices import GENERATIONS

TILE_ROWS, TILE_COLUMNS = 128, 256
MEMORY_SHARE = 0.8  # of the data sheet's memory bandwidth
BACK_BYTES = 1.7  # what backward moves of forward's bytes
SHARP = 6.0  # the power by which a device's time and the host's join
SELECTIVE, FULL = RECOMPUTED.index("selective"), RECOMPUTED.index("full")
FLOAT32 = PRECISION_NAMES.index("float32")
AMPERE = GENERATIONS.index("ampere")
NANOTRON = FRAMEWORKS.index("nanotron")
Parameters = Mapping[str, float]


@dataclass(frozen=True)
class StepParts:
    """Seconds of a step, an array a part; ``total`` is more than their sum by stragglers and the framework's factor."""

    compute: Array
    tensor: Array
    context: Array
    expert: Array
    bubble: Array
    p2p: Array
    data: Array
    optimizer: Array
    total: Array

    def take(self, number: int) -> dict[str, float]:
        """Return the parts of one training."""
        return {field.name: float(getattr(self, field.name)[number]) for field in fields(self)}


def _joined(a: Array, b: Array) -> Array:
    return (a**SHARP + b**SHARP) ** (1 / SHARP)


def _positive(x: Array, scale: Array) -> Array:
    """Return max(0, x), smooth within a tenth of ``scale``."""
    return 0.5 * (x + np.sqrt(x * x + (0.1 * scale) ** 2))


def is_nvidia(m: Meshes) -> Array:
    """Return which trainings run a framework of NVIDIA's, with its kernels, graphs and overlap."""
    return np.isin(m.framework, [FRAMEWORKS.index(name) for name in ("megatron-bridge", "nemo")])


class Rates:
    """What the devices of trainings reach."""

    def __init__(self, meshes: Meshes, p: Parameters) -> None:
        self.meshes, self.p = meshes, p
        limited = np.where(meshes.is_limited, p["power_500w"], 1.0)
        shares = np.array([p[f"gemm_{name}"] for name in GENERATIONS])[meshes.generation] * limited
        low = np.array([p.get(f"precision_{name}", 1.0) for name in PRECISION_NAMES])[meshes.precision]
        self.rate_16 = shares * np.minimum(meshes.matrix_16, meshes.matrix * 2)
        self.rate = shares * low * meshes.matrix
        self.memory = MEMORY_SHARE * meshes.memory_rate
        flash = np.array([p[f"flash_{name}"] for name in GENERATIONS])[meshes.generation] * limited
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
        odd = self._odd(columns) * self._odd(inner)
        result: Array = share * np.where(self.meshes.precision == FLOAT32, 1.0, odd)  # those are of tensor cores
        return result

    def _odd(self, n: Array) -> Array:
        divisor = np.gcd(np.maximum(1, np.floor(n)).astype(np.int64), 64)
        return (divisor / 64) ** self.p["align"] * np.where(divisor < 8, 0.5, 1.0)


@dataclass(frozen=True)
class Layer:
    """Seconds of one layer and micro batch: forward and backward, with what is computed again; and the head's."""

    forward: Array
    backward: Array
    products: Array  # of forward
    head: Array


def layer_seconds(meshes: Meshes, p: Parameters, rates: Rates) -> Layer:
    """Return what a device computes for one layer and micro batch."""
    m = meshes
    t, tokens = m.tp, m.micro_batch * m.seq / m.cp
    qkv, queries = (m.heads + 2 * m.kv_heads) * m.head_dim, m.heads * m.head_dim
    is_expert = m.experts > 0
    share = np.where(is_expert, 1 - m.dense_layers / m.layers, 0.0)  # of layers that are experts'

    def both(rows: Array, columns: Array, inner: Array) -> tuple[Array, Array]:
        ahead = rates.product(rows, columns, inner)
        return ahead, rates.product(rows, inner, columns) + rates.product(columns, inner, rows)

    def total(*pairs: tuple[Array, Array]) -> tuple[Array, Array]:
        return sum(a for a, _ in pairs), sum(b for _, b in pairs)  # type: ignore[return-value]

    ones = np.ones_like(tokens)
    attention_products = total(both(tokens, qkv / t, m.hidden), both(tokens, m.hidden, queries / t))
    dense = total(
        both(tokens, (m.mlp_matrices - 1) * m.ffn / t, m.hidden), both(tokens, m.hidden, m.ffn / t)
    )  # fmt: skip
    per_expert = tokens / t * m.top_k * m.ep / np.maximum(m.experts, 1)
    local = m.experts / m.ep
    experts = total(both(per_expert, 2 * m.expert_ffn, m.hidden), both(per_expert, m.hidden, m.expert_ffn))
    shared = total(
        both(tokens, 2 * m.shared_ffn / t, m.hidden), both(tokens, m.hidden, m.shared_ffn / t)
    )  # fmt: skip
    mlp = tuple(
        (1 - share) * d + share * (local * e + s) for d, e, s in zip(dense, experts, shared, strict=True)
    )  # fmt: skip
    products_f, products_b = attention_products[0] + mlp[0], attention_products[1] + mlp[1]

    # attention; every second layer may look at a window only
    reach = np.where(m.window > 0, 0.5 * (m.seq + np.minimum(m.seq, 2 * m.window)), m.seq)
    flops = 2 * tokens * reach * m.heads * m.head_dim / t
    flash = flops / rates.flash
    scores = tokens * m.seq * m.heads / t
    odd = rates._odd(m.head_dim) ** 2
    unfused = 2 * flops / (m.matrix_16 * p["unfused"] * odd) + scores * p["score_bytes"] / rates.memory
    attention_f = np.where(m.is_unfused, unfused, flash)
    attention_b = np.where(m.is_unfused, 2 * unfused, 2.5 * flash)

    ffn = (1 - share) * m.mlp_matrices * m.ffn + share * 3 * (m.shared_ffn + m.top_k * m.expert_ffn)
    elements = m.hidden / np.where(m.sequence_parallel > 0, t, ones) * p["bytes_hidden"]
    elements = elements + (ffn + queries + 2 * m.kv_heads * m.head_dim) / t * p["bytes_ffn"]
    elements = elements + share * m.top_k * m.hidden / t * p["bytes_expert"]
    fused = np.where(m.compiled > 0, p["fused"], 1.0)
    bytes_f = tokens * elements * fused / rates.memory
    bytes_b = BACK_BYTES * bytes_f

    forward = products_f + attention_f + bytes_f
    backward = products_b + attention_b + bytes_b
    again = np.select(
        [m.recompute == FULL, (m.recompute == SELECTIVE) & m.is_unfused, m.recompute == SELECTIVE],
        [forward, attention_f, p["selective"] * (products_f + bytes_f)],
        0.0,
    )
    host = p["host_ms"] * 1e-3 * (1 + p["host_tensor"] * (t > 1)) * np.where(m.recompute == FULL, 4 / 3, 1.0)
    host = host * np.where((m.compiled > 0) | is_nvidia(m), p["graph"], 1.0) + share * p["host_expert_ms"] * 1e-3
    device = forward + backward + again
    scaled = _joined(device, host) / device
    head = p["head"] * (
        rates.product(tokens, m.vocab / t, m.hidden, sixteen=True)
        + rates.product(tokens, m.hidden, m.vocab / t, sixteen=True)
        + rates.product(m.vocab / t, m.hidden, tokens, sixteen=True)
    )
    head = head + 26 * tokens * m.vocab / t / rates.memory
    return Layer(forward * scaled, (backward + again) * scaled, products_f, head)


@dataclass(frozen=True)
class Links:
    """Seconds a byte and seconds of latency, within nodes and between them."""

    peer: Array
    net: Array  # a byte a GPU
    nodes: Array
    hop: Array
    data_hop: Array


def find_links(meshes: Meshes, p: Parameters) -> Links:
    """Return what joins the devices."""
    nodes = np.maximum(1.0, meshes.gpus / meshes.node_gpus)
    lost = np.maximum(0.2, 1 - p["scale"] * np.log2(nodes))
    efa = meshes.framework == NANOTRON
    return Links(
        peer=1 / (p["nvlink"] * meshes.peer_rate),
        net=1 / (p["net"] * lost * meshes.nic_rate),
        nodes=nodes,
        hop=np.where(efa, p["hop_efa_us"], p["hop_us"]) * 1e-6,
        data_hop=np.where(efa, p["data_hop_efa_us"], p["data_hop_us"]) * 1e-6,
    )


def step_seconds(meshes: Meshes, p: Parameters) -> StepParts:
    """Return the seconds of a step of each training, by parts."""
    m = meshes
    rates, links = Rates(m, p), find_links(m, p)
    layer = layer_seconds(m, p, rates)
    t, tokens = m.tp, m.micro_batch * m.seq / m.cp

    # tensor groups: two gathers and two scatters forward, as many back; each again with full recomputation
    is_across = t > m.node_gpus
    byte = np.where(is_across, links.net / m.node_gpus, links.peer)
    hop = np.where(is_across, links.hop, np.minimum(links.hop, p["hop_us"] * 1e-6))
    one = 2 * tokens * m.hidden * (t - 1) / t * byte + p["collective_us"] * 1e-6 + hop * (t - 1)
    hidden = np.where((m.async_tp > 0) | is_nvidia(m), p["tensor_async"], p["tensor_hidden"])
    calls = np.where(m.recompute == FULL, 12, 8)
    tensor = np.where(t > 1, calls * one * (1 - np.minimum(hidden, 0.98)), 0.0)
    # context: keys and values go round, forward once, back twice
    is_far = t * m.cp > m.node_gpus
    pass_s = 4 * tokens * m.kv_heads * m.head_dim / t * np.where(is_far, links.net, links.peer) + links.hop
    context = np.where(m.cp > 1, 3 * (m.cp - 1) * pass_s * (1 - np.minimum(p["context_hidden"], 0.98)), 0.0)

    # experts: two exchanges forward, two back
    share = np.where(m.experts > 0, 1 - m.dense_layers / m.layers, 0.0)
    far = np.where(m.ep * 1.0 > m.node_gpus, links.net, links.peer)
    sent = 2 * tokens / t * m.top_k * m.hidden * (m.ep - 1) / m.ep * far
    expert = share * 4 * (sent + p["collective_us"] * 1e-6) * (1 - np.minimum(p["expert_hidden"], 0.98))
    expert = np.where(m.ep > 1, expert, 0.0)

    compute_layer = layer.forward + layer.backward
    own = compute_layer + tensor + context + expert
    # on one cluster a layer of a tensor group takes no less than this where a pipeline crosses nodes
    is_slowed = (m.framework == NANOTRON) & (m.pp > 1) & (t > 1) & (m.gpus > m.node_gpus)
    floor = np.where(is_slowed, p["pipeline_tensor_ms"] * 1e-3 * t, 0.0)
    tensor = tensor + _joined(own, floor) - own
    own = _joined(own, floor)
    most = np.maximum(m.most_layers * own, m.last_layers * own + layer.head)
    whole = m.layers * own + layer.head
    far = m.tp * m.cp * m.dp * m.pp > m.node_gpus
    p2p = 2 * tokens * m.hidden / np.where(m.sequence_parallel > 0, t, 1) * np.where(far, links.net, links.peer)
    p2p = 2 * (p2p + links.hop)
    shown = np.where(m.pp > 1, 2 * m.vp * p2p * p["p2p_exposed"], 0.0)
    stage = most + shown
    work = m.micro_batches * stage + np.where(m.pp > 1, (whole - most + (m.pp - 1) * p2p) / m.vp, 0.0)
    work = np.where(m.pp > 1, work, m.micro_batches * whole)

    data, optimizer = _data_seconds(m, p, links, layer, rates)
    plain = work + data + optimizer
    factor = np.array([1.0, *(p[f"framework_{name}"] for name in FRAMEWORKS[1:])])[m.framework]
    total = plain * (1 + p["jitter"] * np.sqrt(2 * np.log(np.maximum(m.gpus, 2)))) * factor
    compute = m.micro_batches * np.where(m.pp > 1, whole / m.pp, whole)
    inside = m.micro_batches * m.layers / m.pp
    return StepParts(
        compute=m.micro_batches * (m.layers * compute_layer + layer.head) / m.pp,
        tensor=inside * tensor,
        context=inside * context,
        expert=inside * expert,
        bubble=work - compute - m.micro_batches * shown,
        p2p=m.micro_batches * shown,
        data=data,
        optimizer=optimizer,
        total=total,
    )


def count_parameters(m: Meshes) -> tuple[Array, Array, Array]:
    """Return parameters of a layer but its experts, of a layer's experts, and of the words (once)."""
    qkv, queries = (m.heads + 2 * m.kv_heads) * m.head_dim, m.heads * m.head_dim
    share = np.where(m.experts > 0, 1 - m.dense_layers / m.layers, 0.0)
    mlp = (1 - share) * m.mlp_matrices * m.hidden * m.ffn + share * 3 * m.hidden * m.shared_ffn
    layer = m.hidden * (qkv + queries) + mlp + 2 * m.hidden
    return layer, share * m.experts * 3 * m.hidden * m.expert_ffn, m.vocab * m.hidden


def _data_seconds(m: Meshes, p: Parameters, links: Links, layer: Layer, rates: Rates) -> tuple[Array, Array]:
    """Return what gradients' and parameters' exchange shows, and the optimizer."""
    dense, experts, words = count_parameters(m)
    held = (m.most_layers * dense + words * np.where(m.pp > 1, 1, np.where(m.tied > 0, 1, 2))) / m.tp
    held_experts = m.most_layers * experts / m.ep
    group = m.dp * m.cp
    near = np.minimum(group, np.maximum(1, m.node_gpus / m.tp))  # of a group's ranks in a node
    is_far = group * m.tp > m.node_gpus  # pipelines put stages furthest apart
    rate = np.where(is_far, links.net / near, links.peer)
    spread = (group - 1) / group
    count = held + held_experts
    nodes = np.maximum(1.0, group * m.tp / m.node_gpus)
    buckets = np.maximum(1.0, 4 * count / (p["bucket_mb"] * 1e6))
    log_nodes, root_nodes = np.log2(nodes), np.sqrt(nodes - 1)
    step = p["step_ms"] * 1e-3
    backward = layer.backward * m.most_layers

    # ddp: one all-reduce; zero1: a scatter, then a gather after the optimizer
    reduce_ddp = 2 * 4 * count * spread * rate + buckets * log_nodes * links.data_hop
    scatter = 4 * count * spread * rate + buckets * root_nodes * links.data_hop
    gather = 2 * count * spread * rate + buckets * root_nodes * links.data_hop
    hidden = np.minimum(p["data_hidden"], 1.5) * backward
    ddp = _positive(reduce_ddp - hidden, reduce_ddp)
    zero1 = _positive(scatter - hidden, scatter) + p["gather_shown"] * gather

    # zero3: gathers forward and back and a scatter back, layer by layer; hsdp then averages between its groups
    is_near = m.shard * m.tp <= m.node_gpus
    rate3 = np.where(is_near, links.peer, links.net / np.minimum(m.shard, near))
    nodes3 = np.maximum(1.0, m.shard * m.tp / m.node_gpus)
    spread3 = (m.shard - 1) / m.shard
    size = (dense / m.tp + experts / m.ep) * spread3
    latency = links.data_hop * np.sqrt(nodes3 - 1) + p["collective_us"] * 1e-6
    gather_layer = m.item_bytes * size * rate3 + latency
    scatter_layer = m.reduce_bytes * size * rate3 + latency
    ahead = _positive(gather_layer - p["fsdp_hidden"] * layer.forward, gather_layer)
    back = gather_layer + scatter_layer
    behind = _positive(back - p["fsdp_hidden"] * layer.backward, back)
    rounds = np.where(m.pp > 1, 1.0, m.micro_batches)
    zero3 = rounds * m.most_layers * (ahead + behind) + 8 * words / m.tp * spread3 * rate3
    groups = group / m.shard
    between = 2 * 4 * count / m.shard * (groups - 1) / groups * links.net / near + log_nodes * links.data_hop
    zero3 = zero3 + np.where(groups > 1, _positive(between - hidden, between), 0.0)

    exchanged = np.select([m.zero == 0, m.zero <= 2], [ddp, zero1], zero3)
    divided = np.where(m.zero == 3, m.shard, np.where(m.zero > 0, group, 1))
    optimizer = p["optimizer_bytes"] * count / divided / rates.memory + step
    return np.where(group > 1, exchanged, 0.0), optimizer
