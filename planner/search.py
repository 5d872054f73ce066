"""Predict every device mesh on which a model can train on N devices, and compare the meshes with the fastest."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from collectives.errors import InputError
from collectives.quoting import close_names, quote
from collectives.records.model_profile import parse_transformer
from collectives.training.parallelism import RECOMPUTED
from planner.beliefs import Z_80, Slopes, find_slopes
from planner.hosts import Array
from planner.jobs import SearchedMesh
from planner.memory import FILL
from planner.memory import PARTS as MEMORY_PARTS
from planner.prediction import PredictedMeshes, Training, predict_table

MOST_TENSOR, MOST_CHUNKS, MOST_CONTEXT, MOST_MICRO = 64, 8, 16, 64
TRIES = 3
AMONG = 100  # fastest meshes from which the meshes to measure are chosen
LORA_RANK = 16  # rank of the adapters that are proposed if no mesh fits


def divisors(number: int, most: int) -> list[int]:
    """Return the divisors of ``number`` that are at most ``most``, in ascending order."""
    return [divisor for divisor in range(1, min(number, most) + 1) if number % divisor == 0]


def enumerate_meshes(training: Training) -> list[SearchedMesh]:
    """Return all meshes that evenly split the devices, layers, heads and batch. Raise InputError if there are none."""
    if meshes := [*_meshes(training)]:
        return meshes
    raise InputError(
        f"no mesh of {training.job.parallelism.devices} devices splits a batch of {training.job.global_batch} "
        "sequences equally; change the batch size or the number of devices"
    )


def _meshes(training: Training) -> Iterator[SearchedMesh]:
    job, host_gpus, batch = training.job, training.host.gpus, training.job.global_batch
    _, shape = parse_transformer(job.model.model)
    tensors = [t for t in divisors(shape.heads, MOST_TENSOR) if t == 1 or shape.hidden % t == 0]
    # each part of a sequence has at least 1024 tokens
    contexts = [
        c for c in (1, 2, 4, 8, MOST_CONTEXT) if c == 1 or (shape.context // c >= 1024 and shape.context % c == 0)
    ]
    for tp, pp, cp in product(tensors, divisors(shape.layers, shape.layers), contexts):
        dp, rest = divmod(job.parallelism.devices, tp * pp * cp)
        if rest or (tp > host_gpus and tp % host_gpus) or batch % dp:
            continue
        experts = [e for e in divisors(job.parallelism.experts, job.parallelism.experts) if dp * cp % e == 0] or [1]
        for micro in (m for m in divisors(batch // dp, MOST_MICRO) if m & (m - 1) == 0):
            count = batch // dp // micro
            if pp > 1 and count < pp:
                continue
            sizes = {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "micro_batch": micro, "grad_accum": count}
            sizes["sequence_parallel"] = int(tp > 1)
            shardings = _shardings(host_gpus, size=dp * cp, tp=tp, is_one_stage=pp == 1)
            schedules = _schedules(shape.layers, pp, count, with_zero_bubble=job.with_zero_bubble)
            for (schedule, vp), sharding, recompute, ep in product(schedules, shardings, RECOMPUTED, experts):
                yield SearchedMesh(**sizes, ep=ep, vp=vp, sharding=sharding, recompute=recompute, schedule=schedule)


def _schedules(layers: int, pp: int, count: int, *, with_zero_bubble: bool) -> list[tuple[str, int]]:
    """Return the possible pipeline schedules, each with its number of chunks per device."""
    if pp == 1:
        return [("none", 1)]
    chunks = [v for v in divisors(layers // pp, MOST_CHUNKS) if v > 1 and count % pp == 0]
    schedules = [("1f1b", 1), *(("interleaved", v) for v in chunks)]
    return [*schedules, ("zero_bubble", 1)] if with_zero_bubble else schedules


def _shardings(host_gpus: int, size: int, tp: int, is_one_stage: bool) -> tuple[str, ...]:
    if size == 1:
        return ("ddp",)
    shardings = ("ddp", "zero1", "zero2", "zero3") if is_one_stage else ("ddp", "zero1", "zero3")
    return (*shardings, "hsdp") if is_one_stage and tp < host_gpus < size * tp else shardings


@dataclass(frozen=True, kw_only=True)
class FoundMeshes(PredictedMeshes):
    """Predicted meshes of a training. ``order`` has the indices of the meshes that fit into memory, fastest first."""

    training: Training
    searched: Sequence[SearchedMesh]
    order: Array

    def slopes(self, numbers: Sequence[int] | Array) -> Slopes:
        """Return the log step times of the meshes with indices ``numbers``, and how they depend on the parameters."""
        return find_slopes(self.columns.take(np.asarray(numbers, dtype=int)), self.training.belief.parameters)

    def factors(self, numbers: Sequence[int] | Array) -> Array:
        """Return the upper bound of each mesh's 80 % interval, divided by its predicted step time."""
        return self.training.belief.factors_of(self.slopes(numbers))

    @property
    def tokens_per_s(self) -> Array:
        """The tokens per second of all devices together, for each mesh."""
        return np.asarray(self.training.job.global_batch * self.training.job.model.tokens / self.step_s)

    @property
    def mfu(self) -> Array:
        """The model FLOPs utilization of each mesh. Model FLOPs include attention and exclude recomputation."""
        return np.asarray(self.training.job.token_flops * self.tokens_per_s / (self.columns.gpus * self.columns.peak))

    @property
    def front(self) -> list[int]:
        """The indices of the meshes on the Pareto front of step time and memory, the fastest first."""
        points = zip(self.step_s[self.order].tolist(), self.memory["total"][self.order].tolist(), strict=True)
        return [int(self.order[place]) for place in pareto_front([*points])]


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the Pareto-optimal points, where lower is better, sorted by the first number.

    If points are equal, only the first one is returned.
    """
    front, least = list[int](), float("inf")
    for place in sorted(range(len(points)), key=points.__getitem__):
        if points[place][1] < least:
            front.append(place)
            least = points[place][1]
    return front


def search(training: Training, fill: float = FILL, *others: SearchedMesh) -> FoundMeshes:
    """Predict all meshes and ``others``. Meshes that fill more than a share ``fill`` of memory are not in ``order``."""
    if (job := training.job).is_global:
        training = replace(training, job=replace(job, batch=job.batch / job.parallelism.data, is_global=False))
    return predict_meshes(training, [*dict.fromkeys([*enumerate_meshes(training), *others])], fill)


def predict_meshes(training: Training, searched: Sequence[SearchedMesh], fill: float = FILL) -> FoundMeshes:
    """Predict a training's step time and memory on each mesh. Raise InputError if the GPU is not in the catalog."""
    meshes = predict_table(training.table, searched, training.belief)
    fits = np.flatnonzero(meshes.fit_into(fill))
    order = fits[np.argsort(meshes.step_s[fits], kind="stable")]
    return FoundMeshes(**vars(meshes), training=training, searched=searched, order=order)


def choose_runs(meshes: FoundMeshes, count: int = TRIES) -> tuple[list[int], float, float]:
    """Return the indices of up to ``count`` meshes whose measured step times would narrow the intervals most.

    Also return the median half-width of the meshes' 80 % intervals before and after these measurements. Half-widths are
    differences of logarithms.
    """
    slopes = meshes.slopes(meshes.order[:AMONG])
    chosen = meshes.training.belief.choose_runs(slopes, count)
    taught = meshes.training.belief.after_runs(slopes.slopes[chosen])
    before, after = (float(np.median(belief.deviations(slopes))) for belief in (meshes.training.belief, taught))
    return [int(meshes.order[place]) for place in chosen], Z_80 * before, Z_80 * after


def what_would_fit(training: Training, fill: float = FILL) -> dict[str, FoundMeshes]:
    """Return changes to a training that make it fit into memory, with the predicted meshes of each changed training.

    The keys describe the changes: 8-bit optimizer states, LoRA, half the sequence length, or more devices. Of 2, 4, 8
    and 16 times as many devices, only the smallest number that suffices is returned.
    """
    job, host, tokens = training.job, training.host, max(1, training.job.model.tokens // 2)
    changes: dict[str, dict[str, Any]] = {
        "AdamW with 8-bit states": {"optimizer": "adamw8bit"},
        f"LoRA of rank {LORA_RANK}": {"lora": LORA_RANK, "frozen_bits": "16"},
        f"LoRA of rank {LORA_RANK} with 4-bit weights": {"lora": LORA_RANK, "frozen_bits": "4"},
        f"sequences of {tokens} tokens": {"model": job.model.with_sequence(tokens)},
    }
    for factor in (2, 4, 8, 16):
        data, batch = factor * job.parallelism.devices, job.batch / factor if job.batch >= factor else job.batch
        changes[f"{data} devices"] = {"parallelism": replace(job.parallelism, data=data), "batch": batch}
    remedies = dict[str, FoundMeshes]()
    for name, change in changes.items():
        gpus = change.get("parallelism", job.parallelism).devices
        if gpus > host.gpus and (not host.nic or gpus % host.gpus):
            continue  # no network connects as many hosts
        if "parallelism" in change and any("devices" in remedy for remedy in remedies):
            break
        with suppress(InputError):  # no mesh is possible
            changed = replace(job, **change)
            if changed != job and len((found := search(replace(training, job=changed), fill)).order):
                remedies[name] = found
    return remedies


LISTED_PARTS = 2  # parts of a step or of memory that a sentence names
LISTED_SHARE = 0.005  # minimum share of a step for a part to be named
AXES = (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context"), ("ep", "experts"))


def why_others_lose(meshes: FoundMeshes) -> Iterator[tuple[str, str]]:
    """Yield the name of each family of meshes, and why its best mesh is slower than the fastest or does not fit.

    Meshes of a family have the same sharding, and split the model along the same axes. The fastest mesh's family is
    omitted. Families that fit come first, sorted by step time. The others are sorted by memory. If no mesh fits, yield
    nothing.
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
    """Say by how much, and in which parts, a step on mesh ``number`` takes longer than a step on mesh ``than``."""
    mine, best = ({name: float(seconds[row]) for name, seconds in meshes.parts.items()} for row in (number, than))
    best_total = best["total"]
    more = {name: (mine[name] - best[name]) / best_total for name in mine if name != "total"}
    names = sorted((name for name in more if more[name] > LISTED_SHARE), key=lambda name: -more[name])[:LISTED_PARTS]
    slower = mine["total"] / best_total - 1
    if slower <= 0 or not names:
        return "as fast"
    return f"{slower:.0%} longer, " + ", ".join(f"{name} {more[name]:+.0%}" for name in names)


def why_too_large(meshes: FoundMeshes, number: int) -> str:
    """Say how much memory a mesh needs, how much a device has, and which parts of the memory are the largest."""
    sizes = {name: float(meshes.memory[name][number]) for name in MEMORY_PARTS}
    names = sorted(sizes, key=lambda name: -sizes[name])[:LISTED_PARTS]
    most = ", ".join(f"{name} {sizes[name] / 2**30:.0f} GiB" for name in names)
    total, limit = meshes.memory["total"][number], meshes.columns.memory_bytes[number]
    return f"needs {total / 2**30:.0f} GiB, but a device has {limit / 2**30:.0f} GiB: {most}"


def keep_mesh(meshes: FoundMeshes, name: str) -> tuple[FoundMeshes, str]:
    """Return the predictions with only mesh ``name`` in ``order``, and a sentence that compares it with the fastest.

    Raise InputError if the mesh does not exist or does not fit.
    """
    wanted = ", ".join(part.strip() for part in name.split(","))
    number = next((place for place, mesh in enumerate(meshes.searched) if mesh.name == wanted), None)
    if number is None:
        close, job = close_names(wanted, [mesh.name for mesh in meshes.searched]), meshes.training.job
        hint = f"did you mean {' or '.join(close)}" if close else f"names look like {meshes.searched[0].name}"
        size = f"{job.parallelism.devices} devices and a global batch of {job.global_batch}"
        raise InputError(f"{quote(name)} is not a mesh of {size}; {hint}")
    if number not in meshes.order:
        raise InputError(f"mesh {quote(name)} does not fit: it {why_too_large(meshes, number)}")
    best = int(meshes.order[0])
    beside = f"{wanted}, compared with the fastest, {meshes.searched[best].name}: {why_slower(meshes, number, best)}."
    return replace(meshes, order=np.array([number])), beside
