"""Computes the results of collectives and training runs from their traces: one record for each row of a table.

``N`` is the type of times and rates. It is ``SideBySide`` in a comparison, else a float (None: the run never ends).
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

Number = float | None  # seconds or a rate; None for a run that never ends
COLLECTIVE_FIGURES = ("time_s", "time_min_s", "time_max_s", "algbw_GBps", "busbw_GBps")
TRAINING_FIGURES = ("step_s", *(f"{phase}_s" for phase in PHASES), "samples_per_s", "scaling_efficiency")


@dataclass(frozen=True)
class SideBySide(AnswerRecord):
    """A predicted and a measured value of a quantity, with the error of the prediction. Unknown values are None."""

    predicted: float | None
    measured: float | None
    error: float | None  # (predicted - measured) / measured
    uncertainty: float | None = None  # half of the 80 % interval, as a share of the prediction

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 80 % interval of the prediction, or None if it is unknown."""
        return interval_of(self.predicted, self.uncertainty)


def interval_of(value: float | None, uncertainty: float | None) -> tuple[float, float] | None:
    """Return the interval ``value`` * (1 +- ``uncertainty``), cut off below 0. Return None if an argument is None."""
    if value is None or uncertainty is None:
        return None
    return value * max(0.0, 1 - uncertainty), value * (1 + uncertainty)


N = TypeVar("N")


class Figures(AnswerRecord):
    """Base class for the results of a collective or a training run. The JSON flattens the fields of ``faults``."""

    def to_dict(self) -> dict[str, Any]:
        content = super().to_dict()
        if "faults" in content:
            faults = content["faults"]
            parts = [faults.pop(name, {}) for name in ("stuck", "distribution", "waiting")]
            last = {key: faults.pop(key) for key in ("computing", "asked") if key in faults}
            for part in (*parts, last):
                faults |= part
        return content


@dataclass(frozen=True, kw_only=True)
class CollectiveFigures(Figures, Generic[N]):
    """The result of a collective on ``bytes`` bytes per rank. Rates are defined as in nccl-tests."""

    collective: str
    algorithm: str
    world_size: int
    bytes: int
    time_s: N
    time_min_s: N
    time_max_s: N
    algbw_GBps: N  # noqa: N815  # the key of the JSON
    busbw_GBps: N  # noqa: N815
    engine: str | None = None  # simulation engine and method of a prediction
    method: str | None = None
    faults: FaultFigures | None = None
    interval_s: tuple[float, float] | None = None  # 80 % interval of a prediction of NCCL
    choice: str | None = None  # NCCL's algorithm, protocol and channels
    uncertainty: dict[str, float] | None = None  # half of the 80 % interval by field, for predictions of this machine


@dataclass(frozen=True, kw_only=True)
class TrainingFigures(Figures, Generic[N]):
    """The result of a training run: seconds per step and phase, samples/s of all ranks together, and efficiency."""

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
    test_accuracy: float | None = None  # only measured
    examples_seen: float | None = None
    exposed_s: float | None = None  # exposed communication of gradient buckets
    engine: str | None = None  # simulation engine and method of a prediction
    method: str | None = None
    faults: FaultFigures | None = None
    uncertainty: dict[str, float] | None = None  # half of the 80 % interval by field, for predictions of this machine


@dataclass(frozen=True, kw_only=True)
class ClusterFigures(AnswerRecord, Generic[N]):
    """The results on the scenario's own cluster, or on the cluster of a what-if."""

    title: str
    cluster: str
    collectives: tuple[CollectiveFigures[N], ...]
    training: tuple[TrainingFigures[N], ...]


def collective_figures(trace: Trace, faults: FaultFigures | None = None) -> CollectiveFigures[Number]:
    """Compute the results of a collective from its trace, as nccl-tests defines them.

    >>> facts = {"nbytes": 1e9, "time_min_s": 0.5, "time_max_s": 0.5}
    >>> collective_figures(Trace("all_reduce/ring", "measured", 4, elapsed=0.5, facts=facts)).busbw_GBps
    3.0
    """
    collective, _, algorithm = trace.title.partition("/")
    nbytes = int(trace.facts["nbytes"])
    algbw = nbytes / trace.elapsed / 1e9 if trace.elapsed > 0 else 0.0
    busbw = algbw * bus_factor(collective, trace.world_size)
    values = (trace.elapsed, trace.facts["time_min_s"], trace.facts["time_max_s"], algbw, busbw)
    known: dict[str, Any] = dict(zip(COLLECTIVE_FIGURES, values, strict=True))
    return CollectiveFigures(
        collective=collective,
        algorithm=algorithm,
        world_size=trace.world_size,
        bytes=nbytes,
        **(known if trace.is_complete else dict.fromkeys(COLLECTIVE_FIGURES)),
        engine=trace.engine or None,
        method=trace.method if trace.engine and not trace.choice else None,
        faults=faults,
        interval_s=(trace.facts["low_s"], trace.facts["high_s"]) if trace.choice else None,
        choice=trace.choice or None,
    )


def training_figures(trace: Trace, training: Training, faults: FaultFigures | None = None) -> TrainingFigures[Number]:
    """Compute the results of a training from the spans in its trace.

    Times are means over the ranks, then medians over the steps after warm-up. Means are meaningful because fast ranks
    wait for slow ones in the gradient sync. Times are None if the run did not end or has no steps.
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
    """The seconds of each phase by step and rank. Warm-up steps are omitted, unless there are no others."""

    steps: Ints  # [steps]: step numbers
    phases: Floats  # [PHASES, steps, ranks]
    took_part: Bools  # [steps, ranks]

    @classmethod
    def of(cls, trace: Trace, warmup: int) -> "PhaseSeconds":
        """Compute the times from the spans of a trace. ``warmup`` is the number of warm-up steps."""
        spans = trace.spans.select(trace.spans.named(*PHASES))
        steps, at = np.unique(spans.step, return_inverse=True)
        site, shape = at * trace.world_size + spans.rank, (len(steps), trace.world_size)
        took_part = np.bincount(site, minlength=len(steps) * trace.world_size).reshape(shape) > 0
        seconds, masks = spans.end - spans.begin, [spans.named(name) for name in PHASES]
        phases = [np.bincount(site[mask], seconds[mask], took_part.size).reshape(shape) for mask in masks]
        is_counted = steps >= warmup if (steps >= warmup).any() else np.ones(len(steps), np.bool_)
        return cls(steps[is_counted], np.array(phases, np.float64)[:, is_counted], took_part[is_counted])

    def median_over_steps(self, values: Floats) -> float:
        """Return the median over steps of the mean of ``values`` [steps, ranks] over the ranks that took part."""
        return median(fmean(row[ranks].tolist()) for row, ranks in zip(values, self.took_part, strict=True))


def _exposed_s(trace: Trace, seconds: PhaseSeconds, phases: dict[str, float], training: Training) -> float | None:
    """Return a step's exposed communication in seconds. Return None if it is unknown or there are no buckets.

    GPUs do not report when a bucket is full. Their exposed communication is the sync time, plus the additional time of
    backward compared with a single rank.
    """
    exposed = trace.facts["exposed_s"] if "exposed_s" in trace.facts else _exposed_after_buckets(trace, seconds)
    alone = trace.facts.get("single_rank_backward_s", 0.0)
    if exposed is not None or not alone or not (training.gradient_sync is None or training.buckets):
        return exposed
    return phases["sync_s"] + max(0.0, phases["backward_s"] - alone)


def _exposed_after_buckets(trace: Trace, seconds: PhaseSeconds) -> float | None:
    """Return the exposed communication of a step in seconds, or None if there are no buckets.

    A rank's backward has finished computing when its last bucket is full. After that, backward and sync only wait.
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
        fmean((sync + np.maximum(0.0, end - full))[ranks].tolist())
        for sync, end, full, ranks in zip(seconds.phases[PHASES.index("sync")], ends, filled, counts, strict=True)
        if ranks.any()
    ]
    return median(waited) if waited else None


def side_by_side(predicted: Number, measured: Number, uncertainty: float | None = None) -> SideBySide:
    """Return a predicted and a measured value with the relative error, which is None if a value is None or zero."""
    if not predicted or not measured:  # a sync that overlaps backward has no length
        return SideBySide(predicted, measured, None, uncertainty)
    return SideBySide(predicted, measured, (predicted - measured) / measured, uncertainty)
