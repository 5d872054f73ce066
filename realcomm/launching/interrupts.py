"""Defer signals that would end this process during critical sections of a launch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGHUP, SIGINT, SIGTERM, Signals, getsignal, signal
from threading import current_thread, main_thread
from types import FrameType, TracebackType
from typing import Any, Self

_NUMBERS = (SIGINT, SIGTERM, SIGHUP)
Handler = Callable[[int, FrameType | None], Any]


class HeldInterrupts:
    """A context manager that defers signals until its end, or until ``check`` or ``allowed`` is called.

    It defers SIGINT, SIGTERM and SIGHUP if they have a Python handler. A launch defers them while it starts a process
    and registers this process, because an exception in between would leak the process. Python handles signals only in
    the main thread, so the context manager has no effect in other threads.

    >>> import os
    >>> steps = []
    >>> try:
    ...     with HeldInterrupts() as interrupts:
    ...         os.kill(os.getpid(), SIGINT)
    ...         steps.append("still here")
    ...         interrupts.check()
    ...         steps.append("not here")
    ... except KeyboardInterrupt:
    ...     steps
    ['still here']
    """

    def __init__(self) -> None:
        self._handlers: dict[Signals, Handler] = {}
        self._held: list[tuple[int, FrameType | None]] = []
        self._is_allowed = False

    @property
    def is_pending(self) -> bool:
        """Whether a signal is deferred and has not taken effect yet."""
        return bool(self._held)

    def __enter__(self) -> Self:
        if current_thread() is main_thread():
            for number in _NUMBERS:
                handler = getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal(number, self._hold)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._handlers.items():
            signal(number, handler)
        if error is None or isinstance(error, Exception):
            self._let_through()

    def check(self) -> None:
        """Let a pending signal take effect."""
        with self.allowed():
            pass

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let signals take effect at once within the context."""
        self._is_allowed = True
        try:
            self._let_through()
            yield
        finally:
            self._is_allowed = False

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._held.append((number, frame))
        if self._is_allowed:
            self._let_through()

    def _let_through(self) -> None:
        while self._held:
            number, frame = self._held.pop(0)
            self._handlers[Signals(number)](number, frame)
