"""Checks of lesson 11: the choice of a mesh, beside all that ``ringlab search`` predicts."""

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from collectives.records.model_profile import parse_transformer
from course.checks.exercise import Exercise, Shown, WrongAnswerError, expect_close
from planner.mesh_search.search import FoundMeshes, MeshJob, search

DEVICES, BATCH, TOKENS, PRICE, BUDGET = 64, 128, 10e9, 2.5, 7500.0
KEYS = {"tensor": "tp", "pipeline": "pp", "context": "cp", "data": "dp", "micro_batch": "micro_batch",
        "form": "sharding", "recompute": "recompute"}  # fmt: skip
CHOICES = {"form": ("ddp", "zero1", "zero2", "zero3"), "recompute": ("none", "selective", "op", "full")}
PARTS = "compute", "tensor", "context", "bubble", "p2p", "data"


@cache
def found() -> FoundMeshes:
    kind, shape = parse_transformer("llama2-70b")
    return search(
        MeshJob(
            kind=kind, shape=shape, seq=shape.context, batch=BATCH, gpu="H100 SXM", gpus=DEVICES, node_gpus=8,
            nic_rate=50e9,
        )
    )  # fmt: skip


def numbers_of(mesh: Any, whose: str) -> list[int]:
    """Return all meshes that are as a learner describes one; they differ in the chunks of a pipeline's stage."""
    if not isinstance(mesh, dict) or set(mesh) != set(KEYS):
        raise WrongAnswerError(f"{whose} should be a dict with the keys {', '.join(KEYS)} and is {mesh!r}")
    for key, value in mesh.items():
        allowed = CHOICES.get(key)
        if allowed is None and (not isinstance(value, int) or value < 1):
            raise WrongAnswerError(f"{whose}: {key} should be a number from 1 and is {value!r}")
        if allowed is not None and value not in allowed:
            raise WrongAnswerError(f"{whose}: {key} should be one of {', '.join(allowed)} and is {value!r}")
    product = mesh["tensor"] * mesh["pipeline"] * mesh["context"] * mesh["data"]
    if product != DEVICES:
        raise WrongAnswerError(f"{whose}: {mesh} is a mesh of {product} devices, not of {DEVICES}")
    wanted = {KEYS[key]: value for key, value in mesh.items()}
    same = [n for n, one in enumerate(found().searched) if wanted.items() <= one._asdict().items()]
    if not same:
        raise WrongAnswerError(
            f"{whose}: {mesh} is no mesh that `ringlab search` knows: do heads, layers and batch divide, and are there "
            "as many micro batches as stages?"
        )
    return same


def bytes_per_device(lesson: ModuleType) -> None:
    n = 70_000_000_000
    for tensor, pipeline, data, stage, wanted in (
        (8, 4, 2, 0, 16 * n / 32),
        (8, 1, 8, 1, n / 8 * 5.5),
        (1, 1, 64, 3, 16 * n / 64),
    ):
        got = lesson.bytes_per_device(n, tensor, pipeline, data, stage)
        what = f"bytes_per_device(70e9, tensor {tensor}, pipeline {pipeline}, data {data}, stage {stage})"
        mine, share = n / tensor / pipeline, [data if stage >= least else 1 for least in (3, 2, 1)]
        mistakes = {
            "data divides nothing in stage 0": 16 * mine / data,
            "pipeline divides too: a stage has its layers alone": wanted * pipeline,
            "tensor divides too": wanted * tensor,
            "tensor and pipeline divide all three, the optimizer state too": 4 * mine + 12 * n / share[2],
            "a stage divides what those before it do, too": mine * (2 / data + 2 + 12),
        }
        expect_close(got, wanted, what, mistakes=mistakes)


def dollars(lesson: ModuleType) -> None:
    mistakes = {"a price for each second: it is for an hour of 3600": 576_000.0, "one device: all 8 are paid": 20.0}
    what = "dollars(36e6 tokens, 1000 a second, 8 devices, 2 $/h)"
    expect_close(lesson.dollars(36e6, 1000.0, 8, 2.0), 160.0, what, mistakes=mistakes)


def choose(lesson: ModuleType) -> None:
    every = found()
    same = [n for n in numbers_of(lesson.choose(), "choose()") if n in every.order]
    if not same:
        raise WrongAnswerError("choose(): the mesh does not fit into 80 GiB: divide more, or recompute")
    seconds, least = every.step_s[same].min(), every.step_s[every.order[0]]
    if seconds > 1.1 * least:
        raise WrongAnswerError(
            f"choose(): the step takes {seconds:.2f} s; the fastest mesh that fits takes {least:.2f} s"
        )
    cost = TOKENS / every.tokens_per_s[same].max() / 3600 * DEVICES * PRICE
    if cost > BUDGET:
        raise WrongAnswerError(f"choose(): the training costs {cost:,.0f} dollars of {BUDGET:,.0f}")


def defend(lesson: ModuleType) -> None:
    cases = lesson.defend()
    if not isinstance(cases, (list, tuple)) or any(not isinstance(one, tuple) or len(one) != 2 for one in cases):
        raise WrongAnswerError(f"defend() should return a list of pairs, (mesh, reason), and returns {cases!r}")
    given = [reason for _, reason in cases]
    if len(cases) != 3 or len(set(given)) != 3:
        raise WrongAnswerError(
            f"defend() should return three meshes with three different reasons and returns {len(cases)}, with {given}"
        )
    for mesh, reason in cases:
        if reason not in (*PARTS, "memory"):
            raise WrongAnswerError(f"defend(): a reason is one of memory, {', '.join(PARTS)}, and not {reason!r}")
        true = reasons(numbers_of(mesh, "defend()"))
        if reason not in true:
            raise WrongAnswerError(
                f"defend(): what speaks against {mesh} is {' or '.join(sorted(true))}, not {reason!r}"
            )


def reasons(numbers: list[int]) -> set[str]:
    every, best = found(), int(found().order[0])
    true = set()
    for number in numbers:
        if number not in every.order:
            true.add("memory")
            continue
        mine, least = every.parts.take(number), every.parts.take(best)
        true.add(PARTS[int(np.argmax([mine[part] - least[part] for part in PARTS]))])
    return true


def predicted() -> dict[str, float]:
    best = found().order[0]
    return {"tokens a second": float(found().tokens_per_s[best]), "MFU": float(found().mfu[best])}


EXERCISES = [
    Exercise(
        "bytes_per_device",
        bytes_per_device,
        "lesson 8's model_state_bytes; what each size divides, in the docstring",
    ),
    Exercise(
        "dollars",
        dollars,
        "units: tokens, tokens a second, hours",
    ),
    Exercise(
        "choose",
        choose,
        "the table of `ringlab search llama2_70b.toml --devices 64 --batch 128`: memory, and tokens a second",
    ),
    Exercise(
        "defend",
        defend,
        "`ringlab search llama2_70b.toml --devices 64 --batch 128 --why`: why each mesh loses",
    ),
]
PREDICTED = predicted()
SHOWN = Shown(1)
