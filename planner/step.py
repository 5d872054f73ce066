"""Compute the time in seconds of a training step by part.

Device times are multiplied by factors for the framework, for experts and for hardware that no published run used. If
data loaders can limit the step, its time is a soft maximum of the device time and the loading time.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from collectives.training.parallelism import FRAMEWORKS
from planner.columns import MIB, Columns, list_groups
from planner.compute import (
    FULL,
    NVIDIA,
    Parameters,
    Rates,
    UnitSeconds,
    count_held,
    count_parameters,
    count_whole,
    expert_share,
    join_times,
    local_tokens,
    unit_seconds,
)
from planner.hosts import LINKS, Array, Group, Network, read_curves
from planner.jobs import EXCHANGES, LOADERS, SCHEDULES
from planner.pipeline import pipeline_seconds

NANOTRON, NETWORK, ZERO_BUBBLE = FRAMEWORKS.index("nanotron"), LINKS.index("network"), SCHEDULES.index("zero_bubble")
OVERLAPPED, AFTER, SERVER, NONE, PROCESS = range(len(EXCHANGES))
# memory traffic of OPTIMIZERS relative to AdamW: 30, 18 and 22 bytes per parameter
STATE_SHARES = np.array([1.0, 0.6, 0.73])
USUAL_STEP = 0.2  # s
FULL_NIC = 12.5e9  # bytes/s of a NIC above which communication slows compute down by the full factor
PARTS = (
    "compute", "tensor", "context", "expert", "pipeline", "sync", "optimizer", "fixed", "copies", "processes",
    "stragglers", "input",
)  # fmt: skip


def positive(x: Array, scale: Array) -> Array:
    """Return max(0, x), smoothed within a tenth of ``scale``."""
    return np.asarray(0.5 * (x + np.sqrt(x * x + (0.1 * scale) ** 2)))


class Links:
    """Collective times during training, from a simulated network or from the hosts' time curves at reduced rates."""

    def __init__(self, c: Columns, p: Parameters) -> None:
        self.c = c
        spans = {name: size * stride for name, (_, size, stride) in list_groups(c.arrays).items()}
        spans |= {"context": c.tp * c.cp, "message": c.gpus, "between": c.dp * c.cp * c.tp}
        is_efa = c.is_efa.astype(np.intp)
        hop = 1e-6 * np.choose(is_efa, [p["hop_us"], p["hop_efa_us"]])
        data_hop = 1e-6 * np.choose(is_efa, [p["data_hop_us"], p["data_hop_efa_us"]])
        self.shares, self.latencies = dict[str, Array](), dict[str, Array]()
        unseen = np.where(c.is_unseen, p["unseen_link"], 1.0)
        for name, span in spans.items():
            nodes = np.maximum(1.0, span / c.node_gpus)
            far = p["eff_network"] * np.maximum(0.3, 1 - p["scale"] * np.log2(nodes))
            self.shares[name] = np.where(nodes > 1, far, p["eff_link"]) * unseen
            ring = data_hop * np.sqrt(nodes - 1)
            late = {
                "tensor": hop * (span - 1), "message": hop, "reduce": data_hop * np.log2(nodes), "scatter": ring,
                "gather": ring,
            }  # fmt: skip
            self.latencies[name] = p["call_us"] * 1e-6 + np.where(nodes > 1, late.get(name, 0.0), 0.0)

    def seconds(self, name: str, nbytes: Array) -> Array:
        """Return the seconds of a collective of ``nbytes`` bytes in each training run's group called ``name``."""
        if self.c.network is not None:
            return self._simulate(self.c.network, name, np.asarray(nbytes))
        seconds = read_curves(self.c.curves, getattr(self.c, f"curve_{name}"), nbytes)
        share, latency = self.shares[name], self.latencies[name]
        if seconds.ndim > 1:
            share, latency = share[:, None], latency[:, None]
        return np.asarray(seconds / share + latency * (seconds > 0))

    def _simulate(self, network: Network, name: str, nbytes: Array) -> Array:
        """Return simulated seconds. Without sequence parallelism, a tensor group's gather is half an all_reduce."""
        collective, *sizes = list_groups(self.c.arrays)[name]
        rows = nbytes.reshape(len(self.c), -1)
        places = np.broadcast_arrays(*sizes, self.c.dp)[:2]
        groups = [Group(int(size), int(stride)) for size, stride in zip(*places, strict=True)]
        seconds = np.zeros(rows.shape)
        for (row, column), size in np.ndenumerate(rows):
            is_half = name == "tensor" and not self.c.sequence_parallel[row]
            if groups[row].size > 1 and size > 0:
                operation = "all_reduce" if is_half else collective
                seconds[row, column] = network(operation, float(size), groups[row]) * (0.5 if is_half else 1.0)
        return seconds.reshape(nbytes.shape)


# On simulated networks, no collective within layers is hidden, and the data axis exposes its collectives fully.
ON_NETWORKS = {
    **dict.fromkeys(("tensor_hidden", "tensor_async", "context_hidden", "expert_hidden"), 0.0),
    **dict.fromkeys(("gather_shown", "fsdp_hidden", "p2p_exposed"), 1.0),
}


class InsideSeconds(NamedTuple):
    """The exposed seconds of a layer's collectives per microbatch, in forward and backward together."""

    tensor: Array
    context: Array
    expert: Array


def inside_seconds(c: Columns, p: Parameters, links: Links) -> InsideSeconds:
    """Return the exposed seconds of a layer's collectives per microbatch, which are at least 2 % of their time.

    Each pass has two gathers and two scatters in a tensor group, and two all_to_alls between experts. Keys and values
    travel around a context group once in forward and twice in backward.
    """
    tokens = local_tokens(c)
    tensor = links.seconds("tensor", c.item_bytes * tokens * c.hidden) * np.where(c.recompute == FULL, 12, 8)
    is_hidden = (c.async_tp > 0) | np.isin(c.framework, NVIDIA)
    context = 3 * (c.cp - 1) * links.seconds("context", 2 * c.item_bytes * tokens * c.kv_heads * c.head_dim / c.tp)
    expert = 4 * expert_share(c) * links.seconds("expert", c.item_bytes * tokens / c.tp * c.top_k * c.hidden)
    hidden = np.where(is_hidden, p["tensor_async"], p["tensor_hidden"]), p["context_hidden"], p["expert_hidden"]
    pairs = zip((tensor, context, expert), hidden, strict=True)
    return InsideSeconds(*(seconds * (1 - np.minimum(share, 0.98)) for seconds, share in pairs))


def exchanged_parameters(c: Columns) -> Array:
    """Return the number of parameters per device whose gradients the data group synchronizes."""
    size, parameters = c.dp * c.cp, count_held(c, c.most_layers, trained=True)
    copies = np.maximum(1.0, size / c.ep)  # number of devices with the same experts
    same = np.where(size > 1, (1 - 1 / copies) / np.maximum(1 - 1 / size, 0.5), 0.0)
    return np.where((size > 1) & (c.exchange != NONE), parameters.dense + parameters.experts * same, 0.0)


def sync_seconds(c: Columns, p: Parameters, links: Links, units: UnitSeconds, stage_backward: Array) -> Array:
    """Return the seconds that the synchronization of gradients and parameters adds to a step."""
    sent, overlapped = exchanged_parameters(c), c.exchange == OVERLAPPED
    backward = np.where(overlapped, stage_backward, 0.0)
    weights, gradients = np.where(c.is_shaped, c.item_bytes, 4.0) * sent, c.gradient_bytes * sent
    alike = np.maximum(1.0, np.round(gradients / (c.bucket_mb * MIB)))  # equal buckets of a transformer

    def bucketed(name: str) -> Array:
        """Return the seconds by which the synchronization of gradient buckets outlasts backward."""
        ready, kept = c.bucket_ready.copy(), np.where(overlapped, 1 - _slowdown(c, p), 1.0)
        ready[:, 0] = np.where(c.is_shaped, 1 / alike, ready[:, 0])
        each = links.seconds(name, gradients[:, None] * c.bucket_share)
        total = np.where(c.is_shaped, alike * links.seconds(name, gradients / alike), each.sum(axis=1))
        before = np.cumsum(each, axis=1) - each
        before[:, 1] = np.where(c.is_shaped, (1 - 1 / alike) * total, before[:, 1])
        ends = np.where(c.is_bucket, ready * backward[:, None] - kept[:, None] * before, -np.inf)
        return np.where(total > 0, ends.max(axis=1) + total - backward, 0.0)

    def divided() -> Array:
        pieces = np.where(c.is_shaped, alike, 1.0)
        gathered = p["gather_shown"] * pieces * links.seconds("gather", weights / pieces)
        return np.asarray(np.where(c.zero == 2, c.count, 1.0) * bucketed("scatter") + gathered)

    is_reduced = np.isin(c.exchange, (OVERLAPPED, AFTER))
    cases: tuple[tuple[Array, Callable[[], Array]], ...] = (
        (c.exchange == NONE, lambda: np.zeros(len(c))),
        (c.exchange == SERVER, lambda: _served(c, p, links, gradients)),
        (c.exchange == PROCESS, lambda: links.seconds("give", weights) + links.seconds("take", gradients)),
        (is_reduced & (c.zero == 0), lambda: bucketed("reduce")),
        (is_reduced & np.isin(c.zero, (1, 2)), divided),
        (is_reduced & (c.zero == 3), lambda: _gathered(c, p, links, units, backward)),
    )
    needed = [(rows, seconds()) for rows, seconds in cases if rows.any()]
    return np.asarray(np.select([rows for rows, _ in needed], [seconds for _, seconds in needed]))


def _slowdown(c: Columns, p: Parameters) -> Array:
    """Return the compute seconds lost per second of overlapped communication. Slower NICs slow compute down less."""
    slowdown = np.choose(c.link, [p[f"overlap_slowdown_{name}"] if name else 0.0 for name in LINKS])
    return np.minimum(np.where(c.link == NETWORK, slowdown * np.minimum(1.0, c.nic / FULL_NIC), slowdown), 0.99)


def _gathered(c: Columns, p: Parameters, links: Links, units: UnitSeconds, backward: Array) -> Array:
    """Return the exposed seconds of FSDP's collectives. Each gather or scatter overlaps with one unit's compute."""
    item, hidden = np.where(c.lora > 0, c.frozen_bytes, c.item_bytes), np.broadcast_to(p["fsdp_hidden"], len(c))
    weights, gradients = c.unit_parameters.copy(), c.unit_parameters.copy()
    weights[:, 0] = np.where(c.is_shaped, count_held(c).all, weights[:, 0])
    gradients[:, 0] = np.where(c.is_shaped, count_held(c, trained=True).all, gradients[:, 0])
    nbytes = c.gradient_bytes[:, None] * gradients
    gather, scatter = links.seconds("gather", item[:, None] * weights), links.seconds("scatter", nbytes)
    forward, back = hidden[:, None] * units.forward, hidden[:, None] * units.backward
    both = gather + scatter
    alike = np.maximum(c.unit_count - 1, 0) * (c.most_layers / np.maximum(c.layers, 1))[:, None]
    shown = (alike * (positive(gather - forward, gather) + positive(both - back, both))).sum(axis=1)
    shown = shown + np.where(c.is_shaped, 0.0, gather[:, 0] + scatter[:, 0])  # both are fully exposed
    if c.unit_count.shape[1] > 1:
        both = gather[:, :-1] + scatter[:, 1:]
        between = positive(gather[:, 1:] - forward[:, :-1], gather[:, 1:]) + positive(both - back[:, 1:], both)
        shown = shown + np.where(c.unit_count[:, 1:] > 0, between, 0.0).sum(axis=1)
    rounds = np.where(c.pp > 1, 1.0, c.count)  # stages gather once per step
    words = count_parameters(c, trained=True).words / c.tp
    root = links.seconds("gather", 2 * item * words) + links.seconds("scatter", 4 * words)
    average = (c.unit_count * links.seconds("between", nbytes / c.shard[:, None])).sum(axis=1)
    return np.asarray(rounds * shown + root + positive(average - hidden * backward, average))


def _served(c: Columns, p: Parameters, links: Links, nbytes: Array) -> Array:
    """Return the time in seconds that parameter servers take to send weights and sum gradients.

    With P2P, GPUs serve equal parts. Otherwise, data passes through the host, and one GPU serves the largest layer.
    """
    if c.network is not None:
        return links.seconds("serve", nbytes)
    local = c.neighbors
    inside_bytes = 2 * nbytes * (local - 1)
    spread = inside_bytes / local / (p["ps_eff"] * c.busbw)
    of_one = 2 * c.gradient_bytes * c.largest * (local - 1) / (p["ps_one_GBps"] * 1e9)
    inside = np.where(c.is_staged, np.maximum(inside_bytes / (p["ps_GBps"] * 1e9 * c.paths), of_one), spread)
    between = 2 * nbytes * (c.nodes - 1) / c.nodes / np.maximum(c.nic, 1.0)
    return np.where(local > 1, inside, 0.0) + np.where(c.nodes > 1, between, 0.0)


def data_division(c: Columns) -> Array:
    """Return the number of devices over which the optimizer states are sharded."""
    return np.where(c.zero == 3, c.shard, np.where(c.zero > 0, c.dp * c.cp, 1.0))


def _pipelined_profiles(c: Columns, work: Array, links: Links) -> Array:
    """Return ``work`` with simulated pipeline times for profiles, whose stages are unequal."""
    rows, seconds = np.flatnonzero(~c.is_shaped & (c.pp > 1)), work.copy()
    if not len(rows):
        return seconds
    send = links.seconds("message", c.micro_batch[:, None] * c.stage_bytes)
    keys = [tuple(int(column[row]) for column in (c.schedule, c.pp, c.count, c.pp * c.vp)) for row in rows]
    for key in dict.fromkeys(keys):
        schedule, devices, count, stages = key
        same = rows[[row_key == key for row_key in keys]]
        sample = (c.alone * c.micro_batch)[same, None]
        forward, back = (sample * shares[same, :stages] for shares in (c.stage_forward, c.stage_backward))
        back = back + np.where(c.recompute[same] == FULL, 1.0, 0.0)[:, None] * forward
        sent = send[same, : stages - 1]
        seconds[same] = pipeline_seconds(SCHEDULES[schedule], forward, back, sent, devices, count)
    return seconds


def step_parts(c: Columns, p: Parameters) -> dict[str, Array]:
    """Return the seconds of each training run's step by part. The keys are ``PARTS`` and ``total``."""
    p = p if c.network is None else {**p, **ON_NETWORKS}
    rates, links = Rates(c, p), Links(c, p)
    units, inside = unit_seconds(c, p, rates), inside_seconds(c, p, links)
    forward, backward = ((c.unit_count * durations).sum(axis=1) for durations in units[:2])
    layer = (units.forward + units.backward)[:, 0] + sum(inside)  # of a transformer's layer
    # on one cluster, a layer of a tensor group has a minimum time if a pipeline crosses hosts
    is_slowed = (c.framework == NANOTRON) & (c.pp > 1) & (c.tp > 1) & (c.gpus > c.node_gpus)
    floored = join_times(layer, np.where(is_slowed, p["pipeline_tensor_ms"] * 1e-3 * c.tp, 0.0))
    inside = inside._replace(tensor=inside.tensor + np.where(c.is_shaped, floored - layer, 0.0))

    total = np.where(c.is_shaped, c.layers * floored + units.head, forward + backward)
    most = np.maximum(c.most_layers * floored, c.last_layers * floored + units.head)
    most = np.where(c.is_shaped, most, total / c.pp)
    sequence = np.where(c.sequence_parallel > 0, c.tp, 1)
    nbytes = np.where(c.is_shaped, c.item_bytes * local_tokens(c) * c.hidden / sequence, 0.0)
    message = 2 * links.seconds("message", nbytes)
    sends = np.where(c.pp > 1, 2 * c.vp * message * p["p2p_exposed"], 0.0)
    ends = (total - most + (c.pp - 1) * message) / c.vp  # the bubble of a pipeline
    ends = ends * np.where(c.schedule == ZERO_BUBBLE, p["zero_bubble"], 1.0)
    work = np.where(c.pp > 1, c.count * (most + sends) + ends, c.count * total)
    work = _pipelined_profiles(c, work, links)

    stage_backward = np.where(c.is_shaped, units.backward[:, 0] * c.most_layers, backward / c.pp)
    sync = np.where(c.dp * c.cp > 1, sync_seconds(c, p, links, units, stage_backward), 0.0)
    trained = count_held(c, c.most_layers, trained=True).divided(c, data_division(c))
    optimizer = p["optimizer_bytes"] * STATE_SHARES[c.optimizer] * trained / rates.memory
    is_known, parameters = c.alone > 0, np.maximum(count_whole(c), 1.0)
    optimizer = np.where(is_known | ~c.is_shaped, c.update * trained / parameters, optimizer)
    fixed = np.where(c.is_shaped & ~is_known, p["step_ms"] * 1e-3, 0.0)  # included in a known compute time
    parts = {"sync": sync, "optimizer": optimizer, "fixed": fixed}
    parts |= _several_seconds(c, p, work + optimizer + fixed)
    factor = np.choose(c.framework, [p[f"framework_{name}"] for name in FRAMEWORKS])
    factor = np.where(c.is_shaped & (c.alone == 0), factor * np.where(c.experts > 0, p["experts"], 1.0), 1.0)
    factor = factor * np.where(c.is_unseen, p["unseen_several"], 1.0)
    on_devices = (work + sum(parts.values())) * factor
    parts["pipeline"] = work - c.count * total / c.pp
    each = c.count * np.where(c.is_shaped, c.layers, 0.0) / c.pp
    parts |= {name: each * value for name, value in inside._asdict().items()}
    parts["compute"] = c.count * (total / c.pp) - each * sum(inside)
    loading = _loading(c, p, on_devices)
    seconds = {name: loading if name == "input" else parts[name] * factor for name in PARTS}
    return {**seconds, "total": on_devices + loading}


def _several_seconds(c: Columns, p: Parameters, computing: Array) -> dict[str, Array]:
    """Return the seconds of ``copies``, ``processes`` and ``stragglers``, as in ``StepParts``."""
    jitter = np.where(c.variable > 0, p["jitter_variable"], p["jitter"])
    often = np.sqrt(USUAL_STEP / np.maximum(USUAL_STEP, computing))
    waiting = computing * (jitter * c.slowest + p["jitter_nodes"] * often * c.slowest_host)
    several = c.is_gpu & (c.gpus > 1) & (c.exchange != NONE)
    divided = np.where(c.is_shaped, data_division(c), 1.0)
    copied = p["copy_passes"] * c.gradient_bytes * exchanged_parameters(c) / divided / c.memory_rate
    return {
        "copies": np.where(several, copied, 0.0),
        "processes": np.where(several, p["process_ms"] * 1e-3 * (c.neighbors - 1) / np.maximum(c.cores, 1.0), 0.0),
        "stragglers": np.where(c.is_gpu, waiting, 0.0),
    }


def _loading(c: Columns, p: Parameters, on_devices: Array) -> Array:
    is_limited = (c.loader > 0) | (c.loader_rate > 0)
    if not is_limited.any():
        return np.zeros(len(c))
    per_core = np.choose(c.loader, [np.inf, *(p[f"{name}_per_core"] for name in LOADERS[1:])])
    rate = np.where(c.loader_rate > 0, c.loader_rate, c.cores * per_core)
    loading = c.micro_batch * c.count * c.dp * c.neighbors / c.gpus / rate
    power = p["input_power"]
    added = (on_devices**power + loading**power) ** (1 / power) - on_devices
    return np.where(is_limited, np.maximum(added, 0.0), 0.0)


def step_seconds(c: Columns, p: Parameters) -> Array:
    """Return the time in seconds of each training run's step."""
    return step_parts(c, p)["total"]
