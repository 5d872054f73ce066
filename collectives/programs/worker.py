"""Execute users' files in worker processes, one per file. A server process forks the workers.

A worker handles requests about its file. A request is JSON, and a reply is a line of JSON followed by bytes. Both are
written to a file that the worker shares with the process that started the server. A byte on a socket announces each
request and each reply. The replies are not trusted.
"""

import ctypes
import faulthandler
import hashlib
import importlib
import importlib.util
import inspect
import json
import mmap
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import psutil

from collectives.declaration import Algorithm, declared_in
from collectives.errors import InputError, describe_error, shorten
from collectives.programs.recorder import Recorder, describe_failure, is_about_memory
from collectives.symbolic_rank import Diverges, ShiftedRank, VectorRank

LOCATION = struct.Struct("5q")  # 1 if a rank runs, rank, channel, step, line
RUNG = b"."  # announces an answer
MOST_COUNT = 1 << 62  # of chunks in an answer, far above the limit
CLOSED = 97  # exit status of a worker whose connection was closed
GIVE_UP_S = 10.0  # time limit for ending processes that start others
PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>: the signal when the owner exits
PR_SET_CHILD_SUBREAPER = 36  # orphans become children of this process, not of init

Answer = tuple[dict[str, Any], bytes]


class Here:
    """Global state: whether this process is a worker."""

    is_worker = False  # whether it executes a user's file; such a process also executes the files that this file names


def serve(owner: socket.socket) -> None:
    """Run the server until ``owner`` is closed: fork workers and return exit statuses. Then kill all workers."""
    with suppress(OSError, AttributeError):  # only Linux has prctl
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGCONT)  # a program may have stopped this process
    ended: dict[int, int] = {}
    while True:
        request, files, _, _ = socket.recv_fds(owner, 100, 4)
        with suppress(ChildProcessError):
            while (child := os.waitpid(-1, os.WNOHANG))[0]:
                ended[child[0]] = child[1]
        if files:
            if (process := os.fork()) == 0:
                owner.close()
                _run_worker(*files)
            for file in files:
                os.close(file)
            owner.send(b"%d" % process)
        elif request:
            owner.send(b"%d" % ended.get(int(request), -1))
        else:
            end_processes(lambda: find_descendants(os.getpid()))
            return


def find_descendants(process: int, excluded: Collection[int] = ()) -> list[psutil.Process]:
    """Return the running descendants of a process, without those in ``excluded``. The arguments are process IDs."""
    with suppress(psutil.Error):
        children = psutil.Process(process).children(recursive=True)
        return [child for child in children if child.pid not in excluded and is_alive(child)]
    return []


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process exists and is not a zombie."""
    with suppress(psutil.Error):
        return bool(process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    return False


def end_processes(find: Callable[[], list[psutil.Process]]) -> None:
    """Kill the processes that ``find`` returns, until it returns none twice in a row or ``GIVE_UP_S`` has passed.

    One search is not enough, because it can miss a process whose parent has just exited.
    """
    empty, give_up = 0, time.monotonic() + GIVE_UP_S
    while empty < 2 and time.monotonic() < give_up:
        processes = find()
        for process in processes:
            with suppress(psutil.Error):
                process.kill()
        empty = 0 if processes else empty + 1


def execute_file(path: Path) -> list[Algorithm]:
    """Execute a Python file and return the algorithms that it declares. Raise InputError if the file fails."""
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file (its name must end in .py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    previous, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # do not write __pycache__ next to a user's file
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise InputError(f"{path}: {describe_error(error, path)}") from error
    finally:
        sys.dont_write_bytecode = previous
    return declared_in(module, source=path)


def _run_worker(talk: int, bell: int, output: int, notes: int) -> NoReturn:
    """Handle requests until the process is killed. The arguments are file descriptors.

    Requests and replies are written to ``talk``. A byte on ``bell`` announces each of them. ``output`` replaces
    standard output and error. The program's current rank, channel, step and line are written to ``notes``, followed by
    a traceback if the interpreter crashes or is aborted.
    """
    try:
        Here.is_worker = True
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace", write_through=True)  # type: ignore[union-attr]
            os.dup2(output, stream.fileno())
        os.close(output)
        faulthandler.enable(notes, all_threads=False)
        worker, process = Worker(mmap.mmap(notes, LOCATION.size)), os.getpid()
        while os.read(bell, 1):
            content = os.pread(talk, os.fstat(talk).st_size, 0)
            os.ftruncate(talk, 0)
            header, body = worker.answer(json.loads(content))
            if os.getpid() != process:  # the program has forked this process
                os._exit(0)
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            write_whole(talk, json.dumps(header).encode() + b"\n" + body)
            os.write(bell, RUNG)
    finally:
        os._exit(CLOSED)


def write_whole(file: int, content: bytes) -> None:
    """Replace the content of an open file."""
    os.ftruncate(file, 0)
    os.lseek(file, 0, os.SEEK_SET)
    with open(file, "wb", closefd=False) as writer:
        writer.write(content)


class Worker:
    """The user's file that a worker process executes, and the algorithms that it declares."""

    def __init__(self, location: mmap.mmap) -> None:
        self.path, self.location = Path(), location
        self.algorithms: list[Algorithm] = []

    def note(self, rank: int, channel: int, step: int, line: int) -> None:
        LOCATION.pack_into(self.location, 0, 1, rank, channel, step, line)

    def answer(self, question: dict[str, Any]) -> Answer:
        LOCATION.pack_into(self.location, 0, 0, 0, 0, 0, 0)
        answers: dict[str, Callable[[dict[str, Any]], Answer]] = {
            "start": self._start, "load": self._load, "count": self._count, "record": self._record, "call": self._call,
        }  # fmt: skip
        try:
            return answers[question["do"]](question)
        except StopIteration:
            return {"gone": question["name"]}, b""

    def _start(self, question: dict[str, Any]) -> Answer:
        """Set up the environment, import Ringlab's modules, and then limit the memory for the user's file."""
        self.path = Path(question["file"])
        os.environ.clear()
        os.environ.update(question["environment"])
        with suppress(OSError):
            os.chdir(question["folder"])
        sys.argv, sys.path[:] = [str(self.path)], [*question["path"], str(self.path.parent)]
        for module in question["modules"]:
            importlib.import_module(module)
        most = question["memory"] + getattr(psutil.Process().memory_info(), "data", 0)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        return {}, b""

    def _load(self, _: dict[str, Any]) -> Answer:
        try:
            self.algorithms = execute_file(self.path)
        except BaseException as error:
            failure = describe_failure(error, str(self.path), f"{self.path}: ")
            if is_about_memory(error):
                failure["refused"] = f"{self.path}: {failure['refused']}"
            return failure, b""
        return {"algorithms": [_describe(declared) for declared in self.algorithms]}, b""

    def _call(self, question: dict[str, Any]) -> Answer:
        """Call a function of Ringlab, ``MODULE:FUNCTION``, with the path of the file, and return its result."""
        module, _, name = question["function"].partition(":")
        try:
            return {"found": getattr(importlib.import_module(module), name)(self.path, *question["given"])}, b""
        except BaseException as error:
            return describe_failure(error, str(self.path), ""), b""

    def _algorithm(self, question: dict[str, Any]) -> Algorithm:
        """Return the algorithm that a request names. Raise StopIteration if the file no longer declares it."""
        named = (declared for declared in self.algorithms if declared.full_name == question["name"])
        return next(named).with_parameters(**question["parameters"])

    def _count(self, question: dict[str, Any]) -> Answer:
        algorithm = self._algorithm(question)
        rule: Any = algorithm.chunks_rule if question["rule"] == "chunks" else algorithm.scratch_rule
        try:
            count = rule(question["world_size"], **algorithm.rule_arguments(rule))
            if not isinstance(count, int):
                return {"refused": f"the number of chunks must be an integer, not {shorten(count)}"}, b""
        except BaseException as error:
            return describe_failure(error, str(self.path), "a function for a number of chunks raises "), b""
        return {"count": max(-1, min(count, MOST_COUNT))}, b""

    def _record(self, question: dict[str, Any]) -> Answer:
        """Record the operations of all ranks, of some ranks, or of one symbolic rank that represents all ranks."""
        world_size, root = question["world_size"], question["root"]
        ranks: Any = range(world_size)
        if question["ranks"] == "shifted":
            ranks = [ShiftedRank(world_size)]
        elif question["ranks"] != "all":
            ranks = question["ranks"]
            ranks = [VectorRank(np.array(ranks, np.int64))] if len(ranks) > 1 else ranks
        if isinstance(root, list):
            root = VectorRank(np.array(root, np.int64))
        recorder = Recorder(self._algorithm(question), self.note)
        try:
            recorder.record(ranks, world_size, root)
        except Diverges as split:
            return {"diverges": None if split.values is None else split.values.tolist()}, b""
        return recorder.answer()


def _describe(algorithm: Algorithm) -> dict[str, Any]:
    return {
        "collective": algorithm.spec.name, "name": algorithm.name, "function": algorithm.function.__name__,
        "line": algorithm.first_line,
        "chunks": _describe_rule(algorithm.chunks_rule), "scratch": _describe_rule(algorithm.scratch_rule),
        "parameters": [*filter(None, map(_describe_parameter, algorithm.parameters_taken))],
    }  # fmt: skip


def _describe_rule(rule: Any) -> Any:
    if callable(rule):
        return list(inspect.signature(rule).parameters)[1:]
    return rule if rule is None else min(rule, MOST_COUNT)


def _describe_parameter(parameter: inspect.Parameter) -> dict[str, Any] | None:
    """Return a parameter as JSON content, or None if its default is not an integer, a string or None."""
    described: dict[str, Any] = {"name": parameter.name}
    if parameter.annotation is not parameter.empty:
        described["annotation"] = inspect.formatannotation(parameter.annotation)[:200]
    if parameter.default is not parameter.empty:
        described["default"] = parameter.default
        if parameter.default is not None and type(parameter.default) not in (int, str):
            return None
    return described
