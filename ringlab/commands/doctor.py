"""``ringlab doctor``: check which features work on this machine."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from collectives.errors import InputError, RunFailed
from collectives.records.calibration import cache_file, read_calibration
from collectives.records.environment import cores, describe_environment
from collectives.units import count, format_bandwidth
from realcomm.emulation.network import try_emulation
from realcomm.launching.torch_process import WITH_TORCH, is_installed
from ringlab.shared.answer import Answer, AnswerRecord
from ringlab.shared.options import JsonOpt
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import Progress, TerminalProgress, computing
from ringlab.table import Part, Table

OPTIONAL = ("matplotlib", *WITH_TORCH)
PACKAGES = ("simpy", "networkx", "numba", "pydantic", *OPTIONAL)


def command(json_to: JsonOpt = None) -> None:
    """Check which features work on this machine, and report what is missing."""
    check_outputs(json_to)
    deliver(doctor(TerminalProgress()), json_to)


@dataclass(frozen=True)
class Finding(AnswerRecord):
    """The result of one check."""

    subject: str
    works: bool
    detail: str


@dataclass(frozen=True, repr=False)
class DoctorAnswer(Answer):
    """The result of ``ringlab doctor``."""

    kind = "doctor"

    findings: tuple[Finding, ...]

    @property
    def missing(self) -> list[str]:
        """The subjects of the failed checks."""
        return [finding.subject for finding in self.findings if not finding.works]

    def show(self) -> Iterator[Part]:
        rows = [[finding.subject, "yes" if finding.works else "no", finding.detail] for finding in self.findings]
        yield Table("This machine", ["", "works", ""], rows, words=3)
        yield f"Missing: {', '.join(self.missing)}." if self.missing else "Nothing is missing."


def doctor(progress: Progress | None = None) -> DoctorAnswer:
    """Check which features work on this machine. One of the checks emulates a network of two hosts.

    >>> doctor().findings[0].subject  # doctest: +SKIP
    'Python'
    """
    with computing(progress, "looking at this machine"):
        return DoctorAnswer((*_look_at_machine(), *_look_at_torch(), _emulation(), *_look_at_files()))


def _look_at_machine() -> Iterator[Finding]:
    about, free = describe_environment(), psutil.virtual_memory().available
    yield Finding("Python", sys.version_info >= (3, 11), f"{about['python']} (3.11 or later is required)")
    missing = [name for name in PACKAGES if not is_installed(name)]
    extra = "plots" if missing == ["matplotlib"] else "torch"
    cure = f"; predictions do not require them: pip install 'ringlab[{extra}]'" * ({*missing} <= {*OPTIONAL})
    packages = f"missing: {', '.join(missing)}{cure}" if missing else "all installed"
    yield Finding("packages", not missing, packages)
    runs = f"{about['cpu']}, {cores()} cores: runs up to {cores()} ranks without sharing a core"
    yield Finding("processor", True, runs)
    yield Finding("memory", free > 2 * 2**30, f"{free / 2**30:.1f} GiB free (training ResNet-18 takes 1 GiB per rank)")


def _look_at_torch() -> Iterator[Finding]:
    gloo, gpus = "gloo (CPU ranks)", "GPUs (NCCL ranks)"
    if not is_installed("torch"):
        yield from (Finding(subject, False, "torch is not installed") for subject in (gloo, gpus))
        return
    import torch
    import torch.distributed as dist

    works = dist.is_available() and dist.is_gloo_available()
    yield Finding(gloo, works, f"torch was built {'with' if works else 'without'} gloo")
    number = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = ", ".join(sorted({torch.cuda.get_device_name(i) for i in range(number)}))
    if number and not (dist.is_available() and dist.is_nccl_available()):
        yield Finding(gpus, False, f"{number}: {names}, but torch was built without NCCL")
    else:
        yield Finding(gpus, number > 0, f"{number}: {names}" if number else "none that torch can use")


def _emulation() -> Finding:
    try:
        trial = try_emulation()
    except RunFailed as error:
        return Finding("emulation", False, str(error))
    rates = " or ".join(f"{ranks} hosts at {format_bandwidth(trial.bearable / ranks)}" for ranks in (4, 8))
    latencies = "emulated" if trial.delays else "not emulated, because this kernel has no netem"
    return Finding("emulation", True, f"{trial.rights}; supports {rates}; latencies: {latencies}")


def _look_at_files() -> Iterator[Finding]:
    calibrations = []
    for file in sorted(cache_file(1).parent.glob("calibration-*.json")):
        with suppress(InputError):
            calibration = read_calibration(file)
            calibrations.append(
                f"{count(calibration.ranks, 'rank')} ({'fresh' if calibration.is_fresh() else 'stale'})"
            )
    yield Finding("calibration", bool(calibrations), ", ".join(calibrations) or "none yet; run `ringlab calibrate`")
    free = shutil.disk_usage(Path.cwd()).free
    yield Finding("disk", free > 10**9, f"{free / 1e9:.0f} GB free in the current directory")
