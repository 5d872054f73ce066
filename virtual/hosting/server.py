"""The server process, which imports torch once and forks a process for each run that the host requests."""

import os
import pickle
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

REQUEST = "request.pickle"  # options of the run, working directory, environment variables
NUMBER = 8  # bytes of a message to the host: the process of a run, later its exit status
REFUSED, CRASHED = 2, 97  # exit statuses of a rejected run, and of an internal error
TELL = signal.SIGUSR1  # asks a run for its current line
PIPES = ("stdout", "stderr", "why")  # run to host; the last carries the reason for these statuses
UNCOMPILED = {"TORCH_COMPILE_DISABLE": "1"}  # torch's compiler would trace into the ranks' process groups
MOST_PATH = 4096  # bytes of a request, which is the path of a folder


def serve(control: socket.socket, preloaded: Sequence[str]) -> None:
    """Import the ``preloaded`` modules, then run one program after the other until the host closes ``control``."""
    for name in ("virtual.running", *preloaded):
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
        control.sendall(process.to_bytes(NUMBER, "little"))
        status = _wait(process, control)
        if status is None:
            return
        control.sendall(status.to_bytes(NUMBER, "little", signed=True))


def _wait(process: int, control: socket.socket) -> int | None:
    """Return the exit status of a run. If the host closes ``control`` first, kill the run and return None."""
    handle = os.pidfd_open(process)
    watched: list[Any] = [handle, control]
    ready, _, _ = select.select(watched, [], [])
    with suppress(ProcessLookupError):  # the process is not a group yet
        os.killpg(process, signal.SIGKILL)  # including processes that it started
    os.close(handle)
    _, status = os.waitpid(process, 0)
    return None if control in ready else os.waitstatus_to_exitcode(status)


def run_request(folder: Path, pipes: Sequence[int]) -> None:
    """Run the request saved in ``folder``, write the result to the same folder, and end this process."""
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
    from virtual.running import VirtualRun  # imports torch, which the host does not need

    options, working_directory, environment = pickle.loads((folder / REQUEST).read_bytes())
    os.chdir(working_directory)
    os.environ.clear()
    os.environ.update(environment | UNCOMPILED)
    virtual_run = VirtualRun(options)
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
