"""Print the output of ranks line by line, each line prefixed with its rank."""

from typing import Any, TextIO

from virtual.ranks.world import VirtualWorld


class RankedOutput:
    """Replaces ``sys.stdout`` or ``sys.stderr``: prefixes each line with its rank, and forwards all other calls."""

    def __init__(self, file: TextIO, world: VirtualWorld, name: str) -> None:
        self._file, self._world, self._key = file, world, f"unfinished line of {name}"

    def write(self, text: str) -> int:
        rank = self._world.me()
        if rank is None or rank.number < 0:
            return self._file.write(text)
        *lines, rest = (rank.extra.get(self._key, "") + text).split("\n")
        rank.extra[self._key] = rest
        for line in lines:
            self._file.write(f"[rank {rank.number}] {line}\n")
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the file, but keep buffering an incomplete line."""
        self._file.flush()

    def end(self) -> None:
        for rank in self._world.ranks:
            rest = rank.extra.pop(self._key, "")
            if rest:
                self._file.write(f"[rank {rank.number}] {rest}\n")
        self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
