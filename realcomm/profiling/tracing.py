"""Profile any model without computing values. A user's file is traced in a subprocess.

The subprocess returns plain data, so the calling process does not import torch for a user's file.
"""

from pathlib import Path
from statistics import median

from collectives.errors import InputError
from collectives.records.files import parse_record
from collectives.records.kineto import STEP_PHASES, read_phase_times
from collectives.records.model_profile import Measured, ModelProfile
from collectives.training.workload import is_file_reference
from realcomm.training.model_files import ask_file, check_model_name


def trace_model(text: str, sample: tuple[int, ...] | None = None) -> ModelProfile:
    """Return the profile of the model called ``text``, without computing values.

    Raise InputError if the model is unknown or cannot be traced.

    >>> trace_model("gpt:layers=1,width=8,heads=2,context=4,vocabulary=10").parameters
    1000
    """
    if is_file_reference(text):
        arguments = [text, None if sample is None else [*sample]]
        file, fields = ask_file(
            text, "realcomm.profiling.meta:trace_in_worker", arguments, ("realcomm.profiling.meta",)
        )
        if not isinstance(fields, dict):
            raise file.unreadable(TypeError("not an object"))
        return parse_record(fields, ModelProfile, file.path)
    check_model_name(text)
    from realcomm.profiling.meta import profile_on_meta  # imports torch
    from realcomm.profiling.model_sources import find_model

    return profile_on_meta(find_model(text, sample))


def measured_by_profiler(path: Path | str, profile: ModelProfile, batch_size: int, device: str) -> Measured:
    """Return the times in a profiler trace of one rank. Raise InputError if forward or backward is missing.

    ``device`` is the name of the device, unless the trace names its GPU.
    """
    times = read_phase_times(path)
    seconds = {name: times.seconds.get(name, []) for name in STEP_PHASES}
    missing = [name for name in ("forward", "backward") if not seconds[name]]
    if missing:
        raise InputError(f"{path}: no {' and no '.join(missing)} found; profile complete training steps")
    middle = {name: median(values) if values else 0.0 for name, values in seconds.items()}
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
        source=f"torch's profiler, median of {len(seconds['backward'])} steps: {Path(path).name}",
    )
