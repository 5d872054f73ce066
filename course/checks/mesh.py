"""Checks of lesson 11: the choice of a mesh, beside all that ``ringlab search`` predicts."""

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from collectives.records.transformer_shapes import parse_transformer
from course.checks.exercise import Exercise, Shown, WrongAnswerError, expect_close
from simcomm.mesh_search.search import FoundMeshes, MeshJob, search

DEVICES, BATCH, TOKENS, PRICE, BUDGET = 64, 128, 10e9, 2.5, 7500.0
KEYS = {"tensor": "tp", "pipeline": "pp", "context": "cp", "data": "dp", "micro_batch": "micro_batch",
        "form": "sharding", "recompute": "recompute"}  # fmt: skip
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
    for tensor, pipeline, data, stage, wanted in ((8, 4, 2, 0, 16 * n / 32), (1, 1, 64, 3, 16 * n / 64)):
        got = lesson.bytes_per_device(n, tensor, pipeline, data, stage)
        expect_close(got, wanted, f"bytes_per_device(70e9, {tensor}, {pipeline}, {data}, stage {stage})")
    expect_close(lesson.bytes_per_device(n, 8, 1, 8, 1), n / 8 * 5.5, "bytes_per_device(70e9, 8, 1, 8, stage 1)")


def dollars(lesson: ModuleType) -> None:
    expect_close(lesson.dollars(36e6, 1000.0, 8, 2.0), 160.0, "dollars(36e6 tokens, 1000 a second, 8 devices, 2 $/h)")


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
    if len(cases) != 3 or len({reason for _, reason in cases}) != 3:
        raise WrongAnswerError(
            f"defend() should return three meshes with three different reasons and returns {cases!r}"
        )
    for mesh, reason in cases:
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
    Exercise("bytes_per_device", bytes_per_device),
    Exercise("dollars", dollars),
    Exercise("choose", choose),
    Exercise("defend", defend),
]
PREDICTED = predicted()
SHOWN = Shown(1)
