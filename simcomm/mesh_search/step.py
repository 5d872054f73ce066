"""The seconds of a training step on a mesh, by parts."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from simcomm.mesh_search.columns import FRAMEWORKS, PRECISION_NAMES, RECOMPUTED, Array, Meshes
from simcomm.mesh_search.devices import GENERATIONS

TILE_ROWS, TILE_COLUMNS = 128, 256
MEMORY_SHARE = 0.8  # of the data sheet's memory bandwidth
MOST_HIDDEN = 0.98  # of an exchange, behind computing
SCORE_BYTES = 26  # of memory, that the loss moves for a score, forward and back
BACK_BYTES = 1.7  # what backward moves of forward's bytes
SHARP = 6.0  # the power by which a device's time and the host's join
SELECTIVE, FULL = RECOMPUTED.index("selective"), RECOMPUTED.index("full")
FLOAT32 = PRECISION_NAMES.index("float32")
AMPERE = GENERATIONS.index("ampere")
NANOTRON = FRAMEWORKS.index("nanotron")
Parameters = Mapping[str, float]


@dataclass(frozen=True)
class MeshSeconds:
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
    moved = _moved(m, p, rates)
    forward = products[0] + attention[0] + moved
    backward = products[1] + attention[1] + BACK_BYTES * moved
    again = np.select(
        [m.recompute == FULL, (m.recompute == SELECTIVE) & m.is_unfused, m.recompute == SELECTIVE],
        [forward, attention[0], p["selective"] * (products[0] + moved)],
        0.0,
    )
    host = p["host_ms"] * 1e-3 * (1 + p["host_tensor"] * (m.tp > 1)) * np.where(m.recompute == FULL, 4 / 3, 1.0)
    host = host * np.where((m.compiled > 0) | is_nvidia(m), p["graph"], 1.0)
    host = host + expert_share(m) * p["host_expert_ms"] * 1e-3
    device = forward + backward + again
    scaled = _joined(device, host) / device
    return LayerSeconds(forward * scaled, (backward + again) * scaled, _head(m, p, rates))


def expert_share(m: Meshes) -> Array:
    """Return the share of layers that are experts'."""
    return np.where(m.experts > 0, 1 - m.dense_layers / m.layers, 0.0)


def local_tokens(m: Meshes) -> Array:
    """Return the tokens of a micro batch on a device."""
    result: Array = m.micro_batch * m.seq / m.cp
    return result


def _products(m: Meshes, rates: Rates) -> Both:
    t, tokens, share = m.tp, local_tokens(m), expert_share(m)
    qkv, queries = (m.heads + 2 * m.kv_heads) * m.head_dim, m.heads * m.head_dim

    def pair(rows: Array, into: Array, out_of: Array) -> Both:
        """Return the seconds of a product from the hidden width, and of the one back to it."""
        sizes = [(rows, into, m.hidden), (rows, m.hidden, out_of)]
        ahead = sum(rates.product(*size) for size in sizes)
        back = sum(rates.product(a, c, b) + rates.product(b, c, a) for a, b, c in sizes)
        return np.asarray(ahead), np.asarray(back)

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


def _head(m: Meshes, p: Parameters, rates: Rates) -> Array:
    """Return the seconds of the head and the loss, forward and back."""
    tokens, words = local_tokens(m), m.vocab / m.tp
    sizes = [(tokens, words, m.hidden), (tokens, m.hidden, words), (words, m.hidden, tokens)]
    products = sum(rates.product(*size, sixteen=True) for size in sizes)
    return np.asarray(p["head"] * products + SCORE_BYTES * tokens * words / rates.memory)


@dataclass(frozen=True)
class Links:
    """Seconds a byte and seconds of latency, within nodes and between them."""

    peer: Array
    net: Array  # a byte a GPU
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
        hop=np.where(efa, p["hop_efa_us"], p["hop_us"]) * 1e-6,
        data_hop=np.where(efa, p["data_hop_efa_us"], p["data_hop_us"]) * 1e-6,
    )


def step_seconds(m: Meshes, p: Parameters) -> MeshSeconds:
    """Return the seconds of a step of each training, by parts."""
    rates, links = Rates(m, p), find_links(m, p)
    layer = layer_seconds(m, p, rates)
    tensor, context, expert = _tensor(m, p, links), _context(m, p, links), _expert(m, p, links)
    compute_layer = layer.forward + layer.backward
    own = compute_layer + tensor + context + expert
    # on one cluster a layer of a tensor group takes no less than this where a pipeline crosses nodes
    is_slowed = (m.framework == NANOTRON) & (m.pp > 1) & (m.tp > 1) & (m.gpus > m.node_gpus)
    floor = np.where(is_slowed, p["pipeline_tensor_ms"] * 1e-3 * m.tp, 0.0)
    tensor, own = tensor + _joined(own, floor) - own, _joined(own, floor)

    most = np.maximum(m.most_layers * own, m.last_layers * own + layer.head)
    whole = m.layers * own + layer.head
    message = _message(m, links)
    shown = np.where(m.pp > 1, 2 * m.vp * message * p["p2p_exposed"], 0.0)
    ends = (whole - most + (m.pp - 1) * message) / m.vp  # of a pipeline, which fills and drains
    work = np.where(m.pp > 1, m.micro_batches * (most + shown) + ends, m.micro_batches * whole)
    data, optimizer = _data_seconds(m, p, links, layer, rates)
    factor = np.array([1.0, *(p[f"framework_{name}"] for name in FRAMEWORKS[1:])])[m.framework]
    waits = 1 + p["jitter"] * np.sqrt(2 * np.log(np.maximum(m.gpus, 2)))
    inside = m.micro_batches * m.layers / m.pp
    return MeshSeconds(
        compute=m.micro_batches * (m.layers * compute_layer + layer.head) / m.pp,
        tensor=inside * tensor,
        context=inside * context,
        expert=inside * expert,
        bubble=work - m.micro_batches * (whole / m.pp + shown),
        p2p=m.micro_batches * shown,
        data=data,
        optimizer=optimizer,
        total=(work + data + optimizer) * waits * factor,
    )


def _shown(hidden: Array | float) -> Array:
    """Return what is left of an exchange of which so much is hidden behind computing."""
    return np.asarray(1 - np.minimum(hidden, MOST_HIDDEN))


def _tensor(m: Meshes, p: Parameters, links: Links) -> Array:
    """Return a layer's exchanges of a tensor group: two gathers and two scatters forward, as many back."""
    t, is_across = m.tp, m.tp > m.node_gpus
    byte = np.where(is_across, links.net / m.node_gpus, links.peer)
    hop = np.where(is_across, links.hop, np.minimum(links.hop, p["hop_us"] * 1e-6))
    one = 2 * local_tokens(m) * m.hidden * (t - 1) / t * byte + p["collective_us"] * 1e-6 + hop * (t - 1)
    hidden = np.where((m.async_tp > 0) | is_nvidia(m), p["tensor_async"], p["tensor_hidden"])
    calls = np.where(m.recompute == FULL, 12, 8)
    return np.where(t > 1, calls * one * _shown(hidden), 0.0)


def _context(m: Meshes, p: Parameters, links: Links) -> Array:
    """Return what a layer's keys and values take to go round, forward once, back twice."""
    byte = np.where(m.tp * m.cp > m.node_gpus, links.net, links.peer)
    one = 4 * local_tokens(m) * m.kv_heads * m.head_dim / m.tp * byte + links.hop
    return np.where(m.cp > 1, 3 * (m.cp - 1) * one * _shown(p["context_hidden"]), 0.0)


def _expert(m: Meshes, p: Parameters, links: Links) -> Array:
    """Return a layer's exchanges with experts: two forward, two back."""
    byte = np.where(m.ep > m.node_gpus, links.net, links.peer)
    sent = 2 * local_tokens(m) / m.tp * m.top_k * m.hidden * (m.ep - 1) / m.ep * byte
    expert = expert_share(m) * 4 * (sent + p["collective_us"] * 1e-6) * _shown(p["expert_hidden"])
    return np.where(m.ep > 1, expert, 0.0)


def _message(m: Meshes, links: Links) -> Array:
    """Return what a micro batch takes from a stage to the next, there and back."""
    byte = np.where(m.gpus > m.node_gpus, links.net, links.peer)
    sent = 2 * local_tokens(m) * m.hidden / np.where(m.sequence_parallel > 0, m.tp, 1) * byte
    return np.asarray(2 * (sent + links.hop))


def count_parameters(m: Meshes) -> tuple[Array, Array, Array]:
    """Return parameters of a layer but its experts, of a layer's experts, and of the words (once)."""
    qkv, queries = (m.heads + 2 * m.kv_heads) * m.head_dim, m.heads * m.head_dim
    share = expert_share(m)
    mlp = (1 - share) * m.mlp_matrices * m.hidden * m.ffn + share * 3 * m.hidden * m.shared_ffn
    layer = m.hidden * (qkv + queries) + mlp + 2 * m.hidden
    return layer, share * m.experts * 3 * m.hidden * m.expert_ffn, m.vocab * m.hidden


def _data_seconds(m: Meshes, p: Parameters, links: Links, layer: LayerSeconds, rates: Rates) -> tuple[Array, Array]:
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
