"""The seconds of a training step on a mesh, by parts; what devices exchange in layers, between stages, of gradients."""

from dataclasses import dataclass, fields

import numpy as np

from collectives.training.parallelism import FRAMEWORKS
from planner.mesh_search.columns import (
    Array,
    Held,
    Meshes,
    count_held,
    count_parameters,
    count_trained,
    data_division,
    expert_share,
    local_tokens,
)
from planner.mesh_search.compute import FULL, LayerSeconds, Parameters, Rates, is_nvidia, join_times, layer_seconds

NANOTRON = FRAMEWORKS.index("nanotron")
STATE_SHARES = (1.0, 0.6, 0.73)  # by OPTIMIZERS: they move 30, 18 and 22 bytes a parameter


def _positive(x: Array, scale: Array) -> Array:
    """Return max(0, x), smooth within a tenth of ``scale``."""
    return 0.5 * (x + np.sqrt(x * x + (0.1 * scale) ** 2))


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


def _shown(hidden: Array | float) -> Array:
    """Return what is left of an exchange of which so much is hidden behind computing: 2 % at least."""
    return np.asarray(1 - np.minimum(hidden, 0.98))


def tensor_seconds(m: Meshes, p: Parameters, links: Links) -> Array:
    """Return a layer's exchanges of a tensor group: two gathers and two scatters forward, as many back."""
    t, is_across = m.tp, m.tp > m.node_gpus
    byte = np.where(is_across, links.net / m.node_gpus, links.peer)
    hop = np.where(is_across, links.hop, np.minimum(links.hop, p["hop_us"] * 1e-6))
    one = 2 * local_tokens(m) * m.hidden * (t - 1) / t * byte + p["collective_us"] * 1e-6 + hop * (t - 1)
    hidden = np.where((m.async_tp > 0) | is_nvidia(m), p["tensor_async"], p["tensor_hidden"])
    calls = np.where(m.recompute == FULL, 12, 8)
    return np.where(t > 1, calls * one * _shown(hidden), 0.0)


def context_seconds(m: Meshes, p: Parameters, links: Links) -> Array:
    """Return what a layer's keys and values take to go round, forward once, back twice."""
    byte = np.where(m.tp * m.cp > m.node_gpus, links.net, links.peer)
    one = 4 * local_tokens(m) * m.kv_heads * m.head_dim / m.tp * byte + links.hop
    return np.where(m.cp > 1, 3 * (m.cp - 1) * one * _shown(p["context_hidden"]), 0.0)


def expert_seconds(m: Meshes, p: Parameters, links: Links) -> Array:
    """Return a layer's exchanges with experts: two forward, two back."""
    byte = np.where(m.ep > m.node_gpus, links.net, links.peer)
    sent = 2 * local_tokens(m) / m.tp * m.top_k * m.hidden * (m.ep - 1) / m.ep * byte
    expert = expert_share(m) * 4 * (sent + p["collective_us"] * 1e-6) * _shown(p["expert_hidden"])
    return np.where(m.ep > 1, expert, 0.0)


def message_seconds(m: Meshes, links: Links) -> Array:
    """Return what a micro batch takes from a stage to the next, there and back."""
    byte = np.where(m.gpus > m.node_gpus, links.net, links.peer)
    sent = 2 * local_tokens(m) * m.hidden / np.where(m.sequence_parallel > 0, m.tp, 1) * byte
    return np.asarray(2 * (sent + links.hop))


@dataclass(frozen=True)
class DataGroup:
    """What exchanges gradients: parameters of a device in it, and seconds a byte and of latency."""

    size: Array
    trained: Array  # of a device's, exchanged
    byte: Array
    log_hops: Array  # of a tree between nodes
    root_hops: Array  # of rings, as published runs have them
    near: Array  # ranks of a node


def find_group(m: Meshes, p: Parameters, links: Links) -> DataGroup:
    """Return the group of devices that have the same part of the model."""
    size = m.dp * m.cp
    near = np.minimum(size, np.maximum(1, m.node_gpus / m.tp))
    held = count_held(m, count_trained(m), m.most_layers)
    of_experts = np.maximum(1.0, size / m.ep)  # devices with the same ones
    same = np.where(size > 1, (1 - 1 / of_experts) / np.maximum(1 - 1 / size, 0.5), 0.0)
    trained = held.dense + held.experts * same
    is_far = size * m.tp > m.node_gpus  # pipelines put stages furthest apart
    nodes = np.maximum(1.0, size * m.tp / m.node_gpus)
    buckets = np.maximum(1.0, 4 * trained / (p["bucket_mb"] * 1e6)) * links.data_hop
    return DataGroup(
        size, trained, np.where(is_far, links.net / near, links.peer), np.log2(nodes) * buckets,
        np.sqrt(nodes - 1) * buckets, near,
    )  # fmt: skip


def data_seconds(m: Meshes, p: Parameters, links: Links, layer: LayerSeconds) -> Array:
    """Return what the exchange of gradients and parameters shows beside computing."""
    group = find_group(m, p, links)
    hidden = np.minimum(p["data_hidden"], 1.5) * layer.backward * m.most_layers
    # ddp: one all-reduce; zero1: a scatter, then a gather after the optimizer; zero2 scatters every micro batch
    spread = (group.size - 1) / group.size * group.trained * group.byte
    reduce_ddp = 8 * spread + group.log_hops
    scatter, gather = 4 * spread + group.root_hops, 2 * spread + group.root_hops
    ddp = _positive(reduce_ddp - hidden, reduce_ddp)
    zero1 = np.where(m.zero == 2, m.micro_batches, 1.0) * _positive(scatter - hidden, scatter)
    zero1 = zero1 + p["gather_shown"] * gather
    zero3 = _sharded(m, p, links, layer) + _between_shards(m, links, group, hidden)
    exchanged = np.select([m.zero == 0, m.zero <= 2], [ddp, zero1], zero3)
    return np.where(group.size > 1, exchanged, 0.0)


def _sharded(m: Meshes, p: Parameters, links: Links, layer: LayerSeconds) -> Array:
    """Return what gathers of parameters show, forward and back, and a scatter of gradients, layer by layer."""
    near = np.minimum(m.shard, np.maximum(1, m.node_gpus / m.tp))
    byte = np.where(m.shard * m.tp <= m.node_gpus, links.peer, links.net / near)
    nodes = np.maximum(1.0, m.shard * m.tp / m.node_gpus)
    spread = (m.shard - 1) / m.shard
    whole, trained = count_parameters(m), count_trained(m)
    latency = links.data_hop * np.sqrt(nodes - 1) + p["collective_us"] * 1e-6
    weight = np.where(m.lora > 0, m.frozen_bytes, m.item_bytes)
    gather = weight * (whole.layer / m.tp + whole.experts / m.ep) * spread * byte + latency
    scatter = m.reduce_bytes * (trained.layer / m.tp + trained.experts / m.ep) * spread * byte + latency
    ahead = _positive(gather - p["fsdp_hidden"] * layer.forward, gather)
    behind = _positive(gather + scatter - p["fsdp_hidden"] * layer.backward, gather + scatter)
    rounds = np.where(m.pp > 1, 1.0, m.micro_batches)  # stages keep what they have gathered
    result: Array = rounds * m.most_layers * (ahead + behind) + 8 * trained.words / m.tp * spread * byte
    return result


def _between_shards(m: Meshes, links: Links, group: DataGroup, hidden: Array) -> Array:
    """Return what hsdp's average between groups that divide parameters shows."""
    groups = group.size / m.shard
    average = 8 * group.trained / m.shard * (groups - 1) / groups * links.net / group.near
    average = average + group.log_hops
    return np.where(groups > 1, _positive(average - hidden, average), 0.0)


def host_seconds(m: Meshes, p: Parameters, layer: LayerSeconds) -> Array:
    """Return what offload to the host takes: states that its processors update, parameters that stream from it.

    Gradients go there and weights come back, in 16 bits, behind a step; parameters once forward and once backward for
    each micro batch, beside computing.
    """
    divided = data_division(m)
    trained = count_held(m, count_trained(m), m.most_layers).divided(m, divided)
    link = 1 / (p["host_link"] * m.host_rate)
    of_node = np.minimum(m.gpus, m.node_gpus)
    update = trained * (4 * link + of_node / (p["host_update"] * 1e9))
    whole = count_parameters(m)
    weight = np.where(m.lora > 0, m.frozen_bytes, m.item_bytes)
    stream = weight * Held(whole.layer / m.tp, whole.experts / m.ep).divided(m, divided) * link
    shown = _positive(stream - p["fsdp_hidden"] * layer.forward, stream)
    shown = shown + _positive(stream - p["fsdp_hidden"] * layer.backward, stream)
    streamed = np.where(m.offload > 1, m.micro_batches * m.most_layers * shown, 0.0)
    return np.where(m.offload > 0, update, 0.0) + streamed


def optimizer_seconds(m: Meshes, p: Parameters, memory_rate: Array) -> Array:
    """Return what the optimizer takes on the device, by the bytes that it moves, and what each step takes besides."""
    trained = count_held(m, count_trained(m), m.most_layers).divided(m, data_division(m))
    moved = p["optimizer_bytes"] * np.array(STATE_SHARES)[m.optimizer] * trained
    return np.where(m.offload > 0, 0.0, moved / memory_rate) + p["step_ms"] * 1e-3


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
    host: Array
    optimizer: Array
    total: Array

    def take(self, number: int) -> dict[str, float]:
        """Return the parts of one training."""
        return {field.name: float(getattr(self, field.name)[number]) for field in fields(self)}


def waits(devices: Array, p: Parameters) -> Array:
    """Return how many times as long a step takes whose slowest of so many devices all wait for."""
    return np.asarray(1 + p["jitter"] * np.sqrt(2 * np.log(np.maximum(devices, 2))))


def step_seconds(m: Meshes, p: Parameters) -> MeshSeconds:
    """Return the seconds of a step of each training, by parts."""
    rates, links = Rates(m, p), find_links(m, p)
    layer = layer_seconds(m, p, rates)
    tensor, context, expert = tensor_seconds(m, p, links), context_seconds(m, p, links), expert_seconds(m, p, links)
    compute_layer = layer.forward + layer.backward
    own = compute_layer + tensor + context + expert
    # on one cluster a layer of a tensor group takes no less than this where a pipeline crosses nodes
    is_slowed = (m.framework == NANOTRON) & (m.pp > 1) & (m.tp > 1) & (m.gpus > m.node_gpus)
    floor = np.where(is_slowed, p["pipeline_tensor_ms"] * 1e-3 * m.tp, 0.0)
    tensor, own = tensor + join_times(own, floor) - own, join_times(own, floor)

    most = np.maximum(m.most_layers * own, m.last_layers * own + layer.head)
    whole = m.layers * own + layer.head
    message = message_seconds(m, links)
    shown = np.where(m.pp > 1, 2 * m.vp * message * p["p2p_exposed"], 0.0)
    ends = (whole - most + (m.pp - 1) * message) / m.vp  # of a pipeline, which fills and drains
    ends = ends * np.where(m.zero_bubble, p["zero_bubble"], 1.0)
    work = np.where(m.pp > 1, m.micro_batches * (most + shown) + ends, m.micro_batches * whole)
    data, host = data_seconds(m, p, links, layer), host_seconds(m, p, layer)
    optimizer = optimizer_seconds(m, p, rates.memory)
    factor = np.choose(m.framework, [p[f"framework_{name}"] for name in FRAMEWORKS])
    factor = factor * np.where(m.experts > 0, p["experts"], 1.0)
    inside = m.micro_batches * m.layers / m.pp
    return MeshSeconds(
        compute=m.micro_batches * (m.layers * compute_layer + layer.head) / m.pp,
        tensor=inside * tensor,
        context=inside * context,
        expert=inside * expert,
        bubble=work - m.micro_batches * (whole / m.pp + shown),
        p2p=m.micro_batches * shown,
        data=data,
        host=host,
        optimizer=optimizer,
        total=(work + data + host + optimizer) * waits(m.gpus, p) * factor,
    )
