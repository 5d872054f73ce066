"""Run ranks of any program with torchrun's variables, forked from the tests' server, which has imported torch."""

import os
import runpy
import socket
import sys
import traceback
from multiprocessing import get_context
from pathlib import Path

from realcomm.launching.server import start_server, without_main


def run_ranks(ranks: int, folder: Path, *words: object) -> list[tuple[int, str, str]]:
    """Run a program, or a module after "-m", on ranks of the loopback; return each rank's status, output and errors.

    Output and errors are files in ``folder``.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    common = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    common |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": 1}
    own = [{**common, "RANK": rank, "LOCAL_RANK": rank} for rank in range(ranks)]
    variables = [os.environ | {name: str(value) for name, value in each.items()} for each in own]
    return run_each(variables, folder, *words)


def run_each(variables: list[dict[str, str]], folder: Path, *words: object) -> list[tuple[int, str, str]]:
    """Run a program in one process for each set of environment variables; return as ``run_ranks`` does."""
    start_server()
    started = []
    for rank, of_rank in enumerate(variables):
        files = [folder / f"rank{rank}.{name}" for name in ("out", "err")]
        child = get_context("forkserver").Process(target=_be_rank, args=(of_rank, files, list(map(str, words))))
        with without_main():
            child.start()
        started.append((child, files))
    try:
        for process, files in started:
            process.join(120)
            assert process.exitcode is not None, [file.read_text() for file in files]
    finally:
        for process, _ in started:
            process.kill()
            process.join()
    return [(process.exitcode or 0, out.read_text(), err.read_text()) for process, (out, err) in started]


def _be_rank(variables: dict[str, str], files: list[Path], words: list[str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
    is_module = words[0] == "-m"
    sys.argv = words[is_module:]
    sys.path.insert(0, str(Path.cwd()) if is_module else str(Path(words[0]).parent))
    try:
        (runpy.run_module if is_module else runpy.run_path)(sys.argv[0], run_name="__main__")
    except Exception:
        traceback.print_exc()
        sys.exit(1)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
