"""What torch's profiler wrote of a training, as the times of a model's layers.

The profiler names phases, not layers: a phase is divided among the layers by their work, as ``ModelProfile.work`` says.
"""

from collections import defaultdict
from pathlib import Path
from statistics import median

from collectives.errors import InputError
from collectives.records.model_profile import Measured, ModelProfile
from collectives.records.profiles import read_profile

PHASES = ("forward", "backward", "optimizer")


def measured_by_profiler(path: Path | str, profile: ModelProfile, batch_size: int, device: str) -> Measured:
    """Return the times in what torch's profiler wrote of one rank. Raise InputError where a phase is missing."""
    trace = read_profile(path)
    seconds: dict[tuple[str, int], float] = defaultdict(float)
    for span in trace.spans:
        if span.rank == 0:
            seconds[span.name, span.step] += span.end - span.begin
    found = {name: [value for (each, _), value in seconds.items() if each == name] for name in PHASES}
    missing = [name for name in ("forward", "backward") if not found[name]]
    if missing:
        raise InputError(f"{path}: no {' and no '.join(missing)} in it; profile whole steps of a training")
    middle = {name: median(values) if values else 0.0 for name, values in found.items()}
    work = {name: profile.work(is_backward=name == "backward") for name in ("forward", "backward")}
    forward, backward = ([middle[name] * each / sum(work[name]) for each in work[name]] for name in work)
    return Measured(
        device, batch_size, "as profiled", tuple(forward), tuple(backward), middle["optimizer"], 0.0,
        sum(middle.values()), f"torch's profiler, median of {len(found['backward'])} steps: {Path(path).name}",
    )  # fmt: skip
