"""The command line in the process of the tests."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from ringlab import cli


class Done(NamedTuple):
    """How a command ended and what it wrote."""

    status: int
    out: str
    err: str


Ringlab = Callable[..., Done]


def in_this_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ringlab:
    """Return a function that runs ``ringlab`` with the arguments it is given."""

    def ringlab(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["ringlab", *map(str, arguments)])
        status = 0
        try:
            cli.main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
        return Done(status, *capsys.readouterr())

    return ringlab
