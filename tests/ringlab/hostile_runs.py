"""Runs ``ringlab`` on hostile input: in forks of one warm process, watched for silence, memory and losses.

A fork takes longer than most cases, so many share one; a case that misbehaves there is tried again in a fork of its
own, and so is one that ends the fork or does not end. What it does there counts.

``python tests/ringlab/hostile_runs.py --seeds 100000:105000`` tries more of them than the test does.
"""

import argparse
import gc
import json
import os
import pickle
import re
import resource
import select
import shutil
import signal
import stat
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, TextIO

import typer.main

SILENCE = 5.0  # seconds of computing without a word
WALL = 30.0  # seconds without a word, whatever the machine is busy with
MOST_BYTES = 1 << 30
STATUSES = (0, 1, 2, 130)
IN_A_FORK = 25  # cases
HERE = "<here>"  # in the environment of a case: its folder
REPORTS = 250  # the number of the open file through which a fork of many cases says how each ended
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
UNWANTED = (
    "Traceback (most recent call last)",
    "a fault of Ringlab's",
    "Exception ignored",
    "Warning:",
    "Error in sys.",
)


class Case(NamedTuple):
    """A command in a folder of its own."""

    name: str
    arguments: tuple[str, ...]
    files: tuple[tuple[str, bytes | Callable[[Path], object]], ...] = ()  # what is there before
    writes: tuple[str, ...] = ()  # files that it may make or replace, where it succeeds
    environment: tuple[tuple[str, str], ...] = ()


class Ended(NamedTuple):
    """How a case ended."""

    status: int  # negative: the signal
    out: str
    err: str
    seconds: float  # the longest silence, of computing
    memory: int  # bytes, at most


Tried = tuple[Case, list[str], float]  # with its problems and the seconds that it took


def problems(case: Case, folder: Path, run: "Callable[[Case, Path], Ended] | None" = None) -> list[str]:
    """Run a case in an empty folder, in a fork of its own unless ``run`` is given; return what it should not do."""
    run = run or run_in_fork
    for name, content in case.files:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content) if isinstance(content, bytes) else content(file)
    before = snapshot(folder)
    ended = run(case, folder)
    return [*_broken_manners(ended), *_losses(case, ended, before, snapshot(folder)), *_bad_json(case, ended)]


def _broken_manners(ended: Ended) -> Iterator[str]:
    said = ended.out + ended.err
    if ended.status not in STATUSES:
        yield f"exit status {ended.status}: {ended.err[-500:]}"
    for phrase in UNWANTED:
        if phrase in said:
            yield f"{phrase}: {said[max(said.find(phrase) - 100, 0) :][-900:]}"
    if found := CONTROL.search(said):
        yield f"control character {found[0]!r}: {said[max(found.start() - 80, 0) : found.end() + 40]!r}"
    if ended.status in (1, 2) and not ended.err.strip() and not ended.out.strip():
        yield f"status {ended.status} without a word"
    if ended.status == 2 and (len(ended.err) > 3500 or len(ended.err.splitlines()) > 12):
        yield f"{len(ended.err)} letters on {len(ended.err.splitlines())} lines to say what is wrong: {ended.err[:300]}"
    if ended.seconds > SILENCE:
        yield f"silent for {ended.seconds:.0f} s"
    if ended.memory > MOST_BYTES:
        yield f"{ended.memory >> 20} MiB of memory"


def _losses(case: Case, ended: Ended, before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) == after.get(name) or name.split("/")[0] == "cache":
            continue
        if f"{name}/" in case.writes:
            continue  # a folder
        if name not in case.writes or ended.status == 2:
            yield f"{name} was {before.get(name)}, is {after.get(name)} (status {ended.status})"
        elif not str(after.get(name)).startswith("file"):
            yield f"{name} should be a file, is {after.get(name)}"


def _bad_json(case: Case, ended: Ended) -> Iterator[str]:
    if ended.status == 0 and case.arguments[-2:] == ("--json", "-"):
        try:
            json.loads(ended.out, parse_constant=lambda name: 1 / 0)
        except (ValueError, ZeroDivisionError) as error:
            yield f"no JSON on standard output: {error}: {ended.out[:200]}"


def snapshot(folder: Path) -> dict[str, str]:
    """Return what is in a folder: kind, device or target, and content of each name."""
    found = {}
    for file in folder.rglob("*"):
        status, name = file.lstat(), os.fsencode(file.relative_to(folder)).decode(errors="backslashreplace")
        if stat.S_ISLNK(status.st_mode):
            found[name] = f"link to {file.readlink()}"
        elif stat.S_ISREG(status.st_mode):
            large = status.st_size > 10**7
            found[name] = f"file {stat.S_IMODE(status.st_mode):o} {status.st_size if large else _hash(file)}"
        else:
            found[name] = f"{stat.filemode(status.st_mode)} {status.st_rdev}"
    return found


def _hash(file: Path) -> str:
    try:
        return sha256(file.read_bytes()).hexdigest()[:12]
    except PermissionError:
        return "unreadable"


def run_in_fork(case: Case, folder: Path) -> Ended:
    """Run a case in a fork of this process."""
    out, err = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        _be_the_command(case, folder, out[1], err[1])
    for end in (out[1], err[1]):
        os.close(end)
    try:
        said, silence = _listen(child, (out[0], err[0]))
    finally:
        for end in (out[0], err[0]):
            os.close(end)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    ended = os.waitstatus_to_exitcode(status)
    return Ended(
        ended,
        said[out[0]].decode(errors="replace"),
        said[err[0]].decode(errors="replace"),
        silence,
        used.ru_maxrss << 10,
    )


def _be_the_command(case: Case, folder: Path, out: int, err: int) -> None:
    """Run the command line, and never return."""
    status = 70
    try:
        _limit_this_process()
        os.chdir(folder)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, 200)
        _set_environment(case, folder)
        sys.argv = ["ringlab", *case.arguments]
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", errors="backslashreplace")  # noqa: SIM115
        status = _status_of_main()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except BaseException:
        os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
    finally:
        os._exit(status)


def _limit_this_process() -> None:
    """Make this process a group of its own without input, and with limits of memory and of files."""
    os.setpgid(0, 0)
    for name, number in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, 8 << 30), (resource.RLIMIT_FSIZE, 1 << 30)):
        resource.setrlimit(name, (number, number))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def _set_environment(case: Case, folder: Path) -> None:
    given = {name: value.replace(HERE, str(folder)) for name, value in case.environment}
    os.environ.update({"XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "120", **given})


def _status_of_main() -> int:
    """Return the exit status that Python would end with."""
    from ringlab import cli

    try:
        cli.main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _listen(child: int, pipes: tuple[int, int]) -> tuple[dict[int, bytes], float]:
    """Return what came through each pipe until both ended, and the longest silence in seconds of computing."""
    said = dict.fromkeys(pipes, b"")
    open_pipes, longest, spoke_at, spoke_cpu = list(pipes), 0.0, time.monotonic(), 0.0
    while open_pipes:
        ready, _, _ = select.select(open_pipes, [], [], 0.1)
        now, cpu = time.monotonic(), _cpu_seconds(child)
        longest = max(longest, cpu - spoke_cpu)
        if now - spoke_at > WALL or longest > SILENCE:
            return said, max(longest, SILENCE + now - spoke_at)
        for pipe in ready:
            piece = os.read(pipe, 65536)
            said[pipe] = (said[pipe] + piece)[:20_000_000]
            spoke_at, spoke_cpu = now, cpu
            if not piece:
                open_pipes.remove(pipe)
    return said, longest


def _cpu_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def warm_up() -> None:
    """Import and run what cases need, so that each begins where the last import ended."""
    os.environ.update(OMP_NUM_THREADS="1", MPLBACKEND="agg")
    import hostile_cases

    from ringlab import cli

    make, command = typer.main.get_command, typer.main.get_command(cli.app)
    # Building it anew is half of a cheap case.
    setattr(typer.main, "get_command", lambda app: command if app is cli.app else make(app))  # noqa: B010
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(hostile_cases.VALID):
            place = Path(folder, str(number))
            place.mkdir()
            _run_here(case, place)
    gc.collect()
    gc.freeze()


def _run_here(case: Case, folder: Path) -> None:
    """Run a valid case in this process. Raise AssertionError where it fails."""
    for name, content in case.files:
        (folder / name).write_bytes(content)
    before, streams, argv = Path.cwd(), (sys.stdout, sys.stderr), sys.argv
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    os.chdir(folder)
    with Path(folder, "said").open("w+") as said:
        sys.stdout = sys.stderr = said
        sys.argv = ["ringlab", *case.arguments]
        try:
            status = _status_of_main()
        finally:
            (sys.stdout, sys.stderr), sys.argv = streams, argv
            os.chdir(before)
        said.seek(0)
        assert status == 0, f"{case.name}: {said.read()}"


def try_all(cases: Iterable[Case], workers: int = 1) -> Iterator[Tried]:
    """Run each case in a new folder, so many forks at a time; yield it with its problems and seconds, in any order."""
    waiting, running = iter(cases), dict[int, tuple[int, list[Case]]]()
    while True:
        while len(running) < workers and (some := list(islice(waiting, IN_A_FORK))):
            running |= [_begin_batch(some)]
        if not running:
            return
        for pipe in select.select([*running], [], [])[0]:
            child, some = running.pop(pipe)
            with os.fdopen(pipe, "rb") as file:
                ended = pickle.load(file)
            os.waitpid(child, 0)
            yield from ((case, *how) for case, how in zip(some, ended, strict=True))


def _begin_batch(cases: list[Case]) -> tuple[int, tuple[int, list[Case]]]:
    """Start a fork that tries cases; return the end of the pipe through which it tells, and the fork with its cases."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            with os.fdopen(write, "wb") as file:
                pickle.dump(_try_batch(cases), file)
        finally:
            os._exit(0)
    os.close(write)
    return read, (child, cases)


def _try_batch(cases: list[Case]) -> list[tuple[list[str], float]]:
    """Return of each case its problems and seconds."""
    ended: list[tuple[list[str], float]] = []
    while rest := cases[len(ended) :]:
        good = try_together(rest)
        ended += [([], seconds) for seconds in good]
        if len(good) < len(rest):
            ended.append(try_alone(rest[len(good)]))
    return ended


def _remove(folder: Path) -> None:
    """Remove a folder, also with folders in it that one may not write."""
    for place, names, _ in os.walk(folder):
        for inner in (Path(place, name) for name in names):
            if not inner.is_symlink():
                inner.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def try_alone(case: Case) -> tuple[list[str], float]:
    """Run a case in a fork of its own; return its problems and the seconds that it took."""
    folder, begin = Path(tempfile.mkdtemp(prefix="hostile-")), time.monotonic()
    try:
        return problems(case, folder), time.monotonic() - begin
    finally:
        _remove(folder)


def try_together(cases: list[Case]) -> list[float]:
    """Run cases one after the other in one fork, up to the first that misbehaves; return the seconds of those before.

    One that is silent for too long misbehaves too, and so does the one with which the fork ends.
    """
    folder, (read, write) = Path(tempfile.mkdtemp(prefix="hostile-")), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _be_the_commands(cases, folder, write)
    os.close(write)
    seconds = []
    try:
        while select.select([read], [], [], WALL)[0] and (report := os.read(read, 8)):
            seconds.append(struct.unpack("d", report)[0])
    finally:
        os.close(read)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        _remove(folder)
    return seconds


def _be_the_commands(cases: list[Case], folder: Path, reports: int) -> None:
    """Run cases, report the seconds that each took, and never return."""
    try:
        os.dup2(reports, REPORTS)
        _limit_this_process()
        before = dict(os.environ)
        for number, case in enumerate(cases):
            place, begin = folder / str(number), time.monotonic()
            place.mkdir()
            os.closerange(3, 200)  # what cases before have left open
            if problems(case, place, _run_among_others):
                break
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(before)
            os.write(REPORTS, struct.pack("d", time.monotonic() - begin))
    finally:
        os._exit(0)


def _run_among_others(case: Case, folder: Path) -> Ended:
    """Run a case in this process; all the seconds of computing count as silent, all the memory so far as its own."""
    said = [folder.with_suffix(suffix) for suffix in (".out", ".err")]
    os.chdir(folder)
    for number, file in enumerate(said, start=1):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND), number)
    _set_environment(case, folder)
    sys.argv, begin = ["ringlab", *case.arguments], time.process_time()
    sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), *_open_for_saying()  # noqa: SIM115
    status = _status_of_main()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    out, err = (file.read_bytes().decode(errors="replace") for file in said)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return Ended(status, out, err, time.process_time() - begin, memory)


def _open_for_saying() -> tuple[TextIO, TextIO]:
    return open(1, "w", closefd=False), open(2, "w", errors="backslashreplace", closefd=False)


def main() -> None:
    """Try one in so many of the systematic cases, and drawn ones; write a line of JSON for each that misbehaves."""
    sys.path.insert(0, str(Path(__file__).parents[1]))  # what several packages share
    import hostile_cases

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=0, metavar="N", help="try one systematic case of N; 0: none")
    parser.add_argument("--seeds", default="0:0", metavar="FIRST:END", help="the seeds of drawn cases")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains it")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="so many forks at a time")
    options = parser.parse_args()
    warm_up()
    first, end = map(int, options.seeds.split(":"))
    systematic = islice(hostile_cases.systematic(), 0, None, options.every) if options.every else ()
    cases = chain(systematic, hostile_cases.drawn(range(first, end)))
    tried, slow = 0, list[tuple[float, str]]()
    for case, found, seconds in try_all((case for case in cases if options.only in case.name), options.workers):
        tried += 1
        slow.append((seconds, case.name))
        if found:
            shown = [word[:200] for word in case.arguments]
            _tell({"case": case.name, "arguments": shown, "problems": found})
    _tell({"tried": tried, "slowest": sorted(slow, reverse=True)[:8]})


def _tell(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
