"""Compiling with numba, its machine code kept on disk where there is a place for it.

Compiled functions work on arrays that Python holds and make none themselves, so they need not count references to them
(numba's ``_nrt``), which here would take nine tenths of the time, as would copying the tuple of arrays into each call:
hence functions are inlined.
"""

import re
from collections.abc import Callable
from functools import cache, wraps
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import event
from numba.core.runtime.nrt import rtsys

from collectives.errors import InputError
from simcomm.compiling import tell_of_compiling

if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise InputError(
        "NUMBA_DISABLE_JIT is set, and the compiled engine is machine code that numba makes; unset it, or take "
        "--engine simpy"
    )

Function = TypeVar("Function", bound=Callable[..., Any])

ROOT = Path(__file__).parents[3]
COMPILED = ("simcomm.compiled.kernel.", "simcomm.model.", "simcomm.hashing")  # whose functions are compiled
IMPORT = re.compile(r"^from (simcomm[.\w]*) import ([ ,\w]*)", re.MULTILINE)
KNOWN_INSIDE = {(0, 68)}  # releases of numba of which it is known how they load code
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
    ``source_hash(__name__)``, lest the code outlive a change to what it calls.
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
    _load_at_once(compiled)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return compiled(*arguments)
        except OSError:  # the disk is full: the code is compiled and cannot be kept
            return compiled(*arguments)

    return cast(Function, call)


def _load_at_once(compiled: Any) -> None:
    """Have code that lies on disk loaded without all that numba compiles with, which takes a third of a second.

    Before numba looks on disk, it fills its tables of types and functions. They serve to compile, before which they are
    filled in any case; of the rest, code needs only numba's runtime. This is about the insides of releases that were
    looked into; others load in their own way.
    """
    if numba.version_info.short not in KNOWN_INSIDE:
        return

    def load_overload(signature: Any, context: Any) -> Any:
        rtsys.initialize(context)
        return compiled._cache._load_overload(signature, context)

    compiled._cache.load_overload = load_overload


class _Listener(event.Listener):
    """Tells of code that is compiled; numba says nothing of code that it finds on disk."""

    def on_start(self, found: event.Event) -> None:
        tell_of_compiling()

    def on_end(self, found: event.Event) -> None:
        pass


event.register("numba:compile", _Listener())  # type: ignore[no-untyped-call]


@cache
def source_hash(module: str) -> int:
    """Return a number that changes with the text of a module and of all whose functions may be compiled into its own.

    An edit of one entry's modules so leaves the machine code of the others as it is.
    """
    return int.from_bytes(sha256(b"\0".join(path.read_bytes() for path in compiled_sources(module))).digest()[:6])


def compiled_sources(module: str) -> list[Path]:
    """Return the files of a module and of those that it imports, one through another, of the folders that are compiled.

    >>> [path.stem for path in compiled_sources("simcomm.compiled.kernel.heap")]
    ['arrays', 'heap', 'jit']
    """
    found, todo = dict[str, Path](), [module]
    while todo:
        name = todo.pop()
        path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
        if name not in found and name.startswith(COMPILED) and path.is_file():
            found[name] = path
            for package, names in IMPORT.findall(path.read_text(encoding="utf-8")):
                todo += [package, *(f"{package}.{each.strip()}" for each in names.split(",") if each.strip())]
    return [found[name] for name in sorted(found)]
