"""Start real processes for a rank, such as DataLoader workers. While they run, ``sleep`` takes real time."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing import process, spawn
from pathlib import Path
from typing import Any, NoReturn

from virtual.process.replaced import Replaced
from virtual.ranks.rank import Rank
from virtual.ranks.world import NO_POOL, VirtualWorld

STARTED = "real processes"  # key of Rank.extra
LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
NO_LAUNCHER = (
    "a launcher of ranks in a subprocess cannot run on virtual ranks, which are threads: run the script that it "
    "launches with ringlab virtual --ranks N SCRIPT"
)


def install_real_processes(world: VirtualWorld, replaced: Replaced) -> None:
    """Give a rank's environment to the processes that it starts, and keep track of those that are not daemons."""
    for kind, name in ((subprocess.Popen, "__init__"), (process.BaseProcess, "start")):
        replaced.wrap_for_ranks(kind, name, partial(_start, world))
    replaced.wrap_for_ranks(spawn, "get_preparation_data", _prepare)


def wait_for_real_processes(rank: Rank, seconds: float, sleep: Callable[[float], None]) -> None:
    """Sleep ``seconds`` in real time if processes that the rank has started are still running."""
    started = rank.extra.get(STARTED)
    if started:
        started[:] = [child for child in started if _goes_on(child)]
        if started:
            sleep(seconds)


def _start(world: VirtualWorld, rank: Rank, original: Callable[..., None], self: Any, *args: Any, **named: Any) -> None:
    if isinstance(self, subprocess.Popen) and _launches_ranks(args[0] if args else named.get("args", ())):
        raise RuntimeError(NO_LAUNCHER)
    _export(rank, world.ranks)
    original(self, *args, **named)
    if not getattr(self, "daemon", False):
        rank.extra.setdefault(STARTED, []).append(self)


class _Guard:
    """An object that disables virtual process groups in a spawned process, when the process unpickles it."""

    def __reduce__(self) -> Any:
        return _refuse_groups, ()


def _prepare(rank: Rank, original: Callable[[str], dict[str, Any]], name: str) -> dict[str, Any]:
    return original(name) | {"guard": _Guard()}


def _refuse_groups() -> None:
    import torch.distributed as dist  # the spawned process imports the program, and torch with it

    def refuse(*arguments: Any, **named: Any) -> NoReturn:
        raise RuntimeError(NO_POOL)

    dist.init_process_group = sys.modules["torch.distributed.distributed_c10d"].init_process_group = refuse  # type: ignore[attr-defined]


def _export(rank: Rank, ranks: Iterable[Rank]) -> None:
    environment = rank.own.environment
    for name in set[bytes]().union(*(other.own.environment for other in ranks)) - environment.keys():
        os.unsetenv(name)
    for name, value in environment.items():
        os.putenv(name, value)


def _launches_ranks(command: Any) -> bool:
    words = command.split() if isinstance(command, str) else [command] if isinstance(command, bytes) else command
    return any(Path(os.fsdecode(word)).name in LAUNCHERS for word in words)


def _goes_on(child: Any) -> bool:
    if isinstance(child, subprocess.Popen):
        return child.poll() is None
    return bool(child.exitcode is None)
