"""Checks of lesson 11, which compare the chosen mesh with all meshes that ``ringlab search`` predicts."""

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from collectives.training.parallelism import Parallelism
from course.checks.exercise import Exercise, Predicted, Shown, WrongAnswerError, expect_close
from planner.hosts import host_of_preset
from planner.jobs import Job, find_model
from planner.prediction import Training
from planner.search import FoundMeshes, search

DEVICES, BATCH, TOKENS, PRICE, BUDGET = 64, 128, 10e9, 2.5, 7500.0
KEYS = {"tensor": "tp", "pipeline": "pp", "context": "cp", "data": "dp", "micro_batch": "micro_batch",
        "strategy": "sharding", "recompute": "recompute"}  # fmt: skip
CHOICES = {"strategy": ("ddp", "zero1", "zero2", "zero3"), "recompute": ("none", "selective", "op", "full")}
PARTS = "compute", "tensor", "context", "pipeline", "sync"


@cache
def meshes() -> FoundMeshes:
    one_a_device = Parallelism(data=DEVICES)
    job = Job(find_model("llama2-70b"), BATCH / DEVICES, one_a_device, precision="bf16", optimizer="adamw")
    return search(Training(job, host_of_preset("dgx-h100")))


def numbers_of(mesh: Any, whose: str) -> list[int]:
    """Return the indices of the predicted meshes that match ``mesh``. Raise WrongAnswerError if none matches."""
    if not isinstance(mesh, dict) or set(mesh) != set(KEYS):
        raise WrongAnswerError(f"{whose} must be a dict with the keys {', '.join(KEYS)}, not {mesh!r}")
    for key, value in mesh.items():
        allowed = CHOICES.get(key)
        if allowed is None and (not isinstance(value, int) or value < 1):
            raise WrongAnswerError(f"{whose}: {key} must be a positive integer, not {value!r}")
        if allowed is not None and value not in allowed:
            raise WrongAnswerError(f"{whose}: {key} must be one of {', '.join(allowed)}, not {value!r}")
    product = mesh["tensor"] * mesh["pipeline"] * mesh["context"] * mesh["data"]
    if product != DEVICES:
        raise WrongAnswerError(f"{whose}: {mesh} must use {DEVICES} devices, not {product}")
    wanted = {KEYS[key]: value for key, value in mesh.items()}
    same = [n for n, mesh in enumerate(meshes().searched) if wanted.items() <= mesh._asdict().items()]
    if not same:
        raise WrongAnswerError(
            f"{whose}: `ringlab search` does not list {mesh}; the mesh must divide heads, layers and batch evenly, and "
            "have at least as many micro batches as stages"
        )
    return same


@Exercise("model_state_bytes of lesson 8; the docstring, which says what each size divides")
def bytes_per_device(lesson: ModuleType) -> None:
    n = 70_000_000_000
    for tensor, pipeline, data, stage, wanted in (
        (8, 4, 2, 0, 16 * n / 32),
        (8, 1, 8, 1, n / 8 * 5.5),
        (2, 2, 16, 2, n / 4 * 2.875),
        (1, 1, 64, 3, 16 * n / 64),
    ):
        got = lesson.bytes_per_device(n, tensor, pipeline, data, stage)
        call_text = f"bytes_per_device(70e9, tensor {tensor}, pipeline {pipeline}, data {data}, stage {stage})"
        mine, share = n / tensor / pipeline, [data if stage >= least else 1 for least in (3, 2, 1)]
        mistakes = {
            "dividing by data in stage 0, where data divides nothing": 16 * mine / data,
            "dividing by data and tensor only: a stage holds only its own layers": wanted * pipeline,
            "dividing by data and pipeline only: tensor divides too": wanted * tensor,
            "an undivided optimizer state: tensor and pipeline divide all three": 4 * mine + 12 * n / share[2],
            "stage 3 without stages 1 and 2: a stage divides what those before it divide": mine * (2 / data + 2 + 12),
        }
        expect_close(got, wanted, call_text, mistakes=mistakes)


@Exercise("the units: tokens, tokens per second, hours")
def dollars(lesson: ModuleType) -> None:
    for tokens, tokens_per_s, devices, price in ((36e6, 1000.0, 8, 2.0), (1e9, 50_000.0, 64, 2.5)):
        wanted = tokens / tokens_per_s / 3600 * devices * price
        mistakes = {
            "a price per second: it is per hour of 3600 s": 3600 * wanted,
            "one device: you pay all of them": wanted / devices,
        }
        call_text = f"dollars({tokens:.3g} tokens, {tokens_per_s:g} per second, {devices} devices, {price} $/h)"
        expect_close(lesson.dollars(tokens, tokens_per_s, devices, price), wanted, call_text, mistakes=mistakes)


@Exercise("the table of `ringlab search llama2_70b.toml --devices 64 --batch 128`: its columns of memory and tokens/s")
def choose(lesson: ModuleType) -> None:
    all_meshes = meshes()
    same = [n for n in numbers_of(lesson.choose(), "choose()") if n in all_meshes.order]
    if not same:
        raise WrongAnswerError("choose(): the mesh does not fit into 80 GiB; use more devices or recompute activations")
    seconds, least = all_meshes.step_s[same].min(), all_meshes.step_s[all_meshes.order[0]]
    if seconds > 1.1 * least:
        raise WrongAnswerError(
            f"choose(): the step takes {seconds:.2f} s, over 10 % longer than the fastest that fits ({least:.2f} s)"
        )
    cost = TOKENS / all_meshes.tokens_per_s[same].max() / 3600 * DEVICES * PRICE
    if cost > BUDGET:
        raise WrongAnswerError(f"choose(): the training costs {cost:,.0f} dollars; the budget is {BUDGET:,.0f}")


@Exercise("`ringlab search llama2_70b.toml --devices 64 --batch 128 --why`: why each mesh loses")
def defend(lesson: ModuleType) -> None:
    cases = lesson.defend()
    if not isinstance(cases, (list, tuple)) or any(not isinstance(case, tuple) or len(case) != 2 for case in cases):
        raise WrongAnswerError(f"defend() must return a list of pairs (mesh, reason), not {cases!r}")
    reason_texts = [reason for _, reason in cases]
    if len(cases) != 3 or len(set(reason_texts)) != 3:
        raise WrongAnswerError(
            f"defend() must return three meshes with three different reasons, not {len(cases)} with {reason_texts}"
        )
    for mesh, reason in cases:
        if reason not in (*PARTS, "memory"):
            raise WrongAnswerError(f"defend(): a reason must be one of memory, {', '.join(PARTS)}, not {reason!r}")
        true = reasons(numbers_of(mesh, "defend()"))
        if reason not in true:
            raise WrongAnswerError(
                f"defend(): the reason against {mesh} must be {' or '.join(sorted(true))}, not {reason!r}"
            )


def reasons(numbers: list[int]) -> set[str]:
    all_meshes, best = meshes(), int(meshes().order[0])
    true = set()
    for number in numbers:
        if number not in all_meshes.order:
            true.add("memory")
            continue
        more = [float(all_meshes.parts[part][number] - all_meshes.parts[part][best]) for part in PARTS]
        true.add(PARTS[int(np.argmax(more))])
    return true


def predicted() -> dict[str, Predicted]:
    best = meshes().order[0]
    rate, mfu = float(meshes().tokens_per_s[best]), float(meshes().mfu[best])
    return {
        "tokens a second": Predicted(
            rate, f"The fastest mesh that fits reaches {mfu:.0%} of 64 * 989 TFLOP/s, at 6 * 69e9 FLOPs per token."
        ),
        "MFU": Predicted(
            mfu,
            "Recomputation, small matrix products and exposed messages take the rest, as in published training runs.",
        ),
    }


SHOWN = Shown(1)
