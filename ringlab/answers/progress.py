"""How an answer that takes a while tells of its progress: what it calls, and a silent one."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from simcomm.compiling import told_of_compiling

Tick = Callable[[int, int, int, str], None]  # (rank, done, total, text)

LATE_S = 2.0  # computing that takes less than this is not told of


class Progress(Protocol):
    """Where a command says what it is doing."""

    def task(self, text: str, late_s: float = 0.0) -> AbstractContextManager[Tick]:
        """Return a context for something that takes a while, and the callback that moves it on.

        It is shown when it has taken ``late_s`` seconds.
        """

    def note(self, text: str) -> None:
        """Say something that is worth knowing before the answer."""


class NoProgress:
    """Say nothing."""

    @contextmanager
    def task(self, text: str, late_s: float = 0.0) -> Iterator[Tick]:
        """Return a context whose callback ignores what it is given."""
        yield lambda rank, done, total, now: None

    def note(self, text: str) -> None:
        """Ignore the note."""


@contextmanager
def computing(progress: Progress | None, text: str) -> Iterator[Tick]:
    """Return a context for computing that may take long, which is shown only if it does; also compiling is told of.

    >>> with computing(None, "simulating") as tick:
    ...     tick(0, 1, 2, "ring")
    """
    progress = NoProgress() if progress is None else progress
    with progress.task(text, LATE_S) as tick:

        def tell(note: str) -> None:
            progress.note(note)
            tick(0, 0, 0, "compiling")

        with told_of_compiling(tell):
            yield tick
