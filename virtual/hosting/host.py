"""Start the server process, request runs from it, and forward the output of the programs."""

import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Self

from collectives.errors import InputError, RunFailed
from collectives.quoting import describe_exit
from virtual.hosting.server import CRASHED, NUMBER, PIPES, REFUSED, REQUEST, TELL, UNCOMPILED
from virtual.options import VirtualOptions
from virtual.outcome import OUTCOME, Finished, read_finished

START = (
    "import sys, json, socket; sys.path[:] = json.loads(sys.argv[1]); from virtual.hosting.server import serve;"
    "serve(socket.socket(fileno=int(sys.argv[2])), json.loads(sys.argv[3]))"
)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
MORE_TIME = "; pass a longer --timeout"
TELL_S = 1.0  # for a run to report its current line
END_S = 10.0  # for a killed run to exit and its output to end
PIECE = 1 << 16  # most bytes of a reason

Show = Callable[[str, str], object]


def show_on_own(stream: str, text: str) -> None:
    file = sys.stdout if stream == "stdout" else sys.stderr
    file.write(text)
    file.flush()


class VirtualHost:
    """Runs programs on virtual ranks. Each program gets a new process that has already imported ``preloaded``."""

    def __init__(self, preloaded: Sequence[str] = ()) -> None:
        self._preloaded = list(preloaded)
        self._start()

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        call = [sys.executable, "-c", START, json.dumps(sys.path), str(theirs.fileno()), json.dumps(self._preloaded)]
        self._server = subprocess.Popen(
            call,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **ONE_THREAD, **UNCOMPILED},
            start_new_session=True,  # an interrupt of the terminal is answered here
        )
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()

    def close(self) -> None:
        self._control.close()
        try:
            self._server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def run(self, options: VirtualOptions, *, timeout: float = 600.0, show: Show = show_on_own) -> Finished:
        """Run a program and return its result. ``show(stream, text)`` is called with each piece of its output.

        Raise InputError if the program is rejected. Raise RunFailed if the run takes longer than ``timeout`` seconds,
        crashes, or exits without a result.
        """
        if select.select([self._control], [], [], 0)[0]:  # a program has ended the server
            self.close()
            self._start()
        with TemporaryDirectory(prefix="ringlab-virtual-") as name:
            folder = Path(name)
            (folder / REQUEST).write_bytes(pickle.dumps((options, str(Path.cwd()), dict(os.environ))))
            run = _HostedRun(self._control, folder, time.monotonic() + timeout, show)
            try:
                status = run.wait()
            except (EOFError, ConnectionResetError) as error:
                how = describe_exit(self._server.wait())
                raise RunFailed(f"the server that runs programs on virtual ranks {how}; run again") from error
            if status == REFUSED and run.why:
                raise InputError(run.why)
            if not run.has_ended:  # the server has not answered yet
                self.close()
                self._start()
            if status is None:
                reason = f"; {run.why}" if run.why else ""
                raise RunFailed(f"{options.program.title} did not end in {timeout:g} s{reason}{MORE_TIME}")
            if status not in (0, 1):
                outcome = f"failed with {run.why}" if status == CRASHED and run.why else describe_exit(status)
                raise RunFailed(f"the process of {options.program.title} {outcome}")
            if not (folder / OUTCOME).exists():
                raise RunFailed(f"{options.program.title} exited with status {status} through os._exit or similar")
            return read_finished(folder)


class _HostedRun:
    """Follows a run from its request to its exit. ``why`` is its error message or, on timeout, its current line."""

    def __init__(self, control: socket.socket, folder: Path, deadline: float, show: Show) -> None:
        self._control, self._deadline, self._show = control, deadline, show
        self._process: int | None = None
        self._errors: list[BaseException] = []  # raised by ``show``
        self.why, self.has_ended = "", True
        pipes = [os.pipe() for _ in PIPES]
        socket.send_fds(control, [os.fsencode(folder)], [write for _, write in pipes])
        for _, write in pipes:
            os.close(write)
        *outputs, self._why = (read for read, _ in pipes)
        self._readers = [
            Thread(target=self._pass_on, args=output, daemon=True) for output in zip(PIPES, outputs, strict=False)
        ]
        for reader in self._readers:
            reader.start()

    def wait(self) -> int | None:
        """Return the exit status, or None if the run exceeded its timeout. Raise EOFError if the server exits."""
        status, until = None, self._deadline
        try:
            self._process = self._hear(until)
            status = None if self._process is None else self._hear(until)
            if status is None:
                self._ask_where()
                until = time.monotonic() + END_S
                self._process = self._process or self._hear(until)
                self._kill()
                self.has_ended = self._hear(until) is not None
            for reader in self._readers:
                reader.join(max(0.0, until - time.monotonic()))
            if select.select([self._why], [], [], 0)[0]:
                self.why = os.read(self._why, PIECE).decode(errors="replace")
        finally:
            if status is None:
                self._kill()
            os.close(self._why)
        if self._errors:
            raise self._errors[0]
        return status

    def _hear(self, until: float) -> int | None:
        """Return the next number from the server: a process ID, then an exit status. Return None on timeout."""
        if not select.select([self._control], [], [], max(0.0, until - time.monotonic()))[0]:
            return None
        message = self._control.recv(NUMBER)
        if not message:
            raise EOFError
        return int.from_bytes(message, "little", signed=True)

    def _pass_on(self, stream: str, file: int) -> None:
        try:
            with os.fdopen(file, errors="replace", newline="\n") as lines:
                for line in lines:
                    self._show(stream, line)
        except BaseException as error:  # ``wait`` raises it
            self._errors.append(error)
            self._kill()

    def _ask_where(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process, TELL)
            select.select([self._why], [], [], TELL_S)

    def _kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process, signal.SIGKILL)
