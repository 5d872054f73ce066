"""Environment variables of torch's own, which it reads while it is imported or a group is made, and may die of.

Nobody lists them all. So where any is set torch is tried with them in a process of its own, before it is imported here
or in the server of ranks.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from functools import cache

from collectives.errors import RunFailed
from collectives.variables import refused

PREFIXES = ("TORCH", "PYTORCH")
HARMLESS = ("TORCHELASTIC_", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE")  # torchrun's
TIMEOUT_S = 120.0
HANGS_S = 10  # for a group of one, which takes milliseconds
TRIAL = f"""
import torch, torch.distributed as dist
from realcomm.launching.compiler_folder import import_compiler
from realcomm.launching.group import loopback
import os, signal
os.environ["GLOO_SOCKET_IFNAME"] = loopback()
import_compiler()
signal.alarm({HANGS_S})
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.zeros(1))
os._exit(0)
"""


def check_torch_variables() -> None:
    """Raise InputError for a variable that torch does not bear. Without any it takes no time, else that of an import.

    >>> check_torch_variables()
    """
    names = tuple(name for name in sorted(os.environ) if name.startswith(PREFIXES) and not name.startswith(HARMLESS))
    _check(tuple((name, os.environ[name]) for name in names))


@cache
def _check(variables: tuple[tuple[str, str], ...]) -> None:
    """Raise InputError for the variable without which torch starts, if it does not start with all."""
    said = _try({}) if variables else ""
    if not said:
        return
    for name, value in variables:
        if len(variables) == 1 or not _try({name}):
            raise refused(name, value, f"torch does not start with it ({said}); give what torch accepts, or unset it")
    raise RunFailed(f"torch does not start with {', '.join(name for name, _ in variables)} set: {said}")


def _try(left_out: Iterable[str]) -> str:
    """Return what is wrong with torch where these variables are left out; "" for nothing."""
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    call = [sys.executable, "-c", TRIAL]
    try:
        done = subprocess.run(
            call, capture_output=True, text=True, errors="replace", env=environment, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it had not started after {TIMEOUT_S:g} s"
    if done.returncode == -signal.SIGALRM:
        return f"a group of one rank was not made in {HANGS_S} s"
    return "" if done.returncode == 0 else _reason(done.stderr.splitlines()) or f"status {done.returncode}"


def _reason(lines: list[str]) -> str:
    """Return the line that says what is wrong: of C++ or of Python.

    >>> _reason(["Traceback (most recent call last):", "ValueError: no such log", "", "  a list of all"])
    'ValueError: no such log'
    """
    said = [line.strip() for line in lines if line.strip()]
    return next((line for line in said if line.startswith("what():") or "Error: " in line.partition(" ")[0] + " "),
        said[-1] if said else "")  # fmt: skip
