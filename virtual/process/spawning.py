"""Start a program's processes and torchelastic's workers as virtual ranks. The ranks of one spawn form a job."""

import io
import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch.multiprocessing.spawn import ProcessRaisedException

from virtual.process.programs import UserProgram, name_as_torchrun
from virtual.process.replaced import Replaced
from virtual.ranks.finding import ProgramFinding
from virtual.ranks.rank import Rank, RankJob, RankWait, State
from virtual.ranks.sites import find_site, is_asked_by_program, is_users
from virtual.ranks.world import VirtualWorld

METHODS = ("spawn", "fork", "forkserver")
MAINS = ("__main__", "__mp_main__")


def _find_module(function: Any) -> str | None:
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, ModuleType):
        function = owner if isinstance(owner, type) else type(owner)
    return getattr(getattr(function, "func", function), "__module__", None)


def _is_programs(function: Any) -> bool:
    name = _find_module(function)
    file = getattr(sys.modules.get(name or ""), "__file__", None)
    return name in MAINS or (file is not None and is_users(file))


class _Pickler(pickle.Pickler):
    """Pickles the ends of pipes for another rank by duplicating their file descriptors."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Connection):
            return Connection, (os.dup(obj.fileno()), obj.readable, obj.writable)
        return NotImplemented


def _pickle(value: Any) -> bytes:
    packed = io.BytesIO()
    _Pickler(packed).dump(value)
    return packed.getvalue()


class Spawner:
    def __init__(self, world: VirtualWorld, program: UserProgram, start: Callable[..., Rank]) -> None:
        self.world, self.program, self.start = world, program, start

    def install(self, replaced: Replaced) -> None:
        """Make ``mp.spawn`` and ``Process`` start virtual ranks. Libraries still start real processes of their own."""
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
        """Start ranks that call ``fn(i, *args)``. Wait until they end unless ``join`` is False."""
        job = self.world.new_job()
        bodies = [self.pack(fn, (place, *args), {}) for place in range(nprocs)]
        for place, body in enumerate(bodies):
            self.start(job, place, body)
        spawned = Spawned(self.world, job)
        if not join:
            return spawned
        spawned.join()
        return None

    def pack(
        self, fn: Callable[..., Any], args: Sequence[Any], named: dict[str, Any], with_main: bool = False
    ) -> Callable[[Rank], Any]:
        """Return a function that calls ``fn`` with copies of its arguments. It first runs the main script if needed."""
        try:
            packed = _pickle((fn, tuple(args), named))
        except (pickle.PicklingError, AttributeError, TypeError, RuntimeError):  # only a fork can get this
            return lambda rank: fn(*args, **named)
        module = _find_module(fn)
        needs_main = with_main or any(name.encode() in packed for name in MAINS)

        def body(rank: Rank) -> Any:
            if needs_main and not self.program.is_module:
                self.program.execute("__mp_main__")
            if module is not None and module not in MAINS:
                import_module(module)
            function, arguments, keys = pickle.loads(packed)  # pickled by this process
            return function(*arguments, **keys)

        return body


class Spawned:
    """The result of ``mp.spawn(join=False)``, in place of torch's ProcessContext."""

    def __init__(self, world: VirtualWorld, job: RankJob) -> None:
        self.world, self.job = world, job
        self.processes: list[Any] = []

    def pids(self) -> list[int]:
        return [100_000 + rank.number for rank in self.job.ranks]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until all ranks end. Raise ProcessRaisedException if a rank fails, or if the ranks hang."""
        caller = self.world.caller()
        waiting = RankWait("mp.spawn.join()", find_site(), self.job)
        self.world.wait_until(caller, lambda: self.job.is_over, waiting)
        finding = self.job.finding
        if finding is not None:
            first = finding.where[0][0] if finding.where else 0
            self.job.raised_in = caller
            raise RanksFailed(finding, first)
        return True


class RanksFailed(ProcessRaisedException):
    """Raised by ``mp.spawn`` if its ranks fail or hang. The error of these ranks is not reported a second time."""

    def __init__(self, finding: ProgramFinding, rank: int) -> None:
        super().__init__(finding.text, error_index=rank, error_pid=100_000 + rank)
        self.finding = finding


class VirtualProcess:
    """A ``multiprocessing.Process`` that runs as a rank. The processes started by one rank form a job."""

    def __init__(
        self,
        spawner: Spawner,
        target: Callable[..., Any] | None,
        name: str | None,
        args: Sequence[Any],
        kwargs: dict[str, Any] | None,
        is_librarys: bool = False,
    ) -> None:
        self.is_librarys = is_librarys
        self.spawner, self.target, self.arguments, self.named = spawner, target, args, dict(kwargs or {})
        self.name, self.daemon = name or "Process", False
        self.pid: int | None = None
        self.rank: Rank | None = None
        self._status = 0  # exit status of ``sys.exit``

    def start(self) -> None:
        world = self.spawner.world
        caller = world.caller()
        job = caller.extra.get("children")
        if job is None or job.is_over:
            job = caller.extra["children"] = world.new_job()
        rank = self.spawner.start(job, len(job.ranks), self._body())
        self.rank, self.pid = rank, 100_000 + rank.number

    def _body(self) -> Callable[[Rank], None]:
        call = self.spawner.pack(self.target, self.arguments, self.named) if self.target else lambda rank: None

        def body(rank: Rank) -> None:
            try:
                call(rank)
            except SystemExit as end:
                if not self.is_librarys:
                    raise
                self._status = end.code if isinstance(end.code, int) else int(end.code is not None)

        return body

    def join(self, timeout: float | None = None) -> None:
        rank, caller = self.rank, self.spawner.world.caller()
        assert rank is not None, "join before start"
        waiting = RankWait("Process.join()", find_site(), rank.job)
        self.spawner.world.wait_until(caller, lambda: rank.state is State.DONE, waiting)

    def is_alive(self) -> bool:
        return self.rank is not None and self.rank.state is not State.DONE

    @property
    def exitcode(self) -> int | None:
        """The exit status: None while the rank runs, else the status of ``sys.exit``, 1 if the job failed, or 0."""
        if self.rank is None or self.is_alive():
            return None
        return self._status or int(self.rank.job.finding is not None)

    def terminate(self) -> None:
        """Do nothing: the rank ends with the run."""

    kill = close = terminate


def _choosing(spawner: Spawner, real: Any) -> Any:
    class Chosen(real):  # type: ignore[misc]  # a class, because multiprocessing reads its attributes
        def __new__(
            cls,
            group: None = None,
            target: Any = None,
            name: Any = None,
            args: Any = (),
            kwargs: Any = None,
            **more: Any,
        ) -> Any:
            if spawner.world.me() is not None:
                is_programs = is_asked_by_program(("context.py", "process.py"))
                if is_programs or _is_programs(target):
                    return VirtualProcess(spawner, target, name, args, kwargs, not is_programs)
            return real(group, target, name, args, kwargs or {}, **more)

    return Chosen


NO_PROCESSES = (
    "commands and processes of torchelastic cannot run on virtual ranks, which are threads: pass a function to "
    "elastic_launch, or run the script with ringlab virtual --ranks N SCRIPT"
)
NO_NODES = "torchelastic on several nodes cannot run on virtual ranks: pass min_nodes=1, max_nodes=1"


def install_elastic(spawner: Spawner, replaced: Replaced) -> None:
    """Let ``elastic_launch`` start a function on virtual ranks. Reject commands, real processes and several nodes."""
    from torch.distributed.elastic.multiprocessing.api import PContext  # slow; only programs that start ranks need it
    from torch.distributed.launcher import api

    replaced.put(api.elastic_launch, "__call__", lambda launcher, *args: _launch(spawner, launcher, args))
    replaced.put(PContext, "start", _refuse)


def _launch(spawner: Spawner, launcher: Any, args: tuple[Any, ...]) -> dict[int, Any]:
    config, function = launcher._config, launcher._entrypoint
    if not callable(function):
        raise RuntimeError(NO_PROCESSES)
    if config.min_nodes > 1:
        raise RuntimeError(NO_NODES)
    job, call = spawner.world.new_job(), spawner.pack(function, args, {}, with_main=True)
    results = dict[int, Any]()

    def body(rank: Rank) -> None:
        results[rank.number] = call(rank)

    for number in range(config.nproc_per_node):
        spawner.start(job, number, body, name_as_torchrun(number, config.nproc_per_node, config.nproc_per_node))
    Spawned(spawner.world, job).join()
    return results


def _refuse(context: Any) -> NoReturn:
    raise RuntimeError(NO_PROCESSES)
