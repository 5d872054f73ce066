"""The seconds of a training step on a mesh, by parts."""

from dataclasses import dataclass, fields

import numpy as np

from collectives.training.parallelism import FRAMEWORKS
from simcomm.mesh_search.columns import Array, Meshes
from simcomm.mesh_search.compute import Parameters, Rates, join_times, layer_seconds
from simcomm.mesh_search.exchanges import (
    NANOTRON,
    context_seconds,
    data_seconds,
    expert_seconds,
    find_links,
    host_seconds,
    message_seconds,
    optimizer_seconds,
    tensor_seconds,
)


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
