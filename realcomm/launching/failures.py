"""How a real run fails, and which of several failing ranks is to blame."""

import signal
import time
import traceback
from dataclasses import dataclass, field

from collectives.errors import InputError, RunFailed

# What torch.distributed says when the other end of a connection is gone: the consequence of a failure elsewhere.
_OF_ANOTHER = (
    "gloo/transport",
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "ncclRemoteError",
    "remote process exited",
)
_TIMED_OUT = ("Timed out waiting", "timed out", "Timeout(ms)")


class RankFailed(RunFailed):
    """One rank of a real run failed, and the others were ended. ``rank`` is the one that failed first."""

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(message)
        self.rank = rank


class TimedOut(RunFailed):
    """A real run took too long and was ended; the message tells what each rank was doing."""


@dataclass(frozen=True)
class Failure:
    """How one rank ended without a result."""

    rank: int
    how: str  # "ValueError: no such file", "was ended by SIGKILL"
    doing: str
    refused: bool = False  # an InputError: ``how`` is its message alone
    secondary: bool = False  # its peer went away, so another rank failed first
    trace: str = ""  # Python's traceback in the worker
    at: float = field(default_factory=time.monotonic)  # one clock for all processes of a host

    def error(self) -> Exception:
        """The exception to raise for it, with the worker's traceback as a note."""
        error = InputError(self.how) if self.refused else RankFailed(self.rank, self._message())
        if self.trace and not self.refused:
            error.add_note(f"In the process of rank {self.rank}:\n{self.trace}")
        return error

    def _message(self) -> str:
        return f"rank {self.rank} {self.how} (it was doing: {self.doing})"


def failed(rank: int, error: BaseException, doing: str) -> Failure:
    """The failure of a rank by an exception."""
    refused = isinstance(error, InputError)
    how = str(error) if refused else f"failed with {_described(error)}"
    trace = "".join(traceback.format_exception(error))
    return Failure(rank, how, doing, refused, is_of_another(error), trace)


def ended(rank: int, exitcode: int | None, doing: str) -> Failure:
    """The failure of a rank whose process is gone without a word."""
    if exitcode is None or exitcode >= 0:
        return Failure(rank, f"exited with status {exitcode} before it was done", doing)
    name = signal.Signals(-exitcode).name
    hint = ", perhaps by the system for want of memory" if name == "SIGKILL" else ""
    return Failure(rank, f"was ended by {name}{hint}", doing)


def root_cause(failures: list[Failure]) -> Failure:
    """The failure that the others follow from: the first that was not about a lost connection, if there is one."""
    return min(failures, key=lambda failure: (failure.secondary, failure.at))


def is_of_another(error: BaseException) -> bool:
    """Whether an exception, or what caused it, says that another rank went away."""
    return _mentions(error, _OF_ANOTHER)


def is_timeout(error: BaseException) -> bool:
    """Whether an exception, or what caused it, says that torch.distributed waited in vain."""
    return _mentions(error, _TIMED_OUT)


def _mentions(error: BaseException | None, words: tuple[str, ...]) -> bool:
    while error is not None:
        if isinstance(error, (RuntimeError, OSError)) and any(word in str(error) for word in words):
            return True
        error = error.__cause__ or error.__context__
    return False


def _described(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
