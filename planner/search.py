"""Search all device meshes of a model on a number of devices, and explain why the other meshes are slower."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from collectives.errors import InputError
from collectives.quoting import close_names, quote
from collectives.records.model_profile import TransformerShape, flops_per_token
from collectives.training.parallelism import RECOMPUTED
from planner.beliefs import Z_80, Belief, Slopes, believe, chance_to_run, find_slopes, read_shipped
from planner.columns import Columns, make_columns
from planner.hosts import Array, Host
from planner.jobs import DEFAULTS
from planner.memory import FILL, memory_parts
from planner.memory import PARTS as MEMORY_PARTS
from planner.runs import RUN_BUCKETS_MB
from planner.step import step_parts

MOST_TENSOR, MOST_CHUNKS, MOST_CONTEXT, MOST_MICRO = 64, 8, 16, 64
TRIES = 3
AMONG = 100  # fastest meshes from which the meshes to measure are chosen
LORA_RANK = 16  # rank of the adapters that are proposed if no mesh fits


@dataclass(frozen=True, kw_only=True)
class MeshJob:
    """A training run of a language model on identical hosts.

    ``batch`` is the number of sequences per step, of ``seq`` tokens each.
    """

    kind: str  # gpt, bert or llama
    shape: TransformerShape
    seq: int
    batch: int
    host: Host
    gpus: int
    precision: str = "bf16"
    framework: str = "other"
    compiled: bool = False
    optimizer: str = "adamw"
    lora: int = 0
    frozen_bits: str = "16"
    experts: int = 0  # per layer; a token visits ``top_k`` of them
    top_k: int = 0
    with_zero_bubble: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)  # further columns, with the same value for all meshes

    @property
    def gpu(self) -> str:
        """The GPU's name in the catalog."""
        return self.host.device.name

    @property
    def table(self) -> dict[str, Any]:
        """The columns that are the same for all meshes."""
        shape, is_llama = self.shape, self.kind == "llama"
        return {
            **{name: value for name, value in vars(self).items() if name in DEFAULTS},
            "layers": shape.layers, "hidden": shape.width, "heads": shape.heads, "kv_heads": shape.kv_heads,
            "head_dim": shape.width // shape.heads, "ffn": shape.hidden, "mlp_matrices": 3 if is_llama else 2,
            "vocab": shape.vocabulary, "tied": int(not is_llama), "expert_ffn": shape.hidden if self.experts else 0,
            "bucket_mb": RUN_BUCKETS_MB, **self.more,
        }  # fmt: skip


def divisors(number: int, most: int) -> list[int]:
    """Return the divisors of ``number`` that are at most ``most``, in rising order."""
    return [divisor for divisor in range(1, min(number, most) + 1) if number % divisor == 0]


class SearchedMesh(NamedTuple):
    """A device mesh with its micro-batch, sharding, recomputation and schedule. Fields are named after columns."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    dp: int = 1
    ep: int = 1
    vp: int = 1
    micro_batch: int = 1
    grad_accum: int = 1
    sharding: str = "ddp"
    recompute: str = "none"
    schedule: str = "1f1b"
    sequence_parallel: int = 1  # only matters with tp > 1

    @property
    def name(self) -> str:
        """The name of the mesh, such as ``zero3 8, tp 2, mb 4, full``."""
        axes = [f"{self.sharding} {self.dp}"]
        axes += [f"{name} {size}" for name in ("tp", "cp", "ep", "pp", "vp") if (size := getattr(self, name)) > 1]
        axes += ["zero-bubble"] if self.schedule == "zero_bubble" else []
        again = [] if self.recompute == "none" else [self.recompute]
        return ", ".join([*axes, f"mb {self.micro_batch}", *again])


def enumerate_meshes(job: MeshJob) -> list[SearchedMesh]:
    """Return the meshes that divide a job's devices, layers, heads and batch. Raise InputError if there are none."""
    if meshes := [*_meshes(job)]:
        return meshes
    raise InputError(
        f"no mesh of {job.gpus} devices splits a batch of {job.batch} sequences equally; "
        "change the batch size or the number of devices"
    )


def _meshes(job: MeshJob) -> Iterator[SearchedMesh]:
    shape = job.shape
    tensors = [t for t in divisors(shape.heads, MOST_TENSOR) if t == 1 or shape.hidden % t == 0]
    # each part of a sequence has at least 1024 tokens
    contexts = [c for c in (1, 2, 4, 8, MOST_CONTEXT) if c == 1 or (job.seq // c >= 1024 and job.seq % c == 0)]
    for tp, pp, cp in product(tensors, divisors(shape.layers, shape.layers), contexts):
        dp, rest = divmod(job.gpus, tp * pp * cp)
        if rest or (tp > job.host.gpus and tp % job.host.gpus) or job.batch % dp:
            continue
        experts = [e for e in divisors(job.experts, job.experts) if dp * cp % e == 0] or [1]
        for micro in (m for m in divisors(job.batch // dp, MOST_MICRO) if m & (m - 1) == 0):
            count = job.batch // dp // micro
            if pp > 1 and count < pp:
                continue
            sizes = {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "micro_batch": micro, "grad_accum": count}
            shardings = _shardings(job, size=dp * cp, tp=tp, is_one_stage=pp == 1)
            rows = product(_schedules(job, pp, count), shardings, RECOMPUTED, experts)
            for (schedule, vp), sharding, recompute, ep in rows:
                yield SearchedMesh(**sizes, ep=ep, vp=vp, sharding=sharding, recompute=recompute, schedule=schedule)


def _schedules(job: MeshJob, pp: int, count: int) -> list[tuple[str, int]]:
    """Return the possible pipeline schedules, each with its number of chunks per device."""
    if pp == 1:
        return [("none", 1)]
    chunks = [v for v in divisors(job.shape.layers // pp, MOST_CHUNKS) if v > 1 and count % pp == 0]
    schedules = [("1f1b", 1), *(("interleaved", v) for v in chunks)]
    return [*schedules, ("zero_bubble", 1)] if job.with_zero_bubble else schedules


def _shardings(job: MeshJob, size: int, tp: int, is_one_stage: bool) -> tuple[str, ...]:
    if size == 1:
        return ("ddp",)
    shardings = ("ddp", "zero1", "zero2", "zero3") if is_one_stage else ("ddp", "zero1", "zero3")
    return (*shardings, "hsdp") if is_one_stage and tp < job.host.gpus < size * tp else shardings


@dataclass(frozen=True, kw_only=True)
class PredictedMeshes:
    """Predictions of several meshes, as arrays with one value per mesh."""

    columns: Columns
    parts: Mapping[str, Array]  # seconds of a step by part, and in total
    memory: Mapping[str, Array]  # bytes of the fullest device by part, and in total
    chance: Array  # probability that the run does not fail
    belief: Belief

    @property
    def step_s(self) -> Array:
        return self.parts["total"]

    def fit_into(self, fill: float) -> Array:
        """Return a boolean mask of the meshes that use at most the share ``fill`` of a device's memory."""
        return np.asarray(self.memory["total"] <= fill * self.columns.memory_bytes)


@dataclass(frozen=True, kw_only=True)
class FoundMeshes(PredictedMeshes):
    """Predictions of a job's meshes. ``order`` has the indices of meshes that fit into memory, the fastest first."""

    job: MeshJob
    searched: Sequence[SearchedMesh]
    order: Array

    def slopes(self, numbers: Sequence[int] | Array) -> Slopes:
        """Return the linear model of the step times of the meshes with these indices."""
        return find_slopes(self.columns.take(np.asarray(numbers, dtype=int)), self.belief.parameters)

    def factors(self, numbers: Sequence[int] | Array) -> Array:
        """Return, for each of these meshes, the upper end of the 80 % interval divided by the predicted step time."""
        return self.belief.factors_of(self.slopes(numbers))

    @property
    def tokens_per_s(self) -> Array:
        """The tokens per second of all devices together."""
        return np.asarray(self.job.batch * self.job.seq / self.step_s)

    @property
    def mfu(self) -> Array:
        """Model FLOPs utilization. It includes attention and excludes recomputation."""
        job = self.job
        shape = job.shape._replace(context=job.seq, hidden=job.shape.hidden * max(1, job.top_k))
        flops = flops_per_token(job.kind, shape, is_frozen=job.lora > 0)
        return np.asarray(flops * self.tokens_per_s / (self.columns.gpus * self.columns.peak))

    @property
    def front(self) -> list[int]:
        """The indices of the meshes on the Pareto front of step time and memory, the fastest first."""
        points = zip(self.step_s[self.order].tolist(), self.memory["total"][self.order].tolist(), strict=True)
        return [int(self.order[place]) for place in pareto_front([*points])]


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points on the Pareto front, which minimizes both numbers, ordered by the first number.

    Among equal points, the first one is returned.
    """
    front, least = list[int](), float("inf")
    for place in sorted(range(len(points)), key=points.__getitem__):
        if points[place][1] < least:
            front.append(place)
            least = points[place][1]
    return front


def search(job: MeshJob, belief: Belief | None = None, fill: float = FILL) -> FoundMeshes:
    """Predict every mesh of a job. Meshes that fill more than ``fill`` of a device's memory are not in ``order``."""
    return predict_meshes(job, enumerate_meshes(job), belief, fill)


def predict_meshes(
    job: MeshJob, searched: Sequence[SearchedMesh], belief: Belief | None = None, fill: float = FILL
) -> FoundMeshes:
    """Predict the step time and the memory of the given meshes. Raise InputError if the job is not supported."""
    meshes = _predict(job.table, searched, belief or believe())
    fits = np.flatnonzero(meshes.fit_into(fill))
    order = fits[np.argsort(meshes.step_s[fits], kind="stable")]
    return FoundMeshes(**vars(meshes), job=job, searched=searched, order=order)


def predict_jobs(rows: Sequence[tuple[MeshJob, SearchedMesh]], belief: Belief) -> PredictedMeshes:
    """Predict one mesh for each of several jobs, as rows of the same arrays.

    Collective times come from NCCL's curves for all jobs or, if the first job has a simulated network, from that
    network for all jobs. Raise InputError for an unsupported job.
    """
    tables = [job.table for job, _ in rows]
    names = {name for table in tables for name in table}
    table = {name: [each.get(name, DEFAULTS[name]) for each in tables] for name in names}
    return _predict(table, [mesh for _, mesh in rows], belief)


def _predict(table: Mapping[str, Any], meshes: Sequence[SearchedMesh], belief: Belief) -> PredictedMeshes:
    columns: dict[str, Any] = dict(zip(SearchedMesh._fields, map(list, zip(*meshes, strict=True)), strict=True))
    columns["sequence_parallel"] = [int(mesh.tp > 1 and mesh.sequence_parallel > 0) for mesh in meshes]
    c = make_columns({**table, **columns, "count": columns.pop("grad_accum")}, len(meshes))
    parts, memory = step_parts(c, belief.parameters), memory_parts(c, read_shipped().memory)
    chance = chance_to_run(c, memory["total"])
    return PredictedMeshes(columns=c, parts=parts, memory=memory, chance=chance, belief=belief)


def choose_runs(meshes: FoundMeshes, count: int = TRIES) -> tuple[list[int], float, float]:
    """Return the indices of up to ``count`` meshes whose measurement would narrow the intervals most.

    Also return the median half-width of the meshes' 80 % intervals, as a logarithm, before and after the measurements.
    """
    slopes = meshes.slopes(meshes.order[:AMONG])
    chosen = meshes.belief.choose_runs(slopes, count)
    taught = meshes.belief.after_runs(slopes.slopes[chosen])
    before, after = (float(np.median(belief.deviations(slopes))) for belief in (meshes.belief, taught))
    return [int(meshes.order[place]) for place in chosen], Z_80 * before, Z_80 * after


def what_would_fit(job: MeshJob, belief: Belief | None = None, fill: float = FILL) -> dict[str, FoundMeshes]:
    """Return the predicted meshes after each change that makes a job fit into memory, by the description of the change.

    Changes are 8-bit optimizer states, LoRA, half the sequence length, and the fewest of 2, 4, 8 or 16 times as many
    devices that suffice.
    """
    changes: dict[str, dict[str, Any]] = {
        "AdamW with 8-bit states": {"optimizer": "adamw8bit"},
        f"LoRA of rank {LORA_RANK}": {"lora": LORA_RANK, "frozen_bits": "16"},
        f"LoRA of rank {LORA_RANK} with 4-bit weights": {"lora": LORA_RANK, "frozen_bits": "4"},
        f"sequences of {job.seq // 2} tokens": {"seq": job.seq // 2},
    }
    for factor in (2, 4, 8, 16):
        batch = job.batch if job.batch >= factor * job.gpus else factor * job.batch
        changes[f"{factor * job.gpus} devices"] = {"gpus": factor * job.gpus, "batch": batch}
    remedies = dict[str, FoundMeshes]()
    for name, change in changes.items():
        gpus = change.get("gpus", job.gpus)
        if gpus > job.host.gpus and (not job.host.nic or gpus % job.host.gpus):
            continue  # no network connects as many hosts
        if "gpus" in change and any("devices" in remedy for remedy in remedies):
            break
        with suppress(InputError):  # no mesh is possible
            changed = replace(job, **change)
            if changed != job and len((found := search(changed, belief, fill)).order):
                remedies[name] = found
    return remedies


LISTED_PARTS = 2  # parts of a step or of memory that a sentence names
LISTED_SHARE = 0.005  # minimum share of a step for a part to be named
AXES = (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context"), ("ep", "experts"))


def why_others_lose(meshes: FoundMeshes) -> Iterator[tuple[str, str]]:
    """Yield each other family with its best mesh, and the reason why that mesh is slower or does not fit.

    Meshes of a family have the same sharding, and more than one device on the same axes. Families that fit come first,
    the fastest first. The others are ordered by the memory they need. If no mesh fits, yield nothing.
    """
    fitting, seen = dict.fromkeys(meshes.order.tolist()), set[str]()
    by_memory = np.argsort(meshes.memory["total"], kind="stable").tolist()
    too_large = [number for number in by_memory if number not in fitting]
    best = next(iter(fitting), 0)
    for number in (*fitting, *too_large) if fitting else ():
        mesh = meshes.searched[number]
        family = ", ".join([mesh.sharding, *(word for axis, word in AXES if getattr(mesh, axis) > 1)])
        if family not in seen and number != best:
            loses = why_slower(meshes, number, best) if number in fitting else why_too_large(meshes, number)
            yield family, f"{mesh.name}: {loses}"
        seen.add(family)


def why_slower(meshes: FoundMeshes, number: int, than: int) -> str:
    """Describe by how much, and in which parts, a step of mesh ``number`` is longer than a step of mesh ``than``."""
    mine, best = ({name: float(seconds[row]) for name, seconds in meshes.parts.items()} for row in (number, than))
    best_total = best["total"]
    more = {name: (mine[name] - best[name]) / best_total for name in mine if name != "total"}
    names = sorted((name for name in more if more[name] > LISTED_SHARE), key=lambda name: -more[name])[:LISTED_PARTS]
    slower = mine["total"] / best_total - 1
    if slower <= 0 or not names:
        return "as fast"
    return f"{slower:.0%} longer, " + ", ".join(f"{name} {more[name]:+.0%}" for name in names)


def why_too_large(meshes: FoundMeshes, number: int) -> str:
    """Describe how much memory a mesh needs, with its largest parts."""
    sizes = {name: float(meshes.memory[name][number]) for name in MEMORY_PARTS}
    names = sorted(sizes, key=lambda name: -sizes[name])[:LISTED_PARTS]
    most = ", ".join(f"{name} {sizes[name] / 2**30:.0f}" for name in names)
    total, limit = meshes.memory["total"][number], meshes.columns.memory_bytes[number]
    return f"needs {total / 2**30:.0f} GiB of {limit / 2**30:.0f}: {most}"


def keep_mesh(meshes: FoundMeshes, name: str) -> tuple[FoundMeshes, str]:
    """Return the predictions of only the mesh with this name, and a sentence that compares it with the fastest mesh.

    Raise InputError if the mesh does not exist or does not fit.
    """
    wanted = ", ".join(part.strip() for part in name.split(","))
    number = next((place for place, mesh in enumerate(meshes.searched) if mesh.name == wanted), None)
    if number is None:
        close = close_names(wanted, [mesh.name for mesh in meshes.searched])
        meant = f"did you mean {' or '.join(close)}" if close else f"names look like {meshes.searched[0].name}"
        raise InputError(f"{quote(name)} is not a mesh of {meshes.job.gpus} devices; {meant}")
    if number not in meshes.order:
        raise InputError(f"mesh {quote(name)} does not fit: it {why_too_large(meshes, number)}")
    best = int(meshes.order[0])
    beside = f"{wanted}, compared with the fastest, {meshes.searched[best].name}: {why_slower(meshes, number, best)}."
    return replace(meshes, order=np.array([number])), beside
