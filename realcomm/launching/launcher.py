"""Start processes as the ranks of one torch.distributed group, monitor them, and end them together."""

import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from signal import SIGKILL
from typing import Any

from collectives.checks import check_callable, check_whole_number
from collectives.declaration import Algorithm
from collectives.errors import InputError, failure_first
from collectives.quoting import quote
from collectives.records.environment import cores, threads_per_rank
from collectives.schedule.build import reduce_to_steps
from collectives.variables import check_variables
from realcomm.launching.failures import Failure, LaunchFailed, TimedOut, failure_by_exit, failure_by_server, root_cause
from realcomm.launching.interrupts import HeldInterrupts
from realcomm.launching.server import preload, server_end, server_folder, start_server, wait_for_server, without_main
from realcomm.launching.status import STOPPED, Board, Slot, process_state
from realcomm.launching.torch_process import check_torch
from realcomm.launching.torchrun import run_under_torchrun, under_torchrun
from realcomm.launching.types import Progress, RankNetwork, Worker
from realcomm.launching.worker import ASK, FAILURE, PROGRESS, RESULT, UNFINISHED, Assignment, run_worker

_LOST = 255  # the exit code that multiprocessing gives a process whose server has ended
_END_S = 0.2  # from a server's closed pipes to its exit status, at most
_CAUSE_WAIT_S = 1.0  # how long to wait for the cause when the first failure is a lost peer
_REPORT_WAIT_S = 0.5  # how long ranks may take to report
_LEAVE_WAIT_S = 5.0  # how long a finished worker may take to exit
_LEAVE_LOOK_S = 0.1  # how often to look for an interrupt while waiting
_RANKS_PER_CORE = 32  # each has a connection to every other rank; more ranks would exhaust the machine
_TORCH_EXTRA_S = 60.0  # torch's timeout is longer than the launcher's, whose message is better


@failure_first()
def launch(
    worker: Worker,
    world_size: int,
    *args: Any,
    backend: str = "gloo",
    threads: int | None = None,
    timeout: float = 600.0,
    progress: Progress | None = None,
    network: RankNetwork | None = None,
    renews: bool = False,
) -> list[Any]:
    """Call ``worker(rank, world_size, *args)`` in ``world_size`` processes on this machine; return the results by rank.

    ``worker`` is a function or a name, "module:function". If it is a name, this process does not import the module,
    which saves time if the import is slow.

    The processes are the ranks of torch.distributed's default group, and have ended when this returns. Each uses
    ``threads`` compute threads. Default: an equal share of the cores. ``worker``, ``args`` and the results must be
    picklable. Under torchrun, no processes are started. Instead this process calls the worker as its own rank, and
    every rank returns all results.

    ``progress(rank, done, total, text)`` is called in this process for each ``report_progress`` of a worker.
    ``timeout`` is in seconds. If ``renews`` is true, each progress report restarts the timeout. ``network`` is a
    network of ``realcomm.emulate``; each rank then runs on its emulated host.

    Raise RankFailed if a rank fails; the message names the first failed rank and its status. Raise TimedOut if the
    timeout expires; the message contains the status of all ranks, but only of one rank under torchrun. Raise RunFailed
    if ``network`` lost packets. Raise InputError if a worker raises it. Also raise InputError if this machine cannot
    start that many ranks or does not support the backend.

    >>> from realcomm import launch
    >>> launch(max, 2)  # doctest: +SKIP
    [2, 2]
    """
    if isinstance(worker, str):
        preload(worker.partition(":")[0])
    elif not callable(worker):
        raise InputError(f"worker must be a function of (rank, world_size), not {quote(worker)}")
    check_launch(world_size, backend, timeout)
    check_callable("progress", progress, of="(rank, done, total, text)")
    if threads is not None:
        check_whole_number("threads", threads, at_least=1)
    if network is not None:
        _check_network(network, world_size, backend)
        network.mark()
    if under_torchrun():
        return run_under_torchrun(worker, world_size, args, backend, threads, timeout, progress)
    payload = _pack((worker, args), world_size)
    with HeldInterrupts() as interrupts:
        start_server()
        with _temporary_folder() as folder:
            processes = _Processes(folder, world_size, timeout, progress, interrupts, network, renews)
            try:
                processes.start(payload, backend, threads or threads_per_rank(world_size))
                results = processes.results()
            finally:
                processes.end()
    if network is not None:
        network.check()
    return results


class _Packer(pickle.Pickler):
    """Pickles rank programs. A program that only this process can import, as in a notebook, is stored as steps."""

    def __init__(self, file: BytesIO, world_size: int) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.world_size = world_size

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, Algorithm) and value.source is None and not value.is_builtin:
            return reduce_to_steps(value, self.world_size)
        return NotImplemented


def _pack(work: object, world_size: int) -> bytes:
    content = BytesIO()
    _Packer(content, world_size).dump(work)
    return content.getvalue()


def check_launch(world_size: int, backend: str, timeout: float) -> None:
    """Raise InputError if ``launch`` would reject the arguments. Call this before long preparations.

    >>> check_launch(2, "gloo", timeout=60)
    """
    check_whole_number("world_size", world_size, at_least=1)
    check_variables()
    check_torch()
    most = _RANKS_PER_CORE * cores()
    if world_size > most and not under_torchrun():
        raise InputError(f"{world_size} ranks are too many for the {cores()} cores of this machine; use at most {most}")
    if not isinstance(timeout, int | float) or timeout <= 0:
        raise InputError(f"timeout must be a positive number of seconds, not {quote(timeout)}")
    if backend not in ("gloo", "nccl"):
        raise InputError(f"unknown backend {quote(backend)}; use gloo (CPUs) or nccl (GPUs)")
    if backend == "nccl":
        import torch

        if not torch.cuda.is_available():
            raise InputError("backend 'nccl' needs a CUDA GPU, and torch finds none; use gloo")
        if not torch.distributed.is_nccl_available():
            raise InputError(
                "backend 'nccl': this torch was built without NCCL; install a torch with NCCL, or use gloo"
            )


def _check_network(network: RankNetwork, world_size: int, backend: str) -> None:
    if not isinstance(network, RankNetwork):
        raise InputError(f"network must be the object of `with realcomm.emulate(cluster)`, not {quote(network)}")
    if len(network.namespaces) != world_size:
        raise InputError(f"network must have {world_size} ranks, one for each host, not {len(network.namespaces)}")
    if backend != "gloo":
        raise InputError(f"backend {quote(backend)} does not support an emulated network; use gloo")


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Create a folder for the context. If this process is killed, the fork server removes the folder."""
    path = Path(tempfile.mkdtemp(prefix="ringlab-", dir=server_folder()))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class _Processes:
    def __init__(
        self,
        folder: Path,
        world_size: int,
        timeout: float,
        progress: Progress | None,
        interrupts: HeldInterrupts,
        network: RankNetwork | None,
        renews: bool,
    ) -> None:
        self.folder, self.world_size, self.timeout, self.progress = folder, world_size, timeout, progress
        self.interrupts = interrupts  # take effect only at waits, when all running processes are in the list
        self.namespaces = network.namespaces if network else [None] * world_size
        self.deadline, self.renews = time.monotonic() + timeout, renews
        self.board = Board(folder / "board", world_size)
        self.slots: list[Slot] = [self.board.slot(rank) for rank in range(world_size)]
        self.processes: list[ForkServerProcess] = []
        self.connections: dict[int, Connection] = {}  # by rank, until the rank closes its end
        self.done: dict[int, Any] = {}
        self.failures: dict[int, Failure] = {}
        self.unfinished: dict[int, str] = {}  # NCCL's oldest unfinished call on each rank that has answered

    def start(self, payload: bytes, backend: str, threads: int) -> None:
        context = get_context("forkserver")
        with without_main(payload):
            wait_for_server(self.interrupts, self.deadline)
            for rank in range(self.world_size):
                self.interrupts.check()
                self._check_time()
                own_end, worker_end = context.Pipe()
                self.connections[rank] = own_end
                assignment = Assignment(
                    *(rank, self.world_size, self.folder, backend, threads, self.timeout + _TORCH_EXTRA_S),
                    environment=dict(os.environ),
                    namespaces=self.namespaces[rank],
                )
                arguments = assignment, payload, worker_end, self.renews or self.progress is not None
                process = context.Process(target=run_worker, args=arguments, name=f"ringlab rank {rank}", daemon=True)
                self._check_server(rank)
                try:
                    process.start()
                except (EOFError, OSError):
                    self._check_server(rank, _END_S)
                    raise
                self.processes.append(process)
                worker_end.close()

    def _check_server(self, rank: int, within_s: float = 0.0) -> None:
        """Raise RankFailed if the fork server has ended, or ends within ``within_s`` seconds."""
        if how := server_end(within_s):
            raise failure_by_server(rank, how, self.slots[rank].get()).to_exception()

    def results(self) -> list[Any]:
        while len(self.done) < self.world_size:
            self._listen(self.deadline)
            try:
                if self.failures:
                    raise self._cause().to_exception()
                self._check_time()
            except LaunchFailed as error:
                for rank, unfinished in sorted(self._ask_all().items()):
                    if unfinished:
                        error.add_note(f"rank {rank}: NCCL's {unfinished}")
                raise
        return [self.done[rank] for rank in range(self.world_size)]

    def _check_time(self) -> None:
        if time.monotonic() >= self.deadline:
            raise TimedOut(self._describe_all())

    def _listen(self, until: float) -> None:
        by_source: dict[Connection | int, int] = {connection: rank for rank, connection in self.connections.items()}
        for rank in self._undecided():
            by_source[self.processes[rank].sentinel] = rank
        with self.interrupts.allowed():
            ready = wait(list(by_source), max(0.0, until - time.monotonic()))
        for rank in sorted({by_source[source] for source in ready}):  # type: ignore[index]
            self._receive(rank)

    def _undecided(self) -> list[int]:
        return [rank for rank in range(self.world_size) if rank not in self.done and rank not in self.failures]

    def _receive(self, rank: int) -> None:
        """Store the messages of a rank, or a failure if its process exited before it sent a result or a failure."""
        connection = self.connections.get(rank)
        try:
            while connection is not None and connection.poll():
                self._store(rank, *pickle.loads(connection.recv_bytes()))  # written by our own worker
        except (EOFError, OSError):
            self.connections.pop(rank).close()
        process = self.processes[rank]
        if rank in self._undecided() and not process.is_alive():
            status, how = self.slots[rank].get(), server_end(_END_S) if process.exitcode == _LOST else ""
            ended = failure_by_server(rank, how, status) if how else failure_by_exit(rank, process.exitcode, status)
            self.failures[rank] = ended

    def _store(self, rank: int, kind: str, *content: Any) -> None:
        if kind == PROGRESS:
            if self.renews:
                self.deadline = time.monotonic() + self.timeout
            if self.progress is not None:
                self.progress(rank, *content)
        elif kind == RESULT:
            self.done[rank] = content[0]
        elif kind == FAILURE:
            self.failures[rank] = content[0]
        elif kind == UNFINISHED:
            self.unfinished[rank] = content[0]

    def _cause(self) -> Failure:
        """Return the failure that caused the others.

        If every failure so far is a lost peer, wait up to ``_CAUSE_WAIT_S`` seconds for another failure.
        """
        until = min(self.deadline, time.monotonic() + _CAUSE_WAIT_S)
        while self._undecided() and time.monotonic() < until and root_cause(list(self.failures.values())).secondary:
            self._listen(until)
        return root_cause(list(self.failures.values()))

    def _ask_all(self) -> dict[int, str]:
        """Ask all ranks for NCCL's oldest unfinished call; return the answers within ``_REPORT_WAIT_S`` seconds."""
        until = time.monotonic() + _REPORT_WAIT_S
        for rank in self._undecided():
            with suppress(OSError, KeyError):  # it has just ended
                self.connections[rank].send_bytes(ASK)
        while time.monotonic() < until and any(rank not in self.unfinished for rank in self._undecided()):
            self._listen(until)
        return self.unfinished

    def _describe_all(self) -> str:
        lines = [f"rank {rank}: {self._describe(rank)}" for rank in range(self.world_size)]
        problem = "no progress for" if self.renews else "timed out after"
        awaited = self._awaited()
        if awaited:
            lines.append(f"the others wait for rank{'s' * (len(awaited) > 1)} {', '.join(map(str, awaited))}")
        return f"{problem} {self.timeout:g} s; " + "; ".join(lines)

    def _awaited(self) -> list[int]:
        """Return the ranks for which the others seem to wait.

        These are the ranks that a signal has stopped. If there are none, return the unfinished ranks that do not wait
        for another rank. Return an empty list if this would include all unfinished ranks.
        """
        undecided = self._undecided()
        stopped = [rank for rank in undecided if self._is_stopped(rank)]
        awaited = stopped or [rank for rank in undecided if not self.slots[rank].is_waiting]
        return awaited if len(awaited) < len(undecided) else []

    def _is_stopped(self, rank: int) -> bool:
        return rank < len(self.processes) and process_state(self.processes[rank].pid) == STOPPED

    def _describe(self, rank: int) -> str:
        if rank in self.done:
            return "done"
        return self.slots[rank].get() + (", stopped by a signal" if self._is_stopped(rank) else "")

    def end(self) -> None:
        for connection in self.connections.values():
            connection.close()  # finished workers wait for this
        if len(self.done) == self.world_size:
            self._wait_for_leaving()
        for rank, process in enumerate(self.processes):
            process.kill()
            if rank not in self.done and process.exitcode == _LOST and process.pid:
                # multiprocessing considers it ended, because its server has ended
                with suppress(ProcessLookupError):
                    os.kill(process.pid, SIGKILL)
        for process in self.processes:
            process.join()
            process.close()
        self.board.close()

    def _wait_for_leaving(self) -> None:
        leave_by = time.monotonic() + _LEAVE_WAIT_S
        for process in self.processes:
            while process.is_alive() and time.monotonic() < leave_by and not self.interrupts.is_pending:
                process.join(_LEAVE_LOOK_S)
