"""How a real run fails, and which of several failing ranks caused it."""

import sysconfig
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import collectives
from collectives.errors import InputError, RunFailed, describe_error, first_line, text_of
from collectives.quoting import name_signal

# In torch.distributed's messages when the other end of a connection is gone: the consequence of a failure elsewhere.
_PEER_LOST = (
    "gloo/transport",
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "ncclRemoteError",
    "remote process exited",
    "communicator was aborted",
)
_TIMED_OUT = ("Timed out waiting", "timed out", "Timeout(ms)")

_INSTALLED = ("site-packages", "dist-packages")
_NOT_THE_USERS = (
    Path(sysconfig.get_paths()["stdlib"]),
    *(Path(collectives.__file__).parents[1] / name for name in ("collectives", "realcomm", "replay")),
)


class LaunchFailed(RunFailed):
    """A launch that broke.

    ``so_far`` is what ranks told of what they had done, ``failed`` which rank failed first and when, by
    ``time.perf_counter``.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.so_far: dict[int, Any] = {}
        self.failed: dict[int, float] = {}


class RankFailed(LaunchFailed):
    """One rank of a real run failed and the others were ended; ``rank`` is the one that failed first.

    ``lost_peer`` is whether all that is known is that it lost another rank.

    >>> str(RankFailed(1, "rank 1 exited with status 7"))
    'rank 1 exited with status 7'
    """

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(message)
        self.rank, self.lost_peer = rank, False


class TimedOut(LaunchFailed):
    """A real run took longer than its timeout and was ended; the message says what each rank was doing.

    >>> issubclass(TimedOut, RunFailed)
    True
    """


class RankTraceback(Exception):  # noqa: N818 - what it is
    """Python's traceback in the process of a rank, as text: the cause of its RankFailed."""


@dataclass(frozen=True)
class Failure:
    """What made one rank end without a result, and what it was doing."""

    rank: int
    what: str  # "failed with ValueError: no such file", "was ended by SIGKILL"
    status: str  # what the rank was doing
    refused: bool = False  # it raised an InputError, and ``what`` is its message alone
    secondary: bool = False  # it lost a peer, so another rank failed first
    traceback: str = ""  # Python's, in the worker
    at: float = field(default_factory=time.perf_counter)  # one clock for all processes of a host

    def to_exception(self) -> Exception:
        """Return the exception to raise in the launcher, with the worker's traceback as its cause."""
        if self.refused:
            return InputError(self.what)
        error = RankFailed(self.rank, f"rank {self.rank} {self.what} (it was doing: {self.status})")
        error.failed[self.rank], error.lost_peer = self.at, self.secondary
        if self.traceback:
            error.__cause__ = RankTraceback(self.traceback)
        return error


def failure_by_exception(rank: int, error: BaseException, status: str) -> Failure:
    """Return the failure of a rank that raised ``error``."""
    refused, lost_peer = isinstance(error, InputError), is_peer_lost(error)
    if refused:
        what = text_of(error)
    elif isinstance(error, RunFailed):
        what = f"failed: {first_line(error)}"
    else:
        how = "lost another rank:" if lost_peer else "failed with"
        what = f"{how} {describe_error(error, _users_file(error))}"
    return Failure(rank, what, status, refused, lost_peer, "".join(traceback.format_exception(error)))


@contextmanager
def failing_as(rank: int, status: str) -> Iterator[None]:
    """Within the context, raise the RankFailed of this rank for any error but InputError and RunFailed."""
    try:
        yield
    except (InputError, RunFailed):
        raise
    except Exception as error:
        raise failure_by_exception(rank, error, status).to_exception() from error


def failure_by_exit(rank: int, exitcode: int | None, status: str) -> Failure:
    """Return the failure of a rank whose process ended without sending a result or failure."""
    if exitcode is None or exitcode >= 0:
        return Failure(rank, f"exited with status {exitcode} before it was done", status)
    return Failure(rank, f"was ended by {describe_signal(-exitcode)}", status)


def failure_by_server(rank: int, how: str, status: str) -> Failure:
    """Return the failure of a rank that can no longer be watched because the server that forked it has ended."""
    what = f"was given up because the server that forks all ranks {how}; run again, which starts a new server"
    return Failure(rank, what, status)


def describe_signal(number: int) -> str:
    """Return the name of a signal that ended a process, and who may have sent it.

    >>> describe_signal(9), describe_signal(11)
    ('SIGKILL, perhaps by the system for want of memory', 'SIGSEGV')
    """
    name = name_signal(number)
    return f"{name}, perhaps by the system for want of memory" if name == "SIGKILL" else name


def timeout_by_exception(rank: int, error: BaseException, status: str, took: float, allowed: float) -> TimedOut:
    """Return the failure of a rank in which torch.distributed timed out, ``took`` seconds after its beginning.

    A connection may be given up long before what is ``allowed``.
    """
    if took >= allowed:
        return TimedOut(f"not done after {allowed:g} s; rank {rank}: {status}")
    return TimedOut(
        f"rank {rank} gave up after {took:.2g} s, where {allowed:g} s are allowed: {describe_error(error, None)} "
        f"(it was doing: {status})"
    )


def root_cause(failures: list[Failure]) -> Failure:
    """Return the first failure that was not about a lost peer, or the first of all: the others follow from it."""
    return min(failures, key=lambda failure: (failure.secondary, failure.at))


def is_peer_lost(error: BaseException) -> bool:
    """Return whether an exception, or one that caused it, says that another rank is gone."""
    return _mentions(error, _PEER_LOST)


def is_timeout(error: BaseException) -> bool:
    """Return whether an exception, or one that caused it, says that torch.distributed timed out."""
    return _mentions(error, _TIMED_OUT)


def _mentions(error: BaseException | None, words: tuple[str, ...]) -> bool:
    while error is not None:
        if isinstance(error, (RuntimeError, OSError)) and any(word in text_of(error) for word in words):
            return True
        error = error.__cause__ or error.__context__
    return False


def _users_file(error: BaseException) -> Path | None:
    """Return the innermost file of a traceback that is neither Ringlab's nor installed; None if there is none."""
    files = [Path(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [
        file
        for file in files
        if file.suffix == ".py"
        and not any(name in file.parts for name in _INSTALLED)
        and not any(file.is_relative_to(folder) for folder in _NOT_THE_USERS)
    ]
    return own[-1] if own else None
