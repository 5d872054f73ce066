"""The host process: starts the server, requests runs from it, and forwards their output."""

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
from types import TracebackType
from typing import Any, Self

from collectives.errors import InputError, RunFailed
from collectives.quoting import describe_exit
from virtual.hosting.server import CRASHED, ENDED, PIPES, REFUSED, REQUEST, STARTED, TELL, UNCOMPILED
from virtual.options import VirtualOptions
from virtual.outcome import OUTCOME, Finished, read_finished

START = (
    "import sys, json, socket; sys.path[:] = json.loads(sys.argv[1]); from virtual.hosting.server import serve;"
    "serve(socket.socket(fileno=int(sys.argv[2])), json.loads(sys.argv[3]))"
)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
MORE_TIME = "; pass a longer --timeout"
TELL_S = 1.0  # for a run to report its current line
PIECE = 1 << 16  # bytes of output that are read at once

Show = Callable[[str, str], object]


def show_on_own(stream: str, text: str) -> None:
    """Write a program's output to the same stream of this process."""
    file = sys.stdout if stream == "stdout" else sys.stderr
    file.write(text)
    file.flush()


class VirtualHost:
    """A context in which programs run on virtual ranks, each in its own process.

    ``preloaded`` modules are imported once, before the first run.
    """

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server and any run in progress."""
        self._control.close()
        try:
            self._server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def run(self, options: VirtualOptions, *, timeout: float = 600.0, show: Show = show_on_own) -> Finished:
        """Run a program and return its result. ``show(stream, text)`` receives its output.

        Raises InputError if the program is rejected. Raises RunFailed if the run takes longer than ``timeout`` seconds,
        or if its process crashes or exits without a result.
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
            except ServerLostError as error:
                how = describe_exit(self._server.wait())
                raise RunFailed(f"the server that runs programs on virtual ranks {how}; run again") from error
            if status == REFUSED and run.why:
                raise InputError(run.why)
            if status is None:
                where = f"; {run.why}" if run.why else ""
                raise RunFailed(f"{options.program.title} did not end in {timeout:g} s{where}{MORE_TIME}")
            if status not in (0, 1):
                how = f"failed with {run.why}" if status == CRASHED and run.why else describe_exit(status)
                raise RunFailed(f"the process of {options.program.title} {how}")
            if not (folder / OUTCOME).exists():
                raise RunFailed(f"{options.program.title} ended its process with status {status}, as os._exit does")
            return read_finished(folder)


class ServerLostError(Exception):
    """Raised if the server exits during a run."""


class _HostedRun:
    """Follows one run from the request to its exit. ``why`` explains why Ringlab rejected or stopped the run."""

    def __init__(self, control: socket.socket, folder: Path, deadline: float, show: Show) -> None:
        self._control, self._deadline, self._show = control, deadline, show
        self._process: int | None = None
        self.why = ""
        pipes = [os.pipe() for _ in PIPES]
        self._streams = {read: name for (read, _), name in zip(pipes, PIPES, strict=True)}
        self._rest = dict.fromkeys(self._streams, b"")
        socket.send_fds(control, [os.fsencode(folder)], [write for _, write in pipes])
        for _, write in pipes:
            os.close(write)

    def wait(self) -> int | None:
        """Return the exit status, or None if the run exceeded its timeout."""
        status: int | None = None
        ended = is_late = False
        try:
            while self._streams or not ended:
                left = self._deadline - time.monotonic()
                if left <= 0 and not is_late:
                    is_late = True
                    self._ask_where()
                    self._kill()
                waited_for: list[Any] = [*self._streams, *([] if ended else [self._control])]
                ready, _, _ = select.select(waited_for, [], [], max(0.0, left) if not is_late else 10.0)
                if is_late and not ready:
                    break
                for file in ready:
                    if file is self._control:
                        ended, status = self._hear()
                    else:
                        self._pass_on(file)
        finally:
            if not ended:
                self._kill()
            for file in self._streams:
                os.close(file)
        return None if is_late else status

    def _hear(self) -> tuple[bool, int | None]:
        message = self._control.recv(PIECE)
        if not message:
            raise ServerLostError
        ended, status = False, None
        for line in message.decode().splitlines():
            word, _, number = line.partition(" ")
            if word == STARTED:
                self._process = int(number)
            elif word == ENDED:
                ended, status = True, int(number)
        return ended, status

    def _pass_on(self, file: int) -> None:
        piece = os.read(file, PIECE)
        if not piece:
            os.close(file)
            name = self._streams.pop(file)
            rest = self._rest[file].decode(errors="replace")
            if name == PIPES[-1]:
                self.why = rest
            elif rest:
                self._show(name, rest)
            return
        if self._streams[file] == PIPES[-1]:
            self._rest[file] += piece
            return
        lines, _, self._rest[file] = (self._rest[file] + piece).rpartition(b"\n")
        if lines:
            self._show(self._streams[file], lines.decode(errors="replace") + "\n")

    def _ask_where(self) -> None:
        why = next((file for file, name in self._streams.items() if name == PIPES[-1]), None)
        if self._process is None or why is None:
            return
        with suppress(ProcessLookupError):
            os.kill(self._process, TELL)
        if select.select([why], [], [], TELL_S)[0]:
            self._pass_on(why)

    def _kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process, signal.SIGKILL)
