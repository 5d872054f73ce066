"""Trainings on meshes as columns, one value a training in each array, and what follows for a device of the mesh.

How frameworks deal layers to stages, how many parameters a device holds, how many of them are trained, and its tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from collectives.training.parallelism import FRAMEWORKS
from planner.gpus import GENERATIONS, PRECISIONS, find_gpu
from planner.stages import LayerSizes, deal_layers

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Meshes:
    """Models, meshes of devices and how they train, an array each.

    ``dp`` counts replicas without context parallelism, ``vp`` model chunks of a device, ``micro_batches`` those of a
    replica in a step. Bandwidths and rates are in units a second.
    """

    # the model
    layers: Array
    hidden: Array
    heads: Array
    kv_heads: Array
    head_dim: Array
    ffn: Array
    mlp_matrices: Array
    vocab: Array
    tied: Array
    experts: Array
    top_k: Array
    expert_ffn: Array
    shared_ffn: Array
    dense_layers: Array
    window: Array
    # what one step is
    seq: Array
    micro_batch: Array
    micro_batches: Array
    # the mesh
    gpus: Array
    dp: Array
    tp: Array
    cp: Array
    pp: Array
    vp: Array
    ep: Array
    zero: Array  # 0: ddp, 1: states divided, 2: gradients too, 3: parameters too
    shard: Array  # replicas that divide these: those of a node with hsdp, else all
    sequence_parallel: Array
    interleaved: Array
    zero_bubble: Array  # a schedule that computes gradients of weights where others wait
    gpipe: Array  # all forwards first
    most_layers: Array  # of the stage that has most of them
    first_layers: Array
    last_layers: Array
    # how it is computed: numbers of names in PRECISIONS, RECOMPUTED and FRAMEWORKS
    precision: Array
    is_unfused: Array  # attention that keeps its scores
    recompute: Array
    compiled: Array
    async_tp: Array
    reduce_bytes: Array  # of a gradient that is reduced
    framework: Array
    # what is trained, and where it is kept
    optimizer: Array  # numbers in OPTIMIZERS
    lora: Array  # rank of adapters, beside weights that are frozen; 0: all weights are trained
    frozen_bytes: Array  # of a weight that is not trained
    offload: Array  # numbers in OFFLOADED: what the host keeps
    # the machine
    generation: Array  # numbers in GENERATIONS
    is_limited: Array  # by power
    matrix_16: Array
    matrix: Array  # the data sheet's rate of the precision
    item_bytes: Array  # of weights as they compute
    memory_rate: Array
    peer_rate: Array
    multiprocessors: Array
    node_gpus: Array
    nic_rate: Array  # bytes a second of a GPU that leave its node
    memory_bytes: Array
    host_rate: Array  # bytes a second of a GPU to and from its host

    def __len__(self) -> int:
        return len(self.layers)

    def take(self, chosen: Array) -> "Meshes":
        """Return some of them, by numbers or by a mask."""
        return Meshes(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})


ZERO = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "hsdp": 3}
WHOLE = (
    "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "mlp_matrices", "vocab", "tied", "experts", "top_k",
    "expert_ffn", "shared_ffn", "dense_layers", "window", "seq", "micro_batch", "gpus", "dp", "tp", "cp", "pp", "vp",
    "ep", "sequence_parallel", "async_tp", "node_gpus", "lora",
)  # fmt: skip
COLUMNS = (
    *WHOLE, "gpu", "sharding", "schedule", "grad_accum", "precision", "attention", "recompute", "framework", "compile",
    "note", "nic_gbps", "gpu_memory_gb", "optimizer", "frozen_bits", "offload",
)  # fmt: skip
PRECISION_NAMES = tuple(PRECISIONS)
RECOMPUTED = ("none", "selective", "full")
SCHEDULES = ("none", "1f1b", "gpipe", "interleaved", "zero_bubble")
OPTIMIZERS = ("adamw", "adamw8bit", "sgd")
OFFLOADED = ("none", "optimizer", "parameters")  # the host keeps nothing, optimizer states, or parameters too
BITS = {"16": 2.0, "8": 1.0, "4": 0.516}  # bytes of a frozen weight: NF4 has .127 bits of scales (arXiv:2305.14314)
GPU_RATES = ("matrix_16", "memory_rate", "peer_rate", "multiprocessors", "host_rate")


def to_columns(runs: Sequence[Mapping[str, Any]]) -> Meshes:
    """Return runs, described as in ``meshes.csv``, as columns."""
    return make_columns({name: [run[name] for run in runs] for name in COLUMNS})


def make_columns(table: Mapping[str, Sequence[Any]]) -> Meshes:
    """Return a table of runs, a sequence for each of ``COLUMNS``, as columns."""
    found: dict[str, Array] = {name: np.array(table[name], dtype=float) for name in WHOLE}
    gpus = [find_gpu(name) for name in table["gpu"]]
    for name in GPU_RATES:
        found[name] = np.array([float(getattr(gpu, name)) for gpu in gpus])
    sizes = map(LayerSizes._make, zip(*(table[name] for name in LayerSizes._fields), strict=True))
    deals = zip(table["framework"], table["layers"], table["pp"], sizes, strict=True)
    most, first, last = np.array([deal_layers(*one) for one in deals], dtype=float).reshape(-1, 3).T
    group = found["dp"] * found["cp"]
    of_node = np.clip(found["node_gpus"] // found["tp"], 1, group)
    precisions = table["precision"]
    return Meshes(
        **found,
        shard=np.where(np.array([one == "hsdp" for one in table["sharding"]], dtype=bool), of_node, group),
        micro_batches=np.array(table["grad_accum"], dtype=float),
        zero=np.array([ZERO[one] for one in table["sharding"]], dtype=int),
        interleaved=np.array([one == "interleaved" for one in table["schedule"]], dtype=bool),
        zero_bubble=np.array([one == "zero_bubble" for one in table["schedule"]], dtype=bool),
        gpipe=np.array([one == "gpipe" for one in table["schedule"]], dtype=bool),
        optimizer=np.array([OPTIMIZERS.index(one) for one in table["optimizer"]], dtype=int),
        offload=np.array([OFFLOADED.index(one) for one in table["offload"]], dtype=int),
        frozen_bytes=np.array([BITS[str(one)] for one in table["frozen_bits"]]),
        precision=np.array([PRECISION_NAMES.index(one) for one in precisions], dtype=int),
        matrix=np.array([gpu.peak(one) for gpu, one in zip(gpus, precisions, strict=True)]),
        item_bytes=np.array([4.0 if one in ("tf32", "float32") else 2.0 for one in precisions]),
        is_limited=np.array([gpu.is_limited for gpu in gpus], dtype=bool),
        is_unfused=np.array([one == "unfused" for one in table["attention"]], dtype=bool),
        recompute=np.array([RECOMPUTED.index(one) for one in table["recompute"]], dtype=int),
        framework=np.array([FRAMEWORKS.index(one) for one in table["framework"]], dtype=int),
        generation=np.array([GENERATIONS.index(gpu.generation) for gpu in gpus], dtype=int),
        most_layers=most,
        first_layers=first,
        last_layers=last,
        compiled=np.array(table["compile"]),
        reduce_bytes=np.array([2.0 if "PURE" in one else 4.0 for one in table["note"]]),
        nic_rate=np.array(table["nic_gbps"], dtype=float) * 1e9,
        memory_bytes=np.array(table["gpu_memory_gb"], dtype=float) * 2**30,
    )


class ParameterCounts(NamedTuple):
    """Parameters of a layer but its experts, of a layer's experts, and of the words (once)."""

    layer: Array
    experts: Array
    words: Array


def expert_share(m: Meshes) -> Array:
    """Return the share of layers that are experts'."""
    return np.where(m.experts > 0, 1 - m.dense_layers / m.layers, 0.0)


def local_tokens(m: Meshes) -> Array:
    """Return the tokens of a micro batch on a device."""
    result: Array = m.micro_batch * m.seq / m.cp
    return result


def count_parameters(m: Meshes) -> ParameterCounts:
    """Return what a whole model has."""
    qkv, queries = (m.heads + 2 * m.kv_heads) * m.head_dim, m.heads * m.head_dim
    share = expert_share(m)
    mlp = (1 - share) * m.mlp_matrices * m.hidden * m.ffn + share * 3 * m.hidden * m.shared_ffn
    layer = m.hidden * (qkv + queries) + mlp + 2 * m.hidden
    return ParameterCounts(layer, share * m.experts * 3 * m.hidden * m.expert_ffn, m.vocab * m.hidden)


def count_trained(m: Meshes) -> ParameterCounts:
    """Return what of it is trained: all, or adapters of ``lora`` columns beside each matrix, of no words."""
    whole = count_parameters(m)
    qkv, queries = (m.heads + 2 * m.kv_heads) * m.head_dim, m.heads * m.head_dim
    share = expert_share(m)
    mlp = (1 - share) * m.mlp_matrices * (m.hidden + m.ffn) + share * 3 * (m.hidden + m.shared_ffn)
    adapters = m.lora * (2 * m.hidden + qkv + queries + mlp)
    of_experts = m.lora * share * m.experts * 3 * (m.hidden + m.expert_ffn)
    is_adapted = m.lora > 0
    return ParameterCounts(
        np.where(is_adapted, adapters, whole.layer),
        np.where(is_adapted, of_experts, whole.experts),
        np.where(is_adapted, 0.0, whole.words),
    )


class Held(NamedTuple):
    """Parameters of one device before the data axis divides anything: its experts', and all others."""

    dense: Array
    experts: Array

    @property
    def all(self) -> Array:
        """Both."""
        return self.dense + self.experts

    def divided(self, m: Meshes, by: Array) -> Array:
        """Return what is left where ``by`` devices divide them; experts those that have the same ones."""
        result: Array = self.dense / by + self.experts / np.maximum(1.0, by / m.ep)
        return result


def count_held(m: Meshes, of: ParameterCounts, layers: Array) -> Held:
    """Return what of it a device of a stage of so many layers has, the words where there is but one stage twice."""
    return Held((layers * of.layer + _ends(m) * of.words) / m.tp, layers * of.experts / m.ep)


def count_words(m: Meshes) -> Array:
    """Return the parameters of words and head on a device."""
    return _ends(m) * m.vocab * m.hidden / m.tp


def _ends(m: Meshes) -> Array:
    """Return how many of words and head a device has."""
    return np.where(m.pp > 1, 1.0, np.where(m.tied > 0, 1.0, 2.0))


def data_division(m: Meshes) -> Array:
    """Return how many devices divide an optimizer's states."""
    return np.where(m.zero == 3, m.shard, np.where(m.zero > 0, m.dp * m.cp, 1.0))
