"""How long one device computes on a model's layers: as measured, or from a known rate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import isfinite
from typing import NamedTuple

from collectives.checks import check_number
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import Measured, ModelProfile
from collectives.training.workload import ComputePhases
from simcomm.nccl.catalogue import match_gpu

# Standard deviation of the log of a rate: one script on boxes of one kind differs by 3.2 % (published H100 series).
MEASURED_SPREAD = 0.03


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

    def blocks(self, samples: float) -> BlockTimes:
        """Return the seconds of each block for so many samples."""
        names = [layer.block for layer in self.profile.layers]
        return BlockTimes(*(
            tuple(samples * sum(seconds for _, seconds in rows) for _, rows in
                  groupby(zip(names, times, strict=True), key=lambda row: row[0]))
            for times in (self.forward, self.backward)
        ))  # fmt: skip

    def times(self, factors: Sequence[float]) -> "Compute":
        """Return the times of a model whose layers each take so many times as long."""
        forward, backward = (
            tuple(seconds * factor for seconds, factor in zip(layers, factors, strict=True))
            for layers in (self.forward, self.backward)
        )
        return replace(self, forward=forward, backward=backward)

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
    if not isfinite(whole):
        raise InputError(f"rate is {rate:g} samples a second, which no device reaches; use a measured rate")
    ahead, back = (tuple(each / whole for each in part) for part in (forward, backward))
    return Compute(profile, ahead, back, 0.0, f"{source}: {rate:.4g} samples/s on one device", MEASURED_SPREAD)


def in_phases(profile: ModelProfile, phases: ComputePhases, batch: float) -> Compute:
    """Return the stated phases of a batch of so many samples, divided among the layers by their work.

    Raise InputError for phases in which nothing is computed.
    """
    if phases.forward + phases.backward < 1e-9:
        raise InputError("forward and backward take no time; give phases that take 1 ns together, or more")
    ahead, back = (
        tuple(seconds / batch * each / sum(work) for each in work)
        for seconds, work in ((phases.forward, profile.work(False)), (phases.backward, profile.work(True)))
    )
    return Compute(profile, ahead, back, phases.optimizer, f"stated for batches of {batch}", MEASURED_SPREAD)
