"""Represent training runs of any model, mesh and cluster as arrays (columns) with one value per run."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from collectives.records.model_profile import ModelProfile
from collectives.training.gradients import fill_buckets
from collectives.training.parallelism import FRAMEWORKS
from planner.gpus import ANY_GPU, GENERATIONS, is_published
from planner.hosts import LINKS, NO_CURVE, Array, Group, Host, Network, curve_of
from planner.jobs import BITS, CHOICES, DEFAULTS, EXCHANGES, NUMBERS, ZERO
from planner.pipeline import cut_stages, deal_layers
from planner.rates import Compute
from simcomm.cluster.hardware import parts

WIDE = ("tf32", "float32")  # precisions whose elements have 4 bytes
MOST_DEVICES = 1 << 20
OVERLAPPED = EXCHANGES.index("overlapped")
MIB = 1 << 20
SIZES = ("parameters", "saved_elements", "written_elements", "largest")
# Arrays with a second dimension, by the meaning of its index.
UNIT = ("unit_forward", "unit_backward", "unit_parameters")
BUCKET = ("bucket_share", "bucket_ready")
STAGE = ("stage_forward", "stage_backward", "stage_parameters", "stage_bytes")


class Columns:
    """Training runs as named arrays with one value per run. Arrays of units, buckets and stages have a second axis."""

    def __init__(self, arrays: Mapping[str, Array], curves: Array, network: Network | None = None) -> None:
        self.arrays, self.curves, self.network = dict(arrays), curves, network

    def __getattr__(self, name: str) -> Array:
        try:
            array: Array = self.__dict__["arrays"][name]
            return array
        except KeyError:
            raise AttributeError(name) from None

    def __len__(self) -> int:
        return len(self.arrays["dp"])

    def take(self, rows: Array) -> "Columns":
        """Return the training runs that ``rows`` selects. ``rows`` is an index array or a boolean mask."""
        return Columns({name: array[rows] for name, array in self.arrays.items()}, self.curves, self.network)


def make_columns(table: Mapping[str, Any], count: int) -> Columns:
    """Return ``count`` training runs as columns.

    ``table`` maps column names, as in ``DEFAULTS``, to one value for all runs or to a list with one value per run. If
    the first host has a simulated network, collective times of all runs come from that network. Otherwise, they come
    from each host's curves of time over size. Raise InputError if a GPU is not in the catalog.
    """
    full = {**DEFAULTS, **table}

    def each(name: str) -> list[Any]:
        value = full[name]
        return value if isinstance(value, list) else [value] * count

    def coded(name: str, codes: Mapping[str, float]) -> Array:
        value, kind = full[name], np.array([*codes.values()]).dtype
        known = [codes[item] for item in value] if isinstance(value, list) else [codes[value]] * count
        return np.array(known, dtype=kind)

    c = {name: np.array(np.broadcast_to(np.asarray(full[name], dtype=float), count)) for name in NUMBERS}
    profiles = each("profile")
    c["is_shaped"] = np.array([profile is None for profile in profiles], dtype=bool)
    for name in ("layers", "heads", "hidden", "seq", "vocab"):
        c[name] = np.where(c["is_shaped"], c[name], 1.0)  # avoids divisions by zero
    for name, names in CHOICES.items():
        c[name] = coded(name, {choice: place for place, choice in enumerate(names)})
    c["zero"], c["frozen_bytes"] = coded("sharding", ZERO), coded("frozen_bits", BITS)
    c["is_unfused"] = c.pop("attention") > 0
    kinds, machines, numbers = dict[Any, int](), list[tuple[Host, str]](), list[int]()
    for host, used, precision in zip(each("host"), each("gpus_used"), each("precision"), strict=True):
        numbers.append(kinds.setdefault((id(host), used, precision), len(kinds)))  # identity groups the rows of a host
        if numbers[-1] == len(machines):
            machines.append((host.using(used or host.gpus), precision))
    of = np.array(numbers, dtype=np.intp)
    _add_machines(c, machines, of)
    _add_stages(c, coded("sharding", {name: float(name == "hsdp") for name in ZERO}) > 0)
    network = machines[0][0].network if machines else None
    curves = NO_CURVE[None] if network is not None else _add_curves(c, [host for host, _ in machines], of)
    _add_profiles(c, profiles, each("times"))
    return Columns(c, curves, network)


def _add_machines(c: dict[str, Array], machines: Sequence[tuple[Host, str]], of: Array) -> None:
    """Add the columns of hosts and GPUs. ``of`` has each run's index into ``machines``, pairs of host and precision."""
    gpus, memory = [host.device for host, _ in machines], c.pop("gpu_memory")

    def each(values: Any) -> Array:
        column = np.array([*values])
        return column[of] if len(of) else np.zeros(0, dtype=np.intp)

    for name in ("matrix_16", "memory_rate", "multiprocessors", "is_limited"):
        c[name] = each(getattr(gpu, name) for gpu in gpus)
    c["peak"] = each(gpu.peak(precision) for gpu, (_, precision) in zip(gpus, machines, strict=True))
    c["item_bytes"] = each(4.0 if precision in WIDE else 2.0 for _, precision in machines)
    c["generation"] = each(GENERATIONS.index(gpu.generation) for gpu in gpus)
    c["is_gpu"] = each(gpu is not ANY_GPU for gpu in gpus)
    c["memory_bytes"] = np.where(memory > 0, memory, each(gpu.memory_bytes for gpu in gpus))
    c["gpus"] = c["dp"] * c["tp"] * c["cp"] * c["pp"]
    for name in ("cores", "nic", "paths"):
        c[name] = each(float(getattr(host, name)) for host, _ in machines)
    c["node_gpus"] = each(float(host.gpus) for host, _ in machines)
    c["nodes"] = np.ceil(c["gpus"] / c["node_gpus"])
    c["neighbors"] = np.minimum(c["node_gpus"], c["gpus"])  # GPUs in use per host
    link = each(LINKS.index(host.link) for host, _ in machines)
    c["link"] = np.where((c["nodes"] > 1) & (link != LINKS.index("")), LINKS.index("network"), link)
    c["is_unseen"] = each(host.is_unseen for host, _ in machines) & (c["gpus"] > 1)
    c["is_unseen_gpu"] = each(
        gpu is not ANY_GPU and gpu.name in parts("GPU") and not is_published(gpu.name) for gpu in gpus
    )
    c["is_staged"] = link == LINKS.index("host")
    c["is_efa"] = each(host.system is not None and str(host.system.net).startswith("efa") for host, _ in machines)
    c["busbw"] = np.ones(len(of))
    served = np.flatnonzero(c["exchange"] == EXCHANGES.index("server"))
    pairs = [*zip(of[served].tolist(), c["neighbors"][served].tolist(), strict=True)]
    rates = {pair: machines[pair[0]][0].bus_bandwidth(int(pair[1])) or 1.0 for pair in {*pairs}}
    c["busbw"][served] = [rates[pair] for pair in pairs]
    c["slowest"], c["slowest_host"] = _greatest(c["gpus"]), _greatest(c["nodes"])


def _greatest(counts: Array) -> Array:
    sizes, inverse = np.unique(counts, return_inverse=True)
    return np.array([expected_maximum(int(n)) for n in sizes])[inverse]


@lru_cache(maxsize=4096)
def expected_maximum(count: int) -> float:
    """Return the expected maximum of ``count`` draws from a standard normal distribution.

    >>> round(expected_maximum(2), 4), round(expected_maximum(8), 3)
    (0.5642, 1.424)
    """
    if count < 2:
        return 0.0
    draws, step = np.linspace(-9.0, 9.0, 3601, retstep=True)
    density = np.exp(-(draws**2) / 2) / np.sqrt(2 * np.pi)
    below = np.cumsum(density) * step - density * step / 2
    return float(np.sum(draws * count * density * np.clip(below, 0, 1) ** (count - 1)) * step)


def _add_stages(c: dict[str, Array], is_hybrid: Array) -> None:
    attention = c["hidden"] * c["head_dim"] * (2 * c["heads"] + 2 * c["kv_heads"])
    layer, words = attention + c["mlp_matrices"] * c["hidden"] * c["ffn"], c["vocab"] * c["hidden"]
    rows = np.stack([c["framework"], c["layers"], c["pp"], layer, words], axis=1).astype(np.int64)
    kinds, inverse = np.unique(rows, axis=0, return_inverse=True)
    deals = [deal_layers(FRAMEWORKS[framework], *numbers) for framework, *numbers in kinds.tolist()]
    c["most_layers"], c["first_layers"], c["last_layers"] = (
        np.array(deals, dtype=float).reshape(-1, 3)[inverse.ravel()].T
    )
    group, inside = c["dp"] * c["cp"], np.where(c["shard"] > 0, c["shard"], c["node_gpus"] // c["tp"])
    c["shard"] = np.where(is_hybrid, np.clip(inside, 1, group), group)


def list_groups(c: Mapping[str, Array]) -> dict[str, tuple[str, Array | float, Array | float]]:
    """Return the collective, the group size and the stride for each purpose, such as ``tensor`` or ``reduce``.

    Devices are numbered along the tensor, context, data and pipeline axes, in this order. So the devices of a tensor
    group are neighbors.
    """
    tp, cp, node, group = c["tp"], c["cp"], c["node_gpus"], c["dp"] * c["cp"]
    across = np.where(tp * cp > node, node, tp)
    return {
        "tensor": ("all_gather", tp, 1.0),
        "context": ("send_recv", np.where(cp > 1, 2, 1), across),
        "expert": ("all_to_all", c["ep"], 1.0),
        "message": ("send_recv", np.where(c["pp"] > 1, 2, 1), np.where(c["gpus"] > node, node, tp * group)),
        "reduce": ("all_reduce", group, tp),
        "scatter": ("reduce_scatter", c["shard"], tp),
        "gather": ("all_gather", c["shard"], tp),
        "between": ("all_reduce", group / c["shard"], tp * c["shard"]),
        "give": ("broadcast", group, tp),
        "take": ("reduce", group, tp),
        "serve": ("serve", group, tp),
    }


def _add_curves(c: dict[str, Array], hosts: Sequence[Host], number: Array) -> Array:
    curves = dict[tuple[Host, str, Group], int]()
    is_process = c["exchange"] == EXCHANGES.index("process")
    for name, (collective, size, stride) in list_groups(c).items():
        if name == "serve":
            continue  # only on simulated networks
        if name in ("give", "take"):
            size = np.where(is_process, size, 1)
        sizes, strides = (np.broadcast_to(value, len(number)).astype(np.int64) for value in (size, stride))
        keys, inverse = np.unique((number * MOST_DEVICES + sizes) * MOST_DEVICES + strides, return_inverse=True)
        indices = []
        for number_of_group in keys.tolist():
            rest, by = divmod(number_of_group, MOST_DEVICES)
            of, many = divmod(rest, MOST_DEVICES)
            key = (hosts[of], collective, Group(many, by))
            indices.append(curves.setdefault(key, len(curves) + 1) if many > 1 else 0)
        c[f"curve_{name}"] = np.array(indices, dtype=np.intp)[inverse]
    return np.array([NO_CURVE, *(curve_of(*key) for key in curves)])


def _add_profiles(
    c: dict[str, Array], profiles: Sequence[ModelProfile | None], times: Sequence[Compute | None]
) -> None:
    """Add the columns of units, buckets, stages and sizes. A run without a profile has one unit: a layer."""

    def add(names: Sequence[str], function: Callable[..., Array], *values: Array, least: int = 1) -> None:
        """Add the arrays that ``function`` returns for each profile, padded with zeros to equal widths."""
        known, keys = dict[Any, Array](), list[Any]()
        rows = zip(profiles, times, *(value.tolist() for value in values), strict=True) if any(profiles) else ()
        for profile, timed, *row in rows:
            keys.append((id(profile), id(timed), *row))
            if profile is not None and keys[-1] not in known:
                known[keys[-1]] = function(profile, timed, *row)
        width = max([least, *(array.shape[1] for array in known.values())])
        arrays = np.zeros((len(names), len(profiles), width))
        for number, key in enumerate(keys):
            if key in known:
                arrays[:, number, : known[key].shape[1]] = known[key]
        c.update(zip(names, arrays, strict=True))

    is_shaped = c["is_shaped"]
    add(UNIT, _units, np.full(len(profiles), (c["zero"] == 3).any()))
    c["unit_count"] = (c["unit_forward"] > 0).astype(float)
    c["unit_count"][is_shaped, 0] = c["layers"][is_shaped]
    add(SIZES, _sizes)
    c.update({name: c[name][:, 0] for name in SIZES})
    add(BUCKET, _buckets, c["gradient_bytes"], c["bucket_mb"], c["exchange"] == OVERLAPPED, least=2)
    c["is_bucket"] = c["bucket_share"] > 0
    c["is_bucket"][is_shaped, :2] = True  # the first and the last bucket of a transformer
    c["bucket_ready"][~c["is_bucket"] | is_shaped[:, None]] = 1.0
    add(STAGE, _stages, np.where(c["pp"] > 1, c["pp"] * c["vp"], 0))
    c["stage_bytes"] *= c["item_bytes"][:, None]
    for row in np.flatnonzero(~is_shaped & (c["pp"] > 1)):  # for a profile, these columns are shares of its parameters
        devices, stages = int(c["pp"][row]), int(c["pp"][row] * c["vp"][row])
        shares = c["stage_parameters"][row, :stages].reshape(-1, devices).sum(axis=0) / c["parameters"][row]
        c["most_layers"][row], c["first_layers"][row], c["last_layers"][row] = shares.max(), shares[0], shares[-1]


def _sizes(profile: ModelProfile, _: Compute | None) -> Array:
    saved = sum(layer.saved_bytes for layer in profile.layers) / profile.item_bytes
    written = sum(block.output_bytes for block in profile.blocks) / profile.item_bytes
    return np.array([[profile.parameters], [saved], [written], [max(layer.parameters for layer in profile.layers)]])


def _block_rows(profile: ModelProfile, timed: Compute | None) -> dict[str, Array]:
    """Return each block's share of the compute time in forward and in backward, and its number of parameters."""
    work = [profile.work(is_backward=is_backward) for is_backward in (False, True)]
    forward, backward = work if timed is None else (timed.forward, timed.backward)
    total, rows = sum(forward) + sum(backward), dict[str, Array]()
    for layer, ahead, back in zip(profile.layers, forward, backward, strict=True):
        row = np.array([ahead / total, back / total, layer.parameters])
        rows[layer.block] = rows.get(layer.block, 0.0) + row
    return rows


def _units(profile: ModelProfile, timed: Compute | None, is_gathered: bool) -> Array:
    """Return the forward shares, backward shares and parameters of FSDP units. Without FSDP, the model is one unit."""
    rows = list[Array]()
    for row in _block_rows(profile, timed).values():
        if rows and not row[2]:
            rows[-1] = rows[-1] + row
        else:
            rows.append(row)
    units = np.array(rows).T
    return units if is_gathered else units.sum(axis=1, keepdims=True)


def _buckets(profile: ModelProfile, timed: Compute | None, item: float, size_mb: float, is_overlapped: bool) -> Array:
    """Return each gradient bucket's share of the bytes, and the share of backward after which it is ready."""
    if not is_overlapped:
        return np.array([[1.0], [1.0]])
    gradients = profile.gradients(int(item) or 4, None if timed is None else timed.backward)
    buckets = fill_buckets(gradients, round(size_mb * MIB))
    sizes = np.array([bucket.nbytes for bucket in buckets], dtype=float)
    return np.array([sizes / sizes.sum(), [bucket.ready for bucket in buckets]])


def _stages(profile: ModelProfile, timed: Compute | None, count: float) -> Array:
    if not count:
        return np.zeros((len(STAGE), 1))
    rows, stages = _block_rows(profile, timed), cut_stages(profile, int(count))
    sent = [[stage[-1].output_bytes / profile.item_bytes] for stage in stages]
    shares = [np.sum([rows[block.name] for block in stage], axis=0) for stage in stages]
    return np.hstack([np.array(shares), np.array(sent)]).T
