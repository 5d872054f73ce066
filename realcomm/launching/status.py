"""What each rank is doing right now, in memory that the launcher can read even of a rank that hangs or was killed."""

import mmap
from pathlib import Path

WAIT_BYTES = 8  # two int32: the step and the peer that a collective waits for; -1 for neither
COLLECTIVE_BYTES = 56
TEXT_BYTES = 192
SLOT_BYTES = WAIT_BYTES + COLLECTIVE_BYTES + TEXT_BYTES
NOT_WAITING = -1


class Slot:
    """One rank's place on the board: a text, and below it where a collective is, cheap enough to set at every wait."""

    def __init__(self, memory: memoryview) -> None:
        self.waits = memory[:WAIT_BYTES].cast("i")  # [step, peer]
        self.collective = memory[WAIT_BYTES : WAIT_BYTES + COLLECTIVE_BYTES]  # its name, as ``padded``
        self._text = memory[WAIT_BYTES + COLLECTIVE_BYTES :]
        self.set("starting")

    def set(self, text: str) -> None:
        """The rank is doing this now, and waits for nobody."""
        self.waits[0] = self.waits[1] = NOT_WAITING
        self._text[:] = padded(text, TEXT_BYTES)

    def get(self) -> str:
        """What it is doing, and in which step of which collective it waits for whom."""
        (step, peer), text = self.waits, _read(self._text)
        waiting = f"{_read(self.collective)} step {step}, waiting for rank {peer}"
        return text if step == NOT_WAITING else f"{text}, {waiting}"

    def release(self) -> None:
        for memory in (self.waits, self.collective, self._text):
            memory.release()


class Board:
    """A slot a rank, in a file that every process of a launch maps."""

    def __init__(self, path: Path, world_size: int) -> None:
        size = world_size * SLOT_BYTES
        with path.open("a+b") as file:
            file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)
        self._slots: list[Slot] = []

    def slot(self, rank: int) -> Slot:
        """The place of one rank, which is "starting"."""
        whole = memoryview(self._map)
        self._slots.append(Slot(whole[rank * SLOT_BYTES : (rank + 1) * SLOT_BYTES]))
        return self._slots[-1]

    def close(self) -> None:
        for slot in self._slots:
            slot.release()
        self._map.close()


def private_slot() -> Slot:
    """A slot that only this process sees."""
    return Slot(memoryview(bytearray(SLOT_BYTES)))


def padded(text: str, size: int) -> bytes:
    """``text`` as exactly ``size`` bytes, cut or filled up."""
    return text.encode()[:size].ljust(size, b"\0")


def _read(memory: memoryview) -> str:
    return bytes(memory).rstrip(b"\0").decode(errors="ignore")
