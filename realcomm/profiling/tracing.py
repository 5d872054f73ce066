"""The profile of any model without running it; a user's file is traced in a process of its own.

What comes back from there is plain data. The process that asks for a file's imports no torch.
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
    """Return the profile of the model that ``text`` names, without running it. Raise InputError.

    >>> trace_model("gpt:layers=1,width=8,heads=2,context=4,vocabulary=10").parameters
    1000
    """
    if is_file_reference(text):
        given = [text, None if sample is None else [*sample]]
        file, found = ask_file(text, "realcomm.profiling.meta:trace_in_guest", given, ("realcomm.profiling.meta",))
        if not isinstance(found, dict):
            raise file.unreadable(TypeError("it is no object"))
        return parse_record(found, ModelProfile, file.path)
    check_model_name(text)
    from realcomm.profiling.meta import profile_named  # imports torch

    return profile_named(text, sample)


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
