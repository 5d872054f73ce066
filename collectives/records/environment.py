"""What machine and what software a number comes from, to stand beside it."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def threads_per_rank(local_ranks: int) -> int:
    """Compute threads each of so many ranks gets on this machine: at least one."""
    return max(1, cores() // local_ranks)


def environment() -> dict[str, str | int]:
    """Machine, cores and versions of what matters for a measurement; imports none of it."""
    return {
        "host": platform.node(),
        "cpu": _cpu_model(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{package: _installed(package) for package in ("ringlab", "torch", "torchvision", "numpy", "simpy")},
    }
