"""What each rank is doing, in memory that the launcher can read even if the rank hangs or was killed.

A process has one rank, so the functions here speak of the rank of this process.
"""

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

WAIT_BYTES = 8  # two int32: the step and the peer that a collective waits for; -1 for neither
COLLECTIVE_BYTES = 56
TEXT_BYTES = 192
SLOT_BYTES = WAIT_BYTES + COLLECTIVE_BYTES + TEXT_BYTES
NOT_WAITING = -1
STOPPED = "T"  # the state of a process that SIGSTOP has stopped

ProgressSender = Callable[[int, int, str], None]  # called with done, total and text


def padded(text: str, size: int) -> bytes:
    """Return ``text`` as exactly ``size`` bytes, cut or filled up with zeros."""
    return text.encode()[:size].ljust(size, b"\0")


def _read(memory: memoryview) -> str:
    return bytes(memory).rstrip(b"\0").decode(errors="ignore")


class Slot:
    """The status of one rank: a text, and the step and peer that a collective waits for.

    A collective stores its name in ``collective`` (as ``padded``) and what it waits for in ``waits`` ([step, peer])
    itself, which is cheap enough to do at every wait.
    """

    def __init__(self, memory: memoryview) -> None:
        self.waits = memory[:WAIT_BYTES].cast("i")
        self.collective = memory[WAIT_BYTES : WAIT_BYTES + COLLECTIVE_BYTES]
        self._text = memory[WAIT_BYTES + COLLECTIVE_BYTES :]
        self.set("starting")

    def set(self, text: str) -> None:
        """Store a text, and that the rank is not waiting."""
        self.waits[0] = self.waits[1] = NOT_WAITING
        self._text[:] = padded(text, TEXT_BYTES)

    def get(self) -> str:
        """Return the text, and the step of the collective and the peer that the rank waits for."""
        (step, peer), text = self.waits, _read(self._text)
        waiting = f"{_read(self.collective)} step {step}, waiting for rank {peer}"
        return text if step == NOT_WAITING else f"{text}, {waiting}"

    def release(self) -> None:
        """Give up the memory, so that it can be unmapped."""
        for memory in (self.waits, self.collective, self._text):
            memory.release()


class Board:
    """The slots of all ranks, in a file that every process of a launch maps."""

    def __init__(self, path: Path, world_size: int) -> None:
        size = world_size * SLOT_BYTES
        with path.open("a+b") as file:
            file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)
        self._slots: list[Slot] = []

    def slot(self, rank: int) -> Slot:
        """Return the slot of one rank, set to "starting"."""
        memory = memoryview(self._map)
        self._slots.append(Slot(memory[rank * SLOT_BYTES : (rank + 1) * SLOT_BYTES]))
        return self._slots[-1]

    def close(self) -> None:
        """Release all slots and unmap the file."""
        for slot in self._slots:
            slot.release()
        self._map.close()


def process_state(pid: int | None) -> str:
    """Return the letter by which Linux tells the state of a process, as ``ps`` shows it; empty if that is not known.

    >>> process_state(None)
    ''
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def private_slot() -> Slot:
    """Return a slot that only this process sees."""
    return Slot(memoryview(bytearray(SLOT_BYTES)))


class _Current:
    slot: Slot = private_slot()
    send_progress: ProgressSender | None = None


def set_status(text: str) -> None:
    """Store what this rank is doing, for the launcher's message should the rank fail or hang.

    >>> set_status("reading images")
    >>> get_status()
    'reading images'
    """
    _Current.slot.set(text)


def get_status() -> str:
    """Return what this rank is doing, as last stored."""
    return _Current.slot.get()


def own_slot() -> Slot:
    """Return this rank's slot, in which a collective stores what it waits for."""
    return _Current.slot


def report_progress(done: int, total: int, text: str) -> None:
    """Call the launcher's ``progress`` with this rank's number and these; do nothing if it has none.

    >>> report_progress(3, 10, "images read")
    """
    if _Current.send_progress is not None:
        _Current.send_progress(done, total, text)


@contextmanager
def status_in(slot: Slot, send_progress: ProgressSender | None) -> Iterator[None]:
    """Within the context, store this rank's status in ``slot`` and pass its progress by ``send_progress``."""
    before = _Current.slot, _Current.send_progress
    _Current.slot, _Current.send_progress = slot, send_progress
    try:
        yield
    finally:
        _Current.slot, _Current.send_progress = before
