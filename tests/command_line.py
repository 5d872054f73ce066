"""The command line in the process of the tests, and what needs a fresh interpreter."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from ringlab import cli


class Done(NamedTuple):
    status: int
    out: str
    err: str


Ringlab = Callable[..., Done]
ROOT = Path(__file__).parent.parent


def run_python(
    *words: object, folder: Path = ROOT, before: Sequence[str] = (), timeout_s: float = 240, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter that finds Ringlab, after the words ``before``, with more variables than are set here."""
    call = [*before, sys.executable, *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        call, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def in_this_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], main: Callable[[], object] = cli.main
) -> Ringlab:
    """Return a function that runs a program, by default ``ringlab``, with the arguments it is given."""

    def ringlab(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["ringlab", *map(str, arguments)])
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
        return Done(status, *capsys.readouterr())

    return ringlab


@contextmanager
def small_files(nbytes: int) -> Iterator[None]:
    """Within the context, limit files of this process to ``nbytes``, as on a full disk."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
