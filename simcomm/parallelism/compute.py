"""How long one device computes on a model's layers: as measured, from a known rate, or from its data sheet."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from collectives.checks import check_number
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import Measured, ModelProfile
from simcomm.cluster.hardware_parts import find_part
from simcomm.nccl.gpus import match_gpu

FLOPS_SHARE, BYTES_SHARE = 0.6, 0.5  # of a data sheet's peaks that layers reach; assumed, see docs/parallelism.md
MEASURED_SPREAD = 0.03  # standard deviation of the log of a rate ...
SHEET_SPREAD = 0.35  # ... that of data sheets beside published rates of one GPU (docs/parallelism_table.py)
PEAKS = {"float32": ("tf32", "fp32"), "bf16": ("fp16", "fp32"), "fp16": ("fp16", "fp32")}
FORWARD_SHARE = 1 / 3  # of a step's FLOPs


class BlockTimes(NamedTuple):
    """Seconds of each block of a model, for a microbatch."""

    forward: tuple[float, ...]
    backward: tuple[float, ...]


@dataclass(frozen=True)
class Compute:
    """Seconds a sample of each layer, with what every batch costs besides, and how sure that is."""

    profile: ModelProfile
    forward: tuple[float, ...]  # a sample
    backward: tuple[float, ...]
    optimizer: float  # of all parameters on one device
    source: str
    spread: float  # of the log of the rate
    is_whole: bool = False  # the optimizer's time is in the others

    def blocks(self, samples: float) -> BlockTimes:
        """Return the seconds of each block for so many samples."""
        names = [layer.block for layer in self.profile.layers]
        return BlockTimes(*(
            tuple(samples * sum(seconds for _, seconds in rows) for _, rows in
                  groupby(zip(names, times, strict=True), key=lambda row: row[0]))
            for times in (self.forward, self.backward)
        ))  # fmt: skip

    def step(self, samples: float) -> float:
        """Return the seconds of a step on one device alone."""
        return samples * (sum(self.forward) + sum(self.backward)) + self.optimizer


def as_measured(profile: ModelProfile, device: str | None = None) -> Compute:
    """Return what the profile says was measured, the last of ``device``. Raise InputError where nothing was."""
    found = [one for one in profile.measured if device is None or one.device == device]
    if not found:
        raise InputError(
            f"the profile of {quote(profile.model)} has no times; make one with "
            "`ringlab profile MODEL --batch-size N -o FILE.json`"
        )
    one: Measured = found[-1]
    forward, backward = (tuple(each / one.batch_size for each in times) for times in (one.forward, one.backward))
    source = f"measured on {one.device}, batches of {one.batch_size} in {one.said_precision}"
    return Compute(profile, forward, backward, one.optimizer, source, MEASURED_SPREAD)


def measured_rate(profile: ModelProfile, where: str) -> tuple[str, float]:
    """Return the GPU on which a profile's last times were measured, and the samples a second of a step there.

    Raises InputError, which names ``where`` the profile is, for one without times and for times of no GPU that is
    known.
    """
    if not profile.measured:
        as_measured(profile)
    one = profile.measured[-1]
    gpu = match_gpu(one.device)
    if gpu is None:
        raise InputError(
            f"{where}: its times are of {one.device!r}, which is no GPU that is known; profile the model on a GPU"
        )
    return gpu.name, one.batch_size / one.step


def at_rate(profile: ModelProfile, rate: float, source: str = "a known rate") -> Compute:
    """Return what one device that trains on ``rate`` samples a second spends on each layer, by their work.

    >>> from collectives.records.model_profile import find_model_profile
    >>> round(at_rate(find_model_profile("resnet50"), 500).step(100), 9)
    0.2
    """
    check_number("rate", rate, "samples a second", above=0)
    forward, backward = profile.work(is_backward=False), profile.work(is_backward=True)
    whole = (sum(forward) + sum(backward)) * rate
    ahead, back = (tuple(each / whole for each in part) for part in (forward, backward))
    return Compute(profile, ahead, back, 0.0, f"{source}: {rate:.4g} samples/s on one device", MEASURED_SPREAD, True)


def of_data_sheet(profile: ModelProfile, gpu: str, precision: str = "float32") -> Compute:
    """Return what a GPU of the catalogue takes by its data sheet: a layer's FLOPs or its bytes, whichever last longer.

    Raises InputError for a GPU whose figures are not known.

    >>> from collectives.records.model_profile import find_model_profile
    >>> 500 < 64 / of_data_sheet(find_model_profile("resnet50"), "RTX 4090", "fp16").step(64) < 2000
    True
    """
    figures = find_part("GPU", gpu)
    peak = next((figures[key].value for key in PEAKS.get(precision, ()) if key in figures), None)
    if peak is None or "memory_bandwidth" not in figures:
        raise InputError(f"the catalogue does not say how fast {gpu} is in {precision}; give compute = {{rate = ...}}")
    tflops, memory = (float(value.split()[0]) for value in (peak, figures["memory_bandwidth"].value))
    return of_peaks(profile, tflops, memory, precision, f"data sheet of {gpu}, {precision}")


def of_peaks(profile: ModelProfile, tflops: float, memory: float, precision: str, source: str) -> Compute:
    """Return what a device takes that has so many TFLOP/s in a precision and GB/s of memory."""
    flops, moved = tflops * 1e12 * FLOPS_SHARE, memory * 1e9 * BYTES_SHARE
    scale = (4 if precision == "float32" else 2) / profile.item_bytes

    def seconds(rows: Sequence[tuple[int, int]]) -> tuple[float, ...]:
        return tuple(max(work / flops, bytes_ * scale / moved) for work, bytes_ in rows)

    forward = seconds([(layer.forward_flops, layer.read_bytes + layer.written_bytes) for layer in profile.layers])
    backward = seconds([(layer.backward_flops, layer.backward_bytes) for layer in profile.layers])
    optimizer = profile.parameters * 4 * 5 / moved  # weights, gradients and momenta are read, two of them written
    return Compute(profile, forward, backward, optimizer, source, SHEET_SPREAD)
