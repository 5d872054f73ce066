"""Describe failures of real runs, and find the rank whose failure caused the others."""

import sysconfig
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import collectives
from collectives.errors import InputError, RunFailed, describe_error, first_line, text_of
from collectives.quoting import name_signal

# Parts of torch.distributed's messages when a peer is gone: the consequence of a failure elsewhere.
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
    """The base class of RankFailed and TimedOut."""


class RankFailed(LaunchFailed):
    """A rank of a real run failed, and the others were terminated; ``rank`` is the rank that failed first.

    ``lost_peer`` is true if the only known cause is a lost connection to another rank.

    >>> str(RankFailed(1, "rank 1 exited with status 7"))
    'rank 1 exited with status 7'
    """

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(message)
        self.rank, self.lost_peer = rank, False


class TimedOut(LaunchFailed):
    """A real run exceeded its timeout and was terminated.

    The message contains the status of all ranks. Under torchrun, it contains one rank's status or the missing ranks.

    >>> issubclass(TimedOut, RunFailed)
    True
    """


class RankTraceback(Exception):  # noqa: N818 - it is only the text of one
    """The Python traceback of a rank's process, as text. It becomes the ``__cause__`` of the rank's RankFailed."""


@dataclass(frozen=True)
class Failure:
    """The reason why one rank ended without a result, and the rank's status."""

    rank: int
    event: str  # "failed with ValueError: no such file", "was killed by SIGKILL"
    status: str  # the rank's last status
    refused: bool = False  # an InputError; ``event`` is its message
    secondary: bool = False  # a lost peer, so another rank has failed first
    traceback: str = ""  # the worker's Python traceback
    at: float = field(default_factory=time.perf_counter)  # one clock for all processes of a host

    def to_exception(self) -> Exception:
        """Return the exception to raise in the launcher: InputError if the rank raised one, otherwise RankFailed.

        If the rank's Python traceback is known, it becomes the cause of the RankFailed.
        """
        if self.refused:
            return InputError(self.event)
        error = RankFailed(self.rank, f"rank {self.rank} {self.event} (status: {self.status})")
        error.lost_peer = self.secondary
        if self.traceback:
            error.__cause__ = RankTraceback(self.traceback)
        return error


def failure_by_exception(rank: int, error: BaseException, status: str) -> Failure:
    """Return the failure of a rank that raised ``error``."""
    refused, lost_peer = isinstance(error, InputError), is_peer_lost(error)
    if refused:
        message_text = text_of(error)
    elif isinstance(error, RunFailed):
        message_text = f"failed: {first_line(error)}"
    else:
        how = "lost another rank:" if lost_peer else "failed with"
        message_text = f"{how} {describe_error(error, _users_file(error))}"
    return Failure(rank, message_text, status, refused, lost_peer, "".join(traceback.format_exception(error)))


@contextmanager
def failing_as(rank: int, status: str) -> Iterator[None]:
    """Convert each Exception in the context, except InputError and RunFailed, to a RankFailed of ``rank``.

    KeyboardInterrupt and SystemExit pass unchanged.
    """
    try:
        yield
    except (InputError, RunFailed):
        raise
    except Exception as error:
        raise failure_by_exception(rank, error, status).to_exception() from error


def failure_by_exit(rank: int, exitcode: int | None, status: str) -> Failure:
    """Return the failure of a rank whose process exited before it sent a result or a failure."""
    if exitcode is None or exitcode >= 0:
        return Failure(rank, f"exited with status {exitcode} before it finished", status)
    return Failure(rank, f"was killed by {describe_signal(-exitcode)}", status)


def failure_by_server(rank: int, how: str, status: str) -> Failure:
    message_text = f"was lost because the fork server {how}; run again to start a new one"
    return Failure(rank, message_text, status)


def describe_signal(number: int) -> str:
    """Return the name of the signal that terminated a process, and its likely cause.

    >>> describe_signal(9), describe_signal(11)
    ('SIGKILL, perhaps because the system ran out of memory', 'SIGSEGV')
    """
    name = name_signal(number)
    return f"{name}, perhaps because the system ran out of memory" if name == "SIGKILL" else name


def timeout_by_exception(rank: int, error: BaseException, status: str, elapsed: float, allowed: float) -> TimedOut:
    """Return the TimedOut for a rank in which torch.distributed timed out, ``elapsed`` seconds after the rank's start.

    ``allowed`` is the timeout of the whole run in seconds. A single connection may time out much earlier.
    """
    if elapsed >= allowed:
        return TimedOut(f"timed out after {allowed:g} s; rank {rank}: {status}")
    return TimedOut(
        f"rank {rank} timed out after {elapsed:.2g} s (the limit is {allowed:g} s): "
        f"{describe_error(error, None)} (status: {status})"
    )


def root_cause(failures: list[Failure]) -> Failure:
    """Return the earliest failure that was not caused by a lost peer. If there is none, return the earliest failure."""
    return min(failures, key=lambda failure: (failure.secondary, failure.at))


def is_peer_lost(error: BaseException) -> bool:
    """Return whether an exception or its cause reports a lost peer."""
    return _mentions(error, _PEER_LOST)


def is_timeout(error: BaseException) -> bool:
    """Return whether an exception or its cause reports a timeout of torch.distributed."""
    return _mentions(error, _TIMED_OUT)


def _mentions(error: BaseException | None, words: tuple[str, ...]) -> bool:
    while error is not None:
        if isinstance(error, (RuntimeError, OSError)) and any(word in text_of(error) for word in words):
            return True
        error = error.__cause__ or error.__context__
    return False


def _users_file(error: BaseException) -> Path | None:
    """Return the innermost file of the user's code in a traceback, or None if there is none."""
    files = [Path(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(error.__traceback__)]
    users_files = [
        file
        for file in files
        if file.suffix == ".py"
        and not any(name in file.parts for name in _INSTALLED)
        and not any(file.is_relative_to(folder) for folder in _NOT_THE_USERS)
    ]
    return users_files[-1] if users_files else None
