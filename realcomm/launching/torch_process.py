"""What a process that imports torch has to see to: torch's environment variables, its compiler's folder, and memory.

Nobody lists torch's variables, which it reads while it is imported or a group is made, and may die of. So where any is
set torch is tried with them in a process of its own, before it is imported here or in the server of ranks.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import PathFinder

from collectives.errors import RunFailed, TorchMissing
from collectives.variables import is_first_rank, refused

PREFIXES = ("TORCH", "PYTORCH")
HARMLESS = ("TORCHELASTIC_", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE")  # torchrun's
TIMEOUT_S = 120.0
HANGS_S = 10  # for a group of one, which takes milliseconds
TRIAL = f"""
import torch, torch.distributed as dist
from realcomm.launching.torch_process import import_compiler
from realcomm.launching.group import loopback
import os, signal
os.environ["GLOO_SOCKET_IFNAME"] = loopback()
import_compiler()
signal.alarm({HANGS_S})
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.zeros(1))
os._exit(0)
"""
WITH_TORCH = ("torch", "torchvision", "sklearn")  # what `ringlab[torch]` brings
VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
PRELOAD = "realcomm.launching.compiler_preload"  # whose import is ``import_compiler()``, to be preloaded
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
LARGEST = 32 << 20  # bytes of the largest piece that the heap takes; the most that glibc accepts


def check_torch() -> None:
    """Raise InputError where torch is not installed, or for a variable that it does not bear.

    Without any such variable it takes no time, else that of an import. Of ranks that torchrun started the first looks.

    >>> check_torch()
    """
    check_installed("torch")
    names = tuple(name for name in sorted(os.environ) if name.startswith(PREFIXES) and not name.startswith(HARMLESS))
    if is_first_rank():
        _check(tuple((name, os.environ[name]) for name in names))


def check_installed(package: str) -> None:
    """Raise TorchMissing unless a package of ``WITH_TORCH`` is installed.

    >>> check_installed("torchvision")
    """
    if not is_installed(package):
        raise TorchMissing(package)


def is_installed(package: str) -> bool:
    """Return whether a package is installed, without importing it.

    >>> is_installed("no_such_package")
    False
    """
    return package in sys.modules or PathFinder.find_spec(package) is not None


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


@contextmanager
def importing_compiler() -> Iterator[None]:
    """Within the context, have torch's compiler imported without a folder of its own being made.

    What a model compiles later is kept where torch says.

    >>> with importing_compiler():
    ...     VARIABLE in os.environ
    True
    """
    import torch  # noqa: F401 - with the environment as it is, before it is changed

    given = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = given or tempfile.gettempdir()  # it is there already
    try:
        yield
    finally:
        if given is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = given


def import_compiler() -> None:
    """Import what torch's optimizers and torchvision import of its compiler, without a folder that is left."""
    with importing_compiler():
        import torch._dynamo  # noqa: F401 - slow, and imported by them in any case


def keep_freed_memory() -> None:
    """Have the C library keep freed memory for the next allocation, in pieces of up to 32 MiB.

    By itself glibc gives it back to the kernel, or not, by how the heap happens to lie: one process then fetches the
    pages of a step's activations in each step anew, for as long as it lives, and its neighbour never does. What the
    environment says of glibc's memory holds, and other C libraries and allocators do as they always do.

    >>> keep_freed_memory()
    """
    told = [name for name in os.environ if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES"]
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not told:
        mallopt(M_MMAP_THRESHOLD, LARGEST)
        # bytes at the end of the heap that are not given back
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
