"""Reports a command's error as one line on standard error with an exit status, and checks the environment."""

import errno
import importlib.abc
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer

from collectives.errors import InputError, RunFailed, first_failure
from collectives.quoting import make_printable
from collectives.removed import OPTIONS, describe_removed
from collectives.variables import check_variables, is_first_rank

UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # of the click that typer brings along
PACKAGES = Path(__file__).parents[2]


class CheckedTorch(importlib.abc.MetaPathFinder):
    """An import hook that checks torch before it is imported. It leaves the import itself to other finders."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        """Raise InputError if torch, torchvision or sklearn is missing, or an environment variable crashes torch."""
        if name in ("torch", "torchvision", "sklearn"):
            from realcomm.launching.torch_process import check_installed, check_torch  # takes 0.1 s to import

            check_installed(name)
            if name == "torch":
                check_torch()


CHECKED_TORCH = CheckedTorch()


def check_environment() -> None:
    """Raise InputError for an invalid environment variable. Variables of torch are checked when torch is imported."""
    check_variables()
    if CHECKED_TORCH not in sys.meta_path:
        sys.meta_path.insert(0, CHECKED_TORCH)


def exit_with_a_line(app: typer.Typer) -> None:
    """Run the command line. After an error, print one line and exit with status 2 (invalid input) or 1 (failure).

    Python's development mode (``python -X dev -m ringlab``) shows the traceback of an internal error.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a stream may be missing or replaced
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            check_environment()
            status = app(standalone_mode=False)  # its own way to show errors lets control characters through
        finally:
            _flush()
    except Exception as caught:
        error = first_failure(caught)
        error = error.__cause__ if isinstance(error.__cause__, EOFError) else error  # typer would call it an abort
        if _is_unexpected(error) and sys.flags.dev_mode:
            raise
        with suppress(OSError):  # if standard error is closed, the exit status still reports the failure
            _say(error)
        sys.exit(2 if isinstance(error, InputError | UsageError) else 1)
    if status:
        sys.exit(status)


@contextmanager
def refusals_about(subject: str) -> Iterator[None]:
    """Prefix the message of an InputError in the block with ``subject``."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{subject}: {error}") from error


def describe_failure(error: Exception) -> str:
    """Return an error's message, and a line for each of its notes."""
    return "\n".join([_describe(error), *getattr(error, "__notes__", ())])


def _describe(error: Exception) -> str:
    if isinstance(error, OSError):
        return describe_system_error(error)
    if isinstance(error, MemoryError):
        return f"not enough memory{': ' * bool(str(error))}{error}"
    if isinstance(error, UsageError):
        return _describe_usage(error)
    if not _is_unexpected(error):
        return str(error)
    return f"internal error: {type(error).__name__}: {error} ({_place(error)})"


def _describe_usage(error: Any) -> str:
    """Describe invalid arguments or a removed option. Return "" if the help was already shown."""
    message = make_printable(error.format_message().removesuffix("."), most=300)
    command = error.ctx.command_path if error.ctx else "ringlab"
    if error.ctx and (
        removed := describe_removed(OPTIONS, f"{error.ctx.info_name} {getattr(error, 'option_name', '')}")
    ):
        return removed
    return f"{message} (`{command} --help` for help)" if message else ""


def _is_unexpected(error: Exception) -> bool:
    return not isinstance(error, InputError | RunFailed | UsageError | OSError | MemoryError)


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGES)] or frames
    return f"{Path(ours[-1].filename).name}, line {ours[-1].lineno}" if ours else "nowhere"


def _say(error: Exception) -> None:
    """Print the error, unless it only means that the process that reads standard output has exited.

    Under torchrun, rank 0 and the failed rank print it. Ranks that only lost a peer do not.
    """
    message = make_printable(describe_failure(error), keep="\n", most=3000)
    has_failed = str(getattr(error, "rank", "")) == os.environ.get("RANK") and not getattr(error, "lost_peer", False)
    if message and (is_first_rank() or has_failed) and not is_reader_gone(error):
        print(f"ringlab: {message}", file=sys.stderr)  # noqa: T201


def _flush() -> None:
    """Flush standard output. If that fails, raise OSError, and keep Python from flushing again at exit.

    A closed standard output is not an error.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EBADF:
            file = [] if error.errno == errno.EPIPE else ["standard output"]
            raise OSError(error.errno, error.strerror, *file) from error


def is_reader_gone(error: Exception) -> bool:
    """Return whether an error means that the process that reads standard output has exited, as with ``| head -1``."""
    return isinstance(error, OSError) and error.errno == errno.EPIPE and not error.filename


def describe_system_error(error: OSError) -> str:
    """Return the file and the reason of an OSError."""
    files = [os.fsdecode(file) for file in (error.filename, error.filename2) if isinstance(file, str | bytes)]
    return ": ".join([" and ".join(files)] * bool(files) + [error.strerror or str(error)])
