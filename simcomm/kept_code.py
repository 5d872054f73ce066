"""Machine code that numba makes, kept on disk where there is a place for it.

Importing this module imports numba, which takes a fifth of a second: whoever may do without imports it when it is due.
"""

import errno
import pickle
from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import event
from numba.core.caching import IndexDataCacheFile
from numba.core.runtime.nrt import rtsys

from collectives.errors import InputError
from simcomm.compiling import tell_of_compiling

if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise InputError(
        "NUMBA_DISABLE_JIT is set, and the compiled engine is machine code that numba makes; unset it, or take "
        "--engine simpy"
    )

Function = TypeVar("Function", bound=Callable[..., Any])

KNOWN_INSIDE = {(0, 68)}  # releases of numba of which it is known how they make and load code


def compile_and_cache(function: Function, **options: Any) -> Function:
    """Compile a function for Python to call: once for this machine, or once a process where no folder is writable."""
    options = {"error_model": "numpy", "nogil": True, **options}  # a thread can then end the process meanwhile
    try:
        compiled: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither __pycache__ nor the user's cache folder can be written
        compiled = numba.njit(**options)(function)
        return compiled
    if numba.version_info.short in KNOWN_INSIDE:
        cast(Any, compiled)._cache._cache_file.__class__ = _CheckedFile
        _load_at_once(compiled)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return compiled(*arguments)
        except OSError:  # the disk is full: the code is compiled and cannot be kept
            return compiled(*arguments)

    return cast(Function, call)


class _CheckedFile(IndexDataCacheFile):
    """Where numba keeps the code of a function, with the SHA-256 of each file: what is damaged is compiled again."""

    def _dump(self, content: Any) -> bytes:
        dumped: bytes = super()._dump(content)  # type: ignore[no-untyped-call]
        return sha256(dumped).digest() + dumped

    def _load_index(self) -> Any:
        version = pickle.dumps(self._version, protocol=-1)
        try:
            content = Path(self._index_path).read_bytes()
            stamp, overloads = _load_checked(content.removeprefix(version))
        except OSError:
            return {}
        return overloads if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        return _load_checked(Path(self._data_path(name)).read_bytes())  # type: ignore[no-untyped-call]


def _load_checked(content: bytes) -> Any:
    """Return what was dumped. Raise OSError, as for a file that is not there, for anything else."""
    digest, dumped = content[:32], content[32:]
    if sha256(dumped).digest() != digest:
        raise OSError(errno.EIO, "kept machine code is damaged")
    return pickle.loads(dumped)


def _load_at_once(compiled: Any) -> None:
    """Have code that lies on disk loaded without all that numba compiles with, which takes a third of a second.

    Before numba looks on disk, it fills its tables of types and functions. They serve to compile, before which they are
    filled in any case; of the rest, code needs only numba's runtime. This is about the insides of releases that were
    looked into; others load in their own way.
    """

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
