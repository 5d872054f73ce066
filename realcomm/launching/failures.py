"""How a real run fails, and which of several failing ranks caused it."""

import signal
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from collectives.errors import InputError, RunFailed

# In torch.distributed's messages when the other end of a connection is gone: the consequence of a failure elsewhere.
_PEER_LOST = (
    "gloo/transport",
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "ncclRemoteError",
    "remote process exited",
)
_TIMED_OUT = ("Timed out waiting", "timed out", "Timeout(ms)")


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
        """Return the exception to raise in the launcher, with the worker's traceback as a note."""
        if self.refused:
            return InputError(self.what)
        error = RankFailed(self.rank, f"rank {self.rank} {self.what} (it was doing: {self.status})")
        error.failed[self.rank], error.lost_peer = self.at, self.secondary
        if self.traceback:
            error.add_note(f"In the process of rank {self.rank}:\n{self.traceback}")
        return error


def failure_by_exception(rank: int, error: BaseException, status: str) -> Failure:
    """Return the failure of a rank that raised ``error``."""
    refused = isinstance(error, InputError)
    what = str(error) if refused else f"failed with {_describe(error)}"
    return Failure(rank, what, status, refused, is_peer_lost(error), "".join(traceback.format_exception(error)))


def failure_by_exit(rank: int, exitcode: int | None, status: str) -> Failure:
    """Return the failure of a rank whose process ended without sending a result or failure."""
    if exitcode is None or exitcode >= 0:
        return Failure(rank, f"exited with status {exitcode} before it was done", status)
    name = signal.Signals(-exitcode).name
    hint = ", perhaps by the system for want of memory" if name == "SIGKILL" else ""
    return Failure(rank, f"was ended by {name}{hint}", status)


def timeout_by_exception(rank: int, error: BaseException, status: str, took: float, allowed: float) -> TimedOut:
    """Return the failure of a rank in which torch.distributed timed out, ``took`` seconds after its beginning.

    A connection may be given up long before what is ``allowed``.
    """
    if took >= allowed:
        return TimedOut(f"not done after {allowed:g} s; rank {rank}: {status}")
    return TimedOut(
        f"rank {rank} gave up after {took:.2g} s, where {allowed:g} s are allowed: {_describe(error)} "
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
        if isinstance(error, (RuntimeError, OSError)) and any(word in str(error) for word in words):
            return True
        error = error.__cause__ or error.__context__
    return False


def _describe(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
