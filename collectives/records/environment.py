"""Describe the machine and the software of a measurement."""

import os
import platform
from datetime import date
from pathlib import Path


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def installed_version(package: str) -> str:
    """Return the version of an installed package, or "not installed"."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def threads_per_rank(local_ranks: int) -> int:
    """Return the number of compute threads for each of ``local_ranks`` ranks on this machine. It is at least one."""
    return max(1, cores() // local_ranks)


def describe_environment() -> dict[str, str | int]:
    """Return the names of the machine and its CPU, its number of cores, and the versions of the software."""
    return {
        "host": platform.node(),
        "cpu": _cpu_model(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{package: installed_version(package) for package in ("ringlab", "torch", "torchvision", "numpy", "simpy")},
    }


def describe_measurement() -> dict[str, str | int]:
    """Return today's date and the environment."""
    return {"date": date.today().isoformat(), **describe_environment()}
