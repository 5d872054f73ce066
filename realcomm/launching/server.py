"""The server that workers are forked from: it has imported once what they need, and ends with this process."""

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

# What the path of a socket holds is 107 bytes on Linux and 103 on macOS; multiprocessing's own is the longest of them.
_SOCKET_BYTES = 103
_NAMES_BYTES = len("/pymp-12345678/listener-12345678")
_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")

_LOOK_S = 0.01  # between looks for the end of the server


class _Known:
    answers: bool = False  # whether the server has forked a process yet
    also: ClassVar[dict[str, None]] = {}  # modules that some runs need, in order


def preload(*modules: str) -> None:
    """Have the server import these modules too, once for all ranks, unless it runs already.

    They take seconds, so that whoever launches ranks that need them says so before.
    """
    _Known.also.update(dict.fromkeys(modules))


def start_server() -> None:
    """Start the server unless it runs, out of the reach of ^C in the terminal.

    Between the making of its folder and its start, less than a millisecond, nobody would remove the folder.
    """
    running = server_pid()
    forkserver.set_forkserver_preload([server_preload.__name__, *_PRELOADED, *_Known.also])
    resource_tracker.ensure_running()  # it would unblock SIGINT if the server had to start it
    before = pthread_sigmask(SIG_BLOCK, {SIGINT})
    try:
        with _environment():
            forkserver.ensure_running()
    finally:
        pthread_sigmask(SIG_SETMASK, before)
    if server_pid() != running:
        _Known.answers = False


def server_end(within_s: float = 0.0) -> str:
    """Return how the server that was started has ended, such as "was ended by SIGKILL".

    Empty if it still runs after ``within_s`` seconds, and where the system does not tell, as macOS before Python 3.13.
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
    return f"was ended by {describe_signal(SIGTERM if end.si_code == os.CLD_EXITED else end.si_status)}"


def server_pid() -> int | None:
    """Return the process of the server; None where it was not started."""
    return getattr(forkserver._forkserver, "_forkserver_pid", None)


def server_folder() -> Path:
    """Return a folder that is gone when this process has ended, however it ended; multiprocessing takes it for its own.

    The server removes it too where a signal comes to all, and multiprocessing would give up on what another removes.
    Where the folder for temporary files has too long a path for a socket, it is in another. Raises RunFailed where no
    other can be written to.
    """
    config = current_process()._config  # type: ignore[attr-defined]
    if config.get("tempdir") is None or not Path(config["tempdir"]).exists():  # a server that is ended removes it
        config["tempdir"] = _make_folder(tempfile.gettempdir())
        util.Finalize(None, server_preload.remove, args=(Path(config["tempdir"]),), exitpriority=-100)
    return Path(config["tempdir"])


def _make_folder(usual: str) -> str:
    """Make a folder in which sockets can be: in the usual one for temporary files unless its path is too long."""
    if len(os.fsencode(usual)) + _NAMES_BYTES <= _SOCKET_BYTES:
        return tempfile.mkdtemp(prefix="pymp-", dir=usual)
    for folder in _SHORT_FOLDERS:
        with suppress(OSError):
            return tempfile.mkdtemp(prefix="pymp-", dir=folder)
    most = _SOCKET_BYTES - _NAMES_BYTES
    raise RunFailed(
        f"{usual}: processes are started through a socket, whose path would be too long here, and "
        f"{' and '.join(_SHORT_FOLDERS)} cannot be written to; set TMPDIR to a folder whose path has at most {most} "
        "bytes"
    )


@contextmanager
def _environment() -> Iterator[None]:
    """Within the context, tell a process that is started what it needs to know to be the server."""
    told = {server_preload.FOLDER: str(server_folder())}
    if current_thread() is main_thread():  # another may end long before this process does
        told[server_preload.LAUNCHER] = str(os.getpid())
    os.environ.update(told)
    try:
        yield
    finally:
        for name in told:
            del os.environ[name]


def wait_for_server(interrupts: HeldInterrupts, deadline: float) -> None:
    """Wait until the server has imported all and forks; an interrupt ends the wait, and so does ``deadline``.

    The deadline is in seconds as ``time.monotonic`` has them. A thread waits, so that an interrupt is not held up.
    """
    if _Known.answers:
        return
    thread = Thread(target=_have_nothing_done, daemon=True)
    thread.start()
    with interrupts.allowed():
        thread.join(max(0.0, deadline - time.monotonic()))


def _have_nothing_done() -> None:
    """Have the server fork a process that does nothing, and wait for its end."""
    process = get_context("forkserver").Process(daemon=True)
    with suppress(OSError, EOFError):  # the server has ended; whoever needs it next starts it anew
        process.start()
        process.join()
        process.close()
        _Known.answers = True


@contextmanager
def without_main(payload: bytes = b"") -> Iterator[None]:
    """Within the context, keep new processes from executing the launcher's main module, unless it defines their work.

    ``payload`` is that work, pickled.
    So a plain script may call ``launch`` without ``if __name__ == "__main__"``, and workers start faster.
    """
    main_module = sys.modules["__main__"]
    if b"__main__" not in payload:
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main_module
