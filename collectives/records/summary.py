"""The figures of a Trace: one entry, made the same way of a prediction and of a measurement."""

from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from collectives.costs.bounds import bus_factor
from collectives.records.columns import Bools, Floats, Ints
from collectives.records.trace import Trace
from collectives.training.workload import Training

Entry = dict[str, str | int | float | None]  # times and rates of a run that never ends are None
PHASES = ("loading", "forward", "backward", "sync", "optimizer")  # of a training step, in this order
COLLECTIVE_FIGURES = ("time_s", "time_min_s", "time_max_s", "algbw_GBps", "busbw_GBps")
TRAINING_FIGURES = ("step_s", *(f"{phase}_s" for phase in PHASES), "samples_per_s", "scaling_efficiency")


def collective_entry(trace: Trace) -> Entry:
    """Return the figures of one collective as nccl-tests defines them; GB is 1e9 bytes.

    >>> facts = {"nbytes": 1e9, "time_min_s": 0.5, "time_max_s": 0.5}
    >>> collective_entry(Trace("all_reduce/ring", "measured", 4, elapsed=0.5, facts=facts))["busbw_GBps"]
    3.0
    """
    collective, _, algorithm = trace.title.partition("/")
    nbytes = int(trace.facts["nbytes"])
    algbw = nbytes / trace.elapsed / 1e9 if trace.elapsed > 0 else 0.0
    entry: Entry = {
        "collective": collective,
        "algorithm": algorithm,
        "world_size": trace.world_size,
        "bytes": nbytes,
        "time_s": trace.elapsed,
        "time_min_s": trace.facts["time_min_s"],
        "time_max_s": trace.facts["time_max_s"],
        "algbw_GBps": algbw,
        "busbw_GBps": algbw * bus_factor(collective, trace.world_size),
        **_simulated_by(trace),
    }
    return entry if trace.is_complete else _without(entry, COLLECTIVE_FIGURES)


def _simulated_by(trace: Trace) -> Entry:
    """Return which engine simulated a prediction, and by which method; nothing of a measurement."""
    return {"engine": trace.engine, "method": trace.method} if trace.engine else {}


def training_entry(trace: Trace, training: Training) -> Entry:
    """Return the figures of a training, as medians over the steps after warm-up.

    A step and each of its phases take as long as the mean over the ranks. One that is ahead in a step waits in its
    sync, so over several steps all ranks take the same. Where gradients travel in buckets, ``exposed_s`` is what
    backward does not hide of that. There are no times of a training that had no step left to take.
    """
    entry: Entry = {"gradient_sync": training.sync_name, "world_size": trace.world_size}
    if not trace.is_complete:
        return _without(entry, TRAINING_FIGURES) | _simulated_by(trace)
    facts = {fact: trace.facts[fact] for fact in ("test_accuracy", "examples_seen") if fact in trace.facts}
    seconds = PhaseSeconds.of(trace, int(trace.facts["warmup_steps"]))
    if not len(seconds.steps):
        return _without(entry, TRAINING_FIGURES) | facts
    step_s = seconds.median_over_steps(seconds.phases.sum(axis=0))
    entry["step_s"] = step_s
    for name, phase in zip(PHASES, seconds.phases, strict=True):
        entry[f"{name}_s"] = seconds.median_over_steps(phase)
    exposed = trace.facts["exposed_s"] if "exposed_s" in trace.facts else _exposed(trace, seconds)
    if exposed is not None:
        entry["exposed_s"] = exposed
    entry["samples_per_s"] = trace.world_size * trace.facts["batch_size"] / step_s
    entry["scaling_efficiency"] = trace.facts["single_rank_step_s"] / step_s
    return entry | facts | _simulated_by(trace)


def _without(entry: Entry, names: tuple[str, ...]) -> Entry:
    """Return an entry in which these figures are unknown."""
    return entry | dict.fromkeys(names)


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
