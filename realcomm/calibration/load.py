"""What else the machine does while it is measured: from the kernel's counters in /proc, which only Linux has."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import process_time
from typing import NamedTuple

from collectives.calibration.calibration import MachineLoad
from realcomm.launching.server import server_pid

PROC = Path("/proc")
MOST_NAMES = 3


class Counters(NamedTuple):
    """The kernel's counters at one instant; ticks of the clock since the machine or process started."""

    busy: int  # all cores, in any process, without interrupts
    steal: int
    total: int
    by_process: dict[int, tuple[str, int]]  # name and ticks
    own: int = 0  # this process, the server that ranks are forked from, and all that ended under them


class LoadWatch:
    """The counters when a measurement began and ended."""

    def __init__(self) -> None:
        self._begin = read_counters()
        self._own = process_time()
        self._end: Counters | None = None

    def stop(self) -> None:
        """Read the counters a second time."""
        self._end = read_counters()
        self._own = process_time() - self._own

    def share_of_others(self, ranks_cpu_s: float | None = None) -> MachineLoad | None:
        """Return what others than this process and ranks that took ``ranks_cpu_s`` did; None without counters.

        Unless that is given, ranks and emulated networks that have ended meanwhile count as this process's own.
        """
        if self._begin is None or self._end is None or self._end.total <= self._begin.total:
            return None
        total = self._end.total - self._begin.total
        own: float = self._end.own - self._begin.own
        if ranks_cpu_s is not None:
            own = (ranks_cpu_s + self._own) * os.sysconf("SC_CLK_TCK")
        others = max(0.0, self._end.busy - self._begin.busy - own) / total
        return MachineLoad(others, (self._end.steal - self._begin.steal) / total, self._names(total))

    def _names(self, total: int) -> list[str]:
        """Return the names of the processes that took most, of those that were there all the time."""
        assert self._begin is not None and self._end is not None
        before = self._begin.by_process
        taken = [
            (ticks - before[pid][1], name)
            for pid, (name, ticks) in self._end.by_process.items()
            if pid in before and pid not in (os.getpid(), server_pid())
        ]
        return [name for ticks, name in sorted(taken, reverse=True)[:MOST_NAMES] if ticks > total / 100]


@contextmanager
def watch_load() -> Iterator[LoadWatch]:
    """Within the context, watch what else the machine does."""
    watch = LoadWatch()
    try:
        yield watch
    finally:
        watch.stop()


def read_counters() -> Counters | None:
    """Return the kernel's counters; None where it has none."""
    try:
        fields = [int(each) for each in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    user, nice, system, idle, iowait, irq, softirq, steal = fields
    busy = user + nice + system  # interrupts are of any process, most of them of what an emulated network sends
    by_process, own, mine = {}, 0, {os.getpid(), server_pid()}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
                after = rest.split()
                by_process[int(entry.name)] = name, int(after[11]) + int(after[12])
                own += sum(map(int, after[11:15])) if int(entry.name) in mine else 0
    return Counters(busy, steal, busy + irq + softirq + idle + iowait + steal, by_process, own)
