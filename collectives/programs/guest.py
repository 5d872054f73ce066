"""The process in which a user's file is executed, and which answers what the keeper asks about it.

It begins as a fork of the keeper. Whatever it sends is taken for what the program says, and for nothing else.
"""

import ctypes
import faulthandler
import importlib
import inspect
import io
import mmap
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from collectives.declaration import Algorithm
from collectives.errors import InputError, Undefined, describe_error, first_line, line_in, shorten
from collectives.programs import frames, user_file
from collectives.programs.recorder import Recorder, first_line_of
from collectives.symbolic_rank import DigitRank, Diverges, VectorRank

ASKS, ANSWERS, DUMPS = 3, 4, 5  # file descriptors of a guest
SITE = struct.Struct("5q")  # whether it is at a rank, then rank, channel, step, line: what a guest notes all the time
CLOSED = 97  # exit status of a guest whose connection the program has closed
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


class Connection(NamedTuple):
    """What a guest is left with of its keeper."""

    asks: int
    answers: int
    output: int  # in place of standard output and standard error
    dumps: int  # where the interpreter writes in which line it was when it is ended or crashes
    site: mmap.mmap


def run_guest(
    path: Path, memory: int, folder: str, environment: dict[str, str], modules: list[str], connection: Connection
) -> NoReturn:
    """Be a guest: answer questions about the file until the keeper ends the process.

    ``modules`` of ours are imported first; their memory does not count.
    """
    user_file.is_guest = True
    try:
        _shut_in(connection)
        os.environ.clear()
        os.environ.update(environment)
        with suppress(OSError):
            os.chdir(folder)
        for module in modules:
            importlib.import_module(module)
        _limit_memory(memory + _data_bytes() if modules else memory)
        sys.argv, sys.path = [str(path)], [*sys.path, str(path.parent)]
        guest = Guest(path, connection.site)
        while (question := frames.read_frame(ASKS)) is not None:
            guest.send(*guest.answer(*question))
    finally:
        os._exit(CLOSED)


def _limit_memory(most: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _data_bytes() -> int:
    """Return the bytes of this process that its limit of memory counts."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_bytes().splitlines():
            if line.startswith(b"VmData:"):
                return 1024 * int(line.split()[1])
    return 0


def _shut_in(connection: Connection) -> None:
    """Become a session of its own, with no open file but those of the connection."""
    keeper = os.getppid()
    os.setsid()
    with suppress(OSError, AttributeError):  # other systems than Linux have no prctl
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(CLOSED)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    wanted = {0: os.open(os.devnull, os.O_RDONLY), 1: connection.output, 2: connection.output, ASKS: connection.asks,
              ANSWERS: connection.answers, DUMPS: connection.dumps}  # fmt: skip
    aside = {number: _move_up(file) for number, file in wanted.items()}
    for number, file in aside.items():
        os.dup2(file, number, inheritable=number < ASKS)
    os.closerange(DUMPS + 1, os.sysconf("SC_OPEN_MAX"))
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(file, "w", closefd=False), errors="replace", write_through=True) for file in (1, 2)
    )
    faulthandler.enable(DUMPS, all_threads=False)
    faulthandler.register(signal.SIGUSR1, DUMPS, all_threads=False)
    faulthandler.register(signal.SIGTERM, DUMPS, all_threads=False, chain=True)


def _move_up(file: int) -> int:
    """Return a copy of a file descriptor that is out of the way of those with a meaning."""
    import fcntl

    return fcntl.fcntl(file, fcntl.F_DUPFD, 64)


class Guest:
    """A user's file and what it declares, once it has been loaded."""

    def __init__(self, path: Path, site: mmap.mmap) -> None:
        self.path, self.site, self.process = path, site, os.getpid()
        self.found: list[Algorithm] = []
        self.exit = os._exit
        os._exit = self._exit

    def _exit(self, status: int) -> NoReturn:
        """End the process as ``os._exit`` does, and note the line before."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != str(self.path):
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None:
            struct.pack_into("q", self.site, SITE.size - 8, frame.f_lineno)
        self.exit(status)

    def note(self, rank: int, channel: int, step: int, line: int) -> None:
        """Note where the program is, for the keeper to read if the process ends there."""
        SITE.pack_into(self.site, 0, 1, rank, channel, step, line)

    def send(self, header: dict[str, Any], body: bytes) -> None:
        """Send an answer; a process that the program has forked ends here."""
        if os.getpid() != self.process:
            self.exit(0)
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        try:
            frames.write_all(ANSWERS, frames.pack(header, body))
        except OSError:
            self.exit(CLOSED)

    def answer(self, question: dict[str, Any], body: bytes) -> frames.Frame:
        """Return the answer to a question, whatever the user's code does in between."""
        SITE.pack_into(self.site, 0, 0, 0, 0, 0, 0)
        answers: dict[str, Callable[[dict[str, Any]], frames.Frame]] = {
            "load": self._load, "count": self._count, "record": self._record, "ready": self._ready, "call": self._call,
        }  # fmt: skip
        try:
            return answers[question["do"]](question)
        except StopIteration:
            return {"gone": question["name"]}, b""

    def _load(self, _: dict[str, Any]) -> frames.Frame:
        try:
            self.found = user_file.execute_file(self.path)
        except BaseException as error:
            return {"refused": first_line(error, most=1000), "memory": is_about_memory(error)}, b""
        return {"algorithms": [_describe(found) for found in self.found]}, b""

    def _ready(self, _: dict[str, Any]) -> frames.Frame:
        """Answer that the modules are imported."""
        return {}, b""

    def _call(self, question: dict[str, Any]) -> frames.Frame:
        """Answer what a function of ours finds in the file; it is named MODULE:FUNCTION and returns what JSON has."""
        module, _, name = question["function"].partition(":")
        try:
            return {"found": getattr(importlib.import_module(module), name)(self.path, *question["given"])}, b""
        except BaseException as error:
            is_ours = isinstance(error, InputError)
            text = first_line(error, most=1000) if is_ours else describe_error(error, self.path)
            line = line_in(error.__cause__ or error, self.path)
            return {"refused": text, "memory": is_about_memory(error), "line": line}, b""

    def _algorithm(self, question: dict[str, Any]) -> Algorithm:
        """Return the algorithm that is asked about. Raise StopIteration if the file no longer declares it."""
        named = (found for found in self.found if found.full_name == question["name"])
        return next(named).with_parameters(**question["parameters"])

    def _count(self, question: dict[str, Any]) -> frames.Frame:
        """Answer how many chunks or scratch chunks a rule of the user's wants."""
        algorithm = self._algorithm(question)
        rule: Any = algorithm.chunks_rule if question["rule"] == "chunks" else algorithm.scratch_rule
        try:
            count = rule(question["world_size"], **algorithm.rule_arguments(rule))
        except BaseException as error:
            how = "undefined" if isinstance(error, Undefined) else "refused"
            if isinstance(error, InputError):
                return {"how": how, "text": first_line(error, most=1000), "line": line_in(error, self.path)}, b""
            return {"how": "failed", "text": describe_error(error, self.path), "line": None}, b""
        small = isinstance(count, int) and abs(count) < 2**62
        return {"count": int(count)} if small else {"odd": shorten(count)}, b""

    def _record(self, question: dict[str, Any]) -> frames.Frame:
        """Answer what some ranks say: all of them one by one, one alone, or by a symbolic rank for many."""
        world_size = question["world_size"]
        ranks: Any = range(world_size)
        if question["ranks"] == "shifted":
            ranks = [DigitRank.of((world_size,))]
        elif question["ranks"] != "all":
            import numpy as np

            ranks = question["ranks"]
            ranks = [VectorRank(np.array(ranks, np.int64))] if len(ranks) > 1 else ranks
        recorder = Recorder(self._algorithm(question), self.note)
        try:
            recorder.record(ranks, world_size, question["root"])
        except Diverges as split:
            return {"diverges": None if split.values is None else split.values.tolist()}, b""
        return recorder.answer()


def is_about_memory(error: BaseException) -> bool:
    """Return whether it says that there is no memory left, also as torch does."""
    cause = error.__cause__ or error
    return isinstance(cause, MemoryError) or "allocate memory" in first_line(cause)


def _describe(found: Algorithm) -> dict[str, Any]:
    """Return an algorithm as what can be sent."""
    return {
        "collective": found.spec.name, "name": found.name, "function": found.function.__name__,
        "line": first_line_of(found),
        "chunks": _describe_rule(found.chunks_rule), "scratch": _describe_rule(found.scratch_rule),
        "parameters": [_describe_parameter(one) for one in found.parameters_taken],
    }  # fmt: skip


def _describe_rule(rule: Any) -> Any:
    """Return a rule as its number, None, the names of the arguments that its function takes, or a text for others."""
    if callable(rule):
        return list(inspect.signature(rule).parameters)[1:]
    plain = rule is None or (isinstance(rule, int) and abs(rule) < 2**62)
    return rule if plain else shorten(rule)


def _describe_parameter(parameter: inspect.Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {"name": parameter.name}
    if parameter.annotation is not parameter.empty:
        found["annotation"] = inspect.formatannotation(parameter.annotation)[:200]
    if parameter.default is not parameter.empty:
        plain = parameter.default is None or type(parameter.default) in (int, str)
        found["default" if plain else "odd_default"] = parameter.default if plain else shorten(parameter.default)
    return found
