"""All meshes for a model on so many devices: which are fastest, which fit, which three to try, and why others lose."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from collectives.errors import InputError
from collectives.records.model_profile import TransformerShape
from collectives.records.transformer_shapes import flops_per_token
from simcomm.mesh_search.columns import COLUMNS, RECOMPUTED, Array, Meshes, make_columns
from simcomm.mesh_search.memory import Memory, memory_bytes
from simcomm.mesh_search.runs import complete
from simcomm.mesh_search.step import MeshSeconds, step_seconds
from simcomm.mesh_search.uncertainty import chance_to_fit, interval_factors, read_shipped

FILL = 0.85  # of a device, above which allocators free and retry, and most published runs failed
MOST_TENSOR, MOST_CHUNKS, MOST_CONTEXT, MOST_MICRO = 64, 8, 16, 64
LEAST_TOKENS = 1024  # of a sequence's part, with context parallelism
TRIES = 3
DRAWS = 400
FEATURES = {  # of a mesh, each of which may be off on a cluster by so much, as a deviation of the logarithm
    "tensor": 0.10, "pipeline": 0.10, "context": 0.15, "zero3": 0.08, "recompute": 0.04, "small batch": 0.06,
    "across nodes": 0.12, "memory": 0.05,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MeshJob:
    """A training of a language model on devices of one kind.

    ``batch`` counts sequences of ``seq`` tokens in a step of all devices; rates are bytes a second of a device.
    """

    kind: str  # gpt, bert or llama
    shape: TransformerShape
    seq: int
    batch: int
    gpu: str
    gpus: int
    node_gpus: int
    nic_rate: float
    peer_rate: float | None = None  # between GPUs of a node, where it is not the GPU's own
    precision: str = "bf16"
    framework: str = "other"
    attention: str = "flash"
    is_compiled: bool = False

    @property
    def row(self) -> dict[str, Any]:
        """What all its meshes share, as a row of a table of runs."""
        shape, is_llama = self.shape, self.kind == "llama"
        return {
            "layers": shape.layers, "hidden": shape.width, "heads": shape.heads, "kv_heads": shape.kv_heads,
            "head_dim": shape.width // shape.heads, "ffn": shape.hidden, "mlp_matrices": 3 if is_llama else 2,
            "vocab": shape.vocabulary, "tied": int(not is_llama), "seq": self.seq, "gpu": self.gpu,
            "gpus": self.gpus, "global_batch": self.batch, "node_gpus": self.node_gpus,
            "nic_gbps": self.nic_rate / 1e9, "precision": self.precision, "framework": self.framework,
            "attention": self.attention, "compile": int(self.is_compiled),
        }  # fmt: skip


def divisors(number: int, most: int) -> list[int]:
    """Return the divisors of a number up to ``most``.

    >>> divisors(12, 6)
    [1, 2, 3, 4, 6]
    """
    return [one for one in range(1, min(number, most) + 1) if number % one == 0]


VARIED = ("tp", "pp", "cp", "dp", "vp", "micro_batch", "grad_accum", "sharding", "recompute")
Mesh = tuple[int, int, int, int, int, int, int, str, str]


def enumerate_meshes(job: MeshJob) -> list[Mesh]:
    """Return all meshes of a job: ``VARIED`` of each. Raise InputError where there is none."""
    found = [*_meshes(job)]
    if not found:
        raise InputError(
            f"there is no mesh of {job.gpus} devices for a batch of {job.batch} sequences; give a batch that the "
            "replicas divide, or another number of devices"
        )
    return found


def _meshes(job: MeshJob) -> Iterator[Mesh]:
    shape = job.shape
    tensors = [t for t in divisors(shape.heads, MOST_TENSOR) if t == 1 or shape.hidden % t == 0]
    contexts = [c for c in (1, 2, 4, 8, MOST_CONTEXT) if c == 1 or (job.seq // c >= LEAST_TOKENS and job.seq % c == 0)]
    for tp, pp, cp in product(tensors, divisors(shape.layers, shape.layers), contexts):
        dp, rest = divmod(job.gpus, tp * pp * cp)
        if rest or (tp > job.node_gpus and tp % job.node_gpus) or job.batch % dp:
            continue
        chunks = [v for v in divisors(shape.layers // pp, MOST_CHUNKS) if v == 1 or pp > 1]
        zeros: tuple[str, ...] = (
            ("ddp",) if dp * cp == 1 else ("ddp", "zero1") if pp > 1 else ("ddp", "zero1", "zero2", "zero3")
        )
        zeros += ("hsdp",) if pp == 1 and tp < job.node_gpus < dp * cp * tp else ()
        for micro in (m for m in divisors(job.batch // dp, MOST_MICRO) if m & (m - 1) == 0):
            count = job.batch // dp // micro
            if pp > 1 and count < pp:
                continue
            for vp, zero, recompute in product(chunks, zeros, RECOMPUTED):
                if vp == 1 or count % pp == 0:
                    yield tp, pp, cp, dp, vp, micro, count, zero, recompute


def _columns(job: MeshJob, found: Sequence[Mesh]) -> Meshes:
    shared = complete({**job.row, "tp": 1, "dp": job.gpus, "micro_batch": 1, "grad_accum": 1})
    table: dict[str, Sequence[Any]] = {name: [shared[name]] * len(found) for name in COLUMNS}
    table |= dict(zip(VARIED, zip(*found, strict=True), strict=True))
    table["sequence_parallel"] = [int(tp > 1) for tp in table["tp"]]
    table["schedule"] = ["interleaved" if vp > 1 else "1f1b" for vp in table["vp"]]
    meshes = make_columns(table)
    return meshes if job.peer_rate is None else replace(meshes, peer_rate=np.full(len(found), job.peer_rate))


@dataclass(frozen=True, kw_only=True)
class FoundMeshes:
    """All meshes of a job, an array a figure; ``order`` names those that fit from the fastest on."""

    job: MeshJob
    varied: list[Mesh]
    meshes: Meshes
    parts: MeshSeconds
    memory: Memory
    factor: Array  # by which a step may be longer or shorter, at 80 %
    chance: Array  # to fit
    order: Array

    def describe(self, number: int) -> dict[str, Any]:
        """Return a mesh by the names in ``VARIED``."""
        return dict(zip(VARIED, self.varied[number], strict=True))

    @property
    def step_s(self) -> Array:
        """The seconds of a step."""
        return self.parts.total

    @property
    def tokens_per_s(self) -> Array:
        """Tokens a second of all devices."""
        result: Array = self.job.batch * self.job.seq / self.parts.total
        return result

    @property
    def mfu(self) -> Array:
        """Shares of the data sheet's FLOPs, with the work of attention and none of recomputation."""
        flops = flops_per_token(self.job.kind, self.job.shape._replace(context=self.job.seq))
        result: Array = flops * self.tokens_per_s / (self.meshes.gpus * self.meshes.matrix)
        return result


def search(job: MeshJob, parameters: Mapping[str, float] | None = None, fill: float = FILL) -> FoundMeshes:
    """Predict every mesh of a job; those that fill more than ``fill`` of a device's memory are not in the order."""
    found = enumerate_meshes(job)
    shipped = read_shipped()
    meshes = _columns(job, found)
    parts, memory = step_seconds(meshes, parameters or shipped.parameters), memory_bytes(meshes, shipped.memory)
    total = memory.total
    fits = np.flatnonzero(total <= fill * meshes.memory_bytes)
    return FoundMeshes(
        job=job, varied=found, meshes=meshes, parts=parts, memory=memory, factor=interval_factors(meshes),
        chance=chance_to_fit(total, meshes.memory_bytes), order=fits[np.argsort(parts.total[fits], kind="stable")],
    )  # fmt: skip


def choose_tries(found: FoundMeshes, count: int = TRIES, among: int = 200) -> list[int]:
    """Return the meshes to try, the likeliest first: together they hold the fastest one as often as can be.

    What a cluster does to tensor groups, pipelines, ... is drawn at random, the same for all meshes that have it; the
    next one is that which raises the expected rate of the best most.
    """
    numbers = found.order[:among]
    if not len(numbers):
        return []
    rng = np.random.default_rng(0)
    features = _features(found.meshes.take(numbers), found.memory.total[numbers])
    spread = np.array(list(FEATURES.values()))
    moves = features @ (rng.standard_normal((len(FEATURES), DRAWS)) * spread[:, None])
    rates = np.exp(np.log(found.tokens_per_s[numbers])[:, None] + moves + 0.02 * rng.standard_normal(moves.shape))
    chosen = [0]
    while len(chosen) < min(count, len(numbers)):
        best = rates[chosen].max(axis=0)
        gain = np.maximum(rates - best, 0).mean(axis=1)
        gain[chosen] = -1
        chosen.append(int(np.argmax(gain)))
    return [int(numbers[one]) for one in chosen]


def _features(m: Meshes, total: Array) -> Array:
    """Return which features each mesh has, in the order of ``FEATURES``."""
    return np.stack([
        m.tp > 1, m.pp > 1, m.cp > 1, m.zero == 3, m.recompute > 0, m.micro_batch * m.seq / m.cp < 4096,
        m.tp > m.node_gpus, total > 0.8 * m.memory_bytes,
    ], axis=1).astype(float)  # fmt: skip


def pareto_front(found: FoundMeshes) -> list[int]:
    """Return the meshes that no other beats in both rate and memory, from the fastest on."""
    total, front, least = found.memory.total, list[int](), float("inf")
    for number in found.order:
        if total[number] < least:
            front.append(int(number))
            least = total[number]
    return front


def why_slower(found: FoundMeshes, number: int, than: int) -> str:
    """Say in one line which parts of a step make one mesh slower than another."""
    mine, best = found.parts.take(number), found.parts.take(than)
    more = {name: mine[name] - best[name] for name in mine if name != "total" and mine[name] > best[name]}
    lost = mine["total"] - best["total"]
    if not more or lost <= 0:
        return "as fast"
    names = sorted(more, key=lambda name: -more[name])[:2]
    return ", ".join(f"{name} {more[name] * 1e3:+.0f} ms" for name in names)


def what_would_fit(job: MeshJob, fill: float = FILL) -> list[str]:
    """Return what would make a job fit that does not: more devices, or less of each."""
    more = (job.gpus * factor for factor in (2, 4, 8, 16))
    larger = next((n for n in more if _fits(replace(job, gpus=n, batch=n * max(1, job.batch // job.gpus)), fill)), None)
    advice = [] if larger is None else [f"{larger} devices"]
    if job.seq >= 2 * LEAST_TOKENS and _fits(replace(job, seq=job.seq // 2), fill):
        advice.append(f"sequences of {job.seq // 2} tokens")
    return advice


def _fits(job: MeshJob, fill: float) -> bool:
    """Return whether a mesh of a job fits; no mesh at all does not."""
    try:
        return len(search(job, fill=fill).order) > 0
    except InputError:
        return False
