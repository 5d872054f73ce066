"""The figures that answers are made of: one record for each collective and one for each training.

``N`` is what stands for a time or a rate: a float (None of a run that never ends), or a ``SideBySide`` of two.
"""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from collectives.records.summary import collective_entry, training_entry
from collectives.records.trace import Trace
from collectives.training.workload import Training
from ringlab.shared.answer import AnswerRecord
from simcomm.repetition import FaultFigures

Number = float | None  # seconds or a rate; None of a run that never ends


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
    """Return the figures of one collective from its trace."""
    found = CollectiveFigures(**cast(dict[str, Any], collective_entry(trace)), faults=faults)
    if not trace.choice:
        return found
    interval = trace.facts["low_s"], trace.facts["high_s"]
    return replace(found, method=None, interval_s=interval, choice=trace.choice)


def training_figures(trace: Trace, training: Training, faults: FaultFigures | None = None) -> TrainingFigures[Number]:
    """Return the figures of a training from its trace."""
    return TrainingFigures(**cast(dict[str, Any], training_entry(trace, training)), faults=faults)


def side_by_side(predicted: Number, measured: Number, uncertainty: float | None = None) -> SideBySide:
    """Return both with the relative error of the prediction, which is None where either is missing or zero.

    >>> side_by_side(0.9, 1.0).error
    -0.09999999999999998
    """
    if not predicted or not measured:  # a sync that overlaps backward has no length
        return SideBySide(predicted, measured, None, uncertainty)
    return SideBySide(predicted, measured, (predicted - measured) / measured, uncertainty)
