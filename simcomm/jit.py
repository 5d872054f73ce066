"""Functions of the engine compiled by numba, and kept on disk where there is a place for it.

Importing this module imports numba, which takes a fifth of a second: whoever may do without imports it when it is due.

Compiled functions work on arrays that Python holds and make none themselves, so they need not count references to them
(``_nrt``), which would take most of the time. Those that only compiled ones call are not made ready for Python, and are
inlined unless they are long and called from many places: numba hands on an array as seven numbers.
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
from simcomm.compiling import tell_of_compiling

if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise InputError(
        "NUMBA_DISABLE_JIT is set, and the compiled engine is machine code that numba makes; unset it, or take "
        "--engine simpy"
    )

Function = TypeVar("Function", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
PART: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, **OPTIONS}
SHARED_SOURCES = (Path(__file__).parent / "model" / "sharing.py",)
LOADED_AT_ONCE = (0, 68)  # the release of numba of which it is known how it loads code


def inline(function: Function) -> Function:
    """Compile a function for other compiled functions to call; it becomes part of each of them."""
    compiled: Function = numba.njit(forceinline=True, **PART)(function)
    return compiled


def separate(function: Function) -> Function:
    """Compile a function that is called seldom, or from many places; it stays one of its own, compiled once."""
    compiled: Function = numba.njit(**PART)(function)
    return compiled


def entry(function: Function) -> Function:
    """Compile a function for Python to call, which calls others.

    numba looks for the code it kept by the text of this function alone, so the function must be a closure over
    ``source_hash(__file__)``, lest the code outlive a change to what it calls.
    """
    return compile_and_cache(function, **OPTIONS)


@cache
def source_hash(file: str) -> int:
    """Return a number that changes with the text of a file's folder, and of what functions there take from others."""
    paths = [*sorted(Path(file).parent.glob("*.py")), *SHARED_SOURCES]
    return int.from_bytes(sha256(b"\0".join(path.read_bytes() for path in paths)).digest()[:6])


def compile_and_cache(function: Function, **options: Any) -> Function:
    """Compile a function for Python to call: once for this machine, or once a process where no folder is writable."""
    options = {"error_model": "numpy", "nogil": True, **options}  # a thread can then end the process meanwhile
    try:
        with _kept_in_cache_folder():
            compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the cache folder nor a place beside the source can be written
        return numba.njit(**options)(function)  # type: ignore[no-any-return]
    if numba.version_info.short == LOADED_AT_ONCE:
        _load_at_once(compiled)
    return compiled  # type: ignore[no-any-return]


@contextmanager
def _kept_in_cache_folder() -> Iterator[None]:
    """Within the context, have numba keep code where the user's caches are, unless NUMBA_CACHE_DIR names a folder."""
    told = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    with suppress(InputError):  # there is no home: beside the source, if it can be written
        numba.config.CACHE_DIR = told or str(cache_folder() / "machine-code")  # type: ignore[attr-defined]
    try:
        yield
    finally:
        numba.config.CACHE_DIR = told  # type: ignore[attr-defined]


def _load_at_once(compiled: Any) -> None:
    """Have code on disk loaded without all that numba compiles with, which takes four tenths of a second a command.

    What cannot be read there, as it is damaged or of another release, is compiled again.
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
    """Tells of code that is compiled; numba says nothing of code that it finds on disk."""

    def on_start(self, found: event.Event) -> None:
        tell_of_compiling()

    def on_end(self, found: event.Event) -> None:
        pass


event.register("numba:compile", _Listener())  # type: ignore[no-untyped-call]
