"""Compiling the functions of the engine with numba.

Compiled functions work on arrays that Python holds and make none themselves, so they need not count references to them
(numba's ``_nrt``), which here would take nine tenths of the time, as would copying the tuple of arrays into each call:
hence functions are inlined.
"""

import re
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np

from simcomm.kept_code import compile_and_cache

Function = TypeVar("Function", bound=Callable[..., Any])

ROOT = Path(__file__).parents[3]
COMPILED = ("simcomm.compiled.kernel.", "simcomm.model.", "simcomm.hashing")  # whose functions are compiled
IMPORT = re.compile(r"^from (simcomm[.\w]*) import ([ ,\w]*)", re.MULTILINE)
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
