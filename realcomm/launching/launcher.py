"""Processes that work as the ranks of one torch.distributed group: started together, watched, and ended together."""

import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, get_context, resource_tracker, util
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from signal import SIG_BLOCK, SIG_SETMASK, SIGINT, getsignal, pthread_sigmask, signal
from threading import current_thread, main_thread
from types import FrameType, ModuleType
from typing import Any

from collectives.errors import InputError
from collectives.records.environment import cores, threads_per_rank
from realcomm.launching import torchrun
from realcomm.launching.failures import Failure, RankFailed, TimedOut, ended, root_cause
from realcomm.launching.status import Board, Slot
from realcomm.launching.torchrun import under_torchrun
from realcomm.launching.types import Progress, Worker
from realcomm.launching.worker import FAILURE, PROGRESS, RESULT, Place, doing, main, report

__all__ = ["RankFailed", "TimedOut", "check_launch", "doing", "launch", "report", "under_torchrun"]

# The server that workers are forked from imports these once. The last ones only if the launcher has them too: they
# take seconds, and only a training needs them.
_PRELOADED = ("torch", "torch.distributed", "numpy", "realcomm.launching.worker", "realcomm.execution.executor")
_PRELOADED_WITH_LAUNCHER = ("torchvision", "sklearn.datasets", "realcomm.training.trainer")

_FOR_OTHER_REPORTS = 1.0  # seconds to wait for the cause when the first news is of a lost connection
_TO_LEAVE = 5.0  # seconds for a worker that is done to end by itself
_RANKS_A_CORE = 32  # each a process with a connection to every other; a machine that has to start more is lost
_BEYOND = 60.0  # torch's own timeout comes so much later than ours, which tells more


def launch(
    worker: Worker,
    world_size: int,
    *args: Any,
    backend: str = "gloo",
    threads: int | None = None,
    timeout: float = 600.0,
    progress: Progress | None = None,
) -> list[Any]:
    """``worker(rank, world_size, *args)`` has run in ``world_size`` processes of this machine; its results by rank.

    The processes were joined in the default group of torch.distributed, each with ``threads`` compute threads (its
    share of the cores unless said), and are gone. Under torchrun this very process works as its rank instead, and
    every rank gets all results. ``worker``, ``args`` and the results must be picklable. ``progress(rank, done, total,
    text)`` is called here for every ``report`` of a worker; ``timeout`` is in seconds.

    Raises RankFailed that names the rank that failed first and what it was doing, TimedOut that tells what all of
    them were doing, and InputError that a worker raised, or if there is no such backend or number of ranks here.
    """
    check_launch(world_size, backend, timeout)
    if under_torchrun():
        return torchrun.work(worker, world_size, args, backend, threads, timeout, progress)
    payload = pickle.dumps((worker, args), protocol=pickle.HIGHEST_PROTOCOL)
    with _folder() as folder:
        team = _Team(folder, world_size, timeout, progress)
        try:
            team.start(payload, backend, threads or threads_per_rank(world_size))
            return team.results()
        finally:
            team.end()


def check_launch(world_size: int, backend: str, timeout: float) -> None:
    """Raise InputError unless ``launch`` can start so many ranks here; for those who have long work to do before."""
    if world_size < 1:
        raise InputError(f"a run needs at least one rank, not {world_size}")
    most = _RANKS_A_CORE * cores()
    if world_size > most and not under_torchrun():
        raise InputError(
            f"{world_size} ranks are too many for the {cores()} cores of this machine; up to {most} will do"
        )
    if timeout <= 0:
        raise InputError(f"a timeout of {timeout} s leaves no time for anything")
    if backend not in ("gloo", "nccl"):
        raise InputError(f"backend {backend!r} is not known; there are gloo (CPUs) and nccl (GPUs)")
    if backend == "nccl":
        import torch

        if not torch.cuda.is_available():
            raise InputError("backend 'nccl' needs a CUDA GPU, and this machine has none; use gloo")


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for one launch, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="ringlab-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class _Team:
    """The worker processes of one launch and what has been heard of them."""

    def __init__(self, folder: Path, world_size: int, timeout: float, progress: Progress | None) -> None:
        self.folder, self.world_size, self.timeout, self.progress = folder, world_size, timeout, progress
        self.deadline = time.monotonic() + timeout
        self.board = Board(folder / "board", world_size)
        self.slots: list[Slot] = [self.board.slot(rank) for rank in range(world_size)]
        self.processes: list[ForkServerProcess] = []
        self.connections: dict[int, Connection] = {}  # by rank, while something may come
        self.done: dict[int, Any] = {}
        self.failures: dict[int, Failure] = {}

    def start(self, payload: bytes, backend: str, threads: int) -> None:
        """All processes run."""
        context = get_context("forkserver")
        with _only_needed_main(payload):
            _start_server()
            for rank in range(self.world_size):
                self._check_time()
                here, there = context.Pipe()
                self.connections[rank] = here
                place = Place(
                    rank, self.world_size, self.folder, backend, threads, self.timeout + _BEYOND, dict(os.environ),
                    server_folder=Path(util.get_temp_dir()),
                )  # fmt: skip
                arguments = (place, payload, there, self.progress is not None)
                process = context.Process(target=main, args=arguments, name=f"ringlab rank {rank}", daemon=True)
                with _interrupts_held_back():  # else a process could run that nobody knows, or the server end
                    process.start()
                    self.processes.append(process)
                there.close()

    def results(self) -> list[Any]:
        """What the workers returned, by rank. Raises RankFailed, TimedOut or InputError as soon as it must be."""
        while len(self.done) < self.world_size:
            self._listen(self.deadline)
            if self.failures:
                raise self._cause().error()
            self._check_time()
        return [self.done[rank] for rank in range(self.world_size)]

    def _check_time(self) -> None:
        if time.monotonic() >= self.deadline:
            raise TimedOut(self._where_all_are())

    def _listen(self, until: float) -> None:
        """Something was heard of a rank, or it is ``until``."""
        by_source: dict[Connection | int, int] = {connection: rank for rank, connection in self.connections.items()}
        for rank in self._unheard():
            by_source[self.processes[rank].sentinel] = rank
        ready = wait(list(by_source), max(0.0, until - time.monotonic()))
        for rank in sorted({by_source[source] for source in ready}):  # type: ignore[index]
            self._hear(rank)

    def _unheard(self) -> list[int]:
        return [rank for rank in range(self.world_size) if rank not in self.done and rank not in self.failures]

    def _hear(self, rank: int) -> None:
        """All that a rank has said is known; and if it is gone without result or failure, that it is."""
        connection = self.connections.get(rank)
        try:
            while connection is not None and connection.poll():
                self._note(rank, *pickle.loads(connection.recv_bytes()))  # by our own worker
        except (EOFError, OSError):
            self.connections.pop(rank).close()
        process = self.processes[rank]
        if rank in self._unheard() and not process.is_alive():
            self.failures[rank] = ended(rank, process.exitcode, self.slots[rank].get())

    def _note(self, rank: int, kind: str, *content: Any) -> None:
        if kind == PROGRESS and self.progress is not None:
            self.progress(rank, *content)
        elif kind == RESULT:
            self.done[rank] = content[0]
        elif kind == FAILURE:
            self.failures[rank] = content[0]

    def _cause(self) -> Failure:
        """The failure to blame. If all so far are about lost connections, the one that they follow from is awaited."""
        until = min(self.deadline, time.monotonic() + _FOR_OTHER_REPORTS)
        while self._unheard() and time.monotonic() < until and root_cause(list(self.failures.values())).secondary:
            self._listen(until)
        return root_cause(list(self.failures.values()))

    def _where_all_are(self) -> str:
        lines = [f"rank {rank}: {'done' if rank in self.done else slot.get()}" for rank, slot in enumerate(self.slots)]
        return f"not done after {self.timeout:g} s; " + "; ".join(lines)

    def end(self) -> None:
        """No process is left, and nothing is open."""
        for connection in self.connections.values():
            connection.close()  # lets go those that are done
        leave_by = time.monotonic() + (_TO_LEAVE if len(self.done) == self.world_size else 0.0)
        for process in self.processes:
            process.join(max(0.0, leave_by - time.monotonic()))
            process.kill()
        for process in self.processes:
            process.join()
            process.close()
        self.board.close()


def _start_server() -> None:
    """The server that forks the workers runs, and ^C in the terminal does not reach it."""
    wanted = [*_PRELOADED, *(name for name in _PRELOADED_WITH_LAUNCHER if name in sys.modules)]
    forkserver.set_forkserver_preload(wanted)
    resource_tracker.ensure_running()  # it would unblock SIGINT if the server had to start it
    before = pthread_sigmask(SIG_BLOCK, {SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        pthread_sigmask(SIG_SETMASK, before)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Inside, an interrupt is only noted; it takes effect at the end."""
    handler = getsignal(SIGINT)
    if current_thread() is not main_thread() or not callable(handler):
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    signal(SIGINT, lambda number, frame: held.append((number, frame)))
    try:
        yield
    finally:
        signal(SIGINT, handler)
    if held:
        handler(*held[0])


@contextmanager
def _only_needed_main(payload: bytes) -> Iterator[None]:
    """Inside, new processes do not execute the launcher's main module again, unless their work is defined there.

    So a plain script may call ``launch`` without ``if __name__ == "__main__"``, and workers start faster.
    """
    main_module = sys.modules["__main__"]
    if b"__main__" not in payload:
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main_module
