"""``DoctorAnswer``: what this machine can run, and what is missing."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from collectives.calibration.calibration import cache_file, read_calibration
from collectives.errors import InputError, RunFailed
from collectives.records.environment import cores, describe_environment
from collectives.units import count, format_bandwidth
from ringlab.shared.answer import SCHEMA_VERSION, Record, to_plain
from ringlab.shared.progress import Progress, computing


@dataclass(frozen=True)
class Finding(Record):
    """One thing that was looked at."""

    subject: str
    works: bool
    detail: str


@dataclass(frozen=True, repr=False)
class DoctorAnswer(Record):
    """What ``doctor`` found."""

    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        missing = f", missing: {', '.join(self.missing)}" if self.missing else ""
        return f"<DoctorAnswer: {len(self.findings)} findings{missing}>"

    @property
    def missing(self) -> list[str]:
        """The subjects of what does not work."""
        return [finding.subject for finding in self.findings if not finding.works]

    def to_dict(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, "kind": "doctor", "findings": to_plain(self.findings)}


def doctor(progress: Progress | None = None) -> DoctorAnswer:
    """Look at what this machine can run: it takes about a second, in which two hosts are emulated.

    >>> doctor().findings[0].subject  # doctest: +SKIP
    'Python'
    """
    looks = (_python, _packages, _processor, _memory, _gloo, _gpus, _emulation, _calibration, _disk)
    with computing(progress, "looking at this machine") as tick:
        found = []
        for number, look in enumerate(looks):
            tick(0, number, len(looks), f"looks, {look.__name__.strip('_')}")
            found.append(look())
    return DoctorAnswer(tuple(found))


def _python() -> Finding:
    return Finding(
        "Python", sys.version_info >= (3, 11), f"{describe_environment()['python']} (3.11 or later is needed)"
    )


def _packages() -> Finding:
    names = ("torch", "torchvision", "simpy", "networkx", "numba", "scipy", "matplotlib", "sklearn", "pydantic")
    missing = [name for name in names if find_spec(name) is None]
    return Finding("packages", not missing, f"missing: {', '.join(missing)}" if missing else "all there")


def _processor() -> Finding:
    return Finding(
        "processor", True, f"{describe_environment()['cpu']}, {cores()} cores: that many ranks without sharing any"
    )


def _memory() -> Finding:
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return Finding("memory", True, "unknown on this system")
    return Finding("memory", free > 2 * 2**30, f"{free / 2**30:.1f} GiB free (a ResNet-18 rank takes about 1)")


def _torch(subject: str, look: Callable[[], Finding]) -> Finding:
    return look() if find_spec("torch") else Finding(subject, False, "torch is not installed")


def _gloo() -> Finding:
    def look() -> Finding:
        import torch.distributed as dist

        works = dist.is_available() and dist.is_gloo_available()
        return Finding("gloo (CPU ranks)", works, "torch was built with it" if works else "torch was built without it")

    return _torch("gloo (CPU ranks)", look)


def _gpus() -> Finding:
    def look() -> Finding:
        import torch

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        names = ", ".join(sorted({torch.cuda.get_device_name(i) for i in range(count)}))
        return Finding("GPUs (NCCL ranks)", count > 0, f"{count}: {names}" if count else "none that torch can use")

    return _torch("GPUs (NCCL ranks)", look)


def _emulation() -> Finding:
    """Emulate two hosts, and say how fast links may be for this machine to bear them."""
    subject = "emulation"
    from realcomm.emulation.trial import try_emulation

    try:
        found = try_emulation()
    except RunFailed as error:
        return Finding(subject, False, str(error))
    rates = " or ".join(f"{ranks} hosts at {format_bandwidth(found.bearable / ranks)}" for ranks in (4, 8))
    latencies = "emulated" if found.delays else "not emulated, as this kernel has no netem"
    return Finding(subject, True, f"{found.rights}; bears {rates}; latencies: {latencies}")


def _calibration() -> Finding:
    found = []
    for file in sorted(cache_file(1).parent.glob("calibration-*.json")):
        try:
            calibration = read_calibration(file)
        except InputError:
            continue
        found.append(f"{count(calibration.ranks, 'rank')} ({'fresh' if calibration.is_fresh() else 'stale'})")
    return Finding("calibration", bool(found), ", ".join(found) or "none yet: `ringlab calibrate` makes one")


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    return Finding("disk", free > 10**9, f"{free / 1e9:.0f} GB free here")
