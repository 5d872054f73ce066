"""``one_gpu_rate``: what one GPU does of a job, from its data sheet and from what other GPUs are known to do.

A Gaussian process over published rates of one GPU. Its mean is a power law of the data sheet's peak and memory
bandwidth, the year, and the model's FLOPs and activations. Rates depart from it together where they share what the
kernel says: the model, its family and precision, the source, the job (model and precision of a source), and how near
the GPUs are to each other by their data sheets. So other GPUs' rates of the same job move this one's, near ones more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectives.errors import InputError
from simcomm.scaling.cases import Floats
from simcomm.scaling.descriptions import Job, ScalingGpu, find_scaling_gpu, is_half, read_series

YOURS = "yours"  # the source of rates that a caller knows
# The mean: exponents of peak, memory bandwidth and five years, and the share of FLOPs in a sample's work. The others
# are standard deviations of log rate; all were set on systems that are not put aside.
PEAK, MEMORY, FIVE_YEARS, FLOPS_SHARE = 0.2, 0.59, 0.42, 0.6
SLOPES = {"peak": 0.1, "memory": 0.15, "year": 0.1, "shader": 0.1}
SLOPES_OF_FAMILY = {"peak": 0.08, "memory": 0.08, "shader": 0.08}
NEAR = {"peak": 0.8, "memory": 0.6, "year": 0.5, "shader": 0.6}  # distances in log data sheet at which GPUs differ
NEAR_GPUS, NEAR_PRECISION, NEAR_JOB = 0.12, 0.08, 0.08
FAMILY, MODEL, MODEL_PRECISION, PRECISION = 0.4, 0.5, 0.3, 0.6
SOURCE, JOB = 0.3, 0.15
NOISE = 0.05
ANY = 10.0  # of the constant
SPREAD_OF_KNOWN, SPREAD_OF_UNKNOWN = 1.1, 0.68  # errors beside what the process says, by whether the job was seen
MEASURED = 0.03  # spread of a rate that was measured on this very GPU


class Alone(NamedTuple):
    """A job on one GPU at a source, and its rate in samples per second where it is known."""

    job: Job
    gpu: ScalingGpu
    source: str
    rate: float = 1.0


@dataclass(frozen=True)
class Rate:
    """Samples (or tokens) per second of one GPU, and the standard deviation of its logarithm."""

    rate: float
    spread: float

    def interval(self, coverage: float = 0.8) -> tuple[float, float]:
        """Return bounds of the rate. Raise InputError for a coverage that is no share."""
        if not 0 < coverage < 1:
            raise InputError(f"coverage = {coverage!r}; give a share between 0 and 1, as 0.8")
        width = exp(self.spread * NormalDist().inv_cdf((1 + coverage) / 2))
        return self.rate / width, self.rate * width


def one_gpu_rate(
    job: Job, gpu: str | ScalingGpu, known: Mapping[str, float] | None = None, *, without: Sequence[str] = ()
) -> Rate:
    """Return the rate of one GPU, from what others (``known``, by name) do of the same job and from published rates.

    ``without`` are GPUs whose published rates are not to be seen. Raises InputError.

    >>> from simcomm.scaling import find_model
    >>> job = Job(find_model("ResNet-50"), 256.0)
    >>> guess, better = one_gpu_rate(job, "H100 SXM"), one_gpu_rate(job, "H100 SXM", {"A100": 1300.0, "V100": 800.0})
    >>> better.spread < guess.spread
    True
    """
    board = find_scaling_gpu(gpu) if isinstance(gpu, str) else gpu
    rates = dict(known or {})
    for name, rate in rates.items():
        if not 0 < rate < float("inf"):
            raise InputError(f"known: {name} = {rate!r}; give samples or tokens per second above 0")
    if board.name in rates:
        return Rate(rates[board.name], MEASURED)
    seen = [one for one in published() if one.gpu.name not in without]
    seen += [Alone(job, find_scaling_gpu(name), YOURS, rate) for name, rate in rates.items()]
    return guess_rates(seen, [Alone(job, board, YOURS)])[0]


@cache
def published() -> tuple[Alone, ...]:
    """Return the project's published rates of one GPU."""
    return tuple(
        Alone(one.job, one.gpu, one.source, one.points[0].rate) for one in read_series() if one.points[0].gpus == 1
    )


def guess_rates(seen: Sequence[Alone], asked: Sequence[Alone]) -> list[Rate]:
    """Return the rates of jobs on one GPU, given others. Those of sources that were not seen are as sure as that."""
    return guess_together(seen, asked)[0]


def guess_together(seen: Sequence[Alone], asked: Sequence[Alone]) -> tuple[list[Rate], Floats]:
    """Return what ``guess_rates`` does, and the covariance of the logarithms: what is wrong with several alike."""
    known, wanted = _columns(seen), _columns(asked)
    inverse = np.linalg.inv(_kernel(known, known) + NOISE**2 * np.eye(len(seen)))
    shared = _kernel(wanted, known)
    left = np.log([one.rate for one in seen]) - known.mean
    guessed = wanted.mean + shared @ (inverse @ left)
    noise = NOISE**2 * np.eye(len(asked))
    covariance = _kernel(wanted, wanted) + noise - shared @ inverse @ shared.T
    np.fill_diagonal(covariance, np.maximum(np.diag(covariance), NOISE**2))
    jobs = set(known.words["job"].tolist())
    wider = np.array([SPREAD_OF_KNOWN if job in jobs else SPREAD_OF_UNKNOWN for job in wanted.words["job"].tolist()])
    covariance *= np.outer(wider, wider)
    spreads = np.sqrt(np.diag(covariance)).tolist()
    rates = [Rate(rate, spread) for rate, spread in zip(np.exp(guessed).tolist(), spreads, strict=True)]
    return rates, covariance


class _Columns(NamedTuple):
    sheet: dict[str, Floats]  # logarithms, from a middle
    words: dict[str, NDArray[np.str_]]
    mean: Floats


def _columns(rows: Sequence[Alone]) -> _Columns:
    peak = np.log([one.gpu.tflops(one.job.precision) / 150 for one in rows])
    memory = np.log([one.gpu.memory_GBps / 1200 for one in rows])
    years = np.array([(one.gpu.year - 2019) / 4 for one in rows])
    shader = np.log([one.gpu.fp32 / 35 for one in rows])
    flops = np.log([max(one.job.model.forward_flops, 1.0) for one in rows])
    written = np.log([100 * max(one.job.model.written_bytes / one.job.model.item_bytes, 1.0) for one in rows])
    halves = ["half" if is_half(one.job.precision) else "whole" for one in rows]
    models = [one.job.model.model for one in rows]
    words = {
        "model": models,
        "family": [name.partition("-")[0].lower() for name in models],
        "precision": halves,
        "model, precision": [f"{model}, {half}" for model, half in zip(models, halves, strict=True)],
        "source": [one.source for one in rows],
        "job": [f"{one.source}: {model}, {half}" for one, model, half in zip(rows, models, halves, strict=True)],
    }
    work = FLOPS_SHARE * flops + (1 - FLOPS_SHARE) * written
    mean = PEAK * peak + MEMORY * memory + FIVE_YEARS * years * 4 / 5 - work
    sheet = {"peak": peak, "memory": memory, "year": years, "shader": shader}
    return _Columns(sheet, {name: np.array(column) for name, column in words.items()}, mean)


def _kernel(a: _Columns, b: _Columns) -> Floats:
    """Return the covariance of log rates of rows with others."""

    def same(word: str) -> Floats:
        found: Floats = (a.words[word][:, None] == b.words[word][None, :]).astype(np.float64)
        return found

    def slopes(of: Mapping[str, float]) -> Floats:
        found: Floats = sum((size**2 * np.outer(a.sheet[key], b.sheet[key]) for key, size in of.items()), np.zeros(()))
        return found

    far = sum((a.sheet[key][:, None] - b.sheet[key][None, :]) ** 2 / length**2 for key, length in NEAR.items())
    near = np.exp(-far / 2)
    gpus = near * (NEAR_GPUS**2 + NEAR_PRECISION**2 * same("precision") + NEAR_JOB**2 * same("model, precision"))
    models = FAMILY**2 * same("family") + MODEL**2 * same("model") + MODEL_PRECISION**2 * same("model, precision")
    sources = SOURCE**2 * same("source") + JOB**2 * same("job")
    linear = slopes(SLOPES) + same("family") * slopes(SLOPES_OF_FAMILY)
    found: Floats = ANY**2 + linear + gpus + models + PRECISION**2 * same("precision") + sources
    return found
