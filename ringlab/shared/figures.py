"""The figures that answers are made of: one record for each collective and one for each training.

``N`` is what stands for a time or a rate: a float (None of a run that never ends), or a ``SideBySide`` of two.
"""

from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from collectives.costs.bounds import bus_factor
from collectives.records.columns import Bools, Floats, Ints
from collectives.records.spans import PHASES
from collectives.records.trace import Trace
from collectives.training.workload import Training
from ringlab.shared.answer import AnswerRecord
from simcomm.repetition import FaultFigures

Number = float | None  # seconds or a rate; None of a run that never ends
COLLECTIVE_FIGURES = ("time_s", "time_min_s", "time_max_s", "algbw_GBps", "busbw_GBps")
TRAINING_FIGURES = ("step_s", *(f"{phase}_s" for phase in PHASES), "samples_per_s", "scaling_efficiency")


@dataclass(frozen=True)
class SideBySide(AnswerRecord):
    """A prediction beside its measurement; None for what is not known."""

    predicted: float | None
    measured: float | None
    error: float | None  # (predicted - measured) / measured
    uncertainty: float | None = None  # share of the prediction that it may be off by, in four cases of five
    trusted: bool = True  # whether the machine was free to be measured


N = TypeVar("N")


class Figures(AnswerRecord):
    """What was found of a collective or a training; in the JSON all about its faults is in one table."""

    def to_dict(self) -> dict[str, Any]:
        found = super().to_dict()
        if "faults" in found:
            about = found["faults"]
            parts = [about.pop(name, {}) for name in ("stuck", "distribution", "waiting")]
            last = {key: about.pop(key) for key in ("computing", "asked") if key in about}
            for part in (*parts, last):
                about |= part
        return found


@dataclass(frozen=True, kw_only=True)
class CollectiveFigures(Figures, Generic[N]):
    """One collective on a buffer of ``bytes`` bytes a rank; times in seconds, rates in 1e9 bytes/s as in nccl-tests."""

    collective: str
    algorithm: str
    world_size: int
    bytes: int
    time_s: N
    time_min_s: N
    time_max_s: N
    algbw_GBps: N  # noqa: N815  # the key of the JSON
    busbw_GBps: N  # noqa: N815
    engine: str | None = None  # of a prediction
    method: str | None = None
    faults: FaultFigures | None = None
    interval_s: tuple[float, float] | None = None  # of a prediction of NCCL: 80 % of measurements should lie in it
    choice: str | None = None  # what NCCL chose
    uncertainty: dict[str, float] | None = None  # of a prediction for this machine: shares, by figure


@dataclass(frozen=True, kw_only=True)
class TrainingFigures(Figures, Generic[N]):
    """One training: seconds of a step and of its phases, samples/s of all ranks, share of perfect scaling."""

    gradient_sync: str
    world_size: int
    step_s: N
    loading_s: N
    forward_s: N
    backward_s: N
    sync_s: N
    optimizer_s: N
    samples_per_s: N
    scaling_efficiency: N
    test_accuracy: float | None = None  # of a measurement
    examples_seen: float | None = None
    exposed_s: float | None = None  # of gradients that travel in buckets: what backward does not hide of it
    engine: str | None = None  # of a prediction
    method: str | None = None
    faults: FaultFigures | None = None
    uncertainty: dict[str, float] | None = None  # of a prediction for this machine: shares, by figure


@dataclass(frozen=True, kw_only=True)
class ClusterFigures(AnswerRecord, Generic[N]):
    """What was found about one cluster: the scenario's own or that of a what-if."""

    title: str
    cluster: str
    collectives: tuple[CollectiveFigures[N], ...]
    training: tuple[TrainingFigures[N], ...]


def collective_figures(trace: Trace, faults: FaultFigures | None = None) -> CollectiveFigures[Number]:
    """Return the figures of one collective as nccl-tests defines them.

    >>> facts = {"nbytes": 1e9, "time_min_s": 0.5, "time_max_s": 0.5}
    >>> collective_figures(Trace("all_reduce/ring", "measured", 4, elapsed=0.5, facts=facts)).busbw_GBps
    3.0
    """
    collective, _, algorithm = trace.title.partition("/")
    nbytes = int(trace.facts["nbytes"])
    algbw = nbytes / trace.elapsed / 1e9 if trace.elapsed > 0 else 0.0
    found: CollectiveFigures[Number] = CollectiveFigures(
        collective=collective,
        algorithm=algorithm,
        world_size=trace.world_size,
        bytes=nbytes,
        time_s=trace.elapsed,
        time_min_s=trace.facts["time_min_s"],
        time_max_s=trace.facts["time_max_s"],
        algbw_GBps=algbw,
        busbw_GBps=algbw * bus_factor(collective, trace.world_size),
        engine=trace.engine or None,
        method=trace.method if trace.engine and not trace.choice else None,
        faults=faults,
        interval_s=(trace.facts["low_s"], trace.facts["high_s"]) if trace.choice else None,
        choice=trace.choice or None,
    )
    unknown: dict[str, Any] = {} if trace.is_complete else dict.fromkeys(COLLECTIVE_FIGURES)
    return replace(found, **unknown)


def training_figures(trace: Trace, training: Training, faults: FaultFigures | None = None) -> TrainingFigures[Number]:
    """Return the figures of a training, as medians over the steps after warm-up.

    A step and each of its phases take as long as the mean over the ranks. One that is ahead in a step waits in its
    sync, so over several steps all ranks take the same. Where gradients travel in buckets, ``exposed_s`` is what
    backward does not hide of that. There are no times of a training that had no step left to take.
    """
    facts = trace.facts
    unknown: TrainingFigures[Number] = TrainingFigures(
        gradient_sync=training.sync_name,
        world_size=trace.world_size,
        **dict.fromkeys(TRAINING_FIGURES),
        test_accuracy=facts.get("test_accuracy"),
        examples_seen=facts.get("examples_seen"),
        engine=trace.engine or None,
        method=trace.method if trace.engine else None,
        faults=faults,
    )
    if not trace.is_complete:
        return unknown
    seconds = PhaseSeconds.of(trace, int(facts["warmup_steps"]))
    if not len(seconds.steps):
        return unknown
    step_s = seconds.median_over_steps(seconds.phases.sum(axis=0))
    phases: dict[str, Any] = {
        f"{name}_s": seconds.median_over_steps(phase) for name, phase in zip(PHASES, seconds.phases, strict=True)
    }
    return replace(
        unknown,
        step_s=step_s,
        **phases,
        exposed_s=_exposed_s(trace, seconds, phases, training),
        samples_per_s=trace.world_size * facts["batch_size"] / step_s,
        scaling_efficiency=facts["single_rank_step_s"] / step_s,
    )


class PhaseSeconds(NamedTuple):
    """What each phase takes each rank in each step: of steps after warm-up, or of all where the run had no others."""

    steps: Ints  # [steps]: their numbers
    phases: Floats  # [PHASES, steps, ranks]
    took_part: Bools  # [steps, ranks]

    @classmethod
    def of(cls, trace: Trace, warmup: int) -> "PhaseSeconds":
        """Return the seconds in the spans of a trace."""
        spans = trace.spans.select(trace.spans.named(*PHASES))
        steps, at = np.unique(spans.step, return_inverse=True)
        site, shape = at * trace.world_size + spans.rank, (len(steps), trace.world_size)
        took_part = np.bincount(site, minlength=len(steps) * trace.world_size).reshape(shape) > 0
        seconds, masks = spans.end - spans.begin, [spans.named(name) for name in PHASES]
        phases = [np.bincount(site[own], seconds[own], took_part.size).reshape(shape) for own in masks]
        kept = steps >= warmup if (steps >= warmup).any() else np.ones(len(steps), np.bool_)
        return cls(steps[kept], np.array(phases, np.float64)[:, kept], took_part[kept])

    def median_over_steps(self, values: Floats) -> float:
        """Return the median over the steps of the mean of values [steps, ranks] over the ranks that took part."""
        return median(fmean(row[there].tolist()) for row, there in zip(values, self.took_part, strict=True))


def _exposed_s(trace: Trace, seconds: PhaseSeconds, phases: dict[str, float], training: Training) -> float | None:
    """Return the seconds of a step's sync that backward does not hide; None without buckets, or if not known.

    On GPUs nobody sees when a bucket is full. There the sync makes backward longer than on one rank alone.
    """
    found = trace.facts["exposed_s"] if "exposed_s" in trace.facts else _exposed(trace, seconds)
    alone = trace.facts.get("single_rank_backward_s", 0.0)
    if found is not None or not alone or not (training.gradient_sync is None or training.buckets):
        return found
    return phases["sync_s"] + max(0.0, phases["backward_s"] - alone)


def _exposed(trace: Trace, seconds: PhaseSeconds) -> float | None:
    """Return the seconds of a step's sync that backward does not hide, mean over the ranks; None without buckets.

    Backward has computed when it fills the last bucket. What is left of it then is waiting, as with torch's own sync,
    and so is the sync after it.
    """
    spans = trace.spans
    spans = spans.select(np.isin(spans.step, seconds.steps))
    at = np.searchsorted(seconds.steps, spans.step)
    buckets = spans.named(*(name for name in spans.names if name.startswith("bucket ")))
    filled, ends = np.full((2, *seconds.took_part.shape), -np.inf)
    np.maximum.at(filled, (at[buckets], spans.rank[buckets]), spans.begin[buckets])
    backward = spans.named("backward")
    np.maximum.at(ends, (at[backward], spans.rank[backward]), spans.end[backward])
    counts = seconds.took_part & np.isfinite(filled) & np.isfinite(ends)
    waited = [
        fmean((sync + np.maximum(0.0, end - full))[there].tolist())
        for sync, end, full, there in zip(seconds.phases[PHASES.index("sync")], ends, filled, counts, strict=True)
        if there.any()
    ]
    return median(waited) if waited else None


def side_by_side(predicted: Number, measured: Number, uncertainty: float | None = None) -> SideBySide:
    """Return both with the relative error of the prediction, which is None where either is missing or zero.

    >>> side_by_side(0.9, 1.0).error
    -0.09999999999999998
    """
    if not predicted or not measured:  # a sync that overlaps backward has no length
        return SideBySide(predicted, measured, None, uncertainty)
    return SideBySide(predicted, measured, (predicted - measured) / measured, uncertainty)
