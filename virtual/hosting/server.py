"""The server: imports torch once, and forks a process for each run."""

import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from collectives.errors import InputError, ProgramError, RunFailed, describe_error, text_of
from virtual.hosting.protocol import CRASHED, ENDED, PIPES, REFUSED, STARTED, TELL, UNCOMPILED, read_request
from virtual.running import VirtualRun

MOST_PATH = 4096  # bytes of a request, which is the path of a folder


def serve(control: socket.socket, preloaded: Sequence[str]) -> None:
    """Import the ``preloaded`` modules, then run one program after the other.

    Return when the host closes its end of ``control``.
    """
    for name in preloaded:
        import_module(name)
    while True:
        request_path, files, _, _ = socket.recv_fds(control, MOST_PATH, len(PIPES))
        if not request_path:
            return
        process = os.fork()
        if process == 0:
            control.close()
            run_request(Path(os.fsdecode(request_path)), files)
        for file in files:
            os.close(file)
        control.sendall(f"{STARTED} {process}\n".encode())
        status = _wait(process, control)
        if status is None:
            return
        control.sendall(f"{ENDED} {status}\n".encode())


def _wait(process: int, control: socket.socket) -> int | None:
    """Return a run's exit status. If the host closes its end first, end the run and return None."""
    handle = os.pidfd_open(process)
    watched: list[Any] = [handle, control]
    ready, _, _ = select.select(watched, [], [])
    with suppress(ProcessLookupError):  # the process is not a group yet
        os.killpg(process, signal.SIGKILL)  # including processes that it started
    os.close(handle)
    _, status = os.waitpid(process, 0)
    return None if control in ready else os.waitstatus_to_exitcode(status)


def run_request(folder: Path, pipes: Sequence[int]) -> None:
    """Run the request saved in ``folder``, write the result there, and end this process."""
    status = CRASHED
    *outputs, why = pipes
    try:
        os.setsid()
        for number, file in enumerate(outputs, 1):
            os.dup2(file, number)
        status = _run(folder, why)
    except (InputError, ProgramError) as error:
        status = REFUSED
        os.write(why, text_of(error).encode(errors="replace"))
    except BaseException as error:  # the process must never continue as a second server
        if not isinstance(error, RunFailed | OSError | MemoryError):
            traceback.print_exc()
        message = text_of(error) if isinstance(error, RunFailed) else describe_error(error, None)
        os.write(why, message.encode(errors="replace"))
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)  # some threads of ranks never end


def _run(folder: Path, why: int) -> int:
    request = read_request(folder)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    os.environ.update(UNCOMPILED)
    if request.confinement is not None:
        request.confinement.enter(str(folder))
    virtual_run = VirtualRun(request.options)
    signal.signal(TELL, lambda *_: os.write(why, virtual_run.world.say_where().encode(errors="replace")))
    finished = virtual_run.run()
    try:
        finished.write(folder)
    except OSError as error:
        findings = [finding.text for finding in finished.outcome.findings]
        if not findings:
            raise
        raise RunFailed("\n".join([*findings, f"afterwards: {describe_error(error, None)}"])) from error
    return finished.outcome.status
