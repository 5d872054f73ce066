"""Run user files, each in a guest: a process that is ended when it exceeds its limits.

Guests are forked from a server that this process starts with the first file. The limits stop accidents; this is not a
sandbox against attacks.
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
from collectives.programs.guest import (
    CLOSED,
    LOCATION,
    RUNG,
    Answer,
    end_processes,
    find_descendants,
    is_alive,
    write_whole,
)
from collectives.programs.limits import MOST_ELAPSED, MOST_PROCESSES, ProgramLimits, read_limits
from collectives.quoting import MOST_QUOTED, make_printable, name_signal

READY_S = 120.0  # at most for modules of ours to be imported, before the user's file
SERVER_S = 60.0  # at most for the server to answer, which imports numpy first, on a busy machine
DUMP_WAIT_S = 3.0  # at most for the interpreter to say in which line it is, on a busy machine
LOOK_EVERY_S = 0.05  # at a guest and the processes that it has started
SAY_AFTER_S = 2.0  # that something takes long
MOST_PRINTED, MOST_OUTPUT = 20, 4096  # lines of a file that are passed on, and bytes of an answer's
START = (
    "import sys, json, socket; sys.path[:] = json.loads(sys.argv[1]); from collectives.programs.guest import serve;"
    "serve(socket.socket(fileno=int(sys.argv[2])))"
)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
TRACED = re.compile(rb'  File "([^\n]*)", line (\d+)')

log = logging.getLogger("ringlab")


class ServerLostError(Exception):
    """The server of guests has ended, as a program may have made it do."""


class ProgramFile:
    """A user's file, in a guest that has loaded it. Every question to it has a limit of time, and it one of memory."""

    def __init__(self, path: Path, modules: tuple[str, ...] = ()) -> None:
        """Store the file, and Ringlab's modules that the guest imports before it; they count for no limit."""
        self.path, self.modules, self._printed, self._guest = path, modules, 0, list["GuestProcess"]()
        finalize(self, _forget, self._guest)

    def __reduce__(self) -> tuple[Any, ...]:
        return ProgramFile, (self.path, self.modules)

    def ask(self, question: dict[str, Any]) -> Answer:
        """Return the guest's answer, which may be anything at all. Raise ProgramEnded, and InputError for limits."""
        limits = read_limits()
        with _lock:
            server = _server()
            try:
                if not self._guest or not server.keeps(self._guest[0]):
                    self._guest[:] = [GuestProcess(server, self.path)]
                    self._exchange(_start(self.path, self.modules, limits), limits, READY_S)
                    self._guest[0].memory_before = measure([self._guest[0].process]).memory
                    if question["do"] not in ("load", "call"):  # the process that had loaded the file has ended
                        self._exchange({"do": "load"}, limits, limits.seconds)
                answer = self._exchange(question, limits, limits.seconds)
            except ServerLostError as error:
                server.close()
                raise ProgramEnded("it has ended the process that keeps it within its limits", None) from error
            except ProgramEnded:
                raise
            except BaseException:  # an interrupt: what is half said cannot be gone on with
                server.close()
                raise
        if "gone" in answer[0]:
            raise InputError(f"{self.path}: {question['name']} is no longer there")
        return answer

    def _exchange(self, question: dict[str, Any], limits: ProgramLimits, seconds: float) -> Answer:
        guest = self._guest[0]
        at = f", world size {question['world_size']}" if "world_size" in question else ""
        guest.ask(question)
        why = guest.wait(limits.memory, seconds, "" if question["do"] == "start" else f"{self.path}{at}")
        answer = guest.read_answer() if not why else None
        if answer is None:
            error = guest.describe_end(why or "answer", limits)
            guest.end()
            self._show(guest.printed)
            raise error
        guest.pause()
        self._show(guest.printed)
        return answer

    def unreadable(self, error: Exception) -> InputError:
        """Return the error for an answer that no guest gives by itself."""
        return InputError(
            f"{self.path}: what its process answered cannot be read ({error}); does it write to files that it has not "
            "opened?"
        )

    def _show(self, printed: bytes) -> None:
        """Log the first lines that a program has printed, made printable."""
        for line in printed.decode(errors="replace").splitlines():
            if self._printed < MOST_PRINTED:
                log.warning("%s prints: %s", self.path.name, make_printable(line, most=MOST_QUOTED))
            elif self._printed == MOST_PRINTED:
                log.warning("%s prints more, which is not shown", self.path.name)
            self._printed += 1


def _start(path: Path, modules: tuple[str, ...], limits: ProgramLimits) -> dict[str, Any]:
    """Return the first question to a guest."""
    try:
        folder = str(Path.cwd())
    except OSError:  # it has been removed
        folder = "/"
    return {
        "do": "start", "file": str(path), "folder": folder, "path": sys.path, "modules": modules,
        "environment": dict(os.environ | ONE_THREAD), "memory": limits.memory,
    }  # fmt: skip


class Usage(NamedTuple):
    """Time and memory of some processes."""

    seconds: float  # of processors, with those of their children that have ended
    memory: int  # bytes that they share with no file
    is_awake: bool  # whether one computes, or waits for a processor


def measure(processes: list[psutil.Process]) -> Usage:
    """Return the time and memory of these processes so far, without those that have exited."""
    seconds, nbytes, is_awake = 0.0, 0, False
    for process in processes:
        with suppress(psutil.Error), process.oneshot():
            memory = process.memory_info()
            seconds += sum(process.cpu_times()[:4])
            nbytes += memory.rss - getattr(memory, "shared", 0)
            is_awake |= process.status() == psutil.STATUS_RUNNING
    return Usage(seconds, nbytes, is_awake)


class GuestProcess:
    """The process of a file, from the owner's side."""

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
        server.guests[self.process.pid] = self

    def ask(self, question: dict[str, Any]) -> None:
        """Send a question."""
        self.printed = b""
        _signal(self.process, signal.SIGCONT)
        write_whole(self._talk.fileno(), json.dumps(question).encode())
        with suppress(OSError):  # it has ended, as will be seen
            self._bell.send(b"?")

    def wait(self, memory: int, seconds: float, what: str) -> str:
        """Wait for the answer. Return "answer", or the reason in one word why there is none. Log a note if ``what``
        takes long.

        Seconds are CPU time, or sleep: on a busy machine, waiting for a core would dominate the elapsed time.
        """
        begun = noted = time.monotonic()
        before, spent = measure([self.process]), 0.0
        watched: list[Any] = [self._bell, self._output]
        while True:
            ready, _, _ = select(watched, [], [], LOOK_EVERY_S)
            if self._output in ready and not self._read_output():
                watched.remove(self._output)
            rung = self._bell.recv(100) if self._bell in ready else None
            if rung not in (RUNG, b"", None):
                return "answer"
            if rung == b"" and not self._ends_soon():
                return "closed"
            processes = [self.process, *find_descendants(self.server.process.pid, self.server.guests)]
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
            if what and now - begun > SAY_AFTER_S:
                log.warning("%s is still running; it is ended after %g s of its own, without waiting", what, seconds)
                what = ""
            before, noted = usage, now

    def status(self) -> int | None:
        """Return how the guest has ended, as ``waitpid`` tells it; None while it has not."""
        return self.server.status(self.process.pid)

    def _ends_soon(self) -> bool:
        """Return whether a guest that has closed its connection ends, and does not go on without."""
        for _ in range(20):
            if self.status() is not None:
                return True
            time.sleep(0.01)
        return False

    def _read_output(self) -> bool:
        """Read the program's output and keep its beginning. Return False at its end."""
        chunk = os.read(self._output.fileno(), 1 << 16)
        self.printed += chunk[: MOST_OUTPUT - len(self.printed)]
        return bool(chunk)

    def read_answer(self) -> Answer | None:
        """Return the header and the bytes that the guest has written; None for an invalid answer."""
        size = os.fstat(self._talk.fileno()).st_size
        # no answer has a gigabyte
        header, _, body = os.pread(self._talk.fileno(), min(size, 1 << 30), 0).partition(b"\n")
        try:
            found = json.loads(header)
        except (ValueError, RecursionError):
            return None
        return (found, body) if isinstance(found, dict) else None

    def pause(self) -> None:
        """Stop the guest's threads until the next question, and end the processes that it started."""
        _signal(self.process, signal.SIGSTOP)
        if self._has_started_others:
            self.server.end_strays()

    def describe_end(self, why: str, limits: ProgramLimits) -> ProgramEnded:
        """Return the reason why a guest did not answer, with its line. A guest that still runs is aborted to find the
        line.
        """
        status = self.status()
        if status is None:
            with suppress(OSError):  # all at once: on a busy machine they fork faster than they are ended one by one
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
        said = {
            "time": f"it takes longer than {limits.describe_seconds()} and was ended",
            "memory": f"it takes more than {limits.describe_memory()} and was ended",
            "processes": f"it has more than {MOST_PROCESSES} processes running and was ended with all of them",
            "status": f"it ends its process with status {code}, as os._exit does, before it has answered",
            "signal": f"it crashes the interpreter, which was ended by {name_signal(-code)}",
            "closed": "it has closed a file that is not its own, over which it answers",
            "answer": "it has written to a file that is not its own, over which it answers",
        }[why]
        line = self._traced_line() or (0 if why == "status" else line)
        said += f" (line {line} of {self.path.name})" if line else ""
        return ProgramEnded(said, (rank, channel, step) if is_at_rank == 1 else None, why == "time")

    def _traced_line(self) -> int:
        """Return the innermost line of the file in which the process ended; 0 where it could not say so."""
        for name, line in TRACED.findall(os.pread(self._notes.fileno(), 1 << 16, LOCATION.size)):
            if os.fsdecode(name) == str(self.path):
                return int(line)
        return 0

    def end(self) -> None:
        """End the guest and the processes that it started, and close its connections."""
        self.server.guests.pop(self.process.pid, None)
        self.server.end_strays()
        self.close()

    def close(self) -> None:
        """Close the guest's connections."""
        for connection in (self._bell, self._output, self._talk, self._notes):
            connection.close()


class Server:
    """The process that guests are forked from. It executes nothing of a user's, and ends all guests when this ends."""

    def __init__(self) -> None:
        self.owner, self.guests = os.getpid(), dict[int, GuestProcess]()
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

    def keeps(self, guest: GuestProcess) -> bool:
        """Return whether this is a guest of this server that may still answer."""
        return self.guests.get(guest.process.pid) is guest

    def request(self, text: bytes, files: list[int] = []) -> int:  # noqa: B006 - it is only read
        """Return the server's answer. Raise ServerLostError if there is none."""
        try:
            self.process.send_signal(signal.SIGCONT)  # a program may have stopped it
            socket.send_fds(self._socket, [text], files)
            return int(self._socket.recv(100))
        except (OSError, ValueError) as error:
            raise ServerLostError from error

    def status(self, process: int) -> int | None:
        """Return how a guest has ended; None while it has not."""
        found = self.request(b"%d" % process)
        return None if found < 0 else found

    def end_strays(self) -> None:
        """End all processes that guests have started."""
        end_processes(lambda: find_descendants(self.process.pid, self.guests))

    def close(self) -> None:
        """End the server and all guests."""
        if self.owner != os.getpid():
            return
        guests = [guest.process for guest in self.guests.values()]

        def find() -> list[psutil.Process]:
            roots = [self.process.pid, *self.guests]
            return [*filter(is_alive, guests), *(one for root in roots for one in find_descendants(root))]

        for process in self.guests:  # those whose server a program has ended are no longer its descendants
            with suppress(OSError):
                os.killpg(process, signal.SIGKILL)
        end_processes(find)
        self.process.kill()
        self.process.wait()
        for guest in self.guests.values():
            guest.close()
        self.guests.clear()
        self._socket.close()


class _Only:
    server: Server | None = None


_lock = threading.RLock()  # one question at a time


def _server() -> Server:
    """Return the server of this process; a forked process gets a separate one."""
    server = _Only.server
    if server is None or server.owner != os.getpid() or server.process.poll() is not None:
        if server is not None:
            server.close()
        _Only.server = server = Server()
        atexit.register(server.close)
    return server


def _forget(guests: list[GuestProcess]) -> None:
    """End the guest of a file that is no longer needed."""
    for guest in guests:
        if guest.server.owner == os.getpid() and guest.server.guests.pop(guest.process.pid, False):
            _signal(guest.process, signal.SIGKILL)
            guest.close()


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.Error):
        process.send_signal(number)
