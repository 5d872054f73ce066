"""Keep each rank's status in shared memory, where the launcher can read it even if the rank hangs or was killed.

Each process runs one rank. ``set_status`` and the other functions concern this rank.
"""

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from threading import local

from collectives.checks import check_text, check_whole_number

WAIT_BYTES = 8  # two int32: the step and the peer that a collective waits for; -1 for neither
COLLECTIVE_BYTES = 56
WAIT_SIZE = WAIT_BYTES + COLLECTIVE_BYTES
WAITS = 4  # concurrent collectives in a status, one for each thread; a fifth thread reuses a place
TEXT_BYTES = 192
SLOT_BYTES = WAITS * WAIT_SIZE + TEXT_BYTES
NOT_WAITING = -1
OTHERS = -2  # the peer of a backend's own collective, which does not name one
STOPPED = "T"  # the state of a process that SIGSTOP has stopped

ProgressSender = Callable[[int, int, str], None]  # called with done, total and text


def padded(text: str, size: int) -> bytes:
    """Return ``text`` as exactly ``size`` bytes, truncated or padded with zeros."""
    return text.encode()[:size].ljust(size, b"\0")


def _read(memory: memoryview) -> str:
    return bytes(memory).rstrip(b"\0").decode(errors="ignore")


class Wait:
    """The step of a collective at which a thread waits, and the peer that it waits for.

    Before each wait, callers set ``collective`` to a ``padded`` name, and ``location`` to [step, peer]. They write to
    the shared memory directly, which is faster than a method call.
    """

    def __init__(self, memory: memoryview) -> None:
        self.location = memory[:WAIT_BYTES].cast("i")
        self.collective = memory[WAIT_BYTES:]
        self.end()

    def end(self) -> None:
        self.location[0] = self.location[1] = NOT_WAITING

    def describe(self) -> str:
        """Describe the wait: the collective, and for a rank program also its step and the awaited rank; "" if not
        waiting.
        """
        step, peer = self.location
        if step == NOT_WAITING:
            return ""
        name = _read(self.collective)
        return f"{name}, waiting for other ranks" if peer == OTHERS else f"{name} step {step}, waiting for rank {peer}"

    @contextmanager
    def noted_in_errors(self, rank: int, label: bytes) -> Iterator[None]:
        """Within the context, add the wait location as a note to a RuntimeError that is raised."""
        self.collective[:] = label
        try:
            yield
        except RuntimeError as error:
            error.add_note(f"rank {rank}: {self.describe() or _read(self.collective)}")
            raise
        self.end()

    def release(self) -> None:
        self.location.release()
        self.collective.release()


class Slot:
    """One rank's part of the shared memory: its status text, and the wait locations of its threads."""

    def __init__(self, memory: memoryview, text: str = "starting") -> None:
        ends = range(0, WAITS * WAIT_SIZE, WAIT_SIZE)
        self._waits = [Wait(memory[end : end + WAIT_SIZE]) for end in ends]
        self._text = memory[WAITS * WAIT_SIZE :]
        self._own, self._next = local(), cycle(self._waits)
        self.set(text)

    @property
    def wait(self) -> Wait:
        """The wait location of the current thread."""
        if not hasattr(self._own, "wait"):
            self._own.wait = next(self._next)
        wait: Wait = self._own.wait
        return wait

    def set(self, text: str) -> None:
        """Store a status text, and mark this thread as not waiting."""
        self.wait.end()
        self._text[:] = padded(text, TEXT_BYTES)

    def get(self) -> str:
        """Return the status text and the wait locations of all threads."""
        return ", ".join(filter(None, (_read(self._text), *(wait.describe() for wait in self._waits))))

    @property
    def is_waiting(self) -> bool:
        """Whether a collective of any thread waits for another rank."""
        return any(wait.describe() for wait in self._waits)

    def release(self) -> None:
        for wait in self._waits:
            wait.release()
        self._text.release()


class Board:
    """The status slots of all ranks, in a file that all processes of a launch map into memory."""

    def __init__(self, path: Path, world_size: int) -> None:
        size = world_size * SLOT_BYTES
        try:
            with path.open("a+b") as file:
                # with a sparse file, a full disk would kill the process
                file.write(bytes(size - file.seek(0, os.SEEK_END)))
                file.flush()
                self._map = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        self._slots: list[Slot] = []

    def slot(self, rank: int) -> Slot:
        """Return the slot of one rank, and set its status to "starting"."""
        memory = memoryview(self._map)
        self._slots.append(Slot(memory[rank * SLOT_BYTES : (rank + 1) * SLOT_BYTES]))
        return self._slots[-1]

    def close(self) -> None:
        for slot in self._slots:
            slot.release()
        self._map.close()


def process_state(pid: int | None) -> str:
    """Return the state letter of a Linux process as shown by ``ps``, or "" if the state is unknown.

    >>> process_state(None)
    ''
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def private_slot(text: str = "starting") -> Slot:
    """Return a slot that only this process can read."""
    return Slot(memoryview(bytearray(SLOT_BYTES)), text)


class _Current:
    slot: Slot = private_slot("")  # used by a process that no launcher started
    send_progress: ProgressSender | None = None


def set_status(text: str) -> None:
    """Store a description of this rank's activity, for the launcher's message if the rank fails or hangs.

    >>> set_status("reading images")
    >>> get_status()
    'reading images'
    """
    _Current.slot.set(check_text("text", text, "reading images"))


def get_status() -> str:
    """Return the last stored status of this rank, with the wait locations of its threads."""
    return _Current.slot.get()


def own_slot() -> Slot:
    """Return this rank's slot, in which collectives store where they wait."""
    return _Current.slot


def report_progress(done: int, total: int, text: str) -> None:
    """Report this rank's progress to the launcher, which passes the arguments to its ``progress`` callback.

    Do nothing if there is no launcher or no callback.

    >>> report_progress(3, 10, "images read")
    """
    numbers = check_whole_number("done", done, 0), check_whole_number("total", total, 0)
    check_text("text", text, "images read")
    if _Current.send_progress is not None:
        _Current.send_progress(*numbers, text)


@contextmanager
def status_in(slot: Slot, send_progress: ProgressSender | None) -> Iterator[None]:
    """Within the context, store this rank's status in ``slot``, and send its progress with ``send_progress``."""
    previous = _Current.slot, _Current.send_progress
    _Current.slot, _Current.send_progress = slot, send_progress
    try:
        yield
    finally:
        _Current.slot, _Current.send_progress = previous
