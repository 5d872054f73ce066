"""Run hostile user files: each ends within its limits, with a message that names file and line."""

import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from command_line import run_python

from collectives import InputError, verify
from collectives.catalogue import find_algorithm, load_file
from collectives.programs import sandbox
from collectives.programs.recorded import read_recorded_steps
from collectives.programs.worker import end_processes
from collectives.verdict import prove

pytestmark = pytest.mark.usefixtures("lean_workers")

HEAD = """import ctypes, os, signal, sys, threading, time
from collectives import Operation, algorithm, recv, recv_reduce, send

@algorithm("all_reduce", chunks=1)
def hostile(rank, world_size):
"""
RIGHT = "    yield send(1 - rank, 0), recv_reduce(1 - rank, 0)"
ENDED = {  # body, message, and line
    "an endless loop": ("    while True: pass\n    yield ()", "longer than 1 s", 6),
    "sleep": ("    yield ()\n    time.sleep(60)", "longer than 1 s", 7),
    "os._exit": ("    yield ()\n    os._exit(0)", "exits with status 0", None),
    "a fork bomb": ("    while True: os.fork()\n    yield ()", "more than 16 processes", None),
    "a crash": ("    yield ()\n    ctypes.string_at(0)", "ended by SIGSEGV", 7),
    "stopping itself": ("    os.kill(os.getpid(), signal.SIGSTOP)\n    yield ()", "longer than 1 s", 6),
    "stopping its server": (
        "    if os.fork() == 0: time.sleep(60)\n    os.kill(os.getppid(), 19)\n    time.sleep(60)\n    yield ()",
        "longer than 1 s", 8,
    ),
    "closing files": ("    os.closerange(0, 100)\n    yield ()", "closed a file that Ringlab uses", None),
    "writing to files": (
        "    for file in range(3, 20):\n        try: os.write(file, b'no')\n        except OSError: 0\n    yield ()",
        "wrote to a file that Ringlab uses", None,
    ),
    "ending its server": (
        "    if os.fork() == 0: time.sleep(60)\n    os.kill(os.getppid(), 9)\n    time.sleep(60)\n    yield ()",
        "enforces its limits", None,
    ),
}  # fmt: skip
REFUSED = {
    "SystemExit": ("    yield ()\n    sys.exit(0)", "step 1: the program fails with SystemExit: 0", 7),
    "KeyboardInterrupt": ("    raise KeyboardInterrupt\n    yield ()", "fails with KeyboardInterrupt", 6),
    "recursion": ("    f = lambda n: f(n)\n    yield f(0)", "fails with RecursionError", 6),
    "memory": ("    held = [bytes(1 << 30)]\n    yield ()", "more than 512 MiB of memory", 6),
    "an operation of its own": ("    yield Operation(7, 0, 0, 1, 0)", "is not an operation", 6),
    "a failing repr": ("    yield type('Odd', (), {'__repr__': lambda self: 1 / 0})()", "repr fails with Zero", 6),
    "a failing text": (
        "    raise type('E', (Exception,), {'__str__': lambda self: sys.exit(0)})\n    yield ()",
        "the program fails with E (its message cannot be read)", 6,
    ),
    "a long text": ("    raise ValueError('long\\x1b[31m' * 1000)\n    yield ()", "long\\x1b[31m", 6),
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGLAB_PROGRAM_SECONDS", "1")


UNLINED = {  # a body, what is said of it, and the line that is named for it: of a yield, the first, or the last
    "no generator": ("all_reduce", "    return 5", "must yield steps, not return 5", 3),
    "another part that does not": (
        "all_to_all", "    peer = world_size - 1 - rank\n    if peer != rank and peer + rank != 2:\n        yield ()\n"
        "    yield (send(peer, peer), recv(peer, peer)) if rank != peer else ()", "rank 0 writes nothing there", 8
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNLINED)
def test_error_about_a_missing_operation_names_a_line(name: str, tmp_path: Path) -> None:
    collective, body, message, line = UNLINED[name]
    path = tmp_path / "mine.py"
    head = f"from collectives import algorithm, recv, recv_reduce, send\n\n@algorithm({collective!r})\n"
    path.write_text(f"{head}def mine(rank, world_size):\n{body}\n", encoding="utf-8")
    problem = prove(load_file(path)[0], [3 if "another" in name else 2]).problem
    assert problem is not None and message in problem and f"(line {line} of mine.py)" in problem.split(message)[1]


def write(folder: Path, body: str) -> Path:
    path = folder / "hostile.py"
    path.write_text(HEAD + body + "\n", encoding="utf-8")
    return path


def survivors(path: Path) -> list[int]:
    """Return the processes in the file's directory, except workers that wait for a question."""
    return [int(cwd.parent.name) for cwd in Path("/proc").glob("[0-9]*/cwd") if _leads_to(cwd, path.parent)]


def _leads_to(link: Path, folder: Path) -> bool:
    try:
        return link.readlink() == folder and link.parent.name != str(os.getpid())
    except OSError:
        return False


@pytest.mark.parametrize("name", ENDED)
def test_hostile_program_leaves_no_process_behind(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body, message, line = ENDED[name]
    monkeypatch.chdir(tmp_path)  # a worker's folder is its owner's
    path = write(tmp_path, body)
    (algorithm,) = load_file(path)
    problem = prove(algorithm, [2]).problem
    assert problem is not None and message in problem
    assert line is None or problem.endswith(f"(line {line} of hostile.py)")
    assert survivors(path) == []


def test_orphan_missed_by_the_first_search_is_ended() -> None:
    """An orphan can change its parent during a search, so that a single search misses it."""
    child = subprocess.Popen(["sleep", "60"])
    looks = [[], [psutil.Process(child.pid)]]
    end_processes(lambda: looks.pop(0) if looks else [])
    assert child.wait(timeout=10) == -signal.SIGKILL


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_program_error_names_the_line(name: str, tmp_path: Path) -> None:
    body, message, line = REFUSED[name]
    (algorithm,) = load_file(write(tmp_path, body))
    problem = prove(algorithm, [2]).problem
    assert problem is not None and message in problem and problem.isprintable() and len(problem) < 1500
    assert line is None or f"(line {line} of hostile.py)" in problem or message.startswith("fails with Rec")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import os; os._exit(0)", "exits with status 0"),
        ("import time\ntime.sleep(60)", r"longer than 1 s \(RINGLAB_PROGRAM_SECONDS=10 .*line 2 of hostile.py"),
        ("raise KeyboardInterrupt", r"KeyboardInterrupt \(line 1"),
        ("held = bytes(1 << 30)", "more than 512 MiB"),
        ("from collectives import algorithm\n@algorithm('barrier', name='\\x1b[31m')\ndef f(rank, world_size): ...",
         "must be printable"),
    ],
)  # fmt: skip
def test_file_that_fails_to_load_is_rejected(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_file(path)


def test_background_processes_of_a_program_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    daemon = (
        "    if os.fork() == 0:\n        os.setsid()\n        os.fork() or time.sleep(60)\n        time.sleep(60)\n"
    )
    path = write(tmp_path, daemon + RIGHT)
    (algorithm,) = load_file(path)
    assert verify(algorithm, 2).messages == 2
    assert len(survivors(path)) == 1  # the worker, which is stopped
    del algorithm


def test_hostile_file_cannot_change_the_verdict(tmp_path: Path) -> None:
    tricks = """    import collectives, collectives.proof.verifier, json
    collectives.proof.verifier.verify = collectives.verify = lambda *given: None
    json.loads = json.dumps = None
    print("{\\x1b[31m" * 3)
    sys.stdout.close()
    yield ()"""
    code = "import sys; from ringlab import cli; sys.argv = ['ringlab', *sys.argv[1:]]; cli.main()"
    done = run_python("-c", code, "check", write(tmp_path, tricks), "--ranks", "2", "--json", "-")
    assert (done.returncode, json.loads(done.stdout)["algorithms"][0]["correct"]) == (1, False)
    assert "hostile.py prints: {\\x1b[31m{" in done.stderr and "\x1b" not in done.stderr


def test_algorithm_file_can_import_modules_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("CHUNK = 0\n")
    body = "    from beside_it import CHUNK\n    yield send(1 - rank, CHUNK), recv_reduce(1 - rank, CHUNK)"
    assert verify(load_file(write(tmp_path, body))[0], 2).messages == 2


def test_worker_exits_when_its_parent_is_killed(tmp_path: Path) -> None:
    path = write(tmp_path, "    time.sleep(60)\n    yield ()")
    code = f"from collectives import verify; verify({str(path) + ':hostile'!r}, 2)"
    environment = os.environ | {"RINGLAB_PROGRAM_SECONDS": "60"}
    owner = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment, start_new_session=True)
    try:
        _wait_until(lambda: len(survivors(path)) == 2)  # the owner and the worker; the server stays where it began
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    _wait_until(lambda: not survivors(path))


def _wait_until(holds: "object") -> None:
    until = time.monotonic() + 30
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.05)


def test_interrupted_command_leaves_no_sandbox_process(tmp_path: Path) -> None:
    body = "    open('asked', 'w')\n    os.kill(os.getppid(), signal.SIGSTOP)\n    time.sleep(60)\n    yield ()"
    path = write(tmp_path, body)
    code = (
        "import threading, time; from pathlib import Path;"
        "from collectives import verify; from ringlab.shared.signals import end_now;"
        "from collectives.programs import sandbox; sandbox.WARN_AFTER_S = 60;"
        "threading.excepthook = lambda of: None;"  # the server ends while the thread waits for its answer
        f"threading.Thread(target=verify, args=({str(path) + ':hostile'!r}, 2)).start();"
        f"asked = lambda: Path({str(tmp_path / 'asked')!r}).exists();"
        "[time.sleep(0.05) for _ in iter(asked, True)]; end_now()"
    )
    done = run_python("-c", code, folder=tmp_path, RINGLAB_PROGRAM_SECONDS="60", timeout_s=30)
    assert (done.returncode, done.stderr) == (130, "ringlab: interrupted\n")
    _wait_until(lambda: not survivors(path))


def test_waiting_for_a_core_does_not_count_against_the_limit(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    pinned = f"import os; os.sched_setaffinity(0, {{{core}}})"
    computing = f"    exec({pinned!r})\n    while time.process_time() < 0.5: pass\n"  # half of its limit
    endless = [sys.executable, "-c", f"{pinned}\nwhile True: pass"]
    others = [subprocess.Popen(endless, start_new_session=True) for _ in range(5)]  # the kernel is fair to sessions
    try:
        begun = time.monotonic()
        assert verify(load_file(write(tmp_path, computing + RIGHT))[0], 2).messages == 2
        assert time.monotonic() - begun > 1.5, "the others took no time from it"
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_check_stops_at_the_first_world_size_that_times_out(tmp_path: Path) -> None:
    (algorithm,) = load_file(write(tmp_path, "    while True: pass\n    yield ()"))
    verdict = prove(algorithm, [1, 2, 3])
    assert verdict.counter_example is not None and verdict.counter_example["world_size"] == 1


def test_sandbox_server_restarts_after_it_was_closed(tmp_path: Path) -> None:
    (algorithm,) = load_file(write(tmp_path, RIGHT))
    before = sandbox._Only.server
    assert before is not None
    before.close()
    assert verify(algorithm, 2).messages == 2
    assert sandbox._Only.server is not before


WHOLE = {"channels": [[1], [0]], "steps": 1, "operations": 0, "shifted": 0, "vectors": 0, "failures": []}


@pytest.mark.parametrize(
    ("changes", "body"),
    [
        ({"channels": None}, b""),
        ({"channels": [[10**9]], "steps": 10**9}, b""),
        ({"operations": 1}, bytes(28)),
        ({"operations": 1, "shifted": 1}, bytes([0, 0, 0, 0, 1] + [0] * 23) + struct.pack("4q", 0, 0, 0, 1)),
        ({"failures": [{"at": [5, 0, 0], "how": "failed", "text": "x", "line": None}]}, bytes(8)),
        ({"channels": [[1]]}, bytes(8)),
    ],
)
def test_invalid_recorded_steps_are_rejected(changes: dict[str, object], body: bytes) -> None:
    assert read_recorded_steps(WHOLE, bytes(8), "all", 2).counts == [[1], [0]]
    with pytest.raises((KeyError, TypeError, ValueError, IndexError)):
        read_recorded_steps(WHOLE | changes, body, "all", 2)


def test_invalid_values_of_program_limits_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, RIGHT)
    for key, value in (("SECONDS", "soon"), ("SECONDS", "0"), ("MEMORY", "lots"), ("MEMORY", "1 KiB")):
        with monkeypatch.context() as changed, pytest.raises(InputError, match=f"RINGLAB_PROGRAM_{key}"):
            changed.setenv(f"RINGLAB_PROGRAM_{key}", value)
            find_algorithm(f"{path}:hostile")
