"""What torch's profiler wrote of a training, as the times of a model's layers.

The profiler names phases, not layers: a phase is divided among the layers by their work, as ``work_shares`` says.
"""

from collections import defaultdict
from pathlib import Path
from statistics import median

from collectives.errors import InputError
from collectives.records.model_profile import Layer, Measured, ModelProfile
from collectives.records.profiles import read_profile

FLOPS_PER_BYTE = 50.0  # of a processor or GPU in float32, roughly; assumed
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
    forward = [middle["forward"] * share for share in work_shares(profile, is_backward=False)]
    backward = [middle["backward"] * share for share in work_shares(profile, is_backward=True)]
    return Measured(
        device, batch_size, "as profiled", tuple(forward), tuple(backward), middle["optimizer"], 0.0,
        sum(middle.values()), f"torch's profiler, median of {len(found['backward'])} steps: {Path(path).name}",
    )  # fmt: skip


def work_shares(profile: ModelProfile, is_backward: bool) -> list[float]:
    """Return the layers' shares of a phase: of a layer FLOPs count, or its bytes where these take longer."""

    def work(layer: Layer) -> float:
        if is_backward:
            return max(layer.backward_flops, FLOPS_PER_BYTE * layer.backward_bytes)
        return max(layer.forward_flops, FLOPS_PER_BYTE * (layer.read_bytes + layer.written_bytes))

    each = [work(layer) for layer in profile.layers]
    return [one / (sum(each) or 1.0) for one in each]
