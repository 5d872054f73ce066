"""Report when machine code must be compiled, which takes up to minutes, once per machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

NOTE = "compiling the engine for this machine: from a few seconds to a few minutes, and only this once"

_tell: ContextVar[Callable[[str], None] | None] = ContextVar("tell_of_compiling", default=None)


@contextmanager
def told_of_compiling(tell: Callable[[str], None]) -> Iterator[None]:
    """Inside the block, call ``tell`` with a message at the first compilation.

    >>> with told_of_compiling(lambda text: print(text[:20])):
    ...     tell_of_compiling()
    ...     tell_of_compiling()
    compiling the engine
    """
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


def tell_of_compiling() -> None:
    """Report that machine code is being compiled."""
    tell = _tell.get()
    if tell is not None:
        _tell.set(None)
        tell(NOTE)
