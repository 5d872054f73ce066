"""Prepare a process for torch: check its environment variables, import its compiler, and keep freed memory.

Torch reads many variables at import or when a group is created, and invalid values may crash it. So if any variable is
set, torch is first started in a subprocess.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import PathFinder

from collectives.errors import InputError, TorchMissing
from collectives.variables import is_first_rank, refused

PREFIXES = ("TORCH", "PYTORCH")
HARMLESS = ("TORCHELASTIC_", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE")  # set by torchrun
TIMEOUT_S = 120.0
HANGS_S = 10  # for creating a group of one rank, which takes milliseconds
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
WITH_TORCH = ("torch", "torchvision", "sklearn")  # installed with `ringlab[torch]`
VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
PRELOAD = "realcomm.launching.compiler_preload"  # its import calls ``import_compiler()``
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # constants of mallopt(3)
LARGEST = 32 << 20  # bytes of the largest block on the heap; the most that glibc accepts


def check_torch() -> None:
    """Raise InputError if torch is not installed, or if it does not start with its environment variables.

    If none of torch's variables is set, this takes no time. Otherwise it takes as long as importing torch. Under
    torchrun, only the first rank checks the variables.

    >>> check_torch()
    """
    check_installed("torch")
    names = tuple(name for name in sorted(os.environ) if name.startswith(PREFIXES) and not name.startswith(HARMLESS))
    if is_first_rank():
        _check(tuple((name, os.environ[name]) for name in names))


def check_installed(package: str) -> None:
    """Raise TorchMissing if ``package`` is not installed. ``package`` must be one of ``WITH_TORCH``.

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
    if variables and (problem := _start_error()):
        if len(variables) == 1:
            raise refused(*variables[0], f"torch does not start with this value ({problem}); correct or unset it")
        names = ", ".join(name for name, _ in variables)
        raise InputError(f"torch does not start while {names} are set ({problem}); unset one after another")


def _start_error() -> str:
    """Create a group of one rank in a new process. Return the error as text, or "" if this succeeds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    call = [sys.executable, "-c", TRIAL]
    try:
        done = subprocess.run(
            call, capture_output=True, text=True, errors="replace", env=environment, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not started after {TIMEOUT_S:g} s"
    if done.returncode == -signal.SIGALRM:
        return f"creating a group of one rank took longer than {HANGS_S} s"
    return "" if done.returncode == 0 else _reason(done.stderr.splitlines()) or f"status {done.returncode}"


def _reason(lines: list[str]) -> str:
    """Return the line of C++ or Python output that states why the process failed.

    >>> _reason(["Traceback (most recent call last):", "ValueError: no such log", "", "  a list of all"])
    'ValueError: no such log'
    """
    texts = [line.strip() for line in lines if line.strip()]
    return next((line for line in texts if line.startswith("what():") or "Error: " in line.partition(" ")[0] + " "),
        texts[-1] if texts else "")  # fmt: skip


@contextmanager
def importing_compiler() -> Iterator[None]:
    """Within the context, allow importing torch's compiler without creating its cache folder.

    Code that is compiled later is still cached in torch's usual folder.

    >>> with importing_compiler():
    ...     VARIABLE in os.environ
    True
    """
    import torch  # noqa: F401 - with the environment as it is, before it is changed

    folder = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = folder or tempfile.gettempdir()  # an existing folder, so none is created
    try:
        yield
    finally:
        if folder is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = folder


def import_compiler() -> None:
    """Import ``torch._dynamo``, which optimizers and torchvision need, without creating the compiler's cache folder."""
    with importing_compiler():
        import torch._dynamo  # noqa: F401 - slow, and imported by them in any case


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for later allocations, in blocks of up to 32 MiB.

    By default, glibc may return freed memory to the kernel, depending on the layout of the heap. A process may then
    have page faults on its activations in each training step, and another process may have none. Nothing changes if the
    environment has settings of glibc's allocator, or with another C library.

    >>> keep_freed_memory()
    """
    settings = [name for name in os.environ if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES"]
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not settings:
        mallopt(M_MMAP_THRESHOLD, LARGEST)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)  # bytes kept at the end of the heap
