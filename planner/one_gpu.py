"""Estimate the training rate of one GPU from its data sheet and from known rates of other GPUs.

The model is a Gaussian process over published rates of single GPUs. Its mean is a power law of data-sheet values. The
deviations of two rates are correlated if they share a category in ``SHARED`` or have similar data sheets.
"""

import csv
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectives.records.model_profile import ModelProfile
from planner.gpus import Gpu, find_series_gpu
from planner.jobs import Job, find_model, is_half
from simcomm.nccl.parameters import read_definitions

YOURS = "yours"  # the source of the user's rates
FILE = Path(__file__).parent / "data" / "one_gpu.toml"
PUBLISHED = FILE.parent / "one_gpu_rates.csv"  # written by benchmarks/studies/one_gpu_fit.py
Floats = NDArray[np.float64]
# Standard deviation of the logarithm of a measured rate: 3.2 % between equal machines in published H100 series.
MEASURED_SPREAD = 0.03
# The data sheet of a typical GPU, to which features are relative: FLOP/s, bytes/s, watts, year, FLOP/s of FP32.
MIDDLE_FLOPS, MIDDLE_MEMORY, MIDDLE_WATTS, MIDDLE_YEAR, MIDDLE_SHADER = 150e12, 1200e9, 350.0, 2019, 35e12
FLOPS_SHARE = 0.6  # weight of FLOPs in a sample's work; the rest is the weight of written elements
KEPLER, BEFORE_MAXWELL = 2 / 3, 2015  # a Kepler multiprocessor issues to 128 of its 192 cores
ANY = 10.0  # standard deviation of the unknown constant
NARROWER = 0.65  # ratio between the errors of GPU types that were left out and the standard deviation of the process
SHEET = ("peak", "memory", "year", "shader", "watts")
FRAMEWORKS = ("pytorch", "mxnet", "tensorflow", "tensorpack", "paddle", "oneflow")


class Alone(NamedTuple):
    """A job on one GPU, its rate in samples/s and the source of the rate. The rate is 1 if it is unknown."""

    job: Job
    gpu: Gpu
    source: str
    rate: float = 1.0


class OneGpuRate(NamedTuple):
    """A rate of one GPU in samples (or tokens) per second, with the standard deviation of its logarithm."""

    rate: float
    spread: float


@cache
def read_process() -> Mapping[str, float]:
    """Return the shipped exponents and standard deviations of the Gaussian process."""
    return {name: definition.value for name, definition in read_definitions(FILE).items()}


@cache
def published() -> tuple[Alone, ...]:
    with PUBLISHED.open(encoding="utf-8", newline="") as lines:
        return tuple(
            Alone(
                Job(find_model(row["model"]), float(row["batch"]), precision=row["precision"],
                            framework=row["framework"]),
                find_series_gpu(row["gpu"]), row["source"], float(row["rate"]),
            )
            for row in csv.DictReader(lines)
        )  # fmt: skip


def guess_rates(
    seen: Sequence[Alone], targets: Sequence[Alone], process: Mapping[str, float] | None = None
) -> list[OneGpuRate]:
    """Estimate the rate of each target from the known rates in ``seen``.

    ``process`` has the exponents and standard deviations of the Gaussian process. Default: the shipped values.
    """
    values = process or read_process()
    known, wanted = make_columns(seen), make_columns(targets)
    noise = values["noise"] ** 2
    shared = covariance_of(wanted, known, values)
    left = np.log([row.rate for row in seen]) - mean_of(known, values)
    covariance = covariance_of(known, known, values) + noise * np.eye(len(seen))
    solved = np.linalg.solve(covariance, np.column_stack([left, shared.T]))
    rates = np.exp(mean_of(wanted, values) + shared @ solved[:, 0])
    variances = np.diag(covariance_of(wanted, wanted, values) - shared @ solved[:, 1:]) + noise
    spreads = np.sqrt(np.maximum(variances, noise)) * NARROWER
    return [OneGpuRate(*row) for row in zip(rates.tolist(), spreads.tolist(), strict=True)]


class RateFeatures(NamedTuple):
    """Features of single-GPU jobs, as arrays with one value per job.

    ``sheet`` contains the logarithms of data-sheet values relative to a typical GPU, and the year in units of four
    years. ``words`` contains categories, such as the model and the framework.
    """

    sheet: dict[str, Floats]
    words: dict[str, NDArray[np.str_]]
    moved: Floats  # share of the step that is limited by memory, minus 0.5
    work: Floats  # logarithm of a sample's work, larger on Kepler, which cannot use all of its cores


def make_columns(rows: Sequence[Alone]) -> RateFeatures:
    """Return the features of each job on its GPU, for the Gaussian process."""
    halves = ["half" if is_half(row.job.precision) else "whole" for row in rows]
    peaks = [row.gpu.matrix_16 if is_half(row.job.precision) else row.gpu.matrix_32 for row in rows]
    sheet = {
        "peak": np.log([peak / MIDDLE_FLOPS for peak in peaks]),
        "memory": np.log([row.gpu.memory_rate / MIDDLE_MEMORY for row in rows]),
        "year": np.array([(row.gpu.year - MIDDLE_YEAR) / 4 for row in rows]),
        "shader": np.log([row.gpu.vector_32 / MIDDLE_SHADER for row in rows]),
        "watts": np.log([(row.gpu.watts or MIDDLE_WATTS) / MIDDLE_WATTS for row in rows]),
    }
    words = [_words(row, half) for row, half in zip(rows, halves, strict=True)]
    moved = np.array([_share_moved(row.job.model, half) for row, half in zip(rows, halves, strict=True)])
    work = np.array([_work(row.job.model) for row in rows])
    work -= np.where([row.gpu.year < BEFORE_MAXWELL for row in rows], np.log(KEPLER), 0.0)
    columns = {name: np.array([each[name] for each in words]) for name in SHARED}
    return RateFeatures(sheet, columns, moved - 0.5, work)


def _words(row: Alone, half: str) -> dict[str, str]:
    model, text, gpu = row.job.model.model, row.job.framework.lower(), row.gpu.name
    framework = next((name for name in FRAMEWORKS if name in text), "pytorch").replace("tensorpack", "tensorflow")
    framework += " with xla" * ("xla" in text)
    return {
        "network": network_of(row.job.model), "family": model.partition("-")[0].lower(),
        "arithmetic": "tf32" if half == "whole" and row.gpu.has_tf32 else half,
        "model_precision": f"{model}, {half}", "framework": framework, "framework_precision": f"{framework}, {half}",
        "framework_model": f"{framework} {model} {half}", "source": row.source, "job": f"{row.source}: {model}, {half}",
        "gpu": gpu, "gpu_precision": f"{gpu}, {half}",
    }  # fmt: skip


def network_of(model: ModelProfile) -> str:
    """Return a model's name without its sequence length."""
    name = model.model.partition(":context=")[0]
    return name.removesuffix(f"-{model.tokens}") if model.tokens else name


@lru_cache(maxsize=1024)
def _share_moved(model: ModelProfile, half: str) -> float:
    """Return the memory-bound share of a sample's time on a typical GPU, from a roofline model of each layer."""
    flops = np.array([layer.forward_flops + layer.backward_flops for layer in model.layers]) / MIDDLE_FLOPS
    moved = np.array([layer.read_bytes + layer.written_bytes + layer.backward_bytes for layer in model.layers])
    seconds = moved * (0.5 if half == "half" else 1.0) / MIDDLE_MEMORY
    longer = np.maximum(flops, seconds)
    shares = seconds / np.maximum(flops + seconds, 1e-30)
    return float((shares * longer).sum() / max(longer.sum(), 1e-30))


@lru_cache(maxsize=1024)
def _work(model: ModelProfile) -> float:
    """Return the logarithm of a sample's work: a weighted mean of the logarithms of FLOPs and written elements."""
    flops = np.log(max(model.forward_flops, 1.0))
    written = np.log(100 * max(model.written_bytes / model.item_bytes, 1.0))
    return float(FLOPS_SHARE * flops + (1 - FLOPS_SHARE) * written)


def mean_of(rows: RateFeatures, values: Mapping[str, float]) -> Floats:
    """Return the mean log rate of each job, without the unknown constant that all jobs share."""
    return np.asarray(sum((values[name] * term for name, term in mean_terms(rows).items()), -rows.work))


def mean_terms(rows: RateFeatures) -> dict[str, Floats]:
    """Return the features on which the mean log rate depends. The keys are the names of their exponents."""
    terms = {name: rows.sheet[name] for name in ("peak", "memory", "year", "watts")}
    return {**terms, "moved_memory": rows.moved * terms["memory"], "moved_peak": -rows.moved * terms["peak"]}


def same_words(a: RateFeatures, b: RateFeatures, word: str) -> Floats:
    """Return a matrix that is 1 where jobs of ``a`` and ``b`` have the same category ``word``, and 0 elsewhere."""
    return np.asarray(a.words[word][:, None] == b.words[word][None, :], dtype=np.float64)


def covariance_of(a: RateFeatures, b: RateFeatures, values: Mapping[str, float]) -> Floats:
    """Return the covariance of log rates between each job of ``a`` and each job of ``b``."""
    far = np.zeros((len(a.work), len(b.work)))
    for key in SHEET:
        far += (a.sheet[key][:, None] - b.sheet[key][None, :]) ** 2 / values[f"near_{key}"] ** 2
    near = sum(values[name] ** 2 * (same_words(a, b, word) if word else 1.0) for name, word in NEAR.items())
    covariance: Floats = ANY**2 + np.exp(-far / 2) * near
    for name in SHARED:
        covariance += values[name] ** 2 * same_words(a, b, name)
    return covariance


# NEAR: deviations that GPUs with similar data sheets share, in all rows or in rows with the same word. SHARED:
# deviations that rows with the same word share.
NEAR = {"near": None, "near_arithmetic": "arithmetic", "near_job": "model_precision"}
SHARED = (
    "family", "network", "model_precision", "arithmetic", "framework", "framework_precision", "framework_model",
    "source", "job", "gpu", "gpu_precision",
)  # fmt: skip
