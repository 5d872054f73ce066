"""Stacks that ``py-spy dump`` prints, a process at a time."""

import re
from collections.abc import Iterator

from simcomm.diagnosis.evidence.facts import Fact, StackTop
from simcomm.diagnosis.readers.lines import LogLine

PROCESS = re.compile(r"^Process (\d+): (.*)")
THREAD = re.compile(r'^Thread (?:\d+|0x[0-9A-Fa-f]+) \((?:active|idle)[^)]*\)(?:: "([^"]*)")?')
FRAME = re.compile(r"^\s+(\S+) \(([^():]+):(\d+)\)$")
RANK = re.compile(r"(?:--local[-_]rank[= ]|RANK=|rank[= ])(\d+)", re.IGNORECASE)
MAIN = ("MainThread", "")
MOST_FRAMES = 40


def read(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield the main thread's frames of each process, the innermost first; a rank stands for it where it is said."""
    process, header, frames, taking, count = "process 0", None, list[str](), False, 0
    for line in [*lines, LogLine(0, "Process 0: ")]:
        if found := PROCESS.match(line.text):
            if header is not None and frames:
                yield StackTop(header.place(file), process, tuple(frames[:MOST_FRAMES]))
            rank = RANK.search(found[2])
            process = f"rank {rank[1]}" if rank else f"process {count} (pid {found[1]})"
            header, frames, taking, count = line, [], False, count + 1
        elif found := THREAD.match(line.text):
            header = header or line  # a dump of which the first lines were left out
            taking = header is not None and not frames and (found[1] or "") in MAIN
        elif taking and (found := FRAME.match(line.text)):
            frames.append(f"{found[1]} ({found[2]}:{found[3]})")
