"""Run ``ringlab`` on hostile input, each case in a fork of a warm process, and check its messages, memory and files.

``python tests/ringlab/hostile_runs.py --seeds 100000:105000`` runs more cases than the test.
"""

import argparse
import gc
import json
import os
import re
import resource
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from hashlib import sha256
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import pytest
import typer.main

SILENCE = 5.0  # seconds of computing without a word
WALL = 30.0  # seconds without a word, whatever the machine is busy with
MOST_BYTES = 1 << 30
STATUSES = (0, 1, 2, 130)
HERE = "<here>"  # in the environment of a case: its folder
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
UNWANTED = ("Traceback (most recent call last)", "internal error", "Exception ignored", "Warning:", "Error in sys.")


class Case(NamedTuple):
    name: str
    arguments: tuple[str, ...]
    files: tuple[tuple[str, bytes | Callable[[Path], object]], ...] = ()  # what is there before
    writes: tuple[str, ...] = ()  # files that it may make or replace, where it succeeds
    environment: tuple[tuple[str, str], ...] = ()


class Ended(NamedTuple):
    status: int  # negative: the signal
    out: str
    err: str
    seconds: float  # the longest silence, of computing
    memory: int  # bytes, at most


def problems(case: Case, folder: Path) -> list[str]:
    for name, content in case.files:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content) if isinstance(content, bytes) else content(file)
    before = snapshot(folder)
    ended = run_in_fork(case, folder)
    return [*_broken_manners(ended), *_losses(case, ended, before, snapshot(folder)), *_bad_json(case, ended)]


def _broken_manners(ended: Ended) -> Iterator[str]:
    text = ended.out + ended.err
    if ended.status not in STATUSES:
        yield f"exit status {ended.status}: {ended.err[-500:]}"
    for phrase in UNWANTED:
        if phrase in text:
            yield f"{phrase}: {text[max(text.find(phrase) - 100, 0) :][-900:]}"
    if match := CONTROL.search(text):
        yield f"control character {match[0]!r}: {text[max(match.start() - 80, 0) : match.end() + 40]!r}"
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
    """Return the kind, the device or target, and the content of each file in a folder."""
    entries = {}
    for file in folder.rglob("*"):
        status, name = file.lstat(), os.fsencode(file.relative_to(folder)).decode(errors="backslashreplace")
        if stat.S_ISLNK(status.st_mode):
            entries[name] = f"link to {file.readlink()}"
        elif stat.S_ISREG(status.st_mode):
            large = status.st_size > 10**7
            entries[name] = f"file {stat.S_IMODE(status.st_mode):o} {status.st_size if large else _hash(file)}"
        else:
            entries[name] = f"{stat.filemode(status.st_mode)} {status.st_rdev}"
    return entries


def _hash(file: Path) -> str:
    try:
        return sha256(file.read_bytes()).hexdigest()[:12]
    except PermissionError:
        return "unreadable"


def run_in_fork(case: Case, folder: Path) -> Ended:
    """Run a case in a fork of this process, until it ends or is silent for too long."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _be_the_command(case, folder, out.fileno(), err.fileno())
        written, silence, spoke_at, spoke_cpu, ended = 0, 0.0, time.monotonic(), 0.0, 0
        while not ended:
            time.sleep(0.01)
            cpu, before = _cpu_seconds(child), written
            written = sum(os.fstat(file.fileno()).st_size for file in (out, err))
            silence = max(silence, cpu - spoke_cpu)
            if written > before:
                spoke_at, spoke_cpu = time.monotonic(), cpu
            if time.monotonic() - spoke_at > WALL or silence > SILENCE:
                silence = max(silence, SILENCE + time.monotonic() - spoke_at)
                os.killpg(child, signal.SIGKILL)
            ended, status, used = os.wait4(child, os.WNOHANG)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # processes that it has left
        outputs = (os.pread(file.fileno(), 20_000_000, 0).decode(errors="replace") for file in (out, err))
        printed, reported = outputs
    return Ended(os.waitstatus_to_exitcode(status), printed, reported, silence, used.ru_maxrss << 10)


def _be_the_command(case: Case, folder: Path, out: int, err: int) -> None:
    """Run the command line in its own process group with limits of memory and file size. Never return."""
    status = 70
    try:
        os.setpgid(0, 0)
        for name, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, 8 << 30), (resource.RLIMIT_FSIZE, 1 << 30)):
            resource.setrlimit(name, (most, most))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(folder)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, 200)
        variables = {name: value.replace(HERE, str(folder)) for name, value in case.environment}
        os.environ.update({"XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "120", **variables})
        sys.argv = ["ringlab", *case.arguments]
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", errors="backslashreplace")  # noqa: SIM115
        status = _status_of_main()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except BaseException:
        os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
    finally:
        os._exit(status)


def _status_of_main() -> int:
    """Return the exit status of the command line, as Python would set it."""
    from ringlab import cli

    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _cpu_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def warm_up() -> None:
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
    for name, content in case.files:
        (folder / name).write_bytes(content)
    with pytest.MonkeyPatch.context() as patch, Path(folder, "said").open("w+") as log:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.chdir(folder)
        patch.setattr(sys, "stdout", log)
        patch.setattr(sys, "stderr", log)
        patch.setattr(sys, "argv", ["ringlab", *case.arguments])
        status = _status_of_main()
        log.seek(0)
        assert status == 0, f"{case.name}: {log.read()}"


_cases: list[Case] = []  # their files are functions, which cannot be pickled


def try_all(cases: Iterable[Case], workers: int = 1) -> Iterator[tuple[Case, list[str]]]:
    _cases[:] = cases
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        yield from zip(_cases, pool.map(_try_case, range(len(_cases))), strict=True)


def _try_case(number: int) -> list[str]:
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    try:
        return problems(_cases[number], folder)
    finally:
        for place, names, _ in os.walk(folder):  # folders that nobody may write
            for inner in (Path(place, name) for name in names):
                if not inner.is_symlink():
                    inner.chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Run some systematic cases and the random ones. Write a line of JSON for each case with problems."""
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
    tried = 0
    for case, problems in try_all((case for case in cases if options.only in case.name), options.workers):
        tried += 1
        if problems:
            shown = [word[:200] for word in case.arguments]
            line = {"case": case.name, "arguments": shown, "problems": problems}
            print(json.dumps(line), flush=True)  # noqa: T201
    print(json.dumps({"tried": tried}))  # noqa: T201


if __name__ == "__main__":
    main()
