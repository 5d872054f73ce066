"""Define the errors and warnings of Ringlab: invalid or deprecated input, wrong rank programs, and failed runs."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NO_TEXT = " (its message cannot be read)"
PACKAGES = {
    "collectives", "simcomm", "realcomm", "replay", "planner", "virtual", "scenarios", "viz", "course", "ringlab",
    "importlib",  # calls a package's __getattr__
}  # fmt: skip


class InputError(ValueError):
    """Invalid input. The message says what to change. The command line exits with status 2."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class InputWarning(FutureWarning):
    """Deprecated input that still works. The command line prints the message on one line."""


def warn_input(message: str) -> None:
    """Issue an InputWarning that points to the line of the user's code that called Ringlab."""
    frame = sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in PACKAGES:
        frame = frame.f_back
    module, registry = frame.f_globals.get("__name__"), frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, InputWarning, frame.f_code.co_filename, frame.f_lineno, module, registry)


class Undefined(InputError):  # noqa: N818 - what the algorithm is there
    """The algorithm is not defined for this world size. The message names valid world sizes."""


class TooLarge(InputError):  # noqa: N818 - what it is
    """The work exceeds the limits of time or memory. Smaller calls of the same scenario may still fit."""


class NotKnown(InputError):  # noqa: N818 - what it is
    """A name in one row of a file is unknown. Code that reads the file can catch the error and skip the row."""


class TorchMissing(InputError, ModuleNotFoundError):  # noqa: N818 - what is missing
    """The called function needs torch, which is not installed."""

    def __init__(self, package: str = "torch") -> None:
        super().__init__(f"{package} is not installed: pip install 'ringlab[torch]'")


class ProgramError(InputError):
    """A rank program is wrong. The error contains the rank, the step and the ``world_size`` at which it fails.

    ``lands`` is True if the step completes but delivers wrong data.
    """

    def __init__(
        self, message: str, world_size: int, rank: int | None = None, step: int | None = None, lands: bool = False
    ) -> None:
        super().__init__(message)
        self.world_size, self.rank, self.step, self.lands = world_size, rank, step, lands


class Deadlock(ProgramError):  # noqa: N818 - what happened
    """A program error: some ranks wait for each other in a cycle, although none has failed. ``circle`` is the cycle."""

    def __init__(self, message: str, world_size: int, circle: tuple[int, ...], step: int) -> None:
        super().__init__(message, world_size, circle[0], step)
        self.circle = circle


class ProgramEnded(InputError):  # noqa: N818 - what happened
    """A user's program exited or exceeded a limit in its worker process before it returned a result.

    ``at`` is the rank, channel and step that the program had reached, or None if they are unknown.
    """

    def __init__(self, message: str, at: tuple[int, int, int] | None, is_timeout: bool = False) -> None:
        super().__init__(message)
        self.at, self.is_timeout = at, is_timeout


class RunFailed(RuntimeError):  # noqa: N818 - what happened, as in "the run failed"
    """A run on real processes failed: a rank died or the time ran out. The command line exits with status 1.

    >>> str(RunFailed("rank 1 was ended by SIGKILL"))
    'rank 1 was ended by SIGKILL'
    """


@contextmanager
def failure_first() -> Iterator[None]:
    """Raise the RunFailed that occurs in this context, even if a later error during its handling would replace it.

    The later error is added to the RunFailed with ``add_note``.

    >>> try:
    ...     with failure_first():
    ...         try:
    ...             raise RunFailed("rank 1 was ended by SIGKILL")
    ...         finally:
    ...             raise OSError("no space left")
    ... except RunFailed as error:
    ...     str(error), error.__notes__
    ('rank 1 was ended by SIGKILL', ['afterwards: OSError: no space left'])
    """
    try:
        yield
        return
    except Exception as error:
        first = first_failure(error)
        if first is error:
            raise
    raise first  # outside of the handler, so that the later error is not its context


def first_failure(error: Exception) -> Exception:
    """Return the RunFailed that was being handled when ``error`` was raised, with ``error`` added as a note.

    Return ``error`` itself if no RunFailed was being handled, or if ``error`` was raised ``from`` it as a replacement.
    """
    first: Exception = error
    later: BaseException = error
    while later.__context__ is not None:
        is_meant, later = later.__suppress_context__, later.__context__
        if isinstance(later, RunFailed) and not is_meant:
            first = later
    if first is not error:
        note_error(first, error)
    return first


def note_error(first: BaseException, later: BaseException) -> None:
    first.add_note(f"afterwards: {describe_error(later, None)}")


def describe_line(line: int | None, file: Path | str | None) -> str:
    """Return text such as ``line 12 of mine.py``, or an empty string if the line or the file is unknown.

    >>> describe_line(12, "/home/me/mine.py"), describe_line(3, "/tmp/ipykernel_17/5.py")
    ('line 12 of mine.py', 'line 3 of the cell')
    """
    if not line or not file:
        return ""
    return f"line {line} of {'the cell' if 'ipykernel_' in str(file) else Path(file).name}"


def with_line(text: str, line: int | None, file: Path | str | None) -> str:
    """Return ``text`` with the line appended, such as ``(line 12 of mine.py)``, unless ``text`` already contains it."""
    where = describe_line(line, file)
    return f"{text} ({where})" if where and f"({where})" not in text else text


def describe_error(error: BaseException, source: Path | str | None) -> str:
    """Describe an exception in one line, such as ``ZeroDivisionError: division by zero (line 12 of mine.py)``.

    The line is the innermost one in the file ``source``. It is omitted if the traceback does not reach this file.

    >>> describe_error(ZeroDivisionError("division by zero"), None)
    'ZeroDivisionError: division by zero'
    """
    line = line_in(error, source)
    message = first_line(error)
    if message.endswith(NO_TEXT):
        return with_line(message, line, source)
    if isinstance(error, SyntaxError):
        message = str(error.msg)
    return with_line(f"{type(error).__name__}{message and f': {message}'}", line, source)


def line_in(error: BaseException, source: Path | str | None) -> int | None:
    """Return the line of the innermost frame in ``source``. If there is none, return a syntax error's line, or None."""
    line, frame = error.lineno if isinstance(error, SyntaxError) else None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == str(source):
            line = frame.tb_lineno
        frame = frame.tb_next
    return line


def first_line(error: BaseException, most: int = 300) -> str:
    """Return the first line of an exception's message, shortened to ``most`` characters."""
    text = text_of(error).strip().partition("\n")[0]
    return text if len(text) <= most else text[:most] + "…"


def text_of(error: BaseException) -> str:
    """Return the message of an exception. If its ``__str__`` fails, return a placeholder."""
    try:
        return str(error)
    except BaseException:  # the user's code can raise anything
        return f"{type(error).__name__}{NO_TEXT}"


def shorten(value: object, most: int = 300) -> str:
    """Return ``repr(value)``, shortened to ``most`` characters. If ``repr`` fails, return a placeholder."""
    try:
        text = repr(value)
    except BaseException as error:
        text = f"<{type(value).__name__} whose repr fails with {type(error).__name__}>"
    return text if len(text) <= most else text[:most] + "…"
