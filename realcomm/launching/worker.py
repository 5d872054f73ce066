"""The inside of a rank's process: it joins the group, works, says what it is doing, and never outlives its launcher."""

import os
import pickle
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING

from realcomm.launching.failures import failed
from realcomm.launching.status import Board, Slot, private_slot

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

RESULT, PROGRESS, FAILURE = "result", "progress", "failure"


@dataclass(frozen=True)
class Place:
    """What a process is told about its part."""

    rank: int
    world_size: int
    folder: Path  # of this launch alone; the launcher removes it
    backend: str
    threads: int
    timeout: float  # seconds
    environment: dict[str, str]
    server_folder: Path  # where multiprocessing keeps the socket of the server that forked us


class _Current:
    """What this process says about itself, and to whom. A process has one rank, so there is one of these."""

    slot: Slot = private_slot()
    report: Callable[[int, int, str], None] | None = None


def doing(text: str) -> None:
    """The launcher knows, should this rank fail or hang, that it was doing ``text``."""
    _Current.slot.set(text)


def done_so_far() -> str:
    """What this rank was last doing."""
    return _Current.slot.get()


def own_slot() -> Slot:
    """This process's place on the launcher's board, for a collective to store what it waits for."""
    return _Current.slot


def report(done: int, total: int, text: str) -> None:
    """The launcher's ``progress`` is called with this rank's number and these; nothing happens where there is none."""
    if _Current.report is not None:
        _Current.report(done, total, text)


@contextmanager
def reporting(slot: Slot, report: Callable[[int, int, str], None] | None) -> Iterator[None]:
    """Inside, ``doing`` and ``report`` of this process lead there."""
    before = _Current.slot, _Current.report
    _Current.slot, _Current.report = slot, report
    try:
        yield
    finally:
        _Current.slot, _Current.report = before


def main(place: Place, payload: bytes, connection: Connection, wants_progress: bool) -> None:
    """The life of a worker process: one result or one failure is sent, then it waits until it is let go."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C reaches the whole terminal; the launcher ends us
    _end_with_launcher(place)
    os.environ.clear()
    os.environ.update(place.environment)

    def tell(kind: str, *content: object) -> None:
        connection.send_bytes(_by_value((kind, *content)))

    try:
        board = Board(place.folder / "board", place.world_size)
    except FileNotFoundError:
        return  # the launcher was interrupted while it started us, and wants nothing any more
    with reporting(board.slot(place.rank), (lambda *news: tell(PROGRESS, *news)) if wants_progress else None):
        try:
            tell(RESULT, _work(place, payload))
        except BaseException as error:  # also SystemExit: whatever ends the work is the launcher's to judge
            tell(FAILURE, failed(place.rank, error, done_so_far()))
            return
    _wait_until_let_go(connection)


def _work(place: Place, payload: bytes) -> object:
    doing("importing torch")
    import torch  # slow; only workers need it

    torch.set_num_threads(place.threads)
    doing("joining the group")
    join_file_group(place)
    doing("working")
    worker, arguments = pickle.loads(payload)  # written by our own launcher
    return worker(place.rank, place.world_size, *arguments)


def join_file_group(place: Place) -> None:
    """The default group of torch.distributed spans the ranks of this launch, who find each other through a file."""
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = loopback()
    store = dist.FileStore(str(place.folder / "store"), place.world_size)  # type: ignore[attr-defined]
    select_device(place.backend, place.rank)
    dist.init_process_group(
        place.backend,
        store=store,
        rank=place.rank,
        world_size=place.world_size,
        timeout=timedelta(seconds=place.timeout),
    )
    yield_to_ranks()


def yield_to_ranks() -> None:
    """Gloo's event loops never interrupt a thread that works; they take their turn, with the same share of the cores.

    Otherwise, with few cores, a loop that wakes up takes the core from a rank that is just sending and holds the lock
    of that connection. Gloo's loops do not wait for such a lock but try again and again (``Pair::handleEvents``), so
    the rank does not get its core back before the time slice ends: with 2 ranks on 2 cores half of all steps of 4 KiB
    took up to 4 ms rather than 0.1.
    """
    if not hasattr(os, "SCHED_BATCH"):  # only Linux has it
        return
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it is gone, or may not be changed; then all is as it was
            if (thread / "comm").read_text().startswith("gloo"):
                os.sched_setscheduler(int(thread.name), os.SCHED_BATCH, os.sched_param(0))


def select_device(backend: str, local_rank: int) -> None:
    """With nccl, this process has its own GPU, or shares one where there are fewer than ranks."""
    if backend == "nccl":
        import torch

        torch.cuda.set_device(local_rank % torch.cuda.device_count())


def own_device(group: "dist.ProcessGroup | None" = None) -> "torch.device":
    """Return the GPU of this process if the group's backend is nccl, else the CPU; None is the default group."""
    import torch
    import torch.distributed as dist

    on_gpu = dist.is_initialized() and dist.get_backend(group) == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def loopback() -> str:
    """The name of the network interface that only this machine reaches."""
    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "lo")


def _by_value(message: object) -> bytes:
    """Pickled whole: torch's own reductions would hand over shared memory that ends with this process."""
    return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)


def _wait_until_let_go(connection: Connection) -> None:
    """Keep the connections open until all ranks are done: nobody loses a peer that has finished early."""
    with suppress(EOFError, OSError):
        connection.recv_bytes()
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def _end_with_launcher(place: Place) -> None:
    """However the launcher ends, this process ends too: SIGKILL would otherwise leave it alone with its work."""
    launcher = parent_process()
    assert launcher is not None and launcher.pid is not None
    threading.Thread(target=_watch, args=(launcher.sentinel, launcher.pid, place), daemon=True).start()


def _watch(sentinel: int, launcher: int, place: Place) -> None:
    wait([sentinel])
    shutil.rmtree(place.folder, ignore_errors=True)
    if _is_gone(launcher):  # then nobody else removes this
        shutil.rmtree(place.server_folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)


def _is_gone(process: int) -> bool:
    """Whether a process has ended, also if it takes a moment over it."""
    for _ in range(100):
        try:
            os.kill(process, 0)
        except OSError:
            return True
        time.sleep(0.01)
    return False
