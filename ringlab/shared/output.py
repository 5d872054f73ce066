"""How a command hands over its answer: shown to the reader first, then written to the files that were asked for.

Text of others comes out on the terminal as text, never as commands to the terminal.
"""

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import isinf
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from collectives.errors import InputError, RunFailed
from collectives.input_files import check_input
from collectives.output_files import check_output, write_text
from collectives.quoting import make_printable
from collectives.variables import is_first_rank
from ringlab.shared.answer import Answer, AnswerRecord, shorten
from ringlab.shared.failures import describe_system_error, is_reader_gone
from ringlab.shared.signals import INTERRUPTED
from ringlab.table import MOST_LETTERS, print_parts


@contextmanager
def naming_standard_output() -> Iterator[None]:
    """Within the context, have an OSError name standard output, unless it says that its reader is gone."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EPIPE:
            error.filename = "standard output"
        raise


class PlainConsole(Console):
    """A console that reads no markup, and shows control characters in place of obeying them; line ends stay."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text as it is to be shown; rich calls this for every text, also those in tables."""
        return super().render_str(make_printable(text, keep="\n", most=MOST_LETTERS), **{**options, "markup": False})

    def on_broken_pipe(self) -> None:
        """Raise the error, where rich would end the process, and with it what is still to be written to files."""
        raise  # rich calls this while it handles the error

    def _check_buffer(self) -> None:
        """Write what is to be shown. A standard error that takes nothing any more is left alone: it has no answers."""
        try:
            with naming_standard_output():
                super()._check_buffer()
        except OSError:
            if not self.stderr:
                raise
            self.quiet = True
            del self._buffer[:]


def make_console(stderr: bool = False, quiet: bool = False) -> Console:
    """Return the console on standard output, or on standard error."""
    return PlainConsole(stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False)


def check_outputs(*files: Path | str | None, reads: Path | None = None) -> None:
    """Raise InputError unless all files that a command is to write can be written, and no two are one.

    To be called before what takes long, when all other input than the calibration that it ``reads`` is read. None is
    no file, and no more is ``-``, which is standard output and only the JSON's.
    """

    if reads is not None:
        check_input(reads)
    if not is_first_rank():
        return
    named: dict[str, Path | str] = {}
    for file in files:
        if file is None or file == "-":
            continue
        if file == Path("-"):
            raise InputError("- (standard output) is only supported by --json; specify a file")
        check_output(file)
        real = os.path.realpath(file)
        if real in named and not Path(real).is_char_device():
            raise InputError(f"{file} and {named[real]} are the same file; use different files")
        named[real] = file


def deliver(answer: Answer, json_to: str | None, *writers: Callable[[], object], explain: bool = True) -> None:
    """Show an answer, write it as JSON to a file and call ``writers``; for ``-`` the JSON is all that is shown.

    All sentences are shown, unless a command with the option ``--explain`` says otherwise. Of several ranks only rank
    0 writes. Where it cannot be shown, or a file not be written, the others still are. Exits if the command was
    interrupted. Raises OSError.
    """
    if is_first_rank():
        shown = [] if json_to == "-" else [lambda: print_parts(answer.show(), make_console(), explain)]
        write_files(*shown, partial(write_json, answer, json_to), *writers)
    if answer.interrupted:
        raise typer.Exit(INTERRUPTED)


@contextmanager
def keep_broken_trace(path: Path | None) -> Iterator[None]:
    """Within the context, write the Trace of a run that breaks to ``path``, and add a note that says so."""
    try:
        yield
    except RunFailed as error:
        if path is not None and error.trace is not None and is_first_rank():
            error.trace.write(path)
            error.add_note(f"The trace up to this point is in {path}")
        raise


def write_files(*writers: Callable[[], object]) -> None:
    """Call all writers. Raise the first one's OSError, with those of others as notes.

    A reader of standard output that is gone comes after all other errors, as nothing is said of it.
    """
    errors = []
    for write in writers:
        try:
            write()
        except OSError as error:
            errors.append(error)
    errors.sort(key=is_reader_gone)
    for other in errors[1:]:
        if not is_reader_gone(other):
            errors[0].add_note(describe_system_error(other))
    if errors:
        raise errors[0]


def write_json(answer: AnswerRecord, json_to: str | None) -> None:
    """Write the answer as JSON to a file or, for ``-``, to standard output. Raises InputError, and OSError."""
    if json_to is None:
        return

    content = shorten(answer.to_dict())
    if _has_infinity(content):  # which JSON has not
        raise InputError("a result is too large for a float; check the rates and times for unrealistic values")
    text = json.dumps(content, indent=2, allow_nan=False)
    if json_to == "-":
        with naming_standard_output():
            typer.echo(text)
    else:
        write_text(json_to, text + "\n")


def _has_infinity(content: Any) -> bool:
    """Return whether a number in nested dicts and lists is infinite.

    >>> _has_infinity({"a": [1.0, {"b": float("-inf")}]}), _has_infinity([float("nan"), 1e308])
    (True, False)
    """
    if isinstance(content, dict | list | tuple):
        return any(map(_has_infinity, content.values() if isinstance(content, dict) else content))
    return isinstance(content, float) and isinf(content)
