"""What torch's profiler wrote of a training, as the times of a model's layers.

The profiler names phases, not layers: a phase is divided among the layers by their work, as ``ModelProfile.work`` says.
"""

from pathlib import Path
from statistics import median

from collectives.errors import InputError
from collectives.records.kineto import STEP_PHASES, read_phase_times
from collectives.records.model_profile import Measured, ModelProfile


def measured_by_profiler(path: Path | str, profile: ModelProfile, batch_size: int, device: str) -> Measured:
    """Return the times in what torch's profiler wrote of one rank. Raise InputError where a phase is missing.

    ``device`` is what it ran on, unless the trace names the GPU whose kernels it has.
    """
    times = read_phase_times(path)
    found = {name: times.seconds.get(name, []) for name in STEP_PHASES}
    missing = [name for name in ("forward", "backward") if not found[name]]
    if missing:
        raise InputError(f"{path}: no {' and no '.join(missing)} in it; profile whole steps of a training")
    middle = {name: median(values) if values else 0.0 for name, values in found.items()}
    work = {name: profile.work(is_backward=name == "backward") for name in ("forward", "backward")}
    forward, backward = ([middle[name] * each / sum(work[name]) for each in work[name]] for name in work)
    return Measured(
        device=times.gpu or device,
        batch_size=batch_size,
        precision="",
        forward=tuple(forward),
        backward=tuple(backward),
        optimizer=middle["optimizer"],
        loading=0.0,
        step=sum(middle.values()),
        source=f"torch's profiler, median of {len(found['backward'])} steps: {Path(path).name}",
    )
