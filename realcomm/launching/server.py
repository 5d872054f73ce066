"""Run the fork server, which imports the ranks' modules once and then forks all ranks. It ends with this process."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import current_process, forkserver, get_context, resource_tracker, util
from pathlib import Path
from signal import SIG_BLOCK, SIG_SETMASK, SIGINT, SIGTERM, pthread_sigmask
from threading import Thread, current_thread, main_thread
from types import ModuleType
from typing import ClassVar

from collectives.errors import RunFailed
from realcomm.launching import server_preload
from realcomm.launching.failures import describe_signal
from realcomm.launching.interrupts import HeldInterrupts

# Imported once by the server, for all ranks.
_PRELOADED = ("torch", "torch.distributed", "numpy", "realcomm.launching.worker", "realcomm.execution.executor")

# The path of a socket has at most 107 bytes on Linux and 103 on macOS; multiprocessing's paths are the longest.
_SOCKET_BYTES = 103
_NAMES_BYTES = len("/pymp-12345678/listener-12345678")
_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")

_LOOK_S = 0.01  # between checks whether the server has ended


class _Known:
    answers: bool = False  # whether the server has forked a process yet
    also: ClassVar[dict[str, None]] = {}  # modules that some runs need, in order


def preload(*modules: str) -> None:
    """Let the fork server import ``modules`` once for all ranks. This has no effect on a running server.

    Call this before ``launch`` for modules that take seconds to import.
    """
    _Known.also.update(dict.fromkeys(modules))


def start_server() -> None:
    """Start the fork server if it is not running. ^C in the terminal does not reach the server.

    If this process is killed in the first millisecond, before the server runs, multiprocessing's temporary folder is
    not removed.
    """
    running = server_pid()
    forkserver.set_forkserver_preload([server_preload.__name__, *_PRELOADED, *_Known.also])
    resource_tracker.ensure_running()  # it would unblock SIGINT if the server started it
    old_mask = pthread_sigmask(SIG_BLOCK, {SIGINT})
    try:
        with _environment():
            forkserver.ensure_running()
    finally:
        pthread_sigmask(SIG_SETMASK, old_mask)
    if server_pid() != running:
        _Known.answers = False


def server_end(within_s: float = 0.0) -> str:
    """Return how the fork server has ended, for example "was killed by SIGKILL".

    Return "" if the server is still running after ``within_s`` seconds, or if the system does not report how processes
    end (macOS before Python 3.13).
    """
    pid, until = server_pid(), time.monotonic() + within_s
    if pid is None:  # multiprocessing has noticed
        return "has ended"
    if not hasattr(os, "waitid"):
        return ""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT  # the status is left for multiprocessing to collect
    while (end := os.waitid(os.P_PID, pid, options)) is None:
        if time.monotonic() >= until:
            return ""
        time.sleep(_LOOK_S)
    if end.si_code == os.CLD_EXITED and end.si_status != server_preload.TERMINATED:
        return f"exited with status {end.si_status}"
    return f"was killed by {describe_signal(SIGTERM if end.si_code == os.CLD_EXITED else end.si_status)}"


def server_pid() -> int | None:
    """Return the process ID of the fork server, or None if it was not started."""
    return getattr(forkserver._forkserver, "_forkserver_pid", None)


def server_folder() -> Path:
    """Return multiprocessing's temporary folder. Create it if it does not exist.

    The folder is removed when this process ends. If a signal kills this process, the fork server removes the folder. If
    the usual path is too long for a Unix socket, the folder is created in another directory. Raise RunFailed if no
    other directory is writable.
    """
    config = current_process()._config  # type: ignore[attr-defined]
    if config.get("tempdir") is None or not Path(config["tempdir"]).exists():  # a terminated server removes it
        config["tempdir"] = _make_folder(tempfile.gettempdir())
        util.Finalize(None, server_preload.remove, args=(Path(config["tempdir"]),), exitpriority=-100)
    return Path(config["tempdir"])


def _make_folder(usual: str) -> str:
    if len(os.fsencode(usual)) + _NAMES_BYTES <= _SOCKET_BYTES:
        return tempfile.mkdtemp(prefix="pymp-", dir=usual)
    for folder in _SHORT_FOLDERS:
        with suppress(OSError):
            return tempfile.mkdtemp(prefix="pymp-", dir=folder)
    most = _SOCKET_BYTES - _NAMES_BYTES
    raise RunFailed(
        f"{usual}: the path is too long for a Unix socket, and "
        f"{' and '.join(_SHORT_FOLDERS)} are not writable; set TMPDIR to a directory whose path has at most {most} "
        "bytes"
    )


@contextmanager
def _environment() -> Iterator[None]:
    variables = {server_preload.FOLDER: str(server_folder())}
    if current_thread() is main_thread():  # another thread may end long before this process
        variables[server_preload.LAUNCHER] = str(os.getpid())
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def wait_for_server(interrupts: HeldInterrupts, deadline: float) -> None:
    """Wait until the fork server has imported its modules and can fork, but at most until ``deadline``.

    ``deadline`` is in seconds of ``time.monotonic``. Interrupts take effect during the wait.
    """
    if _Known.answers:
        return
    thread = Thread(target=_fork_nothing, daemon=True)
    thread.start()
    with interrupts.allowed():
        thread.join(max(0.0, deadline - time.monotonic()))


def _fork_nothing() -> None:
    process = get_context("forkserver").Process(daemon=True)
    with suppress(OSError, EOFError):  # the server has ended; the next launch starts a new one
        process.start()
        process.join()
        process.close()
        _Known.answers = True


@contextmanager
def without_main(payload: bytes = b"") -> Iterator[None]:
    """Within the context, keep new processes from executing the launcher's main module.

    A plain script can then call ``launch`` without ``if __name__ == "__main__"``, and workers start faster. If
    ``payload``, the pickled worker with its arguments, refers to the main module, new processes still execute this
    module.
    """
    main_module = sys.modules["__main__"]
    if b"__main__" not in payload:
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main_module
