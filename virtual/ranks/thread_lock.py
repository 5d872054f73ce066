"""Which of a rank's threads may communicate: its own, and the others while that waits for them."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock, Thread

from virtual.ranks.sites import CallSite, find_site


class ThreadLock:
    """A lock that a thread holds while it communicates: a rank's own thread always, but while it lends it to others."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._depth = 0  # how often it is entered by who holds it
        self.threads: list[Thread] = []  # that the program has started on the rank
        self.refused: CallSite | None = None  # where one of them waits for the rank to lend it

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.refused = find_site()
            self._lock.acquire()
            self.refused = None
        self._depth += 1

    def __exit__(self, *raised: object) -> None:
        self._depth -= 1
        self._lock.release()

    @contextmanager
    def lend(self) -> Iterator[None]:
        """A context in which the rank's own thread waits for the others, which may communicate meanwhile.

        Within a call, where the runtime waits for its own threads, nothing is lent.
        """
        if self._depth > 1:
            yield
            return
        self._depth -= 1
        held = self._lock._release_save()  # type: ignore[attr-defined]  # as Condition.wait does
        try:
            yield
        finally:
            self._lock._acquire_restore(held)  # type: ignore[attr-defined]
            self._depth += 1

    @property
    def has_others(self) -> bool:
        """Whether threads of the rank go on beside its own."""
        return any(thread.is_alive() for thread in self.threads)

    def join(self) -> None:
        """Wait for the other threads, as Python does at the end of a process."""
        for thread in self.threads:
            if not thread.daemon:
                thread.join()
