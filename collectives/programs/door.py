"""The one door to other people's programs: their files are executed in guests, which a keeper starts and ends.

One keeper serves a process for as long as it lives; it starts with the first file. See ``collectives.programs.keeper``.
"""

import atexit
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from select import select
from typing import Any
from uuid import uuid4
from weakref import finalize

from collectives.errors import InputError
from collectives.programs import frames
from collectives.programs.limits import MOST_ELAPSED, MOST_PROCESSES, Limits, read_limits
from collectives.quoting import make_printable

READY_S = 120.0  # at most for modules of ours to be imported, before the user's file
GRACE_S = 15.0  # that the keeper may need on top of a limit of time, to end processes
END_WAIT_S = 2.0  # for a keeper to end by itself; a program may have stopped it
END_LOOK_S = 0.005  # between looks at processes that are being ended
ENDED = (b"", b"Z", b"X")  # states of a process: it is gone, or only waits to be collected
SAY_AFTER_S = 2.0  # that something takes long
MOST_PRINTED = 20  # lines of a file that are passed on
START = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from collectives.programs.keeper import main; main()"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

MARK = "RINGLAB_KEEPER"  # in the environment of a keeper and of all that it starts

log = logging.getLogger("ringlab")
_numbers = count()


class ProgramEnded(InputError):  # noqa: N818 - what happened
    """A user's file that was ended, or ended itself, instead of answering; ``at`` is the rank, channel and step."""

    def __init__(self, message: str, at: tuple[int, int, int] | None, is_timeout: bool = False) -> None:
        super().__init__(message)
        self.at, self.is_timeout = at, is_timeout


class ProgramFile:
    """A user's file, in a guest that has loaded it. Every question to it has a limit of time, and it one of memory."""

    def __init__(self, path: Path, modules: tuple[str, ...] = ()) -> None:
        """Take the modules of ours that the guest is to import first; it is then to be asked whether it is ready."""
        self.path, self._number, self._printed, self._modules = path, next(_numbers), 0, modules
        self._process = os.getpid()
        finalize(self, _forget, self._number, self._process)

    def __reduce__(self) -> tuple[Any, ...]:
        return ProgramFile, (self.path, self._modules)

    def ask(self, question: dict[str, Any]) -> frames.Frame:
        """Return the guest's answer, which may be anything at all. Raise ProgramEnded, and InputError for limits."""
        limits, door = read_limits(), _door()
        is_ready = question["do"] == "ready"
        seconds = READY_S if is_ready else limits.seconds
        command = {
            "do": "ask", "guest": self._number, "is_first": question["do"] in ("load", "ready"), "file": str(self.path),
            "folder": _current_folder(), "path": sys.path, "seconds": seconds, "memory": limits.memory,
            "modules": self._modules,
            "environment": dict(os.environ) | ONE_THREAD | {MARK: door.mark},
        }  # fmt: skip
        at = f", world size {question['world_size']}" if "world_size" in question else ""
        header, body = door.ask(command, frames.pack(question), "" if is_ready else f"{self.path}{at}", seconds)
        self._show(str(header.get("printed", "")))
        if "ended" in header:
            at_rank = header["at"] and tuple(header["at"])
            raise ProgramEnded(_describe_end(header, self.path, limits), at_rank, header["ended"] == "time")
        try:
            answer = frames.unpack(body)
        except frames.BadFrame as error:
            raise self.unreadable(error) from error
        if "gone" in answer[0]:
            raise InputError(f"{self.path}: {question['name']} is no longer there")
        return answer

    def unreadable(self, error: Exception) -> InputError:
        """Return the error for an answer that no guest gives by itself."""
        return InputError(
            f"{self.path}: what its process answered cannot be read ({error}); does it write to files that it has not "
            "opened?"
        )

    def _show(self, printed: str) -> None:
        """Pass on to standard error what a program has printed, the first lines of it and nothing that moves there."""
        for line in printed.splitlines():
            if self._printed < MOST_PRINTED:
                log.warning("%s prints: %s", self.path.name, make_printable(line, most=200))
            elif self._printed == MOST_PRINTED:
                log.warning("%s prints more, which is not shown", self.path.name)
            self._printed += 1


class Door:
    """The keeper of this process and the connection to it."""

    def __init__(self) -> None:
        self.process, self._lock, self.mark = os.getpid(), threading.Lock(), uuid4().hex
        path = [str(Path(frames.__file__).resolve().parents[2]), *sys.path]
        self._keeper = subprocess.Popen(
            [sys.executable, "-P", "-c", START, json.dumps(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", env=os.environ | ONE_THREAD | {MARK: self.mark},
            start_new_session=True,
        )  # fmt: skip
        assert self._keeper.stdin is not None and self._keeper.stdout is not None
        self._commands, self._answers = self._keeper.stdin.fileno(), self._keeper.stdout.fileno()
        self.is_open = True

    def ask(self, command: dict[str, Any], question: bytes, what: str, seconds: float) -> frames.Frame:
        """Return the keeper's answer. Raise ProgramEnded if it has been ended."""
        with self._lock:
            try:
                frames.write_all(self._commands, frames.pack(command, question))
                self._await(what, seconds)
                found = frames.read_frame(self._answers)
            except (OSError, frames.BadFrame):
                found = None
            except BaseException:  # an interrupt: what is half said cannot be gone on with
                self.close()
                raise
            if found is None:
                self.close()
                raise ProgramEnded("it has ended or stopped the process that keeps it within its limits", None)
            return found

    def _await(self, what: str, seconds: float) -> None:
        """Wait for the beginning of an answer; say if that takes long. Raise OSError if it never comes."""
        until, said = time.monotonic() + MOST_ELAPSED * seconds + GRACE_S, False
        while not select([self._answers], [], [], SAY_AFTER_S)[0]:
            if what and not said:
                log.warning("%s is still running; it is ended after %g s of its own, without waiting", what, seconds)
                said = True
            if time.monotonic() > until or _is_stopped(self._keeper.pid):
                raise TimeoutError

    def forget(self, number: int) -> None:
        """End a guest that is no longer needed, unless an answer is being waited for: it then ends with the keeper."""
        if self.is_open and self._lock.acquire(blocking=False):
            try:
                with suppress(OSError):
                    frames.write_all(self._commands, frames.pack({"do": "forget", "guest": number}))
            finally:
                self._lock.release()

    def close(self) -> None:
        """End the keeper and all guests."""
        if not self.is_open or self.process != os.getpid():
            return
        self.is_open = False
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            self._keeper.wait(0 if _is_stopped(self._keeper.pid) else END_WAIT_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
        if self._keeper.wait():
            self._end_orphans()

    def end_at_once(self) -> None:
        """End the keeper and all guests without waiting for anything, in a process that is about to end itself."""
        if self.is_open and self.process == os.getpid():
            self._keeper.kill()
            self._end_orphans()

    def _end_orphans(self) -> None:
        """End what a keeper has left behind that was itself ended, by a program: all that carry its mark.

        A process that is being ended loses its memory first, and its mark with it, and its folder and files later.
        """
        until, ending = time.monotonic() + GRACE_S, set[int]()
        while time.monotonic() < until:
            orphans = [*_marked(f"{MARK}={self.mark}".encode())]
            for process in orphans:
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            ending = {process for process in {*ending, *orphans} if _state_of(process) not in ENDED}
            if not ending:
                return
            time.sleep(END_LOOK_S)


def _is_stopped(process: int) -> bool:
    """Return whether a signal has stopped a process."""
    return _state_of(process) == b"T"


def _state_of(process: int) -> bytes:
    """Return the letter of the kernel for what a process does; nothing of one that is gone."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0]
    return b""


def _marked(mark: bytes) -> Iterator[int]:
    """Yield the processes that were started with this entry in their environment."""
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in entry.read_bytes().split(b"\0"):
                yield int(entry.parent.name)


_open: Door | None = None
_opening = threading.Lock()


def _door() -> Door:
    """Return the door of this process; a process that was forked from another has one of its own."""
    global _open
    with _opening:
        if _open is None or not _open.is_open or _open.process != os.getpid():
            _open = Door()
            atexit.register(_open.close)
        return _open


def end_guests_at_once() -> None:
    """End every process that is there for a user's file, before this one ends without its usual tidying up."""
    if _open is not None:
        _open.end_at_once()


def _current_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it has been removed
        return "/"


def _forget(number: int, process: int) -> None:
    if _open is not None and process == os.getpid() == _open.process:
        _open.forget(number)


def _describe_end(header: dict[str, Any], path: Path, limits: Limits) -> str:
    """Return what became of a guest that did not answer, with the line where it was."""
    number = int(header["number"])
    what = {
        "time": f"it takes longer than {limits.describe_seconds()} and was ended",
        "memory": f"it takes more than {limits.describe_memory()} and was ended",
        "processes": f"it has more than {MOST_PROCESSES} processes running and was ended with all of them",
        "status": f"it ends its process with status {number}, as os._exit does, before it has answered",
        "signal": f"it crashes the interpreter, which was ended by {_signal_name(-number)}",
        "closed": "it has closed a file that is not its own, over which it answers",
        "answer": "it has written to a file that is not its own, over which it answers",
    }[str(header["ended"])]
    line = f" (line {int(header['line'])} of {path.name})" if header.get("line") else ""
    return what + line


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
