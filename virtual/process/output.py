"""What ranks print: whole lines, each with its rank; several jobs or launchers are told apart."""

from typing import Any, TextIO

from virtual.ranks.rank import Rank
from virtual.ranks.world import VirtualWorld


class RankedOutput:
    """Stands for ``sys.stdout`` or ``sys.stderr``; what is asked of it besides writing is the file's."""

    def __init__(self, file: TextIO, world: VirtualWorld, name: str) -> None:
        self._file, self._world, self._key = file, world, f"unfinished line of {name}"

    def write(self, text: str) -> int:
        """Write the lines that are whole, and keep the rest until it is."""
        rank = self._world.me()
        if rank is None or rank.number < 0:
            return self._file.write(text)
        *lines, rest = (rank.extra.get(self._key, "") + text).split("\n")
        rank.extra[self._key] = rest
        for line in lines:
            self._file.write(f"[{prefix(rank)}] {line}\n")
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the file; a line that is not whole is kept."""
        self._file.flush()

    def end(self) -> None:
        """Write what ranks have left without an end of line."""
        for rank in self._world.ranks:
            rest = rank.extra.pop(self._key, "")
            if rest:
                self._file.write(f"[{prefix(rank)}] {rest}\n")
        self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def prefix(rank: Rank) -> str:
    """Return what a rank's lines begin with."""
    return f"rank {rank.number}"
