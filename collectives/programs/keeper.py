"""The process that keeps guests: it starts them, limits and ends them, and whatever they have started.

It executes nothing of the user's. It hears of its owner's end by the end of its standard input, and then ends all.
"""

import ctypes
import mmap
import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Any

from collectives.programs import frames
from collectives.programs.guest import CLOSED, SITE, Connection, run_guest
from collectives.programs.limits import MOST_ELAPSED, MOST_PROCESSES

PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>: what our descendants leave behind becomes ours, not init's
LOOK_EVERY_S = 0.05  # at the processes that a guest has started
DUMP_WAIT_S = 3.0  # at most for the interpreter to say in which line it is, on a busy machine ...
DUMP_SHORT_S = 0.2  # ... or where what it does meanwhile is worse than not knowing
DUMP_LOOK_S = 0.02
MOST_OUTPUT = 4096  # bytes that a program has printed and that are passed on
GIVE_UP_S = 10.0  # after so long of ending processes that start others
CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children")
PAGE, TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
TRACED = re.compile(rb'  File "([^\n]*)", line (\d+)')


class Guest:
    """A guest, from the keeper's side."""

    def __init__(self, command: dict[str, Any]) -> None:
        self.path, self.memory = Path(command["file"]), int(command["memory"])
        self.most_memory = None if command["modules"] else self.memory  # none before the modules are there
        self.site = mmap.mmap(-1, SITE.size)
        self._dumps = os.memfd_create("dumps") if hasattr(os, "memfd_create") else _temporary_file()
        asks, self.asks = os.pipe()
        self.answers, answers = os.pipe()
        self.output, output = os.pipe()
        self.printed = bytearray()
        connection = Connection(asks, answers, output, self._dumps, self.site)
        self.process = os.fork()
        if self.process == 0:
            sys.path[:] = command["path"]
            outside = command["folder"], command["environment"], command["modules"]
            run_guest(self.path, self.memory, *outside, connection)
        for file in (asks, answers, output):
            os.close(file)

    def note_memory(self) -> None:
        """Take the memory that it has now, before anything of the user's, as what its limit comes on top of."""
        if self.most_memory is None:
            self.most_memory = self.memory + _memory(self.process)

    def read_output(self) -> bool:
        """Take in what the program has printed, without keeping much of it. Return False at its end."""
        chunk = os.read(self.output, 1 << 16)
        self.printed += chunk[: MOST_OUTPUT - len(self.printed)]
        return bool(chunk)

    def await_dump(self, seconds: float) -> None:
        """Have the interpreter say in which line it is, and wait until it has, at most so long."""
        before = size = os.fstat(self._dumps).st_size
        _signal(self.process, signal.SIGUSR1)
        _signal(self.process, signal.SIGCONT)  # it may have stopped itself; the dump comes before it goes on
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(DUMP_LOOK_S)
            last, size = size, os.fstat(self._dumps).st_size
            if size == last > before:
                return

    def find_line(self) -> int | None:
        """Return the innermost line of the file in which the process ended, as far as it could say so."""
        dump = os.pread(self._dumps, 1 << 16, 0)
        for name, line in TRACED.findall(dump):
            if os.fsdecode(name) == str(self.path):
                return int(line)
        return SITE.unpack_from(self.site)[4] or None

    def close(self) -> None:
        """Close what the process was connected by."""
        for file in (self.asks, self.answers, self.output, self._dumps):
            os.close(file)
        self.site.close()


class SpentTime:
    """The seconds that some processes take: of processors, and those in which all of them sleep.

    Those in which one waits for a processor are not theirs: on a busy machine they would be most.
    """

    def __init__(self, processes: list[int]) -> None:
        self._begun = self._noted = time.monotonic()
        self._on_processors, _ = _activity(processes)
        self._seconds = 0.0

    def note(self, processes: list[int]) -> float:
        """Return the seconds up to now, of the processes that there are now."""
        before, now = self._noted, time.monotonic()
        on_processors, is_awake = _activity(processes)
        taken = max(on_processors - self._on_processors, 0.0)
        self._seconds += taken if is_awake else max(taken, now - before)
        self._noted, self._on_processors = now, on_processors
        return self._seconds

    @property
    def elapsed(self) -> float:
        """The seconds that have passed."""
        return self._noted - self._begun


class Keeper:
    """The guests of one owner by number, and the connection to the owner."""

    def __init__(self, commands: int, answers: int) -> None:
        self.commands, self.answers = commands, answers
        self.guests: dict[int, Guest] = {}
        self.ended: dict[int, int] = {}  # wait statuses of processes that have ended

    def serve(self) -> None:
        """Do what the owner asks until it ends."""
        try:
            while (command := frames.read_frame(self.commands)) is not None:
                self._do(*command)
        finally:
            for guest in self.guests.values():
                _kill(guest.process)
            self.end_strays(set())

    def _do(self, command: dict[str, Any], question: bytes) -> None:
        number = command["guest"]
        if command["do"] == "forget":
            if number in self.guests:
                self.end(number)
            return
        if number not in self.guests:
            self.guests[number] = Guest(command)
            if not command["is_first"]:  # the process that had loaded the file has ended
                header, answer = self.ask(number, frames.pack({"do": "load"}), command["seconds"])
                if "ended" in header:
                    return frames.write_all(self.answers, frames.pack(header, answer))
        frames.write_all(self.answers, frames.pack(*self.ask(number, question, command["seconds"])))
        if command["modules"] and number in self.guests:
            self.guests[number].note_memory()

    def ask(self, number: int, question: bytes, seconds: float) -> frames.Frame:
        """Return what a guest answers, or why it did not; what it has started besides is ended in either case."""
        guest = self.guests[number]
        guest.printed.clear()
        newest = _newest_process()

        def has_started() -> bool:
            """Return whether a process or thread has been started since, here or elsewhere."""
            return newest is None or newest != _newest_process()

        _signal(guest.process, signal.SIGCONT)
        with suppress(OSError):  # it has ended, as will be seen
            frames.write_all(guest.asks, question)
        found = self._await(guest, seconds)
        if isinstance(found, bytearray) and has_started() and self._look(guest) == "processes":
            found = "processes"  # which it had started, and answered, before they were looked at
        if isinstance(found, bytearray):
            _signal(guest.process, signal.SIGSTOP)  # nor do its threads go on
            header, body = {"printed": guest.printed.decode(errors="replace")}, bytes(found)
            if has_started():
                self.end_strays({one.process for one in self.guests.values()})
            return header, body
        header = self._describe_end(guest, found)
        self.end(number)
        return header, b""

    def _await(self, guest: Guest, seconds: float) -> bytearray | str:
        """Return the bytes of a guest's answer, or in a word why there are none."""
        answer, watched = bytearray(), [guest.answers, guest.output, self.commands]
        spent = SpentTime(self._processes(guest))
        look_at = time.monotonic() + LOOK_EVERY_S
        while True:
            ready, _, _ = select(watched, [], [], max(look_at - time.monotonic(), 0.0))
            if self.commands in ready:
                raise SystemExit  # the owner says nothing while it waits: it has ended
            if guest.output in ready and not guest.read_output():
                watched.remove(guest.output)
            if guest.answers in ready:
                chunk = os.read(guest.answers, 1 << 20)
                answer += chunk
                try:
                    length = frames.total_length(answer)
                except frames.BadFrame:
                    return "answer"
                if length is not None and len(answer) >= length:
                    return answer if len(answer) == length else "answer"
                if not chunk:
                    return self._wait_for_end(guest)
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_EVERY_S
                problem = self._look(guest)
                if problem:
                    return problem
                if spent.note(self._processes(guest)) > seconds or spent.elapsed > MOST_ELAPSED * seconds:
                    return "time"

    def _look(self, guest: Guest) -> str:
        """Return whether a guest has ended or takes too much, in a word."""
        self._reap()
        if guest.process in self.ended:
            return "end"
        own = self._processes(guest)
        if len(own) > MOST_PROCESSES + 1:
            return "processes"
        return "memory" if guest.most_memory is not None and sum(map(_memory, own)) > guest.most_memory else ""

    def _processes(self, guest: Guest) -> list[int]:
        """Return the process of a guest and those that it has started."""
        return _descendants(os.getpid(), {one.process for one in self.guests.values()} - {guest.process})

    def _wait_for_end(self, guest: Guest) -> str:
        """Return why a guest has closed its connection: it has ended, or goes on without."""
        for _ in range(20):
            self._reap()
            if guest.process in self.ended:
                return "end"
            time.sleep(0.01)
        return "closed"

    def _describe_end(self, guest: Guest, why: str) -> dict[str, Any]:
        """Return why a guest gave no answer, and where it was. It may still run."""
        number = 0
        if why == "end":
            number = os.waitstatus_to_exitcode(self.ended[guest.process])
            why = "closed" if number == CLOSED else "signal" if number < 0 else "status"
            with suppress(OSError):
                os.set_blocking(guest.output, False)
                guest.read_output()
        else:
            guest.await_dump(DUMP_SHORT_S if why in ("processes", "memory") else DUMP_WAIT_S)
        is_at_rank, rank, channel, step, _ = SITE.unpack_from(guest.site)
        return {
            "ended": why, "number": number, "line": guest.find_line(),
            "at": [rank, channel, step] if is_at_rank == 1 else None,
            "printed": guest.printed.decode(errors="replace"),
        }  # fmt: skip

    def end(self, number: int) -> None:
        """End a guest and what it has started."""
        guest = self.guests.pop(number)
        _kill(guest.process)
        with suppress(OSError):
            os.killpg(guest.process, signal.SIGKILL)
        self.end_strays({one.process for one in self.guests.values()})
        self.ended.pop(guest.process, None)
        guest.close()

    def end_strays(self, kept: set[int]) -> None:
        """End all processes that come from this one but those in ``kept``.

        While one ends, the kernel hands its children on, and a look may find them in neither place. So there are none
        only when two looks in a row find none and none of ours has ended meanwhile.
        """
        give_up, in_vain = time.monotonic() + GIVE_UP_S, 0
        while in_vain < 2 and time.monotonic() < give_up:
            strays = _descendants(os.getpid(), kept)
            for process in strays:
                _kill(process)
            has_ended = self._reap()
            in_vain = 0 if strays or has_ended else in_vain + 1

    def _reap(self) -> bool:
        """Take note of the children that have ended. Return whether there was one."""
        found = False
        with suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    return found
                found = True
                if any(process == guest.process for guest in self.guests.values()):
                    self.ended[process] = status
        return found


def _descendants(ancestor: int, kept: set[int]) -> list[int]:
    """Return the living processes that come from ``ancestor`` but those in ``kept``, whose own are included."""
    children = _children_by_parent() if not CHILDREN.exists() else {}
    found, waiting = list[int](), [ancestor]
    while waiting:
        parent = waiting.pop()
        for child in children.get(parent, ()) if children else _children(parent):
            waiting.append(child)
            if child not in kept and _is_alive(child):
                found.append(child)
    return found


def _children(parent: int) -> list[int]:
    """Return the children of a process, as the kernel lists them for each of its threads."""
    found = list[int]()
    with suppress(OSError):
        for thread in Path(f"/proc/{parent}/task").iterdir():
            with suppress(OSError):
                found += map(int, (thread / "children").read_bytes().split())
    return found


def _children_by_parent() -> dict[int, list[int]]:
    """Return the children of all processes, on a kernel without such lists."""
    found: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = stat.read_bytes().rpartition(b")")[2].split()[1]
            found.setdefault(int(parent), []).append(int(stat.parent.name))
    return found


def _newest_process() -> bytes | None:
    """Return the number of the process or thread that was started last on this system; None where it is not told."""
    with suppress(OSError, IndexError):
        return Path("/proc/loadavg").read_bytes().split()[4]
    return None


def _is_alive(process: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return False


def _activity(processes: list[int]) -> tuple[float, bool]:
    """Return the seconds of processors that processes and their ended children have had, and whether one wants more."""
    ticks, is_awake = 0, False
    for process in processes:
        with suppress(OSError, IndexError):
            fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # in user and system mode, its own and those of children
            is_awake |= fields[0] == b"R"
    return ticks / TICKS, is_awake


def _memory(process: int) -> int:
    """Return the bytes that a process has in memory and shares with no file."""
    with suppress(OSError):
        _, resident, shared = Path(f"/proc/{process}/statm").read_bytes().split()[:3]
        return (int(resident) - int(shared)) * PAGE
    return 0


def _kill(process: int) -> None:
    _signal(process, signal.SIGKILL)


def _signal(process: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _temporary_file() -> int:
    import tempfile

    return os.dup(tempfile.TemporaryFile().fileno())


def main() -> None:
    """Keep guests for the process at the other end of standard input and output."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    commands, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)  # whatever a module prints is no answer
    os.dup2(null, 2)  # nor is anything held open that the owner's own reader waits for the end of
    try:
        Keeper(commands, answers).serve()
    finally:
        os._exit(0)  # there is nothing to tidy up, and the owner may wait
