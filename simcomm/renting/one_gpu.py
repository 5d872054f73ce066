"""What one GPU of each type does of a job: measured by the user, published of the same job, or from data sheets.

Between types, rates follow a power law of what data sheets say, fitted to published one-GPU rates of the same model,
precision and source on different types:

    ln rate = job + a ln peak + b ln memory bandwidth + c (year - 2018) / 5

The job's own constant is that of published rates, or follows FLOPs and activations, which is far less sure: but it is
the same for all types, so that it cancels in every choice. What a user measured on some types moves all others with it.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from math import exp, log
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.suggestions import suggest
from simcomm.cluster.hardware_parts import parts
from simcomm.renting.measuring import MEASURED_SPREAD
from simcomm.renting.nodes import SERIES_GPUS, series_gpu
from simcomm.renting.uncertain import Uncertain
from simcomm.scaling.descriptions import Job, ScalingGpu, Series, find_scaling_gpu, is_half, read_series

# Standard deviations of logarithms, with which four in five published rates are within 80 % (benchmarks/renting.py).
BY_LAW = 0.14  # a type by the law
PUBLISHED = 0.12  # a published rate of the same model, precision and type
JOB_PUBLISHED = 0.24  # the constant of a job with published rates: other software, batches and data
JOB_BY_LAYERS = 0.65  # that of a job without: by FLOPs and activations
MIDDLE_YEAR, YEARS = 2018, 5


class Law(NamedTuple):
    """The exponents of peak and memory bandwidth and of five years, and a job's constant by FLOPs and activations."""

    peak: float
    memory: float
    years: float
    constant: float
    flops: float
    activations: float

    def of_type(self, gpu: ScalingGpu, precision: str) -> float:
        """Return the logarithm of what a type does, up to the job's constant."""
        years = (gpu.year - MIDDLE_YEAR) / YEARS
        return self.peak * log(gpu.tflops(precision)) + self.memory * log(gpu.memory_GBps) + self.years * years

    def of_job(self, job: Job) -> float:
        """Return a job's constant by its layers."""
        return self.constant + self.flops * log(job.model.flops) + self.activations * log(job.model.activations)


def fit_law(series: Iterable[Series]) -> Law:
    """Return the law of least squares for these series' rates of one GPU."""
    rates = [one for one in series if one.points[0].gpus == 1]
    jobs: dict[object, list[int]] = {}
    for place, one in enumerate(rates):
        jobs.setdefault((one.model, is_half(one.job.precision), one.source), []).append(place)
    sheets = np.array([_sheet(one.gpu, one.job.precision) for one in rates])
    logs = np.array([log(one.points[0].rate) for one in rates])
    several = [places for places in jobs.values() if len({rates[place].gpu.name for place in places}) > 1]
    within = np.concatenate([sheets[places] - sheets[places].mean(axis=0) for places in several])
    moved = np.concatenate([logs[places] - logs[places].mean() for places in several])
    peak, memory, years = np.linalg.lstsq(within, moved, rcond=None)[0]
    left = logs - sheets @ np.array([peak, memory, years])
    layers = np.array([[1.0, log(one.job.model.flops), log(one.job.model.activations)] for one in rates])
    constant, flops, activations = np.linalg.lstsq(layers, left, rcond=None)[0]
    return Law(*map(float, (peak, memory, years, constant, flops, activations)))


def _sheet(gpu: ScalingGpu, precision: str) -> list[float]:
    return [log(gpu.tflops(precision)), log(gpu.memory_GBps), (gpu.year - MIDDLE_YEAR) / YEARS]


@cache
def usual_law() -> Law:
    """Return the law of the project's own series.

    >>> 0 < usual_law().peak < 1 and 0 < usual_law().memory < 1
    True
    """
    return fit_law(read_series())


def published_rates(job: Job, series: Iterable[Series]) -> dict[str, float]:
    """Return published rates of one GPU by type, of the same model in half or whole precision: their medians."""
    found: dict[str, list[float]] = {}
    for one in series:
        alike = one.model == job.model.name and is_half(one.job.precision) == is_half(job.precision)
        if alike and one.points[0].gpus == 1:
            found.setdefault(one.gpu.name, []).append(one.points[0].rate)
    return {name: median(rates) for name, rates in found.items()}


class OneGpu:
    """The rates of one GPU of each type in samples a second, with what each may be wrong by."""

    def __init__(
        self,
        job: Job,
        known: Mapping[str, float],
        *,
        law: Law | None = None,
        published: Mapping[str, float] | None = None,
    ) -> None:
        """Take a user's rates by the names of GPUs. Raise InputError for a GPU that there is not."""
        names = {*parts("GPU"), *SERIES_GPUS.values()}
        for name in known:
            if name not in names:
                raise InputError(f"plan.known_rates: {quote(name)} is no GPU of the catalogue; {suggest(name, names)}")
        self.job, self.law = job, law or usual_law()
        self.known = {series_gpu(name): rate for name, rate in known.items()}
        self.published = published_rates(job, read_series()) if published is None else dict(published)

    def rate(self, gpu: str) -> Uncertain:
        """Return the rate of a GPU of the hardware catalogue. Raise InputError for one without a data sheet."""
        name = series_gpu(gpu)
        if name in self.known:
            return Uncertain(self.known[name], {f"one {name}": MEASURED_SPREAD})
        expected, spread = self._expected(name)
        causes = {f"one {name}": spread}
        if not self.known:
            if not self.published and not self.job.model.activations:
                raise InputError(
                    f"nothing is known of {self.job.model.name} but its size: measure one GPU, known_rates"
                )
            return Uncertain(exp(expected), {"the job": JOB_PUBLISHED if self.published else JOB_BY_LAYERS, **causes})
        beside = {one: self._expected(one) for one in self.known}
        moved = fmean(log(rate) - beside[one][0] for one, rate in self.known.items())
        for one, (_, own) in beside.items():
            causes[f"{one} beside what is known of it"] = -own / len(beside)
        return Uncertain(exp(expected + moved), causes)

    def _expected(self, name: str) -> tuple[float, float]:
        """Return the logarithm of a type's rate before anything is measured, and its own spread."""
        if name in self.published:
            return log(self.published[name]), PUBLISHED
        precision = self.job.precision
        own = self.law.of_type(find_scaling_gpu(name), precision)
        if self.published:
            apart = [
                log(rate) - self.law.of_type(find_scaling_gpu(one), precision) for one, rate in self.published.items()
            ]
            return own + fmean(apart), BY_LAW
        constant = self.law.of_job(self.job) if self.job.model.activations else 0.0
        return own + constant, BY_LAW
