"""Measure the CPU load that other processes cause during a measurement, from Linux's counters."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from time import process_time
from typing import NamedTuple

import psutil

from collectives.records.calibration import MachineLoad
from realcomm.launching.server import server_pid


class Counters(NamedTuple):
    """The kernel's counters of CPU time at one instant, in seconds."""

    busy: float  # all cores and processes, without interrupts
    steal: float
    total: float
    by_process: dict[int, tuple[str, float]]  # each process's name and CPU seconds, by process ID
    own: float = 0.0  # this process, its fork server, and their ended children


class LoadWatch:
    """Compares the kernel's counters at the start and the end of a measurement."""

    def __init__(self) -> None:
        self._begin = read_counters()
        self._own = process_time()
        self._end: Counters | None = None

    def stop(self) -> None:
        self._end = read_counters()
        self._own = process_time() - self._own

    def share_of_others(self, ranks_cpu_s: float | None = None) -> MachineLoad | None:
        """Return the load that other processes caused, or None if the kernel's counters are missing or unchanged.

        ``ranks_cpu_s`` is the CPU time of this process's ranks, in seconds. Default: the kernel's count, which includes
        ranks and emulated networks only if their processes have ended.
        """
        if self._begin is None or self._end is None or self._end.total <= self._begin.total:
            return None
        total = self._end.total - self._begin.total
        own_s = self._end.own - self._begin.own if ranks_cpu_s is None else ranks_cpu_s + self._own
        others = max(0.0, self._end.busy - self._begin.busy - own_s) / total
        return MachineLoad(others, (self._end.steal - self._begin.steal) / total, self._names(total))

    def _names(self, total: float) -> list[str]:
        """Return the names of at most three processes: the busiest ones with over 1 % of all cores' time."""
        assert self._begin is not None and self._end is not None
        before = self._begin.by_process
        used = [
            (seconds - before[pid][1], name)
            for pid, (name, seconds) in self._end.by_process.items()
            if pid in before and pid not in (os.getpid(), server_pid())
        ]
        most = dict.fromkeys(name for seconds, name in sorted(used, reverse=True) if seconds > total / 100)
        return [*most][:3]


@contextmanager
def watch_load() -> Iterator[LoadWatch]:
    """Yield a LoadWatch that measures the load of other processes within the context."""
    watch = LoadWatch()
    try:
        yield watch
    finally:
        watch.stop()


def read_counters() -> Counters | None:
    """Return the kernel's counters, or None if the system does not report steal time (only Linux does)."""
    times = psutil.cpu_times()
    if not hasattr(times, "steal"):
        return None
    busy = times.user + times.nice + times.system  # interrupts belong to no process; an emulation causes most of them
    total = busy + times.irq + times.softirq + times.idle + times.iowait + times.steal
    by_process, own_s, mine = {}, 0.0, {os.getpid(), server_pid()}
    for process in psutil.process_iter(["name", "cpu_times"]):
        if times_of_process := process.info["cpu_times"]:
            by_process[process.pid] = process.info["name"], times_of_process.user + times_of_process.system
            own_s += sum(times_of_process[:4]) if process.pid in mine else 0.0
    return Counters(busy, times.steal, total, by_process, own_s)
