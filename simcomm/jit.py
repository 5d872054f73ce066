"""Compile functions of the engine with numba, and cache the machine code on disk if possible.

Importing this module imports numba, which takes 0.2 s, so import it only when you need it.

Compiled functions only use arrays that Python owns. So reference counting (``_nrt``), which would take most of the
time, is switched off. Functions that are only called by compiled code have no Python interface. They are inlined unless
they are long and called from many places, because numba passes an array as seven numbers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import event
from numba.core.runtime.nrt import rtsys

from collectives.errors import InputError
from collectives.output_files import cache_folder
from simcomm.compiling import report_compilation

if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise InputError(
        "NUMBA_DISABLE_JIT is set, but the compiled engine needs numba; unset it, or call simcomm.run with "
        'engine="simpy"'
    )

Function = TypeVar("Function", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
PART: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, **OPTIONS}
SHARED_SOURCES = (Path(__file__).parent / "model" / "sharing.py",)
LOADED_AT_ONCE = (0, 68)  # the tested release of numba


def inline(function: Function) -> Function:
    """Compile a function and inline it into the compiled functions that call it."""
    compiled: Function = numba.njit(forceinline=True, **PART)(function)
    return compiled


def separate(function: Function) -> Function:
    """Compile a function without inlining it, because it is called rarely or from many places."""
    compiled: Function = numba.njit(**PART)(function)
    return compiled


def entry(function: Function) -> Function:
    """Compile a function that Python calls, and cache its machine code.

    numba looks up cached code by the source text of ``function`` alone. So ``function`` must be a closure over
    ``source_hash(__file__)``. Otherwise numba would not recompile it when functions that it calls change.
    """
    return compile_and_cache(function, **OPTIONS)


@cache
def source_hash(file: str) -> int:
    """Return a 48-bit hash of the Python files in the directory of ``file`` and of the files in ``SHARED_SOURCES``."""
    paths = [*sorted(Path(file).parent.glob("*.py")), *SHARED_SOURCES]
    return int.from_bytes(sha256(b"\0".join(path.read_bytes() for path in paths)).digest()[:6])


def compile_and_cache(function: Function, **options: Any) -> Function:
    """Compile a function that is called from Python, and cache it on disk if a directory is writable."""
    options = {"error_model": "numpy", "nogil": True, **options}  # a thread can end the process during machine code
    try:
        with _kept_in_cache_folder():
            compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the cache folder nor the source's folder is writable
        return numba.njit(**options)(function)  # type: ignore[no-any-return]
    if numba.version_info.short == LOADED_AT_ONCE:
        _load_at_once(compiled)
    return compiled  # type: ignore[no-any-return]


@contextmanager
def _kept_in_cache_folder() -> Iterator[None]:
    """Within the context, numba caches code in the user's cache directory, unless NUMBA_CACHE_DIR is set."""
    folder = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    with suppress(InputError):  # without a home folder: next to the source, if possible
        numba.config.CACHE_DIR = folder or str(cache_folder() / "machine-code")  # type: ignore[attr-defined]
    try:
        yield
    finally:
        numba.config.CACHE_DIR = folder  # type: ignore[attr-defined]


def _load_at_once(compiled: Any) -> None:
    """Make a compiled function load its cached code without importing numba's compiler, which takes 0.4 s.

    Cached code that cannot be loaded is discarded and compiled again.
    """

    def load_overload(signature: Any, context: Any) -> Any:
        rtsys.initialize(context)
        try:
            return compiled._cache._load_overload(signature, context)
        except Exception:
            compiled._cache.flush()
            return None

    compiled._cache.load_overload = load_overload


class _Listener(event.Listener):
    """A listener that reports each compilation. numba does not notify it of code that is loaded from disk."""

    def on_start(self, compilation: event.Event) -> None:
        report_compilation()

    def on_end(self, compilation: event.Event) -> None:
        pass


event.register("numba:compile", _Listener())  # type: ignore[no-untyped-call]
