"""Processes that a program starts are virtual ranks, a job of their own for each spawn."""

import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch.multiprocessing.spawn import ProcessRaisedException

from virtual.process.programs import UserProgram
from virtual.process.replaced import Replaced
from virtual.ranks.finding import ProgramFinding
from virtual.ranks.own_state import OwnState
from virtual.ranks.rank import Rank, RankJob, RankWait, State
from virtual.ranks.sites import find_site, is_asked_by_program
from virtual.ranks.world import VirtualWorld

METHODS = ("spawn", "fork", "forkserver")


class Spawner:
    """Starts ranks for a program, as ``torch.multiprocessing`` would start processes."""

    def __init__(self, world: VirtualWorld, program: UserProgram, start: Callable[[Rank], None]) -> None:
        self.world, self.program, self.start = world, program, start

    def install(self, replaced: Replaced) -> None:
        """Have ``mp.spawn`` and ``Process`` of a program make ranks. Processes that torch starts stay processes."""
        for name in ("spawn", "start_processes"):
            replaced.put(torch.multiprocessing, name, self.spawn)
        chosen = _choosing(self, multiprocessing.Process)
        replaced.put(multiprocessing, "Process", chosen)
        replaced.put(torch.multiprocessing, "Process", chosen)
        for method in METHODS:
            context = type(multiprocessing.get_context(method))
            replaced.put(context, "Process", _choosing(self, context.Process))  # type: ignore[attr-defined]

    def spawn(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        nprocs: int = 1,
        join: bool = True,
        daemon: bool = False,
        start_method: str = "spawn",
    ) -> "Spawned | None":
        """Start ranks that call ``fn(i, *args)``; wait for their ends unless ``join`` is false."""
        job = self.world.new_job()
        bodies = [self._body(fn, (place, *args), {}) for place in range(nprocs)]
        for place, body in enumerate(bodies):
            self.add(job, place, body)
        spawned = Spawned(self.world, job)
        if not join:
            return spawned
        spawned.join()
        return None

    def add(self, job: RankJob, number: int, body: Callable[[Rank], None]) -> Rank:
        """Have a rank begin, with the environment and arguments of the caller."""
        environment = dict(os.environ._data)  # type: ignore[attr-defined]
        own = OwnState(environment, list(sys.argv), list(sys.path))
        rank = Rank(number, job, body, own, number)
        self.start(rank)
        return rank

    def body(self, process: "VirtualProcess") -> Callable[[Rank], None]:
        """Return what the rank of a process does."""
        return self._body(process.target, process.arguments, process.named) if process.target else lambda rank: None

    def _body(self, fn: Callable[..., Any], args: Sequence[Any], named: dict[str, Any]) -> Callable[[Rank], None]:
        """Return the call of a function with arguments that are pickled as for a process, its main module executed."""
        try:
            packed = pickle.dumps((fn, tuple(args), named))
        except (
            pickle.PicklingError,
            AttributeError,
            TypeError,
            RuntimeError,
        ):  # nested functions, locks: of forks only
            return lambda rank: fn(*args, **named)
        is_of_main = getattr(fn, "__module__", "") in ("__main__", "__mp_main__") and not self.program.is_module

        def body(rank: Rank) -> None:
            if is_of_main:
                self.program.execute("__mp_main__")
            elif getattr(fn, "__module__", None):
                import_module(fn.__module__)
            found, given, keys = pickle.loads(packed)  # what this process has pickled
            found(*given, **keys)

        return body


class Spawned:
    """The ranks of one spawn: what ``mp.spawn(join=False)`` returns."""

    def __init__(self, world: VirtualWorld, job: RankJob) -> None:
        self.world, self.job = world, job
        self.processes: list[Any] = []

    def pids(self) -> list[int]:
        """Return numbers in place of those of processes."""
        return [100_000 + rank.number for rank in self.job.ranks]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait for the ends of all ranks. Raise ProcessRaisedException where one has failed, or all hang."""
        caller = self.world.me()
        assert caller is not None
        waiting = RankWait("mp.spawn.join()", find_site(), self.job)
        self.world.wait_until(caller, lambda: self.job.is_over, waiting)
        finding = self.job.finding
        if finding is not None:
            first = finding.where[0][0] if finding.where else 0
            self.job.raised_in = caller
            raise RanksFailed(finding, first)
        return True


class RanksFailed(ProcessRaisedException):
    """What ``mp.spawn`` raises for a finding of the ranks that it has started; it is no other mistake of the caller."""

    def __init__(self, finding: ProgramFinding, rank: int) -> None:
        super().__init__(finding.text, error_index=rank, error_pid=100_000 + rank)
        self.finding = finding


class VirtualProcess:
    """A process of ``multiprocessing`` that is a rank; those that one rank starts are a job together."""

    def __init__(
        self,
        spawner: Spawner,
        target: Callable[..., Any] | None,
        name: str | None,
        args: Sequence[Any],
        kwargs: dict[str, Any] | None,
    ) -> None:
        self.spawner, self.target, self.arguments, self.named = spawner, target, args, dict(kwargs or {})
        self.name, self.daemon = name or "Process", False
        self.pid: int | None = None
        self.rank: Rank | None = None

    def start(self) -> None:
        """Have the rank begin."""
        world = self.spawner.world
        caller = world.me()
        assert caller is not None
        job = caller.extra.get("children")
        if job is None or job.is_over:
            job = caller.extra["children"] = world.new_job()
        self.rank = self.spawner.add(job, len(job.ranks), self.spawner.body(self))
        self.pid = 100_000 + self.rank.number

    def join(self, timeout: float | None = None) -> None:
        """Wait for the rank's end."""
        rank, caller = self.rank, self.spawner.world.me()
        assert rank is not None and caller is not None, "join before start"
        waiting = RankWait("Process.join()", find_site(), rank.job)
        self.spawner.world.wait_until(caller, lambda: rank.state is State.DONE, waiting)

    def is_alive(self) -> bool:
        """Return whether the rank goes on."""
        return self.rank is not None and self.rank.state is not State.DONE

    @property
    def exitcode(self) -> int | None:
        """1 where its job was stopped by a mistake, 0 where it ended, None before."""
        if self.rank is None or self.is_alive():
            return None
        return int(self.rank.job.finding is not None)

    def terminate(self) -> None:
        """Do nothing: the rank ends with the run."""

    kill = close = terminate


def _choosing(spawner: Spawner, real: Any) -> Any:
    """Return a class that makes ranks for the program, and real processes for libraries."""

    class Chosen(real):  # type: ignore[misc]  # a class, as multiprocessing reads attributes of it
        def __new__(
            cls,
            group: None = None,
            target: Any = None,
            name: Any = None,
            args: Any = (),
            kwargs: Any = None,
            **more: Any,
        ) -> Any:
            if spawner.world.me() is not None and is_asked_by_program(("context.py", "process.py")):
                return VirtualProcess(spawner, target, name, args, kwargs)
            return real(group, target, name, args, kwargs or {}, **more)

    return Chosen
