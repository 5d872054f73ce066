"""Compiling with numba, its machine code kept on disk where there is a place for it.

Compiled functions work on arrays that Python holds and make none themselves, so they need not count references to them
(numba's ``_nrt``), which here would take nine tenths of the time, as would copying the tuple of arrays into each call:
hence functions are inlined.
"""

from collections.abc import Callable
from functools import cache, wraps
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import event

from collectives.errors import InputError
from simcomm.compiling import tell_of_compiling

if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise InputError(
        "NUMBA_DISABLE_JIT is set, and the compiled engine is machine code that numba makes; unset it, or take "
        "--engine simpy"
    )

Function = TypeVar("Function", bound=Callable[..., Any])

NOBODY = np.int64(-1)  # not the literal -1, for which numba would compile every function that takes it once more
OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}


def inline(function: Function) -> Function:
    """Compile a function for other compiled functions to call; it becomes part of each of them."""
    compiled: Function = numba.njit(forceinline=True, **OPTIONS)(function)
    return compiled


def separate(function: Function) -> Function:
    """Compile a function that is seldom called by others; it stays a function of its own, which is compiled once."""
    compiled: Function = numba.njit(**OPTIONS)(function)
    return compiled


def entry(function: Function) -> Function:
    """Compile a function for Python to call, which calls others.

    numba looks for the code it kept by the text of this function alone, so the function must be a closure over
    ``source_hash()``, lest the code outlive a change to what it calls.
    """
    return compile_and_cache(function, **OPTIONS)


def compile_and_cache(function: Function, **options: Any) -> Function:
    """Compile a function for Python to call: once for this machine, or once a process where no folder is writable."""
    options = {"error_model": "numpy", "nogil": True, **options}  # a thread can then end the process meanwhile
    try:
        compiled: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither __pycache__ nor the user's cache folder can be written
        compiled = numba.njit(**options)(function)
        return compiled

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return compiled(*arguments)
        except OSError:  # the disk is full: the code is compiled and cannot be kept
            return compiled(*arguments)

    return cast(Function, call)


class _Listener(event.Listener):
    """Tells of code that is compiled; numba says nothing of code that it finds on disk."""

    def on_start(self, found: event.Event) -> None:
        tell_of_compiling()

    def on_end(self, found: event.Event) -> None:
        pass


event.register("numba:compile", _Listener())  # type: ignore[no-untyped-call]


@cache
def source_hash() -> int:
    """Return a number that changes with the text of any module that this package compiles, or compiles parts of."""
    kernel, simcomm = Path(__file__).parent, Path(__file__).parents[2]
    paths = [*kernel.glob("*.py"), *simcomm.joinpath("model").glob("*.py"), simcomm / "hashing.py"]
    return int.from_bytes(sha256(b"\0".join(path.read_bytes() for path in sorted(paths))).digest()[:6])
