"""Run users' files in worker processes, and kill workers that exceed their limits.

A server process forks the workers. It is started for the first file. The limits protect against accidents, and are not
a security sandbox.
"""

import atexit
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from io import FileIO
from pathlib import Path
from select import select
from tempfile import TemporaryFile
from typing import Any, NamedTuple
from weakref import finalize

import psutil

from collectives.errors import InputError, ProgramEnded
from collectives.programs.limits import MOST_ELAPSED, MOST_PROCESSES, ProgramLimits, read_limits
from collectives.programs.worker import (
    CLOSED,
    LOCATION,
    RUNG,
    Answer,
    end_processes,
    find_descendants,
    is_alive,
    write_whole,
)
from collectives.quoting import MOST_QUOTED, make_printable, name_signal

READY_S = 120.0  # to import Ringlab's modules before the user's file
SERVER_S = 60.0  # until the server answers; it imports numpy first
DUMP_WAIT_S = 3.0  # until the interpreter has written its traceback
CHECK_EVERY_S = 0.05  # interval of checks of a worker and its processes
WARN_AFTER_S = 2.0  # until the warning that a program is slow
MOST_ANSWER = 1 << 30  # bytes
MOST_PRINTED, MOST_OUTPUT = 20, 4096  # logged lines of a file; bytes of output per answer
START = (
    "import sys, json, socket; sys.path[:] = json.loads(sys.argv[1]); from collectives.programs.worker import serve;"
    "serve(socket.socket(fileno=int(sys.argv[2])))"
)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
TRACED = re.compile(rb'  File "([^\n]*)", line (\d+)')

log = logging.getLogger("ringlab")


class ServerLostError(Exception):
    """The server process that forks the workers has exited. A user's program can cause this."""


class ProgramFile:
    """A user's file and the worker process that executes it, with a time limit per request and a memory limit."""

    def __init__(self, path: Path, modules: tuple[str, ...] = ()) -> None:
        """Store the arguments. The worker imports ``modules`` of Ringlab first, before its memory is limited."""
        self.path, self.modules, self._printed, self._worker = path, modules, 0, list["WorkerProcess"]()
        finalize(self, _forget, self._worker)

    def __reduce__(self) -> tuple[Any, ...]:
        return ProgramFile, (self.path, self.modules)

    def ask(self, question: dict[str, Any]) -> Answer:
        """Send a request to the worker and return its reply. The caller must not trust the content of the reply.

        Raise ProgramEnded if the worker or its server exits or exceeds a limit before it replies. Raise InputError if a
        limit in the environment is invalid, or if the file no longer declares the algorithm.
        """
        limits = read_limits()
        with _lock:
            server = _server()
            try:
                if not self._worker or not server.keeps(self._worker[0]):
                    self._worker[:] = [WorkerProcess(server, self.path)]
                    self._exchange(_start(self.path, self.modules, limits), limits, READY_S)
                    self._worker[0].memory_before = measure([self._worker[0].process]).memory
                    if question["do"] not in ("load", "call"):  # a new worker has no algorithms
                        self._exchange({"do": "load"}, limits, limits.seconds)
                answer = self._exchange(question, limits, limits.seconds)
            except ServerLostError as error:
                server.close()
                raise ProgramEnded("it ended the process that enforces its limits", None) from error
            except ProgramEnded:
                raise
            except BaseException:  # an interrupt in the middle of an answer
                server.close()
                raise
        if "gone" in answer[0]:
            raise InputError(f"{self.path}: no longer declares {question['name']}; load the file again")
        return answer

    def _exchange(self, question: dict[str, Any], limits: ProgramLimits, seconds: float) -> Answer:
        worker = self._worker[0]
        at = f", world size {question['world_size']}" if "world_size" in question else ""
        worker.ask(question)
        why = worker.wait(limits.memory, seconds, "" if question["do"] == "start" else f"{self.path}{at}")
        answer = worker.read_answer() if not why else None
        if answer is None:
            error = worker.describe_end(why or "answer", limits)
            worker.end()
            self._show(worker.printed)
            raise error
        worker.pause()
        self._show(worker.printed)
        return answer

    def unreadable(self, error: Exception) -> InputError:
        return InputError(
            f"{self.path}: the process that runs this file sent an invalid reply ({error}); the file must not write to "
            "file descriptors that it did not open"
        )

    def _show(self, printed: bytes) -> None:
        for line in printed.decode(errors="replace").splitlines():
            if self._printed < MOST_PRINTED:
                log.warning("%s prints: %s", self.path.name, make_printable(line, most=MOST_QUOTED))
            elif self._printed == MOST_PRINTED:
                log.warning("%s prints more lines, which are not shown", self.path.name)
            self._printed += 1


def _start(path: Path, modules: tuple[str, ...], limits: ProgramLimits) -> dict[str, Any]:
    try:
        folder = str(Path.cwd())
    except OSError:  # the directory was removed
        folder = "/"
    return {
        "do": "start", "file": str(path), "folder": folder, "path": sys.path, "modules": modules,
        "environment": dict(os.environ | ONE_THREAD), "memory": limits.memory,
    }  # fmt: skip


class Usage(NamedTuple):
    """The total resources that several processes use."""

    seconds: float  # CPU time, including children that have exited
    memory: int  # bytes, without memory that is shared with files
    is_awake: bool  # whether a process runs or waits for a core


def measure(processes: list[psutil.Process]) -> Usage:
    """Return the total resources that the processes use. Processes that have exited are ignored."""
    seconds, nbytes, is_awake = 0.0, 0, False
    for process in processes:
        with suppress(psutil.Error), process.oneshot():
            memory = process.memory_info()
            seconds += sum(process.cpu_times()[:4])
            nbytes += memory.rss - getattr(memory, "shared", 0)
            is_awake |= process.status() == psutil.STATUS_RUNNING
    return Usage(seconds, nbytes, is_awake)


class WorkerProcess:
    """The connection to a worker process."""

    def __init__(self, server: "Server", path: Path) -> None:
        self.server, self.path, self.printed, self.memory_before = server, path, b"", 0
        self._has_started_others = False
        self._bell, bell = socket.socketpair()
        reading, output = os.pipe()
        self._output = FileIO(reading)
        self._talk, self._notes = TemporaryFile(buffering=0), TemporaryFile(buffering=0)  # noqa: SIM115
        self._notes.write(bytes(LOCATION.size))
        with bell:
            files = [self._talk.fileno(), bell.fileno(), output, self._notes.fileno()]
            self.process = psutil.Process(server.request(b"fork", files))
        os.close(output)
        server.workers[self.process.pid] = self

    def ask(self, question: dict[str, Any]) -> None:
        self.printed = b""
        _signal(self.process, signal.SIGCONT)
        write_whole(self._talk.fileno(), json.dumps(question).encode())
        with suppress(OSError):  # the worker has ended; ``wait`` reports this
            self._bell.send(b"?")

    def wait(self, memory: int, seconds: float, subject: str) -> str:
        """Wait for the worker's reply. Return "" if it arrives, or a word for the problem, such as "memory".

        ``memory`` is the maximum number of additional bytes that the worker and the processes that it started may use.
        ``seconds`` is the maximum of their CPU time and sleep. Time in which they wait for a core does not count. A
        warning about a slow program names ``subject``.
        """
        begun = noted = time.monotonic()
        before, spent = measure([self.process]), 0.0
        watched: list[Any] = [self._bell, self._output]
        while True:
            ready, _, _ = select(watched, [], [], CHECK_EVERY_S)
            if self._output in ready and not self._read_output():
                watched.remove(self._output)
            rung = self._bell.recv(100) if self._bell in ready else None
            if rung not in (RUNG, b"", None):
                return "answer"
            if rung == b"" and not self._ends_soon():
                return "closed"
            processes = [self.process, *find_descendants(self.server.process.pid, self.server.workers)]
            self._has_started_others = len(processes) > 1
            if len(processes) > MOST_PROCESSES + 1:
                return "processes"
            if rung:
                return ""
            if self.status() is not None:
                return "end"
            now, usage = time.monotonic(), measure(processes)
            if self.memory_before and usage.memory > memory + self.memory_before:
                return "memory"
            taken = max(usage.seconds - before.seconds, 0.0)
            spent += taken if usage.is_awake else max(taken, now - noted)
            if spent > seconds or now - begun > MOST_ELAPSED * seconds:
                return "time"
            if subject and now - begun > WARN_AFTER_S:
                log.warning("%s is still running; the limit is %g s of CPU time and sleep", subject, seconds)
                subject = ""
            before, noted = usage, now

    def status(self) -> int | None:
        """Return the worker's exit status as returned by ``os.waitpid``, or None while the worker runs."""
        return self.server.status(self.process.pid)

    def _ends_soon(self) -> bool:
        for _ in range(20):
            if self.status() is not None:
                return True
            time.sleep(0.01)
        return False

    def _read_output(self) -> bool:
        """Read the program's output and store its first bytes. Return False at the end of the output."""
        chunk = os.read(self._output.fileno(), 1 << 16)
        self.printed += chunk[: MOST_OUTPUT - len(self.printed)]
        return bool(chunk)

    def read_answer(self) -> Answer | None:
        """Return the header and the body of the worker's reply, or None if the reply is invalid."""
        size = os.fstat(self._talk.fileno()).st_size
        header, _, body = os.pread(self._talk.fileno(), min(size, MOST_ANSWER), 0).partition(b"\n")
        try:
            answer = json.loads(header)
        except (ValueError, RecursionError):
            return None
        return (answer, body) if isinstance(answer, dict) else None

    def pause(self) -> None:
        """Suspend the worker until the next request, and kill all processes that it has started."""
        _signal(self.process, signal.SIGSTOP)
        if self._has_started_others:
            self.server.end_strays()

    def describe_end(self, why: str, limits: ProgramLimits) -> ProgramEnded:
        """Return the error to raise for a worker that did not reply, with the line that its program had reached.

        A worker that still runs is aborted, so that the interpreter writes a traceback.
        """
        status = self.status()
        if status is None:
            with suppress(OSError):  # all at once, because they can fork faster than single kills
                os.killpg(self.process.pid, signal.SIGSTOP)
            _signal(self.process, signal.SIGABRT)
            _signal(self.process, signal.SIGCONT)
            self.server.end_strays()
            until = time.monotonic() + DUMP_WAIT_S
            while self.status() is None and time.monotonic() < until:
                time.sleep(0.01)
        elif select([self._output], [], [], 0)[0]:
            self._read_output()
        code = os.waitstatus_to_exitcode(status or 0)
        if why == "end":
            why = "closed" if code == CLOSED else "signal" if code < 0 else "status"
        is_at_rank, rank, channel, step, line = LOCATION.unpack(os.pread(self._notes.fileno(), LOCATION.size, 0))
        texts = {
            "time": f"it takes longer than {limits.describe_seconds()} and was ended",
            "memory": f"it uses more than {limits.describe_memory()} and was ended",
            "processes": f"it has more than {MOST_PROCESSES} processes running and was ended with all of them",
            "status": f"it exits with status {code}, for example by os._exit, before it replies",
            "signal": f"it crashes the interpreter, which was ended by {name_signal(-code)}",
            "closed": "it closed a file that Ringlab uses to communicate with it",
            "answer": "it wrote to a file that Ringlab uses to communicate with it",
        }
        line = self._traced_line() or (0 if why == "status" else line)
        text = texts[why] + (f" (line {line} of {self.path.name})" if line else "")
        return ProgramEnded(text, (rank, channel, step) if is_at_rank == 1 else None, why == "time")

    def _traced_line(self) -> int:
        for name, line in TRACED.findall(os.pread(self._notes.fileno(), 1 << 16, LOCATION.size)):
            if os.fsdecode(name) == str(self.path):
                return int(line)
        return 0

    def end(self) -> None:
        self.server.workers.pop(self.process.pid, None)
        self.server.end_strays()
        self.close()

    def close(self) -> None:
        for connection in (self._bell, self._output, self._talk, self._notes):
            connection.close()


class Server:
    """The process that forks the workers. It runs no user code, and kills all workers when it exits."""

    def __init__(self) -> None:
        self.owner, self.workers = os.getpid(), dict[int, WorkerProcess]()
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(SERVER_S)
        path = [str(Path(__file__).resolve().parents[2]), *sys.path]
        nothing = subprocess.DEVNULL
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, json.dumps(path), str(theirs.fileno())],
                stdin=nothing, stdout=nothing, stderr=nothing, pass_fds=[theirs.fileno()], cwd="/",
                env=os.environ | ONE_THREAD, start_new_session=True,
            )  # fmt: skip

    def keeps(self, worker: WorkerProcess) -> bool:
        return self.workers.get(worker.process.pid) is worker

    def request(self, text: bytes, files: list[int] = []) -> int:  # noqa: B006 - only read
        """Send a message and open files to the server, and return its reply. Raise ServerLostError if it has exited."""
        try:
            self.process.send_signal(signal.SIGCONT)  # a program can stop the server
            socket.send_fds(self._socket, [text], files)
            return int(self._socket.recv(100))
        except (OSError, ValueError) as error:
            raise ServerLostError from error

    def status(self, process: int) -> int | None:
        status = self.request(b"%d" % process)
        return None if status < 0 else status

    def end_strays(self) -> None:
        end_processes(lambda: find_descendants(self.process.pid, self.workers))

    def close(self) -> None:
        if self.owner != os.getpid():
            return
        workers = [worker.process for worker in self.workers.values()]

        def find() -> list[psutil.Process]:
            roots = [self.process.pid, *self.workers]
            return [*filter(is_alive, workers), *(child for root in roots for child in find_descendants(root))]

        for process in self.workers:  # they are no longer its descendants if a program has ended the server
            with suppress(OSError):
                os.killpg(process, signal.SIGKILL)
        end_processes(find)
        self.process.kill()
        self.process.wait()
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()
        self._socket.close()


class _Only:
    server: Server | None = None


_lock = threading.RLock()  # one question at a time


def _server() -> Server:
    """Return the server that this process has started. Start one if there is none or it has exited."""
    server = _Only.server
    if server is None or server.owner != os.getpid() or server.process.poll() is not None:
        if server is not None:
            server.close()
        _Only.server = server = Server()
        atexit.register(server.close)
    return server


def _forget(workers: list[WorkerProcess]) -> None:
    for worker in workers:
        if worker.server.owner == os.getpid() and worker.server.workers.pop(worker.process.pid, False):
            _signal(worker.process, signal.SIGKILL)
            worker.close()


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.Error):
        process.send_signal(number)
