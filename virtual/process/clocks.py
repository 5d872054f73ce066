"""Replace Python's clocks and ``sleep`` with virtual time, and record when optimizer steps end."""

import time
import timeit
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

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
    """Make Python's clocks show the calling rank's time. Ringlab's own threads read the real clocks."""

    def read(start: float, rank: Rank, _: Callable[[], float]) -> float:
        world.computing.charge(rank)
        rank.spend(READ_S)
        return start + rank.now

    def sleep(rank: Rank, real: Callable[[float], None], seconds: float) -> None:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
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
    _replace_timeit(replaced)


def _replace_timeit(replaced: Replaced) -> None:
    """Replace the real clock that ``timeit`` saved when it was imported, also in default arguments."""
    before = timeit.default_timer

    def timer() -> float:
        return time.perf_counter()

    replaced.put(timeit, "default_timer", timer)
    functions: list[Any] = [timeit.Timer.__init__, timeit.timeit, timeit.repeat]
    for function in functions:
        defaults = tuple(timer if value is before else value for value in function.__defaults__)
        replaced.put(function, "__defaults__", defaults)


STEPS = "ends of steps"  # key of Rank.extra


def record_steps(world: VirtualWorld) -> RemovableHandle:
    """Record when the first optimizer of each rank in a process group ends a step, until the handle is removed."""

    def note(optimizer: Optimizer, args: Any, named: Any) -> None:
        rank = world.me()
        if rank is None or rank.job.recorder is None or rank.extra.setdefault("optimizer", optimizer) is not optimizer:
            return
        world.computing.charge(rank)
        ends: list[float] = rank.extra.setdefault(STEPS, [])
        rank.job.recorder.step(rank, len(ends))
        ends.append(rank.clock)

    return register_optimizer_step_post_hook(note)


def step_seconds(rank: Rank) -> list[float]:
    """Return the duration of each step on a rank's clock, in seconds."""
    ends: list[float] = rank.extra.get(STEPS, [])
    return [after - before for before, after in pairwise(ends)]
