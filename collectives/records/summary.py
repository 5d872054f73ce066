"""The figures of a Trace: one entry, made the same way of a prediction and of a measurement."""

from collections.abc import Mapping
from statistics import fmean, median

from collectives.costs.bounds import bus_factor
from collectives.records.trace import Trace
from collectives.training.workload import Training

Entry = dict[str, str | int | float | None]  # times and rates of a run that never ends are None
PHASES = ("forward", "backward", "sync", "optimizer")
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
        **({"error_s": trace.facts["error_s"]} if "error_s" in trace.facts else {}),
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
    steps = _seconds(trace, int(trace.facts["warmup_steps"]))
    if not steps:
        return _without(entry, TRAINING_FIGURES) | facts
    step_s = median(fmean(sum(phases.values()) for phases in ranks.values()) for ranks in steps.values())
    entry["step_s"] = step_s
    for name in PHASES:
        entry[f"{name}_s"] = median(
            sum(phases.get(name, 0.0) for phases in ranks.values()) / len(ranks) for ranks in steps.values()
        )
    exposed = trace.facts["exposed_s"] if "exposed_s" in trace.facts else _exposed(trace, steps)
    if exposed is not None:
        entry["exposed_s"] = exposed
    entry["samples_per_s"] = trace.world_size * trace.facts["batch_size"] / step_s
    entry["scaling_efficiency"] = trace.facts["single_rank_step_s"] / step_s
    return entry | facts | _simulated_by(trace)


def _without(entry: Entry, names: tuple[str, ...]) -> Entry:
    """Return an entry in which these figures are unknown."""
    return entry | dict.fromkeys(names)


def _seconds(trace: Trace, warmup: int) -> dict[int, dict[int, dict[str, float]]]:
    """Return seconds by step, rank and phase: of steps after warm-up, or of all where the run had no others."""
    steps: dict[int, dict[int, dict[str, float]]] = {}
    for span in trace.spans:
        if span.name in PHASES:
            phases = steps.setdefault(span.step, {}).setdefault(span.rank, {})
            phases[span.name] = phases.get(span.name, 0.0) + span.end - span.begin
    return {step: ranks for step, ranks in steps.items() if step >= warmup} or steps


def _exposed(trace: Trace, steps: Mapping[int, Mapping[int, Mapping[str, float]]]) -> float | None:
    """Return the seconds of a step's sync that backward does not hide, mean over the ranks; None without buckets.

    Backward has computed when it fills the last bucket. What is left of it then is waiting, as with torch's own sync,
    and so is the sync after it.
    """
    filled, ends = dict[tuple[int, int], float](), dict[tuple[int, int], float]()
    for span in trace.spans:
        site = span.step, span.rank
        if span.name.startswith("bucket "):
            filled[site] = max(span.begin, filled.get(site, span.begin))
        elif span.name == "backward":
            ends[site] = span.end
    waited = [
        [phases.get("sync", 0.0) + max(0.0, ends[step, rank] - filled[step, rank]) for rank, phases in ranks.items()
         if (step, rank) in filled and (step, rank) in ends]
        for step, ranks in steps.items()
    ]  # fmt: skip
    return median(map(fmean, filter(None, waited))) if any(waited) else None
