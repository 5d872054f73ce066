"""Replace Python's clocks and ``sleep`` with virtual time."""

import threading
import time
import timeit
from collections.abc import Callable
from functools import partial

from virtual.process.real_processes import wait_for_real_processes
from virtual.process.replaced import Replaced
from virtual.ranks.rank import Rank, RankWait
from virtual.ranks.sites import find_site
from virtual.ranks.world import VirtualWorld

EPOCH_S = 1_800_000_000.0  # ``time.time()`` at the start of a run
LATE_S = 1e-6  # added to a sleep; ``time.time`` resolves a quarter of it
READ_S = 5e-8  # virtual time of reading a clock, so that loops that wait for a time end
CLOCKS = {"time": EPOCH_S, "perf_counter": 0.0, "monotonic": 0.0}


def install_clocks(world: VirtualWorld, replaced: Replaced) -> None:
    """Make Python's clocks show the calling rank's virtual time. Threads outside of ranks read the real clocks."""

    def read(start: float, rank: Rank, _: Callable[[], float]) -> float:
        world.computing.charge(rank)
        rank.spend(READ_S)
        return start + rank.now

    def sleep(rank: Rank, real: Callable[[float], None], seconds: float) -> None:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        if threading.current_thread() is not rank.thread:
            return real(seconds)
        world.computing.charge(rank)
        wait_for_real_processes(rank, seconds, real)
        rank.spend(seconds + LATE_S if seconds else 0.0)
        waiting = RankWait("time.sleep()", find_site())
        world.catch_up(rank, waiting)
        if not world.calendar.has_time:
            rank.waiting = waiting
            world.give_way(rank)
            rank.waiting = None
        world.computing.forget(rank)

    for name, start in CLOCKS.items():
        replaced.wrap_for_ranks(time, name, partial(read, start))
        replaced.wrap_for_ranks(time, f"{name}_ns", lambda rank, _, start=start: round(read(start, rank, _) * 1e9))
    replaced.wrap_for_ranks(time, "sleep", sleep)
    replaced.put(timeit, "default_timer", lambda: time.perf_counter())
