"""Compiling the functions of the engine with numba.

Compiled functions work on arrays that Python holds and make none themselves, so they need not count references to them
(numba's ``_nrt``), which here would take nine tenths of the time, as would copying the tuple of arrays into each call:
hence functions are inlined.

Functions that only compiled ones call are *parts*: numba would make each of them callable from Python, optimize it and
make machine code of it, several times over what all of that takes for the function that they end up in.
"""

import re
import weakref
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from simcomm.kept_code import KNOWN_INSIDE, compile_and_cache

Function = TypeVar("Function", bound=Callable[..., Any])

ROOT = Path(__file__).parents[3]
COMPILED = ("simcomm.compiled.kernel.", "simcomm.model.", "simcomm.hashing")  # whose functions are compiled
IMPORT = re.compile(r"^from (simcomm[.\w]*) import ([ ,\w]*)", re.MULTILINE)
NOBODY = np.int64(-1)  # not the literal -1, for which numba would compile every function that takes it once more
OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}


class _PartLibrary(JITCodeLibrary):
    """The code of a part: functions that are linked into others, where it is optimized and made machine code."""

    class _NoEnvironments:
        """In place of numba's code generator where a part would be made ready for Python to call."""

        @staticmethod
        def set_env(env_name: str, env: Any) -> None:
            """Do nothing: parts have no Python objects."""

    @property
    def codegen(self) -> Any:
        return self._NoEnvironments

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._final_module._CPUCodeLibrary__library = weakref.proxy(self)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()  # type: ignore[no-untyped-call]
        return 0


class _PartCompiler(Compiler):
    """numba's compiler, but that the code of a function is a part."""

    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        library = _PartLibrary(target.codegen(), f"part {next(_parts)}")  # type: ignore[no-untyped-call]
        library.enable_object_caching()
        super().__init__(typing, target, library, *rest)  # type: ignore[no-untyped-call]


_parts = count()
PART: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
if numba.version_info.short in KNOWN_INSIDE:
    PART["pipeline_class"] = _PartCompiler


def inline(function: Function) -> Function:
    """Compile a function for other compiled functions to call; it becomes part of each of them."""
    compiled: Function = numba.njit(forceinline=True, **PART, **OPTIONS)(function)
    return compiled


def separate(function: Function) -> Function:
    """Compile a function that is seldom called by others; it stays a function of its own, which is compiled once."""
    compiled: Function = numba.njit(**PART, **OPTIONS)(function)
    return compiled


def entry(function: Function) -> Function:
    """Compile a function for Python to call, which calls others.

    numba looks for the code it kept by the text of this function alone, so the function must be a closure over
    ``source_hash(__name__)``, lest the code outlive a change to what it calls.
    """
    return compile_and_cache(function, **OPTIONS)


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
