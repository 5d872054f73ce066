"""Compiling the functions of the engine with numba.

Compiled functions work on arrays that Python holds and make none themselves, so they need not count references to them
(numba's ``_nrt``), which here would take nine tenths of the time. Most functions are inlined, which is fastest; the
longer ones that are called from many places are not, as each place would have a copy of them to compile.

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

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numba
import numpy as np
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from simcomm.kept_code import KNOWN_INSIDE, compile_and_cache

Function = TypeVar("Function", bound=Callable[..., Any])

ROOT = Path(__file__).parents[3]
COMPILED = (
    "simcomm.compiled.kernel.",
    "simcomm.compiled.tcp.",
    "simcomm.model.",
    "simcomm.hashing",
)  # whose functions are compiled
IMPORT = re.compile(r"^from (simcomm[.\w]*) import ([ ,\w]*)", re.MULTILINE)
NOBODY = np.int64(-1)  # not the literal -1, for which numba would compile every function that takes it once more
OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
SPEED_LEVEL = 2  # of LLVM's levels of optimization up to 3, the more of which make nothing here any faster


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


class _EntryLibrary(JITCodeLibrary):
    """The code of an entry with its parts: optimized once, without copies of loops, which here are all short."""

    def _optimize_final_module(self) -> None:
        asked = llvm.create_pipeline_tuning_options(SPEED_LEVEL)
        asked.loop_unrolling = asked.loop_interleaving = asked.loop_vectorization = asked.slp_vectorization = False
        passes = llvm.create_pass_builder(self._codegen._tm, asked)
        passes.getModulePassManager().run(self._final_module, passes)


class _Compiler(Compiler):
    """numba's compiler, but that the code of a function goes to a library of the given class."""

    library_class: type[JITCodeLibrary]

    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        library = self.library_class(target.codegen(), f"library {next(_libraries)}")
        library.enable_object_caching()
        super().__init__(typing, target, library, *rest)  # type: ignore[no-untyped-call]


class _PartCompiler(_Compiler):
    library_class = _PartLibrary


class _EntryCompiler(_Compiler):
    library_class = _EntryLibrary


_libraries = count()
PART: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
ENTRY: dict[str, Any] = {}
if numba.version_info.short in KNOWN_INSIDE:
    PART["pipeline_class"], ENTRY["pipeline_class"] = _PartCompiler, _EntryCompiler


def inline(function: Function) -> Function:
    """Compile a function for other compiled functions to call; it becomes part of each of them."""
    compiled: Function = numba.njit(forceinline=True, **PART, **OPTIONS)(function)
    return compiled


def separate(function: Function) -> Function:
    """Compile a function that is called seldom, or from many places; it stays one of its own, compiled once."""
    compiled: Function = numba.njit(forceinline=False, **PART, **OPTIONS)(function)
    return compiled


def entry(function: Function) -> Function:
    """Compile a function for Python to call, which calls others.

    numba looks for the code it kept by the text of this function alone, so the function must be a closure over
    ``source_hash(__name__)``, lest the code outlive a change to what it calls.
    """
    return compile_and_cache(function, **ENTRY, **OPTIONS)


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
