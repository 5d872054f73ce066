"""Real processes that a rank starts by a library: while they go on, sleeping takes real time too, as they need it."""

import subprocess
from collections.abc import Callable
from multiprocessing import process
from typing import Any

from virtual.process.replaced import Replaced
from virtual.ranks.rank import Rank
from virtual.ranks.world import VirtualWorld

STARTED = "real processes"  # by which a rank keeps them


def install_real_processes(world: VirtualWorld, replaced: Replaced) -> None:
    """Keep the processes that ranks start. Daemons are left out, which serve their rank, as those of a DataLoader."""
    replaced.put(subprocess.Popen, "__init__", _keeping(world, subprocess.Popen.__init__))
    replaced.put(process.BaseProcess, "start", _keeping(world, process.BaseProcess.start))


def wait_for_real_processes(rank: Rank, seconds: float, sleep: Callable[[float], None]) -> None:
    """Sleep really if a rank has started processes that go on."""
    started = rank.extra.get(STARTED)
    if started:
        started[:] = [one for one in started if _goes_on(one)]
        if started:
            sleep(seconds)


def _keeping(world: VirtualWorld, original: Callable[..., None]) -> Callable[..., None]:
    def start(self: Any, *args: Any, **named: Any) -> None:
        original(self, *args, **named)
        rank = world.me()
        if rank is not None and not getattr(self, "daemon", False):
            rank.extra.setdefault(STARTED, []).append(self)

    return start


def _goes_on(one: Any) -> bool:
    if isinstance(one, subprocess.Popen):
        return one.poll() is None
    return bool(one.exitcode is None)
