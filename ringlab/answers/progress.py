"""How an answer that takes a while tells of its progress: what it calls, and a silent one."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Tick = Callable[[int, int, int, str], None]  # (rank, done, total, text)


class Progress(Protocol):
    """Where a command says what it is doing."""

    def task(self, text: str) -> AbstractContextManager[Tick]:
        """Return a context for something that takes a while, and the callback that moves it on."""

    def note(self, text: str) -> None:
        """Say something that is worth knowing before the answer."""


class NoProgress:
    """Say nothing."""

    @contextmanager
    def task(self, text: str) -> Iterator[Tick]:
        """Return a context whose callback ignores what it is given."""
        yield lambda rank, done, total, now: None

    def note(self, text: str) -> None:
        """Ignore the note."""
