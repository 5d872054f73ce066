"""Run one rank in its process: join the group, call the worker, send the result. The process ends with its launcher."""

import gc
import os
import pickle
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path

from collectives.errors import RunFailed
from realcomm.launching.failures import failure_by_exception
from realcomm.launching.hangs import describe_unfinished, report_hangs_by
from realcomm.launching.namespaces import HostNamespaces, enter
from realcomm.launching.status import Board, get_status, set_status, status_in
from realcomm.launching.torch_process import keep_freed_memory
from realcomm.launching.types import find_worker

RESULT, PROGRESS, FAILURE, UNFINISHED = "result", "progress", "failure", "unfinished"
ASK = b"tell"  # the launcher's request for this rank's unfinished call


@dataclass(frozen=True)
class Assignment:
    """The parameters of a process that runs one rank of a launch."""

    rank: int
    world_size: int
    folder: Path  # used by this launch only; the launcher or the server removes it
    backend: str
    threads: int
    timeout: float  # seconds
    environment: dict[str, str]
    namespaces: HostNamespaces | None = (
        None  # an emulated host's namespaces; None: the launcher's own, over the loopback
    )


def run_worker(assignment: Assignment, payload: bytes, connection: Connection, wants_progress: bool) -> None:
    """Run the worker of one rank, send its result or failure to the launcher, and wait until all ranks are done.

    ``payload`` is the pickled worker with its arguments. This is the main function of a rank's process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C reaches the whole terminal; the launcher ends its workers itself
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the fork server has changed it
    gc.freeze()  # a collection through torch's 400,000 objects would take a quarter of a second
    failure = None
    try:
        enter(assignment.namespaces.files if assignment.namespaces else ())  # before any other thread exists
    except OSError as error:
        failure = RunFailed(f"cannot enter the emulated host: {error.strerror}")
    end_with_launcher()
    os.environ.clear()
    os.environ.update(assignment.environment)

    sending = threading.Lock()

    def send(kind: str, *content: object) -> None:
        # plain pickle copies tensors, which torch's own reductions would share
        message = pickle.dumps((kind, *content), protocol=pickle.HIGHEST_PROTOCOL)
        with sending:
            connection.send_bytes(message)

    try:
        board = Board(assignment.folder / "board", assignment.world_size)
    except FileNotFoundError:
        return  # the launcher was interrupted while it started this process, and has ended
    is_over = _answer_launcher(connection, lambda: send(UNFINISHED, describe_unfinished()))
    report = partial(send, PROGRESS) if wants_progress else None
    with status_in(board.slot(assignment.rank), report):
        try:
            if failure is not None:
                raise failure
            send(RESULT, _work(assignment, payload))
        except BaseException as error:  # also SystemExit; the launcher decides
            send(UNFINISHED, describe_unfinished())
            send(FAILURE, failure_by_exception(assignment.rank, error, get_status()))
            return
    from realcomm.launching.group import leave

    is_over.wait()  # no rank may lose a peer before all are done
    leave()


def _work(assignment: Assignment, payload: bytes) -> object:
    keep_freed_memory()
    set_status("importing torch")
    import torch  # slow; only workers need it

    from realcomm.launching.group import join_by_file, loopback

    torch.set_num_threads(assignment.threads)
    report_hangs_by(None)
    set_status("joining the group")
    rank, world_size = assignment.rank, assignment.world_size
    interface = assignment.namespaces.interface if assignment.namespaces else loopback()
    join_by_file(assignment.folder / "store", assignment.backend, rank, world_size, assignment.timeout, interface)
    set_status("working")
    worker, arguments = pickle.loads(payload)  # written by our own launcher
    return find_worker(worker)(rank, world_size, *arguments)


def _answer_launcher(connection: Connection, answer: Callable[[], None]) -> threading.Event:
    """Start a thread that calls ``answer`` for each ``ASK`` message from the launcher.

    Return an event that is set when the launcher closes its end of the connection.
    """
    is_over = threading.Event()

    def listen() -> None:
        with suppress(EOFError, OSError):
            while connection.recv_bytes() == ASK:
                answer()
        is_over.set()

    threading.Thread(target=listen, daemon=True).start()
    return is_over


def end_with_launcher() -> None:
    """Start a thread that ends this process when the launcher ends, even if the launcher is killed."""
    launcher = parent_process()
    assert launcher is not None
    threading.Thread(target=_watch, args=(launcher.sentinel,), daemon=True).start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGKILL)
