"""What each rank is doing and has done, in memory that the launcher can read even if the rank hangs or was killed.

A process has one rank, so the functions here speak of the rank of this process.
"""

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from threading import local

from collectives.checks import check_text, check_whole_number

WAIT_BYTES = 8  # two int32: the step and the peer that a collective waits for; -1 for neither
COLLECTIVE_BYTES = 56
WAIT_SIZE = WAIT_BYTES + COLLECTIVE_BYTES
WAITS = 4  # collectives of a rank that are told of at once, each of a thread; a fifth thread's takes a place again
TEXT_BYTES = 192
SLOT_BYTES = WAITS * WAIT_SIZE + TEXT_BYTES
NOT_WAITING = -1
OTHERS = -2  # the peer of a collective of the backend's own, which does not say whom it waits for
STOPPED = "T"  # the state of a process that SIGSTOP has stopped

ProgressSender = Callable[[int, int, str], None]  # called with done, total and text
_TELL: dict[str, Callable[[], object]] = {}


def padded(text: str, size: int) -> bytes:
    """Return ``text`` as exactly ``size`` bytes, cut or filled up with zeros."""
    return text.encode()[:size].ljust(size, b"\0")


def _read(memory: memoryview) -> str:
    return bytes(memory).rstrip(b"\0").decode(errors="ignore")


class Wait:
    """What a collective of one thread waits for.

    It stores its name in ``collective`` (as ``padded``) and what it waits for in ``location`` ([step, peer]) itself,
    which is cheap enough to do at every wait.
    """

    def __init__(self, memory: memoryview) -> None:
        self.location = memory[:WAIT_BYTES].cast("i")
        self.collective = memory[WAIT_BYTES:]
        self.end()

    def end(self) -> None:
        """Store that nothing is waited for."""
        self.location[0] = self.location[1] = NOT_WAITING

    def describe(self) -> str:
        """Return the collective, its step and the peer that it waits for; empty where it waits for nothing."""
        step, peer = self.location
        if step == NOT_WAITING:
            return ""
        name = _read(self.collective)
        return f"{name}, waiting for other ranks" if peer == OTHERS else f"{name} step {step}, waiting for rank {peer}"

    @contextmanager
    def noted_in_errors(self, rank: int, label: bytes) -> Iterator[None]:
        """Within the context, have errors of torch.distributed say in a note what this rank was waiting for."""
        self.collective[:] = label
        try:
            yield
        except RuntimeError as error:
            error.add_note(f"rank {rank}: {self.describe() or _read(self.collective)}")
            raise
        self.end()

    def release(self) -> None:
        """Give up the memory, so that it can be unmapped."""
        self.location.release()
        self.collective.release()


class Slot:
    """The status of one rank: a text, and what collectives of its threads wait for."""

    def __init__(self, memory: memoryview, text: str = "starting") -> None:
        ends = range(0, WAITS * WAIT_SIZE, WAIT_SIZE)
        self._waits = [Wait(memory[end : end + WAIT_SIZE]) for end in ends]
        self._text = memory[WAITS * WAIT_SIZE :]
        self._own, self._next = local(), cycle(self._waits)
        self.set(text)

    @property
    def wait(self) -> Wait:
        """What a collective of this thread waits for."""
        if not hasattr(self._own, "wait"):
            self._own.wait = next(self._next)
        found: Wait = self._own.wait
        return found

    def set(self, text: str) -> None:
        """Store a text, and that this thread is not waiting."""
        self.wait.end()
        self._text[:] = padded(text, TEXT_BYTES)

    def get(self) -> str:
        """Return the text, and the collectives with their steps and the peers that the rank waits for."""
        return ", ".join(filter(None, (_read(self._text), *(wait.describe() for wait in self._waits))))

    @property
    def is_waiting(self) -> bool:
        """Whether a collective of any thread waits for another rank."""
        return any(wait.describe() for wait in self._waits)

    def release(self) -> None:
        """Give up the memory, so that it can be unmapped."""
        for wait in self._waits:
            wait.release()
        self._text.release()


class Board:
    """The slots of all ranks, in a file that every process of a launch maps."""

    def __init__(self, path: Path, world_size: int) -> None:
        size = world_size * SLOT_BYTES
        try:
            with path.open("a+b") as file:
                file.write(bytes(size - file.seek(0, os.SEEK_END)))  # on a full disk a hole would end the process
                file.flush()
                self._map = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
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


def private_slot(text: str = "starting") -> Slot:
    """Return a slot that only this process sees."""
    return Slot(memoryview(bytearray(SLOT_BYTES)), text)


class _Current:
    slot: Slot = private_slot("")  # of a user's own process, which says nothing else
    send_progress: ProgressSender | None = None


def set_status(text: str) -> None:
    """Store what this rank is doing, for the launcher's message should the rank fail or hang.

    >>> set_status("reading images")
    >>> get_status()
    'reading images'
    """
    _Current.slot.set(check_text("text", text, "reading images"))


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
    numbers = check_whole_number("done", done, 0), check_whole_number("total", total, 0)
    check_text("text", text, "images read")
    if _Current.send_progress is not None:
        _Current.send_progress(*numbers, text)


@contextmanager
def status_in(slot: Slot, send_progress: ProgressSender | None) -> Iterator[None]:
    """Within the context, store this rank's status in ``slot`` and pass its progress by ``send_progress``."""
    before = _Current.slot, _Current.send_progress
    _Current.slot, _Current.send_progress = slot, send_progress
    try:
        yield
    finally:
        _Current.slot, _Current.send_progress = before


def tell_by(subject: str, tell: Callable[[], object]) -> None:
    """Have ``tell`` return, from now on, what this rank has done so far of a subject; another thread calls it.

    >>> tell_by("sheep", lambda: "three counted")
    >>> done_so_far()["sheep"]
    'three counted'
    """
    _TELL[subject] = tell


def done_so_far() -> dict[str, object]:
    """Return by subject what this rank has done so far; a subject that cannot be told is left out."""
    done = {}
    for subject, tell in list(_TELL.items()):
        with suppress(Exception):  # the rank may be failing, and its failure counts
            done[subject] = tell()
    return done
